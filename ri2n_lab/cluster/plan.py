# SPDX-License-Identifier: Apache-2.0
"""What a lab's topology means in names, addresses, devices and commands; pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.switches import SwitchSpec
from ri2n_sdn.fabric.topology import NicSpec, Topology

__all__ = [
    "CONTROLLER_ADDRESS",
    "CableEnd",
    "SwitchPort",
    "cable_ends",
    "check_direct",
    "check_size",
    "cluster_config",
    "hosts_file",
    "link_commands",
    "management_address",
    "nic_mac",
    "nic_queue",
    "switch_ports",
    "switch_queue",
]

CONTROLLER_ADDRESS = "10.255.0.1"
# Hosts have one /24, and their control network has another one, whose .1 is the controller.
MAX_HOSTS = 253
FRAME_BYTES = 1514
# TCP does not feel a queue behind a netdev bridge: a longer one would only add delay.
NIC_QUEUE_BYTES = 170 * FRAME_BYTES
CABLE_DELAY = "5us"
# Seconds of traffic that a shaper may send at once after a late timer: 10 kB at 100 Mbit/s.
BURST_S = 0.0008
MIN_BURST_BYTES = 2 * 1514


@dataclass(frozen=True)
class SwitchPort:
    """The switch port of a host's NIC.

    `number` is its OpenFlow port number, `device` its device in the switches' namespace, `mac` the
    MAC of the port itself.
    """

    switch: str
    number: int
    device: str
    mac: str
    host: str
    nic: NicSpec


@dataclass(frozen=True)
class CableEnd:
    """The switch port at one end of a cable between two switches; fields as in SwitchPort."""

    switch: str
    number: int
    device: str
    mac: str
    rate_bps: int


def check_size(topology: Topology) -> None:
    """Raise BadInput for a topology with more hosts than a lab has addresses for."""
    if len(topology.hosts) > MAX_HOSTS:
        raise BadInput(
            f"topology {topology.name}: {len(topology.hosts)} hosts, a lab has {MAX_HOSTS} at most"
        )


def nic_mac(topology: Topology, host: str, nic: str) -> str:
    """The MAC of a NIC: 04:00:00:00:HOST:NIC, both numbers counted from 1.

    It is not locally administered, like the MAC of a bought NIC.
    """
    index = [spec.name for spec in topology.hosts[host].nics].index(nic) + 1
    return f"04:00:00:00:{topology.number(host):02x}:{index:02x}"


def management_address(topology: Topology, host: str) -> str:
    """The host's address on the control network, where .1 is the controller."""
    return f"10.255.0.{topology.number(host) + 1}"


def switch_ports(topology: Topology) -> list[SwitchPort]:
    """Every switch port that leads to a host, in order of switches and hosts.

    Where switches have cables between them, a device is named by switch and port number, as in the
    switches' configuration files; elsewhere by host and NIC.
    """
    ports = []
    by_number = bool(cable_ends(topology))
    for switch in topology.switches:
        for host, nic in topology.nics_on(switch):
            number = topology.port_numbers[host, nic.name][1]
            device = f"{host}-{nic.name}"
            if by_number or len(device) > 15:  # the kernel's limit
                device = f"{switch}-{number}"
            mac = nic_mac(topology, host, nic.name).replace("04:", "08:", 1)
            ports.append(SwitchPort(switch, number, device, mac, host, nic))
    return ports


def cable_ends(topology: Topology) -> list[CableEnd]:
    """Both ends of every cable between switches, one after the other, in order of the cables."""
    ends = []
    for cable in topology.graph.cables():
        sides = ((cable.a, cable.a_port), (cable.b, cable.b_port))
        for side, (switch, port) in enumerate(sides):
            mac = f"0c:00:00:{side:02x}:{cable.number >> 8:02x}:{cable.number & 0xFF:02x}"
            ends.append(CableEnd(switch, port, f"{switch}-{port}", mac, cable.rate_bps))
    return ends


def check_direct(topology: Topology) -> None:
    """Raise BadInput unless every switch stands for a cable between two NICs of two hosts."""
    for switch in topology.switches:
        nics = list(topology.nics_on(switch))
        if len({host for host, _ in nics}) != 2 or len(nics) != 2:
            raise BadInput(
                f"topology {topology.name}: switch {switch} does not join just two NICs of two "
                "hosts, so no cable can take its place"
            )


def link_commands(
    topology: Topology, namespace: dict[str, str], *, direct: bool = False
) -> list[str]:
    """`ip` commands that make every cable of the fabric and of the control network.

    Both ends of each are made in their namespaces. `namespace` maps each host, "sw" and "mgmt" to
    its namespace. `direct`: a cable takes the place of each switch (`check_direct`).
    """
    ports = switch_ports(topology)
    if direct:
        lines = [
            f"link add {one.nic.name} netns {namespace[one.host]} address "
            f"{nic_mac(topology, one.host, one.nic.name)}"
            f" type veth peer name {other.nic.name} netns {namespace[other.host]} address "
            f"{nic_mac(topology, other.host, other.nic.name)}"
            for one, other in zip(ports[::2], ports[1::2], strict=True)
        ]
    else:
        lines = [
            f"link add {port.nic.name} netns {namespace[port.host]} address "
            f"{nic_mac(topology, port.host, port.nic.name)}"
            f" type veth peer name {port.device} netns {namespace['sw']} address {port.mac}"
            for port in ports
        ]
    ends = cable_ends(topology)
    lines += [
        f"link add {one.device} netns {namespace['sw']} address {one.mac}"
        f" type veth peer name {other.device} netns {namespace['sw']} address {other.mac}"
        for one, other in zip(ends[::2], ends[1::2], strict=True)
    ]
    lines += [
        f"link add mgmt0 netns {namespace[host]} type veth peer name m-{host} netns "
        f"{namespace['mgmt']}"
        for host in topology.managed_hosts()
    ]
    return lines


def nic_queue(nic: NicSpec, datapath: str) -> list[str]:
    """The `tc` commands of a NIC: its rate, and a queue that TCP does not overrun.

    On the kernel datapath the rate is netem's, which is exact to the packet and has a delay, as a
    cable has. The netdev datapath is for kernels that lack netem; there the rate is TBF's.

    Behind netem's rate, a second netem delays each frame at random by up to one frame's time, and
    keeps the order. Without it, NICs of exactly the same rate would meet at a port in the same
    order for ever, and the NIC whose frame comes just after each departure would get all the room
    there (Floyd and Jacobson, On Traffic Phase Effects in Packet-Switched Gateways, 1992; the
    random delay is their remedy). Real hosts are not that regular.

    A `fair` queue needs a rate that holds frames back in that queue. netem's rate does not do
    that, so a NIC with such a queue has TBF's.
    """
    device, rate_bps = nic.name, nic.rate_bps
    if nic.queue == "fair":
        return [
            _tbf(device, rate_bps, NIC_QUEUE_BYTES).replace(" root tbf", " root handle 1: tbf"),
            f"qdisc add dev {device} parent 1:1 handle 10: fq_codel limit {nic.queue_frames}",
        ]
    if datapath != "system":
        return [_tbf(device, rate_bps, NIC_QUEUE_BYTES)]
    half_us = FRAME_BYTES * 8e6 / rate_bps / 2
    limit = f"limit {nic.queue_frames}"
    return [  # netem keeps packets in order when it has a rate; one so high costs no time
        f"qdisc add dev {device} root handle 1: netem rate {rate_bps}bit delay {CABLE_DELAY} "
        f"{limit}",
        f"qdisc add dev {device} parent 1:1 handle 10: netem rate {100 * rate_bps}bit"
        f" delay {half_us:.3f}us {half_us:.3f}us {limit}",
    ]


def switch_queue(device: str, rate_bps: int, switch: SwitchSpec) -> list[str]:
    """The `tc` commands of a switch port: its rate, and the switch's buffer in full frames.

    A full buffer drops its oldest frame, unless the topology says "newest". A buffer that drops the
    newest frame gives all its room to the sender whose frame comes first after each departure, and
    other senders starve. This is the lock-out of RFC 2309, section 2, which names this cure. On
    netdev, the order in which ovs-vswitchd asks its ports, 32 frames each, causes it (81 to
    21 Mbit/s for two equal senders). On the kernel datapath, a NIC that never idles beside NICs
    that do causes it (figure 4 g, right weights: C at 0.60 of its share, and at 0.91 where the
    oldest is dropped).
    """
    buffer_bytes = switch.port_buffer_bytes
    kind = "pfifo_head_drop" if switch.drop == "oldest" else "pfifo"
    return [
        _tbf(device, rate_bps, buffer_bytes).replace(" root tbf", " root handle 1: tbf"),
        f"qdisc add dev {device} parent 1:1 handle 10: {kind} limit "
        f"{max(2, buffer_bytes // FRAME_BYTES)}",
    ]


def _tbf(device: str, rate_bps: int, limit_bytes: int) -> str:
    """The `tc` command that limits a device to a rate, with a queue of `limit_bytes`."""
    burst_bytes = max(MIN_BURST_BYTES, int(rate_bps * BURST_S / 8))
    return (
        f"qdisc add dev {device} root tbf rate {rate_bps}bit burst {burst_bytes} limit "
        f"{limit_bytes}"
    )


def cluster_config(topology: Topology) -> dict[str, Any]:
    """The content of cluster.yaml: the declared rates and wiring of all managed hosts.

    Where switches have cables between them, it also has the switches and VLANs.
    """
    wired = bool(cable_ends(topology))
    hosts: dict[str, Any] = {}
    for host in topology.managed_hosts():
        nics = {}
        for nic in topology.hosts[host].nics:
            nics[nic.name] = {"rate_bps": nic.rate_bps, "network": topology.network_of[nic.switch]}
            if wired:
                nics[nic.name] |= {
                    "switch": nic.switch,
                    "port": topology.port_numbers[host, nic.name][1],
                }
        hosts[host] = {"nics": nics}
    if not wired:
        return {"hosts": hosts}
    written = topology.model_dump(mode="json", exclude_defaults=True)
    return {"hosts": hosts, "switches": written["switches"], "vlans": written.get("vlans", {})}


def hosts_file(topology: Topology) -> str:
    """The text of /etc/hosts for every namespace of the lab."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for host in topology.hosts:
        lines += [f"{topology.address(host)} {host}", f"{topology.address6(host)} {host}"]
    return "\n".join(lines) + "\n"
