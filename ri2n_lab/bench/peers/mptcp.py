# SPDX-License-Identifier: Apache-2.0
"""Multipath TCP of the Linux kernel: one connection, with a subflow per network.

The sender schedules.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from ri2n_lab.bench.peers.base import (
    SERVER,
    Network,
    address_on,
    common_networks,
    flows_pass,
    networks,
    no_common_network,
)
from ri2n_lab.bench.peers.subnets import number_nics, silent_network
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.run import ip_batch
from ri2n_sdn.fabric.topology import Topology

__all__ = ["Mptcp"]

SUBFLOWS = 4


class Mptcp:
    """Each network has one subnet.

    The server signals its further addresses, clients open subflows from theirs.
    """

    name = "mptcp"
    title = "Multipath TCP"
    software = "none"
    prefix: tuple[str, ...] = ("mptcpize", "run")
    udp = False

    def why_not(self, topology: Topology, server: str, clients: Sequence[str]) -> str | None:
        """Why not: a client has no common network with the server."""
        return no_common_network(topology, server, clients)

    def lacks(self) -> str | None:
        """What may be missing: MPTCP in the kernel, or mptcpize, which makes programs use it."""
        if not Path("/proc/sys/net/mptcp/enabled").exists():
            return "this kernel has no MPTCP"
        if shutil.which("mptcpize") is None:
            return "mptcpize is missing: apt install mptcpize"
        return None

    def topology(self, topology: Topology) -> Topology:
        """The same topology."""
        return topology

    def set_up(self, lab: Lab) -> None:
        """Set addresses, limits and endpoints; the first address of a connection needs none."""
        topology = lab.topology
        for host in topology.managed_hosts():
            number_nics(lab, host, "net.mptcp.enabled=1")
            others = list(networks(topology, host))
            others.remove(others[0] if host == SERVER else _first(topology, host))
            lines = [f"mptcp limits set subflow {SUBFLOWS} add_addr_accepted {SUBFLOWS}"]
            for network in others:
                nic = networks(topology, host)[network].name
                kind = "signal" if host == SERVER else "subflow"
                lines.append(
                    f"mptcp endpoint add {address_on(topology, host, network)} dev {nic} {kind}"
                )
            ip_batch(lines, lab.namespace(host))

    def mend(self, lab: Lab) -> None:
        """Do nothing: addresses stay on a NIC that is down, and endpoints with them."""

    def target(self, lab: Lab, client: str, server: str) -> str:
        """The server's address in the first network that both have."""
        return address_on(lab.topology, server, common_networks(lab.topology, client, server)[0])

    def whole(self, lab: Lab, client: str, server: str) -> str | None:
        """None when every common network works and connections arrive, else what is wrong."""
        if silent := silent_network(lab, client, server):
            return silent
        if not flows_pass(lab, client, self.target(lab, client, server), count=1):
            return f"packets from {client} to {server} are lost"
        return None


def _first(topology: Topology, client: str) -> Network:
    """The network of the client that its connections to the server begin in."""
    return next(iter([*common_networks(topology, client, SERVER), *networks(topology, client)]))
