"""What every weight strategy reads (`TrafficSample`) and returns (`Weights`), and the one rule all
of them share: rows over live paths sum to 1, with a floor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray

__all__ = ["TrafficSample", "Weights", "to_shares"]


@dataclass(frozen=True)
class TrafficSample:
    """Traffic of P directed pairs over up to K paths each; rows with fewer paths are padded (alive
    False, ids -1).

    Counters are what went over each path in the last `interval_s` seconds, already smoothed by the
    loop. `capacity_bps[e]` is the capacity of directed link e; links, senders' NICs and receivers'
    NICs share that index.
    """

    interval_s: float
    sent_bytes: FloatArray  # (P, K) counted by the sender: S_ijk
    received_bytes: FloatArray  # (P, K) counted by the receiver: R_ijk
    sent_packets: FloatArray  # (P, K)
    received_packets: FloatArray  # (P, K)
    alive: BoolArray  # (P, K) False on padding
    sender: IntArray  # (P,) host index
    receiver: IntArray  # (P,) host index
    sender_link: IntArray  # (P, K) the sender's NIC (transmit side), -1 on padding
    receiver_link: IntArray  # (P, K) the receiver's NIC (receive side), -1 on padding
    path_links: IntArray  # (P, K, L) every capacitated link of the path, -1 on padding
    capacity_bps: FloatArray  # (E,)
    fast_bps: FloatArray  # (P, K) sent rate, short moving average
    slow_bps: FloatArray  # (P, K) sent rate, long moving average
    settled: BoolArray  # (P,) the counters were made under the present weights

    @property
    def pairs(self) -> int:
        """Number of directed pairs P."""
        return int(self.alive.shape[0])


@dataclass(frozen=True)
class Weights:
    """A strategy's answer: `share` (P, K), rows sum to 1 over live paths (0 when none lives).

    Rates (P, K) or None.
    """

    share: FloatArray
    rate_bps: FloatArray | None = None


def to_shares(raw: FloatArray, alive: BoolArray, floor: float = 0.0) -> FloatArray:
    """Normalise weights `raw` (P, K) to shares: 0 on dead paths, at least `floor` on live ones,
    rows sum to 1.

    A row without any weight is spread equally over its live paths. Shares above the floor keep
    their value when no path of the row is under it. The floor never takes more than half a row.
    """
    weight = np.where(alive, np.nan_to_num(raw, nan=0.0, posinf=0.0, neginf=0.0), 0.0)
    np.maximum(weight, 0.0, out=weight)
    largest = weight.max(axis=1, keepdims=True, initial=0.0)
    weight = np.where(largest > 0.0, weight / np.where(largest > 0.0, largest, 1.0), alive)
    total = weight.sum(axis=1, keepdims=True)
    share: FloatArray = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0.0)
    if floor <= 0.0:
        return np.asarray(share, dtype=np.float64)
    live = alive.sum(axis=1, keepdims=True)
    least = np.where(alive, np.minimum(floor, 0.5 / np.maximum(live, 1)), 0.0)
    above = np.maximum(share - least, 0.0)
    total = above.sum(axis=1, keepdims=True)
    spread = np.divide(above, total, out=np.zeros_like(above), where=total > 0.0)
    return np.asarray(
        least + spread * (1.0 - least.sum(axis=1, keepdims=True)) * (live > 0), dtype=np.float64
    )
