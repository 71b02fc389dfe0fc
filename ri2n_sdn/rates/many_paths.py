"""Exact max-min fair rates of pairs that may split over several paths, each path any set of
capacitated links.

The rates that can be routed are a polytope whose faces are cuts: for any link prices y >= 0, the
sum over pairs of rate x (price of the pair's cheapest path) is at most the sum over links of y x
capacity. Water-filling is exact and fast over a list of cuts, so: fill over the cuts known, try to
route the result with one LP, and when that fails its dual is a cut that was missing. Each round
adds a vertex of the dual, so it ends; the cuts "all links of one NIC set", known from the start,
are nearly always enough in a cluster with one switch stage.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, eye_array, hstack

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray

__all__ = ["Network", "max_min_rates"]

OVERLOAD = (
    1e-7  # of the largest capacity: what the routing LP may be off (its own feasibility tolerance)
)
UNIONS = 64  # cuts from unions of NIC sets, per set of NICs that belong together
ROUNDS = 400  # ends the search when a caller names no limit; random small topologies need 1..10


class Network:
    """Paths of P pairs over E links, in the form the filling and the routing need.

    `path_links` (P, K, L) holds link ids, -1 for none; only `alive` (P, K) paths are used.
    Capacities are in any unit.
    """

    def __init__(self, path_links: IntArray, alive: BoolArray, capacity: FloatArray) -> None:
        self.path_links = path_links
        self.alive = alive
        self.capacity = capacity
        self.pairs, self.paths = alive.shape
        self.links = int(capacity.shape[0])
        flat_links = path_links.reshape(self.pairs * self.paths, -1)
        used = (flat_links >= 0) & alive.reshape(-1)[:, None]
        path, position = np.nonzero(used)
        ones = np.ones(len(path))
        shape = (self.links, self.pairs * self.paths)
        self.incidence = coo_array((ones, (flat_links[path, position], path)), shape=shape).tocsr()
        self.incidence.data[:] = 1.0  # a link named twice by a path is used once

    def path_prices(self, price: FloatArray) -> FloatArray:
        """(P, K) sum of link prices (E,) along each path; inf on dead paths."""
        total = np.asarray(self.incidence.T @ price).reshape(self.pairs, self.paths)
        return np.where(self.alive, total, np.inf)

    def path_maximum(self, value: FloatArray) -> FloatArray:
        """(P, K) the largest value (E,) on each path; 1 on paths without links."""
        padded = np.append(value, 1.0)[self.path_links]
        return np.asarray(padded.max(axis=2), dtype=np.float64)

    def load(self, rate: FloatArray) -> FloatArray:
        """(E,) sum of path rates (P, K) on each link."""
        return np.asarray(
            self.incidence @ np.where(self.alive, rate, 0.0).reshape(-1), dtype=np.float64
        )


def max_min_rates(
    network: Network,
    *demands: FloatArray,
    rounds: int = ROUNDS,
    guess: Callable[[FloatArray], FloatArray] | None = None,
) -> tuple[list[FloatArray], FloatArray]:
    """Max-min fair rates (P,) within `demands[0]` (P,), inf allowed; and one split (P, K) of the
    last rates.

    Further demands fill the capacity that is left: the second result is the max-min fair addition
    to the first up to `demands[1]`, and so on; results are cumulative. Pairs without a live path
    get 0. When `rounds` attempts were not enough the last one is cut back, path by path, to what
    its links carry: feasible, but not exactly max-min. `guess` maps rates (P,) to shares (P, K)
    that may well route them; when they do, no LP is needed.
    """
    scale = float(network.capacity.max(initial=0.0)) or 1.0
    capacity = network.capacity / scale
    usable = network.alive.any(axis=1)
    limits = [
        np.where(usable, np.nan_to_num(d / scale, nan=0.0, posinf=np.inf), 0.0) for d in demands
    ]
    tolerance = OVERLOAD * max(1.0, float(np.sqrt(network.links)))
    cut, bound = _nic_cuts(network, capacity)
    for _ in range(max(rounds, 1)):
        rates: list[FloatArray] = []
        base = np.zeros(network.pairs)
        for limit in limits:
            base = _fill(cut, bound, base, np.maximum(limit, base))
            rates.append(base)
        if guess is not None:
            split = guess(base * scale) * base[:, None]
            if float(np.maximum(network.load(split) - capacity, 0.0).sum()) <= tolerance:
                return [r * scale for r in rates], split * scale
        split, overload, price = _route(network, capacity, base)
        if overload <= tolerance:
            return [r * scale for r in rates], split * scale
        if not price.any():
            break
        new = _cuts_of(network, capacity, price)
        cut = np.concatenate([cut, [row for row, _ in new]])
        bound = np.concatenate([bound, [b for _, b in new]])
    crowded = np.maximum(network.load(split) / np.maximum(capacity, 1e-12), 1.0)
    split = np.where(network.alive, split / network.path_maximum(crowded), 0.0)
    return [np.minimum(r, split.sum(axis=1)) * scale for r in rates], split * scale


def _fill(cut: FloatArray, bound: FloatArray, base: FloatArray, limit: FloatArray) -> FloatArray:
    """Water-filling from `base` (P,) up to `limit` (P,):

    all additions rise together until a cut row (C, P) is full.
    """
    rate = base.copy()
    growing = limit > base
    room = bound - cut @ base
    need = cut @ growing.astype(np.float64)
    step = limit - base  # how far each pair may rise
    while growing.any():
        level = np.divide(room, need, out=np.full_like(room, np.inf), where=need > 1e-12)
        tightest = max(float(level.min(initial=np.inf)), 0.0)
        done = growing & (step <= tightest)
        if done.any():
            rise = step[done]
        else:
            if not np.isfinite(tightest):
                break  # pairs that no cut holds: they have no live path
            full = level <= tightest * (1.0 + 1e-12) + 1e-15
            done = growing & (cut[full] > 1e-12).any(axis=0)
            rise = np.full(int(done.sum()), tightest)
        rate[done] = base[done] + rise
        growing &= ~done
        room = room - cut[:, done] @ rise
        need = need - cut[:, done].sum(axis=1)
    return rate


def _nic_cuts(network: Network, capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The cuts that any cluster has: each set of links that all live paths of some pair pass at one
    position.

    For pairs with different NICs of one host, unions of their sets as well. Rows (C, P) of 0 and 1,
    bounds (C,).
    """
    by_position: list[dict[frozenset[int], list[int]]] = []
    live = [np.flatnonzero(row).tolist() for row in network.alive]
    for position in range(network.path_links.shape[2]):
        column = network.path_links[:, :, position].tolist()
        groups: dict[frozenset[int], list[int]] = {}
        for pair, paths in enumerate(live):
            passed = frozenset(column[pair][k] for k in paths)
            if passed and -1 not in passed:
                groups.setdefault(passed, []).append(pair)
        by_position.append(groups)
    rows, bounds = [], []
    for groups in by_position:
        for union in _unions(list(groups)):
            row = np.zeros(network.pairs)
            for passed, members in groups.items():
                if passed <= union:
                    row[members] = 1.0
            rows.append(row)
            bounds.append(float(capacity[list(union)].sum()))
    if not rows:
        return np.zeros((0, network.pairs)), np.zeros(0)
    return np.array(rows), np.array(bounds)


def _unions(sets: list[frozenset[int]]) -> list[frozenset[int]]:
    """The sets, and unions of those that overlap or lie in one larger set of the list (bounded
    per largest set).
    """
    largest = (
        [s for s in sets if not any(s < other for other in sets)] if len(sets) <= 512 else sets
    )
    found = dict.fromkeys(sets)
    if len(largest) == len(sets):
        return list(found)
    for whole in largest:
        inside = [s for s in sets if s < whole]
        closed = dict.fromkeys(inside)
        for one in inside:
            closed.update(dict.fromkeys([one | other for other in list(closed)]))
            if len(closed) > UNIONS:
                break
        found.update(closed)
    return list(found)


def _route(
    network: Network, capacity: FloatArray, rate: FloatArray
) -> tuple[FloatArray, float, FloatArray]:
    """Split `rate` (P,) over paths with the least total overload.

    Returns the split, the overload and link prices.
    """
    alive = network.alive.reshape(-1)
    columns = np.flatnonzero(alive)
    pair = columns // network.paths
    links = network.incidence[:, columns]
    eye = eye_array(network.links, format="csr")
    pair_sum = coo_array(
        (np.ones(len(columns)), (pair, np.arange(len(columns)))), (network.pairs, len(columns))
    )
    routed = np.unique(pair)
    equal = hstack(
        [pair_sum.tocsr()[routed], coo_array((len(routed), network.links))], format="csc"
    )
    split = np.zeros(network.pairs * network.paths)
    if not len(columns):
        return split.reshape(network.pairs, network.paths), 0.0, np.zeros(network.links)
    answer = linprog(
        np.concatenate([np.zeros(len(columns)), np.ones(network.links)]),
        A_ub=hstack([links, -eye], format="csc"),
        b_ub=capacity,
        A_eq=equal,
        b_eq=rate[routed],
        method="highs-ds",
    )
    if (
        answer.x is None or answer.fun is None
    ):  # the solver gave up: the caller cuts the equal split back
        equal_split = network.alive / np.maximum(network.alive.sum(axis=1, keepdims=True), 1)
        return equal_split * rate[:, None], float("inf"), np.zeros(network.links)
    split[columns] = answer.x[: len(columns)]
    price = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0)
    return split.reshape(network.pairs, network.paths), float(answer.fun), price


def _cuts_of(
    network: Network, capacity: FloatArray, price: FloatArray
) -> list[tuple[FloatArray, float]]:
    """The cut of these link prices, and of each of its parts that no pair's cheapest paths join."""
    price = np.where(price > 1e-9, price, 0.0)
    cuts = [_cut(network, capacity, price)]
    cheapest = cuts[0][0]
    links = network.path_links
    group = np.arange(network.links)
    priced = np.flatnonzero(cheapest > 1e-9)
    for pair in priced:
        ids = {
            int(e)
            for k in np.flatnonzero(network.alive[pair])
            for e in links[pair, k]
            if e >= 0 and price[e] > 0
        }
        roots = {int(group[e]) for e in ids}
        if len(roots) > 1:
            group[np.isin(group, list(roots))] = min(roots)
    parts = np.unique(group[price > 0.0])
    if len(parts) > 1:
        cuts += [_cut(network, capacity, np.where(group == part, price, 0.0)) for part in parts]
    return cuts


def _cut(network: Network, capacity: FloatArray, price: FloatArray) -> tuple[FloatArray, float]:
    """Coefficients (P,) and bound of the cut with link prices `price` (E,)."""
    cheapest = network.path_prices(price).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(cheapest), cheapest, 0.0), float(price @ capacity)
