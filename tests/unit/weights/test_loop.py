# SPDX-License-Identifier: Apache-2.0
"""The weight loop: active pairs, odd counters, tables that do not change, HBSPAN, and its work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.model import PairKey, PathKey
from ri2n_sdn.rates.arrays import FloatArray
from ri2n_sdn.weights import split
from ri2n_sdn.weights.counters import ZERO, Count, PairCounters, PathCounters
from ri2n_sdn.weights.loop import Decision, LoopSettings, WeightLoop
from ri2n_sdn.weights.memory import PairMemory
from ri2n_sdn.weights.slots import default_slots
from ri2n_sdn.weights.strategies import STRATEGIES
from tests.unit.weights.samples import work_of

CAPACITY = {f"{host}:{port}>": 1e8 for host in "ABCD" for port in (1, 2)}
CAPACITY |= {f">{host}:{port}": 1e8 for host in "ABCD" for port in (1, 2)}


class Feed:
    """Cumulative counters of pairs at constant rates, and the tables that decisions install."""

    def __init__(self, loop: WeightLoop) -> None:
        self.loop = loop
        self.now_s = 0.0
        self.mbit: dict[PairKey, dict[PathKey, float]] = {}
        self.sent: dict[PairKey, dict[PathKey, float]] = {}
        self.dead: set[tuple[PairKey, PathKey]] = set()
        self.slots: dict[PairKey, tuple[PathKey, ...]] = {}
        self.slot_bytes: dict[PairKey, tuple[int, ...]] = {}
        self.hidden: set[PairKey] = set()

    def pair(self, sender: str, receiver: str, **mbit: float) -> PairKey:
        """Add a pair with a path per given NIC: n1=50.0 is 50 Mbit/s over port 1 of both hosts."""
        key = (sender, receiver)
        self.mbit[key] = {(int(nic[1:]), int(nic[1:]), 0): rate for nic, rate in mbit.items()}
        self.sent.setdefault(key, dict.fromkeys(self.mbit[key], 0.0))
        self.slots.setdefault(key, default_slots(list(self.mbit[key]), [1e8] * len(mbit)))
        return key

    def counters(self) -> list[PairCounters]:
        return [
            PairCounters(
                *key,
                tuple(
                    PathCounters(
                        path,
                        (key, path) not in self.dead,
                        (f"{key[0]}:{path[0]}>", f">{key[1]}:{path[1]}"),
                        *(Count(int(count) // 1500, int(count)),) * 2,
                    )
                    for path, count in paths.items()
                ),
                self.slots[key],
                self.slot_bytes.get(key),
            )
            for key, paths in self.sent.items()
            if key not in self.hidden
        ]

    def step(self, elapsed_s: float = 0.25, counted_s: float | None = None) -> Decision:
        """Let time pass and take one step. Counters show `counted_s` of the traffic."""
        self.now_s += elapsed_s
        for key, paths in self.mbit.items():
            for path, rate in paths.items():
                self.sent[key][path] += (
                    rate * 1e6 / 8 * (elapsed_s if counted_s is None else counted_s)
                )
        decision = self.loop.step(self.now_s, self.counters(), CAPACITY)
        for key, wanted in decision.pairs.items():
            self.slots[key] = wanted.slots
        return decision


@pytest.fixture
def feed() -> Feed:
    return Feed(WeightLoop())


def test_a_wrong_strategy_is_refused() -> None:
    with pytest.raises(BadInput, match="unknown strategy 'best'"):
        WeightLoop(LoopSettings(strategy="best"))
    with pytest.raises(BadInput, match="unknown strategy ''"):
        WeightLoop().set_strategy("")


def test_pairs_with_traffic_get_decisions_and_pings_do_not(feed: Feed) -> None:
    bulk, ping = feed.pair("C", "A", n1=50.0, n2=90.0), feed.pair("B", "A", n1=0.0008)
    assert feed.step().pairs == {}, "one reading says nothing"
    assert set(feed.step().pairs) == {bulk}
    for _ in range(8):
        decision = feed.step()
    assert set(decision.pairs) == {bulk} and ping not in decision.pairs
    assert sum(decision.pairs[bulk].share.values()) == pytest.approx(1.0)
    assert decision.pairs[bulk].rate_bps is not None


def test_the_squeezed_link_is_left_within_a_second(feed: Feed) -> None:
    """Topology d from cold: the second reading is enough to see that B and C fill link 0."""
    feed.pair("B", "A", n1=60.0)
    c = feed.pair("C", "A", n1=35.0, n2=95.0)
    for _ in range(4):
        decision = feed.step()
    assert decision.pairs[c].share[1, 1, 0] == pytest.approx(0.02)
    assert decision.pairs[c].slots.count((2, 2, 0)) == 63


@pytest.mark.parametrize("name", STRATEGIES)
def test_constant_traffic_moves_slots_at_most_once(name: str) -> None:
    feed = Feed(WeightLoop(LoopSettings(strategy=name)))
    feed.pair("B", "A", n1=60.0)
    feed.pair("C", "A", n1=35.0, n2=95.0)
    moved = [sum(p.moved for p in feed.step().pairs.values()) for _ in range(40)]
    # RI2N++ takes longer, since it goes on from what each weight brought.
    late = moved[20:] if name == "ri2n_plus_plus" else moved[8:]
    assert not any(late), moved


@pytest.mark.parametrize("name", STRATEGIES)
def test_counters_that_alias_with_the_polls_change_nothing(name: str) -> None:
    """Open vSwitch refreshes its counters about every 0.25 s.

    A poll may see nothing new, and the next one twice as much.
    """
    feed = Feed(WeightLoop(LoopSettings(strategy=name)))
    b, c = feed.pair("B", "A", n1=48.0), feed.pair("C", "A", n1=48.0, n2=96.0)
    for _ in range(30):
        feed.step()
    before = dict(feed.slots)
    for counted_s in (0.0, 0.5, 0.0, 0.5, 0.25, 0.0, 0.5, 0.0, 0.0, 0.75):
        decision = feed.step(counted_s=counted_s)
        assert set(decision.pairs) == {b, c}
        if name != "ri2n_plus_plus":
            assert feed.slots == before
    moved = sum(x != y for x, y in zip(before[c], feed.slots[c], strict=True))
    assert moved <= 8


def test_a_pair_stays_active_for_a_while(feed: Feed) -> None:
    c = feed.pair("C", "A", n1=50.0, n2=50.0)
    for _ in range(8):
        feed.step()
    feed.pair("C", "A", n1=0.0, n2=0.0)
    before = feed.slots[c]
    for _ in range(32):
        assert c in feed.step().pairs
    assert feed.slots[c] == before
    for _ in range(48):
        decision = feed.step()
    assert decision.pairs == {}


def test_a_dead_path_loses_its_slots_and_gets_them_back(feed: Feed) -> None:
    c = feed.pair("C", "A", n1=95.0, n2=95.0)
    for _ in range(8):
        feed.step()
    feed.dead.add((c, (2, 2, 0)))
    decision = feed.step(0.01)
    assert set(decision.pairs[c].slots) == {(1, 1, 0)}
    assert decision.pairs[c].share == {(1, 1, 0): 1.0, (2, 2, 0): 0.0}
    assert decision.hbspan_s == 0.25
    for _ in range(8):
        feed.step()
    feed.dead.clear()
    decision = feed.step(0.01)
    assert decision.pairs[c].slots.count((2, 2, 0)) == 32, (
        "max-min knows the capacity: no probing first"
    )


def test_a_dead_path_has_no_share_however_small_it_was(feed: Feed) -> None:
    """If traffic were the reason for such a small change, the change would be held back."""
    feed.pair("B", "A", n1=60.0)
    c = feed.pair("C", "A", n1=35.0, n2=95.0)
    for _ in range(8):
        decision = feed.step()
    assert 0.0 < decision.pairs[c].share[1, 1, 0] < feed.loop.settings.hysteresis
    feed.dead.add((c, (1, 1, 0)))
    assert feed.step().pairs[c].share == {(1, 1, 0): 0.0, (2, 2, 0): 1.0}


def test_all_paths_dead_keeps_the_table(feed: Feed) -> None:
    c = feed.pair("C", "A", n1=95.0, n2=95.0)
    for _ in range(4):
        feed.step()
    before = feed.slots[c]
    feed.dead |= {(c, (1, 1, 0)), (c, (2, 2, 0))}
    answer = feed.step().pairs[c]
    assert (
        answer.share == {(1, 1, 0): 0.0, (2, 2, 0): 0.0}
        and answer.slots == before
        and answer.moved == 0
    )


def test_counters_that_are_reset_are_no_negative_traffic(feed: Feed) -> None:
    c = feed.pair("C", "A", n1=95.0, n2=95.0)
    for _ in range(8):
        feed.step()
    before = feed.slots[c]
    feed.sent[c] = dict.fromkeys(feed.sent[c], 0.0)
    for _ in range(8):
        decision = feed.step()
    assert c in decision.pairs and feed.slots[c] == before


def test_a_host_that_was_away_does_not_look_like_a_flood(feed: Feed) -> None:
    """B's counters stand still for 5 s, and then show all traffic of that time at once.

    C must not have a smaller share for seconds.
    """
    b, c = feed.pair("B", "A", n1=1.0), feed.pair("C", "A", n1=90.0, n2=95.0)
    for _ in range(8):
        feed.step()
    quiet = feed.sent[b].copy()
    for _ in range(20):
        feed.step()
        feed.sent[b].update(quiet)
    feed.sent[b] = {path: count + 5e6 for path, count in quiet.items()}
    for _ in range(24):
        decision = feed.step()
    assert decision.pairs[c].share[1, 1, 0] > 0.4


def test_a_receiver_that_was_away_reports_no_more_than_its_link_carries() -> None:
    """Its counters stand still for 5 s, which counts as silence, and then show all traffic.

    The counters of the sender go on all the time.
    """
    memory = PairMemory(10.0)
    path = PathCounters((1, 1, 0), True, ("C:1>", ">A:1"), ZERO, ZERO)
    largest = 0.0
    for step in range(40):
        sent = step * 2_500_000  # 80 Mbit/s
        received = min(sent, 8 * 2_500_000) if step < 28 else sent
        pair = PairCounters(
            "C",
            "A",
            (replace(path, sent=Count(0, sent), received=Count(0, received)),),
            ((1, 1, 0),),
        )
        memory.update(step * 0.25, [pair], CAPACITY)
        largest = max(largest, float(memory.sample(np.array([True])).received_bytes.max()))
    assert 0.99 * 10_000_000 < largest <= 12_500_000, (
        "bytes in the window of a second, over a link of 100 Mbit/s"
    )


def test_a_receiver_that_counts_more_rarely_than_the_sender_loses_nothing() -> None:
    """The steps of its counters are large, since the link is nearly full.

    They are larger than what the link carries between two readings of the sender.
    """
    memory = PairMemory(10.0)
    path = PathCounters((1, 1, 0), True, ("C:1>", ">A:1"), ZERO, ZERO)
    for step in range(41):
        sent, received = step * 2_500_000, step // 2 * 5_000_000  # 80 of 100 Mbit/s
        pair = PairCounters(
            "C",
            "A",
            (replace(path, sent=Count(0, sent), received=Count(0, received)),),
            ((1, 1, 0),),
        )
        memory.update(step * 0.25, [pair], CAPACITY)
    sample = memory.sample(np.array([True]))
    assert sample.sent_bytes[0, 0] == pytest.approx(10_000_000)
    assert sample.received_bytes[0, 0] == pytest.approx(10_000_000)


def test_a_pair_that_is_missing_for_a_while_is_not_forgotten(feed: Feed) -> None:
    b, c = feed.pair("B", "A", n1=95.0), feed.pair("C", "A", n1=3.0, n2=95.0)
    for _ in range(8):
        feed.step()
    feed.hidden.add(b)
    for _ in range(12):
        decision = feed.step()
        assert b not in decision.pairs, "no decision for a pair that was not given"
        assert decision.pairs[c].share[1, 1, 0] < 0.1, "B is still there"
    feed.hidden.clear()
    assert b in feed.step().pairs


def test_pairs_that_are_gone_leave_nothing_behind(feed: Feed) -> None:
    keys = [feed.pair(s, r, n1=20.0, n2=20.0) for s in "ABCD" for r in "ABCD" if s != r]
    for _ in range(8):
        feed.step()
    feed.hidden.update(keys)
    for _ in range(15):
        decision = feed.step(1.0)
    assert decision.pairs == {}
    loop = feed.loop
    assert not loop._slots and not loop._share and not loop._active_until and not loop._alive
    assert not loop._memory._given_s and not loop._memory._layout


def test_odd_inputs_never_raise(feed: Feed) -> None:
    loop = feed.loop
    assert loop.step(0.0, [], {}).pairs == {}
    path = PathCounters((1, 1, 0), True, ("X:1>", ">Y:1"), ZERO, ZERO)
    loop.step(0.1, [PairCounters("X", "Y", (), ())], {})
    loop.step(0.1, [PairCounters("X", "Y", (path,), ())], {})
    loop.step(
        0.1, [PairCounters("X", "Y", (replace(path, sent=Count(0, 10**7)),), ())], {"X:1>": 0.0}
    )
    decision = loop.step(
        0.6, [PairCounters("X", "Y", (replace(path, sent=Count(0, 2 * 10**7)),), ())], {}
    )
    assert decision.pairs["X", "Y"].slots == ((1, 1, 0),) * 64
    second = replace(path, path=(2, 2, 0), links=("X:2>", ">Y:2"))
    decision = loop.step(
        0.9, [PairCounters("X", "Y", (second, path), ((9, 9, 0),) * 64, (1,) * 16)], {}
    )
    assert set(decision.pairs["X", "Y"].slots) == {(1, 1, 0), (2, 2, 0)}
    # The clock goes back.
    loop.step(0.4, [PairCounters("X", "Y", (second, path), ((1, 1, 0),) * 64)], {})


def test_paths_may_come_in_another_order(feed: Feed) -> None:
    c = feed.pair("C", "A", n1=10.0, n2=90.0)
    feed.pair("B", "A", n1=90.0)
    for _ in range(12):
        feed.step()
    before = feed.slots[c]
    feed.sent[c] = dict(reversed(feed.sent[c].items()))
    assert feed.step().pairs[c].moved == 0 and feed.slots[c] == before


def test_bytes_of_slots_are_ignored_once_after_a_change(feed: Feed) -> None:
    """The group's counters begin again with the change, and may hold traffic of the old table."""
    c = feed.pair("C", "A", n1=95.0, n2=0.0)
    feed.step()
    feed.step()
    on_one = [slot for slot, path in enumerate(feed.slots[c]) if path == (1, 1, 0)][:8]
    feed.slot_bytes[c] = tuple(10**6 if slot in on_one else 0 for slot in range(64))
    first = feed.step().pairs[c]
    assert first.moved == 0, "the first bytes after the pair got its table"
    second = feed.step().pairs[c]
    assert second.moved >= 2, "all eight flows are on path 1"
    third = feed.step().pairs[c]
    assert third.moved == 0


def test_bytes_of_slots_are_remembered_for_seconds_and_no_longer(feed: Feed) -> None:
    """Two flows that are never counted in the same poll share a path until the loop knows both."""
    c = feed.pair("C", "A", n1=48.0, n2=48.0)
    for _ in range(8):
        feed.step()
    one, other = [slot for slot, path in enumerate(feed.slots[c]) if path == (1, 1, 0)][:2]

    def count_only(busy: int) -> None:
        feed.slot_bytes[c] = tuple(10**6 if slot == busy else 0 for slot in range(64))

    count_only(one)
    feed.step()  # The loop ignores the first bytes after the table was made.
    assert feed.step().pairs[c].moved == 0, "one flow: no other path is better"
    count_only(other)
    assert feed.step(20.0).pairs[c].moved == 0, "the first flow is forgotten"
    count_only(one)
    assert feed.step(0.25).pairs[c].moved >= 1, "the loop knows both flows"
    assert {feed.slots[c][one], feed.slots[c][other]} == {(1, 1, 0), (2, 2, 0)}


def test_bytes_of_slots_are_forgotten_when_none_are_read_any_more(feed: Feed) -> None:
    """Beside a bridge nobody counts them, and flows of before may be anywhere."""
    c = feed.pair("C", "A", n1=48.0, n2=48.0)
    feed.slot_bytes[c] = (10**6,) * 64
    for _ in range(4):
        feed.step()
    state = feed.loop._slots[c]
    assert state.traffic is not None
    del feed.slot_bytes[c]
    feed.step(4.9)
    assert state.traffic is not None, "a reading may be late"
    feed.step()
    assert state.traffic is None


def test_busy_slots_move_ever_more_rarely_when_it_does_not_help() -> None:
    """Flows must not be moved back and forth.

    Here traffic shows up on path 1 again, whichever slots are moved away from it.
    """
    feed = Feed(WeightLoop(LoopSettings(strategy="round_robin")))
    c = feed.pair("C", "A", n1=48.0, n2=48.0)
    times = []
    for _ in range(300):
        busy = [slot for slot, path in enumerate(feed.slots[c]) if path == (1, 1, 0)][:4]
        feed.slot_bytes[c] = tuple(10**6 if slot in busy else 0 for slot in range(64))
        decision = feed.step()
        if c in decision.pairs and decision.pairs[c].moved:
            times.append(feed.now_s)
    waited_s = [after - before for before, after in pairwise(times)]
    assert waited_s == [1.0, 2.0, 4.0, 8.0, 16.0, 16.0, 16.0]


def test_an_adopted_pairs_busy_slots_are_left_alone_for_a_second_and_then_moved_two_at_a_time() -> (
    None
):
    """All flows are on path 1. If the pair were not adopted, all would be spread at once."""
    feed = Feed(WeightLoop(LoopSettings(strategy="round_robin")))
    c = feed.pair("C", "A", n1=95.0, n2=0.0)
    feed.loop.adopt(0.0, c, feed.slots[c], feed.mbit[c])
    busy = [slot for slot, path in enumerate(feed.slots[c]) if path == (1, 1, 0)][:8]
    feed.slot_bytes[c] = tuple(10**6 if slot in busy else 0 for slot in range(64))
    away = []
    for _ in range(4):
        feed.step()
        away.append(sum(feed.slots[c][slot] != (1, 1, 0) for slot in busy))
    assert away == [0, 0, 0, 2]


def test_hbspan_grows_in_peace_and_shrinks_at_once(feed: Feed) -> None:
    c = feed.pair("C", "A", n1=50.0, n2=50.0)
    spans: list[float] = []
    for _ in range(40):
        spans.append(feed.step(spans[-1] if spans else 0.25).hbspan_s)
    assert spans[0] == 0.25 and spans[-1] == 4.0 and sorted(spans[10:]) == spans[10:]
    feed.dead.add((c, (1, 1, 0)))
    assert feed.step(0.1).hbspan_s == 0.25


def test_hbspan_of_an_idle_cluster_stays_short_enough_to_notice_traffic(feed: Feed) -> None:
    feed.pair("C", "A", n1=0.0, n2=0.0)
    for _ in range(40):
        decision = feed.step()
    assert decision.hbspan_s == 1.0


def test_new_traffic_shrinks_hbspan(feed: Feed) -> None:
    feed.pair("B", "A", n1=0.1)
    feed.pair("C", "A", n1=30.0, n2=30.0)
    decision = feed.step()
    for _ in range(40):
        decision = feed.step(decision.hbspan_s)
    assert decision.hbspan_s == 4.0
    feed.pair("B", "A", n1=60.0)
    assert feed.step(4.0).hbspan_s == 0.25


def test_ri2n_plus_counts_peers_at_the_receivers_nic_whatever_switches_are_between() -> None:
    def pair(sender: str, nics: Sequence[int], sent: int) -> PairCounters:
        paths = [
            PathCounters(
                (k, k, 0),
                True,
                (f"{sender}:{k}>", f"leaf{sender}>up{k}", f">A:{k}"),
                *(Count(0, sent),) * 2,
            )
            for k in nics
        ]
        return PairCounters(sender, "A", tuple(paths), ())

    loop = WeightLoop(LoopSettings(strategy="ri2n_plus"))
    for step in range(2):
        decision = loop.step(
            step * 0.25, [pair("B", [1], step * 10**6), pair("C", [1, 2], step * 10**6)], CAPACITY
        )
    assert decision.pairs["C", "A"].share == pytest.approx({(1, 1, 0): 1 / 3, (2, 2, 0): 2 / 3})


def test_traffic_that_ends_shrinks_hbspan() -> None:
    """The pair stays active with the same shares. The only change is that its links are empty."""
    feed = Feed(WeightLoop(LoopSettings(strategy="round_robin")))
    feed.pair("C", "A", n1=60.0, n2=60.0)
    decision = feed.step()
    for _ in range(40):
        decision = feed.step(decision.hbspan_s)
    assert decision.hbspan_s == 4.0
    feed.pair("C", "A", n1=0.0, n2=0.0)
    assert feed.step(1.0).hbspan_s == 0.25


def test_strategies_change_at_run_time(feed: Feed) -> None:
    feed.pair("B", "A", n1=60.0)
    c = feed.pair("C", "A", n1=35.0, n2=95.0)
    for name, share in (
        ("max_min", 0.02),
        ("round_robin", 0.5),
        ("ri2n_plus", 1 / 3),
        ("max_min", 0.02),
    ):
        feed.loop.set_strategy(name)
        for _ in range(6):
            decision = feed.step()
        assert feed.loop.strategy_name == name
        assert decision.pairs[c].share[1, 1, 0] == pytest.approx(share, abs=1e-6)


def test_a_new_strategy_is_followed_at_once_by_however_little_it_differs(feed: Feed) -> None:
    """Hysteresis does not apply to the shares of another strategy."""
    feed.pair("B", "A", n1=4.0)
    c = feed.pair("C", "A", n1=96.0, n2=100.0)
    for _ in range(8):
        decision = feed.step()
    assert 0.46 < decision.pairs[c].share[1, 1, 0] < 0.499
    feed.loop.set_strategy("round_robin")
    assert feed.step().pairs[c].share == {(1, 1, 0): 0.5, (2, 2, 0): 0.5}


def test_default_slots_are_by_capacity_and_the_same_everywhere() -> None:
    table = default_slots([(1, 1, 0), (2, 2, 0), (3, 1, 0)], [1e9, 1e8, 1e8], 64)
    # The exact part is 53.3, and it is the first of three equal remainders.
    assert len(table) == 64 and table.count((1, 1, 0)) == 54
    assert default_slots([(3, 1, 0), (1, 1, 0), (2, 2, 0)], [1e8, 1e9, 1e8], 64) == table
    assert default_slots([(1, 1, 0), (2, 2, 0)], [0.0, 0.0], 16).count((1, 1, 0)) == 8
    assert default_slots([], [], 64) == ()


class Crowd:
    """All pairs of hosts with four NICs each send, half of them as much as they can.

    A step takes 0.25 s.
    """

    def __init__(self, hosts: int, strategy: str) -> None:
        names = [f"h{host}" for host in range(hosts)]
        self.nics = range(1, 5)
        self.capacity = {
            link: 1e8
            for name in names
            for k in self.nics
            for link in (f"{name}:{k}>", f">{name}:{k}")
        }
        self.random = np.random.default_rng(7)
        self.pairs = [
            (sender, receiver) for sender in names for receiver in names if sender != receiver
        ]
        few = self.random.uniform(0.2, 6.0, len(self.pairs))
        self.mbit = np.where(self.random.random(len(self.pairs)) < 0.5, few, 400 / hosts)
        self.tables = dict.fromkeys(
            self.pairs, default_slots([(k, k, 0) for k in self.nics], [1e8] * 4)
        )
        self.loop = WeightLoop(LoopSettings(strategy=strategy))
        self.steps = 0

    def counters(self) -> list[PairCounters]:
        sent = (self.mbit * 1e6 / 8 / 4 * 0.25 * self.steps).astype(int).tolist()
        slots = self.random.integers(0, 5000, (len(self.pairs), 64)).tolist()
        return [
            PairCounters(
                sender,
                receiver,
                tuple(
                    PathCounters(
                        *((k, k, 0), True, (f"{sender}:{k}>", f">{receiver}:{k}")),
                        *(Count(count // 1500, count),) * 2,
                    )
                    for k in self.nics
                ),
                self.tables[sender, receiver],
                tuple(row),
            )
            for (sender, receiver), count, row in zip(self.pairs, sent, slots, strict=True)
        ]

    def step(self) -> tuple[Decision, int]:
        """The decision, and the work that it took (`work_of`)."""
        given, decisions = self.counters(), []
        self.steps += 1
        now_s = self.steps * 0.25
        work = work_of(lambda: decisions.append(self.loop.step(now_s, given, self.capacity)))
        for pair, wanted in decisions[0].pairs.items():
            self.tables[pair] = wanted.slots
        return decisions[0], work


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_work_of_a_step_grows_as_the_pairs_do(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,500 lines of Python for each pair at most.

    With 992 pairs that is 0.2 s of one core of a small machine.
    """
    programs: list[int] = []
    newton: list[int] = []
    monkeypatch.setattr("ri2n_sdn.rates.many_paths._route", lambda *args: programs.append(1))
    newton_step = split._Dual.newton_step

    def counted(*args: Any) -> FloatArray:
        newton.append(1)
        return newton_step(*args)

    monkeypatch.setattr(split._Dual, "newton_step", counted)
    work: dict[int, float] = {}
    for hosts in (6, 18):
        crowd = Crowd(hosts, name)
        for _ in range(4):
            newton.clear()
            decision, lines = crowd.step()
            work[hosts] = max(work.get(hosts, 0), lines / len(crowd.pairs))
            assert not programs and len(newton) <= 8, "4 steps are the usual, and no linear program"
        assert len(decision.pairs) == len(crowd.pairs) == hosts * (hosts - 1)
    assert work[18] <= 1.1 * work[6] and work[18] < 3500, work
