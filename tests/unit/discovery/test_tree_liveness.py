# SPDX-License-Identifier: Apache-2.0
"""Liveness of trees in simulated fabrics: cables, directions, switches and VLANs fail.

Hosts and probes may be late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.discovery.nic_state import Direction
from ri2n_sdn.discovery.tree_inquiry import TreeInquiry
from ri2n_sdn.discovery.tree_liveness import LivenessSettings, TreeLiveness, TreeProbe
from ri2n_sdn.discovery.tree_state import TreeState
from ri2n_sdn.fabric.model import NicId
from tests.unit.vlan import worlds
from tests.unit.vlan.worlds import FABRICS, Fabric

TICK_S = 0.025
Port = tuple[NicId, int, Direction]


class World:
    """Probes cross the trees of a fabric in `delay_s`; some get lost.

    `cut` are (tree, directed link) and `missing` are ports that forward nothing; `broken` are dead
    switches. `stalled` and `frozen` say until when a host is so. A stalled host reports late,
    although it answers echo requests. A frozen one does nothing at all until then; afterwards it
    does `speed` things a tick, in the order in which it was asked.
    """

    def __init__(
        self, fabric: Fabric, loss: float = 0.0, config: LivenessSettings | None = None
    ) -> None:
        self.fabric, self.trees = fabric, fabric.trees
        self.liveness = TreeLiveness(self.trees, config)
        self.now_s, self.loss, self.delay_s = 100.0, loss, 0.001
        self.random = Random(1)
        self.cut: set[tuple[int, int]] = set()
        self.broken: set[int] = set()
        self.missing: set[Port] = set()
        self.stalled: dict[str, float] = {}
        self.frozen: dict[str, float] = {}
        self.speed = 10**9
        self.answering = True
        self.asked: dict[str, deque[TreeProbe | float]] = {
            nic[0]: deque() for nic in fabric.leaf_of
        }
        self.answered: dict[str, float] = {}
        self.reports: list[tuple[float, TreeProbe]] = []
        self.log: list[str] = []
        self.sent = self.crossed_dead = 0
        self.liveness.set_nics(fabric.leaf_of, fabric.leaf_of)

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds - 1e-9
        while self.now_s < end_s:
            self.now_s += TICK_S
            self.tick()

    def tick(self) -> None:
        for probe in self.liveness.tick(self.now_s, lambda host: self.answered.get(host, -1e9)):
            assert probe.sender != probe.target
            self.sent += 1
            self.asked[probe.sender[0]].append(probe)
        for host in self.liveness.hosts_under_test:
            self.asked[host].append(self.now_s)
        for host, asked in self.asked.items():
            for _ in range(
                min(self.speed, len(asked)) if self.now_s >= self.frozen.get(host, 0.0) else 0
            ):
                thing = asked.popleft()
                if isinstance(thing, TreeProbe):
                    self._send(thing)
                elif self.answering:
                    self.answered[host] = thing
        due = [probe for at_s, probe in self.reports if at_s <= self.now_s + 0.001]
        self.reports = [report for report in self.reports if report[0] > self.now_s + 0.001]
        for probe in due:
            self.liveness.heard(probe.sender, probe.target, probe.tree, self.now_s + 0.001)
        self.log += [event.text for event in self.liveness.events]
        self.liveness.events.clear()

    def _send(self, probe: TreeProbe) -> None:
        a, b = self.fabric.leaf_of[probe.sender], self.fabric.leaf_of[probe.target]
        works = self.works(probe.tree, a, b)
        ports: set[Port] = {(probe.sender, probe.tree, "tx"), (probe.target, probe.tree, "rx")}
        if not works or ports & self.missing or self.random.random() < self.loss:
            return
        hosts = (probe.sender[0], probe.target[0])
        late_s = [late.get(host, 0.0) for late in (self.stalled, self.frozen) for host in hosts]
        self.reports.append((max(self.now_s, *late_s) + self.delay_s, probe))

    def works(self, tree: int, a: int, b: int) -> bool:
        paths = self.trees.paths(tree)
        if not paths.joined(a, b):
            return False
        path = paths.path(a, b)
        crossed = {a, b} | {int(end) for link in path for end in self.trees.graph.ends[link // 2]}
        return not crossed & self.broken and not any((tree, link) in self.cut for link in path)

    def pairs(self) -> Iterable[tuple[int, int, int]]:
        leaves = sorted(set(self.fabric.leaf_of.values()) - self.broken)
        for tree in range(self.trees.count):
            for a, b in permutations(leaves, 2):
                yield tree, a, b

    def wrong(self) -> list[str]:
        """Paths between leaves with working NICs, and ports, of which liveness is not right."""
        names = self.trees.graph.names
        found = [
            f"{names[a]} to {names[b]} in tree {tree} "
            f"{'works' if self.works(tree, a, b) else 'is dead'}"
            for tree, a, b in self.pairs()
            if self.liveness.state.path_alive(tree, a, b) != self.works(tree, a, b)
        ]
        return found + [f"port {port}" for port in sorted(self.missing ^ self.liveness.dead_ports)]

    def cut_cable(
        self, a: str, b: str, trees: Iterable[int] | None = None, both: bool = True
    ) -> None:
        link = self.fabric.link(a, b)
        for tree in range(self.trees.count) if trees is None else trees:
            self.cut |= {(tree, link), (tree, link ^ 1)} if both else {(tree, link)}

    def heal(self) -> None:
        self.cut.clear()
        self.broken.clear()
        self.missing.clear()


def settled(fabric: Fabric, loss: float = 0.0, config: LivenessSettings | None = None) -> World:
    world = World(fabric, loss, config)
    world.run(0.5)
    assert not world.wrong()
    return world


def until_right(world: World, limit_s: float) -> float:
    """Run until liveness is right about everything; returns how many seconds that took."""
    start_s = world.now_s
    while world.wrong():
        world.run(TICK_S)
        assert world.now_s - start_s < limit_s, (
            world.wrong()[:5],
            sorted(world.liveness.dead),
            world.log,
        )
    return world.now_s - start_s


def test_a_dead_upper_switch_is_known_within_six_tenths_of_a_second_whenever_it_dies() -> None:
    for step in range(8):
        world = settled(FABRICS["vbft"])
        world.run(step * TICK_S)
        world.broken.add(world.fabric.switch("up2"))
        assert until_right(world, 0.6) <= 0.6
        assert not any(world.liveness.state.path_alive(1, a, b) for _, a, b in world.pairs())
        world.run(0.5)
        assert world.log == ["up2: is dead"]
        world.heal()
        until_right(world, 2.0)
        world.run(0.5)
        assert world.log == ["up2: is dead", "up2: works again"]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["vbft", "three stages", "ring"]), st.data())
def test_any_single_fault_is_found_exactly_and_forgotten_when_healed(
    name: str, data: st.DataObject
) -> None:
    fabric = FABRICS[name]
    graph = fabric.graph
    world = World(fabric)
    world.run(0.5 + TICK_S * data.draw(st.integers(0, 12), label="ticks"))
    kind = data.draw(
        st.sampled_from(["cable", "direction", "vlan on cable", "switch", "port", "port one way"])
    )
    tree = data.draw(st.integers(0, fabric.trees.count - 1), label="tree")
    if kind == "switch":
        upper = sorted(set(range(len(graph.names))) - set(fabric.leaf_of.values()))
        world.broken.add(data.draw(st.sampled_from(upper or list(range(len(graph.names))))))
    elif kind.startswith("port"):
        nic = data.draw(st.sampled_from(sorted(fabric.leaf_of)))
        directions: list[Direction] = ["tx", "rx"]
        if kind == "port one way":
            directions = [data.draw(st.sampled_from(directions))]
        world.missing |= {(nic, tree, direction) for direction in directions}
    else:
        link = data.draw(st.integers(0, 2 * len(graph.rate_bps) - 1), label="link")
        trees = [tree] if kind == "vlan on cable" else range(fabric.trees.count)
        world.cut |= {
            (t, each)
            for t in trees
            for each in ([link] if kind == "direction" else [link, link ^ 1])
        }
    world.run(1.0)
    assert not world.wrong()
    world.run(1.0)
    assert not world.wrong()
    told = list(world.log)
    world.heal()
    world.run(2.0)
    assert not world.wrong() and not world.liveness.dead
    assert all("works again" in line for line in world.log[len(told) :]), world.log


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["vbft", "three stages", "ring"]), st.data())
def test_no_pair_that_works_stays_dead_under_several_faults(name: str, data: st.DataObject) -> None:
    fabric = FABRICS[name]
    world = settled(fabric)
    links = st.tuples(
        st.integers(0, fabric.trees.count - 1), st.integers(0, 2 * len(fabric.graph.rate_bps) - 1)
    )
    world.cut = data.draw(st.sets(links, max_size=6))
    world.run(3.0)
    assert not world.wrong()
    world.heal()
    world.run(2.0)
    assert not world.wrong()


def test_events_name_the_cause() -> None:
    world = settled(FABRICS["three stages"])
    world.cut_cable("leaf1", "mid1")
    world.run(1.0)
    assert world.log == ["leaf1 port 1 to mid1: dead"]
    world.heal()
    world.run(2.0)
    assert world.log.pop() == "leaf1 port 1 to mid1: works again"
    world.log.clear()
    world.cut_cable("leaf1", "mid1", trees=[1])
    world.run(1.0)
    assert world.log == ["leaf1 port 1 to mid1: dead in VLAN 102"]
    world.heal()
    world.run(2.0)
    world.log.clear()
    world.cut_cable("mid1", "leaf1", both=False)
    world.missing = {
        (("h05", 1), tree, direction) for tree in (0, 1, 2) for direction in ("tx", "rx")
    }
    world.run(1.5)
    assert sorted(world.log) == [
        "h05:1 on leaf3, VLANs 101 to 103: does not work",
        "mid1 port 1 to leaf1: nothing gets through in this direction",
    ]


def test_a_switch_all_of_whose_cables_are_dead_is_not_dead_itself_while_its_own_nics_work() -> None:
    world = settled(FABRICS["vbft"])
    for up in ("up1", "up2", "up3", "up4"):
        world.cut_cable("leaf1", up)
    world.run(1.5)
    assert not world.wrong()
    assert world.log[-1:] == ["leaf1: nothing gets through any of its cables"]


def test_networks_that_share_vlans_do_not_disturb_each_other() -> None:
    world = settled(FABRICS["forest"])
    a, b = world.fabric.switch("b1"), world.fabric.switch("b2")
    assert not world.liveness.state.path_alive(2, a, b)  # the set has no tree there
    assert not world.liveness.state.path_alive(0, a, world.fabric.switch("a1"))
    world.broken.add(world.fabric.switch("v1"))
    world.run(1.0)
    assert not world.wrong()
    # With two cables in a row it is not known which of them is cut, or whether the switch is dead.
    assert world.log == ["v1: nothing gets through any of its cables"]


@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_random_loss_is_no_verdict(loss: float) -> None:
    world = World(FABRICS["vbft"], loss=loss)
    world.run(600.0)
    assert world.log == [] and not world.wrong()
    world.broken.add(world.fabric.switch("up1"))
    world.run(1.5)
    assert not world.wrong()


def test_probes_that_are_lost_once_are_repeated_and_no_host_is_asked_about_them() -> None:
    world = settled(FABRICS["vbft"])
    world.sent, world.loss = 0, 1.0
    while not world.sent:
        world.run(TICK_S)
    world.loss = 0.0
    world.run(1.0)
    assert not world.answered


def test_a_port_is_found_while_probes_get_lost() -> None:
    world = World(FABRICS["vbft"], loss=0.05)
    world.missing = {(("h03", 1), 2, "rx")}
    world.run(60.0)
    assert not world.wrong() and len(world.log) == 1


@pytest.mark.parametrize("kind", ["stalled", "frozen"])
@pytest.mark.parametrize("hosts", [1, 4])
def test_late_hosts_are_no_verdict(kind: str, hosts: int) -> None:
    world = settled(worlds.vbft(4, 4, hosts))
    for late_s in (0.2, 0.45, 0.8, 3.0):
        for step in range(4):
            world.run(step * TICK_S)
            until_s = world.now_s + late_s
            for victims in (["h01"], sorted(world.asked)):
                getattr(world, kind).update(dict.fromkeys(victims, until_s))
                world.run(late_s + 1.0)
                assert world.log == [] and not world.wrong(), (late_s, step, victims)


@pytest.mark.parametrize("speed", [1, 2, 4])
def test_hosts_that_are_behind_with_what_they_were_asked_are_no_verdict(speed: int) -> None:
    """Probes over suspect links still wait in the host while others of its probes arrive."""
    for hosts in (1, 3):
        world = settled(worlds.vbft(3, 3, hosts))
        for freeze_s in (0.2, 0.4, 0.7):
            world.frozen = dict.fromkeys(world.asked, world.now_s + freeze_s)
            world.speed = speed
            world.run(6.0)
            world.speed = 10**9
            world.run(1.0)
            assert world.log == [] and not world.wrong(), (freeze_s, hosts)


def test_no_verdict_without_answers_of_the_hosts_at_both_ends() -> None:
    world = settled(FABRICS["vbft"])
    world.answering = False
    world.broken.add(world.fabric.switch("up1"))
    world.run(5.0)
    assert not world.liveness.dead and world.liveness.hosts_under_test
    world.answering = True
    world.run(2.0)
    assert not world.wrong()


def test_faults_are_found_while_another_host_is_frozen() -> None:
    world = settled(FABRICS["vbft"])
    world.frozen["h01"] = world.now_s + 60
    world.run(2.0)
    world.broken.add(world.fabric.switch("up3"))
    world.run(2.0)
    assert not world.wrong()


def test_a_controller_that_was_stopped_blames_nobody() -> None:
    world = settled(FABRICS["vbft"])
    for gap_s in (0.3, 1.0, 30.0):
        for step in range(6):
            world.run(step * TICK_S + 0.2)
            world.now_s += gap_s
            world.run(1.0)
            assert world.log == []


@pytest.mark.parametrize("delay_s", [0.3, 0.8])
def test_probes_that_are_read_late_kill_nothing_and_real_faults_are_still_found(
    delay_s: float,
) -> None:
    world = World(FABRICS["vbft"])
    world.delay_s = world.liveness.lag_s = delay_s
    world.run(10.0)
    assert world.log == []
    world.cut_cable("leaf2", "up1", both=False)
    world.run(6 * delay_s + 1.0)
    assert not world.wrong()
    world.heal()
    world.run(3 * delay_s + 2.0)
    assert not world.wrong()


def test_a_nic_that_works_in_no_vlan_is_none_of_the_trees_business() -> None:
    for hosts in (1, 4):
        world = settled(worlds.vbft(4, 4, hosts))
        for tree in range(4):
            world.missing |= {(("h01", 1), tree, "tx"), (("h01", 1), tree, "rx")}
        world.run(5.0)
        assert not world.liveness.dead and not world.liveness.dead_ports and world.log == []
        world.liveness.set_nics(
            world.fabric.leaf_of, [nic for nic in world.fabric.leaf_of if nic != ("h01", 1)]
        )
        world.broken.add(world.fabric.switch("up1"))
        world.run(1.0)
        alive = {int(leaf) for nic, leaf in world.fabric.leaf_of.items() if nic != ("h01", 1)}
        assert not any(world.liveness.state.path_alive(0, a, b) for a, b in permutations(alive, 2))


@pytest.mark.parametrize("hears", [True, False])
def test_lost_probes_accuse_nothing_from_when_the_nic_hears_nothing_in_any_other_vlan_either(
    hears: bool,
) -> None:
    """Then it is rather its host that is late, or the NIC does not work."""
    fabric = FABRICS["vbft"]
    known = TreeState(fabric.trees)
    known.set_nics(fabric.leaf_of, frozenset(fabric.leaf_of))
    inquiry, lag_s = TreeInquiry(0, 100.0, LivenessSettings()), 0.1
    sender, target, another = ("h01", 1), ("h05", 1), ("h09", 1)
    inquiry.silent.append(TreeProbe(sender, target, 0))
    for burst in range(8):
        now_s = 100.0 + 0.05 * burst
        inquiry.step(known, now_s, lag_s, [1], 100)
        inquiry.heard(TreeProbe(sender, another, 1), (), now_s)
        if hears or burst == 0:
            inquiry.heard(TreeProbe(sender, target, 1), (), now_s)
    assert inquiry.over(101.0, lag_s, lambda _: 101.0)
    accused = [fabric.link("leaf1", "up1"), fabric.link("up1", "leaf2")] if hears else []
    assert inquiry.verdict(known, lag_s) == (accused, [])


def test_a_nic_that_is_plugged_in_elsewhere_leaves_its_dead_ports_behind() -> None:
    world = settled(FABRICS["vbft"])
    nic, leaf_of = ("h01", 1), world.fabric.leaf_of
    world.missing = {(nic, 1, "tx"), (nic, 1, "rx")}
    until_right(world, 3.0)
    world.liveness.set_nics({**leaf_of, nic: world.fabric.switch("leaf2")}, leaf_of)
    assert not world.liveness.dead_ports and world.liveness.state.port_alive(nic, 1) == (True, True)


def test_an_inquiry_asks_nothing_more_of_nics_that_are_gone() -> None:
    """It does not even send the probes that were about to be sent when they went."""
    world = settled(FABRICS["vbft"], config=LivenessSettings(probes_per_tick=2))
    leaf, left_s = world.fabric.switch("leaf1"), world.now_s + 2.0
    world.cut_cable("leaf1", "up1")
    while not world.liveness.hosts_under_test:
        world.run(TICK_S)
        assert world.now_s < left_s
    rest = {nic: at for nic, at in world.fabric.leaf_of.items() if at != leaf}
    world.liveness.set_nics(rest, rest)
    for _ in range(80):
        world.now_s += TICK_S
        for probe in world.liveness.tick(world.now_s, lambda _: world.now_s):
            assert {probe.sender, probe.target} <= rest.keys()
            world.liveness.heard(probe.sender, probe.target, probe.tree, world.now_s)
    assert not world.liveness.hosts_under_test and not world.liveness.dead


def test_a_dead_leaf_with_others_behind_it() -> None:
    """`Wiring` finds its dead NICs, but liveness finds the dead paths through it."""
    world = settled(FABRICS["ring"])
    world.broken.add(world.fabric.switch("s3"))
    world.run(1.5)
    assert not world.wrong()
    world.heal()
    world.run(2.0)
    assert not world.wrong()


def test_two_hosts_only() -> None:
    world = settled(worlds.vbft(2, 4, hosts=1))
    world.broken |= {world.fabric.switch("up2"), world.fabric.switch("up4")}
    world.run(1.0)
    assert not world.wrong()
    world.heal()
    world.run(2.0)
    assert not world.wrong()


def test_leaves_without_nics_are_skipped_and_join_later() -> None:
    world = World(FABRICS["vbft"])
    nobody = world.fabric.switch("leaf2")
    world.liveness.set_nics(
        world.fabric.leaf_of, [n for n, leaf in world.fabric.leaf_of.items() if leaf != nobody]
    )
    world.cut_cable("leaf2", "up1")
    world.run(2.0)
    assert not world.liveness.dead
    world.liveness.set_nics(world.fabric.leaf_of, world.fabric.leaf_of)
    world.run(1.0)
    assert not world.wrong()


def test_a_vlan_that_a_whole_leaf_lacks_is_no_vlan_of_its_cable() -> None:
    """If no NIC works in it, the ports cannot be told from the cable.

    A NIC that works in it exonerates the cable.
    """
    world = settled(FABRICS["vbft"])
    nics = [
        nic for nic, leaf in world.fabric.leaf_of.items() if leaf == world.fabric.switch("leaf2")
    ]
    world.missing = {(nic, 1, direction) for nic in nics[1:] for direction in ("tx", "rx")}
    world.run(4.0)
    assert not world.wrong()


def test_a_switch_that_flaps_comes_back_when_it_is_steady() -> None:
    world = settled(FABRICS["vbft"])
    up = world.fabric.switch("up1")
    for _ in range(8):
        world.broken.add(up)
        world.run(0.5)
        world.broken.clear()
        world.run(0.3)
    assert not world.liveness.state.path_alive(0, 0, world.fabric.switch("leaf2"))
    world.run(2.0)
    assert not world.wrong()


def test_probes_that_come_through_one_by_one_and_far_between_bring_no_link_back() -> None:
    """A link that loses nearly everything is of no use."""
    world = settled(FABRICS["vbft"])
    world.cut_cable("leaf1", "up1", trees=[0], both=False)
    until_right(world, 3.0)
    leaf = world.fabric.leaf_of
    one = next(nic for nic, at in leaf.items() if at == world.fabric.switch("leaf1"))
    other = next(nic for nic, at in leaf.items() if at == world.fabric.switch("leaf2"))
    for _ in range(8):
        world.run(5.0)
        world.liveness.heard(one, other, 0, world.now_s)
        assert not world.wrong(), "it is still dead"


def test_probes_from_before_a_links_death_that_are_read_late_do_not_bring_it_back() -> None:
    world = settled(FABRICS["vbft"])
    first, second = world.fabric.switch("leaf1"), world.fabric.switch("leaf2")
    one = next(nic for nic, at in world.fabric.leaf_of.items() if at == first)
    other = next(nic for nic, at in world.fabric.leaf_of.items() if at == second)
    world.cut_cable("leaf1", "up1", trees=[0], both=False)
    until_right(world, 3.0)

    def hear_three() -> None:
        for _ in range(3):
            world.run(0.25)
            world.liveness.heard(one, other, 0, world.now_s)

    world.liveness.lag_s = 1.0
    hear_three()
    state = world.liveness.state
    assert not state.path_alive(0, first, second), "they were sent up to a second ago"
    world.run(0.5)
    hear_three()
    assert state.path_alive(0, first, second), "these were sent since"


def test_every_nic_is_tried_in_every_vlan() -> None:
    world = World(worlds.vbft(4, 4, hosts=5))
    tried: set[Port] = set()
    for _ in range(40):
        world.now_s += TICK_S
        for probe in world.liveness.tick(world.now_s, lambda _: -1e9):
            tried |= {(probe.sender, probe.tree, "tx"), (probe.target, probe.tree, "rx")}
            world.liveness.heard(probe.sender, probe.target, probe.tree, world.now_s)
    assert len(tried) == 2 * 20 * 4


def test_cost_is_limited_and_even() -> None:
    world = World(worlds.vbft(12, 8, hosts=2), config=LivenessSettings(probes_per_s=100.0))
    world.run(2.0)
    world.sent = 0
    most = 0
    for _ in range(400):
        before = world.sent
        world.run(TICK_S)
        most = max(most, world.sent - before)
    assert 950 <= world.sent <= 1010
    assert most <= 10
    assert world.liveness.interval_s == pytest.approx(12 * 8 / 100)
    world.broken.add(world.fabric.switch("up7"))
    assert until_right(world, 3.0) > 0


def test_changes_are_reported_once() -> None:
    world = settled(FABRICS["vbft"])
    assert not world.liveness.changed
    world.cut_cable("leaf1", "up1")
    world.run(1.0)
    assert world.liveness.changed
    world.liveness.changed = False
    world.run(5.0)
    assert not world.liveness.changed
    world.liveness.set_nics({}, [])
    world.sent = 0
    world.run(1.0)
    assert world.sent == 0


def test_strange_reports_change_nothing() -> None:
    world = settled(FABRICS["forest"])
    for sender, receiver, tree in [
        (("h01", 1), ("nobody", 1), 0),
        (("h01", 1), ("h01", 1), 0),
        (("h01", 1), ("h02", 1), 99),
        (("h01", 1), ("h09", 1), 0),
        (("h09", 1), ("h10", 1), 2),
    ]:
        world.liveness.heard(sender, receiver, tree, world.now_s)
    world.run(1.0)
    assert not world.wrong() and world.log == []
