# SPDX-License-Identifier: Apache-2.0
"""Choose the split of pair rates over their paths that uses links evenly and changes little.

Many splits route the same rates. This one minimises the sum over links of load^2 / capacity (even
use) + NEARNESS x the sum over pairs of rate x |share - previous|^2, subject to load <= capacity.
The first term leaves freedom where pairs share the same links. The second term makes the answer
unique, steady from step to step, and independent of the order of pairs.

Newton steps on the dual solve it. The dual has one price per link. For given prices, the best split
is one projection per pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray
from ri2n_sdn.rates.many_paths import Network

__all__ = ["MAX_DENSE_LINKS", "even_split", "project_to_shares"]

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
# Networks with more links, or with more entries of pairs of links, use sparse matrices, for which
# scipy is imported. A dense matrix of 100 rows and more would be solved by several threads.
MAX_DENSE_LINKS = 96
MAX_DENSE_ENTRIES = 200_000


def even_split(
    network: Network, rate: FloatArray, previous: FloatArray, steps: int = MAX_STEPS
) -> FloatArray:
    """The shares (P, K) that route `rate` (P,) most evenly, near `previous` (P, K).

    Rows sum to 1 over live paths. When `rate` cannot be routed, or `steps` are too few, some loads
    exceed the capacities of their links.
    """
    scale = float(network.capacity.max(initial=0.0)) or 1.0
    demand = np.where(network.alive.any(axis=1), rate / scale, 0.0)
    dual = _Dual(network, network.capacity / scale, demand, previous)
    price = np.zeros(network.links)
    share = dual.share(price)
    value, gap = dual.value_and_gap(price, share)
    for _ in range(steps):
        if np.abs(gap).max(initial=0.0) <= TOLERANCE:
            break
        step = dual.newton_step(price, share, gap)
        # Halve the step until the dual's value has risen by a small part of what its slope
        # promises.
        length = 1.0
        while True:
            tried = price + length * step
            share_tried = dual.share(tried)
            value_tried, gap_tried = dual.value_and_gap(tried, share_tried)
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


@dataclass(frozen=True, eq=False)
class _Dual:
    """The dual of one problem: capacities (E,), demands (P,), and the previous split (P, K)."""

    network: Network
    capacity: FloatArray
    demand: FloatArray
    previous: FloatArray

    @cached_property
    def curvature(self) -> FloatArray:
        """How fast the cost of a link (E,) rises with its load."""
        return 1.0 / np.maximum(self.capacity, 1e-9)

    def share(self, price: FloatArray) -> FloatArray:
        """The best split (P, K) at the link prices `price` (E,)."""
        alive = self.network.alive
        on_paths = np.where(alive, self.network.path_prices(price), 0.0)
        return project_to_shares(self.previous - on_paths / NEARNESS, alive)

    def value_and_gap(self, price: FloatArray, share: FloatArray) -> tuple[float, FloatArray]:
        """The value of the dual at `price`, and its gradient (E,).

        `share` (P, K) is the best split at these prices. The gradient is the gap: the load of each
        link minus its answer to its price, which rises up to the capacity.
        """
        answer = np.minimum(price / self.curvature, self.capacity)
        load = self.network.load(share * self.demand[:, None])
        change = np.where(self.network.alive, share - self.previous, 0.0)
        nearness = 0.5 * NEARNESS * float(self.demand @ (change**2).sum(axis=1))
        value = nearness + float(price @ (load - answer)) + 0.5 * float(self.curvature @ answer**2)
        return value, load - answer

    def newton_step(self, price: FloatArray, share: FloatArray, gap: FloatArray) -> FloatArray:
        """The change of prices (E,) that would close the gap if no path became used or unused."""
        network = self.network
        used = (share > 0.0) & network.alive
        factor = self.demand / NEARNESS / np.maximum(used.sum(axis=1), 1)
        # In some directions no used path answers to prices, so the matrix is damped. The further
        # the goal is, the more careful the step is.
        answers = np.where(price / self.curvature < self.capacity, 1.0 / self.curvature, 0.0)
        damping = answers + 1e-9 + CAUTION * float(np.abs(gap).max())
        entries = network.pairs * (network.paths * network.path_links.shape[2]) ** 2
        is_small = network.links <= MAX_DENSE_LINKS and entries <= MAX_DENSE_ENTRIES
        solve = self._dense_step if is_small else self._sparse_step
        return solve(used, factor, damping, gap)

    def _dense_step(
        self, used: BoolArray, factor: FloatArray, damping: FloatArray, gap: FloatArray
    ) -> FloatArray:
        """`newton_step` with a matrix (E, E) that is summed entry by entry.

        Each pair contributes to the entries of all two links of its used paths: -`factor` (P,), and
        its demand / NEARNESS more where one path has both links.
        """
        network = self.network
        pairs, paths, length = network.path_links.shape
        row = network.links  # one row and one column more are for links that are not used
        link = np.where(used[:, :, None], network.used_links, row)
        link = np.where(link < 0, row, link).reshape(pairs, paths * length)
        entry = link[:, :, None] * (row + 1) + link[:, None, :]
        path = np.repeat(np.arange(paths), length)
        value = np.where(path[:, None] == path, (self.demand / NEARNESS)[:, None, None], 0.0)
        value -= factor[:, None, None]
        sums = np.bincount(entry.reshape(-1), value.reshape(-1), (row + 1) ** 2)
        slope = sums.reshape(row + 1, row + 1)[:row, :row]
        return np.asarray(np.linalg.solve(slope + np.diag(damping), gap), dtype=np.float64)

    def _sparse_step(
        self, used: BoolArray, factor: FloatArray, damping: FloatArray, gap: FloatArray
    ) -> FloatArray:
        """`newton_step` with sparse matrices, for large networks."""
        # The import takes 0.3 s of CPU. See `apps.solver`.
        from scipy.sparse import coo_array, csc_array, diags_array
        from scipy.sparse.linalg import splu

        network = self.network
        pairs, paths = used.shape
        weight = np.where(used, (self.demand / NEARNESS)[:, None], 0.0).reshape(-1)
        incidence = coo_array(
            (np.ones(len(network.on_path)), (network.on_link, network.on_path)),
            shape=(network.links, pairs * paths),
        ).tocsr()
        per_path = incidence @ diags_array(weight) @ incidence.T
        pair, path = np.nonzero(used)
        belongs = coo_array(
            (np.ones(len(pair)), (pair * paths + path, pair)), shape=(pairs * paths, pairs)
        )
        per_pair = incidence @ belongs.tocsr()
        slope = per_path - per_pair @ diags_array(factor) @ per_pair.T
        damped = slope + diags_array(damping)
        # Sparse LU runs in one thread. Dense Cholesky does not, and the threads of BLAS spin while
        # other programs hold the cores.
        return np.asarray(splu(csc_array(damped)).solve(gap), dtype=np.float64)
