"""Pure: what a lab's topology means in names, addresses, devices and commands."""

from __future__ import annotations

from dataclasses import dataclass

from ri2n_sdn.fabric.topology import NicSpec, Topology

__all__ = [
    "CONTROLLER_ADDRESS",
    "SwitchPort",
    "hosts_file",
    "link_commands",
    "management_address",
    "nic_mac",
    "switch_ports",
    "switch_queue",
    "tbf",
]

CONTROLLER_ADDRESS = "10.255.0.1"
FRAME_BYTES = 1514
NIC_QUEUE_BYTES = 170 * FRAME_BYTES  # TCP does not feel a queue behind a netdev bridge: a longer one only adds delay
BURST_S = 0.0008  # 10 kB at 100 Mbit/s: what a late timer may make up for
MIN_BURST_BYTES = 2 * 1514


@dataclass(frozen=True)
class SwitchPort:
    """One end of a link at its switch: the device in the switches' namespace, OpenFlow number, the port's MAC."""

    switch: str
    number: int
    device: str
    mac: str
    host: str
    nic: NicSpec


def nic_mac(topology: Topology, host: str, nic: str) -> str:
    """A NIC's MAC: 04:00:00:00:HOST:NIC, counted from 1. Like a bought NIC's, it is not locally administered."""
    index = [spec.name for spec in topology.hosts[host].nics].index(nic) + 1
    return f"04:00:00:00:{topology.number(host):02x}:{index:02x}"


def management_address(topology: Topology, host: str) -> str:
    """The host's address on the control network; .1 is the controller."""
    return f"10.255.0.{topology.number(host) + 1}"


def switch_ports(topology: Topology) -> list[SwitchPort]:
    """Every switch port, in order; numbers count from 1 on each switch."""
    found = []
    for switch in topology.switches:
        for number, (host, nic) in enumerate(topology.nics_on(switch), start=1):
            device = f"{host}-{nic.name}"
            if len(device) > 15:  # the kernel's limit
                device = f"{switch}-{number}"
            mac = nic_mac(topology, host, nic.name).replace("04:", "08:", 1)
            found.append(SwitchPort(switch, number, device, mac, host, nic))
    return found


def link_commands(topology: Topology, namespace: dict[str, str]) -> list[str]:
    """`ip` commands that make every link of the fabric and of the control network, both ends in their namespaces."""
    lines = [
        f"link add {port.nic.name} netns {namespace[port.host]} address {nic_mac(topology, port.host, port.nic.name)}"
        f" type veth peer name {port.device} netns {namespace['sw']} address {port.mac}"
        for port in switch_ports(topology)
    ]
    lines += [
        f"link add mgmt0 netns {namespace[host]} type veth peer name m-{host} netns {namespace['mgmt']}"
        for host in topology.managed_hosts()
    ]
    return lines


def tbf(device: str, rate_bps: int, limit_bytes: int) -> str:
    """The `tc` command that makes `device` send at `rate_bps` and queue at most `limit_bytes`."""
    burst_bytes = max(MIN_BURST_BYTES, int(rate_bps * BURST_S / 8))
    return f"qdisc add dev {device} root tbf rate {rate_bps}bit burst {burst_bytes} limit {limit_bytes}"


def switch_queue(device: str, rate_bps: int, buffer_bytes: int) -> list[str]:
    """The `tc` commands of a switch port: its rate, and a buffer that drops the oldest frame when it is full.

    ovs-vswitchd takes up to 32 frames from one port after the other. At a full queue that drops the newest, the port
    that is asked first gets all the room there is, and the last one starves (measured: 81 to 21 Mbit/s for two equal
    senders); a real switch takes frames as they come. Which frame is oldest does not depend on that order.
    """
    frames = max(2, buffer_bytes // FRAME_BYTES)
    return [
        tbf(device, rate_bps, buffer_bytes).replace(" root tbf", " root handle 1: tbf"),
        f"qdisc add dev {device} parent 1:1 handle 10: pfifo_head_drop limit {frames}",
    ]


def hosts_file(topology: Topology) -> str:
    """/etc/hosts for every namespace of the lab."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    for host in topology.hosts:
        lines += [f"{topology.address(host)} {host}", f"{topology.address6(host)} {host}"]
    return "\n".join(lines) + "\n"
