# SPDX-License-Identifier: Apache-2.0
"""Watchers of the controller: collects the state, and sends each watcher what has changed.

Nobody waits for a watcher. What it has not read yet is kept up to a limit; then it is cut off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

from ri2n_sdn import __version__
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.local_jobs import list_jobs, list_reservations, list_rights
from ri2n_sdn.apps.local_policies import list_policies
from ri2n_sdn.apps.measured import Reported, Sample
from ri2n_sdn.apps.memory import Memory
from ri2n_sdn.apps.openflow import handler_drops, handler_errors, message_counts
from ri2n_sdn.apps.parameters import parameter_values
from ri2n_sdn.apps.problems import problems_of
from ri2n_sdn.apps.tallies import HelperSums
from ri2n_sdn.apps.tokens import Tokens
from ri2n_sdn.apps.watch import (
    HostFacts,
    cable_documents,
    fair_documents,
    host_documents,
    network_documents,
    problem_documents,
    switch_documents,
)
from ri2n_sdn.contract.counters import HANDLER, with_former
from ri2n_sdn.contract.documents import Controller, Documents, Fast, Kept, StoreState
from ri2n_sdn.contract.queue import BoundedQueue
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.state import MAX_EVENTS, State, difference
from ri2n_sdn.pipeline.fast_path import FastPath
from ri2n_sdn.pipeline.helper_frames import ReportEntry
from ri2n_sdn.vlan.routing import DeadParts

__all__ = ["MAX_WATCHERS", "Collector", "Watcher", "Watching", "counters_of", "pause_s"]

MAX_WATCHERS = 8
"""So many may watch at once."""

Document = TypeVar("Document")

_LOG = logging.getLogger("ri2n.watch")
# Watchers hear of changes at most this often. After a turn, the thread does nothing for this many
# times the CPU time that it took, so turns are fewer where hosts are very many.
_EVERY_S = 0.5
_COST = 20
# A watcher that nothing was sent to for this time gets a sign of life.
_LIFE_S = 5.0
# A watcher may leave so many lines and bytes unread, and no part of a line for so long.
_MAX_LINES, _MAX_BYTES = 60, 8 << 20
_STALLED_S = 30.0
_FAILED_S = 1.0
_MAX_KEPT_S = 5.0
_END_S = 1.0
_SUMMED = ("usable", "striping", "sent", "received", "lost", "repeated")


def pause_s(took_s: float, cpu_s: float) -> float:
    """How long to wait after a turn that took so long, and so much CPU time.

    Only the CPU time says what a turn costs others. The rest it may have waited for the cluster's
    lock, and changes must not be later because of that.
    """
    return max(_EVERY_S - took_s, _COST * cpu_s)


class Collector:
    """Makes the state of a cluster. The cluster's lock is held while live objects are read.

    Most documents are made anew only when something about them has changed, or after _MAX_KEPT_S,
    so a state costs little where little has changed. One thread at a time may collect; `Watching`
    sees to that.
    """

    def __init__(self, cluster: Cluster, tokens: Tokens) -> None:
        self._cluster, self._tokens = cluster, tokens
        self._since_epoch_s = time.time() - time.monotonic()
        config = json.dumps(cluster.config.model_dump(mode="json"), sort_keys=True)
        self._config_hash = hashlib.sha256(config.encode()).hexdigest()[:16]
        # When documents were made last, and of what.
        self._kept: dict[str, tuple[float, tuple[Any, ...], dict[str, Any]]] = {}
        # When each host's helper had reported last, and what its reports add up to.
        self._helpers: dict[str, tuple[float, HelperSums]] = {}
        self.sample = Sample(None, {}, {})
        """The rates of pairs that belong to the state that was made last."""

    def collect(self) -> State:
        """The state as it is now. Parts of a state are never changed later."""
        cluster = self._cluster
        store = _store(cluster.memory)
        tokens = self._documents("tokens", self._tokens.documents, (self._tokens.rows(),))
        book = cluster.jobs.book
        reservations = self._documents(
            "reservations",
            lambda: {each["id"]: each for each in list_reservations(cluster)["reservations"]},
            (book.reservations,),
        )
        rights = self._documents(
            "rights",
            lambda: {each["user"]: each for each in list_rights(cluster)["rights"]},
            (book.rights,),
        )
        policies = self._documents(
            "policies",
            lambda: {each["name"]: each for each in list_policies(cluster)["policies"]},
            (book.policies,),
        )
        helpers = self._of_helpers()
        with cluster.lock:
            now_s = time.monotonic()
            fabric = cluster.fabric()
            state, tree, tallies = cluster.jobs, cluster.fat_tree, cluster.measured.tallies
            reports = cluster.measured.reports
            connected = {member.name: member.ports.values() for member, _ in cluster.connections()}
            basis = (
                *(book.orders, book.moves, state.agreement, state.assignment, state.states),
                *(dict(state.failed), dict(state.declared) if book.moves else None),
            )
            # Rates are without their fractions. What was not read yet is no 0, so it is left out.
            rates = {
                name: known
                for name, ports in connected.items()
                if (
                    known := {
                        port.name: _whole(port.tx_bps, port.rx_bps)
                        for port in ports
                        if port.tx_bps is not None and port.rx_bps is not None
                    }
                )
            }
            byte_counts = {
                name: counts
                for name, ports in connected.items()
                if (
                    counts := {
                        port.name: _whole(port.tx_bytes, port.rx_bytes)
                        for port in ports
                        if port.counted_s
                    }
                )
            }
            facts = {
                name: HostFacts(
                    member.channel.address if member.channel is not None else None,
                    member.ovs,
                    member.datapath,
                    reports.get(name, Reported()).age_s(now_s) is not None,
                    member.certificate_ends_s,
                    member.addresses,
                    _fast_path(cluster.measured.fast.get(name)) if member.channel else None,
                )
                for name, member in cluster.members.items()
            }
            kept: Kept = {
                "controller": self._controller(store),
                "activity": tallies.described_activity(
                    {
                        name: {number: port.name for number, port in member.ports.items()}
                        for name, member in cluster.members.items()
                        if name in tallies.activity
                    }
                ),
                "outages": tallies.described_outages(cluster.members.keys(), self._since_epoch_s),
                "lengths": tallies.described_lengths(),
                "openflow": message_counts(),
                "helpers": helpers,
                "counters": counters_of(cluster),
                "jobs": self._documents(
                    "jobs", lambda: {each["id"]: each for each in list_jobs(cluster)["jobs"]}, basis
                ),
                "reservations": reservations,
                "rights": rights,
                "policies": policies,
                "tokens": tokens,
                "events": list(cluster.events)[-MAX_EVENTS:],
            }
            problems = problems_of(cluster)
            self.sample = sample = cluster.measured.sample()
            dead = tree.dead if tree is not None else DeadParts()
        networks = tree.networks if tree is not None else {}
        made: Documents = {
            **kept,
            "hosts": self._documents(
                "hosts", lambda: host_documents(fabric, facts), (fabric.hosts, facts)
            ),
            "networks": self._documents(
                "networks", lambda: network_documents(fabric, networks), (fabric.hosts,)
            ),
            "cables": self._documents(
                "cables",
                lambda: {} if tree is None else cable_documents(tree.trees, dead),
                (dead,),
            ),
            "switches": self._documents(
                "switches", lambda: switch_documents(cluster.config.switches, networks), ()
            ),
            "rates": rates,
            "fair": self._documents("fair", lambda: fair_documents(sample), (sample,)),
            "bytes": byte_counts,
            "problems": problem_documents(problems),
        }
        return {**made}

    def _controller(self, store: StoreState) -> Controller:
        """What is known of the controller itself (the lock is held)."""
        cluster = self._cluster
        facts: Controller = {
            "in_charge": cluster.passive is None,
            "settled": cluster.settled(),
            "strategy": cluster.loop.strategy_name,
            "parameters": parameter_values(cluster),
            "hbspan_s": cluster.measured.hbspan_s,
            "cycle_s": round(cluster.measured.cycle_s, 6),
            "started_s": round(self._since_epoch_s + cluster.started_s, 1),
            "active_pairs": len(cluster.pair_slots),
            "pid": os.getpid(),
            "version": __version__,
            "config_hash": self._config_hash,
            "store": store,
        }
        if cluster.passive is not None:
            facts["waits_because"] = cluster.passive
        if cluster.certificate_ends_s is not None:
            facts["certificate_ends_s"] = cluster.certificate_ends_s
        if cluster.measured.sampled_s is not None:
            facts["sampled_s"] = cluster.measured.sampled_s
        return facts

    def _of_helpers(self) -> dict[str, dict[str, int]]:
        """What the helpers have reported of all their links together, by host.

        Links are very many, so only new reports are added up, and without the lock.
        """
        with self._cluster.lock:
            reports = self._cluster.measured.reports
            heard = {name: reported.heard_s for name, reported in reports.items()}
            new = {
                name: (reported.running_s, [entry for _, entry in reported.links.values()])
                for name, reported in reports.items()
                if self._helpers.get(name, (None,))[0] != reported.heard_s
            }
        for name, (running_s, entries) in new.items():
            sums = self._helpers[name][1] if name in self._helpers else HelperSums()
            sums.take(running_s, _together(entries))
            self._helpers[name] = heard[name], sums
        self._helpers = {name: self._helpers[name] for name in heard}
        return {name: sums.document for name, (_, sums) in self._helpers.items()}

    def _documents(
        self, part: str, make: Callable[[], dict[str, Document]], basis: tuple[Any, ...]
    ) -> dict[str, Document]:
        """The documents of a part, as `make` makes them.

        They are the same object as before while `basis`, of which they are made, is equal; but not
        for longer than _MAX_KEPT_S. So nothing is wrong for long, whatever else `make` may look at.
        """
        now_s = time.monotonic()
        made_s, before, documents = self._kept.get(part, (-math.inf, (), {}))
        if now_s - made_s < _MAX_KEPT_S and all(
            one is other or one == other for one, other in zip(before, basis, strict=True)
        ):
            return documents
        documents = make()
        self._kept[part] = (now_s, basis, documents)
        return documents


def _fast_path(path: FastPath | None) -> Fast | None:
    """What a host's fast path is, as a document; None where none reports."""
    if path is None or path.state is None:
        return None
    return {
        "state": path.state,
        "filter": path.filter,
        "peers": path.sums(),
        "dropped": path.dropped,
    }


def _whole(*counts: float) -> list[float]:
    return [int(count) for count in counts]


def counters_of(cluster: Cluster) -> dict[str, int]:
    """The counters of the controller and of its parts (the lock is held)."""
    return with_former(
        {
            **cluster.counters.described(),
            "nic_deaths": cluster.wiring.deaths,
            **handler_drops.described(),
            **{f"{HANDLER}{name}": count for name, count in handler_errors.described().items()},
        }
    )


def _store(memory: Memory) -> StoreState:
    store = memory.store
    return {
        "kind": "none" if store is None else "common" if memory.common else "own",
        "active": store is not None and store.active,
        "epoch": store.epoch if store is not None else 0,
        "problem": memory.problem,
    }


def _together(entries: Sequence[ReportEntry]) -> dict[str, int]:
    """What the links of one helper add up to, as it has reported them last."""
    return {
        "links": len(entries),
        **{key: sum(getattr(entry, key) for entry in entries) for key in _SUMMED},
    }


class Watcher:
    """One watcher: the lines that wait for it, and the thread that sends them."""

    def __init__(self, owner: Watching, seq: int, state: State, tokens: bool) -> None:
        self._owner, self._seq, self._state = owner, seq, state
        self.tokens = tokens
        self._lines = BoundedQueue(_MAX_LINES, _MAX_BYTES)
        self._ends = False
        self._changed = threading.Condition()
        self._connection: socket.socket | None = None

    def put(self, line: bytes, seq: int) -> bool:
        """Have a line sent, and return whether there was room for it."""
        with self._changed:
            if not self._lines.put(line):
                return False
            self._seq = seq
            self._changed.notify()
            return True

    def end(self) -> None:
        """Let the stream end behind the lines that wait."""
        with self._changed:
            self._ends = True
            self._changed.notify()

    def cut_off(self) -> None:
        """End the stream at once, also in the middle of a line."""
        with self._changed:
            self._ends = True
            self._lines.clear()
            self._changed.notify()
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    @property
    def gone(self) -> bool:
        """Whether the other end has closed the connection. Asked only while it is open here."""
        if self._connection is None:
            return False
        poll = select.poll()
        poll.register(self._connection, 0)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def serve(self, connection: socket.socket) -> None:
        """Send the state and then the changes, until the watcher or the controller ends it.

        Raises OSError when the watcher has gone, or does not read.
        """
        with self._changed:
            self._connection = connection
            first = _line({"ok": True, "seq": self._seq, "state": _seen(self._state, self.tokens)})
        try:
            connection.settimeout(_STALLED_S)
            connection.sendall(first)
            for line in self._next_lines():
                connection.sendall(line)
        except TimeoutError:
            self._owner.cut_off(self)
            raise
        finally:
            self._owner.leave(self)

    def _next_lines(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                if not self._lines and not self._ends:
                    self._changed.wait(_LIFE_S)
                if self._lines:
                    line = self._lines.take()
                elif self._ends:
                    return
                else:
                    line = _line({"seq": self._seq, "changed": {}})
            yield line


class Watching:
    """All watchers, and the thread that finds out for all of them at once what has changed.

    It does nothing while nobody watches. What fails here ends the streams, and nothing else.
    """

    def __init__(self, collector: Collector, cluster: Cluster) -> None:
        self._collector, self._cluster = collector, cluster
        self._changed = threading.Condition()
        self._watchers: list[Watcher] = []
        self._last: State | None = None
        self._seq = 0
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="watch", daemon=True)
        self._thread.start()

    def join(self, tokens: bool) -> Watcher:
        """One more watcher, which is told about tokens if `tokens`. It must be served.

        Its first state is as of now, and the other watchers are told what has changed until now.
        Raises NotAvailable when there are too many.
        """
        with self._changed:
            if self._closed:
                raise refusal("controller_ends")
            if len(self._watchers) >= MAX_WATCHERS:
                # Nothing was sent to those that have gone, so nobody has noticed it yet.
                for watcher in [each for each in self._watchers if each.gone]:
                    self.leave(watcher)
                    watcher.cut_off()
            if len(self._watchers) >= MAX_WATCHERS:
                self._cluster.counters.add("watchers_refused")
                raise refusal("watchers_full", most=MAX_WATCHERS)
            # What was acknowledged before the request is in the first state, such as a new token.
            self.turn()
            assert self._last is not None
            watcher = Watcher(self, self._seq, self._last, tokens)
            self._watchers.append(watcher)
            self._changed.notify_all()
        return watcher

    def look(self) -> tuple[Documents, Sample]:
        """The state that a new watcher that is told of no tokens would get, and its rates of pairs.

        The cluster's lock must not be held: a thread that collects waits for it.
        """
        with self._changed:
            state = cast(Documents, _seen(self._collector.collect(), False))
            return state, self._collector.sample

    def cut_off(self, watcher: Watcher) -> None:
        """End the stream of a watcher that does not read."""
        if self.leave(watcher):
            self._cluster.counters.add("watchers_cut_off")
            watcher.cut_off()

    def close(self) -> None:
        """Let all streams end behind their last whole line; those that do not read are cut off."""
        with self._changed:
            self._closed = True
            for watcher in self._watchers:
                watcher.end()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._watchers, _END_S)
            left = list(self._watchers)
        for watcher in left:
            watcher.cut_off()

    def turn(self) -> None:
        """Find out what has changed, and have it sent to all watchers."""
        with self._changed:
            changed = self._renew()
            if not changed:
                return
            lines: dict[bool, bytes | None] = {}
            slow = []
            for watcher in self._watchers:
                if watcher.tokens not in lines:
                    seen = _seen(changed, watcher.tokens)
                    lines[watcher.tokens] = (
                        _line({"seq": self._seq, "changed": seen}) if seen else None
                    )
                line = lines[watcher.tokens]
                if line is not None and not watcher.put(line, self._seq):
                    slow.append(watcher)
        for watcher in slow:
            self.cut_off(watcher)

    def _renew(self) -> State:
        """Take over the state as it is now, and return what has changed."""
        state = self._collector.collect()
        changed = difference(self._last, state) if self._last is not None else state
        if changed:
            self._seq += 1
        self._last = state
        return changed

    def _loop(self) -> None:
        failing = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._watchers or self._closed)
                if self._closed:
                    return
            began_s, began_cpu_s = time.monotonic(), time.thread_time()
            fails = False
            try:
                self.turn()
                failing = False
            except Exception:
                self._cluster.counters.add("watch_errors")
                if not failing:
                    _LOG.exception("watchers cannot be told what has changed; their streams end")
                failing = fails = True
                with self._changed:
                    self._last = None
                    for watcher in self._watchers:
                        watcher.end()
            took_s, cpu_s = time.monotonic() - began_s, time.thread_time() - began_cpu_s
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed, _FAILED_S if fails else pause_s(took_s, cpu_s)
                )

    def leave(self, watcher: Watcher) -> bool:
        """Forget a watcher, and return whether it was known."""
        with self._changed:
            known = watcher in self._watchers
            if known:
                self._watchers.remove(watcher)
            if not self._watchers:
                self._last = None
            self._changed.notify_all()
        return known


def _seen(state: State, tokens: bool) -> State:
    """What a watcher may see of a state or a change."""
    return state if tokens else {part: each for part, each in state.items() if part != "tokens"}


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
