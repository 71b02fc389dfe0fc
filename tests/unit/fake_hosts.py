# SPDX-License-Identifier: Apache-2.0
"""A cluster of hosts that have connected but have no switch: a test makes up their answers."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ri2n_sdn.apps.channel import Channel, Close
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.codec import Question, packet_out
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.discovery.wiring import Wiring
from ri2n_sdn.fabric.model import NicId, PairKey, PathKey
from ri2n_sdn.pipeline.diff import Installed
from ri2n_sdn.pipeline.plan import plan_host

__all__ = ["RATE_BPS", "FakeChannel", "cluster_of", "description", "host_mac", "member_of", "plan"]

RATE_BPS = 100_000_000


class FakeChannel:
    """Replaces apps.channel.Channel: keeps what is sent, and `answer` makes up the replies.

    `answer` returns the reply's body, an exception, or None: then the reply does not come.
    """

    def __init__(self, answer: Callable[[Question | None], Any] = lambda question: b"") -> None:
        self.datapath = SimpleNamespace(
            **{"ofproto": ofp, "ofproto_parser": parser, "heard_s": -1e9, "id": 0, "ports": {}},
            ri2n_names=None,
            ri2n_certificate_ends_s=None,
        )
        self.reached_at_port: int | None = None
        self.address = "192.0.2.1"
        self.heard_s = -1e9
        self.answered_s = -1e9
        self.closed = False
        self.why_closed: Close | None = None
        self.answer = answer
        self.mute_for_s = 0.0
        self.known = False
        self.asked: list[Question | None] = []
        self.sent: list[tuple[int, bytes]] = []
        self.sent_bytes: list[bytes] = []
        self._xids = itertools.count(1)

    def next_xid(self) -> int:
        return next(self._xids)

    def send(self, kind: int, body: bytes = b"") -> None:
        self.sent.append((kind, body))

    def send_frame(self, port: int, frame: bytes) -> None:
        self.send_bytes(packet_out(port, frame, self.next_xid()))

    def send_bytes(self, data: bytes) -> None:
        self.sent_bytes.append(data)

    def request(self, question: Question | None) -> Future[bytes]:
        self.asked.append(question)
        future: Future[bytes] = Future()
        answer = self.answer(question)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        elif answer is not None:
            future.set_result(answer)
        return future

    def barrier(self) -> Future[bytes]:
        return self.request(None)

    def mute_s(self, now_s: float) -> float:
        return self.mute_for_s

    def admitted(self) -> None:
        self.known = True

    def close(self, why: Close, **args: object) -> None:
        self.closed, self.why_closed = True, why


def description(name: bytes, software: bytes = b"3.1.0", serial: bytes = b"netdev/0") -> bytes:
    """What a switch says of itself: the body of an OFPMP_DESC reply."""
    return struct.pack("!512x256s32s256s", software, serial, name)


def host_mac(name: str) -> str:
    return f"06:00:00:00:{ord(name):02x}:00"


def member_of(name: str, nics: int = 2) -> Member:
    """A host named by one letter, with NICs eth0, eth1, ... at ports 1, 2, ..., not connected."""
    ports = {
        n: Port(n, f"eth{n - 1}", f"04:00:00:00:{ord(name):02x}:{n:02x}", True, RATE_BPS)
        for n in range(1, nics + 1)
    }
    return Member(name, ord(name), host_mac(name), "3.1.0", ports)


class _Wiring:
    """Port N of every host is on network nN; `dead` NICs neither send nor receive."""

    deaths = 0

    def __init__(self, dead: set[NicId]) -> None:
        self._dead = dead
        self.settled = True

    def network(self, nic: NicId) -> str | None:
        return f"n{nic[1]}"

    def flooded(self, now_s: float) -> list[NicId]:
        return []

    def alive(self, nic: NicId) -> tuple[bool, bool]:
        return (nic not in self._dead, nic not in self._dead)

    def remove_nic(self, nic: NicId) -> None:
        self._dead.discard(nic)

    def disconnect(self, host: str) -> None:
        pass

    def believe(
        self, networks: Mapping[NicId, str], faults: Mapping[NicId, Collection[str]]
    ) -> None:
        pass

    def recall(self, nic: NicId, now_s: float) -> None:
        pass

    def doubt(self, nics: Collection[NicId]) -> None:
        pass


def cluster_of(
    hosts: Mapping[str, FakeChannel | None],
    config: ClusterConfig | None = None,
    dead: Sequence[NicId] = (),
    nics: int = 2,
) -> Cluster:
    """A cluster that has started; a host without a channel is away.

    All are wired alike (`_Wiring`).
    """
    cluster = Cluster(config or ClusterConfig(), "max_min", Path("/nonexistent/controller.sock"))
    cluster.wiring = cast(Wiring, _Wiring(set(dead)))
    cluster.started = True
    for name, channel in hosts.items():
        member = cluster.members[name] = member_of(name, nics)
        member.channel = cast(Channel, channel) if channel is not None else None
        member.accepts_wire = True
    return cluster


def plan(cluster: Cluster, pairs: Mapping[PairKey, tuple[PathKey, ...]] | None = None) -> None:
    """Let every host hold what it should, `pairs` with slot tables of their own."""
    cluster.pair_slots.update(pairs or {})
    fabric = cluster.fabric()
    for name, member in cluster.members.items():
        own = {
            receiver: slots
            for (sender, receiver), slots in cluster.pair_slots.items()
            if sender == name
        }
        member.wanted = plan_host(fabric, name, own, cluster.config.slots)
        member.installed = Installed(
            {cookie: flow.table for cookie, flow in member.wanted.flows.items()},
            dict(member.wanted.groups),
        )
        member.dirty = False
