# SPDX-License-Identifier: Apache-2.0
"""Arista EOS."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ri2n_sdn.errors import BadInput
from ri2n_sdn.vlan.configs.common import Names, Vendor, safe, seconds, wrapped
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts

__all__ = ["EOS"]

AGEING_S = (10, 1_000_000)
# EOS takes VLANs of this range for its own routed ports.
FIRST_INTERNAL, LAST_INTERNAL = 1006, 4094
# So many are left to it, as in Arista's own designs (1006 to 1199).
INTERNAL_COUNT = 194

HEADER = """\
! {name}: written by ri2n vlan switch-config for Arista EOS.
! Each VLAN is free of loops, all together are not: a spanning tree for all would block cables
! that are needed. These VLANs have none, in any mode; host ports have BPDU guard.
! EOS learns addresses per VLAN; a trunk drops what its list leaves out, VLAN 1 too.
!"""


def text(switch: SwitchPorts, names: Names) -> str:
    """The file of one switch, for `configure` or `copy ... running-config`.

    BadInput when no VLAN ID is left for EOS itself.
    """
    lines = [HEADER.format(name=switch.name)]
    lines += _internal(switch)
    lines += wrapped("no spanning-tree vlan-id ", "no spanning-tree vlan-id ", switch.ids)
    lines += [f"mac address-table aging-time {seconds(switch, AGEING_S[0])}", "!"]
    for number, name in sorted(switch.vlans):
        lines += [f"vlan {number}", f"   name {safe(name)}", "!"]
    for port in switch.ports:
        lines.append(f"interface {names[port.number]}")
        lines += (f"   {line}" for line in _port(port))
        lines.append("!")
    return "\n".join([*lines, "end", ""])


def _internal(switch: SwitchPorts) -> list[str]:
    """The command that keeps EOS's own VLANs apart from the switch's; none if these are all lower.

    EOS gets the first INTERNAL_COUNT unused IDs in a row, or else the longest row of unused IDs.
    """
    taken = set(switch.ids)
    if not taken or max(taken) < FIRST_INTERNAL:
        return []
    first, free = FIRST_INTERNAL, 0
    best = (0, 0)
    for number in range(FIRST_INTERNAL, LAST_INTERNAL + 1):
        first, free = (number + 1, 0) if number in taken else (first, free + 1)
        if free > best[1]:
            best = (first, free)
        if free == INTERNAL_COUNT:
            break
    if best[1] == 0:
        raise BadInput(
            f"switches.{switch.name}: VLANs up to 4094 leave eos none for itself ({FIRST_INTERNAL} "
            "or higher)"
        )
    return [f"vlan internal order ascending range {best[0]} {best[0] + best[1] - 1}"]


def _port(port: SwitchPort) -> Iterator[str]:
    yield f"description {safe(port.description)}"
    if port.shut:
        yield "shutdown"
        return
    yield "switchport"
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
    if port.to_host:
        yield "spanning-tree portfast"
        yield "spanning-tree bpduguard enable"
    else:
        yield "no spanning-tree portfast"
        yield "no spanning-tree bpduguard"
    yield "no shutdown"


EOS = Vendor(
    name="eos",
    extension="cfg",
    text=text,
    port_name=lambda port: f"Ethernet{port}",
    is_name=re.compile(r"[A-Za-z]{2,30}[0-9]+(/[0-9]+){0,3}"),
    ageing_s=AGEING_S,
)
