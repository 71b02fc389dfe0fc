# SPDX-License-Identifier: Apache-2.0
"""The slot table that a pair of hosts uses, and the changes that follow from a decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ri2n_sdn.fabric.model import PairKey, Path, PathKey
from ri2n_sdn.pipeline.layout import Table, path_register
from ri2n_sdn.pipeline.messages import Bucket, Goto, Group, SetField
from ri2n_sdn.weights.slots import default_slots

__all__ = [
    "SlotTable",
    "TableChanges",
    "next_live",
    "slot_group",
    "table_changes",
    "table_in_force",
]

SlotTable = tuple[PathKey, ...]


def table_in_force(paths: Sequence[Path], own: SlotTable | None, slots: int) -> SlotTable:
    """The slot table of a pair with these paths: its own one, or a shared one.

    All pairs with the same choice of paths share a table. It has `slots` slots. Dead paths have no
    slot, unless all paths are dead.
    """
    live = [path for path in paths if path.alive] or list(paths)
    keys = [path.key for path in live]
    if own is not None:
        return next_live(own, keys)
    return default_slots(keys, [float(path.rate_bps) for path in live], slots)


def next_live(slots: Sequence[PathKey], live: Sequence[PathKey]) -> tuple[PathKey, ...]:
    """The table `slots` in which the next live slot's path replaces each path that is not live.

    The search wraps round. Open vSwitch does the same with a bucket whose port is down, so no flow
    moves twice when the controller makes the change permanent. If no slot has a live path, the
    paths in `live` take the slots in turn. If `live` is empty, the table stays as it is.
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


def slot_group(number: int, slots: Iterable[PathKey], hash_algorithm: int = 0) -> Group:
    """A select group whose buckets are a slot table.

    All buckets have the same weight. Each one watches the sender's NIC of its path, and is dead
    while that NIC has no carrier.
    """
    buckets = tuple(_slot_bucket(*path) for path in slots)
    return Group(number, Group.SELECT, buckets, hash_algorithm)


@lru_cache(maxsize=4096)
def _slot_bucket(own: int, peer: int, vlan: int) -> Bucket:
    """The bucket of a path, made once for all slots of all groups.

    A round may make a thousand groups.
    """
    return Bucket(own, (SetField("reg1", path_register(own, peer, vlan)), Goto(Table.SEND_COUNT)))


@dataclass(frozen=True)
class TableChanges:
    """The changes that follow from a decision of the weights.

    `tables` has the pairs' own tables from now on. `receivers` has, for each sender, the receivers
    to which its table differs from before. `moved` is the number of slots that go to another path.
    Senders in `to_plan` have pairs that have no table of their own any more. Rows of such a sender
    lead to another group from now on, so it needs a new plan.
    """

    tables: dict[PairKey, SlotTable]
    receivers: dict[str, list[str]]
    to_plan: frozenset[str]
    moved: int


def table_changes(
    before: Mapping[PairKey, SlotTable], decided: Mapping[PairKey, tuple[SlotTable, int]]
) -> TableChanges:
    """The changes that follow from a decision.

    `decided` has the table of each active pair, and how many of its slots moved. An empty table
    means that the pair keeps the table it has.
    """
    tables = {pair: table for pair, table in before.items() if pair in decided}
    receivers: dict[str, list[str]] = {}
    moved = 0
    for pair, (table, moved_of_pair) in decided.items():
        if table and before.get(pair) != table:
            moved += moved_of_pair if pair in before else 0
            tables[pair] = table
            receivers.setdefault(pair[0], []).append(pair[1])
    to_plan = frozenset(sender for sender, _ in before.keys() - tables.keys())
    return TableChanges(tables, receivers, to_plan, moved)
