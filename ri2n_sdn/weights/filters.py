"""Filters between counters and weights: counter differences, moving averages, hysteresis, adaptive
HBSPAN.

The paper leaves open what to do with intermittent traffic (section 5): moving averages, an HBSPAN
that adapts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray

__all__ = ["HbSpan", "MovingAverage", "counter_delta", "hold_small_changes"]


def counter_delta(current: IntArray, last: IntArray) -> IntArray:
    """What was counted between two readings.

    A counter that went backwards was reset and counts from 0.
    """
    return np.where(current >= last, current - last, current)


class MovingAverage:
    """Exponential moving averages of rates, one per element, correct from the first reading on.

    A plain EWMA starts at 0 and needs several time constants to come up; this one divides by the
    weight of what it has seen, so its first value is the first rate. Elements may be updated after
    different intervals.
    """

    def __init__(self, time_constant_s: float, shape: tuple[int, ...]) -> None:
        self.time_constant_s = time_constant_s
        self._sum: FloatArray = np.zeros(shape)
        self._weight: FloatArray = np.zeros(shape)

    def update(self, amount: FloatArray, elapsed_s: FloatArray) -> None:
        """Add `amount` counted over `elapsed_s` (same shapes).

        Elements with no time elapsed are left alone.
        """
        decay = np.exp(-np.maximum(elapsed_s, 0.0) / self.time_constant_s)
        rate = np.divide(amount, elapsed_s, out=np.zeros_like(amount), where=elapsed_s > 0.0)
        self._sum = self._sum * decay + rate * (1.0 - decay)
        self._weight = self._weight * decay + (1.0 - decay)

    @property
    def rate(self) -> FloatArray:
        """The averages, amount per second; 0 where nothing was read yet."""
        return np.divide(
            self._sum, self._weight, out=np.zeros_like(self._sum), where=self._weight > 0.0
        )

    def rearranged(self, take: IntArray) -> MovingAverage:
        """A copy whose flat element i is this one's flat element take[i]; -1 starts anew.

        Shape is that of `take`.
        """
        other = MovingAverage(self.time_constant_s, take.shape)
        known = take >= 0
        other._sum[known] = self._sum.reshape(-1)[take[known]]
        other._weight[known] = self._weight.reshape(-1)[take[known]]
        return other


def hold_small_changes(
    wanted: FloatArray, held: FloatArray, threshold: float, always: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Per row (P, K): `held` while no share differs from it by `threshold`, else `wanted`; and
    which rows moved.

    Compared with what is held, not with the last wish, so many small changes in one direction are
    followed as soon as their sum counts. Rows marked in `always` (P,) are followed at any size.
    """
    difference = np.abs(wanted - held).max(axis=1, initial=0.0)
    moved = (difference >= threshold) | (always & (difference > 0.0))
    return np.where(moved[:, None], wanted, held), moved


@dataclass
class HbSpan:
    """The interval between two weight updates:

    shrinks to the minimum at any change, doubles while all is stable.
    """

    min_s: float
    max_s: float
    quiet_steps: int = (
        4  # at the minimum OVS's own counter refresh (about 0.25 s) is as coarse as the interval
    )
    value_s: float = 0.0
    _quiet: int = 0

    def __post_init__(self) -> None:
        self.value_s = self.value_s or self.min_s

    def step(self, changed: bool, limit_s: float | None = None) -> float:
        """Account for one update and return the next interval, at most `limit_s`."""
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
