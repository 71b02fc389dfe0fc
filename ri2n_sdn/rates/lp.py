# SPDX-License-Identifier: Apache-2.0
"""Max-min fair rates by linear programs (HiGHS), straight from the definition.

This is slow and exact, and it shares no code with the fast ways to compute such rates. So tests
compare those with it.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from ri2n_sdn.rates.arrays import FloatArray

__all__ = ["max_min_by_lp", "most"]

_TOLERANCE = 1e-6


def max_min_by_lp(crosses: FloatArray, capacity: FloatArray, belongs: FloatArray) -> FloatArray:
    """The max-min fair rates (P,) of pairs that may split over N paths in total.

    `belongs` (P, N) is 1 where a path is one of the pair. `crosses` (E, N) is 1 where a path
    crosses a link. The rates of all pairs rise together as far as possible. Pairs whose rate cannot
    rise further are fixed, and the others go on. To limit what a pair wants, give it a link with
    that capacity that all its paths cross. Capacities near 1 suit the tolerances of the solver.
    """
    columns = belongs.shape[1]
    fixed = np.where(belongs.any(axis=1), -1.0, 0.0)
    while (fixed < 0).any():
        # The variables are the rate of each path, then the common level t. Every free pair gets at
        # least t.
        free = fixed < 0
        need = np.hstack([-belongs, np.where(free, 1.0, 0.0)[:, None]])
        floor = np.where(free, 0.0, -np.maximum(fixed, 0.0))
        matrix = np.vstack([np.hstack([crosses, np.zeros((len(capacity), 1))]), need])
        level = most(np.append(np.zeros(columns), 1.0), matrix, np.concatenate([capacity, floor]))
        least = np.where(free, level, np.maximum(fixed, 0.0))
        stuck = []
        for pair in np.flatnonzero(free):
            highest = most(
                belongs[pair], np.vstack([crosses, -belongs]), np.append(capacity, -least + 1e-9)
            )
            if highest <= level + _TOLERANCE:
                stuck.append(pair)
        assert stuck, "max-min filling found nobody at the limit"
        fixed[stuck] = level
    return fixed


def most(value: FloatArray, matrix: FloatArray, limits: FloatArray) -> float:
    """The largest `value` @ x of all x >= 0 with `matrix` @ x <= `limits`."""
    result = linprog(-value, A_ub=matrix, b_ub=limits, bounds=(0, None), method="highs")
    assert result.status == 0, result.message
    assert result.fun is not None
    return -float(result.fun)
