"""How many messages a second one connection may send without being asked."""

from __future__ import annotations

import math

__all__ = ["Budget"]


class Budget:
    """A token bucket: `rate_per_s` messages a second, at most `burst` at once; full at first.

    Pure: the caller gives the time.
    """

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self._rate_per_s, self._burst = rate_per_s, burst
        self._left, self._at_s = burst, -math.inf

    def take(self, now_s: float) -> bool:
        """Take one token if there is one, and return whether there was."""
        self._fill(now_s)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def owe(self, now_s: float) -> float:
        """Take one token in any case, and return for how many seconds its sender must wait then."""
        self._fill(now_s)
        self._left -= 1
        return max(0.0, -self._left / self._rate_per_s)

    def _fill(self, now_s: float) -> None:
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._rate_per_s)
        self._at_s = now_s
