# SPDX-License-Identifier: Apache-2.0
"""Fluid simulation of the paper's figure 4: TCP streams on slots drive the real WeightLoop.

A stream's hash is a slot. Streams share links max-min fairly, as TCP does on average, and approach
their rate with a lag. Counters are those that Open vSwitch would show: refreshed every 0.25 s, at
another moment on each host, and reset when a group is changed.

`python -m ri2n_sdn.weights.simulate` prints the table of figure 4 and the chart of figure 9.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import numpy as np

from ri2n_sdn.fabric.model import PairKey, PathKey
from ri2n_sdn.rates.arrays import FloatArray
from ri2n_sdn.rates.many_paths import Network, max_min_rates
from ri2n_sdn.rates.one_path import fair_rates
from ri2n_sdn.weights.counters import Count, PairCounters, PathCounters
from ri2n_sdn.weights.loop import Decision, LoopSettings, WeightLoop
from ri2n_sdn.weights.slots import default_slots
from ri2n_sdn.weights.strategies import STRATEGIES

__all__ = ["FIGURE_4", "FIGURE_9", "Fault", "SimulatedRun", "chart", "run", "table"]

LINK_BPS = 100e6
# Goodput as a part of a link's rate, with frames of 1,500 bytes.
GOODPUT = 0.956
# Bytes that Open vSwitch counts per byte of goodput.
WIRE = 1.0 / 0.97
# The rate of a client's acknowledgements, as a part of the rate that they acknowledge.
ACK_PART = 0.025
PING_BPS = 800.0
SERVER = "A"
TICK_S = 0.05
# Open vSwitch refreshes its counters after this time.
REFRESH_S = 0.25
# Time constant with which a stream approaches its fair rate.
TCP_LAG_S = 0.15
# Goodput is counted from this time on.
MEASURED_FROM_S = 3.0
# The spread (standard deviation of the logarithm) of the rates that TCP streams get on one link.
UNFAIRNESS = 0.25
CHART_COLUMNS = 90

FIGURE_4: Mapping[str, Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "a": {"A": (0,), "B": (0,)},
        "b": {"A": (0, 1), "B": (0, 1)},
        "c": {"A": (0, 1), "B": (0, 1), "C": (0, 1)},
        "d": {"A": (0, 1), "B": (0,), "C": (0, 1)},
        "e": {"A": (0, 1), "B": (0, 1), "C": (0, 1), "D": (0, 1)},
        "f": {"A": (0, 1), "B": (0,), "C": (0, 1), "D": (0, 1)},
        "g": {"A": (0, 1), "B": (0,), "C": (0, 1), "D": (1,)},
        "h": {"A": (0, 1), "B": (0,), "C": (0, 1), "D": (0,)},
    }
)


@dataclass(frozen=True)
class Fault:
    """At the time `at_s`, the link `link` of `host` goes down, or comes up again."""

    at_s: float
    host: str
    link: int
    up: bool = False


# The paper's figure 9 and its reverse, on topology e: B loses link 1 (which makes f), then D loses
# it (which makes h), then both get it back.
FIGURE_9 = (
    Fault(20, "B", 1),
    Fault(40, "D", 1),
    Fault(60, "D", 1, up=True),
    Fault(80, "B", 1, up=True),
)


@dataclass
class SimulatedRun:
    """One run: the goodput of each client, and the decisions of every step.

    `goodput_bps` and `fair_bps` are those of bulk clients, over the measured window. The lists hold
    pairs of (time in s, value): the shares by client and path, the goodput by client in bit/s,
    HBSPAN in s, and what the loop takes for fair on the wire, by client that a link limits.
    """

    topology: str
    strategy: str
    goodput_bps: dict[str, float] = field(default_factory=dict)
    fair_bps: dict[str, float] = field(default_factory=dict)
    shares: list[tuple[float, dict[str, dict[PathKey, float]]]] = field(default_factory=list)
    goodput_over_time: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    hbspan_over_time: list[tuple[float, float]] = field(default_factory=list)
    fair_over_time: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    slots_moved: int = 0

    @property
    def total_of_optimum(self) -> float:
        """The sum of goodput, as a part of the sum of max-min fair rates."""
        return sum(self.goodput_bps.values()) / sum(self.fair_bps.values())

    @property
    def worst_share(self) -> float:
        """The goodput of the worst client, as a part of its max-min fair rate."""
        return min(self.goodput_bps[c] / self.fair_bps[c] for c in self.fair_bps)

    def final_share(self, client: str, link: int) -> float:
        """The last share that the client gave link `link` (0 or 1)."""
        return _share_of_link(self.shares[-1][1].get(client, {}), link)


def _share_of_link(share: Mapping[PathKey, float], link: int) -> float:
    return sum(s for (own, _, _), s in share.items() if own == link + 1)


@dataclass
class _Pair:
    """A pair with its slot table, and its counters as they are and as Open vSwitch shows them."""

    sender: str
    receiver: str
    paths: list[PathKey]
    slots: tuple[PathKey, ...]
    sent: dict[PathKey, float]
    shown: dict[str, dict[PathKey, float]]
    """By host: the bytes per path that its Open vSwitch shows."""
    slot_bytes: FloatArray
    slot_shown: FloatArray
    slot_polled: FloatArray
    own_table: bool = False

    def live_slot(self, slot: int, alive: Mapping[PathKey, bool]) -> PathKey | None:
        """The path that Open vSwitch uses for a slot: its own, or that of the next live slot."""
        n = len(self.slots)
        return next((p for i in range(n) if alive[p := self.slots[(slot + i) % n]]), None)


@dataclass
class _Stream:
    """A stream of a pair: the slot of its hash, its largest rate, and its present rate.

    Streams share a link in the ratio of `weight`, since TCP is not exactly fair.
    """

    pair: _Pair
    slot: int
    max_bps: float
    rate_bps: float = 0.0
    weight: float = 1.0


def run(
    topology: str,
    strategy: str,
    *,
    streams: int = 8,
    seconds: float = 13.0,
    seed: int = 1,
    faults: Sequence[Fault] = (),
    pings: frozenset[str] = frozenset(),
) -> SimulatedRun:
    """Simulate bulk TCP from every client to host A for `seconds`.

    Clients in `pings` only ping. Goodput is counted from MEASURED_FROM_S on. The rates that TCP
    streams get on one link are drawn anew every second, from `seed` (UNFAIRNESS).
    """
    return _Simulation(topology, strategy, streams, seed, pings).run(seconds, faults)


class _Simulation:
    def __init__(
        self, topology: str, strategy: str, streams: int, seed: int, pings: frozenset[str]
    ) -> None:
        self.topology, self.strategy, self.pings = topology, strategy, pings
        self.hosts = FIGURE_4[topology]
        self.clients = [h for h in self.hosts if h != SERVER]
        self.bulk = [c for c in self.clients if c not in pings]
        self.random = random.Random(seed)
        self.loop = WeightLoop(LoopSettings(strategy=strategy))
        self.n = self.loop.settings.slots
        self.up = {(h, link): True for h, links in self.hosts.items() for link in links}
        self.capacity = {f"{h}:{link + 1}>": LINK_BPS for h, link in self.up}
        self.capacity |= {f">{h}:{link + 1}": LINK_BPS for h, link in self.up}
        self.link_ids = {link: number for number, link in enumerate(self.capacity)}
        self.goodput_bps = np.array(list(self.capacity.values())) * GOODPUT
        self.pairs: dict[PairKey, _Pair] = {}
        self.streams: list[_Stream] = []
        for client in self.clients:
            self.pairs[client, SERVER] = self._pair(client, SERVER)
            self.pairs[SERVER, client] = self._pair(SERVER, client)
            count, max_bps = (1, PING_BPS) if client in pings else (streams, math.inf)
            for _ in range(count):
                for key, limit_bps in (((client, SERVER), max_bps), ((SERVER, client), 0.0)):
                    slot = self.random.randrange(self.n)
                    self.streams.append(_Stream(self.pairs[key], slot, limit_bps))
        self.refresh_at = {host: self.random.uniform(0.0, REFRESH_S) for host in self.hosts}

    def _pair(self, sender: str, receiver: str) -> _Pair:
        common = [link for link in self.hosts[sender] if link in self.hosts[receiver]]
        paths = [(link + 1, link + 1, 0) for link in common]
        slots = default_slots(paths, [LINK_BPS] * len(paths), self.n)
        sent = dict.fromkeys(paths, 0.0)
        shown = {sender: dict(sent), receiver: dict(sent)}
        return _Pair(sender, receiver, paths, slots, sent, shown, *np.zeros((3, self.n)))

    def run(self, seconds: float, faults: Sequence[Fault]) -> SimulatedRun:
        """Simulate tick by tick; the controller steps after each HBSPAN and at each fault."""
        received = dict.fromkeys(self.clients, 0.0)
        one = SimulatedRun(self.topology, self.strategy)
        step_at, waiting = 0.0, sorted(faults, key=lambda f: f.at_s)
        for tick in range(round(seconds / TICK_S)):
            now = tick * TICK_S
            while waiting and waiting[0].at_s <= now + 1e-9:
                fault = waiting.pop(0)
                self.up[fault.host, fault.link] = fault.up
                step_at = now  # the controller acts on port events at once
            if tick % round(1.0 / TICK_S) == 0:
                for stream in self.streams:
                    stream.weight = math.exp(self.random.gauss(0.0, UNFAIRNESS))
            self._flow(now)
            if now >= step_at - 1e-9:
                moved, share, decision = self._step(now)
                one.slots_moved += moved
                step_at = now + decision.hbspan_s
                one.shares.append((now, share))
                one.hbspan_over_time.append((now, decision.hbspan_s))
                fair = self.loop.fair_bps().items()
                one.fair_over_time.append((now, {pair[0]: bps for pair, bps in fair}))
            rates = dict.fromkeys(self.clients, 0.0)
            for stream in self.streams:
                if stream.pair.receiver == SERVER:
                    rates[stream.pair.sender] += stream.rate_bps
            one.goodput_over_time.append((now, rates))
            if now >= MEASURED_FROM_S:
                for client in self.clients:
                    received[client] += rates[client] * TICK_S
        window = max(seconds - MEASURED_FROM_S, TICK_S)
        one.goodput_bps = {client: received[client] / window for client in self.bulk}
        one.fair_bps = self.fair_rates()
        return one

    def fair_rates(self) -> dict[str, float]:
        """The max-min fair goodput of the bulk clients, with the links that are up now."""
        pairs = [self.pairs[client, SERVER] for client in self.bulk]
        width = max(len(pair.paths) for pair in pairs)
        links = np.full((len(pairs), width, 2), -1)
        alive = np.zeros((len(pairs), width), dtype=np.bool_)
        for row, pair in enumerate(pairs):
            for column, path in enumerate(pair.paths):
                links[row, column] = self._link_ids(pair, path)
                alive[row, column] = self._alive(pair)[path]
        network = Network(links, alive, self.goodput_bps)
        rates, _ = max_min_rates(network, np.full(len(pairs), np.inf))
        return dict(zip(self.bulk, rates[0].tolist(), strict=True))

    def _alive(self, pair: _Pair) -> dict[PathKey, bool]:
        return {
            p: self.up[pair.sender, p[0] - 1] and self.up[pair.receiver, p[1] - 1]
            for p in pair.paths
        }

    @staticmethod
    def _links(pair: _Pair, path: PathKey) -> tuple[str, str]:
        return f"{pair.sender}:{path[0]}>", f">{pair.receiver}:{path[1]}"

    def _link_ids(self, pair: _Pair, path: PathKey) -> list[int]:
        return [self.link_ids[link] for link in self._links(pair, path)]

    def _flow(self, now: float) -> None:
        """Move the traffic of one tick and refresh what the hosts' switches show."""
        flowing: list[tuple[_Stream, PathKey]] = []
        for stream in self.streams:
            path = stream.pair.live_slot(stream.slot, self._alive(stream.pair))
            if path is None:
                stream.rate_bps = 0.0
            else:
                flowing.append((stream, path))
        bulk = [(s, p) for s, p in flowing if s.pair.receiver == SERVER]
        # The weighted max-min fair goodput of the streams, each on one path.
        target = fair_rates(
            np.array([s.max_bps for s, _ in bulk]),
            np.array([self._link_ids(s.pair, p) for s, p in bulk]).reshape(len(bulk), 2),
            self.goodput_bps,
            np.array([s.weight for s, _ in bulk]),
        ).tolist()
        blend = 1.0 - math.exp(-TICK_S / TCP_LAG_S)
        sent_by = dict.fromkeys(self.clients, 0.0)
        for (stream, _), rate in zip(bulk, target, strict=True):
            stream.rate_bps += (rate - stream.rate_bps) * blend
            sent_by[stream.pair.sender] += stream.rate_bps
        ack_streams = Counter(s.pair.receiver for s, _ in flowing if s.pair.sender == SERVER)
        for stream, path in flowing:
            if stream.pair.sender == SERVER:
                client = stream.pair.receiver
                stream.rate_bps = ACK_PART * sent_by[client] / ack_streams[client]
            amount = stream.rate_bps * WIRE * TICK_S / 8.0
            stream.pair.sent[path] += amount
            stream.pair.slot_bytes[stream.slot] += amount
        for host, at in self.refresh_at.items():
            if now >= at:
                self.refresh_at[host] = at + REFRESH_S
                for pair in self.pairs.values():
                    if host in pair.shown:
                        pair.shown[host] = dict(pair.sent)
                    if host == pair.sender:
                        pair.slot_shown = pair.slot_bytes.copy()

    def _step(self, now: float) -> tuple[int, dict[str, dict[PathKey, float]], Decision]:
        """One step of the controller: poll, decide, change tables.

        Returns how many slots moved, the shares of each client, and the decision.
        """
        given = [self._counters(pair) for pair in self.pairs.values()]
        decision = self.loop.step(now, given, self.capacity)
        moved, shares = 0, {}
        for key, wanted in decision.pairs.items():
            pair = self.pairs[key]
            pair.own_table = True
            if wanted.slots != pair.slots:
                pair.slots = wanted.slots
                moved += wanted.moved
                # The change of a group sets its counters to 0. Older traffic that they did not show
                # yet is added afterwards.
                pair.slot_bytes -= pair.slot_shown
                pair.slot_shown, pair.slot_polled = np.zeros((2, self.n))
            if pair.receiver == SERVER:
                shares[pair.sender] = wanted.share
        return moved, shares, decision

    def _counters(self, pair: _Pair) -> PairCounters:
        """What a poll of a pair's two hosts reads."""
        alive = self._alive(pair)
        shown = pair.shown[pair.sender], pair.shown[pair.receiver]
        paths = tuple(
            PathCounters(
                path,
                alive[path],
                self._links(pair, path),
                *(Count(int(at_host[path] / 1500), int(at_host[path])) for at_host in shown),
            )
            for path in pair.paths
        )
        carried = (pair.slot_shown - pair.slot_polled).astype(np.int64)
        slot_bytes = tuple(carried.tolist()) if pair.own_table else None
        pair.slot_polled = pair.slot_shown.copy()
        return PairCounters(pair.sender, pair.receiver, paths, pair.slots, slot_bytes)


def table(runs: Sequence[SimulatedRun]) -> str:
    """A text table with one line per run.

    Columns: total goodput as a part of the optimum, the worst client's share of its fair rate,
    slots that moved; for each client its goodput in Mbit/s and its share of link 1.
    """
    lines = [
        f"{'top':3} {'strategy':15} {'total':>6} {'worst':>6} {'moved':>6}  client: Mbit/s (share "
        "of link 1)"
    ]
    for one in runs:
        clients = "  ".join(
            f"{c}: {bps / 1e6:.0f} ({one.final_share(c, 1):.2f})"
            for c, bps in one.goodput_bps.items()
        )
        lines.append(
            f"{one.topology:3} {one.strategy:15} {one.total_of_optimum:6.2f} "
            f"{one.worst_share:6.2f} {one.slots_moved:6d}  {clients}"
        )
    return "\n".join(lines)


def chart(one: SimulatedRun) -> str:
    """The shares of link 1 over time, one row of text per client (the paper's figure 9).

    A digit is a share in tenths; * is a share of 1.
    """
    last = one.goodput_over_time[-1][0]
    lines = [f"{one.topology} {one.strategy}: share of link 1 over {last:.0f} s, in tenths"]
    for client in one.goodput_bps:
        row, current, position = [], 0.0, 0
        for column in range(CHART_COLUMNS):
            at = last * (column + 1) / CHART_COLUMNS
            while position < len(one.shares) and one.shares[position][0] <= at:
                current = _share_of_link(one.shares[position][1].get(client, {}), 1)
                position += 1
            row.append("*" if current >= 0.95 else str(int(current * 10 + 0.5)))
        lines.append(f"{client} {''.join(row)}")
    return "\n".join(lines)


def main() -> None:
    """Print the table of all strategies over figure 4 and the chart of figure 9."""
    parser = argparse.ArgumentParser(
        description="Simulate figure 4 and figure 9 with the real weight loop."
    )
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    simulated = partial(run, streams=options.streams, seed=options.seed)
    print(table([simulated(t, s) for t in "bcdefgh" for s in STRATEGIES]))
    for name in STRATEGIES:
        print()
        print(chart(simulated("e", name, seconds=100.0, faults=FIGURE_9)))


if __name__ == "__main__":
    main()
