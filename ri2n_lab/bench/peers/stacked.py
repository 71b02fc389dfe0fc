# SPDX-License-Identifier: Apache-2.0
"""Switches that stack (MLAG): one switch for all links of a host, which bundles them with LACP."""

from __future__ import annotations

import re

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.plan import switch_ports
from ri2n_sdn.fabric.switches import SwitchSpec
from ri2n_sdn.fabric.topology import Topology

__all__ = ["NEEDS", "bundle_ports", "disabled_members", "stacked"]

NEEDS = "best case: all switches stacked as one (MLAG), which plain switches cannot do"


def stacked(topology: Topology) -> Topology:
    """The same hosts and rates, with all NICs on one switch.

    LACP needs that, and it is more than plain switches are: a frame may enter on any link and leave
    on any, so that it can carry more than the topology it stands for. It has the smallest port
    buffer of the switches that it replaces.
    """
    if len(topology.switches) == 1:
        return topology
    name = next(iter(topology.switches))
    buffer_bytes = min(switch.port_buffer_bytes for switch in topology.switches.values())
    # The worst of both kinds.
    drop = max(topology.switches.values(), key=lambda switch: switch.drop == "newest").drop
    hosts = {
        host: spec.model_copy(
            update={"nics": tuple(nic.model_copy(update={"switch": name}) for nic in spec.nics)}
        )
        for host, spec in topology.hosts.items()
    }
    changes = {
        "description": f"{topology.description} ({NEEDS})".strip(),
        "switches": {name: SwitchSpec(port_buffer_bytes=buffer_bytes, drop=drop)},
        "hosts": hosts,
    }
    return Topology.model_validate(topology.model_copy(update=changes).model_dump())


def bundle_ports(lab: Lab) -> None:
    """Make the switch's ports to each host with several NICs one LACP bond (balance-tcp)."""
    switch = next(iter(lab.topology.switches))
    # linux-noop: Open vSwitch leaves the ports' own shaping alone.
    args = ["--", "--id=@noop", "create", "QoS", "type=linux-noop"]
    for host in _bundled(lab):
        ports = [port for port in switch_ports(lab.topology) if port.host == host]
        for port in ports:
            args += ["--", "del-port", switch, port.device]
        args += ["--", "add-bond", switch, _bond(host), *(port.device for port in ports)]
        args += ["bond_mode=balance-tcp", "lacp=active", "other_config:lacp-time=fast", "qos=@noop"]
        for port in ports:
            args += ["--", "set", "interface", port.device, f"ofport_request={port.number}"]
    if _bundled(lab):
        lab.vsctl("sw", *args)


def disabled_members(lab: Lab, host: str) -> list[str]:
    """The switch's ports to `host` that do not carry traffic, by the switch's own view.

    None for a host with one.
    """
    if host not in _bundled(lab):
        return []
    ports = [port.device for port in switch_ports(lab.topology) if port.host == host]
    enabled = set(
        re.findall(
            r"^(?:member|slave) (\S+): enabled", lab.appctl("sw", "bond/show", _bond(host)), re.M
        )
    )
    return [port for port in ports if port not in enabled]


def _bundled(lab: Lab) -> list[str]:
    return [host for host in lab.topology.managed_hosts() if len(lab.topology.hosts[host].nics) > 1]


def _bond(host: str) -> str:
    return f"bond-{host}"
