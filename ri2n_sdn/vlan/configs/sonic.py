# SPDX-License-Identifier: Apache-2.0
"""SONiC: a fragment of config_db.json, for `config load`.

JSON has no room for comments, so they stand here. SONiC runs no spanning tree unless one is set up,
and then one per VLAN (PVST), so nothing blocks the cables. Without a spanning tree it has no BPDU
guard either, so the ports of hosts have none here. SONiC learns addresses per VLAN, and drops
frames of VLANs that a port is no member of. `config load` adds to what is there: entries of
INTERFACE and VLAN_MEMBER that these ports have from before have to be removed by hand.
"""

from __future__ import annotations

import json
import re

from ri2n_sdn.vlan.configs.common import Names, Vendor, safe
from ri2n_sdn.vlan.switch_ports import SwitchPorts

__all__ = ["SONIC"]

# A configuration cannot set the ageing time: orchagent's template sets it to 600 s.
AGEING_S = (0, 600)

NOTE = "loop-free by itself: no spanning tree, or one per VLAN"


def text(switch: SwitchPorts, names: Names) -> str:
    """The fragment of one switch, as JSON."""
    members = {
        f"Vlan{number}|{names[port.number]}": {
            "tagging_mode": "untagged" if number == port.native else "tagged"
        }
        for number in switch.ids
        for port in switch.ports
        if number in port.carried
    }
    document = {
        "PORT": {
            names[port.number]: {
                "admin_status": "down" if port.shut else "up",
                "description": safe(port.description),
            }
            for port in switch.ports
        },
        "VLAN": {
            f"Vlan{number}": {"description": f"{safe(name)}; {NOTE}", "vlanid": str(number)}
            for number, name in sorted(switch.vlans)
        },
        "VLAN_MEMBER": members,
    }
    return json.dumps(document, indent=4) + "\n"


SONIC = Vendor(
    name="sonic",
    extension="json",
    text=text,
    # Each port has four lanes, and SONiC counts lanes.
    port_name=lambda port: f"Ethernet{4 * (port - 1)}",
    is_name=re.compile(r"Ethernet[0-9]+"),
    ageing_s=AGEING_S,
)
