# SPDX-License-Identifier: Apache-2.0
"""Priming against a model of switches that learn, forget and flood.

No unicast frame is flooded after the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from ri2n_sdn.fabric.model import NicId
from ri2n_sdn.vlan.priming import Prime, Priming, PrimingSettings, Use
from tests.unit.vlan import worlds
from tests.unit.vlan.worlds import Fabric

TICK_S = 0.1


class Switches:
    """The switches of a fabric; a port is named by the switch or NIC that it leads to."""

    def __init__(self, fabric: Fabric, ageing_s: float) -> None:
        self.trees, self.leaf_of, self.ageing_s = fabric.trees, fabric.leaf_of, ageing_s
        self.tables: list[dict[tuple[NicId, int], tuple[int | NicId, float]]] = [
            {} for _ in fabric.graph.names
        ]
        self.ports: list[list[list[int | NicId]]] = []
        for tree in range(self.trees.count):
            ports: list[list[int | NicId]] = [[] for _ in fabric.graph.names]
            for switch, above in enumerate(self.trees.parent[tree].tolist()):
                if above >= 0:
                    ports[switch].append(above)
                    ports[above].append(switch)
            for nic, leaf in fabric.leaf_of.items():
                ports[leaf].append(nic)
            self.ports.append(ports)

    def send(self, frame: Prime, now_s: float) -> tuple[int, set[NicId]]:
        """How many switches flooded the frame, and the NICs that received it."""
        flooded, got = 0, set()
        waiting: list[tuple[int, int | NicId]] = [(self.leaf_of[frame.sender], frame.sender)]
        while waiting:
            switch, came_by = waiting.pop()
            table = self.tables[switch]
            table[frame.sender, frame.tree] = (came_by, now_s)
            entry = None if frame.target is None else table.get((frame.target, frame.tree))
            if entry is not None and now_s - entry[1] <= self.ageing_s:
                ports = [entry[0]]
            else:
                ports = self.ports[frame.tree][switch]
                flooded += frame.target is not None
            for port in ports:
                if port == came_by:
                    continue
                if isinstance(port, int):
                    waiting.append((port, switch))
                else:
                    got.add(port)
        return flooded, got


@dataclass
class Pair:
    """Two NICs that use a tree for each direction; `one_way` pairs never answer."""

    a: NicId
    b: NicId
    one_way: bool
    every_s: float
    trees: list[int] = field(default_factory=lambda: [0, 0])
    wanted: list[int] = field(default_factory=lambda: [0, 0])
    active: bool = True
    next_s: float = 0.0

    def uses(self) -> Iterator[Use]:
        for tree in {*self.trees, *self.wanted} if self.active else ():
            yield self.a, self.b, tree


class World:
    """Pairs send, move between trees, pause and begin again."""

    def __init__(self, fabric: Fabric, settings: PrimingSettings, seed: int = 1) -> None:
        self.fabric, self.settings = fabric, settings
        self.switches = Switches(fabric, settings.ageing_s)
        self.priming = Priming(settings)
        self.random = Random(seed)
        self.nics = dict.fromkeys(fabric.leaf_of, fabric.trees.count)
        names = sorted(self.nics)
        half = len(names) // 2
        self.pairs = [
            Pair(
                names[i],
                names[(i + half + i % 3) % len(names)],
                i % 2 == 0,
                0.3 + i % 5 * settings.ageing_s / 7,
            )
            for i in range(half)
        ]
        self.now_s, self.flooded, self.primes_flooded, self.data = 1000.0, 0, 0, 0
        self.frames: list[tuple[float, Prime]] = []
        self.moves = 0

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds - 1e-6
        while self.now_s < end_s:
            self.now_s += TICK_S
            in_use = {use for pair in self.pairs for use in pair.uses()}
            for frame in self.priming.tick(self.now_s, self.nics, in_use):
                self.frames.append((self.now_s, frame))
                self.primes_flooded += self.switches.send(frame, self.now_s)[0]
            for pair in self.pairs:
                self._go_on(pair)

    def _go_on(self, pair: Pair) -> None:
        now_s, trees = self.now_s, self.fabric.trees.count
        ageing_s = self.settings.ageing_s
        if not pair.active:
            if now_s >= pair.next_s:
                pair.active, pair.trees, pair.next_s = True, [0, 0], now_s
            return
        for path in (0, 1):
            tree = pair.wanted[path]
            if tree != pair.trees[path] and all(
                self.priming.ready(nic, tree, now_s) for nic in (pair.a, pair.b)
            ):
                pair.trees[path] = tree
                self.moves += 1
        if now_s < pair.next_s:
            return
        pair.next_s = now_s + pair.every_s
        for path, (sender, target) in enumerate(((pair.a, pair.b), (pair.b, pair.a))):
            if path == 0 or not pair.one_way:
                flooded, got = self.switches.send(Prime(sender, target, pair.trees[path]), now_s)
                assert target in got
                self.flooded += flooded
                self.data += 1
        if self.random.random() < pair.every_s / ageing_s:
            pair.wanted = [self.random.randrange(trees), self.random.randrange(trees)]
        if self.random.random() < pair.every_s / ageing_s / 4:
            pair.active, pair.next_s = False, now_s + self.random.uniform(0.1, 2.0) * ageing_s


REGIMES = {"everywhere": 100.0, "where used": 0.3}


@pytest.mark.parametrize("ageing_s", [15.0, 300.0])
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("kind", ["vbft", "stages"])
def test_nothing_is_flooded_after_the_start(kind: str, regime: str, ageing_s: float) -> None:
    fabric = worlds.vbft(4, 4) if kind == "vbft" else worlds.three_stages()
    world = World(fabric, PrimingSettings(ageing_s=ageing_s, frames_per_s=REGIMES[regime]))
    for pair in world.pairs:
        pair.next_s = world.now_s + 1.0
    world.run(20 * 60)
    assert world.priming.everywhere == (regime == "everywhere")
    assert world.data > 1000 and world.moves > 10
    assert world.flooded == 0 and world.primes_flooded == 0


def test_without_priming_the_model_floods() -> None:
    world = World(worlds.vbft(4, 4), PrimingSettings(ageing_s=15.0))
    world.priming = Priming(PrimingSettings(ageing_s=1e6))  # announces once: switches forget
    world.run(60)
    assert world.flooded > 0


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("regime", REGIMES)
def test_switches_that_forget_everything_are_taught_again(regime: str, told: bool) -> None:
    world = World(worlds.vbft(4, 4), PrimingSettings(frames_per_s=REGIMES[regime]))
    for pair in world.pairs:
        pair.next_s = world.now_s + 1.0
    world.run(200)
    assert world.flooded == 0
    for table in world.switches.tables:
        table.clear()
    if told:
        world.priming.due_at_once()
        assert not any(world.priming.ready(nic, 0, world.now_s) for nic in world.nics)
    world.run(0.5)
    world.flooded = 0
    world.run(300)
    assert (world.flooded == 0) == told


def ticked(
    priming: Priming, nics: dict[NicId, int], in_use: set[Use], seconds: float
) -> list[tuple[float, Prime]]:
    """The frames of so many seconds, with a tick every 25 ms."""
    found = []
    start_s = getattr(priming, "_last_s", None) or 0.0
    for step in range(1, round(seconds / 0.025) + 1):
        now_s = start_s + step * 0.025
        found += [(now_s, frame) for frame in priming.tick(now_s, nics, in_use)]
    return found


def some(count: int, trees: int) -> dict[NicId, int]:
    return {(f"h{i:04}", 1): trees for i in range(count)}


def test_announcements_are_paced_and_spread() -> None:
    nics = some(1000, 4)
    priming = Priming(PrimingSettings(ageing_s=300.0))
    start = ticked(priming, nics, set(), 2.5)
    assert priming.everywhere
    assert {(frame.sender, frame.tree) for _, frame in start} == {
        (nic, tree) for nic in nics for tree in range(4)
    }
    in_tick: dict[float, int] = {}
    for now_s, _ in start:
        in_tick[now_s] = in_tick.get(now_s, 0) + 1
    assert max(in_tick.values()) <= 2000 * 0.025 + 5
    later = ticked(priming, nics, set(), 100.0)
    assert 3950 <= len(later) <= 4050
    for second in range(100):
        assert 35 <= sum(second <= now_s - 2.5 < second + 1 for now_s, _ in later) <= 45
    assert len({(frame.sender, frame.tree) for _, frame in later}) >= 3950


def test_where_all_is_too_much_only_what_is_used_is_announced() -> None:
    nics = some(1000, 64)
    priming = Priming(PrimingSettings(ageing_s=300.0))
    a, b = ("h0001", 1), ("h0900", 1)
    frames = [frame for _, frame in ticked(priming, nics, {(b, a, 7)}, 1.0)]
    assert not priming.everywhere
    above = [frame for frame in frames if frame.tree]
    assert above == [Prime(a, None, 7), Prime(b, None, 7), Prime(a, b, 7), Prime(b, a, 7)]
    assert {frame.sender for frame in frames if frame.tree == 0} == set(nics)
    assert priming.ready(a, 7, 1.0) and priming.ready(a, 0, 1.0) and not priming.ready(a, 8, 1.0)
    later = [frame for _, frame in ticked(priming, nics, {(b, a, 7)}, 300.0)]
    assert 3 <= later.count(Prime(a, b, 7)) <= 4 and later.count(Prime(a, b, 7)) == later.count(
        Prime(b, a, 7)
    )
    assert not [frame for frame in later if frame.tree and frame.target is None]
    # Switches that are not on the pair's path have forgotten it.
    assert not priming.ready(a, 7, 301.0)
    assert Prime(a, None, 7) in [
        frame for _, frame in ticked(priming, nics, {(a, b, 7), (a, ("h0002", 1), 7)}, 1.0)
    ]


def test_no_unicast_before_both_ends_are_announced() -> None:
    nics = some(1000, 64)
    priming = Priming(PrimingSettings(start_per_s=100.0))
    names = sorted(nics)
    in_use = {(names[i], names[999 - i], 1 + i % 5) for i in range(100)}
    announced = set()
    unicast = 0
    for _, frame in ticked(priming, nics, in_use, 30.0):
        if frame.target is None:
            announced.add((frame.sender, frame.tree))
        else:
            unicast += 1
            assert {(frame.sender, frame.tree), (frame.target, frame.tree)} <= announced
    assert unicast >= 200


def test_what_pairs_wait_for_comes_first() -> None:
    nics = some(1000, 4)
    priming = Priming(PrimingSettings())
    pair = (("h0998", 1), ("h0999", 1), 3)
    first = [frame for _, frame in ticked(priming, nics, {pair}, 0.1)][:2]
    assert first == [Prime(pair[0], None, 3), Prime(pair[1], None, 3)]


def test_a_late_tick_makes_no_burst_and_what_was_forgotten_is_not_ready() -> None:
    nics = some(100, 4)
    priming = Priming(PrimingSettings(ageing_s=30.0))
    ticked(priming, nics, set(), 20.0)
    assert priming.ready(("h0000", 1), 3, 20.0)
    assert not priming.ready(("h0000", 1), 3, 60.0)
    frames = priming.tick(60.0, nics, set())
    assert len(frames) <= 250
    frames += [frame for _, frame in ticked(priming, nics, set(), 0.5)]
    assert len({(frame.sender, frame.tree) for frame in frames}) == 400
    assert priming.ready(("h0000", 1), 3, 60.5)


def test_nics_are_not_ready_some_time_before_they_are_forgotten() -> None:
    """Whoever asks will send a moment later, and will go on for a while."""
    priming = Priming(PrimingSettings(ageing_s=30.0))
    nic = ("h0000", 1)
    ((announced_s, _),) = ticked(priming, {nic: 1}, set(), 1.0)
    assert not priming.ready(nic, 0, announced_s + 0.04)
    assert priming.ready(nic, 0, announced_s + 0.06) and priming.ready(nic, 0, announced_s + 24.0)
    assert not priming.ready(nic, 0, announced_s + 26.0)


def test_nics_that_are_gone_are_forgotten_and_new_ones_are_announced_at_once() -> None:
    nics = some(10, 2)
    priming = Priming(PrimingSettings())
    ticked(priming, nics, {(("h0001", 1), ("h0002", 1), 1)}, 1.0)
    fewer = {nic: count for nic, count in nics.items() if nic != ("h0001", 1)}
    frames = ticked(priming, fewer, {(("h0001", 1), ("h0002", 1), 1)}, 100.0)
    assert frames and all(("h0001", 1) not in (frame.sender, frame.target) for _, frame in frames)
    assert not priming.ready(("h0001", 1), 0, 101.0)
    new = [frame for _, frame in ticked(priming, nics, set(), 0.1)]
    assert Prime(("h0001", 1), None, 0) in new and Prime(("h0001", 1), None, 1) in new


def test_networks_with_fewer_trees_are_announced_in_those() -> None:
    nics: dict[NicId, int] = {("a", 1): 3, ("b", 1): 1}
    frames = [frame for _, frame in ticked(Priming(), nics, {(("a", 1), ("b", 1), 2)}, 1.0)]
    assert {(frame.sender[0], frame.tree) for frame in frames} == {
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
    }


def test_pairs_ask_for_no_tree_that_one_of_their_nics_is_not_in() -> None:
    nics: dict[NicId, int] = {("a", 1): 3, ("b", 1): 1}
    priming = Priming(PrimingSettings(frames_per_s=0.03))
    in_use = {(("a", 1), ("b", 1), 2), (("a", 1), ("gone", 1), 1)}
    frames = [frame for _, frame in ticked(priming, nics, in_use, 1.0)]
    assert not priming.everywhere
    assert frames == [Prime(("a", 1), None, 0), Prime(("b", 1), None, 0)]


def test_the_same_calls_give_the_same_frames() -> None:
    runs = []
    for _ in range(2):
        world = World(worlds.vbft(4, 4), PrimingSettings(ageing_s=15.0, frames_per_s=0.3), seed=7)
        world.run(60)
        runs.append(world.frames)
    assert runs[0] == runs[1]
