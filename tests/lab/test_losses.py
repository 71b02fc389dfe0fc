# SPDX-License-Identifier: Apache-2.0
"""A cable that loses some of its packets is named in `status`, and full links are not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.iperf import IperfRun
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.weights.losses import LossSettings
from tests.lab.conftest import EXACT, WaitUntil, controlled

pytestmark = [
    pytest.mark.virtual,
    pytest.mark.skipif(
        not EXACT, reason="how much is lost is exact in virtual time alone: tier kernel"
    ),
]
FOUND_S = 3 * LossSettings().window_s


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with controlled("fig4/d") as made:
        yield made


@pytest.fixture(autouse=True)
def whole(lab: Lab, wait_until: WaitUntil) -> Iterator[None]:
    """A test begins when nothing is said of losses any more, however the one before it ended."""
    wait_until(lambda: not lost(lab), lambda: str(lost(lab)), 2 * LossSettings().keep_s)
    yield
    lab.restore_all()


def lost(lab: Lab) -> list[str]:
    problems = call(lab.controller_socket, "status", pairs=False)["problems"]
    return sorted(problem["text"] for problem in problems if "packets are lost" in problem["text"])


@contextmanager
def talking(lab: Lab, seconds: float) -> Iterator[None]:
    """Every host sends to every other one; paths over one switch have 100 packets/s and more.

    All send until the end of the block, at most for so many seconds. Each flow's packets are 40 ms
    apart; those of all flows are sent together, since it does not matter when each is sent.
    """
    streams = [
        Stream(lab, *ends, port=port, pps=400, seconds=seconds, flows=16, size=200, burst=16)
        for port, ends in enumerate(permutations("ABC", 2), 7000)
    ]
    try:
        yield
        assert all(stream.runs for stream in streams), "a stream ended before the test"
    finally:
        for stream in streams:
            stream.stop()


def test_a_cable_that_loses_one_packet_in_twenty_is_named(lab: Lab, wait_until: WaitUntil) -> None:
    with talking(lab, 2 * FOUND_S):
        lab.fault("loss", host="C", nic="eth0", loss=5)
        named = "packets are lost in what C:eth0"
        what = [f"% of {named} receives", f"% of {named} sends"]
        wait_until(
            lambda: sorted(text[text.index("%") :] for text in lost(lab)) == what,
            lambda: str(lost(lab)),
            FOUND_S,
        )
        assert all(4 <= int(text.partition("%")[0]) <= 6 for text in lost(lab)), lost(lab)
        lab.restore_all()
        wait_until(lambda: not lost(lab), lambda: str(lost(lab)), FOUND_S)


def test_full_links_are_no_bad_cables(lab: Lab) -> None:
    """B and C send to A as much as they can.

    A's switch ports drop what they have no room for.
    """
    seconds = 2.2 * LossSettings().window_s
    run = IperfRun(lab, "A", ["B", "C"], streams=8, seconds=seconds)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        assert not lost(lab)
        time.sleep(1.0)  # one look at `status` per second
    assert sum(got.goodput_bps for got in run.results(skip_s=3.0).values()) > 1.8e8
