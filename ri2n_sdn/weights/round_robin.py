# SPDX-License-Identifier: Apache-2.0
"""RI2N's round robin as weights: every live path of a pair gets the same share.

It is the baseline of all comparisons.
"""

from __future__ import annotations

from ri2n_sdn.rates.arrays import FloatArray
from ri2n_sdn.weights.sample import TrafficSample, Weights, to_shares

__all__ = ["weights"]


def weights(sample: TrafficSample, previous: FloatArray) -> Weights:
    """Equal shares over live paths (RI2N++ paper, section 2.1).

    The counters in `sample` and `previous` have no influence.
    """
    return Weights(to_shares(sample.alive.astype(float), sample.alive))
