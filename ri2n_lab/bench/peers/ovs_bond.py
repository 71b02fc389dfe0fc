# SPDX-License-Identifier: Apache-2.0
"""Open vSwitch's own bond, balance-tcp: a hash gives flows their links.

Every ten seconds flows move between links by their load.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ri2n_lab.bench.peers.base import (
    BRIDGE,
    clear_address,
    hide_nics,
    losses,
    no_common_network,
    tune,
)
from ri2n_lab.bench.peers.stacked import NEEDS, bundle_ports, disabled_members, stacked
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.run import ip_batch
from ri2n_sdn.fabric.topology import Topology

__all__ = ["OvsBond", "OvsBondDirect"]

BOND = "bond-peer"


class OvsBond:
    """An Open vSwitch bond at both ends of every host's links; balance-tcp works only with LACP."""

    name = "ovs_bond"
    title = f"Open vSwitch bond, balance-tcp ({NEEDS})"
    software = "ovs"
    prefix: tuple[str, ...] = ()
    udp = True

    def why_not(self, topology: Topology, server: str, clients: Sequence[str]) -> str | None:
        """Why not: the server cannot be reached, for stacked switches are one common switch."""
        return no_common_network(self.topology(topology), server, clients)

    def lacks(self) -> str | None:
        """It needs nothing that a lab does not need itself."""
        return None

    def topology(self, topology: Topology) -> Topology:
        """The topology with all NICs on one switch: LACP ends at one system."""
        return stacked(topology)

    def set_up(self, lab: Lab) -> None:
        """Make a bridge on each host with a bond of its NICs, and a bond for each in the switch."""
        bundle_ports(lab)
        self._bond(lab)

    def _bond(self, lab: Lab) -> None:
        for host in lab.topology.managed_hosts():
            tune(lab, host)
            clear_address(lab, host)
            hide_nics(lab, host)
            nics = [nic.name for nic in lab.topology.hosts[host].nics]
            args = ["--", "--id=@noop", "create", "QoS", "type=linux-noop"]
            args += [
                "--",
                "add-br",
                BRIDGE,
                "--",
                "set",
                "bridge",
                BRIDGE,
                f"datapath_type={lab.datapath}",
            ]
            if len(nics) > 1:
                args += [
                    "--",
                    "add-bond",
                    BRIDGE,
                    BOND,
                    *nics,
                    "bond_mode=balance-tcp",
                    "lacp=active",
                ]
                args += [
                    "other_config:lacp-time=fast",
                    "other_config:bond-detect-mode=carrier",
                    "qos=@noop",
                ]
            else:
                args += [
                    "--",
                    "add-port",
                    BRIDGE,
                    nics[0],
                    "--",
                    "set",
                    "port",
                    nics[0],
                    "qos=@noop",
                ]
            lab.vsctl(host, *args)
            lab.exec(host, ["ethtool", "-K", BRIDGE, "tso", "off", "gso", "off", "gro", "off"])
            lines = [f"addr add {lab.address(host)}/24 brd + dev {BRIDGE}", f"link set {BRIDGE} up"]
            ip_batch(lines, lab.namespace(host))

    def mend(self, lab: Lab) -> None:
        """Do nothing: LACP finds links that are back."""

    def target(self, lab: Lab, client: str, server: str) -> str:
        """The server's address, which is on its bridge."""
        return lab.address(server)

    def whole(self, lab: Lab, client: str, server: str) -> str | None:
        """None when all members of both bonds work and many flows pass, else what is wrong."""
        for host in (client, server):
            disabled = self._disabled(lab, host)
            nics = [nic.name for nic in lab.topology.hosts[host].nics]
            if len(nics) > 1:
                text = lab.appctl(host, "bond/show", BOND)
                enabled = re.findall(r"^(?:member|slave) (\S+): enabled", text, re.M)
                disabled += [f"{host}:{nic}" for nic in nics if nic not in enabled]
            if disabled:
                return f"LACP does not use {', '.join(disabled)}"
        return losses(lab, client, server)

    def _disabled(self, lab: Lab, host: str) -> list[str]:
        """The members of the switch's bond to the host that do not work."""
        return disabled_members(lab, host)


class OvsBondDirect(OvsBond):
    """The same on two hosts whose bonds are each other's ends, without a switch."""

    title = "Open vSwitch bond, balance-tcp, without a switch"

    def topology(self, topology: Topology) -> Topology:
        """The same topology: cables need no common switch."""
        return topology

    def set_up(self, lab: Lab) -> None:
        """Make a bridge on each host with a bond of its NICs."""
        self._bond(lab)

    def _disabled(self, lab: Lab, host: str) -> list[str]:
        return []
