"""What the loop remembers of every pair and path:

last counters and moving averages, as arrays over pairs x paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ri2n_sdn.fabric.model import PairKey, PathKey
from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray
from ri2n_sdn.rates.load import link_load
from ri2n_sdn.weights.counters import PairCounters
from ri2n_sdn.weights.filters import MovingAverage, counter_delta
from ri2n_sdn.weights.sample import TrafficSample

__all__ = ["PairMemory", "Structure"]

FAST_S = 0.5  # reacts to new traffic in two steps of 0.25 s
# S and R of the sample: long enough that counters of two hosts, read at different times, agree
WINDOW_S = 1.0
SLOW_S = 3.0  # holds a demand up over the gaps of intermittent traffic
# counters that stand still for less may just not have been refreshed (OVS: every 0.25..0.5 s)
NO_NEWS_S = 0.6
UNKNOWN_CAPACITY_BPS = 1e9  # when no link's capacity is known
CHANNELS = 4  # sent bytes, sent packets, received bytes, received packets
SENDER_SIDE = np.array([True, True, False, False])


@dataclass(frozen=True)
class Structure:
    """The pairs of one step as arrays:

    rows are `pairs` (given, then remembered ones), columns their paths in order.
    """

    pairs: list[PairCounters]
    alive: BoolArray  # (P, K)
    path_links: IntArray  # (P, K, L)
    sender: IntArray  # (P,)
    receiver: IntArray  # (P,)
    capacity_bps: FloatArray  # (E,)
    path_capacity_bps: FloatArray  # (P, K) the narrowest link of each path; 0 on padding
    links: list[str]  # (E,) ids


class PairMemory:
    """Counters to rates for all pairs at once.

    Pairs that are no longer given are kept for a while, unchanged.
    """

    def __init__(self, forget_after_s: float) -> None:
        self._forget_after_s = forget_after_s
        self._given_s: dict[PairKey, float] = {}
        self._layout: list[tuple[PairKey, tuple[PathKey, ...]]] = []
        self._last: IntArray = np.zeros((0, 0, CHANNELS), dtype=np.int64)
        self._updated_s: FloatArray = np.zeros((0, 2))
        self._fast = MovingAverage(FAST_S, (0, 0))
        self._slow = MovingAverage(SLOW_S, (0, 0))
        self._window = MovingAverage(WINDOW_S, (0, 0, CHANNELS))
        self._interval_s = WINDOW_S
        self._structure: Structure | None = None

    @property
    def fast_bps(self) -> FloatArray:
        """(P, K) sent rate, short average."""
        return self._fast.rate * 8.0

    @property
    def slow_bps(self) -> FloatArray:
        """(P, K) sent rate, long average."""
        return self._slow.rate * 8.0

    def sent_bps(self) -> dict[PairKey, dict[PathKey, float]]:
        """The same by pair and path, of pairs that sent anything."""
        if self._structure is None:
            return {}
        rates = self.fast_bps
        return {
            pair.key: {path.path: float(rate) for path, rate in zip(pair.paths, row, strict=False)}
            for pair, row in zip(self._structure.pairs, rates, strict=True)
            if row.any()
        }

    def link_load_bps(self, rate_bps: FloatArray) -> FloatArray:
        """(E,) what the paths' rates (P, K) add up to on each link."""
        assert self._structure is not None
        return link_load(rate_bps, self._structure.path_links, len(self._structure.links))

    def crowded(self, part: float) -> BoolArray:
        """(P, K) whether a link of the path carries `part` of its capacity or more."""
        assert self._structure is not None
        full = np.append(
            self.link_load_bps(self.fast_bps) >= part * self._structure.capacity_bps, False
        )
        return np.asarray(full[self._structure.path_links].any(axis=2), dtype=np.bool_)

    def update(
        self, now_s: float, given: Sequence[PairCounters], capacity_bps: Mapping[str, float]
    ) -> Structure:
        """Take in one reading of all `given` pairs; returns the step's structure."""
        for pair in given:
            self._given_s[pair.key] = now_s
        rows = list(given)
        if self._structure is not None and len(self._given_s) > len(rows):
            keep = {key for key, at in self._given_s.items() if now_s - at <= self._forget_after_s}
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
        """The strategies' view of the last update."""
        structure = self._structure
        assert structure is not None
        window = self._window.rate * WINDOW_S
        padded = structure.path_links
        return TrafficSample(
            interval_s=WINDOW_S,
            sent_bytes=window[:, :, 0],
            sent_packets=window[:, :, 1],
            received_bytes=window[:, :, 2],
            received_packets=window[:, :, 3],
            alive=structure.alive,
            sender=structure.sender,
            receiver=structure.receiver,
            sender_link=padded[:, :, 0],
            receiver_link=_last_link(padded),
            path_links=padded,
            capacity_bps=structure.capacity_bps,
            fast_bps=self.fast_bps,
            slow_bps=self.slow_bps,
            settled=settled,
        )

    def _rearrange(self, now_s: float, structure: Structure, counters: IntArray) -> None:
        """Bring the arrays into the order of the new rows and columns.

        New elements start with the present reading.
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
        known = take >= 0
        last = counters.copy()
        last[known] = self._last.reshape(-1, CHANNELS)[take[known]]
        channels = np.where(
            known[:, :, None], take[:, :, None] * CHANNELS + np.arange(CHANNELS), -1
        )
        self._last = last
        self._updated_s = updated_s
        self._fast = self._fast.rearranged(take)
        self._slow = self._slow.rearranged(take)
        self._window = self._window.rearranged(channels)
        self._layout = layout

    def _read(self, now_s: float, structure: Structure, counters: IntArray, given: int) -> None:
        """Differences to rates.

        A side whose counters stand still counts only once it has done so for NO_NEWS_S.
        """
        if not structure.pairs:
            return
        delta = counter_delta(counters, self._last).astype(np.float64)
        moved = np.stack(
            [delta[:, :, :2].any(axis=(1, 2)), delta[:, :, 2:].any(axis=(1, 2))], axis=1
        )
        elapsed_s = now_s - self._updated_s
        read = moved | (elapsed_s >= NO_NEWS_S)
        read[given:] = False
        read &= elapsed_s > 0.0
        elapsed_s = np.where(read, elapsed_s, 0.0)
        # A host that was away reports all it missed at once: no path carries more than its
        # narrowest link.
        most = structure.path_capacity_bps / 8.0
        sender_s, receiver_s = elapsed_s[:, :1], elapsed_s[:, 1:]
        sent = np.minimum(delta[:, :, 0], most * sender_s)
        shape = sent.shape
        self._fast.update(sent, np.broadcast_to(sender_s, shape))
        self._slow.update(sent, np.broadcast_to(sender_s, shape))
        per_channel_s = np.where(SENDER_SIDE, sender_s[:, :, None], receiver_s[:, :, None])
        amount = delta.copy()
        amount[:, :, 0] = sent
        amount[:, :, 2] = np.minimum(delta[:, :, 2], most * receiver_s)
        self._window.update(amount, np.broadcast_to(per_channel_s, amount.shape))
        channel_read = np.where(SENDER_SIDE, read[:, :1], read[:, 1:])[:, None, :]
        self._last = np.where(channel_read, counters, self._last)
        self._updated_s = np.where(read, now_s, self._updated_s)


def _structure(rows: list[PairCounters], capacity_bps: Mapping[str, float]) -> Structure:
    """Index hosts and links of the rows, in the order they appear."""
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
    known = [rate for rate in capacity_bps.values() if rate > 0.0]
    unknown = max(known, default=UNKNOWN_CAPACITY_BPS)
    capacity = np.array(
        [capacity_bps.get(link, 0.0) or unknown for link in link_ids], dtype=np.float64
    )
    path_links = np.array(flat, dtype=np.int64).reshape(len(rows), width, depth)
    narrowest = np.where(path_links >= 0, np.append(capacity, np.inf)[path_links], np.inf).min(
        axis=2
    )
    return Structure(
        pairs=rows,
        alive=alive,
        path_links=path_links,
        sender=np.array([hosts[pair.sender] for pair in rows], dtype=np.int64),
        receiver=np.array([hosts[pair.receiver] for pair in rows], dtype=np.int64),
        capacity_bps=capacity,
        path_capacity_bps=np.where(np.isfinite(narrowest), narrowest, 0.0),
        links=list(link_ids),
    )


def _counters(rows: list[PairCounters], width: int) -> IntArray:
    """(P, K, 4) cumulative counters; 0 on padding."""
    flat: list[int] = []
    for pair in rows:
        for path in pair.paths:
            flat += (path.sent_bytes, path.sent_packets, path.received_bytes, path.received_packets)
        flat += [0] * (CHANNELS * (width - len(pair.paths)))
    return np.array(flat, dtype=np.int64).reshape(len(rows), width, CHANNELS)


def _last_link(path_links: IntArray) -> IntArray:
    """(P, K) the last link of each path; -1 on padding."""
    count = (path_links >= 0).sum(axis=2)
    last = np.take_along_axis(path_links, np.maximum(count - 1, 0)[:, :, None], axis=2)[:, :, 0]
    return np.asarray(np.where(count > 0, last, -1), dtype=np.int64)
