# SPDX-License-Identifier: Apache-2.0
"""`ri2n vlan check` against model switches, some of whose ports, VLANs or cables are wrong."""

from __future__ import annotations

from itertools import permutations

import pytest

from ri2n_sdn.discovery.tree_liveness import TreeProbe
from ri2n_sdn.discovery.vlan_check import findings, learning_findings, learning_tests, sweep
from ri2n_sdn.fabric.model import NicId
from tests.unit.vlan import worlds
from tests.unit.vlan.worlds import Fabric

Port = tuple[int, int]
"""(switch, port number)."""


class Plant:
    """Switches as they are configured and cabled, which may differ from the plan.

    `shared` switches learn addresses for all VLANs together; `one_way` ports send nothing.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, trees = fabric, fabric.trees
        self.wires: dict[Port, Port] = {}
        self.vlans: dict[Port, set[int]] = {}
        self.shared: set[int] = set()
        self.one_way: set[Port] = set()
        self.tables: dict[tuple[int, str, int], int] = {}
        for cable in fabric.graph.cables():
            ends = (fabric.switch(cable.a), cable.a_port), (fabric.switch(cable.b), cable.b_port)
            for one, other in (ends, ends[::-1]):
                self.wires[one] = other
                self.vlans[one] = {
                    t for t in range(trees.count) if cable.number in trees.cable[t].tolist()
                }
        self.port_of: dict[NicId, Port] = {}
        for nic, leaf in sorted(fabric.leaf_of.items()):
            port = (
                leaf,
                1 + max((number for switch, number in self.vlans if switch == leaf), default=0),
            )
            self.vlans[port] = set(range(trees.count))
            self.port_of[nic] = port
        self.nic_at = {port: nic for nic, port in self.port_of.items()}

    def label(self, nic: NicId) -> str:
        switch, number = self.port_of[nic]
        return f"{self.fabric.graph.names[switch]} port {number} ({nic[0]}:nic0)"

    def port(self, a: str, b: str) -> Port:
        link = self.fabric.link(a, b)
        return self.fabric.switch(a), int(self.fabric.graph.ports[link // 2, link % 2])

    def swap(self, one: Port, other: Port) -> None:
        """Exchange what is plugged into two ports."""
        far_one, far_other = self.wires[one], self.wires[other]
        for a, b in ((one, far_other), (other, far_one)):
            self.wires[a], self.wires[b] = b, a

    def unplug(self, port: Port) -> None:
        del self.wires[self.wires.pop(port)]

    def send(self, sender: NicId, tree: int, source: str, target: str | None) -> set[NicId]:
        got: set[NicId] = set()
        waiting, seen = [self.port_of[sender]], set()
        while waiting:
            port = waiting.pop()
            switch = port[0]
            if port in seen or tree not in self.vlans[port]:
                continue
            seen.add(port)
            which = -1 if switch in self.shared else tree
            self.tables[switch, source, which] = port[1]
            known = None if target is None else self.tables.get((switch, target, which))
            out = (
                [each for each in self.vlans if each[0] == switch]
                if known is None
                else [(switch, known)]
            )
            for each in out:
                if each == port or tree not in self.vlans[each] or each in self.one_way:
                    continue
                if each in self.nic_at:
                    got.add(self.nic_at[each])
                elif each in self.wires:
                    waiting.append(self.wires[each])
        return got

    def check(self) -> list[str]:
        probes = sweep(self.fabric.trees, self.fabric.leaf_of)
        for nic in self.port_of:
            for tree in range(self.fabric.trees.count):
                self.send(nic, tree, str(nic), None)
        heard = {
            p
            for p in probes
            if p.target in self.send(p.sender, p.tree, str(p.sender), str(p.target))
        }
        return findings(self.fabric.trees, self.fabric.leaf_of, probes, heard, self.label)

    def check_learning(self) -> list[str]:
        tests = learning_tests(self.fabric.trees, self.fabric.leaf_of)
        arrived = set()
        for number, test in enumerate(tests):
            for place, step in enumerate(test.steps):
                got = self.send(
                    step.sender, step.tree, step.source or str(step.sender), step.target
                )
                if step.expect in got:
                    arrived.add((number, place))
        return learning_findings(tests, arrived)


@pytest.mark.parametrize("name", ["vbft", "three_stages", "ring", "forest"])
def test_what_is_as_planned_has_no_findings(name: str) -> None:
    plant = Plant(getattr(worlds, name)() if name != "vbft" else worlds.vbft(4, 4))
    assert plant.check() == []
    assert plant.check_learning() == []


def test_the_sweep_tries_every_nic_in_every_vlan_both_ways_at_home_and_away() -> None:
    fabric = worlds.vbft(3, 2, hosts=3)
    probes = sweep(fabric.trees, fabric.leaf_of)
    assert len(set(probes)) == len(probes)
    for away in (False, True):
        some = [p for p in probes if (fabric.leaf_of[p.sender] != fabric.leaf_of[p.target]) == away]
        assert {(p.sender, p.tree) for p in some} == {(p.target, p.tree) for p in some}
        assert len({(p.sender, p.tree) for p in some}) == 9 * 2
    assert len(probes) <= 4 * 9 * 2


def test_a_vlan_that_is_missing_at_a_hosts_port() -> None:
    plant = Plant(worlds.vbft(4, 4))
    for tree in (1, 3):
        plant.vlans[plant.port_of["h06", 1]].discard(tree)
    assert plant.check() == ["leaf2 port 6 (h06:nic0): VLANs 102, 104 are missing"]


def test_vlans_that_are_missing_at_a_port_between_switches() -> None:
    plant = Plant(worlds.three_stages())
    plant.vlans[plant.port("mid1", "leaf1")].discard(1)
    assert plant.check() == ["leaf1 port 1 to mid1: VLAN 102 missing"]


def test_a_cable_that_is_cut() -> None:
    plant = Plant(worlds.vbft(4, 4))
    plant.unplug(plant.port("leaf3", "up2"))
    assert plant.check() == ["leaf3 port 2 seems not to lead to up2: cut, or wrong cable"]


def test_cables_that_are_swapped() -> None:
    plant = Plant(worlds.vbft(4, 4))
    plant.swap(plant.port("leaf1", "up1"), plant.port("leaf1", "up2"))
    assert plant.check() == [
        "leaf1 port 1 seems not to lead to up1: cut, or wrong cable, or swapped with the other one "
        "of leaf1",
        "leaf1 port 2 seems not to lead to up2: cut, or wrong cable, or swapped with the other one "
        "of leaf1",
    ]


def test_cables_with_the_same_vlans_may_be_swapped_and_nobody_minds() -> None:
    plant = Plant(worlds.vbft(4, 4))
    plant.swap(plant.port("up1", "leaf1"), plant.port("up1", "leaf2"))
    assert plant.check() == []


def test_a_unidirectional_link() -> None:
    plant = Plant(worlds.vbft(4, 4))
    plant.one_way.add(plant.port("up3", "leaf2"))
    assert plant.check() == [
        "up3 port 2 to leaf2: unidirectional: nothing gets through in this direction"
    ]


def test_a_dead_switch_and_a_nic_that_is_not_there() -> None:
    plant = Plant(worlds.vbft(4, 4))
    for leaf in ("leaf1", "leaf2", "leaf3", "leaf4"):
        plant.unplug(plant.port("up1", leaf))
    plant.vlans[plant.port_of["h01", 1]].clear()
    assert plant.check() == [
        "leaf1 port 5 (h01:nic0): nothing works, in any VLAN: not plugged in there, or its host's "
        "fault",
        "up1: nothing gets through it: is dead",
    ]


def test_with_a_single_nic_a_leaf_cannot_be_told_from_its_cable() -> None:
    plant = Plant(worlds.vbft(3, 3, hosts=1))
    plant.vlans[plant.port_of["h02", 1]].discard(1)
    assert plant.check() == ["leaf2 port 2 seems not to lead to up2: cut, or wrong cable"]


def test_a_nic_to_which_nothing_gets_accuses_no_cable_of_its_leaf() -> None:
    """Nor does it accuse the switches, although it is the only NIC there.

    Nothing else crosses the path to it.
    """
    plant = Plant(worlds.vbft(3, 3, hosts=1))
    plant.one_way.add(plant.port_of["h02", 1])
    assert plant.check() == [
        "leaf2 port 4 (h02:nic0): nothing arrives, in any VLAN: not plugged in there, or its "
        "host's fault"
    ]


@pytest.mark.parametrize("hosts", [2, 3])
def test_a_leaf_that_learns_for_all_vlans_together(hosts: int) -> None:
    for name in ("leaf1", "leaf4"):
        plant = Plant(worlds.vbft(4, 4, hosts))
        plant.shared.add(plant.fabric.switch(name))
        assert plant.check_learning() == [
            f"{name}: learns MACs for all VLANs together (shared learning)"
        ]


def test_switches_behind_a_leaf_that_learns_for_all_vlans_together_are_not_named() -> None:
    """Their own tests cross that leaf and fail with it, which says nothing about them."""
    plant = Plant(worlds.three_stages())
    plant.shared.add(plant.fabric.switch("leaf1"))
    assert plant.check_learning() == ["leaf1: learns MACs for all VLANs together (shared learning)"]


def test_a_middle_switch_that_learns_for_all_vlans_together_is_among_those_named() -> None:
    plant = Plant(worlds.three_stages())
    plant.shared.add(plant.fabric.switch("mid1"))
    found = plant.check_learning()
    assert found and all("mid1" in text and "leaf" not in text.split(":")[0] for text in found)


def test_strangers_probes_change_nothing() -> None:
    fabric = worlds.vbft(2, 2)
    probes = sweep(fabric.trees, fabric.leaf_of)
    nics = sorted(fabric.leaf_of)
    strange = {TreeProbe(a, b, 1) for a, b in permutations([nics[0], nics[-1], ("x", 1)], 2)} - set(
        probes
    )
    assert findings(fabric.trees, fabric.leaf_of, probes, {*probes, *strange}) == []
