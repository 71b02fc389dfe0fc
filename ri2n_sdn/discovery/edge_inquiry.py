# SPDX-License-Identifier: Apache-2.0
"""One inquiry into a silent edge of a ring: which probes to send, and which of its NICs is dead.

A silent edge alone does not tell which of its ends is dead, nor whether a host is just late. So
both ends exchange probes with other NICs of the ring: if another NIC hears the sender, it can send;
if the receiver hears another NIC, it can receive.

There is a verdict when both hosts have proved that they would have sent and reported probes by now
(`Proof`). If all NICs of a host are silent, the verdict waits longer: it is more likely that the
host is late than that it lost all its cables at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ri2n_sdn.discovery.inquiry import Inquiry, Proof
from ri2n_sdn.discovery.nic_state import Direction, NicState, Probe
from ri2n_sdn.fabric.model import NicId

__all__ = ["EdgeInquiry", "WiringSettings"]


@dataclass(frozen=True)
class WiringSettings:
    """Intervals in seconds, and limits.

    A round of the ring takes `probe_s` at least; it takes longer when reports lag, or when it would
    exceed `probes_per_s`. Beacons flood every `beacon_s`. New NICs are gathered for `gather_s`;
    steps of discovery are `step_s` apart. An inquiry sends `bursts` of probes, `burst_s` apart. A
    dead direction works again once `recover_after` probes were heard.

    A silent NIC is judged after `verdict_s`, or after `patience_s` when the other NICs of its host
    are silent too: then it is rather the host (a busy Open vSwitch, a full connection) that is
    late. A NIC that receives more than `flood_per_s` probes of strangers a second is not judged by
    silence for `flood_s`, since its host reports only some of all the probes that it receives.
    """

    probe_s: float = 0.1
    probes_per_s: float = 1000.0
    beacon_s: float = 1.0
    step_s: float = 0.08
    gather_s: float = 0.05
    burst_s: float = 0.025
    bursts: int = 6
    verdict_s: float = 0.2
    patience_s: float = 1.0
    recover_after: int = 3
    flood_per_s: int = 200
    flood_s: float = 1.5


class EdgeInquiry(Inquiry):
    """An inquiry into the edge from `sender` to `receiver`, begun at `start_s`."""

    def __init__(
        self, sender: NicId, receiver: NicId, start_s: float, settings: WiringSettings
    ) -> None:
        super().__init__(start_s, settings.bursts, start_s)
        self.sender, self.receiver, self.settings = sender, receiver, settings
        self.proof = Proof()

    def burst(self, others: Collection[NicId], now_s: float, ring_interval_s: float) -> list[Probe]:
        """The probes of one burst, over the edge itself and between its ends and these others.

        After the bursts, probes go on at the pace of the ring up to the verdict: they show that a
        NIC which others still reach has not been plugged in elsewhere.
        """
        self.burst_sent(now_s, self.settings.burst_s if self.bursts_left else ring_interval_s)
        probes = [Probe(self.sender, self.receiver)]
        probes += [Probe(self.sender, other) for other in others]
        probes += [Probe(other, self.receiver) for other in others]
        return probes

    def verdict(
        self,
        healthy: Mapping[str, Mapping[NicId, NicState]],
        sender_state: NicState,
        receiver_state: NicState,
        now_s: float,
        lag_s: float,
        answered_s: Callable[[str], float],
    ) -> list[tuple[NicId, Direction]] | None:
        """The directions of the two NICs that are dead; None while it is too early to say.

        `healthy` are the healthy NICs of each host, `lag_s` is how late reports are, `answered_s`
        is that of `Wiring.tick`.
        """
        settings = self.settings
        asked_s = self.start_s + settings.burst_s
        proved = self.proof.look(asked_s, now_s, self.sender[0], self.receiver[0], answered_s)
        if not proved or self.bursts_left or now_s < self.start_s + settings.verdict_s + lag_s:
            return None
        dead: list[tuple[NicId, Direction]] = []
        if sender_state.tx_s < self.start_s:
            dead.append((self.sender, "tx"))
        if receiver_state.rx_s < self.start_s:
            dead.append((self.receiver, "rx"))
        # A host that fell silent after the inquiry began was heard on its other NICs before that.
        # So only what was heard in the second half of the time shows that these probes should have
        # been heard too.
        since_s = self.start_s + settings.verdict_s / 2
        patient = now_s < self.start_s + settings.patience_s + lag_s
        if patient and any(_others_silent(healthy, *end, since_s) for end in dead):
            return None
        return dead


def _others_silent(
    healthy: Mapping[str, Mapping[NicId, NicState]],
    nic: NicId,
    direction: Direction,
    since_s: float,
) -> bool:
    """Whether the NIC's host has other healthy NICs, and none was heard at `since_s` or later."""
    others = [state for other, state in healthy.get(nic[0], {}).items() if other != nic]
    return bool(others) and all(
        (state.tx_s if direction == "tx" else state.rx_s) < since_s for state in others
    )
