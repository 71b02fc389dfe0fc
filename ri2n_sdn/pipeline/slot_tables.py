"""Which slot table a pair of hosts uses, and what a decision of the weights changes in all of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ri2n_sdn.fabric.model import PairKey, Path, PathKey
from ri2n_sdn.weights.slots import default_slots

__all__ = ["SlotTable", "TableChanges", "next_live", "table_changes", "table_in_force"]

SlotTable = tuple[PathKey, ...]


def table_in_force(paths: Sequence[Path], own: SlotTable | None, slots: int) -> SlotTable:
    """The table of a pair with these paths: its own, or one that it shares with all that have the
    same choice of paths.

    Paths that are dead have no slot, unless all are. `slots` is the length of a shared table.
    """
    live = [path for path in paths if path.alive] or list(paths)
    keys = [path.key for path in live]
    if own is not None:
        return next_live(own, keys)
    return default_slots(keys, [float(path.rate_bps) for path in live], slots)


def next_live(slots: Sequence[PathKey], live: Sequence[PathKey]) -> tuple[PathKey, ...]:
    """`slots` with every path that is not in `live` replaced by the next slot's that is, wrapping
    round.

    It is what Open vSwitch does with a bucket whose port is down, so nothing moves twice when the
    controller makes it permanent. With no live path at all the table stays as it is.
    """
    alive = set(live)
    used = set(slots)
    if used <= alive:
        return tuple(slots)
    if not used & alive:
        return tuple(live[i % len(live)] for i in range(len(slots))) if live else tuple(slots)
    result: list[PathKey] = list(slots)
    following: PathKey | None = None
    for i in range(2 * len(slots) - 1, -1, -1):
        slot = slots[i % len(slots)]
        if slot in alive:
            following = slot
        elif following is not None:
            result[i % len(slots)] = following
    return tuple(result)


@dataclass(frozen=True)
class TableChanges:
    """`tables` are the pairs' own tables from now on, `moved` how many slots go to another path.

    `receivers` are those of each sender whose tables are others than before. Senders in `to_plan`
    have pairs that no longer have a table of their own: rows of theirs lead to another group, so
    they need a plan.
    """

    tables: dict[PairKey, SlotTable]
    receivers: dict[str, list[str]]
    to_plan: frozenset[str]
    moved: int


def table_changes(
    before: Mapping[PairKey, SlotTable], decided: Mapping[PairKey, tuple[SlotTable, int]]
) -> TableChanges:
    """What follows from a decision: each active pair's table, and how many of its slots moved.

    An empty one is none.
    """
    tables = {pair: table for pair, table in before.items() if pair in decided}
    receivers: dict[str, list[str]] = {}
    moved = 0
    for pair, (table, of_pair) in decided.items():
        if table and before.get(pair) != table:
            moved += of_pair if pair in before else 0
            tables[pair] = table
            receivers.setdefault(pair[0], []).append(pair[1])
    return TableChanges(
        tables, receivers, frozenset(sender for sender, _ in before.keys() - tables.keys()), moved
    )
