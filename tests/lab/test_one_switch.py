# SPDX-License-Identifier: Apache-2.0
"""Several NICs of every host are on one switch: the most common cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.errors import BadInput
from tests.lab.conftest import EXACT, controlled
from tests.lab.outages import hosts_need_no_controller, without_controller
from tests.lab.packets import broadcasts_arrive_once, flawless

pytestmark = pytest.mark.virtual


@pytest.fixture(scope="module")
def one_switch() -> Iterator[Lab]:
    with controlled("one-switch") as lab:
        yield lab


def test_a_broadcast_arrives_once_at_every_host(one_switch: Lab) -> None:
    broadcasts_arrive_once(one_switch)


def test_udp_flows_spread_over_slots_and_over_both_nics_of_one_switch(
    one_switch: Lab, wait_until: Callable[..., None]
) -> None:
    """64 UDP flows of 8 Mbit/s make the pair active: its own group counts them per slot."""

    def pair() -> dict[str, Any]:
        pairs = call(one_switch.controller_socket, "status")["pairs"]
        found: dict[str, Any] = next(
            pair for pair in pairs if (pair["src"], pair["dst"]) == ("B", "A")
        )
        return found

    def stats() -> str:
        return one_switch.ofctl("B", "dump-group-stats", "br-ri2n", f"group_id={pair()['group']}")

    def used_slots() -> int:
        return sum(int(count) > 0 for count in re.findall(r"bucket\d+:packet_count=(\d+)", stats()))

    stream = Stream(one_switch, "B", "A", pps=1000, seconds=2 if EXACT else 8, flows=64, size=1000)
    wait_until(lambda: pair()["active"] and used_slots() > 30, stats)
    assert sum(path["slots"] for path in pair()["paths"]) == 64
    got = stream.result()
    flawless(got)
    flows = one_switch.ofctl("B", "dump-flows", "br-ri2n", "table=30")
    nics = {
        port
        for n, port in re.findall(r"n_packets=(\d+).*output:(\d+)", flows)
        if int(n) > got.received / 16
    }
    assert nics == {"1", "2"}, flows


def test_a_strategy_can_be_changed_while_it_runs(one_switch: Lab) -> None:
    for name in ("ri2n_plus", "round_robin", "ri2n_plus_plus", "max_min"):
        call(one_switch.controller_socket, "strategy", name=name)
        assert call(one_switch.controller_socket, "status")["strategy"] == name
    with pytest.raises(BadInput, match="best"):
        call(one_switch.controller_socket, "strategy", name="best")


def test_without_a_controller_hosts_find_each_other_after_any_link_died(one_switch: Lab) -> None:
    with without_controller(one_switch):
        hosts_need_no_controller(one_switch)
