# SPDX-License-Identifier: Apache-2.0
"""Dell PowerConnect 5500 series (5524, 5548)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ri2n_sdn.vlan.configs.common import Vendor, safe, seconds, text_of, wrapped
from ri2n_sdn.vlan.configs.ios import interface, switching
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts

__all__ = ["POWERCONNECT"]

AGEING_S = (10, 400)

HEADER = """\
! {name}: written by ri2n vlan switch-config for Dell PowerConnect 5500 (5524, 5548).
! Other series name ports and commands differently: 6200 has "ethernet 1/g5".
! Each VLAN is free of loops, all together are not: the one spanning tree would block cables
! that are needed. It is off between switches, and on with BPDU guard on the ports of hosts.
! The switch learns addresses per VLAN; ports in general mode filter what they receive, drop
! VLANs they are not in, and are kept out of VLAN 1 (forbidden default-vlan).
!"""


def _head(switch: SwitchPorts) -> Iterator[str]:
    if switch.vlans:
        yield "vlan database"
        yield from wrapped("vlan ", "vlan ", switch.ids)
        yield "exit"
    for number, name in sorted(switch.vlans):
        yield f"interface vlan {number}"
        yield f" name {safe(name)}"
        yield "exit"
    yield "spanning-tree"
    yield "! where it is off, other switches' BPDUs end:"
    yield "spanning-tree bpdu filtering"
    yield f"mac address-table aging-time {seconds(switch, AGEING_S[0])}"
    yield "!"


def _block(switch: SwitchPorts, port: SwitchPort, name: str) -> list[str]:
    return [*interface(port, name, _commands(switch, port), quote='"'), "exit", "!"]


def _commands(switch: SwitchPorts, port: SwitchPort) -> Iterator[str]:
    if port.is_access:
        yield from switching(port)
    else:
        yield "switchport mode general"
        add = "switchport general allowed vlan add "
        remove = "switchport general allowed vlan remove "
        # "add" keeps the port's VLANs from before, so all other VLANs of this switch are removed.
        yield from wrapped(remove, remove, set(switch.ids) - set(port.carried))
        yield from wrapped(add, add, port.tagged, after=" tagged")
        if port.native is not None:
            yield f"{add}{port.native} untagged"
        yield "switchport forbidden default-vlan"
        if port.native is not None:
            yield f"switchport general pvid {port.native}"
        accepted = "tagged-only" if port.native is None else "all"
        yield f"switchport general acceptable-frame-type {accepted}"
        yield "no switchport general ingress-filtering disable"
    if port.to_host:
        yield "no spanning-tree disable"
        yield "spanning-tree portfast"
        yield "spanning-tree bpduguard enable"
    else:
        yield "spanning-tree disable"


POWERCONNECT = Vendor(
    name="powerconnect",
    extension="cfg",
    text=text_of(HEADER, _head, _block, "end"),
    port_name=lambda port: f"gigabitethernet 1/0/{port}",
    is_name=re.compile(r"[a-z]{2,30} ?[0-9]+(/[0-9]+){0,2}"),
    ageing_s=AGEING_S,
)
