# SPDX-License-Identifier: Apache-2.0
"""The placement app: gives each new connection of a configured service the NIC with the fewest.

`pipeline.placement` chooses the path.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import App, Cluster, Member
from ri2n_sdn.apps.placed_rows import PLACED_ROWS, add_placed, delete_placed, read_placed
from ri2n_sdn.contract.printing import printable
from ri2n_sdn.fabric.model import Fabric, PathKey
from ri2n_sdn.pipeline.placement import (
    MAX_CONNECTIONS,
    Connection,
    Load,
    PlacedRow,
    choose,
    read_syn_ack,
)

__all__ = ["PlacementApp", "take_syn_ack"]

_LOG = logging.getLogger("ri2n.placement")
_WAIT_S = 1.0
_ANSWER_S = 1.0
# The rows of a host are read again when they were read longer ago than this.
_FRESH_S = 0.25
# So many new connections of one host can wait for a turn.
_MAX_WAITING = 256


class PlacementApp(App):
    """One thread, which has nothing to do until a connection of a configured service begins.

    The switches' rows tell which connections are placed. They are read again, at most every
    `_FRESH_S`, when a connection is to be placed. So nothing must be restored when a controller
    starts, and nothing must be counted when a connection ends.
    """

    loop = "placement"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._placed: dict[str, dict[Connection, PathKey]] = {}
        # The connection by which, and the time when, a host's rows were read last.
        self._read: dict[str, tuple[Channel, float]] = {}

    def start(self) -> None:
        if self.cluster.config.placement:
            super().start()

    def _turn(self) -> None:
        cluster = self.cluster
        cluster.wake.placement.wait(_WAIT_S)
        cluster.wake.placement.clear()
        now_s = time.monotonic()
        with cluster.lock:
            asked, cluster.syn_acks = cluster.syn_acks, {}
            if not asked or not cluster.started:
                return
            servers = {
                name: (member, member.channel)
                for name in cluster.fabric().placement
                if (member := cluster.members.get(name)) is not None and member.channel is not None
            }
        for name in self._placed.keys() - servers.keys():
            del self._placed[name], self._read[name]
        asking = servers.keys() & asked.keys()
        self._read_rows({name: channel for name, (_, channel) in servers.items()}, asking, now_s)
        with cluster.lock:
            fabric = cluster.fabric()
            load = self._load(fabric)
            for name in sorted(asking & self._placed.keys() & fabric.hosts.keys()):
                member, channel = servers[name]
                with cluster.contain_fault("connections_not_placed", member):
                    self._place(fabric, member, channel, asked[name], load)

    def _read_rows(self, servers: dict[str, Channel], asking: set[str], now_s: float) -> None:
        """Read the rows of placed connections of some hosts.

        These are the hosts that ask for a place, unless they were just read, and the hosts that
        have not been read since they connected.
        """
        requests: dict[str, tuple[Channel, Future[bytes]]] = {}
        for name, channel in servers.items():
            read_by, read_s = self._read.get(name, (None, 0.0))
            if read_by is not channel or (name in asking and now_s - read_s > _FRESH_S):
                requests[name] = channel, channel.request(PLACED_ROWS)
        deadline_s = time.monotonic() + _ANSWER_S
        for name, (channel, future) in requests.items():
            try:
                rows = read_placed(future.result(timeout=max(0.0, deadline_s - time.monotonic())))
                placed = {
                    row.connection: row.path for row in rows if not self._given_up(channel, row)
                }
            except Exception as error:
                # Whatever a reply holds, it is this host's fault alone.
                _LOG.warning(
                    "%s: its placed connections cannot be read: %s",
                    *(name, printable(str(error) or type(error).__name__)),
                    extra={"fields": {"host": name}},
                )
                continue
            self._read[name] = channel, time.monotonic()
            self._placed[name] = placed

    def _given_up(self, channel: Channel, row: PlacedRow) -> bool:
        """Delete the row of a connection that was never established; returns whether it was."""
        if row.half_open:
            channel.send_bytes(delete_placed(row.connection, channel.next_xid()))
            self.cluster.counters.add("connections_half_open")
        return row.half_open

    def _load(self, fabric: Fabric) -> Load:
        """How many placed connections each NIC has."""
        names = {host.mac: name for name, host in fabric.hosts.items()}
        load = Load()
        for server, placed in self._placed.items():
            for connection, path in placed.items():
                load.add(server, names.get(connection.target_mac, ""), path)
        return load

    def _place(
        self, fabric: Fabric, member: Member, channel: Channel, frames: deque[bytes], load: Load
    ) -> None:
        """Place the connections that a host accepts with `frames` (cluster.lock is held).

        A connection that has a place keeps it.
        """
        counters, fat_tree = self.cluster.counters, self.cluster.fat_tree
        names = {host.mac: name for name, host in fabric.hosts.items()}
        placed = self._placed[member.name]
        for frame in frames:
            answer = read_syn_ack(frame)
            client = names.get(answer[0].target_mac) if answer is not None else None
            if answer is None or answer[1] != member.mac or client is None or client == member.name:
                counters.add("connections_not_placed_stranger")
                continue
            connection = answer[0]
            if connection in placed:
                # This is the same answer again, or a new connection with the same ports, whose row
                # may be about to end.
                channel.send_bytes(add_placed(connection, placed[connection], channel.next_xid()))
                continue
            if len(placed) >= MAX_CONNECTIONS:
                counters.add("connections_not_placed_full")
                continue
            paths = fabric.common_paths(member.name, client)
            path = choose(
                (path for path in paths if fat_tree is None or fat_tree.allows(path)), load
            )
            if path is None:
                counters.add("connections_not_placed_no_path")
                continue
            placed[connection] = path.key
            load.add(member.name, client, path.key)
            channel.send_bytes(add_placed(connection, path.key, channel.next_xid()))
            counters.add("connections_placed")


def take_syn_ack(cluster: Cluster, server: str, frame: bytes) -> None:
    """Keep a server's SYN-ACK for the app's next turn.

    Of more than 256 that wait, the oldest are not placed.
    """
    with cluster.lock:
        if not cluster.config.placement:
            cluster.counters.add("connections_not_placed_stranger")
            return
        waiting = cluster.syn_acks.setdefault(server, deque(maxlen=_MAX_WAITING))
        if len(waiting) == _MAX_WAITING:
            cluster.counters.add("connections_not_placed_too_many")
        waiting.append(frame)
    cluster.wake.placement.set()
