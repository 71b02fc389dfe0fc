"""What one host's helper has reported, put together from the parts in which it comes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ri2n_sdn.pipeline.helper_frames import Report, ReportEntry

__all__ = ["STALE_S", "Reported"]

STALE_S = 5.0
"""A helper that has said nothing of a link for this long no longer has it, or no longer runs."""

_MAX_LINKS = 65_536


@dataclass
class Reported:
    """`links` holds the newest entry of each link, by (peer's MAC address, number), and when it
    came.

    Bounded: links that nothing was said of are forgotten after 10 s at the latest, and of further
    ones than 65,536 none is taken in.
    """

    heard_s: float = 0.0
    running_s: float = 0.0
    generation: int = 0
    links: dict[tuple[str, int], tuple[float, ReportEntry]] = field(default_factory=dict)
    _swept_s: float = 0.0

    def take(self, report: Report, now_s: float) -> None:
        """A part of a report has come."""
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
        """What was last said of a link, unless that is too long ago."""
        heard_s, entry = self.links.get((peer_mac, number), (0.0, None))
        return entry if now_s - heard_s <= STALE_S else None

    def peers(self) -> set[str]:
        """MAC addresses of the peers that the helper knows."""
        return {mac for mac, _ in self.links}
