# SPDX-License-Identifier: Apache-2.0
"""The weight loop: turns the counters of all pairs into slot tables of the active pairs.

The controller calls `WeightLoop.step` with the counters that it has polled. The answer has the
shares, rates and slot tables of the active pairs. The loop is pure: the caller gives the time, and
the size of the state is bounded by the number of pairs that the caller gives.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ri2n_sdn.fabric.model import PairKey, PathKey
from ri2n_sdn.rates.arrays import BoolArray, FloatArray
from ri2n_sdn.weights import slots as slot_tables
from ri2n_sdn.weights.counters import PairCounters
from ri2n_sdn.weights.filters import HbSpan, hold_small_changes
from ri2n_sdn.weights.max_min import fair_rates
from ri2n_sdn.weights.memory import PairMemory, Structure
from ri2n_sdn.weights.sample import TrafficSample, Weights, to_shares
from ri2n_sdn.weights.strategies import strategy

__all__ = [
    "Decision",
    "LoopSettings",
    "PairDecision",
    "WeightLoop",
]

# Time constant of the bytes per slot. The rates of TCP flows that share a link differ for a second
# or two.
SLOT_MEMORY_S = 2.0
# Bytes per slot are forgotten when none were read for this time.
SLOT_FORGET_S = 5.0
# Pause between two moves of busy slots while the shares stay the same. It doubles with each move,
# up to MAX_BUSY_COOLDOWN_S.
BUSY_COOLDOWN_S = 1.0
MAX_BUSY_COOLDOWN_S = 16.0
# The number of busy slots that may move at once while the shares stay the same.
BUSY_MOVES = 2
# Part of the active pairs that may change in a step before HBSPAN shrinks. Among many pairs, some
# change in every step.
RESTLESS = 0.02
# Traffic has changed when the load of a link differs from its long average by this part of the
# link's capacity.
SURGE = 0.25


@dataclass(frozen=True)
class LoopSettings:
    """Constants of the loop; docs/algorithms.md says why they have these values."""

    strategy: str = "max_min"
    slots: int = 64
    hbspan_min_s: float = 0.25
    hbspan_max_s: float = 4.0
    # The longest HBSPAN while no pair is active, so that new traffic is noticed within this time.
    hbspan_idle_s: float = 1.0
    # A pair that sends at this rate or more is active: it gets a table of its own.
    active_bps: float = 64_000.0
    # A pair stays active for this long after its traffic ends.
    inactive_after_s: float = 10.0
    # A pair's shares stay as they are while all of them would change by less than this.
    hysteresis: float = 0.04
    # After a pair's slots moved, its counters show the new shares only after this time.
    settle_s: float = 1.25
    # A pair that is no longer given is remembered for this long.
    forget_after_s: float = 10.0


@dataclass(frozen=True)
class PairDecision:
    """The shares, rates and slot table that an active pair shall use from now on.

    `share` is a part of 1 per path. `rate_bps` is None where the strategy gives no rates. `moved`
    is the number of slots that differ from the table that is installed.
    """

    share: dict[PathKey, float]
    rate_bps: dict[PathKey, float] | None
    slots: tuple[PathKey, ...]
    moved: int


@dataclass(frozen=True)
class Decision:
    """The decisions for the active pairs, and the time until the next step."""

    pairs: dict[PairKey, PairDecision]
    hbspan_s: float


@dataclass
class _SlotState:
    """What is remembered of an active pair's slots."""

    traffic: FloatArray | None = None  # (n,) bytes per slot, which decay with SLOT_MEMORY_S
    read_s: float = -math.inf  # the time of the last reading of bytes per slot
    ignore_next: bool = True  # the next reading may hold traffic of the table before
    shares_new: bool = True  # the shares changed, and no table was made from bytes since then
    moved_s: float = -math.inf  # the last time that any slot moved
    busy_moved_s: float = -math.inf  # the last time that a busy slot moved
    cooldown_s: float = BUSY_COOLDOWN_S


@dataclass(frozen=True)
class _Seen:
    """What a step has seen: its rows, which of them are active and known (P,), and their traffic.

    `fair_bps` (P,) is what the strategy says is fair; None when it does not say.
    """

    keys: list[PairKey]
    judged: BoolArray
    sample: TrafficSample
    fair_bps: FloatArray | None


class WeightLoop:
    """Calls the strategy with smoothed counters and turns its weights into slot tables."""

    def __init__(self, settings: LoopSettings | None = None) -> None:
        self.settings = settings or LoopSettings()
        self.strategy_name = self.settings.strategy
        """The strategy in use; `set_strategy` changes it."""
        self._strategy = strategy(self.strategy_name)
        self._memory = PairMemory(self.settings.forget_after_s)
        self._slots: dict[PairKey, _SlotState] = {}
        self._share: dict[PairKey, dict[PathKey, float]] = {}  # applied shares of active pairs
        self._alive: dict[PairKey, frozenset[PathKey]] = {}
        self._active_until: dict[PairKey, float] = {}
        self._seen: _Seen | None = None
        self._hbspan = HbSpan(self.settings.hbspan_min_s, self.settings.hbspan_max_s)

    def set_strategy(self, name: str) -> None:
        """Change the strategy. All pairs start anew from shares by capacity.

        Raises BadInput for an unknown name.
        """
        self._strategy = strategy(name)
        self.strategy_name = name
        self._share.clear()

    def configure(self, settings: LoopSettings) -> None:
        """Use other constants from the next step on; strategy and number of slots stay as they are.

        What is remembered of pairs stays, too.
        """
        self.settings = replace(
            settings, strategy=self.settings.strategy, slots=self.settings.slots
        )
        self._memory.forget_after_s = settings.forget_after_s
        self._hbspan.limit(settings.hbspan_min_s, settings.hbspan_max_s)

    def adopt(
        self, now_s: float, pair: PairKey, slots: Sequence[PathKey], alive: Collection[PathKey]
    ) -> None:
        """Take over an active pair whose slot table an earlier controller installed.

        The table says which shares are in force. The pair counts as active, as if its traffic had
        just been seen, and its busy slots stay where they are at first.
        """
        self._active_until[pair] = now_s + self.settings.inactive_after_s
        self._share[pair] = {path: count / len(slots) for path, count in Counter(slots).items()}
        self._alive[pair] = frozenset(alive)
        self._slots[pair] = _SlotState(shares_new=False, moved_s=now_s, busy_moved_s=now_s)

    def step(
        self, now_s: float, pairs: Sequence[PairCounters], capacity_bps: Mapping[str, float]
    ) -> Decision:
        """Take in the counters of all pairs and decide for the active ones.

        `capacity_bps` has the capacity of each link by its id. Odd counters (stale, missing, reset)
        raise no error. The steps may come at irregular intervals. A pair whose traffic is not known
        yet keeps its table, and gets no rates.
        """
        structure = self._memory.update(now_s, pairs, capacity_bps)
        rows = structure.pairs
        sample, previous = self._sample(now_s, structure)
        active, activity_changed = self._activity(now_s, structure)
        if not rows:
            self._seen = None
            return Decision({}, self._hbspan.step(activity_changed, self.settings.hbspan_idle_s))
        weights = self._strategy(sample, previous)
        crowded = self._memory.crowded()
        known = np.array([pair.known[0] for pair in rows], dtype=np.bool_)
        held, moved_rows = self._hold(weights, previous, active & known, structure)
        restless = int((moved_rows & active).sum())
        given = {pair.key for pair in pairs}
        judged = active & known & np.array([pair.key in given for pair in rows], dtype=np.bool_)
        self._seen = _Seen([pair.key for pair in rows], judged, sample, weights.fair_bps)
        decisions: dict[PairKey, PairDecision] = {}
        for row in np.flatnonzero(active):
            pair = rows[row]
            if pair.key not in given:
                continue
            if not known[row]:
                share = self._share.get(pair.key, {})
                decisions[pair.key] = PairDecision(share, None, pair.slots, 0)
                continue
            decision = self._decide(
                now_s, pair, held[row], weights, int(row), bool(moved_rows[row]), crowded[row]
            )
            decisions[pair.key] = decision
            restless += decision.moved > 0 and not moved_rows[row]
        memory = self._memory
        # Whether some link carries clearly more or less than its long average.
        change = memory.link_load_bps(memory.fast_bps) - memory.link_load_bps(memory.slow_bps)
        surge = bool((np.abs(change) >= SURGE * structure.capacity_bps).any())
        changed = activity_changed or restless > RESTLESS * active.sum() or surge
        return Decision(
            decisions,
            self._hbspan.step(changed, None if active.any() else self.settings.hbspan_idle_s),
        )

    def fair_bps(self) -> dict[PairKey, float]:
        """The max-min fair rates of the active pairs of the last step that a link limits.

        They are the same under every strategy. `max_min` has computed them in the step; for others
        they are computed here, so that no decision waits for them or fails with them.
        """
        seen = self._seen
        if seen is None:
            return {}
        fair_bps = seen.fair_bps
        if fair_bps is None:
            fair_bps = fair_rates(seen.sample, seen.judged)
        limited = np.flatnonzero(seen.judged & ~np.isnan(fair_bps))
        return {seen.keys[row]: float(fair_bps[row]) for row in limited}

    def sent_bps(self) -> dict[PairKey, dict[PathKey, float]]:
        """The rate at which each pair sent over each of its paths, as a short average.

        The rates are those of the last step.
        """
        return self._memory.sent_bps()

    def _sample(self, now_s: float, structure: Structure) -> tuple[TrafficSample, FloatArray]:
        """The input of the strategy: the sample, and the shares (P, K) in force."""
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
        """The rows that are active (P,), and whether they differ from those of the last step.

        Forgets what was remembered of pairs that are not active any more.
        """
        rate = self._memory.fast_bps.sum(axis=1)
        keys = [pair.key for pair in structure.pairs]
        busy = {keys[row] for row in np.flatnonzero(rate >= self.settings.active_bps)}
        busy |= {pair.key for pair in structure.pairs if not pair.known[0]} & self._slots.keys()
        self._active_until.update(dict.fromkeys(busy, now_s + self.settings.inactive_after_s))
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
        """Apply hysteresis and remember the shares that are now in force.

        Returns the shares (P, K), and which rows have new ones (P,).

        The shares of a new pair, and of a pair whose set of live paths changed, are followed at
        once. So are the shares of a pair where one falls to the probing floor. If such a share
        stayed a little above the floor, one flow would stay on that path for as long as it lasts,
        and other pairs would have to share the path with it.
        """
        closes = (weights.share <= slot_tables.CLOSED_SHARE) & (previous > slot_tables.CLOSED_SHARE)
        always = np.zeros(len(structure.pairs), dtype=np.bool_)
        for row in np.flatnonzero(active):
            pair = structure.pairs[row]
            live_paths = frozenset(path.path for path in pair.paths if path.alive)
            is_new = pair.key not in self._share or self._alive.get(pair.key) != live_paths
            always[row] = is_new or closes[row].any()
            self._alive[pair.key] = live_paths
        held, moved = hold_small_changes(weights.share, previous, self.settings.hysteresis, always)
        for row in np.flatnonzero(active & (moved | always)):
            pair = structure.pairs[row]
            paths = (path.path for path in pair.paths)
            self._share[pair.key] = dict(zip(paths, held[row].tolist(), strict=False))
        return held, moved | always

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
        """The decision for one active pair, whose shares are `share` (K,).

        A new table moves flows, and each flow that moves may be reordered. So the number of busy
        slots that may move depends on why they would move:

        * The shares have changed: all busy slots may move. This holds until a table was made from
          the bytes per slot, since the first table after a change may have to do without them.
        * The shares are the same, but the bytes per slot do not fit them: BUSY_MOVES slots may
          move, then there is a pause, which doubles with each such move. A TCP flow takes what its
          link leaves it, so its bytes change when it moves. Without the pause the slots of a pair
          could move back and forth for ever.

        After a move the bytes per slot that were measured before say little, since all flows of the
        pair run at other rates. They keep a quarter of their weight, and the next reading is
        ignored, because it still holds traffic of the table before.

        A strategy that gives no rates (those of the papers) derives its shares from the same bytes.
        For it the flows on full paths are made comparable first (`slots.flow_weights`).
        """
        state = self._slots[pair.key]
        self._read_slots(now_s, pair, state)
        if shares_moved:
            state.shares_new = True
            state.cooldown_s = BUSY_COOLDOWN_S
        paths = [path.path for path in pair.paths]
        column_of = {path: column for column, path in enumerate(paths)}
        n = self.settings.slots
        installed = [column_of.get(slot, -1) for slot in pair.slots] if pair.slots else None
        shares = share[: len(paths)].tolist()
        busy_moves = BUSY_MOVES if now_s - state.busy_moved_s >= state.cooldown_s else 0
        traffic = state.traffic.tolist() if state.traffic is not None else None
        if sum(shares) <= 0.0:  # no path is alive: the table stays, since nothing gets through
            table = slot_tables.SlotTable(tuple(installed or ()), 0)
            slots, moved = pair.slots, 0
        else:
            alive = [path.alive for path in pair.paths]
            full = crowded[: len(paths)].tolist()
            if traffic is not None and installed is not None and weights.rate_bps is None:
                traffic = slot_tables.flow_weights(traffic, installed, full)
            table = slot_tables.assign(
                *(shares, alive, installed, traffic, n),
                busy_moves=None if state.shares_new else busy_moves,
                crowded=full,
            )
            slots = tuple(paths[column] for column in table.slots)
            moved = table.moved if installed is not None and len(installed) == n else n
        if moved:
            state.ignore_next = True
            state.moved_s = now_s
        if table.busy_moved:
            if not state.shares_new:
                state.cooldown_s = min(2.0 * state.cooldown_s, MAX_BUSY_COOLDOWN_S)
            state.busy_moved_s = now_s
            if state.traffic is not None:
                state.traffic = state.traffic * 0.25
        if traffic is not None:
            state.shares_new = False
        rates = weights.rate_bps
        return PairDecision(
            share=dict(zip(paths, shares, strict=True)),
            rate_bps=None if rates is None else dict(zip(paths, rates[row].tolist(), strict=False)),
            slots=slots,
            moved=moved,
        )

    def _read_slots(self, now_s: float, pair: PairCounters, state: _SlotState) -> None:
        """Take in the bytes per slot, unless they may belong to the table before the last one.

        Where they are not read for long, as of a silent fast path, the ones before say nothing any
        more.
        """
        if pair.slot_bytes is None or len(pair.slot_bytes) != self.settings.slots:
            if now_s - state.read_s > SLOT_FORGET_S:
                state.traffic = None
            return
        slot_bytes = np.maximum(np.array(pair.slot_bytes, dtype=np.float64), 0.0)
        elapsed_s = now_s - state.read_s
        state.read_s = now_s
        if state.ignore_next:
            state.ignore_next = False
            return
        if state.traffic is None or len(state.traffic) != len(slot_bytes):
            state.traffic = slot_bytes if np.any(pair.slot_bytes) else None
        else:
            decay = math.exp(-max(elapsed_s, 0.0) / SLOT_MEMORY_S)
            state.traffic = state.traffic * decay + slot_bytes
