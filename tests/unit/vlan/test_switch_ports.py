# SPDX-License-Identifier: Apache-2.0
"""Which VLANs each port of a switch carries: the model that all configurations are written from."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts, switch_ports
from ri2n_sdn.vlan.trees import trees_from_cables
from tests.topology_text import parse_topology
from tests.unit.vlan.switch_models import VBFT, vbft, vbft_trees

__all__ = ["vbft"]


def test_ports_of_a_small_fat_tree(vbft: dict[str, SwitchPorts]) -> None:
    ports = {port.number: port for port in vbft["leaf2"].ports}
    rate = 10**9
    assert list(ports) == [1, 2, 5, 6, 7, 8]
    assert ports[1] == SwitchPort(1, "n3:nic0", True, 101, (102,), False, rate)
    assert ports[5] == SwitchPort(5, "up1 port 2", False, None, (101,), False, rate)
    assert ports[6] == SwitchPort(6, "up2 port 2", False, None, (102,), False, rate)
    assert ports[7] == SwitchPort(7, "up2 port 3", False, None, (), True, rate)
    assert ports[8] == SwitchPort(8, "router:eth0", True, 101, (), False, rate)
    assert [port.description for port in vbft["leaf2"].ports][:3] == [
        "n3 nic0",
        "n4 nic0",
        "to up1 port 2",
    ]
    assert vbft["leaf2"].vlans == ((101, "ri2n-base"), (102, "ri2n-tree1"))
    assert vbft["up2"].vlans == ((102, "ri2n-tree1"),)
    assert [(port.number, port.carried, port.shut) for port in vbft["up2"].ports] == [
        (1, (102,), False),
        (2, (102,), False),
        (3, (), True),
    ]


def test_a_leaf_that_the_first_tree_leaves_out_is_named() -> None:
    topology = parse_topology(VBFT)
    graph = topology.graph
    trees = trees_from_cables(graph, (101,), [[0]], [[graph.index["up1"]]])
    with pytest.raises(
        ValueError,
        match=r"^switches\.leaf2: n3:nic0 is plugged into it, but VLAN 101 does not reach it$",
    ):
        switch_ports(topology, trees)


def test_trees_of_other_switches_are_refused() -> None:
    other = parse_topology(VBFT.replace("up2", "up3"))
    with pytest.raises(ValueError, match="not over the topology's switches"):
        switch_ports(other, vbft_trees(parse_topology(VBFT)))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.integers(0, 8), st.integers(1, 5), st.randoms(use_true_random=False))
def test_a_vlan_is_on_both_ends_of_its_trees_cables_and_on_no_other(
    switches: int, more: int, count: int, dice: random.Random
) -> None:
    pairs = [(dice.randrange(place), place) for place in range(1, switches)]
    for _ in range(more):
        first, second = sorted(dice.sample(range(switches), 2))
        pairs.append((first, second))
    links: dict[str, list[dict[str, object]]] = {f"s{place}": [] for place in range(switches)}
    for one, other in pairs:
        for near, far in ((one, other), (other, one)):
            ends = links[f"s{near}"]
            ends.append({"to": f"s{far}", "port": len(ends) + 1, "rate_bps": 10**9})
    hosts = {
        f"n{n}": {"nics": [{"name": "e", "switch": f"s{n}", "rate_bps": 10**9}]}
        for n in range(switches)
    }
    written = {
        "name": "x",
        "switches": {name: {"links": of} for name, of in links.items()},
        "hosts": hosts,
    }
    topology = Topology.model_validate(written)
    graph = topology.graph

    chosen = []
    for _ in range(count):
        part, tree = list(range(switches)), []
        for cable in dice.sample(range(len(graph.ends)), len(graph.ends)):
            a, b = (part[end] for end in graph.ends[cable].tolist())
            if a != b:
                tree.append(cable)
                part = [b if place == a else place for place in part]
        chosen.append(tree)
    vlans = tuple(range(201, 201 + count))
    found = {
        s.name: s
        for s in switch_ports(topology, trees_from_cables(graph, vlans, chosen, [[0]] * count))
    }

    on_port = {(name, port.number): port for name, switch in found.items() for port in switch.ports}
    for link in graph.cables():
        wanted = tuple(
            vlan for vlan, tree in zip(vlans, chosen, strict=True) if link.number in tree
        )
        for end in ((link.a, link.a_port), (link.b, link.b_port)):
            port = on_port.pop(end)
            assert (port.native, port.tagged, port.shut) == (None, wanted, not wanted)
    assert {port.carried for port in on_port.values()} == {vlans}
    assert {port.native for port in on_port.values()} == {201}
