# SPDX-License-Identifier: Apache-2.0
"""Dell PowerConnect 5500 series (5524, 5548)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ri2n_sdn.vlan.configs.common import Names, Vendor, safe, seconds, wrapped
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


def text(switch: SwitchPorts, names: Names) -> str:
    """The file of one switch, to be pasted in configuration mode or copied to running-config."""
    lines = [HEADER.format(name=switch.name)]
    if switch.vlans:
        lines += ["vlan database", *wrapped("vlan ", "vlan ", switch.ids), "exit"]
    for number, name in sorted(switch.vlans):
        lines += [f"interface vlan {number}", f" name {safe(name)}", "exit"]
    lines += [
        "spanning-tree",
        "! where it is off, other switches' BPDUs end:",
        "spanning-tree bpdu filtering",
        f"mac address-table aging-time {seconds(switch, AGEING_S[0])}",
        "!",
    ]
    for port in switch.ports:
        lines.append(f"interface {names[port.number]}")
        lines += (f" {line}" for line in _port(port, switch.ids))
        lines += ["exit", "!"]
    return "\n".join([*lines, "end", ""])


def _port(port: SwitchPort, of_switch: tuple[int, ...]) -> Iterator[str]:
    yield f'description "{safe(port.description)}"'
    if port.shut:
        yield "shutdown"
        return
    if port.is_access:
        yield "switchport mode access"
        yield f"switchport access vlan {port.native}"
    else:
        yield "switchport mode general"
        add, remove = (
            "switchport general allowed vlan add ",
            "switchport general allowed vlan remove ",
        )
        # "add" keeps the port's VLANs from before, so all other VLANs of this switch are removed.
        yield from wrapped(remove, remove, set(of_switch) - set(port.carried))
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
    yield "no shutdown"


POWERCONNECT = Vendor(
    name="powerconnect",
    extension="cfg",
    text=text,
    port_name=lambda port: f"gigabitethernet 1/0/{port}",
    is_name=re.compile(r"[a-z]{2,30} ?[0-9]+(/[0-9]+){0,2}"),
    ageing_s=AGEING_S,
)
