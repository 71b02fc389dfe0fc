# SPDX-License-Identifier: Apache-2.0
"""Cisco IOS and IOS XE: Catalyst switches.

The public functions write what other vendors took over from IOS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ri2n_sdn.vlan.configs.common import Vendor, listed, safe, seconds, text_of, wrapped
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts

__all__ = ["AGEING_S", "IOS", "ageing_and_vlans", "guard", "interface", "switching"]

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


def ageing_and_vlans(switch: SwitchPorts, indent: str = " ") -> Iterator[str]:
    """How long addresses stay, and the block of each VLAN with its name."""
    yield f"mac address-table aging-time {seconds(switch, AGEING_S[0])}"
    yield "!"
    for number, name in sorted(switch.vlans):
        yield f"vlan {number}"
        yield f"{indent}name {safe(name)}"
        yield "!"


def interface(
    port: SwitchPort, name: str, commands: Iterable[str], indent: str = " ", quote: str = ""
) -> Iterator[str]:
    """The block of a port; `commands` are for one that is not shut.

    The description stands between two `quote`.
    """
    yield f"interface {name}"
    yield f"{indent}description {quote}{safe(port.description)}{quote}"
    for command in ["shutdown"] if port.shut else [*commands, "no shutdown"]:
        yield indent + command


def switching(port: SwitchPort) -> Iterator[str]:
    """The commands for the VLANs of a port."""
    if port.is_access:
        yield "switchport mode access"
        yield f"switchport access vlan {port.native}"
        return
    yield "switchport mode trunk"
    if port.native is None:
        yield "no switchport trunk native vlan"
    else:
        yield f"switchport trunk native vlan {port.native}"
    allowed = "switchport trunk allowed vlan "
    yield from wrapped(allowed, f"{allowed}add ", port.carried)


def guard(port: SwitchPort, portfast: str = "spanning-tree portfast") -> list[str]:
    """The commands that keep BPDUs off the ports of hosts, which forward at once."""
    if port.to_host:
        return [portfast, "spanning-tree bpduguard enable"]
    return ["no spanning-tree portfast", "no spanning-tree bpduguard"]


def _head(switch: SwitchPorts) -> Iterator[str]:
    order = [number for number, _ in switch.vlans]
    yield "vtp mode transparent"
    yield "spanning-tree mode rapid-pvst"
    yield from wrapped("spanning-tree vlan ", "spanning-tree vlan ", order[:MAX_INSTANCES])
    if order[MAX_INSTANCES:]:
        yield (
            f"! Small switches run {MAX_INSTANCES} spanning trees: these VLANs, free of loops as "
            "well, have none."
        )
        without = "no spanning-tree vlan "
        yield from wrapped(without, without, order[MAX_INSTANCES:])
    yield from ageing_and_vlans(switch)


def _block(_: SwitchPorts, port: SwitchPort, name: str) -> list[str]:
    portfast = "spanning-tree portfast" if port.is_access else "spanning-tree portfast trunk"
    commands = [*switching(port), "switchport nonegotiate", *guard(port, portfast)]
    return [*interface(port, name, commands), "!"]


IOS = Vendor(
    name="ios",
    extension="cfg",
    text=text_of(HEADER, _head, _block, "end"),
    port_name=lambda port: f"GigabitEthernet1/0/{port}",
    is_name=re.compile(r"[A-Za-z]{2,30}[0-9]+(/[0-9]+){0,3}"),
    ageing_s=AGEING_S,
    reserved=dict.fromkeys(
        range(1002, 1006), f"{listed(range(1002, 1006))} are kept for FDDI and Token Ring"
    ),
)
