"""What pairs would send if the switches' links were not in their way, estimated from what they did send.

A pair that shares a full uplink with another sends half of what it could. Taken at its measured rate, the uplink would
look just full, moving the pair would seem to gain nothing, and both would stay where they are for ever.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["estimate_demands", "fair_rates"]

FloatArray: TypeAlias = NDArray[np.float64]
IndexArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

SATURATED = 0.85  # of a link's capacity: from here on its pairs may want more than they get
ELASTIC = 0.5  # of the mean rate on the full link, weighted by rate: a pair that has this takes what it can get
GROWING = 0.1  # a pair that has only this may be held down by stronger ones; it is taken to want ...
GROWTH = 2.0  # ... this multiple of its rate; one below has what it wants
LEVELS = 200  # of water-filling; each fills at least one link


def estimate_demands(rate_bps: FloatArray, way: IndexArray, ends: IndexArray, capacity_bps: FloatArray) -> FloatArray:
    """(P,) bit/s that each pair would send if only the links of its hosts limited it.

    `rate_bps` (P,) was sent over the links `way` (P, L); `ends` (P, M) are those links that the pair uses whatever VLAN
    it takes: its hosts' links, as a rule. Both are padded with -1; capacities (E,). A pair on a full link is elastic
    when its rate is not far below that of the others there, and then wants its max-min fair share of `ends`, where the
    pairs that are not elastic take what they sent.
    """
    rate = np.maximum(np.nan_to_num(rate_bps, posinf=0.0), 0.0)
    capacity = np.append(np.asarray(capacity_bps, dtype=np.float64), np.inf)
    load, squares = np.zeros((2, len(capacity)))
    for link in way.T:
        load += np.bincount(link % len(capacity), weights=rate, minlength=len(capacity))
        squares += np.bincount(link % len(capacity), weights=rate * rate, minlength=len(capacity))
    typical = np.divide(squares, load, out=np.zeros_like(load), where=load > 0.0)
    full = load >= SATURATED * capacity
    # The fullest links hold a pair back the most, so the lowest of the typical rates on full links is what counts.
    typical[~full] = np.inf
    level = typical[way].min(axis=1, initial=np.inf)
    elastic = np.isfinite(level) & (rate >= ELASTIC * level) & (rate > 0.0)
    growing = np.isfinite(level) & ~elastic & (rate >= GROWING * level)
    want = np.where(elastic, np.inf, np.where(growing, GROWTH, 1.0) * rate)
    fair = fair_rates(want, ends, capacity_bps)
    return np.where(elastic, np.maximum(fair, rate), np.minimum(want, np.maximum(fair, rate)))


def fair_rates(want_bps: FloatArray, way: IndexArray, capacity_bps: FloatArray) -> FloatArray:
    """(P,) max-min fair rates of pairs that want `want_bps` (P,), inf allowed, over their one way each (P, L).

    Ways are padded with -1. A pair that no link limits gets what it wants, or the largest capacity if that is inf.
    """
    capacity = np.asarray(capacity_bps, dtype=np.float64)
    links = len(capacity)
    want = np.minimum(np.maximum(want_bps, 0.0), float(capacity.max(initial=0.0)) if links else np.inf)
    want = np.where(np.isfinite(want), want, 0.0)
    rate = np.zeros(len(want))
    growing = want > 0.0
    place = way % (links + 1)
    room = np.append(capacity, np.inf)
    level = 0.0
    for _ in range(LEVELS):
        some = np.flatnonzero(growing)
        if not len(some):
            break
        users = np.bincount(place[some].reshape(-1), minlength=links + 1)
        users[links] = 0
        rise = np.divide(room, users, out=np.full(links + 1, np.inf), where=users > 0)
        step = max(0.0, min(float(rise.min()), float((want[some] - level).min())))
        level += step
        rate[some] = level
        room[:links] -= step * users[:links]
        full = (users > 0) & (rise <= step * (1.0 + 1e-9) + 1e-12)
        growing[some] = (want[some] > level * (1.0 + 1e-12)) & ~full[place[some]].any(axis=1)
    else:
        # Far more levels than a controller's step has time for: the rest share what is left as their links allow.
        some = np.flatnonzero(growing)
        if len(some):
            users = np.bincount(place[some].reshape(-1), minlength=links + 1)
            left = np.append(room[:links], np.inf) / np.maximum(users, 1)
            rate[some] = np.minimum(want[some], level + np.maximum(left[place[some]].min(axis=1), 0.0))
    return rate
