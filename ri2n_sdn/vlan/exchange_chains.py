"""Chains of exchanges: empty a full link when no single pair can leave it without filling another.

With pairs of one rate on a two-stage tree, VLANs are the colours of a bipartite multigraph's edges
(senders' leaves and receivers' leaves are its vertices), and a chain between two VLANs is the
alternating path of Konig's proof: the least load is always found. Elsewhere (three stages, unequal
rates) the same chains are a search.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray

__all__ = ["LEAST_GAIN", "Chains"]


LEAST_GAIN = 1e-3  # of a link's utilisation: less is not worth moving anybody
STARTS = 48  # first exchanges tried per link
SHORTEST_OF = 6  # successful chains compared; the one that moves the fewest pairs is taken
LONGEST_FREE = (
    24  # exchanges in a chain over more than two VLANs, which unlike the others may wander
)
LARGE_STARTS = 3  # pairs too small to relieve a link alone that are still tried first
# exchanges looked at for a link in the first pass; four times as many in each pass without success
FIRST_TRY = 250
STARVED = 8  # links in a row that no chain relieved before the rest is left as it is, per pass ...
STARVED_PART = 0.25  # ... or this part of the links in question


class Chains:
    """Pairs' ways, loads and who is on which link, with moves that can be taken back.

    `links` (P, K, L) are ids of the links that a pair's choice decides about, -1 beyond the end;
    `trees` (P, K) names the VLAN of each candidate, -1 where there is none; `step` (P,) is demand,
    `inverse` (E,) 1 / capacity. Pairs of the mask `settled` (P,) have not moved so far and only do
    when that gains more than the hysteresis.
    """

    def __init__(
        self,
        demand: FloatArray,
        trees: IntArray,
        links: IntArray,
        inverse: FloatArray,
        choice: IntArray,
        settled: BoolArray,
        utilisation: FloatArray,
    ) -> None:
        self._demand: list[float] = demand.tolist()
        self._trees = trees
        self._links = links
        self._inverse: list[float] = inverse.tolist()
        self.choice: list[int] = choice.tolist()
        self.settled: list[bool] = settled.tolist()
        self.utilisation: list[float] = utilisation.tolist()
        self._paths: dict[int, list[tuple[int, ...]]] = {}
        self._tree_of: dict[int, list[int]] = {}
        chosen = np.where(
            choice[:, None] >= 0, links[np.arange(len(choice)), np.maximum(choice, 0)], -1
        )
        pair, place = np.nonzero(chosen >= 0)
        link = chosen[pair, place]
        order = np.argsort(link, kind="stable")
        self._pair_by_link = pair[order]
        self._first = np.searchsorted(link[order], np.arange(len(inverse) + 1))
        self._members: dict[int, dict[int, None]] = {}
        self._effort = 0

    def run(self, hysteresis: float, enough: float, effort: int) -> int:
        """Relieve links, the fullest first, until no chain helps or `effort` exchanges were looked
        at; what is left.

        Links up to the utilisation `enough` are left alone. Every chain that is kept lowers the
        utilisations, sorted from the fullest down, in lexicographic order, so it cannot run in
        circles.
        """
        left, slice_ = effort, FIRST_TRY
        while left > 0:
            heap = [
                (-level, link)
                for link, level in enumerate(self.utilisation)
                if level > enough and level > 0.0
            ]
            heapq.heapify(heap)
            patience = max(STARVED, int(STARVED_PART * len(heap)))
            starved, successes, cut_short = 0, 0, False
            while heap and left > 0 and starved < patience:
                level, link = heapq.heappop(heap)
                if self.utilisation[link] != -level:
                    continue  # it has another entry
                allowed = min(slice_, left)
                self._effort = allowed
                touched = self._relieve(link, hysteresis)
                left -= allowed - self._effort
                if touched is None:
                    starved += 1
                    cut_short |= self._effort <= 0
                    continue
                starved = 0
                successes += 1
                for other in touched:
                    if self.utilisation[other] > enough:
                        heapq.heappush(heap, (-self.utilisation[other], other))
            if not successes:
                if not cut_short:
                    break
                slice_ *= 4
        return left

    def _relieve(self, link: int, hysteresis: float) -> set[int] | None:
        """Lower one link's utilisation, all others that change staying below it.

        The links that changed, or None.
        """
        level = self.utilisation[link]
        least = LEAST_GAIN * level
        for everybody in (False, True) if hysteresis > least else (True,):
            limit = level - (max(hysteresis, least) if everybody else least)
            if limit <= 0.0:
                continue
            moves = self._shortest_chain(link, limit, everybody)
            if moves:
                touched: set[int] = set()
                for pair, column in moves:
                    touched.update(self._of(pair)[self.choice[pair]], self._of(pair)[column])
                    self._move(pair, column)
                    self.settled[pair] = False
                return touched
        return None

    def _shortest_chain(
        self, link: int, limit: float, everybody: bool
    ) -> list[tuple[int, int]] | None:
        starts = self._starts(link, limit, everybody)
        best: list[tuple[int, int]] | None = None
        found = 0
        for only_two in (True, False):
            for pair, column in starts:
                longest = LONGEST_FREE if best is None else len(best) - 1
                if only_two and best is None:
                    longest = len(self.choice)
                moves = self._chain(link, pair, column, limit, everybody, only_two, longest)
                if moves is not None:
                    best = moves
                    found += 1
                    if len(best) <= 2 or found >= SHORTEST_OF:
                        return best
                if self._effort <= 0:
                    return best
            if best is not None:
                return best
        return None

    def _starts(self, link: int, limit: float, everybody: bool) -> list[tuple[int, int]]:
        """(pair, column) that could leave the link, those that harm others least first."""
        found: list[tuple[float, float, float, int, int]] = []
        excess = self.utilisation[link] - limit
        members = [p for p in self._on(link) if everybody or not self.settled[p]]
        inverse = self._inverse[link]
        small = [p for p in members if self._demand[p] * inverse < excess]
        small = heapq.nlargest(LARGE_STARTS, small, key=lambda p: self._demand[p])
        for pair in [p for p in members if self._demand[p] * inverse >= excess] + small:
            short = max(0.0, excess - self._demand[pair] * inverse)
            for column in self._others(pair, link):
                harm, highest = self._after(pair, column, limit)
                if harm < float("inf"):
                    found.append((short + harm, self._demand[pair], highest, pair, column))
        return [(pair, column) for *_, pair, column in heapq.nsmallest(STARTS, found)]

    def _chain(
        self,
        link: int,
        pair: int,
        column: int,
        limit: float,
        everybody: bool,
        only_two: bool,
        longest: int,
    ) -> list[tuple[int, int]] | None:
        """Move `pair` and then whoever is in the way; the moves when all links end within `limit`.

        Changes nothing.
        """
        trees = self._like(pair, self.choice[pair]) | self._like(pair, column)
        undo: list[tuple[int, int]] = []
        moved: dict[int, int] = {}
        before: dict[int, float] = {}
        waiting = [link]
        good = True
        following: tuple[int, int] | None = (pair, column)
        while following is not None:
            who, to = following
            undo.append((who, self.choice[who]))
            moved[who] = to
            for changing in (*self._of(who)[self.choice[who]], *self._of(who)[to]):
                before.setdefault(changing, self.utilisation[changing])
            self._move(who, to)
            waiting.extend(self._of(who)[to])
            following = None
            while waiting:
                over = waiting[-1]
                if self.utilisation[over] <= limit + 1e-9:
                    waiting.pop()
                    continue
                if len(moved) < longest and self._effort > 0:
                    following = self._evicted(
                        over, moved, limit, everybody, trees if only_two else None
                    )
                good = following is not None
                break
        for who, back in reversed(undo):
            self._move(who, back)
        for changed, level in before.items():
            self.utilisation[changed] = level  # without what adding and subtracting left behind
        return list(moved.items()) if good else None

    def _evicted(
        self,
        link: int,
        moved: dict[int, int],
        limit: float,
        everybody: bool,
        trees: frozenset[int] | None,
    ) -> tuple[int, int] | None:
        """Which pair leaves an overfull link, and to which column:

        the one that overfills other links the least.
        """
        best: tuple[float, float, int, int] | None = None
        excess = self.utilisation[link] - limit
        for pair in self._on(link):
            if pair in moved or (self.settled[pair] and not everybody):
                continue
            step = self._demand[pair] * self._inverse[link]
            self._effort -= 1
            for column, path in enumerate(self._of(pair)):
                tree = self._tree_of[pair][column]
                if tree < 0 or (trees is not None and tree not in trees) or link in path:
                    continue
                harm, _ = self._after(pair, column, limit)
                key = (harm + max(0.0, excess - step), self._demand[pair], pair, column)
                if harm < float("inf") and (best is None or key < best):
                    best = key
        return best[2:] if best else None

    def _after(self, pair: int, column: int, limit: float) -> tuple[float, float]:
        """By how much the links of a candidate would pass `limit`, and the fullest of them.

        Inf when it never fits.
        """
        self._effort -= 1
        demand, utilisation, inverse = self._demand[pair], self.utilisation, self._inverse
        present = self._of(pair)[self.choice[pair]]
        harm = highest = 0.0
        for link in self._of(pair)[column]:
            step = demand * inverse[link]
            if step > limit + 1e-9:
                return float("inf"), float("inf")
            level = utilisation[link] if link in present else utilisation[link] + step
            highest = max(highest, level)
            if level > limit + 1e-9 and link not in present:
                harm += level - limit
        return harm, highest

    def _like(self, pair: int, column: int) -> frozenset[int]:
        """The VLANs of those candidates of a pair that share a link with this one."""
        path = set(self._of(pair)[column])
        return frozenset(
            tree
            for tree, other in zip(self._tree(pair), self._of(pair), strict=True)
            if tree >= 0 and not path.isdisjoint(other)
        )

    def _others(self, pair: int, link: int) -> Iterator[int]:
        """The columns of a pair whose ways avoid the link."""
        for column, path in enumerate(self._of(pair)):
            if self._tree_of[pair][column] >= 0 and link not in path:
                yield column

    def _of(self, pair: int) -> list[tuple[int, ...]]:
        """The ways of a pair by column."""
        paths = self._paths.get(pair)
        if paths is None:
            self._effort -= 1
            paths = [tuple(e for e in path if e >= 0) for path in self._links[pair].tolist()]
            self._paths[pair] = paths
            self._tree_of[pair] = self._trees[pair].tolist()
        return paths

    def _tree(self, pair: int) -> list[int]:
        self._of(pair)
        return self._tree_of[pair]

    def _on(self, link: int) -> dict[int, None]:
        """The pairs on a link, in a fixed order."""
        members = self._members.get(link)
        if members is None:
            members = dict.fromkeys(
                self._pair_by_link[self._first[link] : self._first[link + 1]].tolist()
            )
            self._members[link] = members
        return members

    def _move(self, pair: int, column: int) -> None:
        paths, demand = self._of(pair), self._demand[pair]
        for link in paths[self.choice[pair]]:
            del self._on(link)[pair]
            self.utilisation[link] -= demand * self._inverse[link]
        for link in paths[column]:
            self._on(link)[pair] = None
            self.utilisation[link] += demand * self._inverse[link]
        self.choice[pair] = column
