"""The brain the controller calls: counters of all pairs in; shares, rates and slot tables of the
active pairs out.

Pure: time comes in as an argument, and the state is bounded by the pairs that are given.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ri2n_sdn.fabric.model import PairKey, PathKey
from ri2n_sdn.rates.arrays import BoolArray, FloatArray
from ri2n_sdn.rates.load import FULL
from ri2n_sdn.weights import slots as slot_tables
from ri2n_sdn.weights.counters import PairCounters
from ri2n_sdn.weights.filters import HbSpan, hold_small_changes
from ri2n_sdn.weights.memory import PairMemory, Structure
from ri2n_sdn.weights.sample import TrafficSample, Weights, to_shares
from ri2n_sdn.weights.strategies import strategy

__all__ = [
    "Decision",
    "LoopSettings",
    "PairDecision",
    "WeightLoop",
]

# time constant of the bytes per slot: TCP flows that share a link differ for a second or two
SLOT_MEMORY_S = 2.0
BUSY_COOLDOWN_S = (
    1.0  # between moves of busy slots while the shares stand still; doubles up to the next figure
)
BUSY_COOLDOWN_MAX_S = 16.0
BUSY_MOVES = 2  # busy slots moved at once while the shares stand still
# part of the active pairs that may change in a step without HBSPAN shrinking: in many, some do
RESTLESS = 0.02
# a link whose load differs by this part of its capacity from its long average: traffic has changed
SURGE = 0.25


@dataclass(frozen=True)
class LoopSettings:
    """Constants of the loop; docs/algorithms.md says why they have these values."""

    strategy: str = "max_min"
    slots: int = 64
    hbspan_min_s: float = 0.25
    hbspan_max_s: float = 4.0
    hbspan_idle_s: float = 1.0  # with no active pair: new traffic is noticed within this time
    active_bps: float = 64_000.0  # a pair that sends this much gets its own table
    inactive_after_s: float = 10.0  # a pair stays active for this long after its traffic ends
    hysteresis: float = 0.04  # shares that change less are left alone
    # after its slots moved, a pair's counters are taken to show the new shares from here on
    settle_s: float = 1.25
    forget_after_s: float = 10.0  # a pair that is no longer given is remembered for this long


@dataclass(frozen=True)
class PairDecision:
    """What an active pair should do:

    shares and rates per path, and its slot table, `moved` slots from the present.
    """

    share: dict[PathKey, float]
    rate_bps: dict[PathKey, float] | None
    slots: tuple[PathKey, ...]
    moved: int


@dataclass(frozen=True)
class Decision:
    """Decisions for the active pairs, and the time until the next step."""

    pairs: dict[PairKey, PairDecision]
    hbspan_s: float


@dataclass
class _SlotState:
    """What is remembered of an active pair's slots."""

    traffic: FloatArray | None = None  # (n,) decaying bytes per slot
    heard_s: float = -math.inf
    ignore_next: bool = True
    shares_new: bool = True  # the shares changed and no table was made from bytes since
    moved_s: float = -math.inf  # last time any slot moved
    busy_moved_s: float = -math.inf
    cooldown_s: float = BUSY_COOLDOWN_S


class WeightLoop:
    """Calls the strategy over smoothed counters and turns its weights into slot tables, step by
    step.
    """

    def __init__(self, settings: LoopSettings | None = None) -> None:
        self.settings = settings or LoopSettings()
        self._strategy_name = self.settings.strategy
        self._strategy = strategy(self._strategy_name)
        self._memory = PairMemory(self.settings.forget_after_s)
        self._slots: dict[PairKey, _SlotState] = {}
        self._share: dict[PairKey, dict[PathKey, float]] = {}  # applied shares of active pairs
        self._alive: dict[PairKey, frozenset[PathKey]] = {}
        self._active_until: dict[PairKey, float] = {}
        self._hbspan = HbSpan(self.settings.hbspan_min_s, self.settings.hbspan_max_s)

    @property
    def strategy_name(self) -> str:
        """The strategy in use."""
        return self._strategy_name

    def set_strategy(self, name: str) -> None:
        """Change strategy; pairs start anew from shares by capacity.

        Raises BadInput for an unknown name.
        """
        self._strategy = strategy(name)
        self._strategy_name = name
        self._share.clear()

    def adopt(
        self, now_s: float, pair: PairKey, slots: Sequence[PathKey], alive: Collection[PathKey]
    ) -> None:
        """Take over an active pair from an earlier controller: its table says which shares are in
        force.

        The pair is active as if its traffic had just been seen, and its busy slots are left alone
        at first.
        """
        self._active_until[pair] = now_s + self.settings.inactive_after_s
        self._share[pair] = {path: count / len(slots) for path, count in Counter(slots).items()}
        self._alive[pair] = frozenset(alive)
        self._slots[pair] = _SlotState(shares_new=False, moved_s=now_s, busy_moved_s=now_s)

    def step(
        self, now_s: float, pairs: Sequence[PairCounters], capacity_bps: Mapping[str, float]
    ) -> Decision:
        """One round: take in counters of all pairs, decide for the active ones.

        Never raises on odd counters (stale, missing, reset); `now_s` may come at irregular
        intervals.
        """
        structure = self._memory.update(now_s, pairs, capacity_bps)
        rows = structure.pairs
        sample, previous = self._sample(now_s, structure)
        active, activity_changed = self._activity(now_s, structure)
        if not rows:
            return Decision({}, self._hbspan.step(activity_changed, self.settings.hbspan_idle_s))
        weights = self._strategy(sample, previous)
        crowded = self._memory.crowded(FULL)
        held, moved_rows = self._hold(weights, previous, active, structure)
        restless = int((moved_rows & active).sum())

        given = {pair.key for pair in pairs}
        decisions: dict[PairKey, PairDecision] = {}
        for row in np.flatnonzero(active):
            pair = rows[row]
            if pair.key not in given:
                continue
            decision = self._decide(
                now_s, pair, held[row], weights, int(row), bool(moved_rows[row]), crowded[row]
            )
            decisions[pair.key] = decision
            restless += decision.moved > 0 and not moved_rows[row]
        changed = activity_changed or restless > RESTLESS * active.sum() or self._surge(structure)
        return Decision(
            decisions,
            self._hbspan.step(changed, None if active.any() else self.settings.hbspan_idle_s),
        )

    def sent_bps(self) -> dict[PairKey, dict[PathKey, float]]:
        """What each pair sent over each of its paths as of the last step, on a short average."""
        return self._memory.sent_bps()

    def _sample(self, now_s: float, structure: Structure) -> tuple[TrafficSample, FloatArray]:
        """The strategy's input: the sample and the shares (P, K) in force."""
        previous = to_shares(structure.path_capacity_bps, structure.alive)
        settled = np.ones(len(structure.pairs), dtype=np.bool_)
        for row, pair in enumerate(structure.pairs):
            share = self._share.get(pair.key)
            if share is not None:
                for column, path in enumerate(pair.paths):
                    previous[row, column] = share.get(path.path, 0.0)
            state = self._slots.get(pair.key)
            settled[row] = state is None or now_s - state.moved_s >= self.settings.settle_s
        return self._memory.sample(settled), previous

    def _activity(self, now_s: float, structure: Structure) -> tuple[BoolArray, bool]:
        """Which rows are active (P,), and whether that differs from before.

        Forgets pairs that are gone.
        """
        rate = self._memory.fast_bps.sum(axis=1)
        keys = [pair.key for pair in structure.pairs]
        for row in np.flatnonzero(rate >= self.settings.active_bps):
            self._active_until[keys[row]] = now_s + self.settings.inactive_after_s
        active = np.array(
            [self._active_until.get(key, -math.inf) > now_s for key in keys], dtype=np.bool_
        )
        now_active = {key for key, is_active in zip(keys, active, strict=True) if is_active}
        changed = now_active != self._slots.keys()
        for key in self._slots.keys() - now_active:
            self._slots.pop(key, None)
            self._share.pop(key, None)
            self._active_until.pop(key, None)
            self._alive.pop(key, None)
        for key in now_active - self._slots.keys():
            self._slots[key] = _SlotState()
        return active, changed

    def _hold(
        self, weights: Weights, previous: FloatArray, active: BoolArray, structure: Structure
    ) -> tuple[FloatArray, BoolArray]:
        """Apply hysteresis; remembers the shares now in force. New pairs and changed path sets are
        followed at once.

        So is a share that falls to what only probes a path: held a little above, it would keep a
        flow there that the path's other pairs should not have to share with, for as long as it
        lasts.
        """
        left = (weights.share <= slot_tables.CLOSED_SHARE) & (previous > slot_tables.CLOSED_SHARE)
        always = np.zeros(len(structure.pairs), dtype=np.bool_)
        alive: dict[PairKey, frozenset[PathKey]] = {}
        for row in np.flatnonzero(active):
            pair = structure.pairs[row]
            living = frozenset(path.path for path in pair.paths if path.alive)
            alive[pair.key] = living
            always[row] = (
                pair.key not in self._share
                or self._alive.get(pair.key) != living
                or left[row].any()
            )
        held, moved = hold_small_changes(weights.share, previous, self.settings.hysteresis, always)
        for row in np.flatnonzero(active & (moved | always)):
            pair = structure.pairs[row]
            self._share[pair.key] = {
                path.path: float(share) for path, share in zip(pair.paths, held[row], strict=False)
            }
        self._alive = alive
        return held, moved | always

    def _surge(self, structure: Structure) -> bool:
        """Whether some link carries clearly more or less than its long average."""
        load = self._memory.link_load_bps(self._memory.fast_bps) - self._memory.link_load_bps(
            self._memory.slow_bps
        )
        return bool((np.abs(load) >= SURGE * structure.capacity_bps).any())

    def _decide(
        self,
        now_s: float,
        pair: PairCounters,
        share: FloatArray,
        weights: Weights,
        row: int,
        shares_moved: bool,
        crowded: BoolArray,
    ) -> PairDecision:
        """The slot table of one active pair."""
        state = self._slots[pair.key]
        self._hear_slots(now_s, pair, state)
        if shares_moved:
            state.shares_new = True
            state.cooldown_s = BUSY_COOLDOWN_S
        paths = [path.path for path in pair.paths]
        index = {path: column for column, path in enumerate(paths)}
        n = self.settings.slots
        installed = [index.get(slot, -1) for slot in pair.slots] if pair.slots else None
        shares = share[: len(paths)].tolist()
        if state.shares_new:
            budget: int | None = None
        else:
            budget = BUSY_MOVES if now_s - state.busy_moved_s >= state.cooldown_s else 0
        traffic = state.traffic.tolist() if state.traffic is not None else None
        if sum(shares) <= 0.0:  # no live path: the table can stay, nothing gets through anyway
            table = slot_tables.SlotTable(tuple(installed or ()), 0)
            slots, moved = pair.slots, 0
        else:
            alive = [path.alive for path in pair.paths]
            full = crowded[: len(paths)].tolist()
            if traffic is not None and installed is not None and weights.rate_bps is None:
                traffic = slot_tables.flow_weights(traffic, installed, full)
            table = slot_tables.assign(
                shares, alive, installed, traffic, n, busy_moves=budget, crowded=full
            )
            slots = tuple(paths[k] for k in table.slots)
            moved = table.moved if installed is not None and len(installed) == n else n
        if moved:
            state.ignore_next = True
            state.moved_s = now_s
        if table.busy_moved:
            if not state.shares_new:
                state.cooldown_s = min(2.0 * state.cooldown_s, BUSY_COOLDOWN_MAX_S)
            state.busy_moved_s = now_s
            if state.traffic is not None:
                state.traffic = (
                    state.traffic * 0.25
                )  # all flows of the pair will run at other rates now
        if traffic is not None:
            state.shares_new = False
        rates = weights.rate_bps
        return PairDecision(
            share={path: float(value) for path, value in zip(paths, shares, strict=True)},
            rate_bps=None
            if rates is None
            else {p: float(rates[row, k]) for k, p in enumerate(paths)},
            slots=slots,
            moved=moved,
        )

    def _hear_slots(self, now_s: float, pair: PairCounters, state: _SlotState) -> None:
        """Take in the bytes per slot, unless they may belong to the table before the last
        change.
        """
        if pair.slot_bytes is None or len(pair.slot_bytes) != self.settings.slots:
            return
        heard = np.array(pair.slot_bytes, dtype=np.float64)
        elapsed_s = now_s - state.heard_s
        state.heard_s = now_s
        if state.ignore_next:
            state.ignore_next = False
            return
        if state.traffic is None or len(state.traffic) != len(heard):
            state.traffic = np.maximum(heard, 0.0) if heard.any() else None
        else:
            state.traffic = state.traffic * math.exp(
                -max(elapsed_s, 0.0) / SLOT_MEMORY_S
            ) + np.maximum(heard, 0.0)
