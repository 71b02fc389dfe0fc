"""Max-min fair rates by linear programs (HiGHS), from the definition:

slow, exact, and independent of the rest.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from ri2n_sdn.rates.arrays import FloatArray

__all__ = ["max_min_by_lp", "most"]

_TOLERANCE = 1e-6


def max_min_by_lp(crosses: FloatArray, capacity: FloatArray, belongs: FloatArray) -> FloatArray:
    """(P,) max-min fair rates of pairs: `belongs` (P, N) has the paths of each, `crosses` (E, N)
    the links of those.

    Raise all pairs together as far as it goes, fix those that cannot rise further, go on with the
    others. What a pair wants at most is the capacity of a link that all its paths cross. Capacities
    near 1 suit the solver's tolerances.
    """
    columns = belongs.shape[1]
    fixed = np.where(belongs.any(axis=1), -1.0, 0.0)
    while (fixed < 0).any():
        # variables: the rate of each path, then the common level t; every free pair gets at least t
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
