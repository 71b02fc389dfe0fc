# SPDX-License-Identifier: Apache-2.0
"""The counters of each pair and path, as read from the hosts: the input of the weight loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from ri2n_sdn.fabric.model import PairKey, PathKey

__all__ = ["ZERO", "Count", "PairCounters", "PathCounters", "RowCounts"]


class Count(NamedTuple):
    """What a row, a bucket or a path has carried, cumulative."""

    packets: int
    bytes: int

    def plus(self, other: Count) -> Count:
        """Both together."""
        return Count(self.packets + other.packets, self.bytes + other.bytes)

    def minus(self, other: Count) -> Count:
        """What was counted since another reading."""
        return Count(self.packets - other.packets, self.bytes - other.bytes)


ZERO = Count(0, 0)

# Counters are at most so old when they are read: Open vSwitch refreshes them every 0.5 s, and a
# little later on a busy machine.
_STALE_S = 0.75


@dataclass
class RowCounts:
    """What a row has carried since it was first read; nothing while it was not read yet.

    A first reading is a level, not traffic: the row may have been there before this controller, and
    the switch may show what it has carried only later. So traffic is counted from the first reading
    on that is made `_STALE_S` after the first one. A counter that is lower than before was reset,
    so it counts from 0. `known` is whether the last reading could show traffic.
    """

    count: Count = ZERO
    known: bool = False
    _since_s: float = field(default=math.inf, repr=False)
    _level: Count | None = field(default=None, repr=False)

    @property
    def counts(self) -> bool:
        """Whether traffic is counted from the last reading on, or from an earlier one."""
        return self._level is not None

    def take(self, now_s: float, read: Count) -> None:
        """Take in a reading of the row's cumulative counters."""
        self._since_s = min(self._since_s, now_s)
        level = self._level
        self.known = level is not None
        if level is not None:
            if read.packets < level.packets or read.bytes < level.bytes:
                level = ZERO
            self.count = self.count.plus(read.minus(level))
        if now_s - self._since_s >= _STALE_S:
            self._level = read


@dataclass(frozen=True)
class PathCounters:
    """One path of a pair: cumulative counters, whether it is alive, and the links that it uses.

    `links` has the ids of links with a capacity, in order: the one of the sender's NIC ("B:1>")
    comes first, the one of the receiver's NIC (">A:2") last.
    """

    path: PathKey
    alive: bool
    links: tuple[str, ...]
    sent: Count
    received: Count


@dataclass(frozen=True)
class PairCounters:
    """The counters of one directed pair, and its slot table.

    `slots` is the table that is installed now. `slot_bytes` has the bytes that each slot carried
    since they were last known; None when unknown. After a group was changed, its counters may hold
    older traffic, so the loop ignores the first `slot_bytes` after its own changes.

    `known` says whether the traffic that the sender and the receiver count is known yet. While it
    is not, the pair is neither silent nor busy.
    """

    sender: str
    receiver: str
    paths: tuple[PathCounters, ...]
    slots: tuple[PathKey, ...]
    slot_bytes: tuple[int, ...] | None = None
    known: tuple[bool, bool] = (True, True)

    @property
    def key(self) -> PairKey:
        """(sender, receiver)."""
        return self.sender, self.receiver
