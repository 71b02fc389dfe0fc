# SPDX-License-Identifier: Apache-2.0
"""Frames of jobs: the paths of classes, and the walls of isolated jobs, by the planned rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.fabric.model import Fabric, Path
from ri2n_sdn.jobs.model import Service
from ri2n_sdn.pipeline.helper_texts import links_to
from ri2n_sdn.pipeline.jobs import ClassTable, Enclosure, HostJobs
from ri2n_sdn.pipeline.layout import (
    COOKIE_OURS,
    ETH_ARP,
    ETH_IPV6,
    LOCAL,
    PLAIN_PORT,
    WIRE_PORT,
    Table,
    job_mac,
)
from ri2n_sdn.pipeline.messages import Note
from ri2n_sdn.pipeline.plan import plan_host
from tests.unit.bridge_model import Cluster, Frame

BROADCAST = "ff:ff:ff:ff:ff:ff"
KEY = bytes(32)
THREE = {name: ["n1", "n2", "n3"] for name in "ABCD"}


def class_mac(number: int) -> str:
    return f"02:52:4a:00:00:{number:02x}"


def on(fabric: Fabric, sender: str, receiver: str, *networks: str) -> tuple[Path, ...]:
    """The paths of a pair in some networks."""
    return tuple(path for path in fabric.paths(sender, receiver) if path.network in networks)


def networks_used(cluster: Cluster, sender: str, frame: Frame) -> set[str]:
    """The networks in which any of 64 flows of this kind left a host."""
    used = set()
    for number in range(64):
        for port, _ in cluster.bridges[sender].receive(replace(frame, hash=number), LOCAL):
            nic = cluster.hosts[sender].nic(port)
            if nic is not None:
                used.add(nic.network or "")
    return used


def of_class(cluster: Cluster, number: int, *networks: str, dscp: int | None = None) -> ClassTable:
    """A table by which a class of A reaches B in these networks only."""
    return ClassTable(number, dscp, {"B": on(cluster.fabric, "A", "B", *networks)})


@dataclass(frozen=True)
class Kept:
    """Networks that are reserved at all hosts."""

    networks: tuple[str, ...]

    def common(self, sender: str, receiver: str, paths: Sequence[Path]) -> tuple[Path, ...]:
        rest = tuple(path for path in paths if path.network not in self.networks)
        return rest or tuple(paths)


def test_a_class_uses_its_paths_only_and_everybody_else_all() -> None:
    plain = Cluster(THREE)
    jobs = HostJobs((of_class(plain, 5, "n2"), of_class(plain, 6, "n1", "n3")))
    cluster = Cluster(THREE, jobs={"A": jobs})
    target = cluster.hosts["B"].mac
    assert networks_used(cluster, "A", Frame(class_mac(5), target)) == {"n2"}
    assert networks_used(cluster, "A", Frame(class_mac(6), target)) == {"n1", "n3"}
    own = Frame(cluster.hosts["A"].mac, target)
    assert networks_used(cluster, "A", own) == {"n1", "n2", "n3"}


@pytest.mark.parametrize("number", [1, 5, 63, 200])
def test_frames_of_any_class_arrive_with_the_hosts_own_addresses(number: int) -> None:
    """Also frames of a class that no job has: they go as everybody's."""
    plain = Cluster(THREE)
    cluster = Cluster(THREE, jobs={"A": HostJobs((of_class(plain, 5, "n2"),))})
    a, b = cluster.hosts["A"].mac, cluster.hosts["B"].mac
    for slot in range(64):
        frame = Frame(class_mac(number), b, hash=slot, payload="data", ip_dscp=11)
        assert cluster.send("A", frame) == [("B", replace(frame, eth_src=a))]


def test_frames_with_the_address_of_a_class_from_outside_are_dropped() -> None:
    cluster = Cluster(THREE, plain={"R": "n2"})
    for target in (cluster.hosts["A"].mac, BROADCAST, cluster.hosts["A"].nics[1].mac):
        assert not [
            host for host, _ in cluster.send("R", Frame(class_mac(3), target)) if host != "R"
        ]


def test_the_mark_of_a_packet_chooses_among_the_tables_of_its_class() -> None:
    plain = Cluster(THREE)
    tables = (of_class(plain, 5, "n2"), of_class(plain, 5, "n3", dscp=10))
    cluster = Cluster(THREE, jobs={"A": HostJobs(tables)})
    target = cluster.hosts["B"].mac
    for family in (0x0800, ETH_IPV6):
        marked = Frame(class_mac(5), target, eth_type=family, ip_dscp=10)
        assert networks_used(cluster, "A", marked) == {"n3"}
        assert networks_used(cluster, "A", replace(marked, ip_dscp=11)) == {"n2"}
    everybodys = Frame(cluster.hosts["A"].mac, target, ip_dscp=10)
    assert networks_used(cluster, "A", everybodys) == {"n1", "n2", "n3"}


def test_frames_of_a_class_to_other_hosts_go_as_everybodys() -> None:
    plain = Cluster(THREE, plain={"R": "n1"})
    cluster = Cluster(THREE, plain={"R": "n1"}, jobs={"A": HostJobs((of_class(plain, 5, "n2"),))})
    mac = cluster.hosts["A"].mac
    for target in (cluster.hosts["C"].mac, cluster.plain_mac("R"), BROADCAST):
        with cluster.undone():
            own = cluster.send("A", Frame(mac, target))
        with cluster.undone():
            assert cluster.send("A", Frame(class_mac(5), target)) == own != []


def test_a_class_keeps_its_paths_beside_a_helper() -> None:
    """The helper knows no classes: a class with paths of its own goes by its slot table."""
    plain = Cluster(THREE, helpers="AB")
    cluster = Cluster(THREE, helpers="AB", jobs={"A": HostJobs((of_class(plain, 5, "n2"),))})
    target = cluster.hosts["B"].mac
    assert networks_used(cluster, "A", Frame(class_mac(5), target)) == {"n2"}
    assert [
        port
        for port, _ in cluster.bridges["A"].receive(Frame(cluster.hosts["A"].mac, target), LOCAL)
    ] == [PLAIN_PORT]


def with_channel(helpers: str = "AB") -> Cluster:
    """Class 5 of A has channel 7 to B, and the paths of n2."""
    plain = Cluster(THREE, helpers=helpers)
    table = replace(of_class(plain, 5, "n2"), channels={"B": 7})
    return Cluster(THREE, helpers=helpers, jobs={"A": HostJobs((table,))})


def test_a_class_with_a_channel_goes_to_the_helper_with_its_tag() -> None:
    cluster = with_channel()
    a, b = cluster.hosts["A"].mac, cluster.hosts["B"].mac
    frame = Frame(class_mac(5), b, payload="data")
    tagged = replace(frame, eth_src=a, tags=((7, 0),))
    assert cluster.bridges["A"].receive(frame, LOCAL) == [(PLAIN_PORT, tagged)]
    other = cluster.bridges["A"].receive(Frame(class_mac(6), b), LOCAL)
    assert other == [(PLAIN_PORT, Frame(a, b))], "a class without a channel goes as everybody's"
    own_tag = replace(frame, tags=((9, 0),))
    assert networks_used(cluster, "A", own_tag) == {"n2"}, "the helper could not hand it back"


def test_what_the_helper_hands_back_of_a_channel_goes_by_the_class_slot_table() -> None:
    cluster = with_channel()
    a, b = cluster.hosts["A"].mac, cluster.hosts["B"].mac
    for number in range(64):
        back = Frame(a, b, hash=number, payload="data", tags=((7, 0),))
        assert cluster.send("A", back, WIRE_PORT) == [("B", replace(back, tags=()))]
        ports = [port for port, _ in cluster.bridges["A"].receive(back, WIRE_PORT)]
        assert ports == [2], "the NIC in n2"
    for wrong in (
        Frame(a, b, tags=((8, 0),)),
        Frame(a, b, eth_type=0x88B6, tags=((40, 0),)),
        Frame(a, cluster.hosts["C"].mac, tags=((7, 0),)),
    ):
        assert cluster.send("A", wrong, WIRE_PORT) == []


def test_a_class_with_a_channel_keeps_its_paths_while_no_helper_runs() -> None:
    cluster = with_channel()
    for host, frame in (("A", Frame(class_mac(5), cluster.hosts["B"].mac)),):
        cluster.bridges[host].carrier -= {PLAIN_PORT, WIRE_PORT}
        assert networks_used(cluster, host, frame) == {"n2"}


@given(st.sets(st.sampled_from(["n1", "n2", "n3"]), min_size=1, max_size=3), st.integers(0, 63))
def test_a_class_leaves_a_dead_link_without_a_controller(networks: set[str], slot: int) -> None:
    plain = Cluster(THREE)
    jobs = {"A": HostJobs((of_class(plain, 5, *networks),))}
    cluster = Cluster(THREE, jobs=jobs)
    dead = sorted(networks)[0]
    for nic in cluster.hosts["A"].nics:
        if nic.network == dead:
            cluster.cut("A", nic.port)
    frame = Frame(class_mac(5), cluster.hosts["B"].mac, hash=slot)
    assert len(cluster.send("A", frame)) == (len(networks) > 1)


def test_everybody_leaves_the_paths_that_jobs_have_for_themselves() -> None:
    plain = Cluster(THREE, helpers="CD")
    fabric = replace(plain.fabric, reserved=Kept(("n2",)))
    cluster = Cluster(THREE, helpers="CD")
    cluster.replan(fabric)
    frame = Frame(cluster.hosts["A"].mac, cluster.hosts["B"].mac)
    assert networks_used(cluster, "A", frame) == {"n1", "n3"}
    assert fabric.common_paths("A", "B") == on(fabric, "A", "B", "n1", "n3")
    for link in links_to(fabric, "C", "D", {}, {}):
        reserved = fabric.helper_links("C", "D")[link.number].network == "n2"
        assert (link.rate_kbps == link.weight_ppm == link.limit_kbps == 0) == reserved


# Isolated jobs: A and B are the hosts of one, C and D of another; R is no managed host.

SERVICES = (Service("10.0.0.9", "tcp", 2049), Service("fd77::9", "udp", 53))


def walls(services: tuple[Service, ...] = SERVICES) -> dict[str, HostJobs]:
    one = Enclosure("one", KEY, frozenset("AB"), services)
    other = Enclosure("other", bytes([1]) * 32, frozenset("CD"), services)
    return {"A": HostJobs(enclosure=one), "B": HostJobs(enclosure=one)} | {
        name: HostJobs(enclosure=other) for name in "CD"
    }


def isolated(helpers: str = "") -> Cluster:
    return Cluster(THREE, plain={"R": "n1"}, helpers=helpers, jobs=walls())


def arrivals(cluster: Cluster, sender: str, frame: Frame) -> list[str]:
    """The hosts that get any of 64 flows of a frame."""
    got: set[str] = set()
    for number in range(64):
        with cluster.undone():
            got |= {host for host, _ in cluster.send(sender, replace(frame, hash=number))}
    return sorted(got)


KINDS = list(product((0x0800, 0x86DD), (6, 17)))
"""(EtherType, IP protocol)."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("helpers", ["", "ABCD"])
def test_the_hosts_of_an_isolated_job_reach_each_other_only(
    kind: tuple[int, int], helpers: str
) -> None:
    cluster = isolated(helpers)
    for sender, receiver in product("ABCD", repeat=2):
        if sender == receiver or (helpers and {sender, receiver} in ({"A", "B"}, {"C", "D"})):
            continue
        frame = Frame(cluster.hosts[sender].mac, cluster.hosts[receiver].mac, *kind)
        together = {sender, receiver} in ({"A", "B"}, {"C", "D"})
        assert arrivals(cluster, sender, frame) == ([receiver] if together else [])
    for sender in "ABCD":
        own, outside = cluster.hosts[sender].mac, cluster.plain_mac("R")
        assert arrivals(cluster, sender, Frame(own, outside, *kind)) == []
        assert arrivals(cluster, "R", Frame(outside, own, *kind)) == []


def test_helpers_of_an_isolated_job_get_their_frames_and_no_others() -> None:
    cluster = isolated("ABCD")
    cluster.taps.clear()
    frame = Frame(cluster.hosts["A"].mac, cluster.hosts["B"].mac)
    cluster.send("A", frame)
    assert [(host, port) for host, port, _ in cluster.taps] == [("A", PLAIN_PORT)]
    for sender, receiver, arrives in (("A", "B", True), ("A", "C", False)):
        cluster.taps.clear()
        for number in cluster.fabric.helper_links(sender, receiver):
            striped = Frame(
                cluster.hosts[sender].mac,
                cluster.hosts[receiver].mac,
                eth_type=0x88B6,
                tags=((number + 1, 0),),
            )
            cluster.send(sender, striped, 102)
        assert bool([host for host, _, _ in cluster.taps if host == receiver]) is arrives


def forged(cluster: Cluster, target: str) -> list[Frame]:
    """What a host outside of the job may send at a NIC of `target`, whose addresses are known."""
    at, peer = cluster.hosts[target], cluster.hosts["B" if target == "A" else "A"]
    guessed = job_mac(bytes([9]) * 32, at.nics[0].mac)
    sources = [peer.mac, class_mac(1), *(nic.mac for nic in peer.nics), guessed]
    targets = [at.mac, guessed, class_mac(1), BROADCAST, *(nic.mac for nic in at.nics)]
    return [
        Frame(source, address, ip_dscp=dscp, eth_type=family, ip_proto=6, tcp_flags=2)
        for source, address, dscp, family in product(sources, targets, (0, 10), (0x0800, 0x86DD))
    ]


@pytest.mark.parametrize("target", ["A", "B"])
def test_no_forged_frame_gets_into_an_isolated_job(target: str) -> None:
    """Not even one that a lying host puts onto the wire without its bridge."""
    cluster = isolated()
    for frame in forged(cluster, target):
        for port in (1, 2, 3):
            got = cluster.send_from_nic("C", frame, port)
            assert not [host for host, _ in got if host in "AB"], frame


def test_a_frame_with_the_jobs_secret_address_would_get_in() -> None:
    """So the test before this one sends frames that fail because of the address alone."""
    cluster = isolated()
    nic, peer = cluster.hosts["A"].nics[0], cluster.hosts["B"].nics[0]
    frame = Frame(job_mac(KEY, peer.mac), job_mac(KEY, nic.mac))
    own = replace(frame, eth_src=cluster.hosts["B"].mac, eth_dst=cluster.hosts["A"].mac)
    assert ("A", own) in cluster.send_from_nic("C", frame, 1)


def test_an_isolated_job_reaches_its_services_and_they_reach_it() -> None:
    cluster = isolated()
    a, r = cluster.hosts["A"].mac, cluster.plain_mac("R")
    to = Frame(a, r, ip_proto=6, ipv4_src="10.0.0.1", ipv4_dst="10.0.0.9", tcp_dst=2049)
    back = Frame(r, a, ip_proto=6, ipv4_dst="10.0.0.1", ipv4_src="10.0.0.9", tcp_src=2049)
    assert arrivals(cluster, "A", to) == ["R"] and arrivals(cluster, "R", back) == ["A"]
    for wrong in (replace(to, tcp_dst=2050), replace(to, ipv4_dst="10.0.0.8")):
        assert arrivals(cluster, "A", wrong) == []
    for wrong in (replace(back, tcp_src=2050), replace(back, ipv4_src="10.0.0.8")):
        assert arrivals(cluster, "R", wrong) == []
    v6 = Frame(a, r, eth_type=ETH_IPV6, ip_proto=17, ipv6_dst="fd77::9", udp_dst=53)
    assert arrivals(cluster, "A", v6) == ["R"]
    assert arrivals(cluster, "A", replace(v6, ip_proto=6, udp_dst=0, tcp_dst=53)) == []


def test_addresses_are_found_across_the_walls() -> None:
    """Services could not be reached without it."""
    cluster = isolated()
    for frame in (
        Frame(cluster.plain_mac("R"), BROADCAST, eth_type=ETH_ARP, ip_proto=0),
        Frame(
            cluster.plain_mac("R"),
            "33:33:ff:00:00:01",
            eth_type=ETH_IPV6,
            ip_proto=58,
            icmpv6_type=135,
        ),
    ):
        assert "A" in arrivals(cluster, "R", frame)
    asked = Frame(cluster.hosts["A"].mac, BROADCAST, eth_type=ETH_ARP, ip_proto=0)
    assert arrivals(cluster, "A", asked) == ["B", "C", "D", "R"]
    other = Frame(cluster.hosts["A"].mac, BROADCAST, ip_proto=17, udp_dst=137)
    assert arrivals(cluster, "A", other) == []


def test_the_controllers_connection_goes_through_and_opens_no_other() -> None:
    cluster = isolated()
    fabric = replace(
        cluster.fabric,
        hosts={
            name: replace(host, control_port=6653) for name, host in cluster.fabric.hosts.items()
        },
    )
    cluster.replan(fabric, jobs=walls())
    a, r = cluster.hosts["A"].mac, cluster.plain_mac("R")
    assert arrivals(cluster, "A", Frame(a, r, ip_proto=6, tcp_dst=6653)) == ["R"]
    answer = Frame(r, a, ip_proto=6, tcp_src=6653, tcp_flags=0x12)
    assert arrivals(cluster, "R", answer) == ["A"]
    assert arrivals(cluster, "R", replace(answer, tcp_flags=0x02, tcp_dst=22)) == []


def test_no_address_of_a_nic_is_on_the_wire_between_the_hosts_of_an_isolated_job() -> None:
    cluster = isolated()
    frame = Frame(cluster.hosts["A"].mac, cluster.hosts["B"].mac)
    known = {nic.mac for host in cluster.hosts.values() for nic in host.nics}
    for number in range(64):
        (sent,) = cluster.bridges["A"].receive(replace(frame, hash=number), LOCAL)
        assert not {sent[1].eth_src, sent[1].eth_dst} & (known | {frame.eth_src, frame.eth_dst})


@pytest.mark.parametrize("helpers", ["", "ABCD"])
def test_no_frame_between_other_hosts_is_lost_while_jobs_come_and_go(helpers: str) -> None:
    """The model sends frames of all kinds at every moment of the change."""
    cluster = Cluster(THREE, helpers=helpers)
    plain = cluster.fabric
    tables = HostJobs((of_class(cluster, 5, "n2"),))
    cluster.replan(replace(plain, reserved=Kept(("n2",))), jobs={"A": tables})
    cluster.replan(plain)


def test_messages_for_the_hosts_scripts_are_rows_that_no_frame_meets() -> None:
    fabric = Cluster(THREE).fabric
    jobs = HostJobs(notes={5: b'{"id": "a"}', 1002: b'{"id": "b"}'})
    wanted = plan_host(fabric, "A", {}, 64, jobs)
    rows = [flow for flow in wanted.flows.values() if flow.table == Table.JOB_ANSWERS]
    answer, order = sorted(rows, key=lambda flow: flow.priority)
    assert answer.actions == (Note(b'{"id": "a"}'),) and order.actions == (Note(b'{"id": "b"}'),)
    assert all(row.cookie >> 48 == COOKIE_OURS for row in rows)
    # By these matches scripts delete one of them.
    assert dict(answer.match) == {"in_port": LOCAL, "reg6": 5}
    assert dict(order.match) == {"in_port": LOCAL, "reg6": 0, "reg7": 2}
