# SPDX-License-Identifier: Apache-2.0
"""Juniper Junos with the ELS style: EX2300, EX3400, EX4300 and later, QFX5000."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ri2n_sdn.vlan.configs.common import Vendor, ranges, safe, seconds, text_of
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts

__all__ = ["JUNOS"]

AGEING_S = (10, 1_000_000)

HEADER = """\
# {name}: written by ri2n vlan switch-config for Junos (ELS: EX2300 to EX4600, QFX5000).
# Load it with "load set".
# Each VLAN is free of loops, all together are not: RSTP, one tree for all, would block cables that
# are needed and is off. BPDU protection, which works without it, guards the ports of hosts.
# Junos learns addresses per VLAN; a trunk drops untagged frames where it has no native-vlan-id, and
# VLANs that are not members. "statement not found" for a delete is no fault."""


def _head(switch: SwitchPorts) -> Iterator[str]:
    yield "set protocols rstp disable"
    yield f"set protocols l2-learning global-mac-table-aging-time {seconds(switch, AGEING_S[0])}"
    for number, name in sorted(switch.vlans):
        yield f"set vlans {safe(name)} vlan-id {number}"


def _block(_: SwitchPorts, port: SwitchPort, name: str) -> Iterator[str]:
    here = f"interfaces {name}"
    switching = f"{here} unit 0 family ethernet-switching"
    guard = f"protocols layer2-control bpdu-block interface {name}"
    yield f'set {here} description "{safe(port.description)}"'
    # "set" only adds to members, so everything from before is deleted first.
    yield f"delete {here} native-vlan-id"
    yield f"delete {switching}"
    if port.shut:
        yield f"set {here} disable"
        yield f"delete {guard}"
        return
    yield f"delete {here} disable"
    yield f"set {switching} interface-mode {'access' if port.is_access else 'trunk'}"
    if port.native is not None and not port.is_access:
        yield f"set {here} native-vlan-id {port.native}"
    # A native VLAN has to be a member, too.
    for part in ranges(port.carried):
        yield f"set {switching} vlan members {part}"
    yield f"{'set' if port.to_host else 'delete'} {guard}"


JUNOS = Vendor(
    name="junos",
    extension="set",
    text=text_of(HEADER, _head, _block),
    port_name=lambda port: f"ge-0/0/{port - 1}",
    is_name=re.compile(r"[a-z]{2,3}-[0-9]+/[0-9]+/[0-9]+(:[0-9]+)?"),
    ageing_s=AGEING_S,
)
