# SPDX-License-Identifier: Apache-2.0
"""Take the rates off a lab: its links are then as fast as this machine.

Linux bridges are the switches, where there are any, and offloads are on where they may be.
"""

from __future__ import annotations

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.plan import switch_ports
from ri2n_lab.cluster.run import ip_batch

__all__ = ["takes_super_packets", "unshape"]

OFFLOADS_ON = "tso on gso on gro on tx on rx on"
MOST_SEGMENTS = 65_535


def takes_super_packets(
    software: str, datapath: str, userspace_tso: bool, fast: bool = False
) -> bool:
    """Whether what runs on the hosts can be given super-packets.

    Netdev bridges read frames of the MTU alone. With the fast path (`fast`) they get none: what
    comes in super-packets is carried beside them.
    """
    return software in ("none", "autonomous") or datapath == "system" or userspace_tso or fast


def unshape(lab: Lab, *, userspace_tso: bool = False, fast: bool = False) -> None:
    """Take the rates off a lab that is up, before its controller is started.

    Faults of switches no longer work there.
    """
    ports = switch_ports(lab.topology)
    ends = [(port.host, port.nic.name) for port in ports]
    if lab.switches != "cable":
        _bridges_of_the_kernel(lab)
        ends += [("sw", port.device) for port in ports]
    on = takes_super_packets(lab.software, lab.datapath, userspace_tso, fast)
    for where, device in ends:
        ip_batch([f"qdisc del dev {device} root"], lab.namespace(where), "tc")
        if on:
            lab.exec(where, ["ethtool", "-K", device, *OFFLOADS_ON.split()])
    if on and lab.software == "ri2n":
        # What the bridge's own port cannot do, it refuses.
        for host in lab.topology.managed_hosts():
            lab.exec(host, ["ethtool", "-K", "br-ri2n", *OFFLOADS_ON.split()], check=False)
            ip_batch([f"link set br-ri2n gso_max_segs {MOST_SEGMENTS}"], lab.namespace(host))


def _bridges_of_the_kernel(lab: Lab) -> None:
    """Put the kernel's bridges in the place of the switches."""
    ports = switch_ports(lab.topology)
    lab.vsctl(
        "sw", *(word for switch in lab.topology.switches for word in ("--", "del-br", switch))
    )
    lines = [
        f"link add {switch} type bridge forward_delay 0 mcast_snooping 0"
        for switch in lab.topology.switches
    ]
    lines += [f"link set {port.device} master {port.switch}" for port in ports]
    lines += [f"link set {switch} up" for switch in lab.topology.switches]
    ip_batch(lines, lab.namespace("sw"))
