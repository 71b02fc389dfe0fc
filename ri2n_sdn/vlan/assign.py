# SPDX-License-Identifier: Apache-2.0
"""Which VLAN each pair uses, so that the fullest link is as empty as possible and few pairs move.

Pairs are not split, so the problem is hard in general, and the search is a heuristic. It has three
steps:

1. `_State.place`: pairs without a VLAN are placed, the largest demand first, each where its fullest
   link stays emptiest. Large demands are the hardest to place, so small ones fill the gaps later.
2. `_State.move_singly`: pairs on the fullest links move where that lowers the fullest link
   concerned. That repairs most of what the order of placing got wrong.
3. `_State.exchange`: chains of exchanges (exchange_chains.py) relieve links that no single pair can
   leave without filling another link as much.

After that, moves that later moves made needless are taken back (`_State.take_back`), so that few
pairs move. Each step lowers the utilisations, sorted from the fullest, in lexicographic order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray
from ri2n_sdn.vlan.exchange_chains import MIN_GAIN, Chains

__all__ = ["EFFORT", "Assignment", "assign"]


# Exchanges that chains may look at: about 3 us each.
EFFORT = 20_000
# Batches in which new pairs are placed; pairs of one batch do not see each other.
PLACINGS = 64
# Rounds of single moves. In each pass over a round, a link gives up or takes in at most one pair.
MAX_ROUNDS = 64
# Pairs looked at in a round: those on the fullest links.
MAX_BAND = 8_000
# A pair is not worth moving when its demand is below this part of the mean demand on its fullest
# link, weighted by demand.
SMALL = 0.05
# Passes over the moves of a round: each makes the moves that meet none of the earlier passes.
MAX_PASSES = 4
# A search may end in a dead end, so new pairs are placed in this many orders, and the best result
# counts. Of more pairs than MAX_TURN_PAIRS only one order is tried, since that takes long.
TURNS = 4
MAX_TURN_PAIRS = 1_000
# Rounds of taking back moves that later moves made needless.
MAX_RETURNS = 3


@dataclass(frozen=True, eq=False)
class Assignment:
    """The chosen column of each of P pairs, and the utilisations of E links that follow."""

    choice: IntArray
    """(P,) the column of the candidates; -1 for a pair without any."""
    utilisation: FloatArray
    """(E,) demand on each link / its capacity."""
    choosable: BoolArray
    """(E,) whether some pair's choice decides about the link.

    The others (hosts' links, as a rule) have the same load whatever is chosen.
    """

    @property
    def fullest_choosable(self) -> float:
        """The largest utilisation of the choosable links; 0 without any."""
        return float(self.utilisation[self.choosable].max(initial=0.0))


def assign(
    demand_bps: FloatArray,
    candidates: IntArray,
    links: IntArray,
    capacity_bps: FloatArray,
    current: IntArray | None = None,
    *,
    hysteresis: float = 0.0,
    enough: float = 0.0,
    effort: int = EFFORT,
) -> Assignment:
    """Choose one candidate for each of P pairs; the same arguments give the same answer.

    `demand_bps` (P,) is what each pair would send if it could (demands.py). `candidates` (P, K)
    names each candidate's VLAN or tree by a number, -1 where there is none or it must not be used.
    `links` (P, K, L) are the directed links of the candidate's path, each once, -1 beyond the end.
    `capacity_bps` (E,) are their capacities, 0 for a link to be avoided. `current` (P,) is the
    column in use, -1 for a new pair.

    A pair whose current column is no candidate (any more) moves in any case. Any other pair moves
    only when that, or a chain of exchanges with it, lowers the fullest link concerned by more than
    `hysteresis` (a part of its capacity). Links up to the utilisation `enough` are left as they
    are. `effort` is the number of exchanges that the chains of one try may look at.
    """
    pairs = len(candidates)
    demand = np.maximum(np.nan_to_num(demand_bps, posinf=0.0), 0.0)
    lowest = float(capacity_bps[capacity_bps > 0.0].min(initial=np.inf))
    usable = np.maximum(capacity_bps, 1e-6 * lowest if np.isfinite(lowest) else 1.0)
    # The last entry is for padding: index -1 finds it.
    inverse = np.append(1.0 / usable, 0.0)
    present = np.full(pairs, -1, dtype=np.int64) if current is None else current
    best: Assignment | None = None
    for turn in range(TURNS if pairs <= MAX_TURN_PAIRS and not (present >= 0).any() else 1):
        state = _State(demand, candidates, links, inverse, present)
        left = effort
        state.place(turn)
        if state.decided.any():
            for _ in range(MAX_RETURNS):
                state.move_singly(hysteresis, enough)
                left = state.exchange(hysteresis, enough, left)
                if not state.take_back(present):
                    break
        choosable = np.zeros(len(inverse), dtype=np.bool_)
        choosable[state.free] = True
        result = Assignment(state.choice, state.utilisation[:-1], choosable[:-1])
        if best is None or result.fullest_choosable < best.fullest_choosable:
            best = result
        if best.fullest_choosable <= enough:
            break
    assert best is not None
    return best


class _State:
    """The choices so far, and the utilisations of all links.

    `utilisation` (E + 1,) has one more entry, 0, which padding (-1) finds. `valid` (K, P) tells
    where there are candidates, `free` (K, L', P) are their links without those that all candidates
    of a pair have in common, and `path` (L', P) are these links of the chosen candidate. Pairs are
    on the last axis: numpy is several times faster then, since the other axes are short. `settled`
    pairs have not moved so far; `decided` ones have a choice that makes a difference.
    """

    def __init__(
        self,
        demand: FloatArray,
        candidates: IntArray,
        links: IntArray,
        inverse: FloatArray,
        present: IntArray,
    ) -> None:
        self.demand, self.inverse = demand, inverse
        self.candidates = candidates
        self.valid = np.ascontiguousarray(candidates.T >= 0)  # (K, P)
        self.free = _without_common(np.ascontiguousarray(links.transpose(1, 2, 0)), self.valid)
        self.rows = np.arange(len(demand))
        self.rounds = MAX_ROUNDS
        placed = (present >= 0) & (present < len(self.valid))
        if len(self.valid):
            placed &= self.valid[np.where(placed, present, 0), self.rows]
        self.choice = np.where(placed, present, -1)
        self.settled = placed.copy()
        self.decided = (
            (self.valid.sum(axis=0) > 1) & (self.free >= 0).any(axis=(0, 1)) & (demand > 0.0)
        )
        # The load of each pair on the links that all its candidates have in common.
        common = np.full((links.shape[2], len(demand)), -1, dtype=np.int64)
        if len(self.valid):
            column = self.valid.argmax(axis=0)
            common = np.where(self.valid.any(axis=0), links[self.rows, column].T, -1)
            for path in self.free[column, :, self.rows].T:
                common[common == path] = -1
        self.constant = self._sum(common)
        self.path = np.full((self.free.shape[1], len(demand)), -1, dtype=np.int64)
        self._enter(np.flatnonzero(placed), self.choice[placed])
        self.utilisation = self.recount()

    def recount(self) -> FloatArray:
        """(E + 1,) the utilisations, without the rounding errors of adding and subtracting."""
        return self.constant + self._sum(self.path)

    def _sum(self, path: IntArray) -> FloatArray:
        load = np.zeros(len(self.inverse))
        for link in path:
            load += np.bincount(link + 1, weights=self.demand, minlength=len(self.inverse))
        return np.append(load[1:], 0.0) * self.inverse

    def _enter(self, pairs: IntArray, column: IntArray) -> None:
        self.choice[pairs] = column
        self.path[:, pairs] = self.free[column, :, pairs].T

    def place(self, turn: int) -> None:
        """Place new pairs, and those whose path is gone, on the emptiest of their candidates.

        The largest demand comes first. Equal demands come in another order in each `turn`.
        """
        new = np.flatnonzero((self.choice < 0) & self.valid.any(axis=0))
        if not len(new):
            return
        # Pairs with equal demands are scrambled, so that neighbours in the order, which are in one
        # batch and do not see each other, seldom meet on a link. Powers of a factor give orders
        # that have nothing in common; factors that are close give nearly the same order.
        scrambled = new * pow(2654435761, turn + 1, 4294967291) % 4294967291
        new = new[np.lexsort((scrambled, -self.demand[new]))]
        batch = -(-len(new) // PLACINGS)
        for start in range(0, len(new), batch):
            pairs = new[start : start + batch]
            after, total = self._after(pairs)
            # Between candidates with equal fullest links: the one whose links are emptier in sum;
            # then any, but not the same one for all pairs.
            cost = (
                after
                + 1e-3 * total
                + 1e-9 * ((pairs * 7 + np.arange(len(after))[:, None] * 13) % 29)
            )
            self._enter(pairs, cost.argmin(axis=0))
            self._add(pairs, 1.0)

    def move_singly(self, hysteresis: float, enough: float) -> None:
        """Move pairs off the fullest links while that lowers the fullest link that they use.

        In each round, only the best pair moves off each link. Otherwise many pairs would leave a
        full link for the same empty one, and fill that.
        """
        worth = self._worth_moving()
        waiting = worth.copy()
        since = 0
        while self.rounds > 0:
            self.rounds -= 1
            own = self.utilisation[self.path].max(axis=0, initial=0.0)
            pairs = np.flatnonzero(waiting & (own > enough))
            if len(pairs) > MAX_BAND:
                pairs = pairs[np.argpartition(-own[pairs], MAX_BAND)[:MAX_BAND]]
            elif not len(pairs):
                if not since:
                    break
                since = 0
                # Other pairs have moved since these were looked at.
                waiting = worth.copy()
                continue
            after, _ = self._after(pairs)
            column = after.argmin(axis=0)
            best = after[column, np.arange(len(pairs))]
            least = MIN_GAIN * own[pairs]
            gaining = best < own[pairs] - np.where(
                self.settled[pairs], np.maximum(hysteresis, least), least
            )
            waiting[pairs[~gaining]] = False
            order = np.flatnonzero(gaining)[np.lexsort((best[gaining], -own[pairs[gaining]]))]
            path = self.path[:, pairs[order]]
            fullest = path[self.utilisation[path].argmax(axis=0), np.arange(len(order))]
            # Only the best pair of each link.
            order = order[np.sort(np.unique(fullest, return_index=True)[1])]
            since += self._move_apart(pairs[order], column[order])
        self.utilisation = self.recount()

    def _worth_moving(self) -> BoolArray:
        """(P,) whether a pair is large enough, among those on its fullest link, to be worth moving.

        Moving a small pair only makes work: it lowers the link by next to nothing.
        """
        step = self.demand * self.inverse[self.path]
        squares, sums = np.zeros((2, len(self.inverse)))
        for link, part in zip(self.path, step, strict=True):
            squares += np.bincount(link + 1, part * part, minlength=len(self.inverse))
            sums += np.bincount(link + 1, part, minlength=len(self.inverse))
        mean = np.divide(squares, sums, out=np.zeros_like(squares), where=sums > 0.0)
        place = self.utilisation[self.path].argmax(axis=0)
        fullest = self.path[place, self.rows]
        return np.asarray(
            self.decided & (step[place, self.rows] >= SMALL * mean[fullest + 1]), dtype=np.bool_
        )

    def take_back(self, home: IntArray) -> int:
        """Move pairs back to `home` (P,) where that is as good for the links; returns how many.

        It is as good when no link of the old path becomes fuller than the fullest of the present
        path is now.
        """
        undone = 0
        for _ in range(MAX_RETURNS):
            pairs = np.flatnonzero(
                self.decided
                & (home >= 0)
                & (home < len(self.valid))
                & (self.choice >= 0)
                & (self.choice != home)
            )
            pairs = pairs[self.valid[home[pairs], pairs]] if len(pairs) else pairs
            if not len(pairs):
                break
            own = self.utilisation[self.path[:, pairs]].max(axis=0, initial=0.0)
            back = self._after(pairs)[0][home[pairs], np.arange(len(pairs))]
            kept = back <= own + 1e-9
            pairs = pairs[kept][np.argsort(back[kept], kind="stable")]
            moved = self._move_apart(pairs, home[pairs])
            self.settled[pairs] |= self.choice[pairs] == home[pairs]
            undone += moved
            if not moved:
                break
        self.utilisation = self.recount()
        return undone

    def exchange(self, hysteresis: float, enough: float, effort: int) -> int:
        """Make chains of exchanges (exchange_chains.py); returns the effort that is left."""
        if effort <= 0:
            return effort
        decided_pairs = np.flatnonzero(self.decided & (self.choice >= 0))
        chains = Chains(
            self.demand[decided_pairs],
            self.candidates[decided_pairs],
            self.free[:, :, decided_pairs].transpose(2, 0, 1),
            self.inverse[:-1],
            self.choice[decided_pairs],
            self.settled[decided_pairs],
            self.utilisation[:-1],
        )
        left = chains.run(hysteresis, enough, effort)
        self._enter(decided_pairs, np.array(chains.choice, dtype=np.int64))
        self.settled[decided_pairs] = chains.settled
        self.utilisation = self.recount()
        return left

    def _after(self, pairs: IntArray) -> tuple[FloatArray, FloatArray]:
        """(K, N) the utilisation of each candidate's fullest link once the pair has moved there.

        And (K, N) the sum of the utilisations of its links. Both are inf where there is no
        candidate.
        """
        fullest, total = np.zeros((2, len(self.valid), len(pairs)))
        present = self.path[:, pairs]
        for column, path in enumerate(self.free[:, :, pairs]):
            for link in path:
                step = self.demand[pairs] * self.inverse[link]
                for kept in present:
                    step[link == kept] = 0.0
                level = self.utilisation[link] + step
                np.maximum(fullest[column], level, out=fullest[column])
                total[column] += level
        fullest[~self.valid[:, pairs]] = total[~self.valid[:, pairs]] = np.inf
        return fullest, total

    def _move_apart(self, pairs: IntArray, column: IntArray) -> int:
        """Move the pairs to these columns, in order; returns how many have moved.

        Their gains were computed one by one. So a pair that meets an earlier one, on its fullest
        link or on a link that it would enter, waits for the next pass if that pair stays too, and
        does not move at all if it moves.
        """
        moved = 0
        for _ in range(MAX_PASSES):
            if not len(pairs):
                break
            old = self.path[:, pairs]
            fullest = old[self.utilisation[old].argmax(axis=0), np.arange(len(pairs))]
            new = self.free[column, :, pairs].T
            for kept in old:
                new[new == kept] = -1
            both = np.concatenate([new, fullest[None]])
            rank = np.broadcast_to(np.arange(len(pairs)), both.shape)
            first = np.full(len(self.inverse), len(pairs))
            np.minimum.at(first, both, rank)
            # Padding is no link, so pairs do not meet there.
            first[-1] = len(pairs)
            alone = (first[both] >= rank).all(axis=0)
            going = pairs[alone]
            taken = np.zeros(len(self.inverse), dtype=np.bool_)
            taken[both[:, alone]] = True
            taken[-1] = False
            self._add(going, -1.0)
            self._enter(going, column[alone])
            self._add(going, 1.0)
            self.settled[going] = False
            moved += len(going)
            rest = ~alone & ~taken[both].any(axis=0)
            pairs, column = pairs[rest], column[rest]
        return moved

    def _add(self, pairs: IntArray, sign: float) -> None:
        path = self.path[:, pairs]
        np.add.at(self.utilisation, path, sign * self.demand[pairs] * self.inverse[path])


def _without_common(links: IntArray, valid: BoolArray) -> IntArray:
    """(K, L', P) the links of candidates without those that all candidates of the pair use.

    `links` is (K, L, P), `valid` (K, P). A link that all of them use has the same load whatever is
    chosen.
    """
    width, length, pairs = links.shape
    if not pairs or not width or not length:
        return np.full((width, 1, pairs), -1, dtype=np.int64)
    result = np.where(valid[:, None, :], links, -1)
    for link in links[valid.argmax(axis=0), :, np.arange(pairs)].T:
        common = link >= 0
        for column in range(width):
            common &= (links[column] == link).any(axis=0) | ~valid[column]
        link[~common] = -2
        for path in result:
            path[path == link] = -1
    used = (result >= 0).any(axis=(0, 2))
    return np.ascontiguousarray(result[:, used]) if used.any() else result[:, :1]
