# SPDX-License-Identifier: Apache-2.0
"""Arista EOS."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ri2n_sdn.contract.limits import MAX_VLAN
from ri2n_sdn.contract.wording import runs
from ri2n_sdn.errors import BadInput
from ri2n_sdn.vlan.configs.common import Vendor, text_of, wrapped
from ri2n_sdn.vlan.configs.ios import AGEING_S, ageing_and_vlans, guard, interface, switching
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts

__all__ = ["EOS"]

# EOS takes VLANs from here on for its own routed ports.
FIRST_INTERNAL = 1006
# So many are left to it, as in Arista's own designs (1006 to 1199).
INTERNAL_COUNT = 194
INDENT = "   "

HEADER = """\
! {name}: written by ri2n vlan switch-config for Arista EOS.
! Each VLAN is free of loops, all together are not: a spanning tree for all would block cables
! that are needed. These VLANs have none, in any mode; host ports have BPDU guard.
! EOS learns addresses per VLAN; a trunk drops what its list leaves out, VLAN 1 too.
!"""


def _head(switch: SwitchPorts) -> Iterator[str]:
    """The lines before those of ports; BadInput when no VLAN ID is left for EOS itself."""
    yield from _internal(switch)
    yield from wrapped("no spanning-tree vlan-id ", "no spanning-tree vlan-id ", switch.ids)
    yield from ageing_and_vlans(switch, INDENT)


def _internal(switch: SwitchPorts) -> list[str]:
    """The command that keeps EOS's own VLANs apart from the switch's; none if these are all lower.

    EOS gets the first INTERNAL_COUNT unused IDs in a row, or else the longest row of unused IDs.
    """
    if max(switch.ids, default=0) < FIRST_INTERNAL:
        return []
    unused = runs(set(range(FIRST_INTERNAL, MAX_VLAN + 1)) - set(switch.ids))
    if not unused:
        raise BadInput(
            f"switches.{switch.name}: VLANs up to 4094 leave eos none for itself ({FIRST_INTERNAL} "
            "or higher)"
        )
    rows = [(first, min(last, first + INTERNAL_COUNT - 1)) for first, last in unused]
    first, last = max(rows, key=lambda row: row[1] - row[0])
    return [f"vlan internal order ascending range {first} {last}"]


def _block(_: SwitchPorts, port: SwitchPort, name: str) -> list[str]:
    commands = ["switchport", *switching(port), *guard(port)]
    return [*interface(port, name, commands, INDENT), "!"]


EOS = Vendor(
    name="eos",
    extension="cfg",
    text=text_of(HEADER, _head, _block, "end"),
    port_name=lambda port: f"Ethernet{port}",
    is_name=re.compile(r"[A-Za-z]{2,30}[0-9]+(/[0-9]+){0,3}"),
    ageing_s=AGEING_S,
)
