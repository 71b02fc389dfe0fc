# SPDX-License-Identifier: Apache-2.0
"""Turns of the discovery app on invented hosts: probes, echoes and what they tell."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from ri2n_sdn.apps import codec, discovery
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.discovery import DiscoveryApp
from ri2n_sdn.apps.openflow import handler_errors, ofp
from ri2n_sdn.apps.probes import ProbeKind
from ri2n_sdn.contract.events import Event
from ri2n_sdn.discovery.wiring import Probe, Wiring
from ri2n_sdn.fabric.model import NicId
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.pipeline.layout import LOCAL, WIRE_PORT
from tests.unit.app_turns import PACKET_OUT_HEAD, Clock, channel_of, clock
from tests.unit.fake_hosts import FakeChannel, cluster_of

__all__ = ["clock"]


class Wires:
    """Replaces discovery.wiring.Wiring.

    It asks for the probes that a test names, and keeps what it is told.
    """

    def __init__(self) -> None:
        self.lag_s = -1.0
        self.events: list[Event] = []
        self.changed = False
        self.settled = True
        self.hosts_under_test: set[str] = set()
        self.wanted: list[Probe] = []
        self.heard_of: list[tuple[NicId, NicId, bool, float]] = []
        self.answered: dict[str, float] = {}
        self.strangers: list[tuple[NicId, float]] = []

    def strange(self, receiver: NicId, now_s: float) -> None:
        self.strangers.append((receiver, now_s))

    def tick(self, now_s: float, answered_s: Callable[[str], float]) -> list[Probe]:
        self.answered = {name: answered_s(name) for name in ("A", "B", "C")}
        return self.wanted

    def heard(self, sender: NicId, receiver: NicId, flooded: bool, now_s: float) -> None:
        self.heard_of.append((sender, receiver, flooded, now_s))


@pytest.fixture
def discovery_app(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> DiscoveryApp:
    monkeypatch.setattr(discovery, "_TICK_S", 0.0)
    app = DiscoveryApp()
    app.cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    app.cluster.wiring = cast(Wiring, Wires())
    return app


def wires(app: DiscoveryApp) -> Wires:
    return cast(Wires, app.cluster.wiring)


def packet_in(app: DiscoveryApp, receiver: str, port: int, frame: bytes) -> FakeChannel:
    channel = channel_of(app.cluster, receiver)
    datapath = SimpleNamespace(id=app.cluster.members[receiver].dpid, ri2n_channel=channel)
    app.packet_in(
        SimpleNamespace(msg=SimpleNamespace(datapath=datapath, match={"in_port": port}, data=frame))
    )
    return channel


def test_a_frame_counts_by_the_connection_of_its_host_alone(
    discovery_app: DiscoveryApp, clock: Clock
) -> None:
    """A stranger may claim a host's datapath ID, before that host was let in or at any time."""
    datapath = SimpleNamespace(id=ord("B"), ri2n_channel=FakeChannel())
    for port in (2, WIRE_PORT, LOCAL):
        frame = probe(discovery_app, ProbeKind.FLOODED, clock.now_s)
        discovery_app.packet_in(
            SimpleNamespace(
                msg=SimpleNamespace(datapath=datapath, match={"in_port": port}, data=frame)
            )
        )
    counters = discovery_app.cluster.counters
    assert not wires(discovery_app).heard_of
    assert counters.described() == {"packet_ins": 3, "dropped_packet_in_of_stranger": 3}


def test_a_frame_or_an_echo_before_its_channel_is_made(
    discovery_app: DiscoveryApp, clock: Clock
) -> None:
    """os-ken may hand them out before the sender is known."""
    datapath = SimpleNamespace(id=ord("B"), ri2n_channel=None)
    before, frame = (
        sum(handler_errors.described().values()),
        probe(discovery_app, ProbeKind.FLOODED, clock.now_s),
    )
    for port in (2, WIRE_PORT, LOCAL):
        discovery_app.packet_in(
            SimpleNamespace(
                msg=SimpleNamespace(datapath=datapath, match={"in_port": port}, data=frame)
            )
        )
    discovery_app.echoed(
        SimpleNamespace(msg=SimpleNamespace(datapath=datapath, data=struct.pack("!d", clock.now_s)))
    )
    assert sum(handler_errors.described().values()) == before and not wires(discovery_app).heard_of
    assert discovery_app.cluster.counters["dropped_packet_in_of_stranger"] == 3


def probe(app: DiscoveryApp, kind: ProbeKind, sent_s: float, dpid: int = ord("A")) -> bytes:
    return app.cluster.probes.encode(kind, "04:00:00:00:41:01", None, dpid, 1, sent_s)


@pytest.mark.parametrize(("kind", "flooded"), [(ProbeKind.FLOODED, True), (ProbeKind.RING, False)])
def test_a_probe_tells_its_two_ends_and_whether_it_was_flooded(
    discovery_app: DiscoveryApp, clock: Clock, kind: ProbeKind, flooded: bool
) -> None:
    wires(discovery_app).events = [Event("nic_sends_again", {"host": "A", "nic": "eth0"})]
    wires(discovery_app).changed = True
    discovery_app.cluster.members["A"].dirty = False
    channel = packet_in(discovery_app, "B", 2, probe(discovery_app, kind, clock.now_s))
    assert wires(discovery_app).heard_of == [(("A", 1), ("B", 2), flooded, clock.now_s)]
    assert channel.heard_s == clock.now_s and discovery_app.cluster.counters["packet_ins"] == 1
    assert [event["text"] for event in discovery_app.cluster.events] == [
        "A:eth0 sends again"
    ] and not wires(discovery_app).events
    assert discovery_app.cluster.members["A"].dirty and not wires(discovery_app).changed


def test_probes_of_strangers_and_trees_and_garbage_are_no_wiring(
    discovery_app: DiscoveryApp, clock: Clock
) -> None:
    packet_in(
        discovery_app, "B", 2, probe(discovery_app, ProbeKind.FLOODED, clock.now_s, dpid=0x99)
    )
    packet_in(discovery_app, "B", 2, probe(discovery_app, ProbeKind.TREE, clock.now_s))
    packet_in(discovery_app, "B", 2, probe(discovery_app, ProbeKind.LEARNING, clock.now_s))
    packet_in(discovery_app, "B", 2, probe(discovery_app, ProbeKind.FLOODED, clock.now_s - 60))
    packet_in(discovery_app, "B", 2, b"garbage")
    counters = discovery_app.cluster.counters
    assert not wires(discovery_app).heard_of
    assert (counters["dropped_probe_of_stranger"], counters["dropped_probe_old"]) == (1, 1)
    assert counters["dropped_probe_truncated"] == 1 and counters["packet_ins"] == 5
    assert wires(discovery_app).strangers == [(("B", 2), clock.now_s)] * 2, (
        "an old one and garbage; not those of a stranger's"
    )


def test_frames_of_a_helper_and_of_the_host_itself_are_for_others(
    discovery_app: DiscoveryApp, clock: Clock
) -> None:
    frame = probe(discovery_app, ProbeKind.FLOODED, clock.now_s)
    packet_in(discovery_app, "B", WIRE_PORT, frame)
    packet_in(discovery_app, "B", LOCAL, frame)
    assert not discovery_app.cluster.syn_acks  # nothing is placed in this cluster
    discovery_app.cluster.config = parse_model(
        "placement: [{hosts: [B]}]", ClusterConfig, "cluster.yaml"
    )
    packet_in(discovery_app, "B", LOCAL, frame)
    assert (
        not wires(discovery_app).heard_of
        and discovery_app.cluster.counters["dropped_report_malformed"] == 1
    )
    assert (
        list(discovery_app.cluster.syn_acks) == ["B"]
        and discovery_app.cluster.wake.placement.is_set()
    )


@pytest.mark.parametrize(("old", "lag_s"), [(3, 0.01), (6, 0.5)])
def test_this_machine_lags_when_most_probes_are_old(
    discovery_app: DiscoveryApp, clock: Clock, old: int, lag_s: float
) -> None:
    discovery_app._turn()
    assert wires(discovery_app).lag_s == 0.0
    for number in range(9):
        packet_in(
            discovery_app,
            "B",
            2,
            probe(discovery_app, ProbeKind.FLOODED, clock.now_s - (0.5 if number < old else 0.01)),
        )
    discovery_app._turn()
    assert wires(discovery_app).lag_s == pytest.approx(lag_s)
    assert discovery_app.cluster.counters["discovery_lags"] == (lag_s > 0.1)


def test_probes_go_out_of_the_nics_that_are_asked_for(
    discovery_app: DiscoveryApp, clock: Clock
) -> None:
    wires(discovery_app).wanted = [
        Probe(("A", 1), None),
        Probe(("A", 2), ("B", 1)),
        Probe(("A", 7), None),  # there is no such port any more
        Probe(("A", 1), ("B", 7)),
        Probe(("Z", 1), None),
    ]
    discovery_app._turn()
    sent = channel_of(discovery_app.cluster, "A").sent_bytes
    frames = [message[PACKET_OUT_HEAD:] for message in sent]
    assert [message[: -len(frame)] for message, frame in zip(sent, frames, strict=True)] == [
        codec.packet_out(port, frame, xid)[:PACKET_OUT_HEAD]
        for port, frame, xid in zip((1, 2), frames, (1, 2), strict=True)
    ]
    decoded = [discovery_app.cluster.probes.decode(frame, clock.now_s) for frame in frames]
    assert [(each.kind, each.dpid, each.port) for each in decoded] == [
        (ProbeKind.FLOODED, ord("A"), 1),
        (ProbeKind.RING, ord("A"), 2),
    ]
    assert frames[1][:12].hex(":") == "04:00:00:00:42:01:04:00:00:00:41:02"
    assert (
        discovery_app.cluster.counters["probes_sent"] == 2
        and not channel_of(discovery_app.cluster, "B").sent_bytes
    )


def test_hosts_under_test_are_asked_for_an_echo_behind_their_probes(
    discovery_app: DiscoveryApp, clock: Clock
) -> None:
    wires(discovery_app).hosts_under_test = {"A", "Z"}
    discovery_app._turn()
    a = channel_of(discovery_app.cluster, "A")
    ((kind, echo),) = a.sent
    assert kind == ofp.OFPT_ECHO_REQUEST
    assert not channel_of(discovery_app.cluster, "B").sent and wires(
        discovery_app
    ).answered == dict.fromkeys("ABC", -1e9)

    def answer(data: bytes) -> None:
        discovery_app.echoed(
            SimpleNamespace(
                msg=SimpleNamespace(data=data, datapath=SimpleNamespace(ri2n_channel=a))
            )
        )

    answer(b"")
    answer(struct.pack("!d", clock.now_s + 1))  # from the future
    assert a.answered_s == -1e9
    answer(echo)
    assert a.answered_s == clock.now_s
    answer(struct.pack("!d", clock.now_s - 1))  # an older one
    assert a.answered_s == clock.now_s
    discovery_app._turn()
    assert wires(discovery_app).answered == {"A": clock.now_s, "B": -1e9, "C": -1e9}
