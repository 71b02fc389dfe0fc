"""Choose the split of pair rates over their paths that uses links evenly and changes little.

Many splits route the same rates. This one minimises the sum over links of load^2 / capacity (even
use) + NEARNESS x the sum over pairs of rate x |share - previous|^2, subject to load <= capacity.
The first term leaves freedom where pairs share the same links. The second term makes the answer
unique, steady from step to step, and independent of the order of pairs.

Newton steps on the dual solve it. The dual has one price per link. For given prices, the best split
is one projection per pair.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csc_array, diags_array
from scipy.sparse.linalg import splu

from ri2n_sdn.rates.arrays import BoolArray, FloatArray
from ri2n_sdn.rates.many_paths import Network

__all__ = ["even_split", "project_to_shares"]

# The weight of staying near the previous split, against even use of links.
NEARNESS = 0.1
# The largest number of Newton steps. The mean is 3; at most 20 were seen.
MAX_STEPS = 60
# The part of the largest gap that damps a step. All values of 0.01..1 converged in all of 400
# random networks.
CAUTION = 0.1
# The gap that may be left between the loads of links and their answer to their prices, as a part of
# the largest capacity.
TOLERANCE = 1e-8


def even_split(
    network: Network, rate: FloatArray, previous: FloatArray, steps: int = MAX_STEPS
) -> FloatArray:
    """The shares (P, K) that route `rate` (P,) most evenly, near `previous` (P, K).

    Rows sum to 1 over live paths. When `rate` cannot be routed, or `steps` are too few, some loads
    exceed the capacities of their links.
    """
    scale = float(network.capacity.max(initial=0.0)) or 1.0
    capacity = network.capacity / scale
    demand = np.where(network.alive.any(axis=1), rate / scale, 0.0)
    curvature = 1.0 / np.maximum(capacity, 1e-9)
    price = np.zeros(network.links)
    share = project_to_shares(previous, network.alive)
    value, gap = _dual(network, capacity, curvature, demand, previous, price, share)
    for _ in range(steps):
        if np.abs(gap).max(initial=0.0) <= TOLERANCE:
            break
        step = _newton_step(network, capacity, curvature, demand, price, share, gap)
        # Halve the step until the dual's value has risen by a small part of what its slope
        # promises.
        length = 1.0
        while True:
            tried = price + length * step
            share_tried = project_to_shares(
                previous - _on_paths(network, tried) / NEARNESS, network.alive
            )
            value_tried, gap_tried = _dual(
                network, capacity, curvature, demand, previous, tried, share_tried
            )
            if value_tried >= value + 1e-4 * length * float(gap @ step) or length < 1e-3:
                break
            length *= 0.5
        price, share, value, gap = tried, share_tried, value_tried, gap_tried
    return share


def project_to_shares(wish: FloatArray, alive: BoolArray) -> FloatArray:
    """The shares (P, K) that are nearest to `wish` (P, K).

    Shares are >= 0, and 0 on dead paths. Rows sum to 1, or to 0 when no path is alive.
    """
    paths = wish.shape[1]
    masked = np.where(alive, wish, -np.inf)
    ordered = -np.sort(-masked, axis=1)
    finite = np.isfinite(ordered)
    running = np.cumsum(np.where(finite, ordered, 0.0), axis=1)
    rank = np.arange(1, paths + 1)
    kept = finite & (np.where(finite, ordered, 0.0) - (running - 1.0) / rank > 0.0)
    count = np.maximum(kept.sum(axis=1), 1)
    cut = (running[np.arange(len(wish)), count - 1] - 1.0) / count
    return np.where(alive, np.maximum(np.where(alive, wish, 0.0) - cut[:, None], 0.0), 0.0)


def _on_paths(network: Network, price: FloatArray) -> FloatArray:
    """The sum of link prices (E,) along each path (P, K); 0 on dead paths."""
    prices = network.path_prices(price)
    return np.where(network.alive, prices, 0.0)


def _answer(capacity: FloatArray, curvature: FloatArray, price: FloatArray) -> FloatArray:
    """The load (E,) that each link takes at its price: it rises up to the capacity."""
    return np.minimum(price / curvature, capacity)


def _dual(
    network: Network,
    capacity: FloatArray,
    curvature: FloatArray,
    demand: FloatArray,
    previous: FloatArray,
    price: FloatArray,
    share: FloatArray,
) -> tuple[float, FloatArray]:
    """The value of the dual at `price`, and its gradient (E,).

    `share` (P, K) is the best split at these prices. The gradient is the gap: the load of each link
    minus its answer to its price.
    """
    answer = _answer(capacity, curvature, price)
    load = network.load(share * demand[:, None])
    change = np.where(network.alive, share - previous, 0.0)
    nearness = 0.5 * NEARNESS * float(demand @ (change**2).sum(axis=1))
    value = nearness + float(price @ (load - answer)) + 0.5 * float(curvature @ answer**2)
    return value, load - answer


def _newton_step(
    network: Network,
    capacity: FloatArray,
    curvature: FloatArray,
    demand: FloatArray,
    price: FloatArray,
    share: FloatArray,
    gap: FloatArray,
) -> FloatArray:
    """The change of prices (E,) that would close the gap if no path became used or unused."""
    used = (share > 0.0) & network.alive
    pairs, paths = used.shape
    weight = np.where(used, (demand / NEARNESS)[:, None], 0.0).reshape(-1)
    per_path = network.incidence @ diags_array(weight) @ network.incidence.T
    pair, path = np.nonzero(used)
    belongs = coo_array(
        (np.ones(len(pair)), (pair * paths + path, pair)), shape=(pairs * paths, pairs)
    )
    per_pair = network.incidence @ belongs.tocsr()
    factor = demand / NEARNESS / np.maximum(used.sum(axis=1), 1)
    slope = per_path - per_pair @ diags_array(factor) @ per_pair.T
    # In some directions no used path answers to prices, so the matrix is damped. The further the
    # goal is, the more careful the step is.
    answers = np.where(price / curvature < capacity, 1.0 / curvature, 0.0)
    damped = slope + diags_array(answers + 1e-9 + CAUTION * float(np.abs(gap).max()))
    # Sparse LU runs in one thread. Dense Cholesky does not, and the threads of BLAS spin while
    # other programs hold the cores.
    return np.asarray(splu(csc_array(damped)).solve(gap), dtype=np.float64)
