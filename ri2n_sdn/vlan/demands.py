# SPDX-License-Identifier: Apache-2.0
"""Estimates what pairs would send if the links between switches did not limit them.

Two pairs that share a full uplink each send half of what they could. If their measured rates were
taken for their demands, the uplink would look just full, moving a pair would seem to gain nothing,
and both would stay there for ever. So a pair that gets about as much of a full link as the others
there is taken to want as much as it can get.
"""

from __future__ import annotations

import numpy as np

from ri2n_sdn.rates.arrays import FloatArray, IntArray
from ri2n_sdn.rates.load import FULL, link_load
from ri2n_sdn.rates.one_path import fair_rates

__all__ = ["estimate_demands"]

# Parts of the mean rate on a full link, weighted by rate. A pair that has at least ELASTIC of it
# takes what it can get. One that has at least GROWING may be held down by stronger pairs: it is
# taken to want GROWTH times its rate. One that has less already has what it wants.
ELASTIC = 0.5
GROWING = 0.1
GROWTH = 2.0


def estimate_demands(
    rate_bps: FloatArray, path: IntArray, ends: IntArray, capacity_bps: FloatArray
) -> FloatArray:
    """(P,) bit/s that each of P pairs would send if only the links of its hosts limited it.

    `rate_bps` (P,) was sent over the links `path` (P, L). `ends` (P, M) are the links that the pair
    uses whatever VLAN it takes: its hosts' links, as a rule. Both are padded with -1.
    `capacity_bps` is (E,). A pair on a full link is elastic when its rate is not far below that of
    the others there. It then wants its max-min fair share of `ends`, where pairs that are not
    elastic take what they sent.
    """
    rate = np.maximum(np.nan_to_num(rate_bps, posinf=0.0), 0.0)
    capacity = np.append(np.asarray(capacity_bps, dtype=np.float64), np.inf)
    load = link_load(rate, path, len(capacity))
    squares = link_load(rate * rate, path, len(capacity))
    typical = np.divide(squares, load, out=np.zeros_like(load), where=load > 0.0)
    full = load >= FULL * capacity
    # The fullest link holds a pair back the most, so the lowest typical rate on its full links
    # counts.
    typical[~full] = np.inf
    level = typical[path].min(axis=1, initial=np.inf)
    elastic = np.isfinite(level) & (rate >= ELASTIC * level) & (rate > 0.0)
    growing = np.isfinite(level) & ~elastic & (rate >= GROWING * level)
    want = np.where(elastic, np.inf, np.where(growing, GROWTH, 1.0) * rate)
    fair = fair_rates(want, ends, capacity_bps)
    return np.where(elastic, np.maximum(fair, rate), np.minimum(want, np.maximum(fair, rate)))
