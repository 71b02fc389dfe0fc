# SPDX-License-Identifier: Apache-2.0
"""Linux channel bonding, balance-rr: the packets of a flow take all links in turn.

The oldest of the peers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ri2n_lab.bench.peers.base import losses
from ri2n_lab.bench.peers.bonding import bond_hosts, lacks_bonding, members
from ri2n_lab.cluster import Lab
from ri2n_sdn.fabric.topology import Topology

__all__ = ["Lcb"]

PINGS_PER_LINK = 4


class Lcb:
    """Every host is one bond, every switch a network of its own, without LACP, as on clusters.

    Switches need no configuration. What a host sends on link k can only arrive on link k of the
    other host, so all hosts must be alike.
    """

    name = "lcb"
    title = "Linux bonding, balance-rr"
    software = "none"
    prefix: tuple[str, ...] = ()
    udp = True

    def why_not(self, topology: Topology, server: str, clients: Sequence[str]) -> str | None:
        """Round robin needs equally many links everywhere, and link k of every host on switch k."""
        first = [nic.switch for nic in topology.hosts[server].nics]
        for host, spec in topology.hosts.items():
            count = len(spec.nics)
            if count != len(first):
                numbers = f"{server} has {len(first)} and {host} {count}"
                return f"balance-rr needs the same number of links on all hosts, and {numbers}"
        if len(set(first)) < len(first):
            return (
                f"balance-rr needs a switch of its own for each link, and {server} has several "
                "on one"
            )
        for host, spec in topology.hosts.items():
            if [nic.switch for nic in spec.nics] != first:
                return (
                    f"balance-rr needs link k of every host on one switch, and {host}'s are not "
                    f"where {server}'s are"
                )
        return None

    def lacks(self) -> str | None:
        """What may be missing: the kernel's bonding driver."""
        return lacks_bonding()

    def topology(self, topology: Topology) -> Topology:
        """The same topology."""
        return topology

    def set_up(self, lab: Lab) -> None:
        """Make a bond on each host."""
        bond_hosts(lab, "mode balance-rr")

    def mend(self, lab: Lab) -> None:
        """Do nothing: miimon sees the carrier come back."""

    def target(self, lab: Lab, client: str, server: str) -> str:
        """The server's address, which is on its bond."""
        return lab.address(server)

    def whole(self, lab: Lab, client: str, server: str) -> str | None:
        """All NICs are up in both bonds, and no packet of many is lost.

        Packets that follow each other take all links in turn.
        """
        for host in (client, server):
            for nic, state in members(lab, host).items():
                if state["mii_status"] != "UP":
                    return f"{host}:{nic} is down in its bond"
        count = PINGS_PER_LINK * len(lab.topology.hosts[client].nics)
        return losses(lab, client, server, pings_count=count)
