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
ROUNDS = 200  # of filling links; each fills at least one, as a rule most
NEAR = 1e-9  # parts by which equal rates may differ


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
    room = np.append(capacity, np.inf)
    some = np.flatnonzero(want > 0.0)
    place = way[some] % (links + 1)
    for _ in range(ROUNDS):
        if not len(some):
            return rate
        users = np.bincount(place.reshape(-1), minlength=links + 1)
        share = np.divide(room, users, out=np.full(links + 1, np.inf), where=users > 0)
        shares = share[place]
        bound = shares.min(axis=1, initial=np.inf)
        # Shares only grow from here on, so whoever wants no more than its share has it for good.
        done = want[some] <= bound * (1.0 + NEAR)
        if not done.any():
            # A link none of whose pairs has less elsewhere is full with these shares. The lowest share's is one.
            less = bound[:, None] < shares * (1.0 - NEAR)
            loose = np.bincount(place.reshape(-1), weights=less.reshape(-1), minlength=links + 1) > 0.0
            done = ~(loose | np.isinf(share))[place].all(axis=1)
        given = np.minimum(want[some], bound)
        rate[some[done]] = given[done]
        taken = np.repeat(given[done], place.shape[1])
        room -= np.bincount(place[done].reshape(-1), weights=taken, minlength=links + 1)
        np.maximum(room, 0.0, out=room)
        some, place = some[~done], place[~done]
    # A chain of links that wait for each other's, longer than a controller's step has time for: all have their shares.
    users = np.bincount(place.reshape(-1), minlength=links + 1)
    share = np.divide(room, users, out=np.full(links + 1, np.inf), where=users > 0)
    rate[some] = np.minimum(want[some], share[place].min(axis=1, initial=np.inf))
    return rate
