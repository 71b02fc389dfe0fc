# SPDX-License-Identifier: Apache-2.0
"""Slot tables of pairs: the table in force, and the changes that follow from a decision."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.fabric.model import Nic, Path, PathKey
from ri2n_sdn.pipeline.slot_tables import table_changes, table_in_force
from ri2n_sdn.weights.slots import default_slots


def path(port: int, up: bool = True, rate_bps: int = 10**8) -> Path:
    own, peer = (
        Nic(host, f"eth{port}", port, f"04:00:00:00:00:0{port}", rate_bps, up, f"n{port}")
        for host in "AB"
    )
    return Path(own, peer)


ONE, TWO = path(1), path(2)
DEAD = path(2, up=False)


def test_pairs_with_one_choice_of_paths_share_a_table_by_rates() -> None:
    slow = path(2, rate_bps=5 * 10**7)
    shared = table_in_force((ONE, slow), None, 64)
    assert shared == default_slots([ONE.key, slow.key], [1e8, 5e7], 64)
    assert shared.count(ONE.key) == 43


def test_a_dead_path_has_no_slot_unless_all_are_dead() -> None:
    assert table_in_force((ONE, DEAD), None, 64) == (ONE.key,) * 64
    assert table_in_force((ONE, DEAD), (ONE.key, DEAD.key) * 32, 64) == (ONE.key,) * 64
    assert set(table_in_force((path(1, up=False), DEAD), None, 64)) == {ONE.key, DEAD.key}
    own = (ONE.key, ONE.key, DEAD.key, ONE.key) * 16
    assert table_in_force((path(1, up=False), DEAD), own, 64) == own


TABLES = st.sampled_from([(), ((1, 1, 0),) * 16, ((2, 2, 0),) * 16])
PAIRS = st.dictionaries(st.sampled_from([(a, b) for a in "ABC" for b in "ABC" if a != b]), TABLES)


@given(PAIRS.map(lambda pairs: {pair: table for pair, table in pairs.items() if table}), PAIRS)
def test_a_decision_changes_what_differs_and_nothing_else(
    before: dict[tuple[str, str], tuple[PathKey, ...]],
    decided: dict[tuple[str, str], tuple[PathKey, ...]],
) -> None:
    changes = table_changes(before, {pair: (table, 7) for pair, table in decided.items()})
    for pair in before.keys() | decided.keys():
        table = decided.get(pair)
        # An empty table means that nothing was decided for a pair that is still active.
        expected = before.get(pair) if table == () else table
        assert changes.tables.get(pair) == expected
        changed = pair[1] in changes.receivers.get(pair[0], ())
        assert changed == (expected is not None and expected != before.get(pair))
    assert changes.to_plan == {
        sender for sender, receiver in before if (sender, receiver) not in decided
    }
    moved = [
        pair
        for pair, table in decided.items()
        if table and pair in before and before[pair] != table
    ]
    assert changes.moved == 7 * len(moved)
