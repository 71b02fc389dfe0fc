# SPDX-License-Identifier: Apache-2.0
"""What passed beside a host's bridge, by row and slot, over all loads of its programs: pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeVar

from ri2n_sdn.pipeline.fast_reports import FastCount, FastRow, SlotsReport
from ri2n_sdn.weights.counters import ZERO, Count

__all__ = ["MAX_PEERS", "MAX_ROWS", "FastCounts"]

KeyT = TypeVar("KeyT")

MAX_ROWS = 65_536
"""So many rows of a host are kept. A host that lies may make up any number."""

MAX_PEERS = 2048
"""Of so many peers of a host slots are kept: as many as its programs count."""

# A load ends those before it. Late reports of so many former ones are known as such.
_FORMER_EPOCHS = 16


class FastCounts:
    """A host's traffic beside its bridge, from when this controller heard of it.

    Reports are cumulative since the programs were loaded (an epoch), so a report that is lost costs
    nothing. What counts as traffic:

    * In the first epoch that is heard of, the first report of a row, or of a peer's slots, is a
      level: the programs may have been there long before this controller.
    * In each further epoch, all count from 0. Nothing was counted of it before.
    * A counter that falls within an epoch is that of an older report, and changes nothing.
    """

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._former: deque[int] = deque(maxlen=_FORMER_EPOCHS)
        self._levels: dict[FastRow, Count] = {}
        self._grown: dict[FastRow, Count] = {}
        self._slot_levels: dict[str, tuple[int, ...]] = {}
        self._slots_grown: dict[str, tuple[int, ...]] = {}
        self._slots_told = False

    def begin(self, epoch: int) -> bool:
        """Take in the epoch of a report, and return whether the report is not of a former one.

        The epoch 0 is that of a process which has loaded no programs yet.
        """
        if epoch in (0, self._epoch):
            return True
        if epoch in self._former:
            return False
        if self._epoch is not None:
            self._former.append(self._epoch)
            self._levels.clear()
            self._slot_levels.clear()
        self._epoch = epoch
        return True

    def take(self, counts: Iterable[FastCount]) -> int:
        """Take in counters of the present epoch, and return how many were too many to be kept."""
        too_many = 0
        for row, packets, octets in counts:
            read, level = Count(packets, octets), self._levels.get(row)
            if _is_full(self._levels, row, MAX_ROWS) or _is_full(self._grown, row, MAX_ROWS):
                too_many += 1
                continue
            if level is None:
                level = ZERO if self._former else read
            if read.packets < level.packets or read.bytes < level.bytes:
                continue
            self._levels[row] = read
            self._grown[row] = self._grown.get(row, ZERO).plus(read.minus(level))
        return too_many

    def drain(self) -> dict[FastRow, Count]:
        """What rows have carried beside the bridge since this was asked last."""
        grown, self._grown = self._grown, {}
        return grown

    def take_slots(self, report: SlotsReport) -> int:
        """Take in a report of the present epoch; return how many peers were too many to be kept."""
        too_many = 0
        for mac, read in report.peers:
            levels, grown = self._slot_levels, self._slots_grown
            if _is_full(levels, mac, MAX_PEERS) or _is_full(grown, mac, MAX_PEERS):
                too_many += 1
                continue
            level = levels.get(mac)
            if level is None:
                level = (0,) * len(read) if self._former else read
            new = tuple(now - before for now, before in zip(read, level, strict=True))
            if min(new) < 0:
                continue
            levels[mac] = read
            grown[mac] = _sum(grown.get(mac, ()), new)
        self._slots_told |= report.part == report.parts - 1
        return too_many

    def drain_slots(self) -> dict[str, tuple[int, ...]] | None:
        """The bytes by slot of each peer since a reading before; None: nobody has told meanwhile.

        A peer whose slots are known, and that is not in it, was sent nothing.
        """
        if not self._slots_told:
            return None
        grown, self._slots_grown, self._slots_told = self._slots_grown, {}, False
        return grown

    def knows_slots(self, mac: str) -> bool:
        """Whether what a peer is sent is known by slot."""
        return bool(self._former) or mac in self._slot_levels


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip(one, other, strict=True))) if one else other


def _is_full(kept: Mapping[KeyT, object], key: KeyT, most: int) -> bool:
    return len(kept) >= most and key not in kept
