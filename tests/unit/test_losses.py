# SPDX-License-Identifier: Apache-2.0
"""The search for cables that lose packets, with counters of made-up traffic over known cables."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from ri2n_sdn.weights.counters import Count, PairCounters, PathCounters
from ri2n_sdn.weights.losses import Loss, LossSettings, LossWatch

HOSTS = ("A", "B", "C", "D")
RATE_BPS = 1e9
WINDOW_S = LossSettings().window_s
BYTES = 1000


class World:
    """Hosts with two NICs, one per network, that send to each other.

    Each directed link loses a given part of its packets.
    """

    def __init__(self, hosts: Iterable[str] = HOSTS, seed: int = 1) -> None:
        self.hosts = tuple(hosts)
        self.pairs = [(a, b) for a in self.hosts for b in self.hosts if a != b]
        self.lost: dict[str, float] = {}
        self.packets = 2000
        self.dead: set[str] = set()
        self.mute: set[str] = set()
        self.watch = LossWatch()
        self._now_s = 0.0
        self._random = random.Random(seed)
        self._counts: dict[tuple[str, str, int], list[int]] = {}
        self._told: dict[tuple[str, str, int], list[int]] = {}
        self._step()

    def window(self, count: int = 1) -> list[Loss]:
        for _ in range(count):
            self._now_s += WINDOW_S
            for a, b in self.pairs:
                for port in (1, 2):
                    through = (1 - self.lost.get(f"{a}:{port}>", 0)) * (
                        1 - self.lost.get(f">{b}:{port}", 0)
                    )
                    counts = self._counts.setdefault((a, b, port), [0, 0])
                    counts[0] += self.packets
                    counts[1] += self._some(through)
            self._step()
        return self.watch.losses

    def _some(self, through: float) -> int:
        spread = (self.packets * through * (1 - through)) ** 0.5
        return round(
            min(self.packets, max(0.0, self._random.gauss(self.packets * through, spread)))
        )

    def _step(self) -> None:
        pairs = []
        for a, b in self.pairs:
            paths = []
            for port in (1, 2):
                told, now = (
                    self._told.setdefault((a, b, port), [0, 0]),
                    self._counts.get((a, b, port), [0, 0]),
                )
                told[:] = [
                    told[0] if a in self.mute else now[0],
                    told[1] if b in self.mute else now[1],
                ]
                links = (f"{a}:{port}>", f">{b}:{port}")
                alive = not self.dead.intersection(links)
                paths.append(
                    PathCounters(
                        (port, port, 0),
                        alive,
                        links,
                        *(Count(packets, packets * BYTES) for packets in told),
                    )
                )
            pairs.append(PairCounters(a, b, tuple(paths), ()))
        rates = {
            link: RATE_BPS
            for a in self.hosts
            for port in (1, 2)
            for link in (f"{a}:{port}>", f">{a}:{port}")
        }
        self.watch.step(self._now_s, pairs, set(self.hosts) - self.mute, rates)


@pytest.mark.parametrize("link", ["A:1>", ">C:2"])
@pytest.mark.parametrize("part", [0.05, 0.2, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_the_cable_is_named_after_two_windows(link: str, part: float, seed: int) -> None:
    world = World(seed=seed)
    world.lost[link] = part
    assert world.window() == []
    (loss,) = world.window()
    assert loss.links == (link,)
    assert loss.part == pytest.approx(part, abs=0.02)


def test_two_cables_at_once() -> None:
    world = World()
    world.lost = {"A:1>": 0.3, ">B:1": 0.1, ">D:2": 0.06}
    assert [loss.links for loss in world.window(3)] == [("A:1>",), (">B:1",), (">D:2",)]


def test_a_loss_that_is_less_is_not_told_of() -> None:
    world = World()
    world.lost = {"A:1>": 0.02, ">B:1": 0.02}
    assert world.window(10) == []


def test_what_no_counter_tells_apart_is_named_together() -> None:
    world = World("AB")
    world.lost["A:1>"] = 0.2
    (loss,) = world.window(2)
    assert loss.links == (">B:1", "A:1>")
    assert loss.part == pytest.approx(0.2, abs=0.02)


def test_a_cable_in_order_again_is_forgotten_at_once() -> None:
    world = World()
    world.lost["A:1>"] = 0.2
    assert world.window(2)
    del world.lost["A:1>"]
    assert world.window() == []


def test_without_traffic_a_loss_is_kept_for_a_while() -> None:
    world = World()
    world.lost["A:1>"] = 0.2
    assert world.window(2)
    world.packets = 10
    kept = round(LossSettings().keep_s / WINDOW_S)
    assert world.window(kept - 1)
    assert world.window(3) == []


def test_a_loss_is_kept_while_only_some_of_the_suspected_links_are_in_order() -> None:
    world = World("ABC")
    world.pairs = [("A", "B")]
    world.lost["A:1>"] = 0.2
    before = world.window(2)
    assert [loss.links for loss in before] == [(">B:1", "A:1>")]
    world.pairs = [("C", "B")]  # A sends nothing any more, so its cable may still be the lossy one.
    assert world.window(2) == before


def test_a_full_link_says_nothing() -> None:
    """A switch port that three hosts send to drops the excess, which is no fault of a cable."""
    world = World()
    world.packets = round(0.9 * RATE_BPS * WINDOW_S / 8 / BYTES / 3)
    world.lost = {f">{host}:{port}": 0.2 for host in HOSTS for port in (1, 2)}
    assert world.window(5) == []


def test_dead_paths_are_somebody_elses_to_tell() -> None:
    world = World()
    world.lost["A:1>"] = 1.0
    world.dead = {"A:1>"}
    assert world.window(5) == []


def test_a_host_that_does_not_answer_is_not_taken_for_a_cable() -> None:
    """Its counters are old, and jump by more than was sent in a window when it answers again."""
    world = World()
    world.window(2)
    world.mute = {"B"}
    assert world.window(5) == []
    world.mute = set()
    assert world.window(5) == []


def test_counters_that_begin_anew_are_no_loss() -> None:
    world = World()
    world.window(2)
    for counts in world._counts.values():
        counts[1] = 0
    assert world.window(1) == []
    assert world.window(3) == []


def test_counters_that_begin_anew_confirm_no_odd_window_after_them() -> None:
    world = World()
    world.window(2)
    for counts in world._counts.values():
        counts[1] = 0
    world.window()
    world.lost["A:1>"] = 0.5
    assert world.window() == []


def test_one_odd_window_is_not_believed() -> None:
    world = World()
    world.window(2)
    world.lost["A:1>"] = 0.5
    world.window()
    world.lost = {}
    assert world.window(2) == []
