# SPDX-License-Identifier: Apache-2.0
"""The input (`TrafficSample`) and the output (`Weights`) of every weight strategy.

`to_shares` is the one rule that all strategies share: rows over live paths sum to 1, with a floor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray

__all__ = ["TrafficSample", "Weights", "to_shares"]


@dataclass(frozen=True)
class TrafficSample:
    """The traffic of P directed pairs over up to K paths each.

    Rows with fewer paths are padded (`alive` is False, ids are -1). Bytes are those of the last
    second, already smoothed by the loop. `capacity_bps[e]` is the capacity of link e. Links between
    switches, those of senders' NICs and those of receivers' NICs share one index.
    """

    sent_bytes: FloatArray  # (P, K) S_ijk: counted by the sender
    received_bytes: FloatArray  # (P, K) R_ijk: counted by the receiver
    alive: BoolArray  # (P, K) False on padding
    sender: IntArray  # (P,) index of the host
    receiver: IntArray  # (P,) index of the host
    receiver_link: IntArray  # (P, K) the link of the receiver's NIC; -1 on padding
    path_links: IntArray  # (P, K, L) every link of the path that has a capacity; -1 on padding
    capacity_bps: FloatArray  # (E,)
    fast_bps: FloatArray  # (P, K) sent rate, short moving average
    slow_bps: FloatArray  # (P, K) sent rate, long moving average
    settled: BoolArray  # (P,) whether the counters were made under the present weights

    @property
    def pairs(self) -> int:
        """The number P of directed pairs."""
        return int(self.alive.shape[0])


@dataclass(frozen=True)
class Weights:
    """The answer of a strategy: shares (P, K), and rates (P, K) if it computes them.

    Rows of `share` sum to 1 over live paths, or to 0 when no path is alive. `fair_bps` (P,) are the
    max-min fair rates, if the strategy computes them: NaN for a pair that no link limits.
    """

    share: FloatArray
    rate_bps: FloatArray | None = None
    fair_bps: FloatArray | None = None


def to_shares(raw: FloatArray, alive: BoolArray, floor: float = 0.0) -> FloatArray:
    """Normalise the weights `raw` (P, K) to shares (P, K) whose rows sum to 1.

    The share of a dead path is 0, that of a live one at least `floor`. A row without any weight is
    spread equally over its live paths. Shares keep their value when no path of the row is under the
    floor. The floor never takes more than half of a row.
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
