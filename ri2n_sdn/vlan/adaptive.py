"""The path table `adaptive`: every HBSPAN, the measured traffic of all active pairs is assigned to
VLANs anew.

Pure: time comes in as an argument, state is bounded. Programs can give pairs a table of their own
for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TypeAlias

import numpy as np

from ri2n_sdn.fabric.model import PairKey
from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray
from ri2n_sdn.rates.load import link_load
from ri2n_sdn.vlan.assign import Assignment, assign
from ri2n_sdn.vlan.demands import estimate_demands

__all__ = ["Adaptive", "AdaptiveSettings", "AdaptiveStep", "Candidate", "PairWays"]

Candidate: TypeAlias = tuple[
    int, tuple[str, ...], bool
]  # (VLAN ID, names of the directed links, whether it is alive)


@dataclass(frozen=True)
class PairWays:
    """An active directed pair: what it sent lately, and its candidates: each VLAN once, the links
    in any order.

    `vlan` is what the pair uses as far as the caller knows; it counts when `Adaptive` has not
    chosen for it yet.
    """

    key: PairKey
    rate_bps: float
    candidates: tuple[Candidate, ...]
    vlan: int | None = None


@dataclass(frozen=True)
class AdaptiveSettings:
    """Constants of the assignment; utilisations are parts of a link's capacity."""

    hysteresis: float = 0.15  # what a move has to take off the fullest link concerned
    enough: float = 0.5  # links up to this utilisation are left as they are
    same_rate: float = (
        0.25  # a demand that changes by less than this part is taken to be the old one
    )
    forget_after_s: float = 300.0  # a pair that is no longer given is remembered for this long
    remember: int = 200_000  # pairs at most; those not given for longest are forgotten first
    effort: int = 4_000  # exchanges looked at per step (assign.EFFORT)
    owners: int = 64  # tables of programs at a time
    table_pairs: int = 100_000  # pairs in one of them


@dataclass(frozen=True)
class AdaptiveStep:
    """VLANs of the pairs given, by pair; those without a live candidate are missing. `fullest...`
    are for the log.

    They are of the links that choices decide about, by the demands estimated now, before and after
    the moves.
    """

    vlan: dict[PairKey, int]
    moved: tuple[PairKey, ...]
    fullest_before: float
    fullest_after: float
    fullest_link: str | None


@dataclass(slots=True)
class _Known:
    vlan: int
    seen_s: float
    demand_bps: float = 0.0


class Adaptive:
    """Chooses and remembers a VLAN for every (sender, receiver); `vlans` are the IDs that programs
    may name.

    `hosts_of` gives the names by which programs' tables know a pair, where pairs are of NICs.
    """

    def __init__(
        self,
        settings: AdaptiveSettings | None = None,
        vlans: Collection[int] = (),
        hosts_of: Callable[[PairKey], PairKey] = lambda key: key,
    ) -> None:
        self.settings = settings or AdaptiveSettings()
        self.vlans = frozenset(vlans)
        self._hosts_of = hosts_of
        self._known: dict[
            PairKey, _Known
        ] = {}  # the pair's own choice; in order of when it was last given
        self._shown: dict[
            PairKey, int
        ] = {}  # what the last steps answered, where a program's table differs from it
        self._tables: dict[str, dict[PairKey, int]] = {}  # by owner, the newest last

    @property
    def tables(self) -> dict[str, int]:
        """The owners of tables and their numbers of pairs, the newest last."""
        return {owner: len(table) for owner, table in self._tables.items()}

    def __len__(self) -> int:
        """How many pairs are remembered."""
        return len(self._known)

    def set_table(self, owner: str, table: Mapping[PairKey, int]) -> None:
        """Give pairs the VLANs of a program's table until it is cleared; of several tables the
        newest counts.

        ValueError names the pair and the VLAN that is not among `vlans`, or the bound that is
        passed; then nothing has changed. A second table of an owner replaces its first and is the
        newest.
        """
        if owner not in self._tables and len(self._tables) >= self.settings.owners:
            raise ValueError(
                f"{owner}: {self.settings.owners} programs have tables already, one more is too "
                "many"
            )
        if len(table) > self.settings.table_pairs:
            raise ValueError(
                f"{owner}: a table has at most {self.settings.table_pairs} pairs, this one "
                f"{len(table)}"
            )
        for (sender, receiver), vlan in table.items():
            if vlan not in self.vlans:
                raise ValueError(f"{owner}: pair {sender} {receiver}: there is no VLAN {vlan}")
        self._tables.pop(owner, None)
        self._tables[owner] = dict(table)

    def table_vlan(self, key: PairKey) -> int | None:
        """The VLAN that the newest table with this pair gives it:

        it has to be among the pair's candidates then.
        """
        hosts = self._hosts_of(key)
        return next(
            (table[hosts] for table in reversed(self._tables.values()) if hosts in table), None
        )

    def clear_table(self, owner: str) -> bool:
        """Forget an owner's table, whose pairs get the next older table's VLAN or their own.

        Whether there was one.
        """
        return self._tables.pop(owner, None) is not None

    def step(
        self, now_s: float, pairs: Sequence[PairWays], capacity_bps: Mapping[str, float]
    ) -> AdaptiveStep:
        """Decide for the pairs that are active now, each given once, over links of these
        capacities.

        A link that `capacity_bps` does not name limits nobody. Pairs whose way is dead move at
        once; of the others, those that pay (`AdaptiveSettings.hysteresis`), and nobody that a
        program's table holds.
        """
        if not pairs:
            self._forget(now_s)
            return AdaptiveStep({}, (), 0.0, 0.0, None)
        names = list(capacity_bps)
        capacity = np.fromiter(capacity_bps.values(), dtype=np.float64, count=len(names))
        vlans, links, alive = _arrays(pairs, {name: place for place, name in enumerate(names)})
        used, own = self._columns(pairs, vlans)
        demand = self._demands(pairs, vlans, links, used, capacity)
        candidates = np.where(alive, vlans, -1)
        held = self._held(pairs, candidates, own)
        candidates[held >= 0] = np.where(
            np.arange(vlans.shape[1]) == held[held >= 0, None], candidates[held >= 0], -1
        )
        current = np.where(held >= 0, held, own)
        settings = self.settings
        answer = assign(
            demand,
            candidates,
            links,
            capacity,
            current,
            hysteresis=settings.hysteresis,
            enough=settings.enough,
            effort=settings.effort,
        )
        return self._take(
            now_s, pairs, vlans, used, own, held, demand, answer, names, links, capacity
        )

    def _take(
        self,
        now_s: float,
        pairs: Sequence[PairWays],
        vlans: IntArray,
        used: IntArray,
        own: IntArray,
        held: IntArray,
        demand: FloatArray,
        answer: Assignment,
        names: list[str],
        links: IntArray,
        capacity: FloatArray,
    ) -> AdaptiveStep:
        """Remember what was decided and put it into words."""
        chosen: dict[PairKey, int] = {}
        moved: list[PairKey] = []
        rows = np.arange(len(pairs))
        choice = answer.choice
        vlan_of = vlans[rows, np.maximum(choice, 0)].tolist()
        # What a pair had before a program's table stays its own, so that it finds it again.
        aside = (held >= 0) & (held != own)
        own_of = np.where(aside & (own >= 0), vlans[rows, np.maximum(own, 0)], vlan_of).tolist()
        moves = ((used >= 0) & (used != choice)).tolist()
        columns = zip(
            pairs,
            choice.tolist(),
            vlan_of,
            own_of,
            aside.tolist(),
            moves,
            demand.tolist(),
            strict=True,
        )
        for pair, column, vlan, own_vlan, is_aside, moves_now, demand_bps in columns:
            key = pair.key
            self._known.pop(key, None)
            self._shown.pop(key, None)
            if column < 0:
                continue
            chosen[key] = vlan
            self._known[key] = _Known(own_vlan, now_s, demand_bps)
            if moves_now:
                moved.append(key)
            if is_aside:
                self._shown[key] = vlan
        self._forget(now_s)
        on = np.flatnonzero(used >= 0)
        load = link_load(demand[on], links[on, used[on]], len(capacity))
        before = np.divide(load, capacity, out=np.zeros(len(capacity)), where=capacity > 0.0)
        shown = np.where(answer.choosable, answer.utilisation, -1.0)
        fullest = int(shown.argmax()) if answer.choosable.any() else -1
        return AdaptiveStep(
            chosen,
            tuple(moved),
            float(before[answer.choosable].max(initial=0.0)),
            answer.fullest_choosable,
            names[fullest] if fullest >= 0 else None,
        )

    def _columns(self, pairs: Sequence[PairWays], vlans: IntArray) -> tuple[IntArray, IntArray]:
        """(P,) the column that carries each pair now, and the one it chose itself.

        -1 where there is none.
        """
        found = [self._known.get(pair.key) for pair in pairs]
        mine = [
            pair.vlan if known is None else known.vlan
            for pair, known in zip(pairs, found, strict=True)
        ]
        own = _column(vlans, mine)
        if not self._shown:
            return own.copy(), own
        return _column(
            vlans, [self._shown.get(pair.key, vlan) for pair, vlan in zip(pairs, mine, strict=True)]
        ), own

    def _held(self, pairs: Sequence[PairWays], candidates: IntArray, own: IntArray) -> IntArray:
        """(P,) the column that a program's table holds the pair at, -1 for none or a dead one.

        In the first step after its table is gone, a pair is held at its old one: others have to
        make room again.
        """
        held = np.full(len(pairs), -1, dtype=np.int64)
        if not self._tables and not self._shown:
            return held
        for row, pair in enumerate(pairs):
            vlan = self.table_vlan(pair.key)
            if vlan is not None:
                places = np.flatnonzero(candidates[row] == vlan)
                held[row] = places[0] if len(places) else -1
            elif pair.key in self._shown and own[row] >= 0 and candidates[row, own[row]] >= 0:
                held[row] = own[row]
        return held

    def _demands(
        self,
        pairs: Sequence[PairWays],
        vlans: IntArray,
        links: IntArray,
        used: IntArray,
        capacity: FloatArray,
    ) -> FloatArray:
        """(P,) estimated demands.

        Those that are much as before are as before, so that noise moves nobody.
        """
        rate = np.fromiter((pair.rate_bps for pair in pairs), dtype=np.float64, count=len(pairs))
        rows = np.arange(len(pairs))
        path = np.where(used[:, None] >= 0, links[rows, np.maximum(used, 0)], -1)
        there = vlans >= 0
        base = links[:, 0]
        ends = np.full_like(base, -1)
        for place in range(base.shape[1]):
            link = base[:, place]
            everywhere = ((links == link[:, None, None]).any(axis=2) | ~there).all(axis=1)
            ends[:, place] = np.where(everywhere, link, -1)
        demand = estimate_demands(rate, path, ends, capacity)
        known = (self._known.get(pair.key) for pair in pairs)
        old = np.fromiter(
            (k.demand_bps if k else 0.0 for k in known), dtype=np.float64, count=len(pairs)
        )
        near = np.maximum(demand, old) <= (1.0 + self.settings.same_rate) * np.minimum(demand, old)
        return np.asarray(np.where(near, old, demand), dtype=np.float64)

    def _forget(self, now_s: float) -> None:
        """Drop pairs that were not given for long, and the oldest when there are too many."""
        settings = self.settings
        for key in list(self._known):
            known = self._known[key]
            if (
                len(self._known) <= settings.remember
                and now_s - known.seen_s <= settings.forget_after_s
            ):
                break
            del self._known[key]
            self._shown.pop(key, None)


def _arrays(
    pairs: Sequence[PairWays], index: Mapping[str, int]
) -> tuple[IntArray, IntArray, BoolArray]:
    """VLAN IDs (P, K), link numbers (P, K, L) and whether candidates are alive (P, K)."""
    counts = np.fromiter((len(pair.candidates) for pair in pairs), dtype=np.int64, count=len(pairs))
    given = list(chain.from_iterable(pair.candidates for pair in pairs))
    paths = [links for _, links, _ in given]
    lengths = np.fromiter(map(len, paths), dtype=np.int64, count=len(paths))
    width, length = max(1, int(counts.max(initial=0))), max(1, int(lengths.max(initial=0)))
    shape = (len(pairs), width)
    vlans, alive = np.full(shape, -1, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    numbers = np.full((*shape, length), -1, dtype=np.int64)
    there = np.arange(width) < counts[:, None]
    vlans[there] = [vlan for vlan, _, _ in given]
    alive[there] = [lives for _, _, lives in given]
    flat = np.full((len(given), length), -1, dtype=np.int64)
    found = map(index.get, chain.from_iterable(paths), repeat(-1))
    flat[np.arange(length) < lengths[:, None]] = np.fromiter(
        found, dtype=np.int64, count=int(lengths.sum())
    )
    numbers[there] = flat
    return vlans, numbers, alive


def _column(vlans: IntArray, wanted: Sequence[int | None]) -> IntArray:
    """(P,) the column of `vlans` (P, K) with each pair's VLAN, -1 where there is none."""
    vlan = np.array([-2 if one is None else one for one in wanted], dtype=np.int64)
    same = vlans == vlan[:, None]
    return np.where(same.any(axis=1), same.argmax(axis=1), -1)
