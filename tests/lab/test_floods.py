# SPDX-License-Identifier: Apache-2.0
"""Floods from a plain host on the netdev datapath, where nftables drops frames too late.

This datapath reads frames before nftables may drop them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.bench.spinners import cpu_seconds
from ri2n_lab.cluster import Lab
from ri2n_sdn.client import call
from tests.topology_text import parse_topology

from .conftest import await_true
from .floods import BROADCAST, FLOODED, PROBES, flood, send
from .packets import reaches


@pytest.fixture(scope="module")
def flooded() -> Iterator[Lab]:
    with Lab.create(parse_topology(FLOODED)) as lab:
        assert lab.datapath == "netdev"
        lab.start_controller()
        lab.wait_ready()
        yield lab


def address(lab: Lab, host: str, device: str) -> str:
    return lab.exec(host, ["cat", f"/sys/class/net/{device}/address"]).stdout.strip()


def given(lab: Lab, host: str) -> int:
    """The frames that arrived at the host's NICs."""
    return sum(
        map(int, re.findall(r"rx pkts=(\d+)", lab.ofctl(host, "dump-ports", "br-ri2n", "eth0")))
    )


def busy_s(lab: Lab, host: str) -> float:
    """The CPU seconds that ovs-vswitchd has used."""
    pid = (lab.run_dir / host / "ovs-vswitchd.pid").read_text().strip()
    return cpu_seconds(Path(f"/proc/{pid}/stat").read_text())


FLOODS = {
    "broadcasts": (BROADCAST, "own", "88b7", 20_000),
    "probes": (PROBES, "own", "88b5", 20_000),
    # Each frame costs a lookup in all tables, in the host and in the switch, which is a program,
    # too.
    "new addresses": ("A", "random", "0800", 5_000),
    "broadcasts from new addresses": (BROADCAST, "random", "88b7", 5_000),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_hosts_reach_each_other_after_a_flood_and_no_nic_is_taken_for_dead(
    kind: str, flooded: Lab
) -> None:
    """`-s` shows what a frame costs."""
    target, source, eth_type, pps = FLOODS[kind]
    target = address(flooded, "A", "br-ri2n") if target == "A" else target
    before, began_s = given(flooded, "A"), busy_s(flooded, "A")
    deaths = call(flooded.controller_socket, "status")["counters"]["nic_deaths"]
    send(flooded, target, source, eth_type, pps=pps, seconds=2)
    await_true(lambda: given(flooded, "A") - before > pps, "the flood did not come")
    each_us = (busy_s(flooded, "A") - began_s) / (given(flooded, "A") - before) * 1e6
    print(f"{kind}: {each_us:.0f} us of ovs-vswitchd for each frame")
    flood(flooded, target, source, eth_type, pps=pps)
    reaches(flooded, "A", "B")
    reaches(flooded, "A", "R")
    # Only for R's own address: frames of new addresses may take all the CPU time that ovs-vswitchd
    # gets on a busy machine.
    if source == "own":
        assert call(flooded.controller_socket, "status")["counters"]["nic_deaths"] == deaths
        learned = set(
            re.findall(
                r"dl_dst=([0-9a-f:]{17})", flooded.ofctl("A", "dump-flows", "br-ri2n", "table=11")
            )
        )
        assert learned == {address(flooded, "R", "eth0")}
