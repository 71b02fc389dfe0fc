"""Silence under test:

further probes in bursts, and the proof that what was not reported did not arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Inquiry", "Proof"]

_ROUNDING_S = 1e-6


@dataclass
class Inquiry:
    """Bursts of probes about something that fell silent.

    What they ask is for the user of this class to say.
    """

    start_s: float
    bursts_left: int
    next_s: float

    def due(self, now_s: float) -> bool:
        """A burst is to be sent now."""
        return now_s >= self.next_s - _ROUNDING_S

    def burst_sent(self, now_s: float, pause_s: float) -> None:
        """The next one follows after `pause_s`."""
        self.next_s = now_s + pause_s
        self.bursts_left = max(0, self.bursts_left - 1)


@dataclass
class Proof:
    """Whether probes from one host to another would have been reported by now, had they arrived.

    The sending host has done what it was asked for, and the receiving host has answered something
    that was asked after that. A sign of life would not do: a host that was held up says much before
    it comes to what it was asked last.
    """

    executed_s: float | None = None
    """When the sending host was known to have sent them."""
    holds: bool = False

    def look(
        self,
        asked_s: float,
        now_s: float,
        sender: str,
        receiver: str,
        answered_s: Callable[[str], float],
    ) -> bool:
        """Whether silence of what was asked for at `asked_s` counts.

        `answered_s` is that of `Wiring.tick`.
        """
        if not self.holds:
            if self.executed_s is None and answered_s(sender) >= asked_s:
                self.executed_s = now_s
            self.holds = self.executed_s is not None and answered_s(receiver) >= self.executed_s
        return self.holds
