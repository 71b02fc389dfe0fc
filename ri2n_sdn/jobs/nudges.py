# SPDX-License-Identifier: Apache-2.0
"""When a host's declarations are read after it has said that they have changed."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["MAX_PAUSE_S", "Nudges"]

MAX_PAUSE_S = 1.0
"""The longest pause between two reads of a host that nudges without pause (s)."""

_FREE, _PER_S = 8, 4.0
"""So many nudges at once, and so many in a second, are followed by a read without a pause."""

_SLOWEST = 40
"""Above this level of nudges, the pause is MAX_PAUSE_S. The level grows no further."""

_OFTEN_S = 5.0
"""A host whose pauses are half of the longest one for this time nudges too often."""


@dataclass
class _Host:
    level: float = 0.0
    level_s: float = 0.0
    read_s: float = -math.inf
    waits: bool = False
    often_since_s: float | None = None

    def settle(self, now_s: float) -> None:
        """Let the level fall to what it is now."""
        self.level = max(0.0, self.level - _PER_S * max(0.0, now_s - self.level_s))
        self.level_s = now_s
        if self.pause_s < MAX_PAUSE_S / 2:
            self.often_since_s = None
        elif self.often_since_s is None:
            self.often_since_s = now_s

    @property
    def pause_s(self) -> float:
        return MAX_PAUSE_S * max(0.0, self.level - _FREE) / (_SLOWEST - _FREE)


class Nudges:
    """Which hosts wait for a read, and from when on.

    A nudge costs a host nothing, while a read and the decision after it cost the controller much.
    So without a bound, one host that nudges without pause would keep the controller from the
    others. Each nudge raises the host's level by one, and the level falls by a fixed number in a
    second. The pause after a read grows with the level. A host that begins and ends jobs one after
    the other is read at once. Its level settles where nudges come as fast as it falls. The level of
    a flood grows to its limit, where the host is read once in MAX_PAUSE_S.

    Nudges during a pause are not lost: the host waits, and is read when the pause is over. One
    host's pauses do not concern the others. All times are on one clock, in seconds.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    def nudged(self, host: str, now_s: float) -> bool:
        """Take in a nudge, and return whether it is the first one since the last read."""
        state = self._hosts.setdefault(host, _Host())
        state.settle(now_s)
        state.level = min(float(_SLOWEST), state.level + 1)
        state.settle(now_s)
        first, state.waits = not state.waits, True
        return first

    def began_read(self, host: str, now_s: float) -> None:
        """Note that a host is asked for its declarations now. A later nudge needs another read."""
        state = self._hosts.setdefault(host, _Host())
        state.settle(now_s)
        state.read_s, state.waits = now_s, False

    def due_in_s(self, host: str, now_s: float) -> float:
        """In which time a host's nudge is to be followed by a read; 0 is now, infinity never."""
        state = self._hosts.get(host)
        if state is None or not state.waits:
            return math.inf
        state.settle(now_s)
        return max(0.0, state.read_s + state.pause_s - now_s)

    def too_often(self, now_s: float) -> list[str]:
        """The hosts that have nudged without pause for some time, in order."""
        found = []
        for host, state in self._hosts.items():
            state.settle(now_s)
            if state.often_since_s is not None and now_s - state.often_since_s >= _OFTEN_S:
                found.append(host)
        return sorted(found)

    def keep(self, hosts: Collection[str]) -> None:
        """Forget all hosts but these."""
        for host in self._hosts.keys() - set(hosts):
            del self._hosts[host]
