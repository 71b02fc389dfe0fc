# SPDX-License-Identifier: Apache-2.0
"""What the controller's threads share: counters by name, and the events that end their waits."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Counts", "Dropped", "Wakes"]


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


@dataclass
class Wakes:
    """One event for each app that others give work to; `stop` ends the controller."""

    trunk: threading.Event = field(default_factory=threading.Event)
    telemetry: threading.Event = field(default_factory=threading.Event)
    striping: threading.Event = field(default_factory=threading.Event)
    placement: threading.Event = field(default_factory=threading.Event)
    jobs: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)

    def planners(self) -> None:
        """Wake all apps that plan: hosts, NICs or wiring have changed."""
        for event in (self.trunk, self.telemetry, self.striping, self.jobs):
            event.set()
