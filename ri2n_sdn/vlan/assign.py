"""Which VLAN each pair uses, so that the fullest link is as empty as possible and few pairs move.

Pairs are not split, so this is a hard problem in general. It is solved in three steps: pairs
without a VLAN are placed by decreasing demand; pairs on the fullest links move where that lowers
them; chains of exchanges (chains.py) relieve links that no single pair can leave. Each step lowers
the utilisations, sorted from the fullest, in lexicographic order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray
from ri2n_sdn.vlan.exchange_chains import LEAST_GAIN, Chains

__all__ = ["EFFORT", "Assignment", "assign"]


EFFORT = 20_000  # exchanges that chains may look at: about 3 us each
PLACINGS = 64  # batches in which new pairs are placed; within one, pairs do not see each other
ROUNDS = 64  # rounds of single moves; in each, a link gives up or takes in at most one pair
BAND = 8_000  # pairs looked at in a round, those on the fullest links
# of the demand-weighted mean demand on its fullest link: a pair below it is not worth moving
SMALL = 0.05
PASSES = 4  # over the moves of a round: those that meet none of the moves of earlier passes
TURNS, TURNS_UP_TO = (
    4,
    1_000,
)  # orders in which so many new pairs at most are tried: a search may end at a dead end
RETURNS = 3  # rounds of taking moves back that later moves made needless


@dataclass(frozen=True, eq=False)
class Assignment:
    """The chosen columns, and what they do to the links.

    `choosable` are the links that some pair's choice decides about; the others (hosts' links, as a
    rule) have the same load whatever is chosen.
    """

    choice: IntArray  # (P,) column of the candidates; -1 for pairs without any
    moved: BoolArray  # (P,) had a choice before and has another one now
    utilisation: FloatArray  # (E,) demand on each link / its capacity
    before: FloatArray  # (E,) the same for the current choices that there were
    choosable: BoolArray  # (E,)

    @property
    def fullest(self) -> float:
        """The largest utilisation of all links; 0 without links."""
        return float(self.utilisation.max(initial=0.0))

    @property
    def fullest_choosable(self) -> float:
        """The largest utilisation of the links that choices decide about; 0 without any."""
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
    """Choose one candidate for each of P pairs.

    `demand_bps` (P,) is what each pair would send if it could (demands.py). `candidates` (P, K)
    names each candidate's VLAN or tree by a number, -1 where there is none or it must not be used;
    `links` (P, K, L) are the directed links of its way, each once, -1 beyond the end, of capacities
    `capacity_bps` (E,), 0 for one that is to be avoided. `current` (P,) is the column in use, -1
    for a new pair. One whose column is not a candidate (any more) moves in any case; others when
    that, or a chain of exchanges they are part of, lowers the fullest link concerned by more than
    `hysteresis` (of its capacity). Links up to the utilisation `enough` are left as they are.
    `effort` bounds the chains of one try. The same arguments give the same answer.
    """
    pairs = len(candidates)
    demand = np.maximum(np.nan_to_num(np.asarray(demand_bps, dtype=np.float64), posinf=0.0), 0.0)
    candidates = np.asarray(candidates, dtype=np.int64)
    links = np.asarray(links, dtype=np.int64)
    capacity = np.asarray(capacity_bps, dtype=np.float64)
    lowest = float(capacity[capacity > 0.0].min(initial=np.inf))
    usable = np.maximum(capacity, 1e-6 * lowest if np.isfinite(lowest) else 1.0)
    inverse = np.append(1.0 / usable, 0.0)  # the last for padding
    present = (
        np.full(pairs, -1, dtype=np.int64)
        if current is None
        else np.asarray(current, dtype=np.int64)
    )
    best: Assignment | None = None
    for turn in range(TURNS if pairs <= TURNS_UP_TO and not (present >= 0).any() else 1):
        state = _State(demand, candidates, links, inverse, present)
        before = state.utilisation.copy()
        left = effort
        state.place(turn)
        if state.decided.any():
            for _ in range(RETURNS):
                state.move_singly(hysteresis, enough)
                left = state.exchange(hysteresis, enough, left)
                if not state.take_back(present):
                    break
        choosable = np.zeros(len(inverse), dtype=np.bool_)
        choosable[state.free] = True
        moved = (present >= 0) & (state.choice >= 0) & (state.choice != present)
        found = Assignment(state.choice, moved, state.utilisation[:-1], before[:-1], choosable[:-1])
        if best is None or found.fullest_choosable < best.fullest_choosable:
            best = found
        if best.fullest_choosable <= enough:
            break
    assert best is not None
    return best


class _State:
    """Choices so far, and the utilisation of all links with one entry more, 0, which padding (-1)
    finds.

    Arrays have pairs on their last axis: numpy is several times faster that way round when the
    others are short.
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
        self.free = _without_common(
            np.ascontiguousarray(links.transpose(1, 2, 0)), self.valid
        )  # (K, L, P)
        self.rows = np.arange(len(demand))
        self.rounds = ROUNDS
        known = (present >= 0) & (present < len(self.valid))
        if len(self.valid):
            known &= self.valid[np.where(known, present, 0), self.rows]
        self.choice = np.where(known, present, -1)
        self.settled = known.copy()
        self.decided = (
            (self.valid.sum(axis=0) > 1) & (self.free >= 0).any(axis=(0, 1)) & (demand > 0.0)
        )
        # What is on links that no choice of the pair changes anything about.
        common = np.full((links.shape[2], len(demand)), -1, dtype=np.int64)
        if len(self.valid):
            column = self.valid.argmax(axis=0)
            common = np.where(self.valid.any(axis=0), links[self.rows, column].T, -1)
            for path in self.free[column, :, self.rows].T:
                common[common == path] = -1
        self.constant = self._sum(common)
        self.path = np.full((self.free.shape[1], len(demand)), -1, dtype=np.int64)
        self._enter(np.flatnonzero(known), self.choice[known])
        self.utilisation = self.recount()

    def recount(self) -> FloatArray:
        """(E + 1,) the utilisations, without what adding and subtracting left behind."""
        return self.constant + self._sum(self.path)

    def _sum(self, path: IntArray) -> FloatArray:
        load = np.zeros(len(self.inverse))
        for link in path:
            load += np.bincount(link + 1, weights=self.demand, minlength=len(self.inverse))
        return np.append(load[1:], 0.0) * self.inverse

    def _enter(self, some: IntArray, column: IntArray) -> None:
        self.choice[some] = column
        self.path[:, some] = self.free[column, :, some].T

    def place(self, turn: int) -> None:
        """Give new pairs, and those whose way is gone, the emptiest of their candidates, the
        largest demand first.

        Equal demands come in another order in each `turn`.
        """
        new = np.flatnonzero((self.choice < 0) & self.valid.any(axis=0))
        if not len(new):
            return
        # Neighbours in the order are from different places, so that a batch's pairs seldom meet on
        # a link.
        scrambled = (new * (2654435761 + 2000006 * turn)) % 4294967291
        new = new[np.lexsort((scrambled, -self.demand[new]))]
        batch = max(1, -(-len(new) // PLACINGS)) if len(new) > PLACINGS else 1
        for start in range(0, len(new), batch):
            some = new[start : start + batch]
            after, total = self._after_placing(some)
            # Between equals: the way that is emptier in sum, then any, but not the same one for
            # everybody.
            cost = (
                after
                + 1e-3 * total
                + 1e-9 * ((some * 7 + np.arange(len(after))[:, None] * 13) % 29)
            )
            column = np.where(self.valid[:, some], cost, np.inf).argmin(axis=0)
            self._enter(some, column)
            self._add(some, 1.0)

    def move_singly(self, hysteresis: float, enough: float) -> None:
        """Move pairs off the fullest links, one per link and round, while that lowers the links
        they use.
        """
        worth = self._worth_moving()
        waiting = worth.copy()
        since = 0
        while self.rounds > 0:
            self.rounds -= 1
            own = self.utilisation[self.path].max(axis=0, initial=0.0)
            some = np.flatnonzero(waiting & (own > enough))
            if len(some) > BAND:
                some = some[np.argpartition(-own[some], BAND)[:BAND]]
            elif not len(some):
                if not since:
                    break
                since = 0
                waiting = worth.copy()  # others have moved since these were looked at
                continue
            after = self._after_moving(some)
            column = after.argmin(axis=0)
            best = after[column, np.arange(len(some))]
            least = LEAST_GAIN * own[some]
            gaining = best < own[some] - np.where(
                self.settled[some], np.maximum(hysteresis, least), least
            )
            waiting[some[~gaining]] = False
            order = np.flatnonzero(gaining)[np.lexsort((best[gaining], -own[some[gaining]]))]
            path = self.path[:, some[order]]
            fullest = (
                path[self.utilisation[path].argmax(axis=0), np.arange(len(order))]
                if len(order)
                else order
            )
            order = order[
                np.sort(np.unique(fullest, return_index=True)[1])
            ]  # the best of each link
            since += self._move_apart(some[order], column[order])
        self.utilisation = self.recount()

    def _worth_moving(self) -> BoolArray:
        """(P,) not so small, among those on their fullest link, that moving them would only make
        work.
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
        """Undo moves whose undoing fills no link more than the pair's present ones are; how
        many.
        """
        undone = 0
        for _ in range(RETURNS):
            some = np.flatnonzero(
                self.decided
                & (home >= 0)
                & (home < len(self.valid))
                & (self.choice >= 0)
                & (self.choice != home)
            )
            some = some[self.valid[home[some], some]] if len(some) else some
            if not len(some):
                break
            own = self.utilisation[self.path[:, some]].max(axis=0, initial=0.0)
            back = self._after_moving(some)[home[some], np.arange(len(some))]
            kept = back <= own + 1e-9
            some = some[kept][np.argsort(back[kept], kind="stable")]
            now = self._move_apart(some, home[some])
            self.settled[some] |= self.choice[some] == home[some]
            undone += now
            if not now:
                break
        self.utilisation = self.recount()
        return undone

    def exchange(self, hysteresis: float, enough: float, effort: int) -> int:
        """Chains of exchanges (chains.py) on top of what single moves reached.

        The effort that is left.
        """
        if effort <= 0:
            return effort
        loose = np.flatnonzero(self.decided & (self.choice >= 0))
        chains = Chains(
            self.demand[loose],
            self.candidates[loose],
            self.free[:, :, loose].transpose(2, 0, 1),
            self.inverse[:-1],
            self.choice[loose],
            self.settled[loose],
            self.utilisation[:-1],
        )
        left = chains.run(hysteresis, enough, effort)
        self._enter(loose, np.array(chains.choice, dtype=np.int64))
        self.settled[loose] = chains.settled
        self.utilisation = self.recount()
        return left

    def _after_placing(self, some: IntArray) -> tuple[FloatArray, FloatArray]:
        """(K, N) the fullest link of each candidate with the new pair on it, and the sum over
        its links.
        """
        most, total = np.zeros((2, len(self.valid), len(some)))
        for column, path in enumerate(self.free[:, :, some]):
            for link in path:
                level = self.utilisation[link] + self.demand[some] * self.inverse[link]
                np.maximum(most[column], level, out=most[column])
                total[column] += level
        return most, total

    def _after_moving(self, some: IntArray) -> FloatArray:
        """(K, N) the fullest link of each candidate once the pair is there and has left its way.

        Inf: no candidate.
        """
        most = np.zeros((len(self.valid), len(some)))
        present = self.path[:, some]
        for column, path in enumerate(self.free[:, :, some]):
            for link in path:
                step = self.demand[some] * self.inverse[link]
                for kept in present:
                    step[link == kept] = 0.0
                np.maximum(most[column], self.utilisation[link] + step, out=most[column])
        most[~self.valid[:, some]] = np.inf
        return most

    def _move_apart(self, some: IntArray, column: IntArray) -> int:
        """Move the pairs in order, but none that meets an earlier one where it comes from or
        goes to; how many.
        """
        moved = 0
        for _ in range(PASSES):
            if not len(some):
                break
            old = self.path[:, some]
            fullest = old[self.utilisation[old].argmax(axis=0), np.arange(len(some))]
            new = self.free[column, :, some].T
            for kept in old:
                new[new == kept] = -1
            both = np.concatenate([new, fullest[None]])
            rank = np.broadcast_to(np.arange(len(some)), both.shape)
            first = np.full(len(self.inverse), len(some))
            np.minimum.at(first, both, rank)
            first[-1] = len(some)  # padding belongs to nobody
            alone = (first[both] >= rank).all(axis=0)
            going = some[alone]
            taken = np.zeros(len(self.inverse), dtype=np.bool_)
            taken[both[:, alone]] = True
            taken[-1] = False
            self._add(going, -1.0)
            self._enter(going, column[alone])
            self._add(going, 1.0)
            self.settled[going] = False
            moved += len(going)
            rest = ~alone & ~taken[both].any(axis=0)
            some, column = some[rest], column[rest]
        return moved

    def _add(self, some: IntArray, sign: float) -> None:
        path = self.path[:, some]
        np.add.at(self.utilisation, path, sign * self.demand[some] * self.inverse[path])


def _without_common(links: IntArray, valid: BoolArray) -> IntArray:
    """(K, L', P) the links without those that all candidates of the pair use, whatever is
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
