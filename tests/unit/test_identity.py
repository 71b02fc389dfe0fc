# SPDX-License-Identifier: Apache-2.0
"""Hosts that pretend to be another one, or cannot be a host, are refused with a line."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ri2n_sdn.apps import connection
from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.connection import ConnectionApp
from ri2n_sdn.apps.openflow import DEAD_DISPATCHER, _names, ofp
from ri2n_sdn.contract.printing import printable
from ri2n_sdn.discovery.wiring import Wiring
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.pipeline.diff import Installed
from tests.problem_texts import problem_texts
from tests.unit.fake_hosts import FakeChannel, cluster_of, description, host_mac, member_of, plan

FIRST_NIC_OF_B = "04:00:00:00:42:01"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> ConnectionApp:
    monkeypatch.setattr(connection, "_PROOF_S", 0.05)
    app = ConnectionApp()
    app.cluster = cluster_of({name: FakeChannel() for name in "ABC"})
    plan(app.cluster)
    return app


def channel_of(cluster: Cluster, name: str) -> FakeChannel:
    return cast(FakeChannel, cluster.members[name].channel)


def raw_port(number: int, mac: str, name: bytes = b"eth0") -> Any:
    return SimpleNamespace(port_no=number, hw_addr=mac, name=name, state=0, config=0, properties=[])


def described(
    app: ConnectionApp, name: bytes, mac: str, nics: dict[int, str], dpid: int = 0x99, **body: Any
) -> FakeChannel:
    """Let a switch connect and describe itself; returns its channel."""
    channel = FakeChannel()
    channel.address = "192.0.2.9"
    channel.datapath.id = dpid
    channel.datapath.ri2n_names = body.pop("certified", None)
    channel.datapath.ri2n_certificate_ends_s = body.pop("ends_s", None)
    channel.datapath.ports = {0xFFFFFFFE: raw_port(0xFFFFFFFE, mac, b"br")}
    nic_name = body.pop("nic_name", b"eth0")
    channel.datapath.ports |= {
        number: raw_port(number, nic, nic_name) for number, nic in nics.items()
    }
    channel.datapath.ports = body.pop("ports", dict)(channel.datapath.ports)
    reply: Future[bytes] = Future()
    reply.set_result(description(name, **body))
    app._described(cast(Channel, channel), reply)
    return channel


FAULTS = {
    "two NICs": (
        "06:00:00:00:99:00",
        {1: "04:00:00:00:99:01", 2: "04:00:00:00:99:01"},
        "eth0 and eth0 have one MAC",
    ),
    "a stock bridge": (
        "04:00:00:00:99:01",
        {1: "04:00:00:00:99:01"},
        "its bridge and eth0 have one MAC address",
    ),
    "a multicast address": (
        "06:00:00:00:99:00",
        {1: "05:00:00:00:99:01"},
        "05:00:00:00:99:01, which no NIC may have",
    ),
    "no address": (
        "00:00:00:00:00:00",
        {1: "04:00:00:00:99:01"},
        "00:00:00:00:00:00, which no NIC may have",
    ),
    "all ones": (
        "06:00:00:00:99:00",
        {1: "ff:ff:ff:ff:ff:ff"},
        "ff:ff:ff:ff:ff:ff, which no NIC may have",
    ),
}


@pytest.mark.parametrize(("mac", "nics", "fault"), FAULTS.values(), ids=FAULTS)
def test_addresses_that_cannot_be_a_hosts_are_refused_with_what_to_do(
    app: ConnectionApp, mac: str, nics: dict[int, str], fault: str
) -> None:
    channel = described(app, b"D\0", mac, nics)
    assert channel.closed and not channel.known and "D" not in app.cluster.members
    (warning,) = problem_texts(app.cluster)
    assert (
        fault in warning
        and warning.startswith("D at 192.0.2.9 refused: ")
        and warning.endswith("run host-up there")
    )


def test_a_host_in_order_is_let_in_and_known_to_the_listener(app: ConnectionApp) -> None:
    channel = described(
        app, b"D\0\0", "06:00:00:00:99:00", {1: "04:00:00:00:99:01", 2: "04:00:00:00:99:02"}
    )
    assert channel.known and not channel.closed and app.cluster.members["D"].ports.keys() == {1, 2}


@pytest.mark.parametrize(("declared", "wired"), [(False, False), (False, True), (True, False)])
def test_a_host_that_was_on_no_network_with_others_is_forgotten_when_it_leaves(
    app: ConnectionApp, declared: bool, wired: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an attacker who reaches the controller's port could leave thousands of names."""
    if declared:
        app.cluster.config = parse_model("hosts: {D: {}}", ClusterConfig, "cluster.yaml")
    network = app.cluster.wiring.network
    monkeypatch.setattr(
        app.cluster.wiring, "network", lambda nic: network(nic) if wired or nic[0] != "D" else "n77"
    )
    channel = described(app, b"D\0", "06:00:00:00:99:00", {1: "04:00:00:00:99:01"})
    datapath = SimpleNamespace(ri2n_channel=channel)
    app.state_changed(SimpleNamespace(state=DEAD_DISPATCHER, datapath=datapath))
    assert ("D" in app.cluster.members) == (declared or wired)
    assert app.cluster.members.keys() >= {"A", "B", "C"}


class Changing(dict[int, Any]):
    """Ports that get a new entry each time they are iterated."""

    def values(self) -> Any:
        for each in super().values():
            yield each
            self[len(self)] = raw_port(len(self), f"04:00:00:00:98:{len(self):02x}")


def test_a_port_that_comes_while_its_host_is_let_in_is_no_obstacle(app: ConnectionApp) -> None:
    """The connection's reading thread goes on, and adds what it reads."""
    channel = described(app, b"D\0", "06:00:00:00:99:00", {1: "04:00:00:00:99:01"}, ports=Changing)
    assert channel.known and app.cluster.members["D"].ports.keys() == {1}


def status_of(app: ConnectionApp, name: str, number: int, mac: str) -> None:
    channel = channel_of(app.cluster, name)
    datapath = SimpleNamespace(ri2n_channel=channel)
    message = SimpleNamespace(
        datapath=datapath, desc=raw_port(number, mac), reason=ofp.OFPPR_MODIFY
    )
    app.port_changed(SimpleNamespace(msg=message))


@pytest.mark.parametrize(
    ("mac", "fault"),
    [
        (FIRST_NIC_OF_B, f"B at 192.0.2.1 has the same MAC address {FIRST_NIC_OF_B}"),
        (host_mac("C"), f"C at 192.0.2.1 has the same MAC address {host_mac('C')}"),
        ("04:00:00:00:41:02", "eth0 and eth1 have one MAC address"),
        (host_mac("A"), "its bridge and eth0 have one MAC address"),
    ],
)
def test_a_nic_that_is_given_anothers_address_costs_its_host_the_connection(
    app: ConnectionApp, mac: str, fault: str
) -> None:
    before = dict(app.cluster.members["A"].ports)
    status_of(app, "A", 1, mac)
    assert channel_of(app.cluster, "A").closed and app.cluster.members["A"].ports == before
    assert not any(channel_of(app.cluster, name).closed for name in "BC")
    (warning,) = problem_texts(app.cluster)
    assert fault in warning and not any(member.dirty for member in app.cluster.members.values())


def test_a_nic_with_an_address_of_its_own_is_taken(app: ConnectionApp) -> None:
    status_of(app, "A", 1, "04:00:00:00:41:77")
    assert (
        app.cluster.members["A"].ports[1].mac == "04:00:00:00:41:77"
        and not channel_of(app.cluster, "A").closed
    )


def leave(app: ConnectionApp, name: str) -> None:
    app._left(app.cluster.members[name])


def test_a_host_that_has_another_name_now_takes_its_ghost_along(app: ConnectionApp) -> None:
    leave(app, "A")
    new = described(
        app,
        b"renamed",
        host_mac("A"),
        {1: "04:00:00:00:41:01", 2: "04:00:00:00:41:02"},
        dpid=ord("A"),
    )
    assert new.known and set(app.cluster.members) == {"renamed", "B", "C"}
    assert not [line for line in problem_texts(app.cluster) if "one MAC" in line]


def test_what_belongs_to_a_host_that_is_away_is_nobody_elses(app: ConnectionApp) -> None:
    """Its traffic still flows, by rows that hold its addresses."""
    leave(app, "A")
    thief = described(app, b"D", "06:00:00:00:99:00", {1: "04:00:00:00:41:01"})
    assert thief.closed and "D" not in app.cluster.members
    assert any(
        "D at 192.0.2.9 refused: A at an unknown address, not connected now," in w
        for w in problem_texts(app.cluster)
    )


def thief_first(app: ConnectionApp) -> Member:
    """The cluster of a controller that has just started. D came first, with an address of A's."""
    cluster = app.cluster
    thief = member_of("D")
    thief.ports[1].mac = "04:00:00:00:41:01"
    thief.channel = cast(Channel, FakeChannel())
    thief.installed = cluster.members["B"].installed  # it has the rows that any host has
    cluster.members.pop("A")
    cluster.members["D"] = thief
    return thief


def honest(app: ConnectionApp) -> FakeChannel:
    candidate = member_of("A")
    candidate.channel = cast(Channel, FakeChannel())
    rival = app._rival(candidate)
    assert rival is not None
    app._contest(candidate, rival)
    return cast(FakeChannel, candidate.channel)


def test_other_hosts_rows_show_who_was_here_before(app: ConnectionApp) -> None:
    thief = thief_first(app)
    stolen = cast(FakeChannel, thief.channel)
    channel = honest(app)
    assert channel.known and not channel.closed and stolen.closed
    assert app.cluster.members["D"].ports.keys() == {2} and app.cluster.members["D"].channel is None
    assert any(
        "D at 192.0.2.1 refused: A at 192.0.2.1 has the same MAC" in line
        for line in problem_texts(app.cluster)
    )


def test_a_nic_that_a_host_lost_in_a_contest_is_none_of_the_wirings_any_more(
    app: ConnectionApp,
) -> None:
    """When the host has the NIC again, the NIC may be plugged in elsewhere."""
    thief_first(app)
    wiring = app.cluster.wiring = Wiring()
    for number in (1, 2):
        wiring.set_nic(("D", number), True, 0.0)
    for now_s in (0.1, 0.2):
        wiring.tick(now_s, lambda _: 0.2)
    assert [wiring.network(("D", number)) for number in (1, 2)] == ["n1", "n2"]
    honest(app)
    assert [wiring.network(("D", number)) for number in (1, 2)] == [None, "n2"]


def test_what_a_host_holds_itself_is_no_proof(app: ConnectionApp) -> None:
    thief = thief_first(app)
    for name in "BC":
        app.cluster.members[name].installed = Installed()
    channel = honest(app)
    assert channel.closed and not cast(FakeChannel, thief.channel).closed


def test_without_anybody_to_ask_who_came_first_stays(app: ConnectionApp) -> None:
    thief = thief_first(app)
    for name in "BC":
        app.cluster.members[name].installed = None
    channel = honest(app)
    assert channel.closed and not cast(FakeChannel, thief.channel).closed


def test_of_two_hosts_with_one_name_the_known_one_gets_it(app: ConnectionApp) -> None:
    impostor = member_of("A")
    impostor.mac, impostor.dpid = "06:00:00:00:66:00", 0x66
    impostor.ports = {1: Port(1, "eth0", "04:00:00:00:66:01", True, 10**8)}
    impostor.channel = cast(Channel, FakeChannel())
    app.cluster.members["A"] = impostor
    channel = honest(app)
    assert not channel.closed and app.cluster.members["A"].mac == host_mac("A")
    assert cast(FakeChannel, impostor.channel).closed


@pytest.mark.parametrize(
    ("names", "admitted"),
    [
        (None, True),
        (frozenset({"D"}), True),
        (frozenset({"d.cluster.example"}), True),
        (frozenset({"D.Cluster.Example"}), True),
        (frozenset({"other", "D"}), True),
        (frozenset({"B"}), False),
        (frozenset({"DD", "xD.example", ""}), False),
        (frozenset(), False),
    ],
)
def test_a_certificate_speaks_for_the_hosts_that_it_names(
    app: ConnectionApp, names: frozenset[str] | None, admitted: bool
) -> None:
    channel = described(app, b"D", "06:00:00:00:99:00", {1: "04:00:00:00:99:01"}, certified=names)
    assert channel.known is admitted and channel.closed is not admitted
    assert ("D" in app.cluster.members) is admitted
    if not admitted:
        assert any(
            "D at 192.0.2.9 refused: its certificate is for" in line
            for line in problem_texts(app.cluster)
        )


@pytest.mark.parametrize(
    ("dns", "names"),
    [(("B", "c.example"), {"B", "c.example"}), (("B id:1234",), {"B"}), ((), {"A"})],
    ids=["two", "of ovs-pki", "none"],
)
def test_the_common_name_counts_in_certificates_without_dns_names_alone(
    dns: tuple[str, ...], names: set[str]
) -> None:
    """An authority checks the DNS names when it signs.

    The common name may be anything then, also another host's name.
    """
    certificate = {
        "subject": ((("organizationName", "C"),), (("commonName", "A id:77"),)),
        "subjectAltName": (("IP Address", "192.0.2.7"), *(("DNS", each) for each in dns)),
    }
    assert _names(certificate) == names


def test_what_a_switch_says_of_itself_is_spelled_out(app: ConnectionApp) -> None:
    described(
        app,
        b"D",
        "06:00:00:00:99:00",
        {1: "04:00:00:00:99:01"},
        software=b"3\x1b[31m\n2026 forged",
        nic_name=b"e\x1b\r0",
    )
    member = app.cluster.members["D"]
    assert member.ovs == "3\\x1b[31m\\n2026 forged" and member.ports[1].name == "e\\x1b\\r0"
    assert all(event["text"].isprintable() for event in app.cluster.events)


@pytest.mark.parametrize("raw", [b"eth0\0\0", "eth0"])
def test_plain_text_stays_as_it_is(raw: bytes | str) -> None:
    assert printable(raw) == "eth0"


def test_a_switch_that_describes_much_is_cut_short() -> None:
    assert len(printable(b"x" * 10_000)) == 255
    assert printable(b"\xff\xfe") == "\\ufffd\\ufffd" or printable(b"\xff\xfe") == "\ufffd\ufffd"


def test_wiring_of_a_forgotten_host_goes_with_it(app: ConnectionApp) -> None:
    cluster = app.cluster
    cluster.wiring = Wiring()
    cluster.wiring.set_nic(("B", 1), True, 0.0)
    cluster.measured.reports["B"] = cast(Any, object())
    cluster.forget(cluster.members["B"], "host_alone")
    assert (
        not cluster.wiring.knows(("B", 1))
        and "B" not in cluster.measured.reports
        and "B" not in cluster.members
    )
