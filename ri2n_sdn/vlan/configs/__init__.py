# SPDX-License-Identifier: Apache-2.0
"""Switches' configuration files, one per switch, in the language of each vendor.

Pure: text is made from `SwitchPorts`.
"""

from __future__ import annotations

import re

from ri2n_sdn.errors import BadInput
from ri2n_sdn.vlan.configs.common import Names, Vendor
from ri2n_sdn.vlan.configs.eos import EOS
from ri2n_sdn.vlan.configs.ios import IOS
from ri2n_sdn.vlan.configs.junos import JUNOS
from ri2n_sdn.vlan.configs.linux_bridge import LINUX_BRIDGE
from ri2n_sdn.vlan.configs.ovs import OVS
from ri2n_sdn.vlan.configs.powerconnect import POWERCONNECT
from ri2n_sdn.vlan.configs.sonic import SONIC
from ri2n_sdn.vlan.switch_ports import SwitchPorts

__all__ = ["VENDORS", "file_name", "vendor_named", "write"]

VENDORS = {kind.name: kind for kind in (IOS, EOS, POWERCONNECT, JUNOS, SONIC, LINUX_BRIDGE, OVS)}

DEFAULT_VLAN = 1


def write(vendor: str, switch: SwitchPorts, *, port_format: str | None = None) -> str:
    """The configuration of one switch in the language of `vendor`, one of VENDORS.

    Ports have the names that the vendor gives them, or those of `port_format` (`{port}` is the
    number, `{port0}` one less, `{switch}` the switch). BadInput, one line, for an unknown vendor,
    names that its ports cannot have, VLANs that it keeps for itself, and times or sizes that it
    cannot set.
    """
    kind = vendor_named(vendor)
    _check(kind, switch)
    return kind.text(switch, _port_names(kind, switch, port_format))


def vendor_named(vendor: str) -> Vendor:
    """The vendor of that name; BadInput when it is not one of VENDORS."""
    if vendor not in VENDORS:
        raise BadInput(f"--vendor: unknown {vendor!r}; choose from {', '.join(VENDORS)}")
    return VENDORS[vendor]


def file_name(vendor: str, switch: SwitchPorts) -> str:
    """The name of the file of `switch`, such as `leaf1.cfg`; BadInput as in `vendor_named`."""
    return f"{switch.name}.{vendor_named(vendor).extension}"


def _port_names(kind: Vendor, switch: SwitchPorts, port_format: str | None) -> Names:
    """The name of each port of `switch`; arguments and BadInput as in `write`."""
    if port_format is None:
        source = kind.name
        names = {port.number: kind.port_name(port.number) for port in switch.ports}
    else:
        source = f"--port-format {port_format}"
        fixed = re.sub(r"\{(port0?|switch)\}", "", port_format)
        if not re.search(r"\{port0?\}", port_format) or re.search(r"[{}]", fixed):
            raise BadInput(
                f"{source}: must contain {{port}} or {{port0}}, and no other braces but {{switch}}"
            )
        names = {
            port.number: port_format.format(
                port=port.number, port0=port.number - 1, switch=switch.name
            )
            for port in switch.ports
        }
    for name in names.values():
        if not kind.is_name.fullmatch(name):
            raise BadInput(
                f"{source}: {name!r} cannot be a port of {kind.name} ({kind.port_name(5)!r} could)"
            )
        if kind.script and name == switch.name:
            raise BadInput(f"{source}: {name!r} is both a port and the bridge")
    return names


def _check(kind: Vendor, switch: SwitchPorts) -> None:
    """BadInput when the vendor's switches cannot do what `switch` asks for."""
    for number in switch.ids:
        if number == DEFAULT_VLAN:
            raise BadInput(
                f"vlans: VLAN {number} is where switches put whatever is not configured: "
                f"{kind.name} needs another"
            )
        if number in kind.reserved:
            raise BadInput(
                f"vlans: VLAN {number} cannot be used with {kind.name}: {kind.reserved[number]}"
            )
    # A switch that remembers addresses longer than asked for does no harm. One that forgets them
    # sooner floods.
    longest = kind.ageing_s[1]
    if switch.ageing_s > longest:
        raise BadInput(
            f"vlans.ageing_s: {switch.ageing_s:g} s is too long: {kind.name} forgets after "
            f"{longest} s at most"
        )
    if kind.mac_table is not None and switch.mac_table > kind.mac_table:
        raise BadInput(
            f"vlans.mac_table: {kind.name} remembers {kind.mac_table} addresses at most, not "
            f"{switch.mac_table}"
        )
