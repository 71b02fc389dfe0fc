# SPDX-License-Identifier: Apache-2.0
"""Max-min fair rates of pairs that use one path each.

It is fast enough for thousands of pairs in every step of a controller.
"""

from __future__ import annotations

import numpy as np

from ri2n_sdn.rates.arrays import FloatArray, IntArray

__all__ = ["fair_rates"]

# The largest number of rounds. Each round fills at least one link, as a rule most of them.
MAX_ROUNDS = 200
# Rates that differ by no more than this part of them count as equal.
NEAR = 1e-9


def fair_rates(
    want_bps: FloatArray, path: IntArray, capacity_bps: FloatArray, weight: FloatArray | None = None
) -> FloatArray:
    """The max-min fair rates (P,) in bit/s of pairs that want `want_bps` (P,), which may be inf.

    `path` (P, L) has the links of each pair's one path, padded with -1. A pair that no link limits
    gets what it wants, or the largest capacity if it wants inf. Pairs share a link in the ratio of
    `weight` (P,), or equally without weights.
    """
    capacity = np.asarray(capacity_bps, dtype=np.float64)
    links = len(capacity)
    want = np.minimum(
        np.maximum(want_bps, 0.0), float(capacity.max(initial=0.0)) if links else np.inf
    )
    want = np.where(np.isfinite(want), want, 0.0)
    rate = np.zeros(len(want))
    room = np.append(capacity, np.inf)
    # The pairs whose rate is open yet, and the links of their paths. Padding is a link of its own,
    # which has room for everything.
    pairs = np.flatnonzero(want > 0.0)
    crossed = path[pairs] % (links + 1)
    weights = np.ones(len(want)) if weight is None else np.asarray(weight, dtype=np.float64)
    width = crossed.shape[1]
    for _ in range(MAX_ROUNDS):
        if not len(pairs):
            return rate
        users = np.bincount(
            crossed.reshape(-1), np.repeat(weights[pairs], width), minlength=links + 1
        )
        share = np.divide(room, users, out=np.full(links + 1, np.inf), where=users > 0)
        shares = share[crossed]
        bound = shares.min(axis=1, initial=np.inf)
        # Shares only grow from here on, so a pair that wants no more than its share gets just that.
        done = want[pairs] <= bound * weights[pairs] * (1.0 + NEAR)
        if not done.any():
            # A link is full with these shares when none of its pairs has a smaller share on another
            # link. The link with the smallest share is one of these.
            less = bound[:, None] < shares * (1.0 - NEAR)
            loose = np.bincount(crossed.reshape(-1), less.reshape(-1), minlength=links + 1) > 0.0
            done = ~(loose | np.isinf(share))[crossed].all(axis=1)
        given = np.minimum(want[pairs], bound * weights[pairs])
        rate[pairs[done]] = given[done]
        taken = np.repeat(given[done], width)
        room -= np.bincount(crossed[done].reshape(-1), weights=taken, minlength=links + 1)
        np.maximum(room, 0.0, out=room)
        pairs, crossed = pairs[~done], crossed[~done]
    # In a long chain of links, each waits for the next one. If the rounds were not enough for it,
    # the pairs that are left get their present shares.
    users = np.bincount(crossed.reshape(-1), np.repeat(weights[pairs], width), minlength=links + 1)
    share = np.divide(room, users, out=np.full(links + 1, np.inf), where=users > 0)
    rate[pairs] = np.minimum(
        want[pairs], weights[pairs] * share[crossed].min(axis=1, initial=np.inf)
    )
    return rate
