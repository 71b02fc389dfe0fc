# SPDX-License-Identifier: Apache-2.0
"""Frames under the planned flows, in random clusters; and plans are sent once and only once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.fabric.model import MAX_NIC_PORT, Fabric, Host, Nic, PathKey
from ri2n_sdn.pipeline.diff import Installed, Phase, apply, batches, difference, part
from ri2n_sdn.pipeline.layout import (
    COOKIE_OURS,
    LOCAL,
    PLAIN_PORT,
    TABLE_ORDER,
    Table,
    path_of_register,
    path_register,
)
from ri2n_sdn.pipeline.messages import Group, Output, Wanted, row
from ri2n_sdn.pipeline.plan import pair_group_id, plan_host, plan_probes_only
from ri2n_sdn.pipeline.priorities import Place
from ri2n_sdn.pipeline.slot_tables import next_live
from ri2n_sdn.weights.slots import default_slots
from tests.unit.bridge_model import CONTROLLER, Cluster, Frame
from tests.unit.order_model import Sent

BROADCAST = "ff:ff:ff:ff:ff:ff"
ND_MULTICAST = "33:33:ff:00:00:01"
NAMES = "ABCD"
TABLE: tuple[PathKey, ...] = ((1, 1, 0), (2, 2, 0))

wirings = st.lists(
    st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=1, max_size=4), min_size=2, max_size=4
).map(lambda hosts: {NAMES[i]: sorted(wires) for i, wires in enumerate(hosts)})


def common(cluster: Cluster, a: str, b: str) -> set[str]:
    """Networks on which both hosts have a NIC with carrier."""

    def live(name: str) -> set[str]:
        return {
            n.network or ""
            for n in cluster.hosts[name].nics
            if n.port in cluster.bridges[name].carrier
        }

    return live(a) & live(b)


@settings(max_examples=60, deadline=None)
@given(wirings, st.integers(0, 63))
def test_every_slot_delivers_once_with_the_hosts_own_addresses(
    hosts: dict[str, list[str]], slot: int
) -> None:
    cluster = Cluster(hosts)
    for a in hosts:
        for b in hosts:
            if a != b and common(cluster, a, b):
                frame = Frame(cluster.hosts[a].mac, cluster.hosts[b].mac, hash=slot, payload="data")
                assert cluster.send(a, frame) == [(b, frame)]


@settings(max_examples=40, deadline=None)
@given(wirings, st.permutations(["n1", "n2", "n3"]))
def test_names_of_networks_are_in_no_row(hosts: dict[str, list[str]], names: list[str]) -> None:
    """A controller that starts anew may find the same networks in another order.

    It shall change nothing.
    """
    other = dict(zip(["n1", "n2", "n3"], names, strict=True))
    fabric = Cluster(hosts).fabric
    named_anew = {
        name: replace(
            host, nics=tuple(replace(nic, network=other[nic.network or ""]) for nic in host.nics)
        )
        for name, host in fabric.hosts.items()
    }
    renamed = replace(fabric, hosts=named_anew)
    for name in hosts:
        assert plan_host(renamed, name, {}, 64) == plan_host(fabric, name, {}, 64)


@settings(max_examples=40, deadline=None)
@given(wirings)
def test_switches_never_see_one_address_on_two_ports(hosts: dict[str, list[str]]) -> None:
    """Frames between managed hosts carry the addresses of the NICs they travel between."""
    cluster = Cluster(hosts)
    for slot in range(0, 64, 7):
        for a in hosts:
            for b in hosts:
                if a != b and common(cluster, a, b):
                    cluster.send(a, Frame(cluster.hosts[a].mac, cluster.hosts[b].mac, hash=slot))
    wire = {nic.mac: nic.id for host in cluster.hosts.values() for nic in host.nics}
    for network in cluster.networks.values():
        for mac, place in network.table.items():
            assert wire[mac] == place


@settings(max_examples=40, deadline=None)
@given(wirings, st.sampled_from([0x0800, 0x88B6, 0x86DD]))
def test_broadcast_arrives_once_at_every_host_with_a_common_network(
    hosts: dict[str, list[str]], kind: int
) -> None:
    cluster = Cluster(hosts, plain={"R": "n1"})
    for a in hosts:
        frame = Frame(cluster.hosts[a].mac, BROADCAST, eth_type=kind)
        got = sorted(name for name, _ in cluster.send(a, frame))
        expected = [b for b in hosts if b != a and common(cluster, a, b)]
        expected += ["R"] * ("n1" in hosts[a])
        assert got == sorted(expected)


def test_broadcast_is_taken_from_a_nic_that_receives_though_the_first_one_has_carrier() -> None:
    """If a NIC sends but does not receive, a NIC in another network takes a peer's broadcast."""
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]})
    first, second = cluster.hosts["A"].nics
    cluster.hosts["A"] = replace(cluster.hosts["A"], nics=(replace(first, rx_alive=False), second))
    cluster.networks["n1"].members.discard(first.id)
    cluster.replan(Fabric(cluster.hosts))
    frame = Frame(cluster.hosts["B"].mac, BROADCAST, payload="hello")
    assert cluster.send("B", frame) == [("A", frame)]


@settings(max_examples=40, deadline=None)
@given(wirings, st.data())
def test_neighbours_are_found_after_any_cut_without_a_new_plan(
    hosts: dict[str, list[str]], data: st.DataObject
) -> None:
    cluster = Cluster(hosts)
    victim = data.draw(st.sampled_from(sorted(hosts)))
    cluster.cut(
        victim, data.draw(st.sampled_from([nic.port for nic in cluster.hosts[victim].nics]))
    )
    for a in hosts:
        asks = [
            Frame(cluster.hosts[a].mac, BROADCAST, eth_type=0x0806),
            Frame(
                cluster.hosts[a].mac, ND_MULTICAST, eth_type=0x86DD, ip_proto=58, icmpv6_type=135
            ),
        ]
        for ask in asks:
            got = {name for name, _ in cluster.send(a, ask)}
            assert {b for b in hosts if b != a and common(cluster, a, b)} <= got
            assert a not in got
        for b in hosts:
            if b != a and common(cluster, a, b):
                answers = [
                    replace(
                        ask, eth_src=cluster.hosts[b].mac, eth_dst=cluster.hosts[a].mac, hash=slot
                    )
                    for ask in asks
                    for slot in (0, 31)
                ]
                assert all((a, answer) in cluster.send(b, answer) for answer in answers)


def test_the_controllers_connection_leaves_into_every_network() -> None:
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]})
    fabric = Fabric({**cluster.hosts, "B": replace(cluster.hosts["B"], control_port=6653)})
    bridge = cluster.bridges["B"]
    cluster.replan(fabric)
    other = Frame(
        cluster.hosts["B"].mac, cluster.hosts["A"].mac, ip_proto=6, ipv4_dst="10.0.0.1", tcp_dst=80
    )
    for eth_type in (0x0800, 0x86DD):
        # The addresses do not matter: neither the one by which the controller is reached, nor the
        # one of the controller's own host.
        for ends in (
            {"tcp_dst": 6653},
            {"tcp_dst": 40000, "tcp_src": 6653},
            {"tcp_dst": 6653, "ipv4_dst": "10.0.0.2"},
        ):
            frame = replace(other, eth_type=eth_type, **ends)
            assert bridge.receive(frame, LOCAL) == [(1, frame), (2, frame)]
        assert len(bridge.receive(replace(other, eth_type=eth_type), LOCAL)) == 1
        assert (
            len(bridge.receive(replace(other, eth_type=eth_type, ip_proto=17, tcp_dst=6653), LOCAL))
            == 1
        )


@settings(max_examples=40, deadline=None)
@given(wirings, st.integers(0, 63), st.data())
def test_own_cut_is_survived_without_a_new_plan(
    hosts: dict[str, list[str]], slot: int, data: st.DataObject
) -> None:
    cluster = Cluster(hosts)
    a = data.draw(st.sampled_from(sorted(hosts)))
    cluster.cut(a, data.draw(st.sampled_from([nic.port for nic in cluster.hosts[a].nics])))
    for b in hosts:
        if a != b and common(cluster, a, b):
            frame = Frame(cluster.hosts[a].mac, cluster.hosts[b].mac, hash=slot)
            assert cluster.send(a, frame) == [(b, frame)]


@settings(max_examples=40, deadline=None)
@given(wirings, st.sampled_from(["n1", "n2"]), st.booleans(), st.data())
def test_plain_hosts_are_reached_both_ways(
    hosts: dict[str, list[str]], at: str, cut: bool, data: st.DataObject
) -> None:
    """Also when the NIC that talks to them loses its carrier.

    Then another NIC on that network takes over.
    """
    cluster = Cluster(hosts, plain={"R": at})
    router = cluster.plain_mac("R")
    for a in hosts:
        if at not in hosts[a]:
            continue
        mac = cluster.hosts[a].mac
        for _ in range(2):
            assert ("R", "ask") in [
                (name, f.payload)
                for name, f in cluster.send(
                    a, Frame(mac, BROADCAST, eth_type=0x0806, payload="ask")
                )
            ]
            reply = Frame(router, mac, eth_type=0x0806, payload="reply")
            assert cluster.send("R", reply) == [(a, reply)]
            frame = Frame(mac, router, payload="data")
            assert cluster.send(a, frame) == [("R", frame)]
            own = [nic.port for nic in cluster.hosts[a].nics if nic.network == at]
            if not cut or len([port for port in own if port in cluster.bridges[a].carrier]) < 2:
                break
            cluster.cut(a, data.draw(st.sampled_from(own)))


def test_plain_hosts_are_heard_by_a_nic_that_receives_though_the_first_one_has_carrier() -> None:
    """If a NIC sends but does not receive, the next NIC of its network talks to plain hosts."""
    cluster = Cluster({"A": ["n1", "n1"]}, plain={"R": "n1"})
    router, host = cluster.plain_mac("R"), cluster.hosts["A"]
    first, second = host.nics
    cluster.hosts["A"] = replace(host, nics=(replace(first, rx_alive=False), second))
    cluster.networks["n1"].members.discard(("A", first.port))
    cluster.replan(Fabric(cluster.hosts))
    for frame in (
        Frame(router, host.mac, payload="data"),
        Frame(router, BROADCAST, payload="hello"),
    ):
        assert cluster.send("R", frame) == [("A", frame)]
    answer = Frame(host.mac, router, payload="answer")
    assert cluster.send("A", answer) == [("R", answer)]
    assert cluster.networks["n1"].table[host.mac] == ("A", second.port), (
        "what answers must arrive, too"
    )


@pytest.mark.parametrize("says", [0x0806, 0x0800], ids=["ARP", "IP"])
def test_a_plain_host_that_moves_is_found_again(says: int) -> None:
    """Any frame of it is enough.

    A host whose ARP entries are fresh sends nothing but IP for half a minute.
    """
    cluster = Cluster({"A": ["n1", "n2"]}, plain={"R": "n1"})
    router, mac = cluster.plain_mac("R"), cluster.hosts["A"].mac
    cluster.send("R", Frame(router, BROADCAST, eth_type=0x0806))
    assert cluster.send("A", Frame(mac, router)) == [("R", Frame(mac, router))]
    cluster.networks["n1"].members.discard(("R", 0))
    cluster.networks["n2"].members.add(("R", 0))
    cluster.plain["R"] = "n2"
    cluster.send("R", Frame(router, mac if says == 0x0800 else BROADCAST, eth_type=says))
    assert cluster.send("A", Frame(mac, router)) == [("R", Frame(mac, router))]


def test_probes_reach_the_controller_from_wires_only() -> None:
    cluster = Cluster({"A": ["n1", "n1"], "B": ["n1"]})
    bridge = cluster.bridges["A"]
    # The host's own probe comes back on its other NIC. So the controller finds two NICs on one
    # switch.
    own = Frame(cluster.hosts["A"].nics[0].mac, "03:00:00:52:49:32", eth_type=0x88B5)
    assert bridge.receive(own, 2) == [(CONTROLLER, own)]
    assert bridge.receive(own, LOCAL) == []


def test_frames_to_another_hosts_address_are_dropped() -> None:
    cluster = Cluster({"A": ["n1"], "B": ["n1"], "C": ["n1"]})
    for destination in (
        cluster.hosts["B"].mac,
        cluster.hosts["B"].nics[0].mac,
        "0a:00:00:00:00:77",
    ):
        for source in (cluster.hosts["C"].mac, cluster.hosts["C"].nics[0].mac, "0a:00:00:00:00:78"):
            assert cluster.bridges["A"].receive(Frame(source, destination), 1) == []


def test_a_flooded_frame_is_taken_by_its_own_nic_alone() -> None:
    """A switch that forgot the address floods the frame.

    The copy at the host's other NIC is for nobody, whoever sent it.
    """
    cluster = Cluster({"A": ["n1", "n1"], "B": ["n1"]})
    first, second = cluster.hosts["A"].nics
    cluster.hosts["A"] = replace(cluster.hosts["A"], extra_macs=(second.mac,))
    cluster.replan(replace(cluster.fabric, hosts=dict(cluster.hosts)))
    bridge = cluster.bridges["A"]
    for source in ("0a:00:00:00:00:78", cluster.hosts["B"].mac):
        assert bridge.receive(Frame(source, second.mac), first.port) == []


@pytest.mark.parametrize("down", [(), (1,), (2,), (3,), (1, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("managed", [False, True])
def test_of_three_nics_on_one_network_one_takes_broadcast_whichever_are_down(
    managed: bool, down: tuple[int, ...]
) -> None:
    """All of them get a copy. Only one may take over from a NIC that is down."""
    cluster = Cluster({"A": ["n1", "n1", "n1"], "B": ["n1"]}, {"R": "n1"})
    source = cluster.hosts["B"].mac if managed else cluster.plain_mac("R")
    for port in down:
        cluster.cut("A", port)
    frame = Frame(source, BROADCAST)
    taken = {
        port: cluster.bridges["A"].receive(frame, port) for port in (1, 2, 3) if port not in down
    }
    assert [port for port, out in taken.items() if out] == [min(taken)]
    assert taken[min(taken)] == [(LOCAL, frame)]


@pytest.mark.parametrize("last", ["00", "0e", "0f"])
def test_what_bridges_say_to_each_other_reaches_no_program(last: str) -> None:
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1"]})
    for source in ("0a:00:00:00:00:78", cluster.hosts["B"].mac):
        said = Frame(source, f"01:80:c2:00:00:{last}", eth_type=0x88CC)
        assert cluster.bridges["A"].receive(said, 1) == []
        # The next block of addresses is for everybody.
        other = replace(said, eth_dst="01:80:c2:00:00:10")
        assert cluster.bridges["A"].receive(other, 1) == [(LOCAL, other)]


def test_a_forged_sender_is_not_taken_for_the_host_itself() -> None:
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1"]})
    for source in (cluster.hosts["A"].mac, cluster.hosts["A"].nics[1].mac):
        assert cluster.bridges["A"].receive(Frame(source, cluster.hosts["A"].mac), 1) == []
        assert cluster.bridges["A"].receive(Frame(source, BROADCAST, eth_type=0x0806), 1) == []


def test_a_peer_that_does_not_accept_nic_addresses_gets_the_hosts_own() -> None:
    cluster = Cluster({"A": ["n1"], "B": ["n1"]})
    peer = cluster.hosts["B"]
    fabric = Fabric(
        {**cluster.hosts, "B": Host(peer.name, peer.dpid, peer.mac, peer.nics, accepts_wire=False)}
    )
    cluster.replan(fabric)
    frame = Frame(cluster.hosts["A"].mac, peer.mac)
    assert cluster.bridges["A"].receive(frame, LOCAL) == [(1, frame)]


@pytest.mark.parametrize("connected", [True, False])
def test_a_host_that_is_away_is_believed_by_its_nics_address(connected: bool) -> None:
    """After host-down, a host sends under the address of its NIC.

    While it is connected, only its kernel does so, beside Open vSwitch.
    """
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]})
    cluster.hosts["A"] = replace(cluster.hosts["A"], connected=connected)
    cluster.replan(Fabric(cluster.hosts))
    nic, host, bridge = cluster.hosts["A"].nics[1].mac, cluster.hosts["B"].mac, cluster.bridges["B"]
    ask, frame, answer = Frame(nic, BROADCAST, eth_type=0x0806), Frame(nic, host), Frame(host, nic)
    delivered = [[(LOCAL, ask)], [(LOCAL, frame)]] if not connected else [[], []]
    assert [bridge.receive(ask, 2), bridge.receive(frame, 2)] == delivered
    if not connected:
        assert bridge.receive(answer, LOCAL) == [(2, answer)]


@settings(max_examples=20, deadline=None)
@given(wirings)
def test_a_container_behind_a_host_is_reached_both_ways(hosts: dict[str, list[str]]) -> None:
    cluster = Cluster(hosts)
    container = "0e:00:00:00:00:01"
    cluster.hosts["A"] = replace(cluster.hosts["A"], extra_macs=(container,))
    fabric = Fabric(cluster.hosts)
    cluster.replan(fabric)
    for b in hosts:
        if b == "A" or not common(cluster, "A", b):
            continue
        mac = cluster.hosts[b].mac
        ask = Frame(container, BROADCAST, eth_type=0x0806)
        assert (b, ask) in cluster.send("A", ask)
        for source, target in ((b, Frame(mac, container)), ("A", Frame(container, mac))):
            assert cluster.send(source, target) == [("A" if source == b else b, target)]


def test_a_containers_frames_go_into_a_network_that_the_peer_receives_from() -> None:
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]})
    first, second = cluster.hosts["B"].nics
    cluster.hosts["B"] = replace(cluster.hosts["B"], nics=(replace(first, rx_alive=False), second))
    cluster.networks["n1"].members.discard(first.id)
    cluster.replan(Fabric(cluster.hosts))
    frame = Frame("0e:00:00:00:00:01", cluster.hosts["B"].mac, payload="data")
    assert cluster.send("A", frame) == [("B", frame)]


def test_the_kernels_symmetric_hash_is_used_where_there_is_one() -> None:
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]})
    for algorithm in (0, 1):
        fabric = Fabric(
            {**cluster.hosts, "A": replace(cluster.hosts["A"], hash_algorithm=algorithm)}
        )
        for pairs in ({}, {"B": ((1, 1, 0), (2, 2, 0)) * 32}):
            groups = plan_host(fabric, "A", pairs, 64).groups.values()
            assert [group.hash_algorithm for group in groups if group.kind == Group.SELECT] == [
                algorithm
            ]


@settings(max_examples=40, deadline=None)
@given(wirings)
def test_a_plan_is_sent_once(hosts: dict[str, list[str]]) -> None:
    cluster = Cluster(hosts)
    for name in hosts:
        wanted = cluster.bridges[name].wanted
        change = difference(wanted, Installed())
        assert len(change.add_flows) == len(wanted.flows) and not change.delete_cookies
        installed = apply(change, Installed())
        assert not difference(wanted, installed)
        # A row leads to a group only after that group: new groups go out before all rows.
        assert set(wanted.groups) == {group.group_id for group in change.add_groups}
        nothing = Wanted({}, {})
        assert apply(difference(nothing, installed), installed) == Installed()


def test_rows_that_differ_in_anything_are_told_apart() -> None:
    """Their cookies differ.

    A row that differs only in its priority must be sent, and the old row must be deleted.
    """
    rows = [
        row(Place(Table.SEND, 100), {"in_port": 1}, [Output(1)]),
        row(Place(Table.SEND, 110), {"in_port": 1}, [Output(1)]),
        row(Place(Table.DELIVER, 100), {"in_port": 1}, [Output(1)]),
        row(Place(Table.SEND, 100), {"in_port": 2}, [Output(1)]),
        row(Place(Table.SEND, 100), {"in_port": 1}, [Output(2)]),
    ]
    assert len({flow.cookie for flow in rows}) == len(rows)


def test_a_difference_is_minimal_and_leaves_foreign_rows_alone() -> None:
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"], "C": ["n1"]})
    before = cluster.bridges["A"].wanted
    foreign = 0x5249 << 48 | 7
    installed = apply(difference(before, Installed()), Installed())
    installed.cookies[foreign] = 250
    slots = default_slots([(1, 1, 0), (2, 2, 0)], [1.0, 3.0], 64)
    after = plan_host(cluster.fabric, "A", {"B": slots}, 64)
    change = difference(after, installed)
    assert [group.group_id for group in change.add_groups] == [pair_group_id("B")]
    assert [flow.table for flow in change.add_flows] == [10]
    assert list(change.delete_cookies.values()) == [10]
    assert all(cookie >> 48 == COOKIE_OURS for cookie in change.delete_cookies)
    assert foreign in apply(change, installed).cookies


def test_a_pairs_new_table_changes_its_group_and_no_row() -> None:
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]})
    before, after = (
        plan_host(cluster.fabric, "A", {"B": slots * 32}, 64) for slots in (TABLE, TABLE[::-1])
    )
    installed = apply(difference(before, Installed()), Installed())
    change = difference(after, installed)
    assert (
        change.modify_groups
        == [after.groups[pair_group_id("B")]]
        != [before.groups[pair_group_id("B")]]
    )
    assert not (change.add_groups or change.rows or change.delete_groups)
    assert apply(change, installed).groups == after.groups


def test_new_rows_begin_where_frames_leave_and_old_ones_go_from_where_they_come_in() -> None:
    """So no row leads to a table that lacks the rows it relies on."""
    wires = {"A": ["n1", "n2"], "B": ["n1", "n2"], "C": ["n1"]}
    bridge = Cluster(wires, {"R": "n1"}, wires, placement={"A": (80,)}).bridges["A"]
    installed = bridge.installed
    added = [flow.table for flow in difference(bridge.wanted, Installed()).add_flows]
    assert added == sorted(added, key=TABLE_ORDER.index) and len(set(added)) > 12
    of_another_release = COOKIE_OURS << 48 | 1
    installed.cookies[of_another_release] = 200
    deleted = list(difference(Wanted({}, {}), installed).delete_cookies.values())
    assert (
        deleted == [200, *sorted(deleted[1:], key=TABLE_ORDER.index, reverse=True)]
        and len(set(deleted)) > 13
    )


def test_a_helper_that_ended_is_left_before_all_hosts_have_answered() -> None:
    """The row that leads to it is deleted in the phase of what a host sends.

    If it stayed until the last phase, frames would be striped to nobody until then.
    """
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]}, helpers="AB")
    bridge, a, b = cluster.bridges["A"], cluster.hosts["A"], cluster.hosts["B"]
    frame = Frame(a.mac, b.mac)
    assert cluster.outcome(Sent("A", frame)) == {("A", PLAIN_PORT, frame): 1}
    cluster.plug(replace(b, helper_up=False))
    change = difference(
        plan_host(replace(cluster.fabric, hosts=cluster.hosts), "A", {}, 64), bridge.installed
    )
    for phase in (Phase.RECEIVE, Phase.SEND):
        for message in (message for batch in batches(part(change, phase)) for message in batch):
            bridge.take(message)
    assert cluster.outcome(Sent("A", frame)) == {("B", LOCAL, frame): 1}


def test_the_plan_of_an_unwired_host_touches_probes_alone() -> None:
    host = Host("A", 1, "06:00:00:00:01:00", (Nic("A", "eth0", 1, "04:00:00:00:01:01", 10**8),))
    assert {flow.table for flow in plan_probes_only(host).flows.values()} == {0, 249}


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 4), st.sampled_from([0, 102])),
        min_size=1,
        max_size=32,
    ),
    st.sets(st.tuples(st.integers(1, 4), st.integers(1, 4), st.sampled_from([0, 102])), max_size=6),
)
def test_dead_slots_go_where_open_vswitch_sends_them(
    slots: list[PathKey], dead: set[PathKey]
) -> None:
    live = sorted(set(slots) - dead)
    table = next_live(slots, live)
    assert len(table) == len(slots)
    for i, path in enumerate(table):
        if live:
            expected = next(
                slots[(i + step) % len(slots)]
                for step in range(len(slots))
                if slots[(i + step) % len(slots)] in live
            )
            assert path == expected
        else:
            assert path == slots[i]


def test_a_path_never_seen_before_fills_a_table_of_dead_ones() -> None:
    assert set(next_live([(1, 1, 0)] * 8, [(2, 2, 0), (3, 3, 0)])) == {(2, 2, 0), (3, 3, 0)}


@given(st.integers(0, MAX_NIC_PORT), st.integers(0, MAX_NIC_PORT), st.integers(0, 4095))
def test_a_register_names_one_path(own: int, peer: int, vlan: int) -> None:
    value = path_register(own, peer, vlan)
    assert value < 1 << 32 and path_of_register(value) == (own, peer, vlan)


def test_two_flows_in_one_place_are_refused() -> None:
    nic = Nic("A", "eth0", 1, "04:00:00:00:01:01", 10**8, network="n1")
    twin = Host(
        "B",
        2,
        "06:00:00:00:01:00",
        (Nic("B", "eth0", 1, "04:00:00:00:02:01", 10**8, network="n1"),),
        True,
    )
    clone = Host(
        "C",
        3,
        "06:00:00:00:01:00",
        (Nic("C", "eth0", 1, "04:00:00:00:03:01", 10**8, network="n1"),),
        True,
    )
    fabric = Fabric({"A": Host("A", 1, "06:00:00:00:0a:00", (nic,)), "B": twin, "C": clone})
    with pytest.raises(ValueError, match="two flows"):
        plan_host(fabric, "A", {}, 64)


def test_groups_of_a_plan_have_equal_weight_slots_of_the_asked_number() -> None:
    cluster = Cluster({"A": ["n1", "n1", "n2"], "B": ["n1", "n2"]})
    wanted = plan_host(cluster.fabric, "A", {}, 128)
    select = [group for group in wanted.groups.values() if group.kind == Group.SELECT]
    assert [len(group.buckets) for group in select] == [128]
    assert {bucket.watch_port for bucket in select[0].buckets} == {1, 2, 3}
