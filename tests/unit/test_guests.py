# SPDX-License-Identifier: Apache-2.0
"""Containers and virtual machines with ports of their own.

Which hosts get their frames, which frames they get, and which frames they may not send.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings

from ri2n_sdn.fabric.model import Fabric, Guest
from ri2n_sdn.pipeline.layout import ETH_RI2N, ETH_STRIPED, LOCAL
from tests.unit.bridge_model import Cluster, Frame
from tests.unit.order_model import BROADCAST, ND_MULTICAST, Sent
from tests.unit.test_pipeline import common, wirings

FIRST, SECOND = Guest(2001, "0e:00:00:00:00:01"), Guest(2002, "0e:00:00:00:00:02")
MACVLAN = "0e:00:00:00:00:03"
ALSO = Guest(2001, "0e:00:00:00:00:04")


def with_guests(hosts: dict[str, list[str]], **more: object) -> Cluster:
    """A has two devices of guests, one of them with two addresses, and a macvlan."""
    cluster = Cluster(hosts, {"R": hosts["A"][0]}, **more)  # type: ignore[arg-type]
    cluster.plug(
        replace(
            cluster.hosts["A"],
            guests=(FIRST, ALSO, SECOND),
            extra_macs=(MACVLAN,),
            control_port=6653,
        )
    )
    cluster.replan(Fabric(cluster.hosts, cluster.fabric.helper_link_numbers))
    return cluster


def arrivals(
    cluster: Cluster, frame: Frame, host: str = "A", port: int = LOCAL
) -> Counter[tuple[str, int]]:
    """The hosts and guests that get the frame, and how often."""
    found = cluster.outcome(Sent(host, frame, port))
    return Counter({(name, at): number for (name, at, _), number in found.items()})


@settings(max_examples=20, deadline=None)
@given(wirings)
def test_guests_and_all_others_reach_each_other(hosts: dict[str, list[str]]) -> None:
    cluster = with_guests(hosts)
    own, router = cluster.hosts["A"].mac, cluster.plain_mac("R")
    for guest in (FIRST, ALSO, SECOND):
        # Switches learn where the guest is.
        arrivals(cluster, Frame(guest.mac, BROADCAST, 0x0806), port=guest.port)
        for mac, at in ((own, LOCAL), (MACVLAN, LOCAL)):
            assert arrivals(cluster, Frame(guest.mac, mac), port=guest.port) == {("A", at): 1}
            assert arrivals(cluster, Frame(mac, guest.mac)) == {("A", guest.port): 1}
        assert arrivals(cluster, Frame(router, guest.mac), "R", 0) == {("A", guest.port): 1}
        assert arrivals(cluster, Frame(guest.mac, router), port=guest.port) == {("R", LOCAL): 1}
        for b in hosts:
            if b != "A" and common(cluster, "A", b):
                peer = cluster.hosts[b].mac
                assert arrivals(cluster, Frame(peer, guest.mac), b) == {("A", guest.port): 1}
                assert arrivals(cluster, Frame(guest.mac, peer), port=guest.port) == {(b, LOCAL): 1}
    for sender, target in ((FIRST, SECOND), (SECOND, ALSO)):
        assert arrivals(cluster, Frame(sender.mac, target.mac), port=sender.port) == {
            ("A", target.port): 1
        }


@settings(max_examples=20, deadline=None)
@given(wirings)
def test_broadcast_arrives_at_guests_as_at_their_host(hosts: dict[str, list[str]]) -> None:
    cluster = with_guests(hosts)
    everyone = {LOCAL: cluster.hosts["A"].mac, FIRST.port: FIRST.mac, SECOND.port: SECOND.mac}
    kinds = (
        Frame("", BROADCAST),
        Frame("", BROADCAST, 0x0806),
        Frame("", ND_MULTICAST, 0x86DD, ip_proto=58, icmpv6_type=135),
    )
    for kind in kinds:
        for port, mac in everyone.items():
            found = arrivals(cluster, replace(kind, eth_src=mac), port=port)
            assert {at: n for (name, at), n in found.items() if name == "A"} == dict.fromkeys(
                everyone.keys() - {port}, 1
            )
            elsewhere = {name for name, _ in found if name != "A"}
            assert elsewhere == {"R", *(b for b in hosts if b != "A" and common(cluster, "A", b))}
        for b in hosts:
            if b != "A" and common(cluster, "A", b):
                found = arrivals(cluster, replace(kind, eth_src=cluster.hosts[b].mac), b)
                at_a = {at: n for (name, at), n in found.items() if name == "A"}
                assert at_a.keys() == everyone.keys() and len(set(at_a.values())) == 1, (
                    "all hear what their host hears"
                )


def test_a_guest_feigns_neither_another_address_nor_a_probe_nor_a_helper() -> None:
    cluster = with_guests({"A": ["n1", "n2"], "B": ["n1", "n2"]}, helpers=("A", "B"))
    peer = cluster.hosts["B"].mac
    assert arrivals(cluster, Frame(FIRST.mac, peer), port=FIRST.port) == {("B", LOCAL): 1}
    for mac in (
        cluster.hosts["A"].mac,
        cluster.hosts["A"].nics[0].mac,
        peer,
        SECOND.mac,
        MACVLAN,
        "0e:00:00:00:00:99",
    ):
        for target in (peer, BROADCAST, cluster.hosts["A"].mac):
            assert not arrivals(cluster, Frame(mac, target), port=FIRST.port), mac
    for kind in (ETH_RI2N, ETH_STRIPED):
        for target in (peer, BROADCAST, cluster.hosts["A"].mac, cluster.hosts["B"].nics[0].mac):
            assert not arrivals(cluster, Frame(FIRST.mac, target, kind), port=FIRST.port)


def test_guests_do_not_share_the_helper() -> None:
    """Otherwise its frames would leave under the host's address."""
    cluster = with_guests({"A": ["n1", "n2"], "B": ["n1", "n2"]}, helpers=("A", "B"))
    for frame, host, port, at in (
        (Frame(SECOND.mac, cluster.hosts["B"].mac), "A", SECOND.port, ("B", LOCAL)),
        (Frame(cluster.hosts["B"].mac, SECOND.mac), "B", LOCAL, ("A", SECOND.port)),
    ):
        assert arrivals(cluster, frame, host, port) == {at: 1}
