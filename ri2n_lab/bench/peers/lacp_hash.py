# SPDX-License-Identifier: Apache-2.0
"""Linux bonding 802.3ad with a layer 3+4 hash: what most servers with two links run."""

from __future__ import annotations

from collections.abc import Sequence

from ri2n_lab.bench.peers.base import losses, no_common_network
from ri2n_lab.bench.peers.bonding import bond_hosts, lacks_bonding, members
from ri2n_lab.bench.peers.stacked import NEEDS, bundle_ports, disabled_members, stacked
from ri2n_lab.cluster import Lab
from ri2n_sdn.fabric.topology import Topology

__all__ = ["LacpHash"]

COLLECTING_AND_DISTRIBUTING = 0x30


class LacpHash:
    """Every host is one 802.3ad bond.

    Its partner is a bond of the one stacked switch, which hashes flows back.
    """

    name = "lacp_hash"
    title = f"Linux bonding, 802.3ad, layer 3+4 hash ({NEEDS})"
    software = "none"
    prefix: tuple[str, ...] = ()
    udp = True

    def why_not(self, topology: Topology, server: str, clients: Sequence[str]) -> str | None:
        """802.3ad bundles only links of one speed; any number, as the switches are stacked."""
        for host in (server, *clients):
            rates = sorted({nic.rate_bps / 1e6 for nic in topology.hosts[host].nics})
            if len(rates) > 1:
                several = " and ".join(f"{rate:g}" for rate in rates)
                return f"802.3ad bundles links of one speed only, and {host} has {several} Mbit/s"
        return no_common_network(self.topology(topology), server, clients)

    def lacks(self) -> str | None:
        """What may be missing: the kernel's bonding driver."""
        return lacks_bonding()

    def topology(self, topology: Topology) -> Topology:
        """The topology with all NICs on one switch: LACP ends at one system."""
        return stacked(topology)

    def set_up(self, lab: Lab) -> None:
        """Make a bond on each host, with fast LACP, and one for each host in the switch."""
        bundle_ports(lab)
        bond_hosts(lab, "mode 802.3ad xmit_hash_policy layer3+4 lacp_rate fast")

    def mend(self, lab: Lab) -> None:
        """Do nothing: LACP finds links that are back."""

    def target(self, lab: Lab, client: str, server: str) -> str:
        """The server's address, which is on its bond."""
        return lab.address(server)

    def whole(self, lab: Lab, client: str, server: str) -> str | None:
        """None when LACP uses all links at both ends and many flows pass, else what is wrong."""
        for host in (client, server):
            states = members(lab, host)
            for nic, state in states.items() if len(states) > 1 else ():
                agreed = state["ad_actor_oper_port_state"] & state["ad_partner_oper_port_state"]
                if (
                    state["mii_status"] != "UP"
                    or agreed & COLLECTING_AND_DISTRIBUTING != COLLECTING_AND_DISTRIBUTING
                ):
                    return f"LACP does not use {host}:{nic}"
            if disabled := disabled_members(lab, host):
                return f"LACP at the switch does not use {', '.join(disabled)}"
        return losses(lab, client, server)
