# SPDX-License-Identifier: Apache-2.0
"""Spanning trees of any graph that use cables as evenly as possible, with short paths in them.

The sum of T spanning trees is a base of the union of T graphic matroids (J. Edmonds, "Matroid
partition", 1968): how often each cable is used is a point of an M-convex set. There, uses are as
even as possible (and so the most used cable is used as little as possible) exactly when no chain of
exchanges takes a tree off one cable and puts a tree on another one with at least two fewer (A.
Frank and K. Murota, "Discrete decreasing minimization, part I", 2018, theorem on 1-tightening
steps). So the search starts with trees of shortest paths, and exchanges cables along shortest
chains until there is no such chain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["even_trees"]

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]

# Numbers that are looked at while paths are shortened: one or two seconds.
SHORTEN_BUDGET = 100_000_000
# The best exchanges of a round; those of different trees are made together.
BATCH = 64
NO_GAIN = np.float32(-np.inf)


def even_trees(
    ends: IntArray, leaf: NDArray[np.bool_], roots: Sequence[int]
) -> list[tuple[int, ...]]:
    """One spanning tree for each of `roots`, as its sorted cables; equal trees are there once.

    `ends` (C, 2) are the cables between switches 0..S-1, which must be connected; `leaf` (S,) tells
    where hosts are. Cables are used as evenly as possible: the largest number of trees on one cable
    is the least that any such trees reach. Within that, paths from leaf to leaf are shortened as
    long as an exchange of one cable in one tree, or of two cables between two trees, shortens them
    (in very large graphs: as long as a fixed amount of work allows).
    """
    trees = _Trees(ends, leaf, roots)
    while trees.even_out():
        pass
    trees.shorten()
    return list(dict.fromkeys(tuple(sorted(cables)) for cables in trees.cables))


class _Trees:
    """The T trees while cables are exchanged: the cables of each, and how it hangs at its root.

    `uses` (C,) is how many trees have each cable; `above` (T, S) is the cable to the switch above,
    `parent` (T, S) that switch, -1 at the root. A walk down each tree numbers the switches: those
    below switch s, itself included, have numbers enter[s] to leave[s] - 1.
    """

    def __init__(self, ends: IntArray, leaf: NDArray[np.bool_], roots: Sequence[int]) -> None:
        self.ends = ends
        self.leaf = leaf
        self.size = len(leaf)
        self.roots = list(roots)
        self.wired: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]
        for cable, (a, b) in enumerate(ends.tolist()):
            self.wired[a].append((b, cable))
            self.wired[b].append((a, cable))
        shape = (len(self.roots), self.size)
        self.uses = np.zeros(len(ends), dtype=np.int64)
        self.above = np.full(shape, -1, dtype=np.int32)
        self.parent = np.full(shape, -1, dtype=np.int32)
        self.enter = np.zeros(shape, dtype=np.int32)
        self.leave = np.zeros(shape, dtype=np.int32)
        self.cables: list[set[int]] = []
        for t, root in enumerate(self.roots):
            cables = self._nearest(root)
            self.cables.append(cables)
            self.uses[list(cables)] += 1
            self._hang(t)

    def even_out(self) -> bool:
        """Exchange along one shortest chain from a cable to one with at least two trees fewer.

        Returns False when there is no such chain. The search is breadth first, and begins with the
        cables that most trees use.
        """
        # By cable: the cable that leaves, and in which tree, when this one enters.
        replaces: dict[int, tuple[int, int]] = {}
        seen = np.zeros(len(self.ends), dtype=bool)
        least = int(self.uses.min(initial=0))
        for level in sorted(set(self.uses.tolist()), reverse=True):
            if level < least + 2:
                break
            # A cable that was reached from cables with more uses leads to no end that this level
            # could use either.
            waiting = deque(np.flatnonzero((self.uses == level) & ~seen).tolist())
            seen[list(waiting)] = True
            while waiting:
                leaving = waiting.popleft()
                entering, trees = self._exchanges(leaving)
                fresh = ~seen[entering]
                entering, trees = entering[fresh], trees[fresh]
                if not len(entering):
                    continue
                seen[entering] = True
                for cable, tree in zip(entering.tolist(), trees.tolist(), strict=True):
                    replaces[cable] = (leaving, tree)
                emptiest = int(entering[np.argmin(self.uses[entering])])
                if self.uses[emptiest] <= level - 2:
                    self._follow(emptiest, replaces)
                    return True
                waiting.extend(entering.tolist())
        return False

    def shorten(self) -> None:
        """Exchange cables while that shortens the paths of all trees in sum; uses stay as even.

        An exchange in one tree must take a cable with fewer uses than the one that leaves. Any two
        cables may be exchanged between two trees, since that changes no uses.
        """
        count, cables = len(self.roots), len(self.ends)
        rounds = SHORTEN_BUDGET // max(1, count * self.size * cables)
        if cables * cables > SHORTEN_BUDGET or rounds == 0:
            return
        gains = np.stack([self._gains(t) for t in range(count)])
        for _ in range(rounds):
            best = np.full((cables, cables), NO_GAIN, dtype=np.float32)
            tree_of = np.zeros((cables, cables), dtype=np.int32)
            for t in range(count):
                below = np.flatnonzero(self.above[t] >= 0)
                rows = self.above[t, below]
                better = gains[t, below] > best[rows]
                best[rows] = np.where(better, gains[t, below], best[rows])
                tree_of[rows] = np.where(better, t, tree_of[rows])
            single = np.where(self.uses[:, None] > self.uses[None, :], best, NO_GAIN)
            choice = np.maximum(single, best + best.T).ravel()
            first = np.argpartition(choice, -min(BATCH, len(choice)))[-BATCH:]
            touched: set[int] = set()
            for place in first[np.argsort(-choice[first], kind="stable")].tolist():
                leaving, entering = divmod(place, cables)
                there = int(tree_of[leaving, entering]), leaving, entering
                back = int(tree_of[entering, leaving]), entering, leaving
                alone = bool(single[leaving, entering] == choice[place])
                moves = [there] if alone else [there, back]
                if not choice[place] > 0.5:
                    break
                if any(tree in touched for tree, _, _ in moves):
                    continue
                # An exchange of this round may have changed the uses.
                if alone and self.uses[leaving] <= self.uses[entering]:
                    continue
                for tree, out, into in moves:
                    self._exchange(tree, [out], [into])
                    touched.add(tree)
            if not touched:
                return
            for tree in touched:
                gains[tree] = self._gains(tree)

    def _nearest(self, root: int) -> set[int]:
        """The cables of a tree in which every switch is as near to the root as possible.

        Of several cables to a switch, the tree takes the one that was used least so far.
        """
        uses = self.uses
        reached = {root}
        cables: set[int] = set()
        frontier = [root]
        while frontier:
            choice: dict[int, tuple[int, int]] = {}
            for switch in frontier:
                for other, cable in self.wired[switch]:
                    if other not in reached:
                        offer = (int(uses[cable]), cable)
                        choice[other] = min(choice.get(other, offer), offer)
            reached.update(choice)
            cables.update(cable for _, cable in choice.values())
            frontier = list(choice)
        return cables

    def _hang(self, t: int) -> None:
        """Compute anew how tree t hangs at its root, after its cables have changed."""
        cables, wired = self.cables[t], self.wired
        root = self.roots[t]
        above, parent = [-1] * self.size, [-1] * self.size
        enter, leave = [0] * self.size, [0] * self.size
        order: list[int] = []
        waiting = [root]
        while waiting:
            switch = waiting.pop()
            enter[switch] = len(order)
            order.append(switch)
            for other, cable in wired[switch]:
                if cable in cables and cable != above[switch]:
                    above[other], parent[other] = cable, switch
                    waiting.append(other)
        below = [1] * self.size
        for switch in reversed(order):
            leave[switch] = enter[switch] + below[switch]
            if parent[switch] >= 0:
                below[parent[switch]] += below[switch]
        self.above[t], self.parent[t], self.enter[t], self.leave[t] = above, parent, enter, leave

    def _exchanges(self, cable: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cables that can replace `cable` in some tree, and one such tree for each."""
        a, b = self.ends[cable].tolist()
        trees = np.flatnonzero((self.above[:, a] == cable) | (self.above[:, b] == cable))
        low = np.where(self.above[trees, a] == cable, a, b)
        enter = self.enter[trees]
        # (trees, S) whether a switch is below the cable.
        inside = (enter >= enter[np.arange(len(trees)), low][:, None]) & (
            enter < self.leave[trees, low][:, None]
        )
        across = inside[:, self.ends[:, 0]] != inside[:, self.ends[:, 1]]
        across[:, cable] = False
        entering = np.flatnonzero(across.any(axis=0))
        return entering, trees[np.argmax(across[:, entering], axis=0)]

    def _follow(self, last: int, replaces: dict[int, tuple[int, int]]) -> None:
        """Exchange along the chain that ends with cable `last`.

        Every tree remains a tree, since the chain is a shortest one.
        """
        out: dict[int, list[int]] = {}
        into: dict[int, list[int]] = {}
        while last in replaces:
            leaving, tree = replaces[last]
            out.setdefault(tree, []).append(leaving)
            into.setdefault(tree, []).append(last)
            last = leaving
        for tree, leaving_cables in out.items():
            self._exchange(tree, leaving_cables, into[tree])

    def _exchange(self, t: int, out: list[int], into: list[int]) -> None:
        self.cables[t].difference_update(out)
        self.cables[t].update(into)
        self.uses[out] -= 1
        self.uses[into] += 1
        self._hang(t)

    def _gains(self, t: int) -> FloatArray:
        """(S, C) by how many cables the paths from leaf to leaf shorten, for each exchange.

        Row s stands for the exchange of the cable above s; column c for the cable that replaces it.
        Without the cable above s the tree falls into two parts, whose inner paths stay as they are.
        The lengths of the paths between the parts add up to n_a n_b + n_b A(u) + n_a B(v): u and v
        are the ends of the new cable, A(u) is the sum of the lengths from u to all leaves of its
        part (B(v) likewise), and n_a, n_b are the numbers of leaves of the parts.
        """
        size, parent, enter = self.size, self.parent[t], self.enter[t]
        # [s, x] whether x is below s, or is s.
        below = (enter[None, :] >= enter[:, None]) & (enter[None, :] < self.leave[t][:, None])
        # [x, y] how many switches have both x and y below them.
        shared = below.T.astype(np.float32) @ below.astype(np.float32)
        steps = np.diagonal(shared)
        distance = steps[:, None] + steps[None, :] - 2 * shared
        low_leaves = (below & self.leaf).astype(np.float32)
        # [s, u] the sum of the distances from u to the leaves below s, and to all others.
        to_low = low_leaves @ distance
        to_high = distance @ self.leaf.astype(np.float32) - to_low
        n_low = low_leaves.sum(axis=1, keepdims=True)
        n_high = np.float32(self.leaf.sum()) - n_low
        a, b = self.ends[:, 0], self.ends[:, 1]
        a_low = below[:, a]
        # (S, C) the end of the new cable in the lower part, and its other end.
        u, v = np.where(a_low, a, b), np.where(a_low, b, a)
        rows = np.arange(size)[:, None]
        new = n_low * n_high + n_high * to_low[rows, u] + n_low * to_high[rows, v]
        above = np.maximum(parent, 0)[:, None]
        old = n_low * n_high + n_high * to_low[rows, rows] + n_low * to_high[rows, above]
        possible = (a_low != below[:, b]) & (parent >= 0)[:, None]
        possible[rows[:, 0], np.maximum(self.above[t], 0)] = False
        return np.where(possible, old - new, NO_GAIN).astype(np.float32)
