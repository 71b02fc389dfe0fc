"""How much one connection may say that nobody asked it for:

so many messages a second, and some more at once.
"""

from __future__ import annotations

import math

__all__ = ["Budget"]


class Budget:
    """A token bucket, full at first. Pure: the caller gives the time."""

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self._rate_per_s, self._burst = rate_per_s, burst
        self._left, self._at_s = burst, -math.inf

    def take(self, now_s: float) -> bool:
        """Whether there is room for one more message, which then has taken it."""
        self._fill(now_s)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def owe(self, now_s: float) -> float:
        """Take one in any case. Returns for how long its sender must wait before the next one."""
        self._fill(now_s)
        self._left -= 1
        return max(0.0, -self._left / self._rate_per_s)

    def _fill(self, now_s: float) -> None:
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._rate_per_s)
        self._at_s = now_s
