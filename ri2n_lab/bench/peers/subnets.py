# SPDX-License-Identifier: Apache-2.0
"""One IPv4 subnet per network, for peers that choose between addresses or routes, not links."""

from __future__ import annotations

from ri2n_lab.bench.peers.base import (
    address_on,
    clear_address,
    common_networks,
    networks,
    pings,
    tune,
)
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.run import ip_batch

__all__ = ["number_nics", "silent_network"]


def number_nics(lab: Lab, host: str, *settings: str) -> None:
    """Give each NIC of a host its address in its network, and the host its sysctls.

    Those in `settings` too. Where a host has several NICs on one switch, each answers ARP for its
    own address only.
    """
    topology = lab.topology
    if any(rank for name in topology.hosts for _, rank in networks(topology, name)):
        settings += ("net.ipv4.conf.all.arp_ignore=1", "net.ipv4.conf.all.arp_announce=2")
    tune(lab, host, *settings)
    clear_address(lab, host)
    nics = networks(topology, host)
    lines = [
        f"addr add {address_on(topology, host, network)}/24 dev {nic.name}"
        for network, nic in nics.items()
    ]
    ip_batch(lines, lab.namespace(host))


def silent_network(lab: Lab, client: str, server: str) -> str | None:
    """The first common network in which the server does not answer the client, in words.

    None when all work.
    """
    for network in common_networks(lab.topology, client, server):
        nic = networks(lab.topology, client)[network].name
        if not pings(lab, client, address_on(lab.topology, server, network), "-I", nic):
            return f"{server} does not answer {client} over {nic}"
    return None
