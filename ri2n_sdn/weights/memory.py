# SPDX-License-Identifier: Apache-2.0
"""The memory of the weight loop: last counters and moving averages of every pair and path.

They are arrays over pairs x paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ri2n_sdn.fabric.model import PairKey, PathKey
from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray
from ri2n_sdn.rates.load import FULL, link_load
from ri2n_sdn.weights.counters import PairCounters
from ri2n_sdn.weights.filters import MovingAverage, counter_delta
from ri2n_sdn.weights.sample import TrafficSample

__all__ = ["PairMemory", "Structure"]

# Time constant of the short average: it reacts to new traffic within two steps of 0.25 s.
FAST_S = 0.5
# Time constant of S and R in the sample. It is long enough that the counters of two hosts agree,
# though they are read at different times.
WINDOW_S = 1.0
# Time constant of the long average: it keeps the demand of intermittent traffic over its gaps.
SLOW_S = 3.0
# Counters that do not change for a shorter time may not have been refreshed (Open vSwitch does that
# every 0.25..0.5 s). After this time they count as silence.
NO_NEWS_S = 0.6
# The capacity of a link when no capacity of any link is known.
UNKNOWN_CAPACITY_BPS = 1e9
# Each path has four counters: sent bytes, sent packets, received bytes, received packets.
CHANNELS = 4


@dataclass(frozen=True)
class Structure:
    """The pairs of one step as arrays: rows are pairs, columns are their paths in order.

    The pairs that were given come first, then the ones that are only remembered. Rows with fewer
    paths are padded, as in `TrafficSample`.
    """

    pairs: list[PairCounters]
    alive: BoolArray  # (P, K) False on padding
    path_links: IntArray  # (P, K, L) indices of links; -1 on padding
    sender: IntArray  # (P,) index of the host
    receiver: IntArray  # (P,) index of the host
    capacity_bps: FloatArray  # (E,)
    path_capacity_bps: FloatArray  # (P, K) the capacity of the narrowest link; 0 on padding


class PairMemory:
    """Turns counters into rates, for all pairs at once.

    Pairs that are no longer given are kept unchanged for `forget_after_s`.
    """

    def __init__(self, forget_after_s: float) -> None:
        self.forget_after_s = forget_after_s
        self._given_s: dict[PairKey, float] = {}
        self._layout: list[tuple[PairKey, tuple[PathKey, ...]]] = []
        self._last: IntArray = np.zeros((0, 0, CHANNELS), dtype=np.int64)
        self._updated_s: FloatArray = np.zeros((0, 2))
        self._fast = MovingAverage(FAST_S, (0, 0))
        self._slow = MovingAverage(SLOW_S, (0, 0))
        # Sent and received bytes.
        self._window = MovingAverage(WINDOW_S, (0, 0, 2))
        self._structure: Structure | None = None

    @property
    def fast_bps(self) -> FloatArray:
        """The sent rates (P, K), as a short average."""
        return self._fast.rate * 8.0

    @property
    def slow_bps(self) -> FloatArray:
        """The sent rates (P, K), as a long average."""
        return self._slow.rate * 8.0

    def sent_bps(self) -> dict[PairKey, dict[PathKey, float]]:
        """The short averages by pair and path, of all pairs that sent anything."""
        if self._structure is None:
            return {}
        return {
            pair.key: dict(zip((path.path for path in pair.paths), row.tolist(), strict=False))
            for pair, row in zip(self._structure.pairs, self.fast_bps, strict=True)
            if row.any()
        }

    def link_load_bps(self, rate_bps: FloatArray) -> FloatArray:
        """The load (E,) of each link: the sum of the rates (P, K) of its paths."""
        assert self._structure is not None
        return link_load(rate_bps, self._structure.path_links, len(self._structure.capacity_bps))

    def crowded(self) -> BoolArray:
        """Whether a link of each path (P, K) is full."""
        assert self._structure is not None
        load_bps = self.link_load_bps(self.fast_bps)
        full = np.append(load_bps >= FULL * self._structure.capacity_bps, False)
        return np.asarray(full[self._structure.path_links].any(axis=2), dtype=np.bool_)

    def update(
        self, now_s: float, given: Sequence[PairCounters], capacity_bps: Mapping[str, float]
    ) -> Structure:
        """Take in one reading of all `given` pairs, and return the structure of the step."""
        for pair in given:
            self._given_s[pair.key] = now_s
        rows = list(given)
        if self._structure is not None and len(self._given_s) > len(rows):
            keep = {key for key, at in self._given_s.items() if now_s - at <= self.forget_after_s}
            self._given_s = {key: at for key, at in self._given_s.items() if key in keep}
            present = {pair.key for pair in given}
            rows += [p for p in self._structure.pairs if p.key in keep and p.key not in present]
        structure = _structure(rows, capacity_bps)
        counters = _counters(rows, structure.alive.shape[1])
        self._rearrange(now_s, structure, counters)
        self._structure = structure
        self._read(now_s, structure, counters, len(given))
        return structure

    def sample(self, settled: BoolArray) -> TrafficSample:
        """The last update as the strategies see it; `settled` (P,) as in `TrafficSample`."""
        structure = self._structure
        assert structure is not None
        window = self._window.rate * WINDOW_S
        return TrafficSample(
            sent_bytes=window[:, :, 0],
            received_bytes=window[:, :, 1],
            alive=structure.alive,
            sender=structure.sender,
            receiver=structure.receiver,
            receiver_link=_last_link(structure.path_links),
            path_links=structure.path_links,
            capacity_bps=structure.capacity_bps,
            fast_bps=self.fast_bps,
            slow_bps=self.slow_bps,
            settled=settled,
        )

    def _rearrange(self, now_s: float, structure: Structure, counters: IntArray) -> None:
        """Bring the arrays into the order of the new rows and columns.

        New elements start with the present reading, so that their first difference is 0.
        """
        layout = [(pair.key, tuple(path.path for path in pair.paths)) for pair in structure.pairs]
        if layout == self._layout and counters.shape == self._last.shape:
            return
        old_rows = {key: row for row, (key, _) in enumerate(self._layout)}
        columns = self._last.shape[1]
        take = np.full(counters.shape[:2], -1, dtype=np.int64)
        updated_s = np.full((len(layout), 2), now_s)
        for row, (key, paths) in enumerate(layout):
            old = old_rows.get(key)
            if old is None:
                continue
            updated_s[row] = self._updated_s[old]
            old_columns = {path: column for column, path in enumerate(self._layout[old][1])}
            for column, path in enumerate(paths):
                if path in old_columns:
                    take[row, column] = old * columns + old_columns[path]
        taken = take >= 0
        last = counters.copy()
        last[taken] = self._last.reshape(-1, CHANNELS)[take[taken]]
        sides = np.where(taken[:, :, None], take[:, :, None] * 2 + np.arange(2), -1)
        self._last = last
        self._updated_s = updated_s
        self._fast = self._fast.rearranged(take)
        self._slow = self._slow.rearranged(take)
        self._window = self._window.rearranged(sides)
        self._layout = layout

    def _read(self, now_s: float, structure: Structure, counters: IntArray, given: int) -> None:
        """Add the differences since the last reading to the averages.

        The two sides of a pair (sender and receiver) are read independently, since each host
        refreshes its counters at other moments. Open vSwitch refreshes them so seldom that one poll
        may find nothing new, and the next one twice as much. So a side whose counters have not
        changed is left out until that has lasted for NO_NEWS_S; then it counts as silence. The
        first `given` rows are read where their traffic is known, the remembered ones are not.
        """
        if not structure.pairs:
            return
        delta = counter_delta(counters, self._last).astype(np.float64)
        # (P, 2) for the sender and the receiver.
        moved = delta.reshape(*delta.shape[:2], 2, 2).any(axis=(1, 3))
        elapsed_s = now_s - self._updated_s
        read = moved | (elapsed_s >= NO_NEWS_S)
        known = np.array([pair.known for pair in structure.pairs], dtype=np.bool_)
        known[given:] = True
        read[given:] = False
        read &= known & (elapsed_s > 0.0)
        elapsed_s = np.where(read, elapsed_s, 0.0)
        # A host that was away reports all its traffic at once. No path carries more than its
        # narrowest link does.
        max_bytes_per_s = structure.path_capacity_bps[:, :, None] / 8.0
        amount = np.minimum(delta[:, :, ::2], max_bytes_per_s * elapsed_s[:, None])
        self._window.update(amount, elapsed_s[:, None])
        self._fast.update(amount[:, :, 0], elapsed_s[:, :1])
        self._slow.update(amount[:, :, 0], elapsed_s[:, :1])
        self._last = np.where(np.repeat(read, 2, axis=1)[:, None], counters, self._last)
        self._updated_s = np.where(read | ~known, now_s, self._updated_s)


def _structure(rows: list[PairCounters], capacity_bps: Mapping[str, float]) -> Structure:
    """The arrays of `rows`; hosts and links get indices in the order in which they appear."""
    width = max((len(pair.paths) for pair in rows), default=1) or 1
    depth = max((len(path.links) for pair in rows for path in pair.paths), default=2) or 2
    hosts: dict[str, int] = {}
    link_ids: dict[str, int] = {}
    alive = np.zeros((len(rows), width), dtype=np.bool_)
    flat: list[int] = []
    no_path = [-1] * depth
    for row, pair in enumerate(rows):
        hosts.setdefault(pair.sender, len(hosts))
        hosts.setdefault(pair.receiver, len(hosts))
        for column, path in enumerate(pair.paths):
            ids = [link_ids.setdefault(link, len(link_ids)) for link in path.links]
            flat += ids
            flat += no_path[len(ids) :]
            alive[row, column] = path.alive and bool(ids)
        flat += no_path * (width - len(pair.paths))
    known_bps = [rate for rate in capacity_bps.values() if rate > 0.0]
    default_bps = max(known_bps, default=UNKNOWN_CAPACITY_BPS)
    rates_bps = [capacity_bps.get(link, 0.0) or default_bps for link in link_ids]
    capacity = np.array(rates_bps, dtype=np.float64)
    path_links = np.array(flat, dtype=np.int64).reshape(len(rows), width, depth)
    # Padding (-1) finds the last entry.
    narrowest = np.append(capacity, np.inf)[path_links].min(axis=2)
    return Structure(
        pairs=rows,
        alive=alive,
        path_links=path_links,
        sender=np.array([hosts[pair.sender] for pair in rows], dtype=np.int64),
        receiver=np.array([hosts[pair.receiver] for pair in rows], dtype=np.int64),
        capacity_bps=capacity,
        path_capacity_bps=np.where(np.isfinite(narrowest), narrowest, 0.0),
    )


def _counters(rows: list[PairCounters], width: int) -> IntArray:
    """The cumulative counters (P, K, CHANNELS); 0 on padding."""
    flat: list[int] = []
    for pair in rows:
        for path in pair.paths:
            flat += (path.sent.bytes, path.sent.packets, path.received.bytes, path.received.packets)
        flat += [0] * (CHANNELS * (width - len(pair.paths)))
    return np.array(flat, dtype=np.int64).reshape(len(rows), width, CHANNELS)


def _last_link(path_links: IntArray) -> IntArray:
    """The index of the last link of each path (P, K); -1 on padding."""
    count = (path_links >= 0).sum(axis=2)
    last = np.take_along_axis(path_links, np.maximum(count - 1, 0)[:, :, None], axis=2)[:, :, 0]
    return np.asarray(np.where(count > 0, last, -1), dtype=np.int64)
