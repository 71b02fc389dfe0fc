# SPDX-License-Identifier: Apache-2.0
"""Exact max-min fair rates of pairs that may split over several paths.

A path may be any set of links with capacities.

The rates that can be routed are a polytope whose faces are cuts. For any link prices y >= 0, the
sum over pairs of rate x (price of the pair's cheapest path) is at most the sum over links of y x
capacity. Water-filling over a list of cuts is exact and fast. So the algorithm fills over the cuts
that it has, and tries to route the result with one LP. When that fails, the dual of the LP is a cut
that was missing, and the algorithm starts the next round with it. Each round adds a vertex of the
dual, so the rounds end.

The list starts with the cuts "all links of one set of NICs". They are nearly always enough in a
cluster with one stage of switches.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray

__all__ = ["Network", "max_min_rates"]

# The overload that counts as none, as a part of the largest capacity: the feasibility tolerance of
# the routing LP.
OVERLOAD = 1e-7
# The largest number of cuts from unions of NIC sets, per set of NICs that belong together.
MAX_UNIONS = 64
# The largest number of rounds when a caller names no limit. Small random topologies need 1..10.
MAX_ROUNDS = 400


class Network:
    """The paths of P pairs over E links, in the form that the filling and the routing need.

    `path_links` (P, K, L) holds the indices of links, -1 for none. Only paths that are `alive`
    (P, K) are used. The capacities (E,) may be in any unit.

    `used_links` (P, K, L) has each link of a live path once, else -1. `on_path` and `on_link` have
    the same links as a list, path after path: the number of the path, and the link.
    """

    def __init__(self, path_links: IntArray, alive: BoolArray, capacity: FloatArray) -> None:
        self.path_links = path_links
        self.alive = alive
        self.capacity = capacity
        self.pairs, self.paths = alive.shape
        self.links = int(capacity.shape[0])
        flat_links = path_links.reshape(self.pairs * self.paths, -1)
        used = (flat_links >= 0) & alive.reshape(-1)[:, None]
        for position in range(1, flat_links.shape[1]):
            # A link that a path names twice is used once.
            named = flat_links[:, :position] == flat_links[:, position, None]
            used[:, position] &= ~named.any(axis=1)
        self.used_links = np.where(used, flat_links, -1).reshape(path_links.shape)
        self.on_path, position_on_path = np.nonzero(used)
        self.on_link = flat_links[self.on_path, position_on_path]

    def path_prices(self, price: FloatArray) -> FloatArray:
        """The sum of link prices `price` (E,) along each path (P, K); inf on dead paths."""
        total = np.bincount(self.on_path, price[self.on_link], self.alive.size)
        return np.where(self.alive, total.reshape(self.alive.shape), np.inf)

    def load(self, rate: FloatArray) -> FloatArray:
        """The sum of path rates `rate` (P, K) on each link (E,)."""
        total = np.bincount(self.on_link, rate.reshape(-1)[self.on_path], self.links)
        return np.asarray(total, dtype=np.float64)


def max_min_rates(
    network: Network,
    *demands: FloatArray,
    rounds: int = MAX_ROUNDS,
    guess: Callable[[FloatArray], FloatArray] | None = None,
) -> tuple[list[FloatArray], FloatArray]:
    """The max-min fair rates (P,) within each of `demands` (P,), and one split (P, K) of the last.

    A demand may be inf. The first rates are max-min fair within `demands[0]`. Further demands fill
    the capacity that is left: the second rates are the first ones plus the max-min fair addition up
    to `demands[1]`, and so on. Pairs without a live path get 0.

    When `rounds` attempts were not enough, the last one is cut back, path by path, to what its
    links carry. It is feasible then, but not exactly max-min fair. `guess` maps rates (P,) to
    shares (P, K) that probably route them. When they do, no LP is needed.
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
    # Each path gives up what its fullest link is above its capacity; padding finds the last 1.
    fullest = np.append(crowded, 1.0)[network.path_links].max(axis=2)
    split = np.where(network.alive, split / fullest, 0.0)
    return [np.minimum(r, split.sum(axis=1)) * scale for r in rates], split * scale


def _fill(cut: FloatArray, bound: FloatArray, base: FloatArray, limit: FloatArray) -> FloatArray:
    """Water-filling: raise the rates from `base` (P,) up to `limit` (P,) within all cuts.

    The rates of all pairs rise by the same amount, until a pair is at its limit or a cut is full.
    Then the pairs concerned stop, and the others go on. A row of `cut` (C, P) has the coefficients
    of one cut, `bound` (C,) its bound.
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
                break  # no cut limits the rest of the pairs: they have no live path
            full = level <= tightest * (1.0 + 1e-12) + 1e-15
            done = growing & (cut[full] > 1e-12).any(axis=0)
            rise = np.full(int(done.sum()), tightest)
        rate[done] = base[done] + rise
        growing &= ~done
        room = room - cut[:, done] @ rise
        need = need - cut[:, done].sum(axis=1)
    return rate


def _nic_cuts(network: Network, capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The cuts that every cluster has, as rows (C, P) of 0 and 1 and bounds (C,).

    Such a cut is a set of links that all live paths of some pair cross at one position, for example
    all NICs of the sender that the pair can use. Where pairs use different NICs of one host, there
    are unions of their sets as well.
    """
    rows, bounds = [], []
    live = [np.flatnonzero(row).tolist() for row in network.alive]
    for position in range(network.path_links.shape[2]):
        column = network.path_links[:, :, position].tolist()
        groups: dict[frozenset[int], list[int]] = {}
        for pair, paths in enumerate(live):
            passed = frozenset(column[pair][k] for k in paths)
            if passed and -1 not in passed:
                groups.setdefault(passed, []).append(pair)
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
    """The sets, and the unions of those that lie in one larger set of the list.

    There are about MAX_UNIONS unions per largest set. A list of more than 512 sets has no unions.
    """
    largest = (
        [s for s in sets if not any(s < other for other in sets)] if len(sets) <= 512 else sets
    )
    all_sets = dict.fromkeys(sets)
    if len(largest) == len(sets):
        return list(all_sets)
    for whole in largest:
        inside = [s for s in sets if s < whole]
        unions = dict.fromkeys(inside)
        for one in inside:
            unions.update(dict.fromkeys([one | other for other in list(unions)]))
            if len(unions) > MAX_UNIONS:
                break
        all_sets.update(unions)
    return list(all_sets)


def _route(
    network: Network, capacity: FloatArray, rate: FloatArray
) -> tuple[FloatArray, float, FloatArray]:
    """Split `rate` (P,) over paths so that the total overload of links is the least possible.

    Returns the split (P, K), the overload and the link prices (E,).
    """
    # The import takes 0.3 s of CPU, and few networks ever need an LP. See `apps.solver`.
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, eye_array, hstack

    alive = network.alive.reshape(-1)
    columns = np.flatnonzero(alive)
    pair = columns // network.paths
    column_of = np.cumsum(alive) - 1
    links = coo_array(
        (np.ones(len(network.on_path)), (network.on_link, column_of[network.on_path])),
        (network.links, len(columns)),
    )
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
    # The solver gave up, so the caller cuts the equal split back.
    if answer.x is None or answer.fun is None:
        equal_split = network.alive / np.maximum(network.alive.sum(axis=1, keepdims=True), 1)
        return equal_split * rate[:, None], float("inf"), np.zeros(network.links)
    split[columns] = answer.x[: len(columns)]
    price = np.maximum(-np.asarray(answer.ineqlin.marginals), 0.0)
    return split.reshape(network.pairs, network.paths), float(answer.fun), price


def _cuts_of(
    network: Network, capacity: FloatArray, price: FloatArray
) -> list[tuple[FloatArray, float]]:
    """The cut of these link prices (E,), and the cuts of its independent parts.

    Two links belong to the same part when the live paths of one pair cross both.
    """
    price = np.where(price > 1e-9, price, 0.0)
    cuts = [_cut(network, capacity, price)]
    cheapest = cuts[0][0]
    links = network.path_links
    group = np.arange(network.links)
    priced = np.flatnonzero(cheapest > 1e-9)
    for pair in priced:
        priced_links = {
            int(e)
            for k in np.flatnonzero(network.alive[pair])
            for e in links[pair, k]
            if e >= 0 and price[e] > 0
        }
        roots = {int(group[e]) for e in priced_links}
        if len(roots) > 1:
            group[np.isin(group, list(roots))] = min(roots)
    parts = np.unique(group[price > 0.0])
    if len(parts) > 1:
        cuts += [_cut(network, capacity, np.where(group == part, price, 0.0)) for part in parts]
    return cuts


def _cut(network: Network, capacity: FloatArray, price: FloatArray) -> tuple[FloatArray, float]:
    """The coefficients (P,) and the bound of the cut with link prices `price` (E,)."""
    cheapest = network.path_prices(price).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(cheapest), cheapest, 0.0), float(price @ capacity)
