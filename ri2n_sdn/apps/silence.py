"""Whether a helper that holds its TAPs still says something: one that hangs is given nothing
more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["SILENT_S", "Silence"]

SILENT_S = 2.5
"""Helpers report once a second: two reports in a row have not come."""

_CALM_S = 60.0
_LONGEST_S = 30.0


@dataclass
class Silence:
    """What is made of one helper's reports since it began (`since_s`). Pure: the caller gives the
    times.

    Late is not dead, so no clock of ours decides: a helper is silent when its own switch has
    answered an echo request that was sent `SILENT_S` after the last report was read. Answers wait
    behind reports on their way to us. So neither a control link that is lost, nor a busy host, nor
    a controller that was held up makes a helper silent.

    A helper that is heard again is used at once. One that falls silent again and again has
    everybody planned anew each time: it must report for longer and longer first, up to
    `_LONGEST_S`, until it was all right for `_CALM_S`.
    """

    since_s: float
    silent: bool = False
    heard_s: float = -math.inf
    times: int = 0
    _began_s: float = field(init=False, repr=False)
    _trial_s: float = field(default=math.inf, repr=False)
    _returned_s: float = field(default=-math.inf, repr=False)

    def __post_init__(self) -> None:
        self._began_s = self.since_s

    def not_yet(self, now_s: float) -> None:
        """Its reports cannot reach us now: what is not heard until now counts for nothing."""
        self.since_s = now_s

    def judge(self, heard_s: float, answered_s: float) -> bool:
        """Its last report was read at `heard_s`, and its switch has answered what was sent at
        `answered_s`.

        Returns whether `silent` is another than before.
        """
        if heard_s > self.heard_s:
            if heard_s - self.heard_s > SILENT_S:
                self._trial_s = heard_s
            self.heard_s = heard_s
        quiet = answered_s - max(self.heard_s, self.since_s) > SILENT_S
        if not self.silent:
            if quiet:
                self.silent = True
                self.times = self.times + 1 if self.heard_s - self._returned_s < _CALM_S else 0
                self._trial_s = math.inf
            return quiet
        if quiet or self.heard_s < self._trial_s + self._trial_length_s:
            return False
        self.silent, self._returned_s = False, self.heard_s
        return True

    @property
    def last_s(self) -> float:
        """When it said something last, or began."""
        return max(self.heard_s, self._began_s)

    @property
    def _trial_length_s(self) -> float:
        return min(_LONGEST_S, 2.0**self.times) if self.times else 0.0
