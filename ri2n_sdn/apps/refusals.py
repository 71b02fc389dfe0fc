"""Switches that are not let in, and why: bounded, and told once a minute."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Refusals"]

REFUSED_S = 30.0  # a host that was refused tries again within 8 s, as long as it is there
AGAIN_S = 60.0
MAX_REFUSALS = 1000


@dataclass
class _Refusal:
    """When it was noted last, when the switch tried last, and what was said."""

    noted_s: float
    tried_s: float
    text: str


class Refusals:
    """`tell` is told of each, at most once a minute in the same words:

    the switch will try again every second.
    """

    def __init__(
        self, lock: threading.RLock, counters: Counter[str], tell: Callable[[str], None]
    ) -> None:
        self._lock, self._counters, self._tell = lock, counters, tell
        self._known: dict[str, _Refusal] = {}

    def note(self, key: str, text: str) -> None:
        """The switch `key` (a name, or whatever it is known by) is not let in."""
        now_s = time.monotonic()
        with self._lock:
            self._counters["hosts_refused"] += 1
            known = self._known.pop(key, None)
            noted = known is None or known.text != text or now_s - known.noted_s > AGAIN_S
            if len(self._known) >= MAX_REFUSALS:
                del self._known[
                    next(iter(self._known))
                ]  # the one that has not tried for the longest time
            self._known[key] = _Refusal(
                now_s if known is None or noted else known.noted_s, now_s, text
            )
            if noted:
                self._tell(text)

    def over(self, key: str) -> None:
        """What kept it out is over."""
        self._known.pop(key, None)

    def texts(self) -> list[str]:
        """Why switches were refused that still try, the newest last."""
        now_s = time.monotonic()
        return [
            refusal.text for refusal in self._known.values() if now_s - refusal.tried_s < REFUSED_S
        ]
