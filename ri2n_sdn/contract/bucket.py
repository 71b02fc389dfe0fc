# SPDX-License-Identifier: Apache-2.0
"""A token bucket: what limits a rate and lets bursts through."""

from __future__ import annotations

import math

__all__ = ["TokenBucket"]


class TokenBucket:
    """`rate_per_s` tokens a second, at most `burst` at once; full at first. The caller has a clock.

    A clock that goes back adds nothing.
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

    def missing_s(self) -> float:
        """After how many seconds there is a token again, seen from the last look at the clock."""
        return max(0.0, (1 - self._left) / self._rate_per_s)

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self._at_s)
        self._left = min(self._burst, self._left + passed_s * self._rate_per_s)
        self._at_s = now_s
