# SPDX-License-Identifier: Apache-2.0
"""What inquiries into silence share: bursts of further probes, and the proof that silence counts.

A probe that was not reported need not have been lost: a host may be late, or not connected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Inquiry", "Proof"]

_ROUNDING_S = 1e-6


@dataclass
class Inquiry:
    """When to send bursts of probes about something that fell silent.

    It begins at `start_s`; `bursts_left` more bursts are planned, the next one at `next_s`.
    Subclasses say which probes to send.
    """

    start_s: float
    bursts_left: int
    next_s: float

    def due(self, now_s: float) -> bool:
        """Whether a burst is to be sent now."""
        return now_s >= self.next_s - _ROUNDING_S

    def burst_sent(self, now_s: float, pause_s: float) -> None:
        """A burst was sent at `now_s`; the next one follows after `pause_s`."""
        self.next_s = now_s + pause_s
        self.bursts_left = max(0, self.bursts_left - 1)


@dataclass
class Proof:
    """Whether probes from one host to another would have been reported by now, had they arrived.

    It holds when the sending host has done what it was asked for, and the receiving host has
    answered an echo request that was sent after that. Any other message of a host is no proof: a
    host that was held up sends much before it comes to what it was asked last.
    """

    executed_s: float | None = None
    """When the sending host was known to have sent the probes."""
    holds: bool = False
    """Whether silence counts, as the last `look` found."""

    def look(
        self,
        asked_s: float,
        now_s: float,
        sender: str,
        receiver: str,
        answered_s: Callable[[str], float],
    ) -> bool:
        """Whether silence counts, about probes from `sender` to `receiver` asked for at `asked_s`.

        `answered_s` is that of `Wiring.tick`.
        """
        if not self.holds:
            if self.executed_s is None and answered_s(sender) >= asked_s:
                self.executed_s = now_s
            self.holds = self.executed_s is not None and answered_s(receiver) >= self.executed_s
        return self.holds
