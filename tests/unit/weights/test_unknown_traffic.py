# SPDX-License-Identifier: Apache-2.0
"""The weight loop of a controller that starts anew: what it does not know yet is no silence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ri2n_sdn.weights.counters import PairCounters, RowCounts
from ri2n_sdn.weights.loop import LoopSettings, WeightLoop
from ri2n_sdn.weights.strategies import STRATEGIES
from tests.unit.weights.test_loop import Feed

# Rounds of 0.25 s until the first reading that can show traffic.
UNKNOWN_ROUNDS = 4


class Rows(Feed):
    """Pairs whose counters are read as a controller reads rows that were there before it."""

    def __init__(self, loop: WeightLoop) -> None:
        super().__init__(loop)
        self.rows: dict[object, RowCounts] = {}

    def counters(self) -> list[PairCounters]:
        return [self.read(pair) for pair in super().counters()]

    def read(self, pair: PairCounters) -> PairCounters:
        paths, known = [], False
        for path in pair.paths:
            row = self.rows.setdefault((pair.key, path.path), RowCounts())
            row.take(self.now_s, path.sent)
            known |= row.known
            paths.append(replace(path, sent=row.count, received=row.count))
        return replace(pair, paths=tuple(paths), known=(known, known))


def started_anew(strategy: str) -> Rows:
    """Topology d with the tables that fit its traffic, and a loop that has taken them over."""
    feed = Rows(WeightLoop(LoopSettings(strategy=strategy)))
    feed.pair("B", "A", n1=60.0)
    feed.pair("C", "A", n1=35.0, n2=95.0)
    for _ in range(30):
        feed.step()
    feed.rows.clear()
    feed.loop = WeightLoop(LoopSettings(strategy=strategy))
    for pair, slots in feed.slots.items():
        feed.loop.adopt(feed.now_s, pair, slots, feed.mbit[pair])
    return feed


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_busy_pairs_keep_their_tables_when_a_controller_starts_anew(strategy: str) -> None:
    feed = started_anew(strategy)
    before = dict(feed.slots)
    for _ in range(20):
        assert feed.step().pairs.keys() == before.keys()
        assert feed.slots == before


def test_a_pair_gets_no_rate_before_its_traffic_is_known_and_the_right_one_then() -> None:
    """A rate of 0, as for a pair that is silent, would make its helper stop."""
    feed = started_anew("max_min")
    for _ in range(UNKNOWN_ROUNDS):
        for pair, decision in feed.step().pairs.items():
            assert decision.rate_bps is None and decision.slots == feed.slots[pair]
            assert sum(decision.share.values()) == pytest.approx(1.0)
    decisions = feed.step().pairs
    assert decisions["B", "A"].rate_bps == pytest.approx({(1, 1, 0): 1e8})
    assert decisions["C", "A"].rate_bps == pytest.approx({(1, 1, 0): 0.0, (2, 2, 0): 1e8}, abs=1e3)


def test_the_first_traffic_that_is_known_is_not_averaged_with_what_was_not() -> None:
    feed = Rows(WeightLoop())
    feed.pair("B", "A", n1=60.0)
    memory = feed.loop._memory
    for _ in range(UNKNOWN_ROUNDS):
        feed.step()
        assert not memory.fast_bps.any() and not memory.slow_bps.any()
    feed.step()
    assert memory.fast_bps[0, 0] == pytest.approx(60e6, rel=1e-3)
    assert memory.slow_bps[0, 0] == pytest.approx(60e6, rel=1e-3)


def test_a_path_that_dies_before_traffic_is_known_is_left_when_it_is() -> None:
    feed = started_anew("max_min")
    feed.step()
    feed.dead.add((("C", "A"), (2, 2, 0)))
    for _ in range(UNKNOWN_ROUNDS):
        decision = feed.step()
    assert set(decision.pairs["C", "A"].slots) == {(1, 1, 0)}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_share_of_a_pair_whose_traffic_is_not_known_stays_what_its_table_says(
    strategy: str,
) -> None:
    """The host of C comes late. Its share must be in force when its traffic is known."""
    feed = Rows(WeightLoop(LoopSettings(strategy=strategy)))
    feed.pair("B", "A", n1=95.0)
    c = feed.pair("C", "A", n1=5.0, n2=95.0)
    feed.hidden.add(c)
    for _ in range(30):
        feed.step()
    feed.hidden.clear()
    feed.slots[c] = ((2, 2, 0),) * 16 + ((1, 1, 0),) * 48
    feed.loop.adopt(feed.now_s, c, feed.slots[c], feed.mbit[c])
    for _ in range(UNKNOWN_ROUNDS):
        decision = feed.step().pairs[c]
        assert decision.share == {(1, 1, 0): 0.75, (2, 2, 0): 0.25}


def test_a_pair_that_was_taken_over_stays_active_however_long_its_traffic_is_not_known() -> None:
    """The rounds of a busy machine are long."""
    feed = started_anew("max_min")
    before = dict(feed.slots)
    for _ in range(4):
        assert feed.step(6.0).pairs.keys() == before.keys()
