# SPDX-License-Identifier: Apache-2.0
"""Open vSwitch: a script of `ovs-vsctl` that can be run again at any time."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from ri2n_sdn.vlan.configs.common import safe, seconds, text_of
from ri2n_sdn.vlan.configs.linux_bridge import LINUX_BRIDGE
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts

__all__ = ["OVS"]

AGEING_S = (15, 3600)
MAC_TABLE = (10, 1_000_000)

HEADER = """\
#!/bin/bash
# {name}: written by ri2n vlan switch-config for Open vSwitch (2.17 or newer, no controller).
# Each VLAN is free of loops, all together are not: a spanning tree for all would block cables
# that are needed. STP and RSTP are off, BPDUs end here; Open vSwitch has no BPDU guard for the
# ports of hosts. It learns addresses per VLAN (but in flood_vlans) and drops VLANs that a port
# does not trunk. Empty trunks would mean all VLANs: ports without a VLAN are not attached.
set -eu
"""


def _head(switch: SwitchPorts) -> Iterator[str]:
    bridge = shlex.quote(switch.name)
    yield f"ovs-vsctl --may-exist add-br {bridge} -- set Bridge {bridge} \\"
    yield "    stp_enable=false \\"
    yield "    rstp_enable=false \\"
    yield "    'flood_vlans=[]' \\"
    yield "    other_config:forward-bpdu=false \\"
    yield f"    other_config:mac-aging-time={seconds(switch, AGEING_S[0])} \\"
    yield f"    other_config:mac-table-size={max(MAC_TABLE[0], switch.mac_table)}"


def _block(switch: SwitchPorts, port: SwitchPort, name: str) -> Iterator[str]:
    device, bridge = shlex.quote(name), shlex.quote(switch.name)
    yield ""
    description = safe(port.description)
    if port.shut:
        yield f"# {description}: no VLAN"
        yield f"ovs-vsctl --if-exists del-port {bridge} {device}"
        yield f"ip link set dev {device} down"
        return
    carried = ",".join(map(str, port.carried))
    if port.is_access:
        settings = ["vlan_mode=access", f"tag={port.native}", "trunks=[]"]
    elif port.native is not None:
        settings = ["vlan_mode=native-untagged", f"tag={port.native}", f"trunks={carried}"]
    else:
        settings = ["vlan_mode=trunk", "tag=[]", f"trunks={carried}"]
    settings.append(f'external_ids:ri2n-plugged="{description}"')
    yield f"ovs-vsctl --may-exist add-port {bridge} {device} -- set Port {device} \\"
    yield "    " + " ".join(map(shlex.quote, settings))
    yield f"ip link set dev {device} up"


# Ports are devices of Linux here, too.
OVS = replace(
    LINUX_BRIDGE,
    name="ovs",
    text=text_of(HEADER, _head, _block),
    ageing_s=AGEING_S,
    mac_table=MAC_TABLE[1],
)
