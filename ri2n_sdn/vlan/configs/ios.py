# SPDX-License-Identifier: Apache-2.0
"""Cisco IOS and IOS XE: Catalyst switches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ri2n_sdn.vlan.configs.common import Names, Vendor, listed, safe, seconds, wrapped
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts

__all__ = ["IOS"]

# Spanning trees that the smallest Catalyst switches run; most run 128.
MAX_INSTANCES = 64
AGEING_S = (10, 1_000_000)

HEADER = """\
! {name}: written by ri2n vlan switch-config for Cisco IOS (Catalyst 2960, 9200, 9300).
! Switches that also know ISL (3560, 3750) want "switchport trunk encapsulation dot1q"
! before each "switchport mode trunk".
! Each VLAN is free of loops, all together are not: one spanning tree for all would block
! cables that are needed, one per VLAN (rapid-pvst) blocks none. Host ports have BPDU guard.
! Catalyst switches learn addresses per VLAN; a trunk drops what its list leaves out, VLAN 1 too.
!"""


def text(switch: SwitchPorts, names: Names) -> str:
    """The file of one switch, to be pasted in configuration mode or copied to running-config."""
    order = [number for number, _ in switch.vlans]
    lines = [
        HEADER.format(name=switch.name),
        "vtp mode transparent",
        "spanning-tree mode rapid-pvst",
    ]
    lines += wrapped("spanning-tree vlan ", "spanning-tree vlan ", order[:MAX_INSTANCES])
    if order[MAX_INSTANCES:]:
        lines.append(
            f"! Small switches run {MAX_INSTANCES} spanning trees: these VLANs, free of loops as "
            "well, have none."
        )
        lines += wrapped("no spanning-tree vlan ", "no spanning-tree vlan ", order[MAX_INSTANCES:])
    lines += [f"mac address-table aging-time {seconds(switch, AGEING_S[0])}", "!"]
    for number, name in sorted(switch.vlans):
        lines += [f"vlan {number}", f" name {safe(name)}", "!"]
    for port in switch.ports:
        lines.append(f"interface {names[port.number]}")
        lines += (f" {line}" for line in _port(port))
        lines.append("!")
    return "\n".join([*lines, "end", ""])


def _port(port: SwitchPort) -> Iterator[str]:
    yield f"description {safe(port.description)}"
    if port.shut:
        yield "shutdown"
        return
    if port.is_access:
        yield "switchport mode access"
        yield f"switchport access vlan {port.native}"
    else:
        yield "switchport mode trunk"
        native = (
            "no switchport trunk native vlan"
            if port.native is None
            else f"switchport trunk native vlan {port.native}"
        )
        yield native
        yield from wrapped(
            "switchport trunk allowed vlan ", "switchport trunk allowed vlan add ", port.carried
        )
    yield "switchport nonegotiate"
    if port.to_host:
        yield "spanning-tree portfast" if port.is_access else "spanning-tree portfast trunk"
        yield "spanning-tree bpduguard enable"
    else:
        yield "no spanning-tree portfast"
        yield "no spanning-tree bpduguard"
    yield "no shutdown"


IOS = Vendor(
    name="ios",
    extension="cfg",
    text=text,
    port_name=lambda port: f"GigabitEthernet1/0/{port}",
    is_name=re.compile(r"[A-Za-z]{2,30}[0-9]+(/[0-9]+){0,3}"),
    ageing_s=AGEING_S,
    reserved=dict.fromkeys(
        range(1002, 1006), f"{listed(range(1002, 1006))} are kept for FDDI and Token Ring"
    ),
)
