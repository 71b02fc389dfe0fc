# SPDX-License-Identifier: Apache-2.0
"""The bytes in each slot of a pair, by its bridge and beside it, between readings: pure."""

from __future__ import annotations

from collections.abc import Sequence

from ri2n_sdn.fabric.model import PathKey

__all__ = ["SlotBytes"]


class SlotBytes:
    """What each slot of one slot table of a pair has carried since it was last handed on.

    A change of a group sets the counters of its buckets to 0, so they count from 0 when this is
    made. What was counted is kept until both ways are known.
    """

    def __init__(self, table: tuple[PathKey, ...]) -> None:
        self.table = table
        """The table whose slots these are."""
        self._level: tuple[int, ...] = (0,) * len(table)
        self._waiting = [0] * len(table)

    def take_buckets(self, read: tuple[int, ...]) -> None:
        """Take in the cumulative counters of the group. A lower one than before began anew."""
        if any(new < old for new, old in zip(read, self._level, strict=True)):
            self._level = (0,) * len(read)
        self.add([new - old for new, old in zip(read, self._level, strict=True)])
        self._level = read

    def add(self, octets: Sequence[int]) -> None:
        """Take in bytes that came on top, such as those beside the bridge."""
        self._waiting = [one + more for one, more in zip(self._waiting, octets, strict=True)]

    def hand_on(self) -> tuple[int, ...]:
        """The bytes in each slot since this was asked last."""
        result, self._waiting = tuple(self._waiting), [0] * len(self.table)
        return result
