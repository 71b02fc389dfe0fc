# SPDX-License-Identifier: Apache-2.0
"""The trunk app on switches that keep what they are sent: what a turn sends, in which order."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.cluster import Cluster, Member
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.apps.trunk import TrunkApp
from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.pipeline.diff import (
    AddFlow,
    AddGroup,
    Change,
    DeleteFlows,
    Installed,
    Message,
    ModifyGroup,
    Phase,
    apply,
    batches,
    difference,
    part,
)
from ri2n_sdn.pipeline.plan import plan_host
from tests.unit import bridge_model

__all__ = ["Summary", "Switch", "Trunk", "expected", "model", "other", "summary"]

Summary = tuple[str, str, int]
"""(host, what, of which cookie or group)."""
_COMMANDS = {
    codec.OFPGC_ADD: "group",
    codec.OFPGC_MODIFY: "modify",
    codec.OFPGC_DELETE: "delete group",
}


class Switch:
    """Replaces a channel: keeps what is sent.

    It calls `on_done` when its answer was waited for.
    """

    def __init__(self, name: str, log: list[Summary]) -> None:
        self.name, self.log = name, log
        self.datapath = SimpleNamespace(ofproto=ofp, ofproto_parser=parser)
        self.on_done: Callable[[], None] = lambda: None
        self.breaks = False
        self.mute_for_s = 0.0
        self.answers = True
        self.requests: list[Future[bytes]] = []

    def mute_s(self, now_s: float) -> float:
        return self.mute_for_s

    def next_xid(self) -> int:
        return 1

    def send(self, kind: int) -> None:
        if self.breaks:
            raise RuntimeError("broken")
        assert kind == ofp.OFPT_BARRIER_REQUEST
        self.log.append((self.name, "barrier", 0))

    def send_bytes(self, data: bytes) -> None:
        if not data:
            return
        if self.breaks:
            raise RuntimeError("broken")
        if data[1] == ofp.OFPT_FLOW_MOD:
            cookie, command = struct.unpack_from("!Q9xB", data, 8)
            what = "row" if command == ofp.OFPFC_ADD else "delete row"
            self.log.append((self.name, what, cookie))
            return
        command, number = struct.unpack_from("!H2xI", data, 8)
        self.log.append((self.name, _COMMANDS[command], number))

    def request(self, question: codec.Question) -> Future[bytes]:
        self.requests.append(Future())
        return self.requests[-1]

    def barrier(self) -> Future[bytes]:
        self.log.append((self.name, "asked", 0))
        switch = self

        class Answer(Future[bytes]):
            def result(self, timeout: float | None = None) -> bytes:
                switch.log.append((switch.name, "answered", 0))
                switch.on_done()
                return super().result(timeout)

        answer = Answer()
        if self.answers:
            answer.set_result(b"")
        return answer


class Trunk:
    """A trunk app with switches that hold the plans of one fabric."""

    def __init__(self, model: bridge_model.Cluster) -> None:
        self.log: list[Summary] = []
        self.fabric = model.fabric
        self.cluster = Cluster(ClusterConfig(), "ri2n_plus_plus", Path("none"))
        self.cluster.started = True
        self.cluster.wake.trunk.set()
        self.cluster.fabric = lambda: self.fabric  # type: ignore[method-assign]
        self.app = TrunkApp()
        self.app.cluster = self.cluster
        self.switches = {name: Switch(name, self.log) for name in model.hosts}
        for name, host in model.hosts.items():
            wanted = plan_host(self.fabric, name, {}, 64)
            self.cluster.members[name] = Member(
                name,
                host.dpid,
                host.mac,
                "",
                {},
                channel=self.switches[name],  # type: ignore[arg-type]
                accepts_wire=True,
                installed=apply(difference(wanted, Installed()), Installed()),
                wanted=wanted,
                adopted=True,
                audited_s=time.monotonic(),
            )

    def changes(self, fabric: Fabric) -> dict[str, Change]:
        found = {}
        for name, member in self.cluster.members.items():
            assert member.installed is not None
            wanted = plan_host(fabric, name, {}, 64)
            # Groups whose rows go now are deleted later.
            found[name] = replace(difference(wanted, member.installed), delete_groups=())
        return found

    def turn(self) -> None:
        self.log.clear()
        self.cluster.wake.trunk.set()
        self.app._turn()


def summary(name: str, message: Message) -> Summary:
    if isinstance(message, AddFlow):
        return (name, "row", message.flow.cookie)
    if isinstance(message, DeleteFlows):
        return (name, "delete row", message.cookie)
    if isinstance(message, AddGroup | ModifyGroup):
        return (
            name,
            "group" if isinstance(message, AddGroup) else "modify",
            message.group.group_id,
        )
    return (name, "delete group", message.group_id)


def expected(changes: dict[str, Change]) -> list[Summary]:
    log: list[Summary] = []
    for phase in (Phase.RECEIVE, Phase.SEND, Phase.SWEEP):
        waited = []
        for name, change in changes.items():
            for number, batch in enumerate(batches(part(change, phase))):
                log += [(name, "barrier", 0)] * bool(number) + [
                    summary(name, message) for message in batch
                ]
            if part(change, phase) or phase is Phase.SEND:
                waited.append(name)
        log += [(name, "asked", 0) for name in waited] + [(name, "answered", 0) for name in waited]
    return log


@pytest.fixture
def model() -> bridge_model.Cluster:
    return bridge_model.Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]}, helpers="AB")


def other(model: bridge_model.Cluster) -> Fabric:
    """A plan in which one NIC of A has another address.

    Rows are added, replaced and deleted at both hosts, and groups are changed.
    """
    first, second = model.hosts["A"].nics
    hosts = {
        **model.hosts,
        "A": replace(model.hosts["A"], nics=(replace(first, mac="04:00:00:00:01:99"), second)),
    }
    return replace(model.fabric, hosts=hosts)
