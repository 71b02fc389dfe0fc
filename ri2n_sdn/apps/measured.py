# SPDX-License-Identifier: Apache-2.0
"""What the telemetry app measured last, and what helpers have reported, for all other apps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ri2n_sdn.apps.tallies import Tallies
from ri2n_sdn.fabric.model import PairKey, PathKey
from ri2n_sdn.pipeline.fast_path import FastPath
from ri2n_sdn.pipeline.helper_frames import Report, ReportEntry
from ri2n_sdn.weights.losses import LossWatch

__all__ = ["STALE_S", "Measured", "PathRates", "Reported", "Sample"]

STALE_S = 5.0
"""A helper that has not reported a link for this long has lost it, or no longer runs."""

_MAX_LINKS = 65_536


@dataclass(frozen=True)
class PathRates:
    """What a pair's path carried in the last sample, in bit/s, and what the strategy gave it.

    `tx_bps` is what its sender sent and `rx_bps` what its receiver got; they are None while nobody
    knows. `share` is its part of the pair's traffic, from 0 to 1, and `rate_bps` its rate; both are
    None when the strategy did not set them.
    """

    tx_bps: float | None = None
    rx_bps: float | None = None
    share: float | None = None
    rate_bps: float | None = None


class Sample(NamedTuple):
    """What one round has measured of all pairs; it is never changed later.

    `sampled_s` is the Unix time of that round; None before the first that has read counters.
    `rates` are by pair and path, `fair_bps` the max-min fair rates of the active pairs that a link
    limits.
    """

    sampled_s: float | None
    rates: Mapping[PairKey, Mapping[PathKey, PathRates]]
    fair_bps: Mapping[PairKey, float]

    def tx_bps(self, pair: PairKey) -> float | None:
        """What a pair sends over all of its paths together; None while nobody knows."""
        paths = self.rates.get(pair, {}).values()
        known = [path.tx_bps for path in paths if path.tx_bps is not None]
        return sum(known) if known else None


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
        self.heard_s, self.running_s = now_s, report.time_ms / 1000
        self.generation = report.generation
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


@dataclass
class Measured:
    """The newest measurements of all pairs and helpers.

    `hbspan_s` is the time from one round of the telemetry app to the next, `cycle_s` the time that
    the last round took. `sampled_s` is the Unix time of the last round that read counters; None
    before the first. `fair_bps` are max-min fair rates, as in Sample. `sent_bytes` is what each
    pair has sent since the controller began, and `reports` what each host's helper has reported
    last, by host; `fast` what each host's fast path has. `tallies` is what only monitoring reads.
    """

    hbspan_s: float = 0.25
    cycle_s: float = 0.0
    sampled_s: float | None = None
    rates: dict[PairKey, dict[PathKey, PathRates]] = field(default_factory=dict)
    fair_bps: dict[PairKey, float] = field(default_factory=dict)
    sent_bytes: Counter[PairKey] = field(default_factory=Counter)
    reports: dict[str, Reported] = field(default_factory=dict)
    fast: dict[str, FastPath] = field(default_factory=dict)
    losses: LossWatch = field(default_factory=LossWatch)
    tallies: Tallies = field(default_factory=Tallies)

    def sample(self) -> Sample:
        """What the last round has measured of pairs (cluster.lock is held)."""
        return Sample(self.sampled_s, self.rates, self.fair_bps)
