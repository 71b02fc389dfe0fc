# SPDX-License-Identifier: Apache-2.0
"""How far a bench is: what it does now, and how many of its planned seconds are over."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress"]


class Progress:
    """Calls `show(text, seconds over)` at every step.

    The bench counts planned time, not the clock's.
    """

    def __init__(self, show: Callable[[str, float], None]) -> None:
        self._show = show
        self._over_s = 0.0
        self._text = ""

    def say(self, text: str) -> None:
        """Say what happens now."""
        self._text = text
        self._show(text, self._over_s)

    def done(self, planned_s: float) -> None:
        """Note that a step is over for which so many seconds were planned."""
        self._over_s += planned_s
        self._show(self._text, self._over_s)
