"""Turns of the discovery and striping apps on invented hosts, and when a controller starts."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ri2n_sdn.apps import cluster as cluster_module
from ri2n_sdn.apps import codec, discovery, striping
from ri2n_sdn.apps.cluster import FRESH_GRACE_S, TAKEOVER_GRACE_S, Cluster
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.discovery import DiscoveryApp
from ri2n_sdn.apps.measured import PathRates
from ri2n_sdn.apps.openflow import handler_errors, ofp
from ri2n_sdn.apps.placed_rows import add_placed, delete_placed
from ri2n_sdn.apps.probes import ProbeKind
from ri2n_sdn.apps.reported import Reported
from ri2n_sdn.apps.striping import StripingApp
from ri2n_sdn.discovery.wiring import Probe, Wiring
from ri2n_sdn.fabric.model import NicId
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.pipeline.crc32c import crc32c
from ri2n_sdn.pipeline.helper_frames import Report, ReportEntry
from ri2n_sdn.pipeline.layout import (
    COOKIE_PLACED,
    HELPER_VLAN,
    LOCAL,
    WIRE_PORT,
    Table,
    path_register,
)
from ri2n_sdn.pipeline.messages import Group
from ri2n_sdn.pipeline.placement import FIN_TIMEOUT_S, IDLE_TIMEOUT_S, Connection, path_of_cookie
from tests.unit.commands import REPOSITORY
from tests.unit.fake_hosts import FakeChannel, cluster_of, host_mac, plan

ONE, TWO = (1, 1, 0), (2, 2, 0)
VECTORS = json.loads((REPOSITORY / "reorder/tests/vectors.json").read_text(encoding="utf-8"))
REPORT = next(each for each in VECTORS["frames"] if each.get("report", {}).get("entries"))
PACKET_OUT_HEAD = len(codec.packet_out(1, b"", 0))


class Clock:
    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s + 5e8


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (cluster_module, discovery, striping):
        monkeypatch.setattr(module, "time", clock)
    return clock


def channel_of(cluster: Cluster, name: str) -> FakeChannel:
    return cast(FakeChannel, cluster.members[name].channel)


# ---- discovery


class Wires:
    """Replaces discovery.wiring.Wiring.

    It asks for the probes that a test names, and keeps what it is told.
    """

    def __init__(self) -> None:
        self.lag_s = -1.0
        self.events: list[str] = []
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


def packet_in(
    app: DiscoveryApp, receiver: str, port: int, frame: bytes, dpid: int | None = None
) -> FakeChannel:
    channel = channel_of(app.cluster, receiver)
    datapath = SimpleNamespace(
        id=app.cluster.members[receiver].dpid if dpid is None else dpid, ri2n_channel=channel
    )
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
    assert counters == {"packet_ins": 3, "dropped_packet_in_of_stranger": 3}


def test_a_frame_or_an_echo_before_its_channel_is_made(
    discovery_app: DiscoveryApp, clock: Clock
) -> None:
    """os-ken may hand them out before the sender is known."""
    datapath = SimpleNamespace(id=ord("B"), ri2n_channel=None)
    before, frame = (
        sum(handler_errors.values()),
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
    assert sum(handler_errors.values()) == before and not wires(discovery_app).heard_of
    assert discovery_app.cluster.counters["dropped_packet_in_of_stranger"] == 3


def probe(app: DiscoveryApp, kind: ProbeKind, sent_s: float, dpid: int = ord("A")) -> bytes:
    return app.cluster.probes.encode(kind, "04:00:00:00:41:01", None, dpid, 1, sent_s)


@pytest.mark.parametrize(("kind", "flooded"), [(ProbeKind.FLOODED, True), (ProbeKind.RING, False)])
def test_a_probe_tells_its_two_ends_and_whether_it_was_flooded(
    discovery_app: DiscoveryApp, clock: Clock, kind: ProbeKind, flooded: bool
) -> None:
    wires(discovery_app).events, wires(discovery_app).changed = ["A:eth0 is on n1"], True
    discovery_app.cluster.members["A"].dirty = False
    channel = packet_in(discovery_app, "B", 2, probe(discovery_app, kind, clock.now_s))
    assert wires(discovery_app).heard_of == [(("A", 1), ("B", 2), flooded, clock.now_s)]
    assert channel.heard_s == clock.now_s and discovery_app.cluster.counters["packet_ins"] == 1
    assert [text for _, _, text in discovery_app.cluster.events] == [
        "A:eth0 is on n1"
    ] and not wires(discovery_app).events
    assert discovery_app.cluster.members["A"].dirty and not wires(discovery_app).changed


def test_probes_of_strangers_and_trees_and_garbage_are_no_wiring(
    discovery_app: DiscoveryApp, clock: Clock
) -> None:
    packet_in(
        discovery_app, "B", 2, probe(discovery_app, ProbeKind.FLOODED, clock.now_s, dpid=0x99)
    )
    packet_in(
        discovery_app, "B", 2, probe(discovery_app, ProbeKind.FLOODED, clock.now_s), dpid=0x99
    )
    packet_in(discovery_app, "B", 2, probe(discovery_app, ProbeKind.TREE, clock.now_s))
    packet_in(discovery_app, "B", 2, probe(discovery_app, ProbeKind.LEARNING, clock.now_s))
    packet_in(discovery_app, "B", 2, probe(discovery_app, ProbeKind.FLOODED, clock.now_s - 60))
    packet_in(discovery_app, "B", 2, b"garbage")
    counters = discovery_app.cluster.counters
    assert not wires(discovery_app).heard_of
    assert (counters["dropped_probe_of_stranger"], counters["dropped_probe_old"]) == (2, 1)
    assert counters["dropped_probe_truncated"] == 1 and counters["packet_ins"] == 6
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
    packet_in(discovery_app, "B", LOCAL, frame, dpid=0x99)
    assert not discovery_app.cluster.syn_acks  # the sender is a stranger
    packet_in(discovery_app, "B", LOCAL, frame)
    assert (
        not wires(discovery_app).heard_of
        and discovery_app.cluster.counters["dropped_report_malformed"] == 1
    )
    assert (
        list(discovery_app.cluster.syn_acks) == [ord("B")]
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
    (echo,) = a.sent
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
    answer(echo.data)
    assert a.answered_s == clock.now_s
    answer(struct.pack("!d", clock.now_s - 1))  # an older one
    assert a.answered_s == clock.now_s
    discovery_app._turn()
    assert wires(discovery_app).answered == {"A": clock.now_s, "B": -1e9, "C": -1e9}


# ---- taking charge


@pytest.mark.parametrize("taken_over", [False, True])
def test_hosts_that_are_not_declared_are_waited_for(clock: Clock, taken_over: bool) -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    plan(cluster)
    cluster.started, cluster.started_s = False, clock.now_s
    for member in cluster.members.values():
        member.reports_probes = True
        assert member.installed is not None
        member.installed.groups = {1: Group(1, Group.SELECT, ())} if taken_over else {}
    grace_s = TAKEOVER_GRACE_S if taken_over else FRESH_GRACE_S
    assert not cluster.may_start(clock.now_s + grace_s)
    cluster.members["B"].reports_probes = False
    assert not cluster.may_start(clock.now_s + grace_s + 0.1), "its probe rows are not there yet"
    cluster.members["B"].reports_probes = True
    cast(Any, cluster.wiring).settled = False
    assert not cluster.may_start(clock.now_s + grace_s + 0.1)
    cast(Any, cluster.wiring).settled = True
    assert cluster.may_start(clock.now_s + grace_s + 0.1) and cluster.started
    assert cluster.events[-1][2] == "in charge of 2 hosts: A, B" and cluster.members["A"].dirty


def test_declared_hosts_are_waited_for_and_no_longer(clock: Clock) -> None:
    config = parse_model("hosts: {A: {}, B: {}}", ClusterConfig, "cluster.yaml")
    cluster = cluster_of({"A": FakeChannel(), "B": None, "C": FakeChannel()}, config)
    cluster.started, cluster.started_s = False, clock.now_s
    for member in cluster.members.values():
        member.reports_probes = True
    assert not cluster.may_start(clock.now_s)
    cluster.members["B"].channel = cluster.members["C"].channel
    assert cluster.may_start(clock.now_s)
    assert not Cluster(config, "max_min", cluster.socket_path).may_start(1e9), "nobody has come"


@pytest.mark.parametrize("declared", [False, True])
def test_nobody_waits_with_taking_charge_for_a_mute_host(clock: Clock, declared: bool) -> None:
    """A mute host counts as absent: it neither delays the start nor makes the controller start."""
    config = parse_model(
        f"hosts: {'{A: {}, B: {}, C: {}}' if declared else '{}'}", ClusterConfig, "cluster.yaml"
    )
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel(), "C": FakeChannel()}, config)
    cluster.started, cluster.started_s = False, clock.now_s
    for name in "AB":
        cluster.members[name].reports_probes = True
    channel_of(cluster, "C").mute_for_s = 0.4  # it may only be late
    assert not cluster.may_start(clock.now_s + TAKEOVER_GRACE_S + 0.1)
    channel_of(cluster, "C").mute_for_s = 0.6
    assert not cluster.may_start(clock.now_s + FRESH_GRACE_S)
    assert cluster.may_start(clock.now_s + FRESH_GRACE_S + 0.1)


@pytest.mark.parametrize("mute_s", [0.0, 0.6])
def test_who_is_quickest_does_not_make_a_controller_begin_without_the_others(
    clock: Clock, mute_s: float
) -> None:
    """A host that shares no network may be a stranger.

    The hosts whose rows are in use get the time that they need to connect.
    """
    cluster = cluster_of({"X": FakeChannel()})
    cluster.started, cluster.started_s = False, clock.now_s
    cluster.members["X"].reports_probes = True
    channel_of(cluster, "X").mute_for_s = mute_s
    assert not cluster.may_start(clock.now_s + FRESH_GRACE_S + 0.1)
    assert not cluster.may_start(clock.now_s + TAKEOVER_GRACE_S)
    assert cluster.may_start(clock.now_s + TAKEOVER_GRACE_S + 0.1)


def test_a_host_that_has_long_been_mute_keeps_nobody_from_being_settled() -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    plan(cluster)
    cluster.members["B"].dirty, cluster.members["B"].accepts_wire = True, False
    channel_of(cluster, "B").mute_for_s = 4.9  # on a busy machine it may only be late
    assert not cluster.settled()
    channel_of(cluster, "B").mute_for_s = 5.1
    assert cluster.settled()


@pytest.mark.parametrize("what", ["accepts_wire", "dirty", "busy", "started", "wiring"])
def test_all_is_settled_when_nothing_is_left_to_do(what: str) -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel(), "C": None})
    plan(cluster)
    cluster.members["C"].dirty = True  # it is away
    assert cluster.settled()
    if what == "started":
        cluster.started = False
    elif what == "wiring":
        cast(Any, cluster.wiring).settled = False
    else:
        setattr(cluster.members["B"], what, what != "accepts_wire")
    assert not cluster.settled()


def test_a_nics_rate_is_the_declared_one_else_what_it_says() -> None:
    config = parse_model("hosts: {A: {nics: {eth0: {rate_bps: 7}}}}", ClusterConfig, "cluster.yaml")
    cluster = cluster_of({"A": FakeChannel()}, config, nics=3)
    cluster.members["A"].ports[3].speed_bps = 0
    assert [nic.rate_bps for nic in cluster.fabric().hosts["A"].nics] == [
        7,
        100_000_000,
        1_000_000_000,
    ]


# ---- news for helpers


@pytest.fixture
def striping_app(clock: Clock) -> StripingApp:
    app = StripingApp()
    app.cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel(), "C": FakeChannel()})
    for name in "AB":
        app.cluster.members[name].taps = {101: True, 102: True}
    app.cluster.topology_changed()
    return app


def frames_sent(app: StripingApp, name: str) -> list[bytes]:
    """The frames that a helper was sent in one turn."""
    for member in app.cluster.members.values():
        cast(FakeChannel, member.channel).sent_bytes.clear()
    app.cluster.wake.striping.set()
    app._turn()
    data, frames = b"".join(channel_of(app.cluster, name).sent_bytes), []
    while data:
        length = int.from_bytes(data[2:4], "big")
        frame, vlan = codec.untagged(data[PACKET_OUT_HEAD:length])
        assert (
            vlan == HELPER_VLAN
            and data[:4] == codec.packet_out(WIRE_PORT, codec.tagged(frame, vlan), 1)[:4]
        )
        frames.append(frame)
        data = data[length:]
    return frames


def mac_in(name: str) -> bytes:
    return bytes.fromhex(host_mac(name).replace(":", ""))


def test_a_helper_hears_of_its_host_and_of_its_peer_and_again_every_two_seconds(
    striping_app: StripingApp, clock: Clock
) -> None:
    first = frames_sent(striping_app, "A")
    assert len(first) == 2 and mac_in("A") in first[0] and mac_in("B") in first[1]
    assert striping_app.cluster.counters["helper_frames_sent"] == 4
    assert frames_sent(striping_app, "A") == []
    clock.now_s += 2.1
    assert frames_sent(striping_app, "A") == first
    assert not channel_of(striping_app.cluster, "C").sent_bytes, "it has no helper"
    striping_app.cluster.helpers_to_greet.add("A")
    assert frames_sent(striping_app, "A") == first and not striping_app.cluster.helpers_to_greet


def test_only_what_changed_is_said_anew(striping_app: StripingApp, clock: Clock) -> None:
    frames_sent(striping_app, "A")
    shares = {ONE: PathRates(share=0.8, rate_bps=8e7), TWO: PathRates(share=0.2, rate_bps=2e7)}
    striping_app.cluster.measured.rates = {("A", "B"): shares}
    (news,) = frames_sent(striping_app, "A")
    assert mac_in("B") in news and frames_sent(striping_app, "A") == []
    striping_app.cluster.measured.rates = {}
    (back,) = frames_sent(striping_app, "A")
    assert mac_in("B") in back and back != news, "a pair that is idle again"


def test_a_strategy_that_was_changed_is_told_at_once(striping_app: StripingApp) -> None:
    frames_sent(striping_app, "A")
    striping_app.cluster.loop.set_strategy("round_robin")
    news = frames_sent(striping_app, "A")
    assert len(news) == 1 and mac_in("A") in news[0]


def test_a_helper_that_is_gone_is_forgotten_and_one_that_is_back_hears_all(
    striping_app: StripingApp,
) -> None:
    first = frames_sent(striping_app, "A")
    striping_app.cluster.members["A"].taps[102] = False
    striping_app.cluster.topology_changed()
    assert frames_sent(striping_app, "A") == [] and set(striping_app._frames_of) == {"B"}
    striping_app.cluster.members["A"].taps[102] = True
    striping_app.cluster.topology_changed()
    assert frames_sent(striping_app, "A") == first


def test_nothing_is_told_before_the_controller_is_in_charge(striping_app: StripingApp) -> None:
    striping_app.cluster.started = False
    assert frames_sent(striping_app, "A") == []


def test_a_host_that_left_is_said_to_be_gone(striping_app: StripingApp, clock: Clock) -> None:
    frames_sent(striping_app, "A")
    del striping_app.cluster.members["B"]
    striping_app.cluster.topology_changed()
    frames = frames_sent(striping_app, "A")
    assert any(mac_in("B") in frame for frame in frames)
    for _ in range(3):
        clock.now_s += 2.1
        frames = frames_sent(striping_app, "A")
    assert not any(mac_in("B") in frame for frame in frames)


def test_a_report_is_kept_when_it_is_of_the_host_that_it_came_from(
    striping_app: StripingApp, clock: Clock
) -> None:
    def report(mac: str) -> bytes:
        before, after = (
            bytes.fromhex(each.replace(":", "")) for each in (REPORT["report"]["mac"], mac)
        )
        frame = bytes.fromhex("".join(REPORT["hex"])).replace(before, after)
        return frame[:16] + crc32c(frame[12:16] + frame[20:]).to_bytes(4, "big") + frame[20:]

    cluster = striping_app.cluster
    striping.take_report(cluster, ord("A"), report(host_mac("B")), clock.now_s)
    striping.take_report(cluster, 0x99, report(host_mac("A")), clock.now_s)
    striping.take_report(cluster, ord("A"), b"garbage", clock.now_s)
    assert not cluster.measured.reports and cluster.counters["dropped_report_of_stranger"] == 2
    assert cluster.counters["dropped_report_malformed"] == 1
    striping.take_report(cluster, ord("A"), report(host_mac("A")), clock.now_s)
    assert (
        cluster.measured.reports["A"].heard_s == clock.now_s
        and cluster.counters["helper_reports"] == 1
    )


def test_a_helper_that_reports_a_peer_of_an_earlier_controller_hears_that_it_is_gone(
    striping_app: StripingApp, clock: Clock
) -> None:
    stranger = "06:00:00:00:77:00"
    entry = ReportEntry(stranger, 0, True, True, True, 0, 0, 0, 0, 0, 0, 0, 0)
    said = striping_app.cluster.measured.reports["A"] = Reported()
    said.take(Report(0, host_mac("A"), 0, (entry,)), clock.now_s)
    assert any(
        bytes.fromhex(stranger.replace(":", "")) in frame
        for frame in frames_sent(striping_app, "A")
    )


def test_a_helper_that_was_told_by_a_later_clock_is_told_all_again_with_its_own(
    striping_app: StripingApp, clock: Clock
) -> None:
    """Otherwise the helper would refuse all frames for as long as the clock was set back.

    The other helper is not affected.
    """
    first = frames_sent(striping_app, "A")
    ahead = striping_app._generation + 86_400
    said = striping_app.cluster.measured.reports["A"] = Reported()
    said.take(Report(0, host_mac("A"), ahead, ()), clock.now_s)
    again = frames_sent(striping_app, "A")
    assert [generation_in(frame) for frame in again] == [ahead] * len(first)
    assert [without_generation(frame) for frame in again] == [
        without_generation(frame) for frame in first
    ]
    assert frames_sent(striping_app, "A") == [] and frames_sent(striping_app, "B") == [], "once"
    assert [text for _, _, text in striping_app.cluster.events][-1].startswith(
        "A: its helper was told its links by a controller whose clock was 864"
    )
    # What changes later is said with it, too; nothing older is.
    striping_app.cluster.loop.set_strategy("round_robin")
    assert [generation_in(frame) for frame in frames_sent(striping_app, "A")] == [ahead]
    striping_app.cluster.measured.reports["B"] = Reported()
    striping_app.cluster.measured.reports["B"].take(
        Report(0, host_mac("B"), striping_app._generation, ()), clock.now_s
    )
    assert frames_sent(striping_app, "B") == [], "it believes this controller"


def test_a_clock_that_is_set_back_makes_nothing_older(
    striping_app: StripingApp, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helpers refuse frames that are older than those they know."""
    before = generation_in(frames_sent(striping_app, "A")[0])
    monkeypatch.setattr(clock, "time", lambda: 1.0)
    striping_app.cluster.loop.set_strategy("round_robin")
    assert [generation_in(frame) for frame in frames_sent(striping_app, "A")] == [before]


def generation_in(frame: bytes) -> int:
    return int.from_bytes(frame[22:26], "big")


def without_generation(frame: bytes) -> bytes:
    return frame[:16] + frame[20:22] + frame[26:]


def test_many_helpers_are_told_again_more_rarely(
    striping_app: StripingApp, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of repeated frames a second is limited, here to four."""
    monkeypatch.setattr(striping, "_FRAMES_PER_S", 0.4)
    first = frames_sent(striping_app, "A")
    clock.now_s += 9.9
    assert frames_sent(striping_app, "A") == []
    clock.now_s += 0.2
    assert frames_sent(striping_app, "A") == first


# ---- rows of placed connections


@pytest.mark.parametrize("source", ["10.0.0.1", "fd00::1"])
def test_a_placed_row_is_above_learned_ones_and_ends_by_itself(source: str) -> None:
    connection = Connection(source, 80, source[:-1] + "2", 40001, host_mac("B"))
    datapath = FakeChannel().datapath
    added, deleted = (
        add_placed(datapath, connection, (3, 4, 102)),
        delete_placed(datapath, connection),
    )
    assert (added.table_id, added.command, added.priority) == (Table.PLACED, ofp.OFPFC_ADD, 20)
    assert (added.idle_timeout, added.hard_timeout) == (IDLE_TIMEOUT_S, 0)
    assert added.cookie >> 48 == COOKIE_PLACED >> 48 and path_of_cookie(added.cookie) == (3, 4, 102)
    register, ending = added.instructions[0].actions
    assert register.value == path_register(3, 4, 102) and register.key == "reg1"
    assert (ending.fin_idle_timeout, ending.fin_hard_timeout) == (FIN_TIMEOUT_S, 0)
    assert (deleted.table_id, deleted.command, deleted.priority) == (
        Table.PLACED,
        ofp.OFPFC_DELETE_STRICT,
        20,
    )
    fields = dict(added.match.items())
    assert fields == dict(deleted.match.items()) == connection.match
    assert (
        json.dumps(added.to_jsondict())
        and fields["tcp_src"] == 80
        and fields["eth_dst"] == host_mac("B")
    )
