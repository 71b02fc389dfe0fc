# SPDX-License-Identifier: Apache-2.0
"""Open vSwitch select groups with equal weights and static flows, as one can write them by hand.

There is no controller.
"""

from __future__ import annotations

from collections.abc import Sequence

from ri2n_lab.bench.peers.base import (
    BRIDGE,
    clear_address,
    hide_nics,
    losses,
    no_common_network,
    tune,
)
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.plan import nic_mac
from ri2n_lab.cluster.run import ip_batch
from ri2n_sdn.fabric.topology import NicSpec, Topology

__all__ = ["OvsEqual"]


class OvsEqual:
    """One select group (dp_hash) per destination, with a bucket of weight 1 per common link.

    Carrier watches the buckets. A host has one MAC, which a switch knows behind one port: of
    several NICs on one switch only the first is used.
    """

    name = "ovs_equal"
    title = "Open vSwitch select group, equal weights"
    software = "ovs"
    prefix: tuple[str, ...] = ()
    udp = True

    def why_not(self, topology: Topology, server: str, clients: Sequence[str]) -> str | None:
        """Why not: no common network with the server, or no gain, as NICs share a switch."""
        if reason := no_common_network(topology, server, clients):
            return reason
        several = [host for host in (server, *clients) if len(topology.hosts[host].nics) > 1]
        if several and all(len(_links(topology, host)) == 1 for host in several):
            host = several[0]
            return (
                f"a host's one MAC is behind one port of a switch, and all NICs of {host} are "
                "on one switch"
            )
        return None

    def lacks(self) -> str | None:
        """It needs nothing that a lab does not need itself."""
        return None

    def topology(self, topology: Topology) -> Topology:
        """The same topology."""
        return topology

    def set_up(self, lab: Lab) -> None:
        """Make a bridge on each managed host, with static flows, groups and neighbours."""
        for host, spec in lab.topology.hosts.items():
            tune(lab, host)
            device = _make_bridge(lab, host) if spec.managed else spec.nics[0].name
            others = [name for name in lab.topology.hosts if name != host]
            entries = [
                f"neigh replace {lab.address(name)} lladdr {_mac(lab.topology, name)} dev {device}"
                for name in others
            ]
            ip_batch(entries, lab.namespace(host))

    def mend(self, lab: Lab) -> None:
        """Do nothing: a port with a carrier is live again."""

    def target(self, lab: Lab, client: str, server: str) -> str:
        """The server's address, which is on its bridge."""
        return lab.address(server)

    def whole(self, lab: Lab, client: str, server: str) -> str | None:
        """None when all NICs have a carrier and flows of many ports pass, else what is wrong."""
        for host in (client, server):
            for nic in _links(lab.topology, host).values():
                if "state UP" not in lab.exec(host, ["ip", "link", "show", nic.name]).stdout:
                    return f"{host}:{nic.name} is down"
        return losses(lab, client, server)


def _links(topology: Topology, host: str) -> dict[str, NicSpec]:
    """The NICs that the host uses, by switch."""
    found: dict[str, NicSpec] = {}
    for nic in topology.hosts[host].nics:
        found.setdefault(nic.switch, nic)
    return found


def _mac(topology: Topology, host: str) -> str:
    """The MAC behind which a host is reached: its bridge's, or a plain host's NIC's."""
    spec = topology.hosts[host]
    return (
        f"02:00:00:00:00:{topology.number(host):02x}"
        if spec.managed
        else nic_mac(topology, host, spec.nics[0].name)
    )


def _make_bridge(lab: Lab, host: str) -> str:
    topology = lab.topology
    clear_address(lab, host)
    hide_nics(lab, host)
    own = _links(topology, host)
    ports = {switch: number for number, switch in enumerate(own, start=1)}
    args = ["--", "--id=@noop", "create", "QoS", "type=linux-noop", "--", "add-br", BRIDGE]
    args += [
        "--",
        "set",
        "bridge",
        BRIDGE,
        "fail_mode=secure",
        "protocols=OpenFlow10,OpenFlow13,OpenFlow15",
    ]
    args += [f"datapath_type={lab.datapath}", f'other_config:hwaddr="{_mac(topology, host)}"']
    for switch, nic in own.items():
        args += ["--", "add-port", BRIDGE, nic.name, "--", "set", "port", nic.name, "qos=@noop"]
        args += ["--", "set", "interface", nic.name, f"ofport_request={ports[switch]}"]
    lab.vsctl(host, *args)
    groups, flows = [], [f"priority=10,in_port={port},actions=LOCAL" for port in ports.values()]
    for peer in topology.hosts:
        common = [port for switch, port in ports.items() if switch in _links(topology, peer)]
        if peer == host or not common:
            continue
        number = topology.number(peer)
        buckets = [
            f"bucket=bucket_id:{port},weight:1,watch_port:{port},actions=output:{port}"
            for port in common
        ]
        groups.append(f"group_id={number},type=select,selection_method=dp_hash,{','.join(buckets)}")
        flows.append(
            f"priority=20,in_port=LOCAL,dl_dst={_mac(topology, peer)},actions=group:{number}"
        )
    lab.ofctl(host, "add-groups", BRIDGE, "-", input="\n".join(groups) + "\n")
    lab.ofctl(host, "add-flows", BRIDGE, "-", input="\n".join(flows) + "\n")
    lab.exec(host, ["ethtool", "-K", BRIDGE, "tso", "off", "gso", "off", "gro", "off"])
    lines = [f"addr add {lab.address(host)}/24 brd + dev {BRIDGE}", f"link set {BRIDGE} up"]
    ip_batch(lines, lab.namespace(host))
    return BRIDGE
