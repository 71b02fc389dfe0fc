# SPDX-License-Identifier: Apache-2.0
"""Switches learn the addresses of an isolated job from frames that they do not flood."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from ri2n_sdn.apps.job_addresses import announcements
from ri2n_sdn.pipeline.jobs import Enclosure, HostJobs
from ri2n_sdn.pipeline.layout import job_mac
from tests.unit.bridge_model import Cluster, Frame
from tests.unit.job_cases import fat

KEY = bytes(range(32))
WALLS = Enclosure("one", KEY, frozenset("AB"))
TWO = {name: ["n1", "n2"] for name in "ABCD"}


def frame_of(raw: bytes) -> Frame:
    """A frame of the model from its bytes."""
    target, source = raw[:6].hex(":"), raw[6:12].hex(":")
    return Frame(source, target, eth_type=int.from_bytes(raw[12:14], "big"), ip_proto=0)


def announced() -> Cluster:
    """A cluster with an isolated job, whose switches were told its addresses."""
    jobs = {name: HostJobs(enclosure=WALLS) for name in "AB"}
    cluster = Cluster(TWO, jobs=jobs)
    for host in cluster.hosts.values():  # switches know all NICs, since probes come from them
        for nic in host.nics:
            cluster.send_from_nic(host.name, Frame(nic.mac, nic.mac), nic.port)
    for name in "AB":
        for port, raw in announcements(cluster.fabric, name, WALLS):
            assert len(raw) == 60
            assert cluster.send_from_nic(name, frame_of(raw), port) == []
    return cluster


def test_each_switch_knows_the_addresses_at_the_right_ports() -> None:
    cluster = announced()
    for name, port in product("AB", (1, 2)):
        nic = cluster.hosts[name].nics[port - 1]
        assert cluster.networks[nic.network or ""].table[job_mac(KEY, nic.mac)] == (name, port)


def test_no_frame_of_the_job_comes_to_another_host() -> None:
    """Not even the first one."""
    cluster = announced()
    a, b = cluster.hosts["A"].mac, cluster.hosts["B"].mac
    seen = {name: cluster.bridges[name].receive for name in "CD"}
    for name in seen:
        cluster.bridges[name].receive = pytest.fail  # type: ignore[method-assign, assignment]
    for number in range(64):
        assert cluster.send("A", Frame(a, b, hash=number)) == [("B", Frame(a, b, hash=number))]


def test_dead_nics_are_left_out() -> None:
    fabric = Cluster(TWO).fabric
    host = fabric.hosts["A"]
    dead = replace(host, nics=(replace(host.nics[0], up=False), host.nics[1]))
    left = replace(fabric, hosts={**fabric.hosts, "A": dead})
    assert [port for port, _ in announcements(left, "A", WALLS)] == [2]


def test_in_a_fat_tree_the_switches_on_the_way_learn_them_in_each_vlan() -> None:
    fabric = fat(second=True)
    hosts = sorted(fabric.hosts)[:2]
    walls = Enclosure("one", KEY, frozenset(hosts))
    told = [raw for _, raw in announcements(fabric, hosts[0], walls)]
    peers = {nic.mac for nic in fabric.hosts[hosts[1]].nics}
    assert {raw[:6].hex(":") for raw in told} == peers
    assert fabric.routing is not None
    assert len(told) == sum(len(fabric.routing.vlans(nic)) for nic in fabric.hosts[hosts[0]].nics)
