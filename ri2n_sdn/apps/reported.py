# SPDX-License-Identifier: Apache-2.0
"""What one host's helper has reported, put together from the parts of its reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from ri2n_sdn.pipeline.helper_frames import Report, ReportEntry

__all__ = ["STALE_S", "Reported"]

STALE_S = 5.0
"""A helper that has not reported a link for this long has lost it, or no longer runs."""

_MAX_LINKS = 65_536


@dataclass
class Reported:
    """The newest report on each helper link of one host, in bounded memory.

    `links` holds (when it was received, entry) by (peer's MAC address, link number). Links that are
    no longer reported are forgotten after 10 s at the latest. New links above 65,536 are ignored.
    """

    heard_s: float = 0.0
    running_s: float = 0.0
    generation: int = 0
    links: dict[tuple[str, int], tuple[float, ReportEntry]] = field(default_factory=dict)
    _swept_s: float = 0.0

    def take(self, report: Report, now_s: float) -> None:
        """Take in a part of a report that was received at `now_s`."""
        self.heard_s, self.running_s, self.generation = (
            now_s,
            report.time_ms / 1000,
            report.generation,
        )
        for entry in report.entries:
            key = (entry.peer, entry.link)
            if key in self.links or len(self.links) < _MAX_LINKS:
                self.links[key] = (now_s, entry)
        if now_s - self._swept_s > STALE_S:
            self._swept_s = now_s
            for key in [
                key for key, (heard_s, _) in self.links.items() if now_s - heard_s > STALE_S
            ]:
                del self.links[key]

    def link(self, peer_mac: str, number: int, now_s: float) -> ReportEntry | None:
        """The newest entry of a link; None when it is older than STALE_S."""
        heard_s, entry = self.links.get((peer_mac, number), (0.0, None))
        return entry if now_s - heard_s <= STALE_S else None

    def age_s(self, now_s: float) -> float | None:
        """The time since the newest part of a report; None when it is older than STALE_S."""
        age_s = now_s - self.heard_s
        return age_s if self.heard_s and age_s <= STALE_S else None

    def peers(self) -> set[str]:
        """MAC addresses of the peers that the helper has reported."""
        return {mac for mac, _ in self.links}
