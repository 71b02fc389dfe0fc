# SPDX-License-Identifier: Apache-2.0
"""The helper alone, without Open vSwitch and without a controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ri2n_lab.cluster import Lab

from .conftest import WaitUntil
from .packets import all_reach_each_other, all_talk_tcp, broadcasts_arrive_once
from .striping import (
    FAULT_MS,
    TCP_BYTES,
    Cluster,
    pps,
    send_by_tcp,
    stream_is_flawless,
    topology_of,
    until_sent,
)

__all__ = ["pps"]

pytestmark = [pytest.mark.virtual, pytest.mark.usefixtures("reorder_program")]


@pytest.fixture(scope="module")
def alone() -> Iterator[Cluster]:
    """Three hosts with nothing but the helper: no Open vSwitch, no controller."""
    with Lab.create(topology_of("fig4/d"), software="autonomous") as lab:
        yield Cluster(lab)


def test_hosts_find_each_other_without_a_controller(alone: Cluster, wait_until: WaitUntil) -> None:
    alone.make_whole(wait_until)
    all_reach_each_other(alone.lab)
    all_reach_each_other(alone.lab, "-s", "6000")
    all_talk_tcp(alone.lab)
    broadcasts_arrive_once(alone.lab)


def test_one_tcp_connection_uses_both_networks_without_a_controller(
    alone: Cluster, wait_until: WaitUntil
) -> None:
    alone.make_whole(wait_until)
    sent = send_by_tcp(alone, "C", alone.lab.address("A"))
    assert min(sent.values()) > 0.45 * TCP_BYTES, f"{sent}\n{alone.described()}"


@pytest.mark.parametrize("host", ["C", "A"], ids=["own NIC", "the peer's NIC"])
def test_without_a_controller_a_fault_costs_no_packet(
    alone: Cluster, host: str, pps: float, wait_until: WaitUntil
) -> None:
    def break_it() -> None:
        nic = until_sent(alone, 0.05 * pps, wait_until, by_all=False, source="C")
        alone.lab.fault("nic_down", host=host, nic=nic)

    alone.make_whole(wait_until)
    stream_is_flawless(alone, pps, break_it, source="C", seconds=0.4, outage_ms=FAULT_MS)
