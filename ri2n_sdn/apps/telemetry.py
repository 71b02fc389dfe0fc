# SPDX-License-Identifier: Apache-2.0
"""The telemetry app: reads counters every HBSPAN and sends the slot tables that follow from them.

The counters are S_ijk, R_ijk (the bytes that each pair sent and received by each path) and those of
the NICs. Where a host has a fast path, S_ijk and R_ijk are what its rows count and what its fast
path reports, together. The strategy decides on the slot tables.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.cluster import EMPTIED_CALM_S, App, Member
from ri2n_sdn.apps.fast_path import judge_fast_paths
from ri2n_sdn.apps.measured import PathRates
from ri2n_sdn.apps.patience import LONG_MUTE_S, MUTE_S, await_most
from ri2n_sdn.apps.slot_groups import send_slots, slots_in_force
from ri2n_sdn.apps.solver import Solver
from ri2n_sdn.fabric.model import Fabric, PairKey, PathKey
from ri2n_sdn.pipeline.diff import Installed
from ri2n_sdn.pipeline.fast_reports import FastRow, row_of
from ri2n_sdn.pipeline.layout import Table
from ri2n_sdn.pipeline.messages import Wanted
from ri2n_sdn.pipeline.plan import RECEIVED, SENT, pair_group_id
from ri2n_sdn.weights.counters import ZERO, Count, PairCounters, PathCounters, RowCounts
from ri2n_sdn.weights.loop import Decision, PairDecision
from ri2n_sdn.weights.slot_bytes import SlotBytes
from ri2n_sdn.weights.windows import FairWindow, HostRates, Reading, Row, Window

__all__ = ["Round", "TelemetryApp", "Watcher"]

_LOG = logging.getLogger("ri2n.telemetry")
_ANSWER_S = 1.0
_EMPTIED_MAX_S = 30.0
# A controller that starts waits for this time at most until all hosts have their rows.
_FIRST_ROWS_S = 30.0
# The rates of a host are shown for this time after its counters were read last.
_KEPT_S = 5.0
# A larger counter is ignored: OpenFlow writes 2^64 - 1 for an unknown value. At 4 Tbit/s, 2^62
# bytes take three months.
_MAX_COUNT = 2**62
_UNREAD = RowCounts()
EntryT = TypeVar("EntryT")
_Row = tuple[str, str, PathKey]
"""(sender, receiver, path)."""


@dataclass
class _Poll:
    """The requests of one round to one host, and whether the counters of its rows were read.

    `installed` is what its bridge held, for all that was known, when it was asked.
    """

    member: Member
    installed: Installed | None
    flows: list[Future[bytes]]
    canary: Future[bytes]
    ports: Future[bytes]
    groups: Future[bytes] | None
    counted: bool = False

    @property
    def futures(self) -> list[Future[bytes]]:
        return [
            *self.flows,
            self.canary,
            self.ports,
            *([self.groups] if self.groups is not None else []),
        ]


@dataclass
class _Counts:
    """What the hosts' rows have counted. A host that does not answer keeps its last values.

    `sent` and `received` are of the pairs' rows, `sent_beside` and `received_beside` what passed
    beside the bridges that these rows would have counted. `slots` is what was counted in each slot
    of an active pair's table.
    """

    sent: defaultdict[_Row, RowCounts] = field(default_factory=lambda: defaultdict(RowCounts))
    received: defaultdict[_Row, RowCounts] = field(default_factory=lambda: defaultdict(RowCounts))
    sent_beside: dict[_Row, Count] = field(default_factory=dict)
    received_beside: dict[_Row, Count] = field(default_factory=dict)
    slots: dict[PairKey, SlotBytes] = field(default_factory=dict)

    def all_sent(self, row: _Row) -> Count:
        """What the row's sender has sent, by its bridge and beside it."""
        return self.sent.get(row, _UNREAD).count.plus(self.sent_beside.get(row, ZERO))

    def all_received(self, row: _Row) -> Count:
        """What the row's receiver has got, by its bridge and beside it."""
        return self.received.get(row, _UNREAD).count.plus(self.received_beside.get(row, ZERO))


@dataclass(frozen=True)
class Round:
    """How long one round took, in wall time and in CPU time of its thread, and what it did.

    `group_mods` is the number of groups that it sent.
    """

    cycle_s: float
    cpu_s: float
    active_pairs: int
    group_mods: int


class Watcher:
    """Hooks for programs that measure rounds: they put a subclass into `TelemetryApp.watcher`.

    This class changes nothing.
    """

    def decided(self, choices: dict[PairKey, PairDecision]) -> dict[PairKey, PairDecision]:
        """The decisions to send, given those of the strategy (cluster.lock is held)."""
        return choices

    def ended(self, measured: Round) -> None:
        """Called at the end of each round."""


class TelemetryApp(App):
    """One thread polls all hosts at once, calls the weight loop and sends its slot tables."""

    loop = "telemetry"
    watcher = Watcher()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._counts = _Counts()
        self._solver = Solver()
        self._windows: dict[str, Window] = {}
        self._fair = FairWindow()
        # The rows of each host's plan as reports of its fast path name them, and that plan.
        self._fast_rows: dict[str, tuple[Wanted, dict[FastRow, tuple[str, str, PathKey]]]] = {}
        # Hosts whose fast path is silent: nobody knows what they carry.
        self._silent: frozenset[str] = frozenset()
        self._last_bytes: dict[_Row, int] = {}
        self._counting = False
        self._counts_since_s = 0.0

    def _turn(self) -> None:
        cluster = self.cluster
        began_s = time.monotonic()
        if cluster.started:
            self._prepare(began_s)
            if self._may_count(began_s):
                self._cycle(began_s)
        took_s = time.monotonic() - began_s
        # A round takes long where hosts are many and the machine is busy. The wait is at least as
        # long as the round, so that the other threads get as much time.
        if cluster.wake.telemetry.wait(max(0.01, cluster.measured.hbspan_s - took_s, took_s)):
            cluster.wake.telemetry.clear()
            # A burst of changes is treated as one. Counters over less than 50 ms say nothing.
            cluster.wake.stop.wait(max(0.0, 0.05 - (time.monotonic() - began_s)))

    def _prepare(self, now_s: float) -> None:
        """Have the solver ready before a round needs it."""
        cluster = self.cluster
        if self._solver.begun:
            return
        with cluster.lock:
            links = len(cluster.fabric().capacities_bps())
            active = bool(cluster.pair_slots)
        self._solver.look(now_s, links=links, active=active)

    def _may_count(self, now_s: float) -> bool:
        """Whether the hosts have their rows, or have had enough time to get them.

        Before that there is nothing to count. Rounds of many hosts are much work, and would delay
        the trunk app, which installs the rows.
        """
        if not self._counts_since_s:
            self._counts_since_s = now_s
        if not self._counting:
            with self.cluster.lock:
                waiting = any(
                    not member.accepts_wire and channel.mute_s(now_s) < LONG_MUTE_S
                    for member, channel in self.cluster.connections()
                )
            self._counting = not waiting or now_s - self._counts_since_s > _FIRST_ROWS_S
        return self._counting

    def _cycle(self, now_s: float) -> None:
        """One round: read the counters, decide, and wait until the hosts confirm their groups."""
        cluster = self.cluster
        cpu_s, group_mods = time.thread_time(), cluster.counters["group_mods"]
        with cluster.lock:
            polls = [
                self._ask(member)
                for member, channel in cluster.connections()
                if member.wanted and channel.mute_s(now_s) < MUTE_S
            ]
        await_most([(poll.member.name, poll.futures) for poll in polls], _ANSWER_S)
        with cluster.lock:
            slot_bytes: dict[PairKey, tuple[int, ...]] = {}
            before, self._silent = self._silent, judge_fast_paths(cluster)
            for name in before - self._silent:
                # A window must not show the traffic of the silence as if it were of now.
                self._windows.pop(name, None)
            for poll in polls:
                with cluster.contain_fault("counters_not_read", poll.member):
                    slot_bytes.update(self._take(poll))
            barriers: list[Future[bytes]] = []
            with cluster.contain_fault("slot_tables_undecided"):
                barriers = self._decide(
                    now_s, slot_bytes, {poll.member.name for poll in polls if poll.counted}
                )
        await_most(list(enumerate((barrier,) for barrier in barriers)), _ANSWER_S)
        cluster.measured.cycle_s = time.monotonic() - now_s
        cluster.counters.add("cycles")
        sent = cluster.counters["group_mods"] - group_mods
        measured = Round(
            cluster.measured.cycle_s, time.thread_time() - cpu_s, len(cluster.pair_slots), sent
        )
        with cluster.lock:
            cluster.measured.tallies.cycles.add(measured.cycle_s)
            cluster.measured.tallies.cycles_cpu.add(measured.cpu_s)
        self.watcher.ended(measured)

    def _decide(
        self, now_s: float, slot_bytes: dict[PairKey, tuple[int, ...]], counted: Collection[str]
    ) -> list[Future[bytes]]:
        """Decide and send the slot tables, and return barriers to wait for (cluster.lock is held).

        `slot_bytes` are the bytes in each slot of a pair since the last round. `counted` are the
        hosts whose rows were read in this round.
        """
        cluster = self.cluster
        self._choose_vlans(now_s)
        pairs = self._pairs(slot_bytes)
        capacities_bps = cluster.fabric().capacities_bps()
        certain = set(counted) - self._silent
        cluster.measured.losses.step(now_s, pairs, certain, capacities_bps)
        decision = cluster.loop.step(now_s, pairs, capacities_bps)
        cluster.measured.hbspan_s = decision.hbspan_s
        choices = {pair: choice for pair, choice in decision.pairs.items() if choice.slots}
        barriers = send_slots(cluster, self.watcher.decided(choices))
        self._publish(pairs, decision, now_s, counted)
        return barriers

    def _ask(self, member: Member) -> _Poll:
        channel = member.channel
        assert channel is not None
        own_groups = any(sender == member.name for sender, _ in self.cluster.pair_slots)
        return _Poll(
            member,
            member.installed,
            [
                channel.request(codec.flows(table))
                for table in (Table.SEND_COUNT, Table.RECEIVE_COUNT)
            ],
            channel.request(codec.flows(Table.CANARY)),
            channel.request(codec.PORT_COUNTERS),
            channel.request(codec.GROUP_COUNTERS) if own_groups else None,
        )

    def _take(self, poll: _Poll) -> dict[PairKey, tuple[int, ...]]:
        """Keep a host's counters, and return the bytes in each slot of its active pairs.

        These are the bytes since the last round.
        """
        member, cluster = poll.member, self.cluster
        if member.wanted is None:
            return {}
        canary = _entries(member.name, poll.canary, codec.read_flow_counters)
        # An answer to what was asked before the rows were sent says nothing about them.
        same = member.installed is not None and member.installed is poll.installed
        untouched = same and not member.dirty and not member.busy
        if canary is not None and not canary and untouched:
            self._emptied(member)
        now_s = time.monotonic()
        tables = [_entries(member.name, future, codec.read_flow_counters) for future in poll.flows]
        poll.counted = None not in tables
        self._take_beside(member)
        sent: dict[Row, RowCounts] = {}
        received: dict[Row, RowCounts] = {}
        for table in tables:
            for row in table or ():
                flow = member.wanted.flows.get(row.cookie)
                if flow is None or flow.counts is None:
                    continue
                direction, peer, path = flow.counts
                if direction == SENT:
                    counts = sent[peer, path] = self._counts.sent[member.name, peer, path]
                elif direction == RECEIVED:
                    counts = received[peer, path] = self._counts.received[peer, member.name, path]
                else:
                    continue
                if max(row.counted) > _MAX_COUNT:
                    cluster.counters.add("dropped_counter_unknown")
                else:
                    counts.take(now_s, row.counted)
        if self._take_ports(poll) and poll.counted:
            self._take_window(member, sent, received)
        return self._take_slots(poll)

    def _take_window(
        self, member: Member, sent: Mapping[Row, RowCounts], received: Mapping[Row, RowCounts]
    ) -> None:
        """Keep a reading of all counters of a host for the rates that people see.

        A window does not begin before rows count traffic: NICs do so at once, and both must agree.
        """
        rows = [*sent.values(), *received.values()]
        if rows and not any(counts.counts for counts in rows):
            return
        host, counts = member.name, self._counts
        all_sent = ((row, counts.all_sent((host, *row)).bytes) for row in sent)
        all_received = (
            (row, counts.all_received((row[0], host, row[1])).bytes) for row in received
        )
        reading = Reading(
            {
                number: (port.tx_bytes, port.rx_bytes)
                for number, port in member.ports.items()
                if port.counted_s
            },
            {row: octets for row, octets in all_sent if octets},
            {row: octets for row, octets in all_received if octets},
        )
        self._windows.setdefault(member.name, Window()).take(time.monotonic(), reading)

    def _take_beside(self, member: Member) -> None:
        """Keep what passed beside a host's bridge, by the rows that would have counted it."""
        path, wanted = self.cluster.measured.fast.get(member.name), member.wanted
        if path is None or wanted is None:
            return
        known, rows = self._fast_rows.get(member.name, (None, {}))
        if known is not wanted:
            rows = {
                row: flow.counts
                for flow in wanted.flows.values()
                if flow.counts is not None and (row := row_of(flow)) is not None
            }
            self._fast_rows[member.name] = wanted, rows
        for row, count in path.counts.drain().items():
            direction, peer, key = rows.get(row, (None, "", (0, 0, 0)))
            if direction == SENT:
                before, counted = self._counts.sent_beside, (member.name, peer, key)
            elif direction == RECEIVED:
                before, counted = self._counts.received_beside, (peer, member.name, key)
            else:
                continue
            before[counted] = before.get(counted, ZERO).plus(count)

    def _emptied(self, member: Member) -> None:
        """Have a host's rows made again, after its bridge was found empty.

        They are made at once the first time, and later and later when it happens again and again.
        Otherwise a bridge that somebody else empties, or that only claims to be empty, would have
        all hosts planned anew ten times a second.
        """
        now_s = time.monotonic()
        again = now_s - member.emptied_s < EMPTIED_CALM_S
        member.emptied_s, member.emptied = now_s, member.emptied + 1 if again else 0
        wait_s = min(_EMPTIED_MAX_S, 0.5 * 2**member.emptied) if member.emptied else 0.0
        member.installed, member.dirty, member.retry_s = None, True, now_s + wait_s
        if wait_s < _EMPTIED_MAX_S:
            code = "tables_emptied_again" if wait_s else "tables_emptied"
            args = {"wait_s": wait_s} if wait_s else {}
            self.cluster.note(code, {"host": member.name}, **args)
        if member.accepts_wire:
            member.accepts_wire = False
            self.cluster.topology_changed()
        self.cluster.wake.trunk.set()

    def _take_ports(self, poll: _Poll) -> bool:
        """Keep the counters of a host's NICs, and return whether there are any."""
        now_s = time.monotonic()
        rows = _entries(poll.member.name, poll.ports, _port_counters)
        for row in rows or ():
            number, rx_bytes, tx_bytes = row
            port = poll.member.ports.get(number)
            if port is None:
                continue
            if max(tx_bytes, rx_bytes) > _MAX_COUNT:
                self.cluster.counters.add("dropped_counter_unknown")
                continue
            port.tx_bytes, port.rx_bytes, port.counted_s = tx_bytes, rx_bytes, now_s
        return rows is not None

    def _take_slots(self, poll: _Poll) -> dict[PairKey, tuple[int, ...]]:
        """The bytes in each slot of the host's active pairs since they were known last.

        Bytes of a pair that may pass beside the bridge are known when its host has reported them:
        more seldom than there are rounds. Until then what the bridge counts waits for them.
        """
        member = poll.member
        path = self.cluster.measured.fast.get(member.name)
        told = path.counts.drain_slots() if path is not None else None
        groups = {
            group.group_id: group
            for group in _entries(member.name, poll.groups, codec.read_group_counters) or ()
        }
        result = {}
        for pair, slots in self.cluster.pair_slots.items():
            if pair[0] != member.name:
                continue
            counts = self._counts.slots.get(pair)
            if counts is None or counts.table != slots:
                counts = self._counts.slots[pair] = SlotBytes(slots)
            peer = self.cluster.members.get(pair[1])
            mac = "" if peer is None else peer.mac.lower()
            beside = (told or {}).get(mac)
            if beside is not None and len(beside) == len(slots):
                counts.add(beside)
            group = groups.get(pair_group_id(pair[1]))
            if group is None or len(group.buckets) != len(slots):
                continue
            now = tuple(bucket.bytes for bucket in group.buckets)
            if max(now, default=0) > _MAX_COUNT:
                self.cluster.counters.add("dropped_counter_unknown")
                continue
            counts.take_buckets(now)
            told_of_all = path is not None and told is not None and path.counts.knows_slots(mac)
            if told_of_all or path is None or not path.may_carry(mac):
                result[pair] = counts.hand_on()
        return result

    def _choose_vlans(self, now_s: float) -> None:
        cluster = self.cluster
        if cluster.fat_tree is None:
            return
        step = cluster.fat_tree.choose(
            now_s, cluster.fabric(), cluster.pair_slots, cluster.loop.sent_bps()
        )
        if step is not None and step.moved:
            cluster.counters.add("vlan_moves", len(step.moved))
            _LOG.info(
                "%d pairs change VLAN: the load of the fullest link goes from %.2f to %.2f (%s)",
                len(step.moved),
                step.fullest_before,
                step.fullest_after,
                step.fullest_link,
            )

    def _pairs(self, slot_bytes: dict[PairKey, tuple[int, ...]]) -> list[PairCounters]:
        """The counters of all pairs. Those of pairs and paths that no longer exist are dropped."""
        cluster = self.cluster
        fabric = cluster.fabric()
        pairs: list[PairCounters] = []
        for sender in fabric.hosts:
            with cluster.contain_fault("sent_not_counted", cluster.members[sender]):
                pairs += self._pairs_of(sender, fabric, slot_bytes)
        used = {(pair.sender, pair.receiver, path.path) for pair in pairs for path in pair.paths}
        for pair in [
            pair for pair in cluster.measured.sent_bytes if not fabric.hosts.keys() >= set(pair)
        ]:
            del cluster.measured.sent_bytes[pair]
        beside = (self._counts.sent_beside, self._counts.received_beside)
        for counts in (self._counts.sent, self._counts.received, *beside):
            for key in [key for key in counts if key not in used]:
                del counts[key]
        for name in self._fast_rows.keys() - cluster.members.keys():
            del self._fast_rows[name]
        for pair in self._counts.slots.keys() - cluster.pair_slots.keys():
            del self._counts.slots[pair]
        return pairs

    def _pairs_of(
        self, sender: str, fabric: Fabric, slot_bytes: dict[PairKey, tuple[int, ...]]
    ) -> Iterator[PairCounters]:
        cluster = self.cluster
        for receiver in fabric.hosts:
            paths = fabric.paths(sender, receiver) if sender != receiver else ()
            if not paths:
                continue
            common = {path.key for path in fabric.common_paths(sender, receiver)}
            counted, known = [], (False, False)
            for path in paths:
                row = (sender, receiver, path.key)
                sent = self._counts.sent.get(row, _UNREAD)
                received = self._counts.received.get(row, _UNREAD)
                known = known[0] or sent.known, known[1] or received.known
                alive = (
                    path.alive
                    and path.key in common
                    and (cluster.fat_tree is None or cluster.fat_tree.allows(path))
                )
                counts = (self._counts.all_sent(row), self._counts.all_received(row))
                counted.append(PathCounters(path.key, alive, path.links, *counts))
            # What a silent fast path carries is unknown, and not nothing.
            known = (
                known[0] and sender not in self._silent,
                known[1] and receiver not in self._silent,
            )
            slots, pair = slots_in_force(cluster, sender, receiver), (sender, receiver)
            yield PairCounters(*pair, tuple(counted), slots, slot_bytes.get(pair), known)

    def _publish(
        self,
        pairs: list[PairCounters],
        decision: Decision,
        now_s: float,
        counted: Collection[str],
    ) -> None:
        """Make a sample of this round: what all answers, pages and metrics show.

        All rates of it are set at once, and are those of the hosts' newest windows. A host whose
        counters were not read for _KEPT_S has none.
        """
        cluster = self.cluster
        last, self._last_bytes = self._last_bytes, {}
        self._windows = {
            host: window for host, window in self._windows.items() if host in cluster.members
        }
        known: dict[str, HostRates] = {}
        for host, window in self._windows.items():
            if window.read_s is not None and now_s - window.read_s <= _KEPT_S:
                rates_of_host = window.rates()
                if rates_of_host is not None:
                    known[host] = rates_of_host
        for member in cluster.members.values():
            nics = known[member.name].nics if member.name in known else {}
            for number, port in member.ports.items():
                port.tx_bps, port.rx_bps = nics.get(number, (None, None))

        rates: dict[PairKey, dict[PathKey, PathRates]] = {}
        for pair in pairs:
            choice = decision.pairs.get(pair.key)
            sender, receiver = (
                known.get(name) if name not in self._silent else None for name in pair.key
            )
            rates_of_pair = rates.setdefault(pair.key, {})
            for path in pair.paths:
                key = (pair.sender, pair.receiver, path.path)
                self._last_bytes[key] = path.sent.bytes
                before = last.get(key, path.sent.bytes)
                cluster.measured.sent_bytes[pair.key] += path.sent.bytes - before
                row_sent, row_received = (pair.receiver, path.path), (pair.sender, path.path)
                rates_of_pair[path.path] = PathRates(
                    tx_bps=None if sender is None else sender.sent.get(row_sent, 0.0),
                    rx_bps=None if receiver is None else receiver.received.get(row_received, 0.0),
                    share=choice.share.get(path.path) if choice else None,
                    rate_bps=choice.rate_bps.get(path.path) if choice and choice.rate_bps else None,
                )
        measured, fair_bps = cluster.measured, dict[PairKey, float]()
        with cluster.contain_fault("fair_rates_unknown"):
            fair_bps = self._fair.take(now_s, cluster.loop.fair_bps())
        measured.rates, measured.fair_bps = rates, fair_bps
        if counted:
            measured.sampled_s = round(time.time(), 3)


def _port_counters(body: bytes) -> list[tuple[int, int, int]]:
    """(number, received bytes, sent bytes) of each port in an OFPMP_PORT_STATS reply."""
    return [struct.unpack_from("!4xI24xQQ", entry) for entry in codec.split_entries(body, 80)]


def _entries(
    name: str, future: Future[bytes] | None, read: Callable[[bytes], list[EntryT]]
) -> list[EntryT] | None:
    """All entries of a host's reply; None when there is none yet, or when it is malformed."""
    if future is None or not future.done() or future.exception() is not None:
        return None
    try:
        return read(future.result())
    except ValueError as error:
        _LOG.warning(
            "%s: its counters cannot be read, and are left out: %s",
            *(name, error),
            extra={"fields": {"host": name}},
        )
        return None
