# SPDX-License-Identifier: Apache-2.0
"""What all peers share: their signature, the networks they see, and how their labs are checked."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Protocol

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.run import CommandFailed, ip_batch, run
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import NicSpec, Topology

__all__ = [
    "BRIDGE",
    "SERVER",
    "Network",
    "Peer",
    "address_on",
    "await_whole",
    "clear_address",
    "common_networks",
    "flows_pass",
    "hide_nics",
    "kernel_lacks",
    "losses",
    "networks",
    "no_common_network",
    "pings",
    "tune",
]

BRIDGE = "br-peer"
"""The bridge of a peer that runs Open vSwitch.

With a hyphen, which no NIC of a topology has in its name.
"""

SERVER = "A"
"""The host that receives in every bench."""

WHOLE_S = 60.0
FLOWS = 16
FLOW_LIMIT_S = 1.0
CLOSED_PORT = 9  # nobody listens there, so a host that gets through is refused at once
TCP_RMEM = "4096 131072 6291456"

Network = tuple[str, int]
"""A switch, and which of a host's NICs there: two NICs on one switch are in two networks."""


class Peer(Protocol):
    """One way to use several links. `why_not`, `topology` and `target` are pure.

    `lacks` looks at this machine.
    """

    name: str
    title: str
    software: str  # what Lab.create is given
    prefix: tuple[str, ...]  # words before every traffic program
    udp: bool  # whether it carries UDP at all

    def why_not(self, topology: Topology, server: str, clients: Sequence[str]) -> str | None:
        """Why it cannot carry traffic from `clients` to `server` on this topology, in one sentence.

        None: it can.
        """

    def lacks(self) -> str | None:
        """What this machine lacks for it, in one sentence; None when it has all."""

    def topology(self, topology: Topology) -> Topology:
        """The topology of the lab that it is measured in: mostly the same."""

    def set_up(self, lab: Lab) -> None:
        """Set up every host of a lab that is up; `await_whole` says when traffic can flow."""

    def mend(self, lab: Lab) -> None:
        """What an administrator or a daemon does once broken links work again; mostly nothing."""

    def target(self, lab: Lab, client: str, server: str) -> str:
        """The IPv4 address that `client` connects to."""

    def whole(self, lab: Lab, client: str, server: str) -> str | None:
        """None when every link that the peer sees between the two works, else what does not."""


def await_whole(
    peer: Peer, lab: Lab, clients: Sequence[str], server: str, timeout_s: float = WHOLE_S
) -> None:
    """Wait until every client reaches the server over every link.

    NotAvailable, with the reason, when never.
    """
    deadline = time.monotonic() + timeout_s
    for client in clients:
        while (missing := peer.whole(lab, client, server)) is not None:
            if time.monotonic() > deadline:
                raise NotAvailable(
                    f"peer {peer.name}: not working {timeout_s:g} s after its set-up: {missing}"
                )
            time.sleep(0.1)


# ---- what a topology means for a peer


def networks(topology: Topology, host: str) -> dict[Network, NicSpec]:
    """The host's NICs by network."""
    found: dict[Network, NicSpec] = {}
    for nic in topology.hosts[host].nics:
        rank = sum(switch == nic.switch for switch, _ in found)
        found[nic.switch, rank] = nic
    return found


def common_networks(topology: Topology, one: str, other: str) -> list[Network]:
    """The networks in which both hosts have a NIC, in `one`'s order."""
    there = networks(topology, other)
    return [network for network in networks(topology, one) if network in there]


def address_on(topology: Topology, host: str, network: Network) -> str:
    """The host's address in that network, of one /24 per network."""
    known = list(
        dict.fromkeys(each for name in topology.hosts for each in networks(topology, name))
    )
    return f"10.78.{known.index(network)}.{topology.number(host)}"


def no_common_network(topology: Topology, server: str, clients: Sequence[str]) -> str | None:
    """The reason why no peer at all works when a client shares no switch with the server.

    None when all do.
    """
    for client in clients:
        if not common_networks(topology, client, server):
            return f"{client} and {server} share no network"
    return None


# ---- setting up hosts


def tune(lab: Lab, host: str, *settings: str) -> None:
    """Set the sysctls of every peer's hosts, and `more` of them.

    Receive buffers, and no memory of earlier connections.
    """
    common = [f"net.ipv4.tcp_rmem={TCP_RMEM}", "net.ipv4.tcp_no_metrics_save=1"]
    common += [f"net.ipv4.conf.{which}.rp_filter=0" for which in ("all", "default")]
    nics = [f"net.ipv4.conf.{nic.name}.rp_filter=0" for nic in lab.topology.hosts[host].nics]
    lab.exec(host, ["sysctl", "-qw", *common, *nics, *settings])


def clear_address(lab: Lab, host: str) -> None:
    """Take the host's addresses from its first NIC, where a lab puts them."""
    ip_batch(
        [f"addr flush dev {lab.topology.hosts[host].nics[0].name} scope global"],
        lab.namespace(host),
    )


def hide_nics(lab: Lab, host: str) -> None:
    """Let nobody but Open vSwitch see what the host's NICs receive.

    On the netdev datapath it reads copies: the kernel would answer ARP with the NICs' own MACs,
    behind which there is no address, and take packets in that the bridge delivers too.
    """
    if lab.datapath != "netdev":
        return
    names = [nic.name for nic in lab.topology.hosts[host].nics]
    chain = (
        'add chain netdev peer {0} {{ type filter hook ingress device "{0}" priority 0; policy '
        "drop; }}"
    )
    lab.exec(
        host, ["nft", "; ".join(["add table netdev peer", *(chain.format(name) for name in names)])]
    )


def kernel_lacks(device: str, *options: str) -> bool:
    """Whether this kernel cannot make a device of this type; loads its module where it is one."""
    try:
        run(["unshare", "--net", "ip", "link", "add", "ri2n-try", "type", device, *options])
    except CommandFailed:
        return True
    return False


# ---- does it work?


def pings(lab: Lab, host: str, address: str, *options: str, count: int = 1) -> bool:
    """Whether each of `count` pings, 10 ms apart, is answered within a second."""
    argv = ["ping", "-n", "-q", "-c", str(count), "-i", "0.01", "-W", "1", *options, address]
    answer = lab.exec(host, argv, check=False, timeout_s=30).stdout
    return f" {count} received" in answer


def flows_pass(lab: Lab, host: str, address: str, count: int = FLOWS) -> bool:
    """Whether `count` new TCP connections all reach the host at `address`, which must refuse each.

    Their ports differ, so where a hash chooses the link, all links are used but for a chance of 2
    in 2 ** `count`.
    """
    module = [sys.executable, "-m", "ri2n_lab.bench.peers.knock", address]
    argv = [*module, str(CLOSED_PORT), str(count), str(FLOW_LIMIT_S)]
    return lab.exec(host, argv, check=False, timeout_s=30).returncode == 0


def losses(lab: Lab, client: str, server: str, pings_count: int = 1) -> str | None:
    """What `whole` says when pings or new flows from client to server's one address are lost.

    None when none are.
    """
    address = lab.address(server)
    if pings(lab, client, address, count=pings_count) and flows_pass(lab, client, address):
        return None
    return f"packets from {client} to {server} are lost"
