# SPDX-License-Identifier: Apache-2.0
"""Changes of state: `replan` sends frames of every kind through each state between two plans.

The model is in order_model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ri2n_sdn.fabric.classes import TrafficClass
from ri2n_sdn.fabric.helper_links import number_helper_links
from ri2n_sdn.fabric.model import Fabric, Guest, Host, Nic
from ri2n_sdn.pipeline.diff import AddFlow, AddGroup, DeleteFlows
from ri2n_sdn.pipeline.layout import Table
from ri2n_sdn.pipeline.messages import Bucket, Group, Output, ToGroup, row
from ri2n_sdn.pipeline.priorities import Place
from ri2n_sdn.vlan.routing import DeadParts, VlanRouting
from ri2n_sdn.weights.slots import default_slots
from tests.unit.bridge_model import Cluster
from tests.unit.fat_model import FatCluster
from tests.unit.test_pipeline import wirings

# `./dev test --all` sets a larger number.
EXAMPLES = int(os.environ.get("RI2N_ORDER_EXAMPLES", "6"))
# A failing example is not made smaller, because that takes minutes.
several = settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.generate])
WIRES = {"A": ["n1", "n2"], "B": ["n1", "n2"], "C": ["n1"]}
CLASSES = (TrafficClass("tcp", 22), TrafficClass("icmp"), TrafficClass(dscp=46))


def fabric_of(cluster: Cluster, **changes: object) -> Fabric:
    """The fabric of the cluster's hosts as they are now, with links numbered as usual."""
    fabric = replace(cluster.fabric, hosts=dict(cluster.hosts), **changes)  # type: ignore[arg-type]
    return replace(
        fabric, helper_link_numbers=number_helper_links(fabric, cluster.fabric.helper_link_numbers)
    )


def changed(cluster: Cluster, name: str, **changes: object) -> None:
    cluster.hosts[name] = replace(cluster.hosts[name], **changes)  # type: ignore[arg-type]


def new_nic(host: Host, port: int, network: str | None) -> Nic:
    return Nic(
        host.name,
        f"eth{port}",
        port,
        f"04:00:00:00:{host.dpid:02x}:{port:02x}",
        10**8,
        network=network,
    )


@several
@given(wirings, st.booleans(), st.booleans())
def test_hosts_come_and_go(hosts: dict[str, list[str]], helpers: bool, placed: bool) -> None:
    """Hosts go from start-up rows to rows that accept NICs' addresses, and then peers use them."""
    names = sorted(hosts)
    few = {name: hosts[name] for name in names[:-1]}
    cluster = Cluster(
        few, {"R": "n1"}, few if helpers else (), placement={"A": (80,)} if placed else None
    )
    late = Cluster(hosts, {"R": "n1"}, hosts if helpers else ()).hosts[names[-1]]
    cluster.plug(late)
    for accepts in (False, True):
        changed(cluster, late.name, accepts_wire=accepts)
        cluster.replan(fabric_of(cluster))
    cluster.unplug(late.name)
    cluster.replan(fabric_of(cluster))


@several
@given(wirings, st.sampled_from(["n1", "n2", "n3"]), st.booleans())
def test_a_nic_comes_and_goes(hosts: dict[str, list[str]], network: str, helpers: bool) -> None:
    cluster = Cluster(hosts, {"R": "n1"}, hosts if helpers else ())
    host = cluster.hosts["A"]
    added = new_nic(host, 7, network)
    changed(cluster, "A", nics=(*host.nics, replace(added, network=None)))
    cluster.plug(replace(host, nics=(*host.nics, added)))
    cluster.replan(fabric_of(cluster))
    changed(cluster, "A", nics=(*host.nics, added))
    cluster.replan(fabric_of(cluster))
    cluster.plug(host)
    cluster.replan(fabric_of(cluster))


@several
@given(wirings, st.data(), st.sampled_from(["up", "tx_alive", "rx_alive"]))
def test_a_nic_goes_down_and_up(hosts: dict[str, list[str]], data: st.DataObject, how: str) -> None:
    cluster = Cluster(hosts, {"R": "n1"}, hosts if data.draw(st.booleans()) else ())
    name = data.draw(st.sampled_from(sorted(hosts)))
    host = cluster.hosts[name]
    port = data.draw(st.sampled_from([nic.port for nic in host.nics]))
    if how == "up":
        cluster.cut(name, port)
    broken = {how: False}
    nics = (replace(nic, **broken) if nic.port == port else nic for nic in host.nics)  # type: ignore[arg-type]
    changed(cluster, name, nics=tuple(nics))
    cluster.replan(fabric_of(cluster))
    cluster.plug(host)
    cluster.replan(fabric_of(cluster))


@several
@given(wirings, st.data())
def test_weights_move(hosts: dict[str, list[str]], data: st.DataObject) -> None:
    cluster = Cluster(hosts, helpers=hosts if data.draw(st.booleans()) else ())
    pairs = [(a, b) for a in hosts for b in hosts if a != b and cluster.fabric.paths(a, b)]
    slots = {}
    for pair in data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else ():
        keys = [path.key for path in cluster.fabric.paths(*pair)]
        slots[pair] = default_slots(keys, [data.draw(st.floats(0.1, 9.0)) for _ in keys], 64)
    cluster.replan(cluster.fabric, slots)
    cluster.replan(cluster.fabric, {pair: table[7:] + table[:7] for pair, table in slots.items()})
    cluster.replan(cluster.fabric)


def flip(name: str, **fields: object) -> Callable[[Cluster], Fabric]:
    def change(cluster: Cluster) -> Fabric:
        cluster.plug(replace(cluster.hosts[name], **fields))  # type: ignore[arg-type]
        return fabric_of(cluster)

    return change


CHANGES: dict[str, Callable[[Cluster], Fabric]] = {
    "striping off": flip("B", may_stripe=False),
    "helper ended": flip("B", helper_up=False),
    "helper hangs": flip("B", helper_up=False, helper_hangs=True),
    "helper removed": flip("B", helper=False, helper_up=False),
    "no longer accepts": flip("B", accepts_wire=False),
    "container added": flip("A", extra_macs=("0e:00:00:00:00:01",)),
    "guest added": flip("A", guests=(Guest(2001, "0e:00:00:00:00:01"),)),
    "controller known": flip("A", control_port=6653),
    "kernel's hash": flip("A", hash_algorithm=1),
    "by flows": lambda cluster: fabric_of(cluster, by_flows=CLASSES),
    "placement": lambda cluster: fabric_of(cluster, placement={"A": (80,), "C": ()}),
    "placement of all": lambda cluster: fabric_of(cluster, placement={"B": ()}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_property_changes_and_changes_back(what: str) -> None:
    cluster = Cluster(WIRES, {"R": "n1"}, WIRES)
    before, hosts = cluster.fabric, dict(cluster.hosts)
    cluster.replan(CHANGES[what](cluster))
    for host in hosts.values():
        cluster.plug(host)
    cluster.replan(before)


def test_a_nic_gets_another_address() -> None:
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]}, helpers="AB")
    first, second = cluster.hosts["A"].nics
    changed(cluster, "A", nics=(replace(first, mac="04:00:00:00:01:99"), second))
    cluster.replan(fabric_of(cluster))


def test_a_nic_moves_to_another_network() -> None:
    cluster = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"], "C": ["n1", "n2"]}, {"R": "n1"})
    first, second = cluster.hosts["A"].nics
    cluster.plug(replace(cluster.hosts["A"], nics=(first, replace(second, network="n1"))))
    cluster.replan(fabric_of(cluster))


@pytest.mark.parametrize("tables", [("cyclic", "spread"), ("spread", "cyclic")])
def test_a_table_of_vlans_changes(tables: tuple[str, str]) -> None:
    before, after = (
        FatCluster(2, 3, 2, table=table, per_pair=2, helpers=("n1", "n3")) for table in tables
    )
    fabric = after.fabric
    before.replan(
        replace(
            fabric,
            helper_link_numbers=number_helper_links(fabric, before.fabric.helper_link_numbers),
        )
    )


def test_a_tree_dies_and_comes_back() -> None:
    cluster = FatCluster(2, 3, 2)
    whole = cluster.fabric
    dead = DeadParts(frozenset((1, 2 * cable + side) for cable in range(6) for side in (0, 1)))
    cluster.switches.dead |= dead.links
    of = cluster.routing
    cluster.replan(replace(whole, routing=VlanRouting(of.trees, of.candidates, of.networks, dead)))
    cluster.switches.dead.clear()
    cluster.replan(whole)


def test_a_controller_that_starts_anew_takes_over_what_is_there() -> None:
    """Rows and groups of an earlier release go, deleted ones come back, and no frame is lost."""
    cluster = Cluster(WIRES, {"R": "n1"}, WIRES)
    bridge, mac = cluster.bridges["A"], cluster.hosts["B"].mac
    planned = bridge.wanted
    bridge.take(AddGroup(Group(7, Group.FAST_FAILOVER, (Bucket(1, (Output(1),)),))))
    for table in (Table.SEND, Table.CLASSIFY, Table.RECEIVE):
        bridge.take(AddFlow(row(Place(table, 500), {"eth_dst": mac, "ip_proto": 99}, [ToGroup(7)])))
    for table in (Table.SEND, Table.SEND_COUNT, Table.RECEIVE_COUNT):
        bridge.take(DeleteFlows(bridge.tables[table][0].cookie))
    cluster.replan(cluster.fabric)
    assert bridge.wanted == planned


def test_vlans_are_used_no_more_and_used_again() -> None:
    """A controller starts anew with another cluster.yaml, over the rows of the last one."""
    cluster = FatCluster(2, 3, 2)
    whole = cluster.fabric
    cluster.replan(replace(whole, routing=None))
    cluster.replan(whole)
