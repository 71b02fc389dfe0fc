# SPDX-License-Identifier: Apache-2.0
"""A small fat tree's switches, and whether a configuration means what the model says."""

from __future__ import annotations

import pytest

from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.vlan.configs import VENDORS
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts, switch_ports
from ri2n_sdn.vlan.trees import Trees, trees_from_cables
from tests.topology_text import parse_topology
from tests.unit.vlan.switch_parsers import PARSERS, PortState

__all__ = ["VBFT", "assert_means", "names_of", "vbft", "vbft_trees"]

# VBFT(2, 2) of 4 hosts, a router, and a spare cable that no tree uses.
VBFT = """
name: vbft22
switches:
  leaf1: {links: [{to: up1, port: 5, rate_bps: 1000000000},
                  {to: up2, port: 6, rate_bps: 1000000000}]}
  leaf2:
    links:
      - {to: up1, port: 5, rate_bps: 1000000000}
      - {to: up2, port: 6, rate_bps: 1000000000}
      - {to: up2, port: 7, rate_bps: 1000000000}
  up1: {links: [{to: leaf1, port: 1, rate_bps: 1000000000},
                {to: leaf2, port: 2, rate_bps: 1000000000}]}
  up2:
    links:
      - {to: leaf1, port: 1, rate_bps: 1000000000}
      - {to: leaf2, port: 2, rate_bps: 1000000000}
      - {to: leaf2, port: 3, rate_bps: 1000000000}
hosts:
  n1: {nics: [{name: nic0, switch: leaf1, rate_bps: 1000000000}]}
  n2: {nics: [{name: nic0, switch: leaf1, rate_bps: 1000000000}]}
  n3: {nics: [{name: nic0, switch: leaf2, rate_bps: 1000000000}]}
  n4: {nics: [{name: nic0, switch: leaf2, rate_bps: 1000000000}]}
  router: {managed: false, nics: [{name: eth0, switch: leaf2, port: 8, rate_bps: 1000000000}]}
"""


def vbft_trees(topology: Topology) -> Trees:
    """One tree from each upper switch, by the first cable to each leaf; IDs 101 and 102."""
    graph = topology.graph
    of = {(cable.a, cable.b, cable.a_port): cable.number for cable in graph.cables()}
    return trees_from_cables(
        graph,
        (101, 102),
        [[of["leaf1", up, port], of["leaf2", up, port]] for up, port in (("up1", 5), ("up2", 6))],
        [[graph.index["up1"]], [graph.index["up2"]]],
    )


@pytest.fixture(scope="module")
def vbft() -> dict[str, SwitchPorts]:
    topology = parse_topology(VBFT)
    return {switch.name: switch for switch in switch_ports(topology, vbft_trees(topology))}


def names_of(vendor: str, switch: SwitchPorts) -> dict[str, SwitchPort]:
    return {VENDORS[vendor].port_name(port.number): port for port in switch.ports}


def assert_means(vendor: str, text: str, ports: dict[str, SwitchPort]) -> None:
    """Assert that a switch which reads `text` does with each port what the model says."""
    found = PARSERS[vendor](text)
    assert set(found) == set(ports)
    for name, port in ports.items():
        state = found[name]
        wanted = PortState(port.native, frozenset(port.tagged), port.shut)
        assert (state.untagged, state.tagged, state.shut) == (
            wanted.untagged,
            wanted.tagged,
            wanted.shut,
        ), name
        if not (vendor == "ovs" and port.shut):
            assert state.description == port.description
        if vendor in ("ios", "eos", "powerconnect", "junos"):
            assert state.guarded is port.to_host
