# SPDX-License-Identifier: Apache-2.0
"""Switches that are refused, and why, in bounded memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ri2n_sdn.apps.counts import Counts
from ri2n_sdn.contract.problems import Problem

__all__ = ["Refusals"]

# A refused host tries again within 8 s as long as it exists. One that has not tried for this time
# is no longer shown.
REFUSED_S = 30.0
# The same refusal is told again after this time.
AGAIN_S = 60.0
MAX_REFUSALS = 1000


@dataclass
class _Refusal:
    """When it was told last, when the switch tried last, and the problem."""

    noted_s: float
    tried_s: float
    problem: Problem


class Refusals:
    """The refused switches by key. `tell` gets each one as an event, at most once a minute.

    Without that limit the log would repeat it at each try of the switch, every few seconds.
    """

    def __init__(self, lock: threading.RLock, counters: Counts, tell: Callable[..., None]) -> None:
        self._lock, self._counters, self._tell = lock, counters, tell
        self._by_key: dict[str, _Refusal] = {}

    def note(self, key: str, problem: Problem) -> None:
        """Note that the switch `key` (its name and address, or its address) was refused."""
        now_s = time.monotonic()
        with self._lock:
            self._counters.add("hosts_refused")
            former = self._by_key.pop(key, None)
            noted = former is None or former.problem != problem or now_s - former.noted_s > AGAIN_S
            if len(self._by_key) >= MAX_REFUSALS:
                # This is the switch that has not tried for the longest time.
                del self._by_key[next(iter(self._by_key))]
            self._by_key[key] = _Refusal(
                now_s if former is None or noted else former.noted_s, now_s, problem
            )
            if noted:
                self._tell(problem.code, problem.subject, **problem.args)

    def clear(self, key: str) -> None:
        """Forget the refusal of a switch that has now been let in."""
        self._by_key.pop(key, None)

    def problems(self) -> list[Problem]:
        """The problems of the switches that still try, the newest last."""
        now_s = time.monotonic()
        return [
            refusal.problem
            for refusal in self._by_key.values()
            if now_s - refusal.tried_s < REFUSED_S
        ]
