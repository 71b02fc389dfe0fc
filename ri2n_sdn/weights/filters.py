# SPDX-License-Identifier: Apache-2.0
"""Filters between counters and weights: differences, averages, hysteresis, adaptive HBSPAN.

The paper leaves open what to do with intermittent traffic (section 5). It names moving averages and
an HBSPAN that adapts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray

__all__ = ["HbSpan", "MovingAverage", "counter_delta", "hold_small_changes"]


def counter_delta(current: IntArray, last: IntArray) -> IntArray:
    """The amount that was counted between two readings.

    A counter that is lower than before was reset, so its present value is the amount.
    """
    return np.where(current >= last, current - last, current)


class MovingAverage:
    """Exponential moving averages of rates, one per element, correct from the first reading on.

    A plain exponential average starts at 0 and needs several time constants to reach the rate. This
    one divides by the weight of the readings so far, so its first value is the first rate. Elements
    may be updated after different intervals.
    """

    def __init__(self, time_constant_s: float, shape: tuple[int, ...]) -> None:
        self.time_constant_s = time_constant_s
        self._sum: FloatArray = np.zeros(shape)
        self._weight: FloatArray = np.zeros(shape)

    def update(self, amount: FloatArray, elapsed_s: FloatArray) -> None:
        """Add `amount`, counted over `elapsed_s` (which may be broadcast to the shape of `amount`).

        Elements for which no time has elapsed stay as they are.
        """
        decay = np.exp(-np.maximum(elapsed_s, 0.0) / self.time_constant_s)
        rate = np.divide(amount, elapsed_s, out=np.zeros_like(amount), where=elapsed_s > 0.0)
        self._sum = self._sum * decay + rate * (1.0 - decay)
        self._weight = self._weight * decay + (1.0 - decay)

    @property
    def rate(self) -> FloatArray:
        """The averages, as amount per second; 0 where nothing was read yet."""
        return np.divide(
            self._sum, self._weight, out=np.zeros_like(self._sum), where=self._weight > 0.0
        )

    def rearranged(self, take: IntArray) -> MovingAverage:
        """A copy with the shape of `take`, whose flat element i is this one's element take[i].

        Where take[i] is -1, the element starts anew.
        """
        other = MovingAverage(self.time_constant_s, take.shape)
        taken = take >= 0
        other._sum[taken] = self._sum.reshape(-1)[take[taken]]
        other._weight[taken] = self._weight.reshape(-1)[take[taken]]
        return other


def hold_small_changes(
    wanted: FloatArray, held: FloatArray, threshold: float, always: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Keep each row of `held` (P, K) until a share in `wanted` (P, K) differs by `threshold`.

    Returns the shares (P, K), and which rows are followed (P,).

    Without hysteresis the noise of counters would move slots, and with them flows, in every step.
    The wanted shares are compared with the ones in force, not with those wanted last. So many small
    changes in one direction are followed as soon as their sum reaches the threshold. Rows marked in
    `always` (P,) are followed at any size.
    """
    difference = np.abs(wanted - held).max(axis=1, initial=0.0)
    moved = (difference >= threshold) | (always & (difference > 0.0))
    return np.where(moved[:, None], wanted, held), moved


@dataclass
class HbSpan:
    """The interval between two weight updates (HBSPAN), adapted to the traffic.

    It shrinks to the minimum at any change, and doubles after `quiet_steps` steps without one. One
    quiet step is not enough: at the minimum the interval is as short as the time after which Open
    vSwitch refreshes its counters (about 0.25 s).
    """

    min_s: float
    max_s: float
    quiet_steps: int = 4
    value_s: float = 0.0
    _quiet: int = 0

    def __post_init__(self) -> None:
        self.value_s = self.value_s or self.min_s

    def limit(self, min_s: float, max_s: float) -> None:
        """Set other limits. The present interval is changed if it is not between them."""
        self.min_s, self.max_s = min_s, max_s
        self.value_s = max(min_s, min(self.value_s, max_s))

    def step(self, changed: bool, limit_s: float | None = None) -> float:
        """Take one update into account and return the next interval, which is at most `limit_s`."""
        if changed:
            self._quiet = 0
            self.value_s = self.min_s
        else:
            self._quiet += 1
            if self._quiet >= self.quiet_steps:
                self._quiet = 0
                self.value_s = min(self.value_s * 2.0, self.max_s)
        if limit_s is not None:
            self.value_s = max(self.min_s, min(self.value_s, limit_s))
        return self.value_s
