# SPDX-License-Identifier: Apache-2.0
"""Whether a running helper still reports. A helper that hangs gets no traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["SILENT_S", "Silence"]

SILENT_S = 2.5
"""A helper is silent after this time. Helpers report once a second, so two reports are missing."""

# A helper that has not fallen silent for this time is treated as a new one.
_CALM_S = 60.0
_MAX_TRIAL_S = 30.0


@dataclass
class Silence:
    """Whether one helper is silent, judged by its reports since `since_s`.

    Pure: the caller gives the times, on the monotonic clock.

    A late helper is not a dead one, so time alone does not make it silent. It is silent when its
    own switch has answered an echo request that was sent `SILENT_S` after the last report was read.
    The switch's answers wait behind its reports. So neither a lost control link, nor a busy host,
    nor a controller that was held up makes a helper silent.

    A helper that reports again is used at once. But all hosts are planned anew each time that a
    helper falls silent or returns. So one that does it again and again must first report for a
    trial time, which doubles each time up to `_MAX_TRIAL_S`. It is without a trial again after it
    did not fall silent for `_CALM_S`. `relapses` counts how often it fell silent again.
    """

    since_s: float
    silent: bool = False
    heard_s: float = -math.inf
    relapses: int = 0
    _began_s: float = field(init=False, repr=False)
    _trial_s: float = field(default=math.inf, repr=False)
    _returned_s: float = field(default=-math.inf, repr=False)

    def __post_init__(self) -> None:
        self._began_s = self.since_s

    def judge(self, heard_s: float, answered_s: float) -> bool:
        """Judge the helper anew, and return whether `silent` has changed.

        Its last report was read at `heard_s`. `answered_s` is when the newest echo request was sent
        that its switch has answered.
        """
        if heard_s > self.heard_s:
            if heard_s - self.heard_s > SILENT_S:
                self._trial_s = heard_s
            self.heard_s = heard_s
        quiet = answered_s - max(self.heard_s, self.since_s) > SILENT_S
        if not self.silent:
            if quiet:
                self.silent = True
                self.relapses = (
                    self.relapses + 1 if self.heard_s - self._returned_s < _CALM_S else 0
                )
                self._trial_s = math.inf
            return quiet
        length_s = min(_MAX_TRIAL_S, 2.0**self.relapses) if self.relapses else 0.0
        if quiet or self.heard_s < self._trial_s + length_s:
            return False
        self.silent, self._returned_s = False, self.heard_s
        return True

    @property
    def last_s(self) -> float:
        """When its last report was read, or when it began."""
        return max(self.heard_s, self._began_s)
