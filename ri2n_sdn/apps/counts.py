# SPDX-License-Identifier: Apache-2.0
"""Counters by name that several threads may raise at once."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["Counts", "Dropped"]


class Dropped(ValueError):
    """What came is dropped. The text is the name of the counter (contract.counters)."""


class Counts:
    """Numbers by name, exact whatever threads do: os-ken's apps and listener are plain threads.

    `counter[name] += 1` reads and writes, and another thread may do so in between. A Counter also
    cannot be read as a whole while a thread adds a name.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, more: int = 1) -> None:
        """Raise the number of a name by `more`."""
        with self._lock:
            self._counts[name] += more

    def __getitem__(self, name: str) -> int:
        with self._lock:
            return self._counts[name]

    def described(self) -> dict[str, int]:
        """All numbers that were raised, by name."""
        with self._lock:
            return dict(self._counts)
