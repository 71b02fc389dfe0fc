"""What pairs would send if the switches' links were not in their way, estimated from what they did
send.

A pair that shares a full uplink with another sends half of what it could. Taken at its measured
rate, the uplink would look just full, moving the pair would seem to gain nothing, and both would
stay where they are for ever.
"""

from __future__ import annotations

import numpy as np

from ri2n_sdn.rates.arrays import FloatArray, IntArray
from ri2n_sdn.rates.load import FULL, link_load
from ri2n_sdn.rates.one_path import fair_rates

__all__ = ["estimate_demands"]

# of the mean rate on the full link, weighted by rate: a pair that has this takes what it can get
ELASTIC = 0.5
GROWING = (
    0.1  # a pair that has only this may be held down by stronger ones; it is taken to want ...
)
GROWTH = 2.0  # ... this multiple of its rate; one below has what it wants


def estimate_demands(
    rate_bps: FloatArray, path: IntArray, ends: IntArray, capacity_bps: FloatArray
) -> FloatArray:
    """(P,) bit/s that each pair would send if only the links of its hosts limited it.

    `rate_bps` (P,) was sent over the links `way` (P, L); `ends` (P, M) are those links that the
    pair uses whatever VLAN it takes: its hosts' links, as a rule. Both are padded with -1;
    capacities (E,). A pair on a full link is elastic when its rate is not far below that of the
    others there, and then wants its max-min fair share of `ends`, where the pairs that are not
    elastic take what they sent.
    """
    rate = np.maximum(np.nan_to_num(rate_bps, posinf=0.0), 0.0)
    capacity = np.append(np.asarray(capacity_bps, dtype=np.float64), np.inf)
    load, squares = (link_load(each, path, len(capacity)) for each in (rate, rate * rate))
    typical = np.divide(squares, load, out=np.zeros_like(load), where=load > 0.0)
    full = load >= FULL * capacity
    # The fullest links hold a pair back the most, so the lowest of the typical rates on full links
    # is what counts.
    typical[~full] = np.inf
    level = typical[path].min(axis=1, initial=np.inf)
    elastic = np.isfinite(level) & (rate >= ELASTIC * level) & (rate > 0.0)
    growing = np.isfinite(level) & ~elastic & (rate >= GROWING * level)
    want = np.where(elastic, np.inf, np.where(growing, GROWTH, 1.0) * rate)
    fair = fair_rates(want, ends, capacity_bps)
    return np.where(elastic, np.maximum(fair, rate), np.minimum(want, np.maximum(fair, rate)))
