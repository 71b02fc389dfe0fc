# SPDX-License-Identifier: Apache-2.0
"""The clock of the day is set under a running controller and helpers, ahead a day and then back.

Nothing else changes. This needs a guest, which has a clock of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.guests.kernels import GUEST
from ri2n_sdn.client import call
from tests.problem_texts import problem_texts

from .conftest import WaitUntil, controlled, replace_controller
from .packets import reaches
from .striping import WHOLE_S, Cluster, stream_is_flawless

pytestmark = [
    pytest.mark.virtual,
    pytest.mark.usefixtures("reorder_program"),
    pytest.mark.skipif(GUEST not in os.environ, reason="would set this machine's clock"),
]

DAY_S = 86400.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with controlled("fig4/b", helpers=True) as lab:
        yield Cluster(lab)


def set_ahead(by_s: float) -> None:
    """Set the clock of the day; the other clocks go on."""
    time.clock_settime(time.CLOCK_REALTIME, time.time() + by_s)


def modes(lab: Lab) -> set[str]:
    return {lab.helpers.status(host)["mode"] for host in lab.helpers.hosts}


def whole(cluster: Cluster) -> bool:
    return cluster.usable() and cluster.controller_content()


@pytest.mark.parametrize(
    "by_s", [-DAY_S, pytest.param(DAY_S, marks=pytest.mark.long)], ids=["back", "ahead"]
)
def test_a_clock_that_is_set_changes_nothing(
    cluster: Cluster, by_s: float, wait_until: WaitUntil
) -> None:
    """The clock is set under a stream.

    What the controller says afterwards is heard, and so is the next controller, which has another
    day.
    """
    lab = cluster.lab
    wait_until(lambda: whole(cluster), cluster.described, WHOLE_S)
    before, pid = (
        call(lab.controller_socket, "status"),
        call(lab.controller_socket, "status")["pid"],
    )
    try:
        stream_is_flawless(cluster, 1000.0, lambda: set_ahead(by_s), seconds=4, outage_ms=1e12)
        status = call(lab.controller_socket, "status")
        assert status["pid"] == pid and problem_texts(status) == problem_texts(before), (
            problem_texts(status)
        )
        assert whole(cluster), cluster.described()
        for strategy, mode in (("round_robin", "RoundRobin"), ("max_min", "Paced")):
            call(lab.controller_socket, "strategy", name=strategy)
            wait_until(lambda mode=mode: modes(lab) == {mode}, cluster.described, WHOLE_S)
            assert call(lab.controller_socket, "status")["strategy"] == strategy
        replace_controller(lab)
        wait_until(lambda: whole(cluster), cluster.described, WHOLE_S)
        for strategy, mode in (("round_robin", "RoundRobin"), ("max_min", "Paced")):
            call(lab.controller_socket, "strategy", name=strategy)
            wait_until(lambda mode=mode: modes(lab) == {mode}, cluster.described, WHOLE_S)
        stream_is_flawless(cluster, 1000.0)
        reaches(lab, "A", "B")
    finally:
        set_ahead(-by_s)
