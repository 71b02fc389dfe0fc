# SPDX-License-Identifier: Apache-2.0
"""What the telemetry app measured last, for `ri2n status` and for the other apps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ri2n_sdn.apps.reported import Reported
from ri2n_sdn.apps.tallies import Tallies
from ri2n_sdn.fabric.model import PairKey, PathKey
from ri2n_sdn.weights.losses import LossWatch

__all__ = ["Measured", "PathRates"]


@dataclass(frozen=True)
class PathRates:
    """What a pair's path carried in the last sample, in bit/s, and what the strategy gave it.

    `share` is its part of the pair's traffic, from 0 to 1, and `rate_bps` its rate; both are None
    when the strategy did not set them.
    """

    tx_bps: float = 0.0
    rx_bps: float = 0.0
    share: float | None = None
    rate_bps: float | None = None


@dataclass
class Measured:
    """The newest measurements of all pairs and helpers.

    `hbspan_s` is the time from one round of the telemetry app to the next, `cycle_s` the time that
    the last round took. `sampled_s` is the Unix time of the last round that read counters; None
    before the first. `sent_bytes` is what each pair has sent since the controller began, and
    `reports` what each host's helper has reported last, by host. `tallies` is what only monitoring
    reads.
    """

    hbspan_s: float = 0.25
    cycle_s: float = 0.0
    sampled_s: float | None = None
    rates: dict[PairKey, dict[PathKey, PathRates]] = field(default_factory=dict)
    sent_bytes: Counter[PairKey] = field(default_factory=Counter)
    reports: dict[str, Reported] = field(default_factory=dict)
    losses: LossWatch = field(default_factory=LossWatch)
    tallies: Tallies = field(default_factory=Tallies)
