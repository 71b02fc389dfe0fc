"""What was measured lately, as `ri2n status` shows it and the apps use it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ri2n_sdn.apps.reported import Reported
from ri2n_sdn.fabric.model import PairKey, PathKey
from ri2n_sdn.weights.losses import LossWatch

__all__ = ["Measured", "PathRates"]


@dataclass(frozen=True)
class PathRates:
    """What a pair's path carried in the last sample, and what the strategy gave it."""

    tx_bps: float = 0.0
    rx_bps: float = 0.0
    share: float | None = None
    rate_bps: float | None = None


@dataclass
class Measured:
    """`sent_bytes` is what each pair sent since the controller began, `reports` what the hosts'
    helpers said last.

    `cycle_s` is what the last round of the telemetry app took, `hbspan_s` the time from one to the
    next.
    """

    hbspan_s: float = 0.25
    cycle_s: float = 0.0
    rates: dict[PairKey, dict[PathKey, PathRates]] = field(default_factory=dict)
    sent_bytes: Counter[PairKey] = field(default_factory=Counter)
    reports: dict[str, Reported] = field(default_factory=dict)
    losses: LossWatch = field(default_factory=LossWatch)
