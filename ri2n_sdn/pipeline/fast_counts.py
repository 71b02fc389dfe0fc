# SPDX-License-Identifier: Apache-2.0
"""What passed beside a host's bridge, by row, over all loads of its programs: pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from ri2n_sdn.pipeline.fast_reports import FastCount, FastRow
from ri2n_sdn.weights.counters import ZERO, Count

__all__ = ["MAX_ROWS", "FastCounts"]

MAX_ROWS = 65_536
"""So many rows of a host are kept. A host that lies may make up any number."""

# A load ends those before it. Late reports of so many former ones are known as such.
_FORMER_EPOCHS = 16


class FastCounts:
    """The traffic of a host's rows beside its bridge, from when this controller heard of them.

    Reports are cumulative since the programs were loaded (an epoch), so a report that is lost costs
    nothing. What counts as traffic:

    * In the first epoch that is heard of, the first report of a row is a level: the programs may
      have been there long before this controller.
    * In each further epoch, rows count from 0. Nothing was counted of it before.
    * A counter that falls within an epoch is that of an older report, and changes nothing.
    """

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._former: deque[int] = deque(maxlen=_FORMER_EPOCHS)
        self._levels: dict[FastRow, Count] = {}
        self._grown: dict[FastRow, Count] = {}

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
        self._epoch = epoch
        return True

    def take(self, counts: Iterable[FastCount]) -> int:
        """Take in counters of the present epoch, and return how many were too many to be kept."""
        too_many = 0
        for row, packets, octets in counts:
            read, level = Count(packets, octets), self._levels.get(row)
            if _is_full(self._levels, row) or _is_full(self._grown, row):
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


def _is_full(kept: Mapping[FastRow, Count], row: FastRow) -> bool:
    return len(kept) >= MAX_ROWS and row not in kept
