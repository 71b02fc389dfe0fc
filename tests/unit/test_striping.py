# SPDX-License-Identifier: Apache-2.0
"""Helpers' frames under the planned flows reach the right place and never go in a circle.

They are sent back once at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.fabric.classes import TrafficClass
from ri2n_sdn.fabric.helper_links import (
    MAX_HELPER_LINKS,
    MAX_PORT,
    number_helper_links,
    number_pair,
)
from ri2n_sdn.fabric.model import Fabric, Host, PathKey
from ri2n_sdn.pipeline.layout import (
    ETH_RI2N,
    ETH_STRIPED,
    HELPER_VLAN,
    LOCAL,
    PLAIN_PORT,
    WIRE_PORT,
    Table,
    path_of_register,
    returned_mac,
)
from ri2n_sdn.pipeline.messages import SetField
from ri2n_sdn.pipeline.plan import RECEIVED, SENT, plan_host
from tests.unit.bridge_model import CONTROLLER, Cluster, Frame
from tests.unit.test_pipeline import BROADCAST, common, wirings

WIRES = {"A": ["n1", "n2"], "B": ["n1", "n2"], "C": ["n1"]}


def pairs_of(cluster: Cluster) -> list[tuple[str, str]]:
    return [
        (a, b) for a in cluster.hosts for b in cluster.hosts if a != b and common(cluster, a, b)
    ]


def over_link(cluster: Cluster, a: str, b: str, number: int, **fields: object) -> Frame:
    """What the helper of `a` writes to its wire port to send to `b`."""
    frame = Frame(
        cluster.hosts[a].mac, cluster.hosts[b].mac, eth_type=ETH_STRIPED, tags=((number + 1, 0),)
    )
    return replace(frame, **fields)  # type: ignore[arg-type]


def every_link(cluster: Cluster) -> list[tuple[str, str, int]]:
    return [
        (a, b, number) for a, b in pairs_of(cluster) for number in cluster.fabric.helper_links(a, b)
    ]


# ---- From host to helper to helper to host


@settings(max_examples=40, deadline=None)
@given(wirings, st.integers(0, 63))
def test_what_the_host_sends_goes_to_its_helper(hosts: dict[str, list[str]], slot: int) -> None:
    cluster = Cluster(hosts, helpers=hosts)
    for a, b in pairs_of(cluster):
        frame = Frame(cluster.hosts[a].mac, cluster.hosts[b].mac, hash=slot)
        cluster.taps.clear()
        assert cluster.send(a, frame) == [] and cluster.taps == [(a, PLAIN_PORT, frame)]


@settings(max_examples=40, deadline=None)
@given(wirings)
def test_every_link_leads_to_the_helper_by_its_own_two_nics(hosts: dict[str, list[str]]) -> None:
    cluster = Cluster(hosts, helpers=hosts)
    for a, b, number in every_link(cluster):
        path = cluster.fabric.helper_links(a, b)[number]
        cluster.taps.clear()
        for network in cluster.networks.values():
            network.table.clear()
        # Switches that have learned nothing yet flood the frame. The copies at other NICs are
        # dropped.
        assert cluster.send(a, over_link(cluster, a, b, number), WIRE_PORT) == []
        assert cluster.taps == [
            (b, WIRE_PORT, over_link(cluster, a, b, number, tags=((path.peer.port, 0),)))
        ]


def test_what_the_helper_delivers_reaches_its_host_alone() -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    mac = cluster.hosts["A"].mac
    for target in (mac, BROADCAST):
        frame = Frame(cluster.hosts["B"].mac, target)
        assert cluster.send("A", frame, PLAIN_PORT) == [("A", frame)]
    for source, target in (
        (mac, cluster.hosts["B"].mac),
        (cluster.hosts["B"].mac, cluster.hosts["C"].mac),
    ):
        assert cluster.bridges["A"].receive(Frame(source, target), PLAIN_PORT) == []


def test_what_the_helper_hands_back_goes_by_the_slot_table_and_not_to_it_again() -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    for slot in range(64):
        frame = Frame(cluster.hosts["A"].mac, cluster.hosts["B"].mac, hash=slot)
        cluster.taps.clear()
        assert cluster.send("A", frame, WIRE_PORT) == [("B", frame)] and not cluster.taps
    strange = Frame(cluster.hosts["C"].mac, cluster.hosts["B"].mac)
    assert cluster.bridges["A"].receive(strange, WIRE_PORT) == []


def test_tagged_frames_of_the_host_are_not_striped() -> None:
    """The helper could not give them back: on its wire port, a tag stands for a helper link."""
    cluster = Cluster(WIRES, helpers=WIRES)
    frame = Frame(cluster.hosts["A"].mac, cluster.hosts["B"].mac, tags=((1, 0),))
    assert cluster.send("A", frame) == [("B", frame)] and not cluster.taps
    assert cluster.bridges["A"].receive(frame, WIRE_PORT) == []


@pytest.mark.parametrize(
    ("traffic", "fields", "belongs"),
    [
        (TrafficClass("tcp", 22), {"ip_proto": 6, "tcp_dst": 22}, True),
        (TrafficClass("tcp", 22), {"ip_proto": 6, "tcp_src": 22}, True),
        (TrafficClass("tcp", 22), {"ip_proto": 6, "tcp_dst": 22, "eth_type": 0x86DD}, True),
        (TrafficClass("tcp", 22), {"ip_proto": 6, "tcp_dst": 23}, False),
        (TrafficClass("tcp", 22), {"ip_proto": 17, "udp_dst": 22}, False),
        (TrafficClass("udp"), {"ip_proto": 17, "udp_dst": 7}, True),
        (TrafficClass("icmp"), {"ip_proto": 1}, True),
        (TrafficClass("icmp"), {"ip_proto": 58, "eth_type": 0x86DD}, True),
        (TrafficClass(dscp=46), {"ip_dscp": 46}, True),
        (TrafficClass(dscp=46), {}, False),
        (TrafficClass(dscp=0), {}, True),
        (TrafficClass(dscp=0), {"ip_dscp": 46}, False),
        (TrafficClass("udp", dscp=8), {"ip_dscp": 8}, True),
        (TrafficClass("udp", dscp=8), {"ip_dscp": 8, "ip_proto": 6}, False),
    ],
)
def test_a_class_of_traffic_keeps_one_link_and_all_else_is_striped(
    traffic: TrafficClass, fields: dict[str, int], belongs: bool
) -> None:
    cluster = Cluster(WIRES, helpers=WIRES, by_flows=(traffic, TrafficClass("udp", 4791)))
    for a, b in pairs_of(cluster):
        frame = replace(Frame(cluster.hosts[a].mac, cluster.hosts[b].mac), **fields)  # type: ignore[arg-type]
        cluster.taps.clear()
        arrived = cluster.send(a, frame)
        assert (arrived, cluster.taps) == (
            ([(b, frame)], []) if belongs else ([], [(a, PLAIN_PORT, frame)])
        )
        if "ip_dscp" not in fields:
            ports = (max(frame.tcp_src, frame.udp_src), max(frame.tcp_dst, frame.udp_dst))
            assert traffic.has(frame.ip_proto, *ports) == belongs


def test_a_host_without_helper_does_not_ask_for_classes() -> None:
    plans = [
        plan_host(Cluster(WIRES, by_flows=classes).fabric, "A", {}, 64)
        for classes in ((), (TrafficClass("icmp"),))
    ]
    assert plans[0] == plans[1]


def test_neighbour_discovery_and_broadcast_do_not_wait_for_a_helper() -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    for target in (BROADCAST, cluster.hosts["B"].mac):
        assert cluster.send("A", Frame(cluster.hosts["A"].mac, target, eth_type=0x0806))
    assert not cluster.taps


# ---- The controller and a helper


def test_reports_reach_the_controller_without_their_tag() -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    report = Frame(cluster.hosts["A"].mac, BROADCAST, eth_type=ETH_STRIPED)
    bridge = cluster.bridges["A"]
    assert bridge.receive(replace(report, tags=((HELPER_VLAN, 0),)), WIRE_PORT) == [
        (CONTROLLER, report)
    ]
    assert (
        bridge.receive(replace(report, eth_type=0x0800, tags=((HELPER_VLAN, 0),)), WIRE_PORT) == []
    )


@pytest.mark.parametrize("port", [1, 2, LOCAL, PLAIN_PORT])
def test_nobody_else_can_make_a_report_or_a_control_frame(port: int) -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    for target in (BROADCAST, cluster.hosts["A"].mac, cluster.hosts["A"].nics[0].mac):
        for source in (
            cluster.hosts["B"].nics[0].mac,
            cluster.hosts["B"].mac,
            cluster.hosts["A"].mac,
        ):
            frame = Frame(source, target, eth_type=ETH_STRIPED, tags=((HELPER_VLAN, 0),))
            out = cluster.bridges["A"].receive(frame, port)
            assert not [to for to, _ in out if to in (CONTROLLER, WIRE_PORT)]


def test_probes_do_not_come_out_of_a_helper() -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    for port in (PLAIN_PORT, WIRE_PORT):
        frame = Frame(cluster.hosts["A"].nics[0].mac, "03:00:00:52:49:32", eth_type=ETH_RI2N)
        assert cluster.bridges["A"].receive(frame, port) == []


# ---- No helper runs, here or there


@settings(max_examples=40, deadline=None)
@given(wirings, st.integers(0, 63))
def test_without_ones_own_helper_the_slot_table_is_used_at_once(
    hosts: dict[str, list[str]], slot: int
) -> None:
    cluster = Cluster(hosts, helpers=hosts)
    for a, b in pairs_of(cluster):
        cluster.bridges[a].carrier -= {PLAIN_PORT, WIRE_PORT}
        frame = Frame(cluster.hosts[a].mac, cluster.hosts[b].mac, hash=slot)
        assert cluster.send(a, frame) == [(b, frame)]
    assert not cluster.taps


@settings(max_examples=40, deadline=None)
@given(wirings)
def test_a_frame_for_a_dead_helper_comes_back_by_its_own_link(hosts: dict[str, list[str]]) -> None:
    cluster = Cluster(hosts, helpers=hosts)
    for a, b, number in every_link(cluster):
        path = cluster.fabric.helper_links(a, b)[number]
        cluster.bridges[b].carrier -= {PLAIN_PORT, WIRE_PORT}
        cluster.taps.clear()
        assert cluster.send(a, over_link(cluster, a, b, number), WIRE_PORT) == []
        back = Frame(
            cluster.hosts[b].mac,
            cluster.hosts[a].mac,
            eth_type=ETH_STRIPED,
            tags=((path.own.port, 7),),
        )
        assert cluster.taps == [(a, WIRE_PORT, back)]
        cluster.bridges[b].carrier |= {PLAIN_PORT, WIRE_PORT}


@settings(max_examples=60, deadline=None)
@given(wirings, st.data())
def test_no_frame_goes_in_a_circle_whoever_is_dead(
    hosts: dict[str, list[str]], data: st.DataObject
) -> None:
    """`Cluster.send` fails when a frame does not come to rest. Some hosts have older plans."""
    cluster = Cluster(hosts, helpers=hosts)
    for name in hosts:
        if data.draw(st.booleans()):
            cluster.bridges[name].carrier -= {PLAIN_PORT, WIRE_PORT}
        if data.draw(st.booleans()):
            others = {
                n: replace(h, helper=n == name, helper_up=n == name)
                for n, h in cluster.hosts.items()
            }
            alone = Fabric(others, number_helper_links(Fabric(others), {}))
            cluster.bridges[name].hold(plan_host(alone, name, {}, 64))
    macs = [nic.mac for host in cluster.hosts.values() for nic in host.nics]
    macs += (
        [returned_mac(mac) for mac in macs]
        + [host.mac for host in cluster.hosts.values()]
        + [BROADCAST]
    )
    frame = Frame(
        data.draw(st.sampled_from(macs)),
        data.draw(st.sampled_from(macs)),
        eth_type=data.draw(st.sampled_from([ETH_STRIPED, 0x0800])),
        hash=data.draw(st.integers(0, 63)),
        tags=tuple(
            data.draw(st.lists(st.sampled_from([(0, 7), (1, 0), (HELPER_VLAN, 0)]), max_size=2))
        ),
    )
    host = data.draw(st.sampled_from(sorted(hosts)))
    ports = [nic.port for nic in cluster.hosts[host].nics] + [LOCAL, PLAIN_PORT, WIRE_PORT]
    port = data.draw(st.sampled_from(ports))
    cluster.taps.clear()
    cluster.send(host, frame, port)
    # A TAP's frame never goes to a TAP of the same host, unless it was sent back, and then
    # it is marked.
    if port in (PLAIN_PORT, WIRE_PORT):
        assert all(copy.tags[0][1] == 7 for name, _, copy in cluster.taps if name == host)


def test_bridges_that_do_not_know_each_other_end_it_too() -> None:
    cluster = Cluster({"A": ["n1"], "B": ["n1"]}, plain={"R": "n1"}, helpers="AB")
    for name, host in cluster.hosts.items():
        cluster.bridges[name].hold(plan_host(Fabric({name: host}), name, {}, 64))
        cluster.bridges[name].carrier -= {WIRE_PORT}
    a, b = (cluster.hosts[name].nics[0].mac for name in "AB")
    assert cluster.send("R", Frame(a, b, eth_type=ETH_STRIPED)) == []


def test_a_frame_that_was_sent_back_is_not_sent_back_again() -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    for bridge in cluster.bridges.values():
        bridge.carrier -= {WIRE_PORT}
    a, b = cluster.hosts["A"].nics[0], cluster.hosts["B"].nics[0]
    back = Frame(returned_mac(b.mac), a.mac, eth_type=ETH_STRIPED)
    assert cluster.bridges["A"].receive(back, a.port) == []
    # Not even by a bridge that does not know the peer: no host accepts a frame for such an
    # address.
    known = replace(cluster.hosts["B"], nics=(replace(b, mac="04:00:00:00:99:01"),))
    stranger = Frame(returned_mac("04:00:00:00:98:01"), a.mac, eth_type=ETH_STRIPED)
    ((_, once),) = cluster.bridges["A"].receive(stranger, a.port)
    assert once.eth_dst == stranger.eth_src
    for host in (*cluster.hosts.values(), known):
        assert once.eth_dst not in {host.mac, *(nic.mac for nic in host.nics)}
    assert cluster.bridges["B"].receive(once, b.port) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda frame, other: replace(frame, tags=((0, 7),)),
        lambda frame, other: replace(frame, eth_dst=BROADCAST),
        lambda frame, other: replace(frame, eth_src="03:00:00:00:00:09"),
        lambda frame, other: replace(frame, eth_dst=other),
    ],
    ids=["tagged", "to everybody", "from a group", "to the host's own address"],
)
def test_odd_frames_from_the_wire_are_dropped(change: Callable[[Frame, str], Frame]) -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    a, b = cluster.hosts["A"], cluster.hosts["B"]
    good = Frame(b.nics[0].mac, a.nics[0].mac, eth_type=ETH_STRIPED)
    for carrier in (True, False):
        if not carrier:
            cluster.bridges["A"].carrier -= {WIRE_PORT}
        assert len(cluster.bridges["A"].receive(good, 1)) == 1
        assert cluster.bridges["A"].receive(change(good, a.mac), 1) == []


# ---- Which pairs stripe


@settings(max_examples=30, deadline=None)
@given(wirings, st.data())
def test_a_host_without_helper_has_the_plan_of_before(
    hosts: dict[str, list[str]], data: st.DataObject
) -> None:
    helpers = data.draw(st.sets(st.sampled_from(sorted(hosts))))
    mixed, before = Cluster(hosts, helpers=helpers), Cluster(hosts)
    for name in set(hosts) - helpers:
        assert mixed.bridges[name].wanted == before.bridges[name].wanted
    for a, b in pairs_of(mixed):
        frame = Frame(mixed.hosts[a].mac, mixed.hosts[b].mac, hash=9)
        mixed.taps.clear()
        if {a, b} <= helpers:
            assert mixed.send(a, frame) == [] and mixed.taps
        else:
            assert mixed.send(a, frame) == [(b, frame)] and not mixed.taps


def test_a_peer_whose_helper_does_not_run_is_not_striped_to() -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    down = {name: replace(host, helper_up=name != "B") for name, host in cluster.hosts.items()}
    fabric = Fabric(down, cluster.fabric.helper_link_numbers)
    cluster.replan(fabric)
    frame = Frame(cluster.hosts["A"].mac, cluster.hosts["B"].mac)
    assert cluster.send("A", frame) == [("B", frame)]
    # Heartbeats must pass, so that the helper is found when it runs again.
    assert (
        cluster.send("A", over_link(cluster, "A", "B", 0), WIRE_PORT) == []
        and cluster.taps[-1][0] == "B"
    )
    assert (
        not fabric.striped("A", "B") and not fabric.striped("B", "A") and fabric.stripes("B", "A")
    )
    assert fabric.striped("A", "C")


def test_nothing_is_given_to_a_helper_that_hangs() -> None:
    """Its TAPs keep their carrier, so the bridges themselves notice nothing."""
    cluster = Cluster(WIRES, helpers=WIRES)
    hung = dict(cluster.hosts)
    hung["B"] = replace(hung["B"], helper_up=False, helper_hangs=True)
    fabric = Fabric(hung, cluster.fabric.helper_link_numbers)
    cluster.replan(fabric)
    for a, b in (("A", "B"), ("B", "A"), ("B", "C")):
        frame = Frame(cluster.hosts[a].mac, cluster.hosts[b].mac)
        cluster.taps.clear()
        assert (
            cluster.send(a, frame) == [(b, frame)] and not cluster.taps and not fabric.striped(a, b)
        )
    assert fabric.striped("A", "C")
    # Frames of its controller and its peers still reach it, so it is found when it goes on.
    assert (
        cluster.send("A", over_link(cluster, "A", "B", 0), WIRE_PORT) == []
        and cluster.taps[-1][0] == "B"
    )


def test_stripes_are_counted_as_all_frames_are() -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    rows = cluster.bridges["A"].wanted.flows.values()
    for what, table in ((SENT, Table.SEND_COUNT), (RECEIVED, Table.RECEIVE_COUNT)):
        counted = {
            flow.counts[1:]
            for flow in rows
            if flow.table == table and flow.counts and flow.counts[0] == what
        }
        paths = {
            (b, p.key)
            for b in "BC"
            for p in cluster.fabric.paths(*(("A", b) if what == SENT else (b, "A")))
        }
        assert counted == paths
    registers = [
        action.value
        for flow in rows
        if flow.table == Table.CLASSIFY
        for action in flow.actions
        if isinstance(action, SetField) and action.name == "reg1"
    ]
    expected = {path.key for b in "BC" for path in cluster.fabric.helper_links("A", b).values()}
    assert {path_of_register(value) for value in registers if isinstance(value, int)} == expected


# ---- Numbers of helper links

keys = st.tuples(
    st.integers(1, MAX_PORT + 2), st.integers(1, MAX_PORT + 2), st.sampled_from([0, 102, 4000])
)


@given(st.sets(keys, max_size=80), st.sets(keys, max_size=80))
def test_links_that_stay_keep_their_numbers(first: set[PathKey], then: set[PathKey]) -> None:
    before = number_pair(first, {})
    after = number_pair(then, before)
    assert all(after[path] == number for path, number in before.items() if path in then)
    for paths, numbers in ((first, before), (then, after)):
        allowed = [path for path in paths if max(path[:2]) <= MAX_PORT]
        assert set(numbers) <= set(allowed) and len(numbers) == min(MAX_HELPER_LINKS, len(allowed))
        assert len(set(numbers.values())) == len(numbers) and set(numbers.values()) <= set(
            range(MAX_HELPER_LINKS)
        )
    assert list(before.values()) == list(range(len(before)))


def test_both_directions_have_the_same_numbers() -> None:
    cluster = Cluster(WIRES, helpers=WIRES)
    for a, b in pairs_of(cluster):
        here, there = cluster.fabric.helper_links(a, b), cluster.fabric.helper_links(b, a)
        swapped = {n: (path.key[1], path.key[0], path.key[2]) for n, path in there.items()}
        assert {n: path.key for n, path in here.items()} == swapped
    assert [path.key for path in cluster.fabric.helper_links("A", "C").values()] == [(1, 1, 0)]


def test_hosts_without_helper_have_no_links() -> None:
    cluster = Cluster(WIRES, helpers=["A"])
    assert not cluster.fabric.helper_link_numbers and cluster.fabric.helper_links("A", "B") == {}


def test_a_nic_with_a_number_too_high_takes_no_helper_frames() -> None:
    host = Cluster({"A": ["n1"], "B": ["n1"]}, helpers="AB").hosts["A"]
    odd: Host = replace(host, nics=(replace(host.nics[0], port=MAX_PORT + 1),))
    flows = plan_host(Fabric({"A": odd}), "A", {}, 64).flows.values()
    assert not [
        flow for flow in flows if flow.table in (Table.TO_HELPER, Table.RETURNED) and flow.match
    ]
