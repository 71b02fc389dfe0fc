# SPDX-License-Identifier: Apache-2.0
"""What happens to frames in a network of several switches under the planned rows.

Tags are put on and taken off, and every receiver gets one copy.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.fabric.model import UNTAGGED, Route
from ri2n_sdn.pipeline.layout import ANNOUNCED_TO, LOCAL, Table
from ri2n_sdn.pipeline.messages import Flow
from ri2n_sdn.pipeline.plan import RECEIVED, SENT
from ri2n_sdn.pipeline.priorities import Receive
from ri2n_sdn.vlan.routing import DeadParts, VlanRouting, networks_of
from tests.unit.bridge_model import CONTROLLER, Frame
from tests.unit.fat_model import FatCluster
from tests.unit.vlan.worlds import three_stages

BROADCAST = "ff:ff:ff:ff:ff:ff"

shapes = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)).filter(
    lambda s: s[0] * s[2] > 1
)
tables = st.sampled_from(["cyclic", "spread"])


def between(cluster: FatCluster, a: str, b: str, slot: int = 0) -> Frame:
    return Frame(cluster.hosts[a].mac, cluster.hosts[b].mac, hash=slot, payload="data")


@settings(max_examples=40, deadline=None)
@given(shapes, tables, st.integers(0, 63))
def test_every_slot_delivers_once_untagged_and_unflooded(
    shape: tuple[int, int, int], table: str, slot: int
) -> None:
    cluster = FatCluster(*shape, table=table)
    for a, b in permutations(cluster.hosts, 2):
        frame = between(cluster, a, b, slot)
        assert cluster.send(a, frame) == [(b, frame)]
    assert cluster.switches.flooded == 0


def test_a_frame_crosses_the_links_that_its_path_says() -> None:
    cluster = FatCluster(4, 4, 4)
    for a, b in (("n1", "n2"), ("n1", "n9"), ("n4", "n16"), ("n13", "n5")):
        seen = set()
        for slot in range(64):
            cluster.switches.crossed.clear()
            cluster.send(a, between(cluster, a, b, slot))
            seen.add(tuple(cluster.switches.crossed))
        assert seen == {path.route.links for path in cluster.fabric.paths(a, b)}


def test_a_way_over_a_slower_link_between_switches_gets_fewer_slots() -> None:
    cluster = FatCluster(2, 2, 1)
    graph = cluster.routing.trees.graph
    slower = [cable for _, cable in graph.neighbours[graph.index["up2"]]]
    rates = graph.rate_bps.copy()
    rates[slower] //= 3
    trees = replace(cluster.routing.trees, graph=replace(graph, rate_bps=rates))
    routing = VlanRouting(trees, cluster.routing.candidates, cluster.routing.networks)
    cluster.replan(replace(cluster.fabric, routing=routing))
    by_slower = 0
    for slot in range(64):
        cluster.switches.crossed.clear()
        cluster.send("n1", between(cluster, "n1", "n2", slot))
        by_slower += any("up2" in link for link in cluster.switches.crossed)
    assert by_slower == 16


def test_paths_are_counted_apart_at_both_ends() -> None:
    cluster = FatCluster(2, 2, 1)
    rows = [
        flow
        for bridge in cluster.bridges.values()
        for flow in bridge.wanted.flows.values()
        if flow.counts
    ]
    counted = [flow.counts for flow in rows if flow.counts is not None]
    for what in (SENT, RECEIVED):
        assert sorted(path for kind, _, path in counted if kind == what) == [
            (1, 1, 0),
            (1, 1, 0),
            (1, 1, 102),
            (1, 1, 102),
        ]


def test_frames_of_a_vlan_that_nobody_expects_are_delivered_too() -> None:
    """A table may change at one end before the other; frames that arrive are not lost then."""
    cluster = FatCluster(2, 4, 2, table="cyclic")
    allowed = {path.route.vlan for path in cluster.fabric.paths("n1", "n3")}
    other = next(vlan for vlan in cluster.routing.trees.vlans[1:] if vlan not in allowed)
    a, b = cluster.hosts["n1"], cluster.hosts["n3"]
    wire = Frame(a.nics[0].mac, b.nics[0].mac, payload="data", tags=((other, 0),))
    assert cluster.send_from_nic("n1", wire) == [("n3", between(cluster, "n1", "n3"))]


@settings(max_examples=30, deadline=None)
@given(shapes, st.sampled_from([0x0800, 0x86DD]))
def test_broadcast_comes_once(shape: tuple[int, int, int], eth_type: int) -> None:
    cluster = FatCluster(*shape)
    frame = Frame(cluster.hosts["n1"].mac, BROADCAST, eth_type, payload="hello")
    assert sorted(cluster.send("n1", frame)) == sorted(
        (name, frame) for name in cluster.hosts if name != "n1"
    )


def test_arp_goes_along_two_trees_and_survives_the_death_of_either() -> None:
    for broken in range(4):
        trees = FatCluster(4, 4, 1).routing.trees
        cables = trees.cable[broken][trees.cable[broken] >= 0].tolist()
        cluster = FatCluster(4, 4, 1)
        cluster.switches.dead = {
            (tree, 2 * cable + side) for cable in cables for side in (0, 1) for tree in range(4)
        }
        arp = Frame(cluster.hosts["n1"].mac, BROADCAST, 0x0806, payload="who has")
        assert {name for name, _ in cluster.send("n1", arp)} == {"n2", "n3", "n4"}, broken


@pytest.mark.parametrize("name", ["up1", "up2"])
def test_plain_broadcast_goes_by_the_better_one_of_two_trees(name: str) -> None:
    dead = dead_upper(FatCluster(4, 2, 1), name)
    cluster = FatCluster(4, 2, 1, dead=dead)
    cluster.switches.dead = set(dead.links)
    hello = Frame(cluster.hosts["n1"].mac, BROADCAST, payload="hello")
    assert sorted(cluster.send("n1", hello)) == [(other, hello) for other in ("n2", "n3", "n4")]


def test_what_must_arrive_is_flooded_along_two_whole_trees_before_two_that_share_nothing() -> None:
    """Trees 3 and 4 of three stages share no cable with the first, but a part of each is dead."""
    fabric = three_stages()
    whole = VlanRouting(fabric.trees, lambda *_: (), networks_of(fabric.trees, fabric.graph.names))
    (network,) = whole.networks
    assert whole.flood_vlans(network, ()) == (UNTAGGED, 103)
    dead = DeadParts(frozenset((tree, fabric.link("mid2", f"top{tree + 1}")) for tree in (2, 3)))
    half = VlanRouting(whole.trees, whole.candidates, whole.networks, dead)
    assert half.flood_vlans(network, ()) == (UNTAGGED, 102)


@pytest.mark.parametrize("direction", ["sending", "receiving"])
def test_broadcast_takes_a_vlan_that_no_hosts_port_lacks(direction: str) -> None:
    """A port that is dead in the first tree cuts one host off, so the next tree is taken.

    A dead port of a host that is not in the network changes nothing.
    """
    for host, tree in (("n3", 1), ("elsewhere", 0)):
        port = frozenset({((host, 1), 0)})
        dead = DeadParts(sending=port) if direction == "sending" else DeadParts(receiving=port)
        cluster = FatCluster(4, 2, 1, dead=dead)
        tags = ((cluster.routing.trees.vlans[tree], 0),) if tree else ()
        hello = Frame(cluster.hosts["n1"].mac, BROADCAST, payload="hello")
        assert [frame.tags for _, frame in cluster.bridges["n1"].receive(hello, LOCAL)] == [tags]


def dead_upper(cluster: FatCluster, name: str) -> DeadParts:
    graph = cluster.routing.trees.graph
    place = graph.index[name]
    cables = [cable for _, cable in graph.neighbours[place]]
    links = {
        (tree, 2 * c + side)
        for c in cables
        for side in (0, 1)
        for tree in range(cluster.routing.trees.count)
    }
    return DeadParts(frozenset(links))


@pytest.mark.parametrize("table", ["cyclic", "spread"])
@pytest.mark.parametrize("name", ["up1", "up2", "up4"])
def test_no_pair_uses_a_dead_switch(table: str, name: str) -> None:
    dead = dead_upper(FatCluster(4, 4, 4), name)
    cluster = FatCluster(4, 4, 4, table=table, per_pair=2, dead=dead, announced=True)
    for a, b in permutations(cluster.hosts, 2):
        for slot in (0, 17, 42):
            frame = between(cluster, a, b, slot)
            assert cluster.send(a, frame) == [(b, frame)]
    everybody = sorted(cluster.hosts)
    hello = Frame(cluster.hosts["n1"].mac, BROADCAST, payload="hello")
    assert sorted(name for name, _ in cluster.send("n1", hello)) == [
        name for name in everybody if name != "n1"
    ]


def test_a_port_that_does_not_send_in_one_vlan_is_left_in_that_one_alone() -> None:
    whole = FatCluster(2, 4, 2)
    trees = [path.route.vlan for path in whole.fabric.paths("n1", "n3")]
    cluster = FatCluster(2, 4, 2, dead=DeadParts(sending=frozenset({(("n1", 1), 2)})))
    assert [path.alive for path in cluster.fabric.paths("n1", "n3")] == [
        vlan != 103 for vlan in trees
    ]
    assert all(path.alive for path in cluster.fabric.paths("n3", "n1"))


def test_helpers_stripe_over_vlans() -> None:
    cluster = FatCluster(2, 4, 1, helpers=("n1", "n2"))
    links = cluster.fabric.helper_links("n1", "n2")
    assert sorted(path.route.vlan for path in links.values()) == [UNTAGGED, 102, 103, 104]
    for number, path in links.items():
        cluster.taps.clear()
        cluster.switches.crossed.clear()
        stripe = Frame(
            cluster.hosts["n1"].mac, cluster.hosts["n2"].mac, 0x88B6, tags=((number + 1, 0),)
        )
        assert cluster.send("n1", stripe, in_port=102) == []
        assert cluster.taps == [
            ("n2", 102, Frame(stripe.eth_src, stripe.eth_dst, 0x88B6, tags=((1, 0),)))
        ]
        assert tuple(cluster.switches.crossed) == path.route.links


def test_a_frame_for_a_dead_helper_comes_back_in_a_vlan_that_leads_there() -> None:
    cluster = FatCluster(2, 2, 1, helpers=("n1", "n2"))
    cluster.bridges["n2"].carrier -= {101, 102}
    for number in cluster.fabric.helper_links("n1", "n2"):
        cluster.taps.clear()
        stripe = Frame(
            cluster.hosts["n1"].mac, cluster.hosts["n2"].mac, 0x88B6, tags=((number + 1, 0),)
        )
        cluster.send("n1", stripe, in_port=102)
        assert [(host, port, frame.tags) for host, port, frame in cluster.taps] == [
            ("n1", 102, ((1, 7),))
        ]


def test_probes_of_every_vlan_reach_the_controller() -> None:
    cluster = FatCluster(2, 2, 1)
    for tags in ((), ((102, 0),)):
        probe = Frame(
            cluster.hosts["n1"].nics[0].mac, cluster.hosts["n2"].nics[0].mac, 0x88B5, tags=tags
        )
        out = cluster.bridges["n2"].receive(probe, 1)
        assert out == [(CONTROLLER, probe)]


def test_announcements_reach_no_program() -> None:
    cluster = FatCluster(2, 2, 2, announced=False)
    for tags in ((), ((102, 0),)):
        announcement = Frame(
            cluster.hosts["n1"].nics[0].mac, "03:00:00:52:49:33", 0x88B7, tags=tags
        )
        assert cluster.send_from_nic("n1", announcement) == []


def test_what_switches_flood_is_dropped_by_a_row_that_announcements_do_not_hit() -> None:
    """`lab.flooding` reads the counter of that row."""
    cluster = FatCluster(2, 2, 2)
    hosts = cluster.hosts
    between_others = Frame(hosts["n1"].nics[0].mac, hosts["n2"].nics[0].mac)
    for frame, priority in (
        (between_others, Receive.FROM_NIC.priority),
        (Frame(between_others.eth_src, ANNOUNCED_TO, 0x88B7), Receive.FOR_SWITCHES.priority),
    ):
        for tags in ((), ((102, 0),)):
            came = replace(frame, tags=tags)
            assert cluster.bridges["n4"].receive(came, 1) == []
            rows = cluster.bridges["n4"].wanted.flows.values()
            hit = [
                r
                for r in rows
                if r.table == Table.RECEIVE and r.priority >= priority and would_match(r, frame)
            ]
            assert [row.priority for row in hit] == [priority]


def would_match(row: Flow, frame: Frame) -> bool:
    """Whether a row that asks for addresses alone matches."""
    return bool(row.match) and all(getattr(frame, name, None) == value for name, value in row.match)


def test_one_switch_needs_no_rows_for_vlans() -> None:
    cluster = FatCluster(2, 1, 2)
    assert all(path.route.vlan == UNTAGGED for path in cluster.fabric.paths("n1", "n3"))
    assert cluster.fabric.paths("n1", "n2")[0].route == Route()
    tags = [
        flow
        for flow in cluster.bridges["n1"].wanted.flows.values()
        if dict(flow.match).get("vlan_vid", 0)
    ]
    assert not [flow for flow in tags if flow.table == Table.CLASSIFY]
