# SPDX-License-Identifier: Apache-2.0
"""A Linux bridge: a script of `ip` and `bridge` that can be run again at any time."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise

from ri2n_sdn.contract.limits import MAX_VLAN
from ri2n_sdn.vlan.configs.common import Names, Vendor, ranges, safe, seconds
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts

__all__ = ["DEVICE", "LINUX_BRIDGE"]

DEVICE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14}")
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


def text(switch: SwitchPorts, names: Names) -> str:
    """The script of one switch, to be run as root where the ports' devices are."""
    bridge = shlex.quote(switch.name)
    # The kernel counts the ageing time in 1/100 s.
    ageing = 100 * seconds(switch, AGEING_S[0])
    lines = [
        HEADER.format(name=switch.name),
        f"ip link show dev {bridge} >/dev/null 2>&1 || ip link add name {bridge} type bridge "
        "vlan_filtering 1",
        f"ip link set dev {bridge} type bridge vlan_filtering 1 vlan_default_pvid 0 stp_state 0 "
        f"ageing_time {ageing}",
        f"ip link set dev {bridge} up",
    ]
    for port in switch.ports:
        lines += ["", *_port(port, shlex.quote(names[port.number]), bridge)]
    return "\n".join([*lines, ""])


def _port(port: SwitchPort, device: str, bridge: str) -> Iterator[str]:
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
    for part in _others(port.carried):
        yield f"bridge vlan del dev {device} vid {part}"
    yield f"ip link set dev {device} up"


def _others(ids: tuple[int, ...]) -> Iterator[str]:
    """All VLANs but `ids` (rising), as ranges."""
    for below, above in pairwise((0, *ids, MAX_VLAN + 1)):
        if above - below > 1:
            yield str(below + 1) if above - below == 2 else f"{below + 1}-{above - 1}"


LINUX_BRIDGE = Vendor(
    name="linux-bridge",
    extension="sh",
    text=text,
    port_name=lambda port: f"swp{port}",
    is_name=DEVICE,
    ageing_s=AGEING_S,
    script=True,
)
