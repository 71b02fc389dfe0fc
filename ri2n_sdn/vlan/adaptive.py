# SPDX-License-Identifier: Apache-2.0
"""The path table `adaptive`: every HBSPAN, all active pairs are assigned to VLANs anew.

The measured traffic of the pairs decides. `assign` finds VLANs with which the fullest link is as
empty as possible; this module keeps the choice steady over time. Without that, noise in the
measurements would move pairs back and forth every HBSPAN. Three rules prevent it
(`AdaptiveSettings`): a move has to take a part of its load off the fullest link concerned, links
that are only half full are left alone, and a demand that has changed little counts as unchanged.

Programs can give pairs a table of their own for a while. Pure: the caller gives the time, and the
state is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np

from ri2n_sdn.fabric.model import PairKey
from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray
from ri2n_sdn.rates.load import link_load
from ri2n_sdn.vlan.assign import assign
from ri2n_sdn.vlan.demands import estimate_demands

__all__ = ["Adaptive", "AdaptiveSettings", "AdaptiveStep", "Candidate", "PairPaths"]

Candidate: TypeAlias = tuple[int, tuple[str, ...], bool]
"""(VLAN ID, names of the directed links of its path, whether it is alive)."""


@dataclass(frozen=True)
class PairPaths:
    """An active directed pair: what it sent lately, and the VLANs that it may use."""

    key: PairKey
    rate_bps: float
    candidates: tuple[Candidate, ...]
    """Each VLAN once; the links of its path in any order."""
    vlan: int | None = None
    """What the pair uses as far as the caller knows; once `Adaptive` has chosen, that counts."""


@dataclass(frozen=True)
class AdaptiveSettings:
    """Constants of the assignment; utilisations are parts of a link's capacity."""

    hysteresis: float = 0.15
    """The utilisation that a move has to take off the fullest link concerned."""
    enough: float = 0.5
    """Links up to this utilisation are left as they are."""
    same_rate: float = 0.25
    """A demand that changes by less than this part is taken to be the old one."""
    forget_after_s: float = 300.0
    """A pair that is no longer given is remembered for this long."""
    max_pairs: int = 200_000
    """Pairs that are remembered at most; those not given for longest are forgotten first."""
    effort: int = 4_000
    """Exchanges that a step may look at (`assign`)."""
    max_owners: int = 64
    """Programs that may have tables at the same time."""
    max_table_pairs: int = 100_000
    """Pairs that one of these tables may have."""


@dataclass(frozen=True)
class AdaptiveStep:
    """What a step decided; the fullest link is for the log.

    That is the fullest of the links that choices decide about, by the demands estimated now: its
    utilisation before and after the moves, and its name after them.
    """

    vlan: dict[PairKey, int]
    """By pair; a pair without a live candidate is missing."""
    moved: tuple[PairKey, ...]
    fullest_before: float
    fullest_after: float
    fullest_link: str | None


@dataclass(slots=True)
class _Known:
    """What is remembered of a pair: its own choice, when it was last given, and its demand."""

    vlan: int
    seen_s: float
    demand_bps: float = 0.0


class Adaptive:
    """Chooses and remembers a VLAN for every (sender, receiver).

    `vlans` are the IDs that programs' tables may name. Where pairs are of NICs, `hosts_of` gives
    the hosts by which programs' tables name a pair.
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
        # In order of when each pair was last given.
        self._known: dict[PairKey, _Known] = {}
        # The VLAN that the last step gave a pair, where a program's table made it differ from the
        # pair's own choice.
        self._shown: dict[PairKey, int] = {}
        # By owner, the newest table last.
        self._tables: dict[str, dict[PairKey, int]] = {}

    @property
    def tables(self) -> dict[str, int]:
        """By owner of a table, its number of pairs; the newest table last."""
        return {owner: len(table) for owner, table in self._tables.items()}

    @property
    def rows(self) -> Mapping[str, Mapping[PairKey, int]]:
        """The tables themselves by owner; the newest last."""
        return dict(self._tables)

    def set_table(self, owner: str, table: Mapping[PairKey, int]) -> None:
        """Give pairs the VLANs of a program's table until it is cleared.

        Of several tables with a pair, the newest counts. A second table of an owner replaces its
        first and is the newest. ValueError, and nothing has changed, for a VLAN that is not among
        `vlans`, too many owners, or too many pairs.
        """
        if owner not in self._tables and len(self._tables) >= self.settings.max_owners:
            raise ValueError(
                f"{owner}: {self.settings.max_owners} programs have tables already, which is "
                "the limit"
            )
        if len(table) > self.settings.max_table_pairs:
            raise ValueError(
                f"{owner}: a table has at most {self.settings.max_table_pairs} pairs, this one "
                f"{len(table)}"
            )
        for (sender, receiver), vlan in table.items():
            if vlan not in self.vlans:
                raise ValueError(f"{owner}: pair {sender} {receiver}: there is no VLAN {vlan}")
        self._tables.pop(owner, None)
        self._tables[owner] = dict(table)

    def table_vlan(self, key: PairKey) -> int | None:
        """The VLAN that the newest table with this pair gives it; None when no table has the pair.

        The caller has to have it among the pair's candidates.
        """
        hosts = self._hosts_of(key)
        return next(
            (table[hosts] for table in reversed(self._tables.values()) if hosts in table), None
        )

    def clear_table(self, owner: str) -> bool:
        """Forget an owner's table; returns whether there was one.

        Its pairs get the VLAN of the next older table that has them, or their own.
        """
        return self._tables.pop(owner, None) is not None

    def step(
        self, now_s: float, pairs: Sequence[PairPaths], capacity_bps: Mapping[str, float]
    ) -> AdaptiveStep:
        """Decide for the pairs that are active now, each given once.

        `capacity_bps` are the capacities of links by name; a link that it does not name limits no
        pair. A pair whose path is dead moves at once. Any other pair moves only when that pays
        (`AdaptiveSettings.hysteresis`), and not at all while a program's table holds it.
        """
        if not pairs:
            self._forget(now_s)
            return AdaptiveStep({}, (), 0.0, 0.0, None)
        names = list(capacity_bps)
        capacity = np.array(list(capacity_bps.values()), dtype=np.float64)
        vlans, links, alive = _arrays(pairs, {name: place for place, name in enumerate(names)})
        used, own = self._columns(pairs, vlans)
        demand = self._demands(pairs, vlans, links, used, capacity)
        candidates = np.where(alive, vlans, -1)
        held = self._held(pairs, candidates, own)
        kept = (held[:, None] < 0) | (np.arange(vlans.shape[1]) == held[:, None])
        candidates = np.where(kept, candidates, -1)
        settings = self.settings
        answer = assign(
            demand,
            candidates,
            links,
            capacity,
            np.where(held >= 0, held, own),
            hysteresis=settings.hysteresis,
            enough=settings.enough,
            effort=settings.effort,
        )
        chosen = self._remember(now_s, pairs, vlans, own, held, demand, answer.choice)
        self._forget(now_s)
        moves = (used >= 0) & (used != answer.choice) & (answer.choice >= 0)
        on = np.flatnonzero(used >= 0)
        load = link_load(demand[on], links[on, used[on]], len(capacity))
        before = np.divide(load, capacity, out=np.zeros(len(capacity)), where=capacity > 0.0)
        shown = np.where(answer.choosable, answer.utilisation, -1.0)
        return AdaptiveStep(
            chosen,
            tuple(pair.key for pair, moved in zip(pairs, moves.tolist(), strict=True) if moved),
            float(before[answer.choosable].max(initial=0.0)),
            answer.fullest_choosable,
            names[int(shown.argmax())] if answer.choosable.any() else None,
        )

    def _remember(
        self,
        now_s: float,
        pairs: Sequence[PairPaths],
        vlans: IntArray,
        own: IntArray,
        held: IntArray,
        demand: FloatArray,
        choice: IntArray,
    ) -> dict[PairKey, int]:
        """Remember what was decided; returns the VLAN of each pair that has one."""
        chosen: dict[PairKey, int] = {}
        arrays = (array.tolist() for array in (vlans, choice, own, held, demand))
        for pair, ids, column, own_column, held_at, demand_bps in zip(pairs, *arrays, strict=True):
            key = pair.key
            self._known.pop(key, None)
            self._shown.pop(key, None)
            if column < 0:
                continue
            chosen[key] = own_vlan = ids[column]
            if held_at >= 0 and held_at != own_column:
                self._shown[key] = ids[column]
                # What a pair had before a program's table remains its own choice: it gets that back
                # when the table is cleared.
                if own_column >= 0:
                    own_vlan = ids[own_column]
            self._known[key] = _Known(own_vlan, now_s, demand_bps)
        return chosen

    def _columns(self, pairs: Sequence[PairPaths], vlans: IntArray) -> tuple[IntArray, IntArray]:
        """(P,) the column that carries each pair now, and (P,) the one of its own choice.

        -1 where there is none.
        """
        own = {pair.key: pair.vlan for pair in pairs}
        own |= {key: self._known[key].vlan for key in own if key in self._known}
        used = {key: self._shown.get(key, vlan) for key, vlan in own.items()}
        return _column(vlans, used.values()), _column(vlans, own.values())

    def _held(self, pairs: Sequence[PairPaths], candidates: IntArray, own: IntArray) -> IntArray:
        """(P,) the column at which a program's table holds the pair; -1 for none or a dead one.

        In the first step after its table is gone, a pair is held at its own choice of before: other
        pairs may have taken its place meanwhile, and have to make room again.
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
        pairs: Sequence[PairPaths],
        vlans: IntArray,
        links: IntArray,
        used: IntArray,
        capacity: FloatArray,
    ) -> FloatArray:
        """(P,) estimated demands in bit/s (`estimate_demands`).

        A demand that has changed little is taken to be the old one, so that noise moves no pair.
        """
        rate = np.array([pair.rate_bps for pair in pairs], dtype=np.float64)
        rows = np.arange(len(pairs))
        path = np.where(used[:, None] >= 0, links[rows, np.maximum(used, 0)], -1)
        is_candidate = vlans >= 0
        first_path = links[:, 0]
        ends = np.full_like(first_path, -1)
        for place in range(first_path.shape[1]):
            link = first_path[:, place]
            in_all = ((links == link[:, None, None]).any(axis=2) | ~is_candidate).all(axis=1)
            ends[:, place] = np.where(in_all, link, -1)
        demand = estimate_demands(rate, path, ends, capacity)
        remembered = (self._known.get(pair.key) for pair in pairs)
        old = np.array([known.demand_bps if known else 0.0 for known in remembered])
        near = np.maximum(demand, old) <= (1.0 + self.settings.same_rate) * np.minimum(demand, old)
        return np.asarray(np.where(near, old, demand), dtype=np.float64)

    def _forget(self, now_s: float) -> None:
        """Forget pairs that were not given for long, and the oldest when there are too many."""
        settings = self.settings
        for key in list(self._known):
            fresh = now_s - self._known[key].seen_s <= settings.forget_after_s
            if fresh and len(self._known) <= settings.max_pairs:
                break
            del self._known[key]
            self._shown.pop(key, None)


def _arrays(
    pairs: Sequence[PairPaths], index: Mapping[str, int]
) -> tuple[IntArray, IntArray, BoolArray]:
    """The candidates as arrays: VLAN IDs (P, K), links (P, K, L), whether they are alive (P, K).

    `index` gives the number of a link; -1 stands for a link that it does not have, and beyond the
    end.
    """
    counts = np.array([len(pair.candidates) for pair in pairs], dtype=np.int64)
    candidates = list(chain.from_iterable(pair.candidates for pair in pairs))
    paths = [links for _, links, _ in candidates]
    lengths = np.array([len(path) for path in paths], dtype=np.int64)
    width, length = max(1, int(counts.max(initial=0))), max(1, int(lengths.max(initial=0)))
    shape = (len(pairs), width)
    vlans, alive = np.full(shape, -1, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    numbers = np.full((*shape, length), -1, dtype=np.int64)
    is_candidate = np.arange(width) < counts[:, None]
    vlans[is_candidate] = [vlan for vlan, _, _ in candidates]
    alive[is_candidate] = [lives for _, _, lives in candidates]
    flat = np.full((len(candidates), length), -1, dtype=np.int64)
    flat[np.arange(length) < lengths[:, None]] = [
        index.get(link, -1) for link in chain.from_iterable(paths)
    ]
    numbers[is_candidate] = flat
    return vlans, numbers, alive


def _column(vlans: IntArray, wanted: Iterable[int | None]) -> IntArray:
    """(P,) the column of `vlans` (P, K) with each pair's VLAN, -1 where there is none."""
    wanted_ids = np.array([-2 if vlan is None else vlan for vlan in wanted], dtype=np.int64)
    same = vlans == wanted_ids[:, None]
    return np.where(same.any(axis=1), same.argmax(axis=1), -1)
