# SPDX-License-Identifier: Apache-2.0
"""The rows of placed connections: what they do with frames, and how a switch is sent one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.apps.openflow import ofp
from ri2n_sdn.apps.placed_rows import add_placed, delete_placed
from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.pipeline.layout import COOKIE_PLACED, LOCAL, Table, path_register
from ri2n_sdn.pipeline.placement import FIN_TIMEOUT_S, IDLE_TIMEOUT_S, Connection, path_of_cookie
from ri2n_sdn.pipeline.plan import plan_host
from ri2n_sdn.pipeline.priorities import Placed
from tests.unit.bridge_model import CONTROLLER, Bridge, Cluster, Frame, connection_of
from tests.unit.fake_hosts import host_mac
from tests.unit.fat_model import FatCluster
from tests.unit.test_flow_codec import XID, as_os_ken_reads

SIX = [f"n{number}" for number in range(1, 7)]


def server_frame(
    cluster: Cluster, client: str, port: int, *, flags: int = 0x10, slot: int = 0
) -> Frame:
    return Frame(
        cluster.hosts["A"].mac,
        cluster.hosts[client].mac,
        ip_proto=6,
        ipv4_src="10.0.0.1",
        ipv4_dst="10.0.0.2",
        tcp_src=80,
        tcp_dst=port,
        tcp_flags=flags,
        hash=slot,
    )


def answer_to(frame: Frame, slot: int = 0) -> Frame:
    return replace(
        frame,
        eth_src=frame.eth_dst,
        eth_dst=frame.eth_src,
        ipv4_src=frame.ipv4_dst,
        ipv4_dst=frame.ipv4_src,
        tcp_src=frame.tcp_dst,
        tcp_dst=frame.tcp_src,
        hash=slot,
    )


def leaves_by(bridge: Bridge, frame: Frame) -> list[int]:
    return [port for port, _ in bridge.receive(frame, LOCAL) if port != CONTROLLER]


def place(cluster: Cluster, frame: Frame, port: int) -> None:
    cluster.bridges["A"].placed[connection_of(frame)] = path_register(port, port, 0)


@pytest.fixture(params=[(), (80,)], ids=["all ports", "port 80"])
def placing(request: pytest.FixtureRequest) -> Cluster:
    return Cluster({"A": SIX, "B": SIX, "C": SIX}, placement={"A": request.param})


def test_an_answer_goes_on_at_once_and_a_copy_asks_the_controller(placing: Cluster) -> None:
    frame = server_frame(placing, "B", 5000, flags=0x12, slot=17)
    out = placing.bridges["A"].receive(frame, LOCAL)
    assert [copy for port, copy in out if port == CONTROLLER] == [frame]
    assert len(out) == 2
    assert placing.send("A", frame) == [("B", frame)]
    # No other frame asks the controller, nor do answers of hosts that place no connections.
    for other in (
        replace(frame, tcp_flags=0x10),
        replace(frame, ip_proto=17),
        replace(frame, tags=((7, 0),)),
    ):
        assert CONTROLLER not in [port for port, _ in placing.bridges["A"].receive(other, LOCAL)]
    assert CONTROLLER not in [
        port for port, _ in placing.bridges["B"].receive(answer_to(frame), LOCAL)
    ]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(0, 63))
def test_a_placed_connection_goes_by_its_path_and_the_client_follows(port: int, slot: int) -> None:
    cluster = Cluster({"A": SIX, "B": SIX}, placement={"A": (80,)})
    frame = server_frame(cluster, "B", 5000, slot=slot)
    place(cluster, frame, port)
    assert leaves_by(cluster.bridges["A"], frame) == [port]
    assert cluster.send("A", frame) == [("B", frame)]
    back = answer_to(frame, slot)
    for flags in (0x10, 0x11, 0x14):  # packets with FIN and RST, too
        assert leaves_by(cluster.bridges["B"], replace(back, tcp_flags=flags)) == [port]
    assert cluster.send("B", back) == [("A", back)]
    # The next connection is another one.
    assert leaves_by(cluster.bridges["B"], replace(back, tcp_src=5001, hash=slot)) == [
        slot_port(cluster, "B", slot)
    ]


@pytest.mark.parametrize("reset_by", ["A", "B"])
def test_a_reset_ends_what_the_other_side_has(placing: Cluster, reset_by: str) -> None:
    """A row of the side that resets ends by its own packet, which this model does not do."""
    frames = [server_frame(placing, "B", port) for port in (5000, 5001)]
    for frame in frames:
        place(placing, frame, 4)
        placing.send("A", frame)
    reset = replace(frames[0] if reset_by == "A" else answer_to(frames[0]), tcp_flags=0x14)
    other = "B" if reset_by == "A" else "A"
    assert placing.send(reset_by, reset) == [(other, reset)]
    held = placing.bridges["B"].followed if reset_by == "A" else placing.bridges["A"].placed
    kept = [connection_of(frames[1], back=reset_by == "A")]
    assert list(held) == kept
    # Resets of another port, host or protocol end nothing.
    for stranger in (
        replace(reset, tcp_src=79, tcp_dst=79),
        replace(reset, ip_proto=17),
        replace(reset, tags=((7, 0),)),
    ):
        placing.send(reset_by, stranger)
    assert list(held) == kept


def test_a_refused_connection_teaches_nothing(placing: Cluster) -> None:
    """Otherwise anybody who asks for many of them could fill the client's table."""
    refusal = server_frame(placing, "B", 5000, flags=0x14)
    assert placing.send("A", refusal) == [("B", refusal)]
    assert not placing.bridges["B"].followed


def test_a_reset_is_no_matter_for_the_controller(placing: Cluster) -> None:
    for flags in (0x04, 0x14):
        reset = replace(answer_to(server_frame(placing, "B", 5000)), tcp_flags=flags)
        wire = replace(
            reset, eth_src=placing.hosts["B"].nics[0].mac, eth_dst=placing.hosts["A"].nics[0].mac
        )
        assert placing.bridges["A"].receive(wire, 1) == [(LOCAL, reset)]


def slot_port(cluster: Cluster, name: str, slot: int) -> int:
    peer = "A" if name == "B" else "B"
    frame = Frame(cluster.hosts[name].mac, cluster.hosts[peer].mac, hash=slot)
    (port,) = leaves_by(cluster.bridges[name], frame)
    return port


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(0, 63))
def test_a_path_that_lost_its_nic_is_left_without_a_new_plan(port: int, slot: int) -> None:
    cluster = Cluster({"A": SIX, "B": SIX}, placement={"A": (80,)})
    frame = server_frame(cluster, "B", 5000, slot=slot)
    place(cluster, frame, port)
    cluster.send("A", frame)
    cluster.cut("A", port)
    cluster.cut("B", port)
    assert cluster.send("A", frame) == [("B", frame)]
    assert cluster.send("B", answer_to(frame, slot)) == [("A", answer_to(frame, slot))]


def test_a_path_whose_far_end_died_is_left_by_the_next_plan_and_taken_again() -> None:
    cluster = Cluster({"A": SIX, "B": SIX}, placement={"A": (80,)})
    frame = server_frame(cluster, "B", 5000, slot=3)
    place(cluster, frame, 3)
    bridge, alive = cluster.bridges["A"], cluster.hosts["B"]
    nics = tuple(replace(each, rx_alive=each.port != 3) for each in alive.nics)
    dead = replace(cluster.fabric, hosts={**cluster.hosts, "B": replace(alive, nics=nics)})
    alive_fabric = cluster.fabric
    cluster.replan(dead)
    (port,) = leaves_by(bridge, frame)
    assert port != 3
    cluster.replan(alive_fabric)
    assert leaves_by(bridge, frame) == [3]


def test_a_path_has_a_vlan_both_ways_in_a_network_of_several_switches() -> None:
    cluster = FatCluster(2, 2, 1)
    fabric = replace(cluster.fabric, placement={"n1": (80,)})
    cluster.replan(fabric)
    server, client = (cluster.hosts[name].mac for name in ("n1", "n2"))
    frame = Frame(server, client, ip_proto=6, ipv4_src="1", ipv4_dst="2", tcp_src=80, tcp_dst=5000)
    for path in fabric.paths("n1", "n2"):
        cluster.bridges["n1"].placed[connection_of(frame)] = path_register(*path.key)
        cluster.switches.crossed.clear()
        assert cluster.send("n1", frame) == [("n2", frame)]
        assert cluster.switches.crossed == list(path.route.links)
        cluster.switches.crossed.clear()
        assert cluster.send("n2", answer_to(frame)) == [("n1", answer_to(frame))]
        (back,) = [each for each in fabric.paths("n2", "n1") if each.route.vlan == path.route.vlan]
        assert cluster.switches.crossed == list(back.route.links)


def test_helpers_are_not_given_placed_services() -> None:
    cluster = Cluster({"A": SIX[:2], "B": SIX[:2]}, helpers=("A", "B"), placement={"A": (80,)})
    frame = server_frame(cluster, "B", 5000)
    place(cluster, frame, 2)
    assert cluster.send("A", frame) == [("B", frame)]
    assert cluster.send("B", answer_to(frame)) == [("A", answer_to(frame))]
    assert not cluster.taps
    cluster.send("A", replace(frame, tcp_src=81))
    assert cluster.taps


def test_without_placement_no_row_is_other_than_before() -> None:
    """With it, only rows for frames of services, and rows for frames from a peer, are different."""
    hosts = {"A": SIX[:3], "B": SIX[:2], "C": SIX[:3]}
    plain, placing = Cluster(hosts), Cluster(hosts, placement={"A": (80,)})
    for name in hosts:
        before, after = plain.bridges[name].wanted, placing.bridges[name].wanted
        assert not {flow.table for flow in before.flows.values()} & {Table.PLACED, Table.FOLLOW}
        assert not any("tcp_flags" in dict(flow.match) for flow in before.flows.values())
        lost = [flow for cookie, flow in before.flows.items() if cookie not in after.flows]
        assert {flow.table for flow in lost} == {Table.RECEIVE_COUNT}
        assert before.groups.items() <= after.groups.items()
    fabric = Fabric(plain.hosts, plain.fabric.helper_link_numbers, placement={"Z": ()})
    assert plan_host(fabric, "B", {}, 64) == plain.bridges["B"].wanted


@pytest.mark.parametrize("source", ["10.0.0.1", "fd00::1"])
def test_a_placed_row_is_above_learned_ones_and_ends_by_itself(source: str) -> None:
    connection = Connection(source, 80, source[:-1] + "2", 40001, host_mac("B"))
    added, deleted = (
        as_os_ken_reads(add_placed(connection, (3, 4, 102), XID)),
        as_os_ken_reads(delete_placed(connection, XID)),
    )
    assert (added.table_id, added.priority) == Placed.BY_CONTROLLER
    assert added.command == ofp.OFPFC_ADD
    assert (added.idle_timeout, added.hard_timeout) == (IDLE_TIMEOUT_S, 0)
    assert added.cookie >> 48 == COOKIE_PLACED >> 48 and path_of_cookie(added.cookie) == (3, 4, 102)
    register, ending = added.instructions[0].actions
    assert register.value == path_register(3, 4, 102) and register.key == "reg1"
    assert (ending.fin_idle_timeout, ending.fin_hard_timeout) == (FIN_TIMEOUT_S, 0)
    assert (deleted.table_id, deleted.priority) == Placed.BY_CONTROLLER
    assert deleted.command == ofp.OFPFC_DELETE_STRICT
    fields = dict(added.match.items())
    assert fields == dict(deleted.match.items()) == connection.match
    assert (
        json.dumps(added.to_jsondict())
        and fields["tcp_src"] == 80
        and fields["eth_dst"] == host_mac("B")
    )
