# SPDX-License-Identifier: Apache-2.0
"""`explain`: which NIC a flow takes and why, as a function and as a request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.discovery.nic_state import NicState
from ri2n_sdn.fabric.classes import TrafficClass
from ri2n_sdn.fabric.helper_links import number_helper_links
from ri2n_sdn.fabric.model import Fabric, Host, Nic, PathKey, Route
from ri2n_sdn.pipeline.dphash import slot_of
from ri2n_sdn.pipeline.explain import Decider, Flow, Pair, Row, decider, explain, pair_verdict
from tests.unit.fake_hosts import FakeChannel
from tests.unit.refused import refused_as

FIRST, SECOND = (1, 1, 0), (2, 2, 0)
FLOW = Flow(6, "10.77.0.2", 40001, "10.77.0.1", 5201)
SLOT = slot_of(FLOW, slots=64)
PLACING = {"A": (5201,)}


def fabric(second_lives: bool = True, helpers: bool = False, **more: Any) -> Fabric:
    """The hosts B and A on two networks."""
    hosts = {}
    for number, name in enumerate("AB", 1):
        nics = tuple(
            Nic(
                name,
                f"eth{n - 1}",
                n,
                f"04:00:00:00:0{number}:0{n}",
                10**8,
                n == 1 or second_lives,
                f"n{n}",
            )
            for n in (1, 2)
        )
        mac = f"06:00:00:00:0{number}:00"
        hosts[name] = Host(name, number, mac, nics, True, helper=helpers, helper_up=helpers)
    return Fabric(hosts, number_helper_links(Fabric(hosts), {}), **more)


def pair(of: Fabric, first: PathKey = FIRST, second: PathKey = SECOND) -> Pair:
    return Pair(of, "B", "A", (first, second) * 32, True, "max_min", {first: 0.25, second: 0.75})


def text(*args: Any, **kwargs: Any) -> str:
    return "\n".join(explain(*args, **kwargs).why)


def test_slot_and_nic_are_named() -> None:
    verdict = explain(pair(fabric()), FLOW, datapath="netdev")
    own = "eth1" if SLOT % 2 else "eth0"
    said = "\n".join(verdict.why)
    assert verdict.slot == SLOT and verdict.path is not None and verdict.path.own.name == own
    assert f"tcp 10.77.0.2:40001 -> 10.77.0.1:5201: hash slot {SLOT} of 64" in said
    assert (
        f"leaves B by {own} and reaches A at {own} over n{1 + SLOT % 2}; this path's share of the "
        "pair is" in said
    )
    assert said.endswith("75.0% (32 slots)" if SLOT % 2 else "25.0% (32 slots)")
    assert "dead" not in said and "weighted by max_min" in verdict.reason


def test_the_next_slot_on_a_live_path_is_taken_as_open_vswitch_does() -> None:
    slots = [FIRST] * 64
    slots[SLOT] = slots[(SLOT + 1) % 64] = SECOND
    dead = replace(pair(fabric(second_lives=False)), slots=tuple(slots))
    verdict = explain(dead, FLOW, datapath="netdev")
    said = "\n".join(verdict.why)
    assert (
        "belongs to eth1 -> eth1" in said
        and f"next slot on a live path is {(SLOT + 2) % 64}" in said
    )
    assert "leaves B by eth0" in said and verdict.slot == SLOT
    assert "; 1 of 2 paths are dead" in verdict.reason


def test_without_a_path_or_of_others() -> None:
    whole = fabric()
    hosts = whole.hosts.items()
    down = {
        name: replace(host, nics=tuple(replace(nic, up=False) for nic in host.nics))
        for name, host in hosts
    }
    assert text(pair(Fabric(down)), FLOW).endswith("every path is dead: packets are dropped")
    apart = {**whole.hosts, "A": replace(whole.hosts["A"], nics=())}
    assert pair_verdict(Pair(Fabric(apart), "B", "A")).why == (
        "B cannot reach A: B and A have no common network",
    )
    unmanaged = explain(Pair(whole, "B", "R"), FLOW)
    assert unmanaged.kind == "unmanaged" and unmanaged.path is None
    assert unmanaged.why[0].startswith(
        "R is not a managed host: its frames leave by the NIC on which its address was heard last"
    )


def test_the_row_of_a_placed_connection_decides_whatever_its_hash() -> None:
    placing = pair(fabric(placement=PLACING))
    for row, says in (
        (Row(True, SECOND), "the row that the controller gave B places it on eth1 -> eth1"),
        (Row(False, SECOND), "the row that B learned from A places it on eth1 -> eth1"),
    ):
        verdict = explain(placing, FLOW, row, datapath="system")
        said = "\n".join(verdict.why)
        assert f"tcp 10.77.0.2:40001 -> 10.77.0.1:5201: {says}" in said and verdict.slot is None
        assert said.endswith("leaves B by eth1 and reaches A at eth1 over n2, whatever its hash")
    assert (
        "each TCP connection to ports 5201 of A goes by the NIC that had the fewest"
        in pair_verdict(placing).reason
    )


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (None, "B has no row that places it (table 13), so the slot table decides"),
        (Row(True, SECOND), "eth1 -> eth1, but that path is dead, so the slot table decides"),
        (
            Row(True, (2, 2, 102)),
            "on a path that does not exist any more, so the slot table decides",
        ),
    ],
)
def test_the_hash_decides_for_what_no_row_sends(row: Row | None, says: str) -> None:
    placing = replace(pair(fabric(second_lives=False, placement=PLACING)), slots=(FIRST,) * 64)
    said = text(placing, FLOW, row, datapath="netdev")
    assert says in said and f"hash slot {SLOT} of 64" in said and "leaves B by eth0" in said
    assert "nobody can predict it" in text(placing, FLOW, row, datapath="system").splitlines()[-1]


class TwoVlans:
    """A fabric in which every path exists in VLANs 101 and 102."""

    def routes(self, own: Nic, peer: Nic) -> tuple[Route, ...]:
        return Route(101), Route(102, alive=False)


def test_vlans_are_named() -> None:
    of = fabric(routing=cast(Any, TwoVlans()))
    assert {path.key[2] for path in of.paths("B", "A")} == {101, 102}
    verdict = explain(pair(of, (1, 1, 101), (1, 1, 102)), FLOW, datapath="netdev")
    assert verdict.path is not None and verdict.path.route.vlan == 101
    assert "over n1 in VLAN 101" in verdict.why[-1]


def test_what_decides() -> None:
    assert decider(fabric(), "B", "A", 6, 1, 2) is Decider.SLOTS
    assert decider(fabric(helpers=True), "B", "A", 6, 1, 2) is Decider.HELPERS
    kept = fabric(helpers=True, by_flows=(TrafficClass("tcp", 5201),))
    assert decider(kept, "B", "A", 6, 1, 5201) is Decider.SLOTS
    assert decider(kept, "B", "A", 17, 1, 5201) is Decider.HELPERS
    placing = fabric(helpers=True, placement=PLACING)
    assert (
        decider(placing, "B", "A", 6, 1, 5201)
        is decider(placing, "A", "B", 6, 5201, 1)
        is Decider.ROW
    )
    assert decider(placing, "B", "A", 17, 1, 5201) is Decider.HELPERS
    assert "keeps one link (by_flows in cluster.yaml)" in explain(pair(kept), FLOW).why[1]
    assert "both helpers run: packets go one by one" in pair_verdict(pair(kept)).reason


def test_who_does_not_know_the_datapath_says_so() -> None:
    assert "this is so if B uses the netdev datapath" in explain(pair(fabric()), FLOW).why[-1]


# ---- The request


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalApi]:
    cluster = Cluster(ClusterConfig(), "max_min", tmp_path / "socket")
    for number, name in enumerate("AB", 1):
        ports = {1: Port(1, "eth0", f"04:00:00:00:0{number}:01", True, 10**9)}
        channel = FakeChannel()
        channel.address = f"10.255.0.{number}"
        mac = f"06:00:00:00:0{number}:00"
        cluster.members[name] = member = Member(
            name, number, mac, "3.1.0", ports, cast(Channel, channel), datapath="netdev"
        )
        member.addresses = (f"10.77.0.{number}", f"fd77::{number}")
        monkeypatch.setitem(cluster.wiring._nics, (name, 1), NicState(True, True, 0.0, network=1))
    made = LocalApi(cluster)
    yield made
    made.close()


def ask(api: LocalApi, **values: Any) -> dict[str, Any]:
    return api.answer(json.dumps({"op": "explain", "src": "B", "dst": "A", **values}).encode())


def test_a_flow_is_explained_in_one_request(api: LocalApi) -> None:
    answer = ask(api, flow={"protocol": 6, "sport": 40001, "dport": 5201})
    # The addresses are those that the hosts tell, and not those from which they connect.
    assert answer["flow"] == "tcp 10.77.0.2:40001 -> 10.77.0.1:5201"
    assert answer["slot"] == slot_of(FLOW, slots=64)
    assert answer["path"] == {"own": "eth0", "peer": "eth0", "vlan": None, "network": "n1"}
    assert any("leaves B by eth0 and reaches A at eth0" in line for line in answer["why"])
    given = {"src_ip": "fd77::2", "dst_ip": "fd77:0::1", "datapath": "system", "hash": "sse42"}
    answer = ask(api, flow={"protocol": 17, **given})
    assert answer["flow"] == "udp fd77::2:0 -> fd77::1:0" and answer["slot"] is None
    assert "nobody can predict it" in answer["why"][-1]


def test_of_a_pair_alone_no_flow_is_told(api: LocalApi) -> None:
    answer = ask(api)
    assert (
        answer["kind"] == "managed" and answer["flow"] is answer["slot"] is answer["path"] is None
    )
    assert len(answer["why"]) == 1 and len(answer["slots"]) == 64
    assert ask(api, dst="R", flow={"protocol": 6})["kind"] == "unmanaged"
    assert refused_as(ask(api, dst="B")) == ("same_host", None, {"host": "B"})
    assert refused_as(ask(api, src="Z")) == (
        *("no_such_host_of", None),
        {"name": "Z", "known": ["A", "B"]},
    )


TCP = {"protocol": 6}
SOURCE = {"end": "source", "option": "--src-ip"}
TARGET = {"end": "destination", "option": "--dst-ip"}
B_IPV4 = ("10.77.0.2", "10.78.0.2")


@pytest.mark.parametrize(
    ("of_b", "of_a", "asked", "flow"),
    [
        # One address decides on the version of the other.
        (("10.77.0.2", "fd77::2"), ("10.77.0.1", "fd77::1"), {"src_ip": "fd77::2"}, "fd77::1"),
        (("10.77.0.2", "fd77::2"), ("10.77.0.1", "fd77::1"), {"dst_ip": "fd78::1"}, "fd78::1"),
        (("10.77.0.2", "fd77::2"), ("10.77.0.1", "fd77::1"), {"protocol": 58}, "fd77::1"),
        (("10.77.0.2", "fd77::2"), ("10.77.0.1", "fd77::1"), {"protocol": 1}, "10.77.0.1"),
        # IPv6 where the two have no IPv4 in common.
        (("10.77.0.2", "fd77::2"), ("fd77::1",), {}, "fd77::1"),
        (("fd77::2",), ("10.77.0.1", "fd77::1"), {}, "fd77::1"),
        # What several addresses of IPv6 would be no matter for IPv4.
        (("10.77.0.2", "fd77::2", "fd77::3"), ("10.77.0.1", "fd77::1"), {}, "10.77.0.1"),
        ((), ("10.77.0.1",), {"src_ip": "10.0.0.9"}, "10.77.0.1"),
        (B_IPV4, ("10.77.0.1",), {"src_ip": "10.78.0.2"}, "10.77.0.1"),
    ],
)
def test_the_addresses_of_a_flow_are_those_that_hosts_tell(
    api: LocalApi, of_b: tuple[str, ...], of_a: tuple[str, ...], asked: dict[str, Any], flow: str
) -> None:
    members = api._cluster.members
    members["B"].addresses, members["A"].addresses = of_b, of_a
    answer = ask(api, flow={"protocol": 17, "sport": 5, "dport": 7, **asked})
    assert answer["ok"], answer
    source, _, target = answer["flow"].split(" ", 1)[1].partition(" -> ")
    assert target == f"{flow}:7"
    wanted = asked.get("src_ip") or next(each for each in of_b if (":" in each) == (":" in flow))
    assert source == f"{wanted}:5"
    number = asked.get("protocol", 17)
    assert answer["slot"] == slot_of(Flow(number, wanted, 5, flow, 7), slots=64)


@pytest.mark.parametrize(
    ("of_b", "of_a", "key", "code", "values"),
    [
        ((), ("10.77.0.1",), "src_ip", "address_unknown", {"host": "B", **SOURCE}),
        (("10.77.0.2",), (), "dst_ip", "address_unknown", {"host": "A", **TARGET}),
        (("10.77.0.2",), ("fd77::1",), "dst_ip", "address_unknown", {"host": "A", **TARGET}),
        (
            *(B_IPV4, ("10.77.0.1",), "src_ip", "address_ambiguous"),
            {"host": "B", **SOURCE, "addresses": [*B_IPV4]},
        ),
        (
            *(("10.77.0.2",), ("10.1.0.1", "10.2.0.1"), "dst_ip", "address_ambiguous"),
            {"host": "A", **TARGET, "addresses": ["10.1.0.1", "10.2.0.1"]},
        ),
    ],
)
def test_an_address_that_is_not_certain_is_asked_for(
    api: LocalApi,
    of_b: tuple[str, ...],
    of_a: tuple[str, ...],
    key: str,
    code: str,
    values: dict[str, Any],
) -> None:
    members = api._cluster.members
    members["B"].addresses, members["A"].addresses = of_b, of_a
    refused = ask(api, flow=TCP)
    assert refused_as(refused) == (code, f"flow.{key}", {**values, "family": "IPv4"})
    assert values["option"] in refused["error"] and values["end"] in refused["error"]
    assert all(each in refused["error"] for each in values.get("addresses", ()))


def test_no_address_is_needed_where_none_decides(api: LocalApi) -> None:
    """Nobody can tell the NIC, or there is none."""
    for member in api._cluster.members.values():
        member.addresses = ()
    answer = ask(api, flow={**TCP, "datapath": "system"})
    assert answer["ok"] and answer["flow"] is answer["path"] is None
    assert "nobody can predict it" in answer["why"][-1]
    api._cluster.members["A"].ports[1].up = False
    api._cluster.topology_changed()
    answer = ask(api, flow=TCP)
    assert answer["ok"] and "every path is dead" in answer["why"][-1], answer
    api._cluster.config = ClusterConfig.model_validate({"placement": [{"hosts": ["A"]}]})
    api._cluster.topology_changed()
    answer = ask(api, flow=TCP)
    assert answer["ok"] and answer["services"] and answer["placed"] is None, answer


FLOW_KEYS = {"keys": ["datapath", "dport", "dst_ip", "hash", "sport", "src_ip"]}


@pytest.mark.parametrize(
    ("flow", "key", "code", "values"),
    [
        ([], "flow", "flow_form", FLOW_KEYS),
        ({}, "flow", "flow_form", FLOW_KEYS),
        ({**TCP, "colour": 1}, "flow", "flow_form", FLOW_KEYS),
        ({"protocol": 256}, "flow.protocol", "out_of_range", {"low": 0, "high": 255}),
        ({"protocol": True}, "flow.protocol", "out_of_range", {"low": 0, "high": 255}),
        ({**TCP, "sport": -1}, "flow.sport", "out_of_range", {"low": 0, "high": 65535}),
        ({**TCP, "dport": "80"}, "flow.dport", "out_of_range", {"low": 0, "high": 65535}),
        (
            *({**TCP, "src_ip": "10.0.0"}, "flow.src_ip", "address_wrong"),
            {"why": "'10.0.0' does not appear to be an IPv4 or IPv6 address"},
        ),
        (
            *({**TCP, "src_ip": "10.0.0.1", "dst_ip": "fd00::1"}, "flow", "address_families"),
            {"one": "10.0.0.1", "other": "fd00::1"},
        ),
        (
            *({**TCP, "hash": "md5"}, "flow.hash", "value_not_one_of"),
            {"value": "'md5'", "choices": ["portable", "sse42"]},
        ),
        (
            *({**TCP, "datapath": "fast"}, "flow.datapath", "value_not_one_of"),
            {"value": "'fast'", "choices": ["netdev", "system"]},
        ),
    ],
)
def test_a_wrong_question_is_refused(
    api: LocalApi, flow: object, key: str, code: str, values: dict[str, Any]
) -> None:
    assert refused_as(ask(api, flow=flow)) == (code, key, values)
