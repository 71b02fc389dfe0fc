# SPDX-License-Identifier: Apache-2.0
"""A NIC comes to a host and goes from it under streams of packets, and costs no packet.

The tests run on the kernel datapath, in guests, where losses are the same on every machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from tests.topology_text import parse_topology

from .conftest import EXACT, WaitUntil
from .prepared_host import HOST
from .test_host_nic import SITE, Nics

pytestmark = [
    pytest.mark.virtual,
    pytest.mark.long,
    pytest.mark.skipif(
        not EXACT, reason="needs a kernel of its own, with its datapath: tier kernel"
    ),
]


def nics_of(lab: Lab) -> set[str]:
    """The NICs of the host that the controller knows, each with a network."""
    status = call(lab.controller_socket, "status")
    return {nic for network in status["networks"] for nic in network["nics"] if nic[0] == HOST}


def test_a_nic_that_is_added_costs_no_packet_and_none_comes_twice(
    tmp_path: Path, wait_until: WaitUntil
) -> None:
    with Lab.create(parse_topology(SITE)) as lab:
        host = Nics(lab, tmp_path)
        host.prepare()
        host.write("eth0", "eth1", "eth2")
        lab.start_controller()
        lab.wait_ready()
        steps: list[tuple[str, str]] = [("retire", "eth2"), ("add", "eth2")] * 2
        for words in steps:
            wanted = {f"{HOST}:eth{n}" for n in (0, 1, *([2] if words[0] == "add" else []))}
            streams = [
                Stream(lab, *pair, pps=1000, seconds=4, flows=4, port=5600 + number)
                for number, pair in enumerate([("B", HOST), (HOST, "B")])
            ]
            host.nic(*words)
            wait_until(lambda wanted=wanted: nics_of(lab) == wanted, lambda: str(nics_of(lab)), 60)
            for stream in streams:
                got = stream.result()
                assert got.received and (got.lost, got.duplicates) == (0, 0), (words, got)
