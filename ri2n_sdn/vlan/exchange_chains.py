# SPDX-License-Identifier: Apache-2.0
"""Chains of exchanges: relieve a full link that no single pair can leave without filling another.

A pair leaves the full link for another VLAN; a pair on a link that this overfills leaves that one,
and so on, until no link is too full. Without chains, a search by single moves ends where every
single move makes some link as full, although moving several pairs together would help.

With pairs of one rate on a two-stage tree, VLANs are the colours of a bipartite multigraph's edges
(senders' leaves and receivers' leaves are its vertices), and a chain between two VLANs is the
alternating path of Koenig's proof: the least load is always found. Elsewhere (three stages, unequal
rates) the same chains are a heuristic search. So chains between two VLANs are tried first, and
longer ones over all VLANs only if none of them helps. Of the chains that help, the one that moves
the fewest pairs is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray

__all__ = ["MIN_GAIN", "Chains"]


# The part of a link's utilisation that a move must take off it: less is not worth moving any pair.
MIN_GAIN = 1e-3
# First exchanges that are tried per link.
MAX_STARTS = 48
# Successful chains that are compared; the one that moves the fewest pairs is taken.
MAX_COMPARED = 6
# Exchanges in a chain over more than two VLANs, at most: unlike the others it need not end soon.
MAX_FREE_EXCHANGES = 24
# Of the pairs that are too small to relieve a link alone, so many of the largest begin chains, too.
MAX_SMALL_STARTS = 3
# Exchanges looked at for one link in the first pass, so that no link uses up the whole effort; four
# times as many after each pass without success.
FIRST_TRY = 250
# A pass ends when no chain relieved so many links in a row, or this part of the links in question,
# whichever is more.
STARVED = 8
STARVED_PART = 0.25


class Chains:
    """The paths of P pairs, the loads of E links, and the pairs on each link.

    `demand` (P,) is in bit/s. `trees` (P, K) names the VLAN of each candidate, -1 where there is
    none. `links` (P, K, L) are the links that a pair's choice decides about, -1 beyond the end.
    `inverse` (E,) is 1 / capacity, `choice` (P,) the column in use, `utilisation` (E,) what follows
    from it. Pairs of the mask `settled` (P,) have not moved so far, and only move when that gains
    more than the hysteresis.
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
        # By pair: the VLAN and the links of each of its columns.
        self._columns: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        self._inverse: list[float] = inverse.tolist()
        self.choice: list[int] = choice.tolist()
        self.settled: list[bool] = settled.tolist()
        self.utilisation: list[float] = utilisation.tolist()
        chosen = np.where(
            choice[:, None] >= 0, links[np.arange(len(choice)), np.maximum(choice, 0)], -1
        )
        pair, place = np.nonzero(chosen >= 0)
        link = chosen[pair, place]
        order = np.argsort(link, kind="stable")
        self._pair_by_link = pair[order]
        self._first = np.searchsorted(link[order], np.arange(len(inverse) + 1))
        self._members: dict[int, dict[int, None]] = {}
        # Of the chain that is being sought: the exchanges that may still be looked at, the
        # utilisation that no link may exceed, and whether settled pairs may move.
        self._effort = 0
        self._limit = 0.0
        self._with_settled = False

    def run(self, hysteresis: float, enough: float, effort: int) -> int:
        """Relieve links, the fullest first; returns the effort that is left.

        It ends when no chain helps, or when `effort` exchanges were looked at. Links up to the
        utilisation `enough` are left alone. Every chain that is kept lowers the utilisations,
        sorted from the fullest down, in lexicographic order, so the search cannot run in circles.
        """
        left, slice_ = effort, FIRST_TRY
        least = max(enough, 0.0)
        while left > 0:
            heap = [(-level, link) for link, level in enumerate(self.utilisation) if level > least]
            heapq.heapify(heap)
            patience = max(STARVED, int(STARVED_PART * len(heap)))
            starved, successes, cut_short = 0, 0, False
            while heap and left > 0 and starved < patience:
                level, link = heapq.heappop(heap)
                if self.utilisation[link] != -level:
                    # The entry is old: the link has a newer one, or is not in question any more.
                    continue
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
        """Lower one link's utilisation by a chain, after which no link that it changes is as full.

        First only pairs that have moved anyway take part, for any gain; then all pairs, for more
        than the hysteresis. Returns the links that changed, or None when no chain was found.
        """
        level = self.utilisation[link]
        least = MIN_GAIN * level
        for with_settled in (False, True) if hysteresis > least else (True,):
            self._with_settled = with_settled
            self._limit = level - (max(hysteresis, least) if with_settled else least)
            if self._limit <= 0.0:
                continue
            moves = self._shortest_chain(link)
            if moves:
                touched: set[int] = set()
                for pair, column in moves:
                    touched.update(self._path(pair, self.choice[pair]), self._path(pair, column))
                    self._move(pair, column)
                    self.settled[pair] = False
                return touched
        return None

    def _shortest_chain(self, link: int) -> list[tuple[int, int]] | None:
        """The shortest of some chains, as (pair, new column); None when no chain was found."""
        starts = self._starts(link)
        best: list[tuple[int, int]] | None = None
        compared = 0
        for only_two in (True, False):
            for pair, column in starts:
                longest = MAX_FREE_EXCHANGES if best is None else len(best) - 1
                if only_two and best is None:
                    longest = len(self.choice)
                moves = self._chain(link, pair, column, only_two, longest)
                if moves is not None:
                    best = moves
                    compared += 1
                    if len(best) <= 2 or compared >= MAX_COMPARED:
                        return best
                if self._effort <= 0:
                    return best
            if best is not None:
                return best
        return None

    def _starts(self, link: int) -> list[tuple[int, int]]:
        """(Pair, column) of moves off the link, those that overfill other links least first."""
        starts: list[tuple[float, float, float, int, int]] = []
        excess = self.utilisation[link] - self._limit
        members = [p for p in self._pairs_on(link) if self._with_settled or not self.settled[p]]
        inverse = self._inverse[link]
        small = [p for p in members if self._demand[p] * inverse < excess]
        small = heapq.nlargest(MAX_SMALL_STARTS, small, key=lambda p: self._demand[p])
        for pair in [p for p in members if self._demand[p] * inverse >= excess] + small:
            short = max(0.0, excess - self._demand[pair] * inverse)
            for column in self._columns_avoiding(pair, link, None):
                harm, highest = self._overfill(pair, column)
                if harm < float("inf"):
                    starts.append((short + harm, self._demand[pair], highest, pair, column))
        return [(pair, column) for *_, pair, column in heapq.nsmallest(MAX_STARTS, starts)]

    def _chain(
        self, link: int, pair: int, column: int, only_two: bool, longest: int
    ) -> list[tuple[int, int]] | None:
        """The moves of a chain that begins with `pair`; None when there is none.

        Each pair that moves may overfill links; another pair leaves each of these. The chain ends
        when no link is above the limit. It has at most `longest` moves, with `only_two` between two
        VLANs. Everything is as before when it returns.
        """
        crossed = {*self._path(pair, self.choice[pair]), *self._path(pair, column)}
        trees = frozenset(
            tree
            for tree, path in self._columns_of(pair)
            if tree >= 0 and not crossed.isdisjoint(path)
        )
        undo: list[tuple[int, int]] = []
        moved: dict[int, int] = {}
        before: dict[int, float] = {}
        waiting = [link]
        good = True
        next_move: tuple[int, int] | None = (pair, column)
        while next_move is not None:
            mover, to = next_move
            undo.append((mover, self.choice[mover]))
            moved[mover] = to
            for changing in (*self._path(mover, self.choice[mover]), *self._path(mover, to)):
                before.setdefault(changing, self.utilisation[changing])
            self._move(mover, to)
            waiting.extend(self._path(mover, to))
            next_move = None
            while waiting:
                over = waiting[-1]
                if self.utilisation[over] <= self._limit + 1e-9:
                    waiting.pop()
                    continue
                if len(moved) < longest and self._effort > 0:
                    next_move = self._evicted(over, moved, trees if only_two else None)
                good = next_move is not None
                break
        for mover, back in reversed(undo):
            self._move(mover, back)
        for changed, level in before.items():
            # Without the rounding errors of adding and subtracting.
            self.utilisation[changed] = level
        return list(moved.items()) if good else None

    def _evicted(
        self, link: int, moved: dict[int, int], trees: frozenset[int] | None
    ) -> tuple[int, int] | None:
        """The pair that leaves an overfull link, and its new column; None when none can.

        It is the one that overfills other links the least, plus what it leaves above the limit on
        this one; between equals, the one with the smallest demand. `trees` are the VLANs that it
        may move to; None for all.
        """
        best: tuple[float, float, int, int] | None = None
        excess = self.utilisation[link] - self._limit
        for pair in self._pairs_on(link):
            if pair in moved or (self.settled[pair] and not self._with_settled):
                continue
            step = self._demand[pair] * self._inverse[link]
            self._effort -= 1
            for column in self._columns_avoiding(pair, link, trees):
                harm, _ = self._overfill(pair, column)
                key = (harm + max(0.0, excess - step), self._demand[pair], pair, column)
                if harm < float("inf") and (best is None or key < best):
                    best = key
        return best[2:] if best else None

    def _overfill(self, pair: int, column: int) -> tuple[float, float]:
        """By how much a candidate's links would pass the limit, in sum, and the fullest of them.

        Both are utilisations; inf when the pair alone is more than a link may carry.
        """
        self._effort -= 1
        demand, utilisation, inverse = self._demand[pair], self.utilisation, self._inverse
        limit = self._limit
        present = self._path(pair, self.choice[pair])
        harm = highest = 0.0
        for link in self._path(pair, column):
            step = demand * inverse[link]
            if step > limit + 1e-9:
                return float("inf"), float("inf")
            level = utilisation[link] if link in present else utilisation[link] + step
            highest = max(highest, level)
            if level > limit + 1e-9 and link not in present:
                harm += level - limit
        return harm, highest

    def _columns_avoiding(
        self, pair: int, link: int, trees: frozenset[int] | None
    ) -> Iterator[int]:
        """The columns of a pair whose paths avoid the link; `trees` as in `_evicted`."""
        for column, (tree, path) in enumerate(self._columns_of(pair)):
            if tree >= 0 and (trees is None or tree in trees) and link not in path:
                yield column

    def _columns_of(self, pair: int) -> list[tuple[int, tuple[int, ...]]]:
        """The VLAN (-1 for none) and the path of each of a pair's columns."""
        columns = self._columns.get(pair)
        if columns is None:
            self._effort -= 1
            paths = (tuple(e for e in path if e >= 0) for path in self._links[pair].tolist())
            columns = list(zip(self._trees[pair].tolist(), paths, strict=True))
            self._columns[pair] = columns
        return columns

    def _path(self, pair: int, column: int) -> tuple[int, ...]:
        return self._columns_of(pair)[column][1]

    def _pairs_on(self, link: int) -> dict[int, None]:
        """The pairs on a link, in a fixed order."""
        members = self._members.get(link)
        if members is None:
            members = dict.fromkeys(
                self._pair_by_link[self._first[link] : self._first[link + 1]].tolist()
            )
            self._members[link] = members
        return members

    def _move(self, pair: int, column: int) -> None:
        demand = self._demand[pair]
        for link in self._path(pair, self.choice[pair]):
            del self._pairs_on(link)[pair]
            self.utilisation[link] -= demand * self._inverse[link]
        for link in self._path(pair, column):
            self._pairs_on(link)[pair] = None
            self.utilisation[link] += demand * self._inverse[link]
        self.choice[pair] = column
