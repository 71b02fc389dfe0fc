# SPDX-License-Identifier: Apache-2.0
"""A Linux bridge: a script of `ip` and `bridge` that can be run again at any time."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from ri2n_sdn.contract.limits import MAX_VLAN
from ri2n_sdn.vlan.configs.common import Vendor, ranges, safe, seconds, text_of
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts

__all__ = ["LINUX_BRIDGE"]

AGEING_S = (0, 86_400)

HEADER = """\
#!/bin/bash
# {name}: written by ri2n vlan switch-config for a Linux bridge (kernel 4.4 or newer, iproute2).
# Each VLAN is free of loops, all together are not: the bridge's one spanning tree would block
# cables that are needed and is off. Its BPDU guard needs it, so that ports of hosts have none.
# With vlan_filtering a bridge learns addresses per VLAN and drops VLANs that a port is not in;
# without a default PVID no port is in VLAN 1, and ports without a PVID drop untagged frames.
set -eu
"""


def _head(switch: SwitchPorts) -> Iterator[str]:
    bridge = shlex.quote(switch.name)
    yield (
        f"ip link show dev {bridge} >/dev/null 2>&1 || ip link add name {bridge} type bridge "
        "vlan_filtering 1"
    )
    # The kernel counts the ageing time in 1/100 s.
    yield (
        f"ip link set dev {bridge} type bridge vlan_filtering 1 vlan_default_pvid 0 stp_state 0 "
        f"ageing_time {100 * seconds(switch, AGEING_S[0])}"
    )
    yield f"ip link set dev {bridge} up"


def _block(switch: SwitchPorts, port: SwitchPort, name: str) -> Iterator[str]:
    device, bridge = shlex.quote(name), shlex.quote(switch.name)
    yield ""
    yield f"ip link set dev {device} alias {shlex.quote(safe(port.description))}"
    if port.shut:
        yield f"ip link set dev {device} nomaster"
        yield f"ip link set dev {device} down"
        return
    yield f"ip link set dev {device} master {bridge}"
    if port.native is not None:
        yield f"bridge vlan add dev {device} vid {port.native} pvid untagged"
    for part in ranges(port.tagged):
        yield f"bridge vlan add dev {device} vid {part}"
    # Other VLANs are deleted after these were added, so that a second run interrupts nothing.
    for part in ranges(set(range(1, MAX_VLAN + 1)) - set(port.carried)):
        yield f"bridge vlan del dev {device} vid {part}"
    yield f"ip link set dev {device} up"


LINUX_BRIDGE = Vendor(
    name="linux-bridge",
    extension="sh",
    text=text_of(HEADER, _head, _block),
    port_name=lambda port: f"swp{port}",
    is_name=re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14}"),
    ageing_s=AGEING_S,
    script=True,
)
