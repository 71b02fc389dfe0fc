# SPDX-License-Identifier: Apache-2.0
"""Writes what the controller learns into its store, beside the loops that learn it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from ri2n_sdn.apps.cluster import Cluster, Member, guarded_loop
from ri2n_sdn.apps.remembered import FORGET_S, NIC_FAULTS, links_row, nic_text
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.store.rows import (
    Change,
    HostRow,
    LinksRow,
    NetworkRow,
    Put,
    Remove,
    State,
)
from ri2n_sdn.store.store import Store

__all__ = ["Rememberer", "host_row"]

_Learned: TypeAlias = HostRow | NetworkRow | LinksRow

# How often is looked for something to write.
_EVERY_S = 0.25
_WRITE_S = 5.0


class Rememberer:
    """One thread compares what is known with the store's rows, and writes what is different.

    It looks only when the fabric is another one. A store that is away is asked again, and nobody
    waits for it.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster, self._store = cluster, store
        self._written: tuple[int, int] | None = None
        self._fabric: Fabric | None = None

    def start(self) -> threading.Thread:
        """Start the thread."""
        return guarded_loop(self._cluster, "memory", self._turn)

    def _turn(self) -> None:
        cluster, store = self._cluster, self._store
        cluster.wake.stop.wait(_EVERY_S)
        if not store.active or store.problem is not None:
            return
        with cluster.lock:
            # Before the first full plan, hosts that are not back yet look like hosts that are gone.
            if not cluster.started:
                return
            if time.monotonic() - cluster.started_s > FORGET_S:
                cluster.wiring.doubt(
                    [nic for nic in cluster.remembered.networks if nic[0] not in cluster.members]
                )
                cluster.remembered.hosts.clear()
            # The fabric is kept, so that no later one has its number.
            fabric = self._fabric = cluster.fabric()
            version = (id(fabric), len(cluster.remembered.hosts))
            if self._written == version:
                return
            hosts = self._hosts(store.state())
            networks = self._networks(hosts)
        links = [
            row
            for pair, each in fabric.helper_link_numbers.items()
            if (row := links_row(pair, each)) is not None
        ]
        changes = _changes(store.state(), [*hosts.values(), *networks, *links])
        with cluster.contain_fault("learned_not_stored"):
            try:
                if changes:
                    store.write(*changes, timeout_s=_WRITE_S)
            except NotAvailable:
                # `status` says so as long as it lasts (`Memory.problem`).
                cluster.counters.add("memory_not_written")
                return
        self._written = version

    def _hosts(self, state: State) -> dict[str, HostRow]:
        """The rows of the hosts that matter (the lock is held)."""
        cluster, now_s = self._cluster, time.time()
        expendable = {member.name for member in cluster.expendable()}
        rows = {
            name: host_row(cluster, member, state.hosts.get(name), now_s)
            for name, member in cluster.members.items()
            if name not in expendable
        }
        for name, row in cluster.remembered.hosts.items():
            away_s = _away_s(state.hosts.get(name), _away_s(row, now_s))
            rows.setdefault(name, replace(row, away_since_s=away_s))
        return rows

    def _networks(self, hosts: Mapping[str, HostRow]) -> list[NetworkRow]:
        """The rows of the networks, without NICs of hosts that do not matter (the lock is held)."""
        cluster = self._cluster
        nics: dict[str, set[str]] = {}
        for name, row in hosts.items():
            for port in row.nic_names:
                nic = (name, port)
                network = (
                    cluster.wiring.network(nic)
                    if name in cluster.members
                    else cluster.remembered.networks.get(nic)
                )
                if network is not None:
                    nics.setdefault(network, set()).add(nic_text(nic))
        return [NetworkRow(name, frozenset(there)) for name, there in nics.items()]


def host_row(cluster: Cluster, member: Member, former: HostRow | None, now_s: float) -> HostRow:
    """The row of a host at a time (Unix time, s); `former` is the one that the store has.

    cluster.lock is held.
    """
    away_s = _away_s(former, now_s) if member.channel is None else None
    ports = member.ports.values()
    faults: dict[int, str] = {}
    for port in ports:
        works = (port.up, *cluster.wiring.alive((member.name, port.number)))
        words = [word for word, right in zip(NIC_FAULTS, works, strict=True) if not right]
        if words:
            faults[port.number] = " ".join(words)
    helper = "on" if member.helper_runs and not member.silence.silent else "off"
    return HostRow(
        member.name,
        f"{member.dpid:016x}",
        member.mac,
        {port.number: port.name for port in ports},
        {port.number: port.mac for port in ports},
        away_s,
        {port.number: port.speed_bps for port in ports},
        faults,
        member.accepts_wire,
        helper if member.has_taps else "",
    )


def _away_s(row: HostRow | None, now_s: float) -> float:
    """Since when a host is away (Unix time): as its row says, or else since now."""
    return now_s if row is None or row.away_since_s is None else row.away_since_s


def _changes(state: State, rows: Iterable[_Learned]) -> list[Change]:
    changes: list[Change] = []
    before: list[_Learned] = [*state.hosts.values(), *state.networks.values()]
    keys = {_key(row): row for row in (*before, *state.links.values())}
    for row in rows:
        if keys.pop(_key(row), None) != row:
            changes.append(Put(row))
    return [*changes, *(Remove(row) for row in keys.values())]


def _key(row: _Learned) -> tuple[str, ...]:
    if isinstance(row, LinksRow):
        return ("links", row.low, row.high)
    return (type(row).__name__, row.name)
