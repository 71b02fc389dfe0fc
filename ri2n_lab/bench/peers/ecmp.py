# SPDX-License-Identifier: Apache-2.0
"""Linux routing over equal or weighted paths: a nexthop group per destination.

The hash of its layer 4 addresses gives a flow its path.
"""

from __future__ import annotations

from collections.abc import Sequence

from ri2n_lab.bench.peers.base import (
    address_on,
    common_networks,
    flows_pass,
    networks,
    no_common_network,
)
from ri2n_lab.bench.peers.subnets import number_nics, silent_network
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.run import CommandFailed, ip_batch, run
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import Topology

__all__ = ["Ecmp", "path_weights"]

MAX_WEIGHT = 255


class Ecmp:
    """Each host has an address of its own on `lo`, each network a subnet; routes are static.

    There is no daemon. The kernel leaves out a next hop whose neighbour does not answer ARP, which
    it takes 5 to 10 s to find out. It forgets routes over a NIC that is set down; `mend` writes
    them again, as a routing daemon would.
    """

    name = "ecmp"
    title = "Linux nexthop group, weights by rate"
    software = "none"
    prefix: tuple[str, ...] = ()
    udp = True

    def why_not(self, topology: Topology, server: str, clients: Sequence[str]) -> str | None:
        """Why not: a client has no common network with the server."""
        return no_common_network(topology, server, clients)

    def lacks(self) -> str | None:
        """What may be missing: nexthop objects in the kernel or in `ip`."""
        lines = "link set lo up\nnexthop add id 1 dev lo\nnexthop add id 2 group 1\n"
        try:
            run(["unshare", "--net", "ip", "-batch", "-"], stdin=lines)
        except CommandFailed:
            return "this kernel has no nexthop groups"
        return None

    def topology(self, topology: Topology) -> Topology:
        """The same topology."""
        return topology

    def set_up(self, lab: Lab) -> None:
        """Set addresses, and routes to all hosts with a common network."""
        for host in lab.topology.managed_hosts():
            number_nics(lab, host, "net.ipv4.fib_multipath_hash_policy=1")
            ip_batch([f"addr add {lab.address(host)}/32 dev lo"], lab.namespace(host))
        self.mend(lab)

    def mend(self, lab: Lab) -> None:
        """Write all routes again: the kernel forgot those over a NIC that was set down."""
        for host in lab.topology.managed_hosts():
            ip_batch(["nexthop flush"], lab.namespace(host))  # routes go with their next hops
            ip_batch(_routes(lab, host), lab.namespace(host))

    def target(self, lab: Lab, client: str, server: str) -> str:
        """The server's own address, to which the group of next hops leads."""
        return lab.address(server)

    def whole(self, lab: Lab, client: str, server: str) -> str | None:
        """None when every common network works and flows of many ports pass, else what is wrong."""
        if silent := silent_network(lab, client, server):
            return silent
        if not flows_pass(lab, client, lab.address(server)):
            return f"packets from {client} to {server} are lost"
        return None


def path_weights(rates_bps: Sequence[int]) -> list[int]:
    """Whole weights from 1 to 255 in about the ratios of the rates; the fastest path has 255."""
    greatest = max(rates_bps)
    small = next(
        (
            n
            for n in range(1, MAX_WEIGHT + 1)
            if all((rate * n) % greatest == 0 for rate in rates_bps)
        ),
        MAX_WEIGHT,
    )
    return [max(1, round(rate * small / greatest)) for rate in rates_bps]


def _routes(lab: Lab, host: str) -> list[str]:
    topology = lab.topology
    own = networks(topology, host)
    lines, number = [], 0
    for peer in topology.managed_hosts():
        common = common_networks(topology, host, peer)
        if peer == host or not common:
            continue
        there = networks(topology, peer)
        members = []
        rates = [min(own[network].rate_bps, there[network].rate_bps) for network in common]
        for network, weight in zip(common, path_weights(rates), strict=True):
            number += 1
            lines.append(
                f"nexthop add id {number} via {address_on(topology, peer, network)} dev "
                f"{own[network].name}"
            )
            members.append(f"{number},{weight}")
        number += 1
        lines.append(f"nexthop add id {number} group {'/'.join(members)}")
        lines.append(f"route add {lab.address(peer)}/32 nhid {number} src {lab.address(host)}")
    if number > 60_000:
        raise NotAvailable("too many hosts for one table of next hops")
    return lines
