"""Max-min fair rates of pairs that use one path each, for thousands of pairs in every step of a
controller.
"""

from __future__ import annotations

import numpy as np

from ri2n_sdn.rates.arrays import FloatArray, IntArray

__all__ = ["fair_rates"]

ROUNDS = 200  # of filling links; each fills at least one, as a rule most
NEAR = 1e-9  # parts by which equal rates may differ


def fair_rates(
    want_bps: FloatArray, way: IntArray, capacity_bps: FloatArray, weight: FloatArray | None = None
) -> FloatArray:
    """(P,) max-min fair rates of pairs that want `want_bps` (P,), inf allowed, over their one way
    each (P, L).

    Ways are padded with -1. A pair that no link limits gets what it wants, or the largest capacity
    if that is inf. Pairs share a link in the ratio of `weight` (P,), equally without.
    """
    capacity = np.asarray(capacity_bps, dtype=np.float64)
    links = len(capacity)
    want = np.minimum(
        np.maximum(want_bps, 0.0), float(capacity.max(initial=0.0)) if links else np.inf
    )
    want = np.where(np.isfinite(want), want, 0.0)
    rate = np.zeros(len(want))
    room = np.append(capacity, np.inf)
    some = np.flatnonzero(want > 0.0)
    place = way[some] % (links + 1)
    strength = np.ones(len(want)) if weight is None else np.asarray(weight, dtype=np.float64)
    width = place.shape[1]
    for _ in range(ROUNDS):
        if not len(some):
            return rate
        users = np.bincount(
            place.reshape(-1), np.repeat(strength[some], width), minlength=links + 1
        )
        share = np.divide(room, users, out=np.full(links + 1, np.inf), where=users > 0)
        shares = share[place]
        bound = shares.min(axis=1, initial=np.inf)
        # Shares only grow from here on, so whoever wants no more than its share has it for good.
        done = want[some] <= bound * strength[some] * (1.0 + NEAR)
        if not done.any():
            # A link none of whose pairs has less elsewhere is full with these shares. The lowest
            # share's is one.
            less = bound[:, None] < shares * (1.0 - NEAR)
            loose = (
                np.bincount(place.reshape(-1), weights=less.reshape(-1), minlength=links + 1) > 0.0
            )
            done = ~(loose | np.isinf(share))[place].all(axis=1)
        given = np.minimum(want[some], bound * strength[some])
        rate[some[done]] = given[done]
        taken = np.repeat(given[done], width)
        room -= np.bincount(place[done].reshape(-1), weights=taken, minlength=links + 1)
        np.maximum(room, 0.0, out=room)
        some, place = some[~done], place[~done]
    # A chain of links that wait for each other's, longer than a controller's step has time for: all
    # have their shares.
    users = np.bincount(place.reshape(-1), np.repeat(strength[some], width), minlength=links + 1)
    share = np.divide(room, users, out=np.full(links + 1, np.inf), where=users > 0)
    rate[some] = np.minimum(want[some], strength[some] * share[place].min(axis=1, initial=np.inf))
    return rate
