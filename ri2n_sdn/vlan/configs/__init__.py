# SPDX-License-Identifier: Apache-2.0
"""Switches' configuration files, one per switch, in the language of each vendor.

Pure: text is made from `SwitchPorts`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ri2n_sdn.errors import BadInput
from ri2n_sdn.vlan.configs import ovs
from ri2n_sdn.vlan.configs.common import Names, Vendor
from ri2n_sdn.vlan.configs.eos import EOS
from ri2n_sdn.vlan.configs.ios import IOS
from ri2n_sdn.vlan.configs.junos import JUNOS
from ri2n_sdn.vlan.configs.linux_bridge import LINUX_BRIDGE
from ri2n_sdn.vlan.configs.ovs import OVS
from ri2n_sdn.vlan.configs.powerconnect import POWERCONNECT
from ri2n_sdn.vlan.configs.sonic import SONIC
from ri2n_sdn.vlan.switch_ports import SwitchPorts

__all__ = ["VENDORS", "file_name", "port_names", "vendor_named", "write"]

VENDORS = {kind.name: kind for kind in (IOS, EOS, POWERCONNECT, JUNOS, SONIC, LINUX_BRIDGE, OVS)}

DEFAULT_VLAN = 1


def write(
    vendor: str,
    switch: SwitchPorts,
    *,
    port_format: str | None = None,
    devices: Mapping[int, str] | None = None,
    datapath_type: str | None = None,
) -> str:
    """The configuration of one switch in the language of `vendor`, one of VENDORS.

    Ports have the names that the vendor gives them, or those of `port_format` (`{port}` is the
    number, `{port0}` one less, `{switch}` the switch), or those of `devices` (port -> name, for
    every port of the switch). `datapath_type` is for ovs alone. BadInput, one line, for an unknown
    vendor, names that its ports cannot have, VLANs that it keeps for itself, and times or sizes
    that it cannot set.
    """
    kind = vendor_named(vendor)
    _check(kind, switch)
    names = port_names(vendor, switch, port_format=port_format, devices=devices)
    if datapath_type is not None:
        if kind is not OVS:
            raise BadInput(f"datapath_type: only ovs has one, {vendor} does not")
        return ovs.text(switch, names, datapath_type)
    return kind.text(switch, names)


def vendor_named(vendor: str) -> Vendor:
    """The vendor of that name; BadInput when it is not one of VENDORS."""
    if vendor not in VENDORS:
        raise BadInput(f"--vendor: unknown {vendor!r}; choose from {', '.join(VENDORS)}")
    return VENDORS[vendor]


def file_name(vendor: str, switch: SwitchPorts) -> str:
    """The name of the file of `switch`, such as `leaf1.cfg`; BadInput as in `vendor_named`."""
    return f"{switch.name}.{vendor_named(vendor).extension}"


def port_names(
    vendor: str,
    switch: SwitchPorts,
    *,
    port_format: str | None = None,
    devices: Mapping[int, str] | None = None,
) -> Names:
    """The name of each port of `switch`; arguments and BadInput as in `write`."""
    kind = vendor_named(vendor)
    if devices is not None:
        names = {port.number: devices.get(port.number, "") for port in switch.ports}
        source = "devices"
    elif port_format is not None:
        parts = _template(port_format)
        names = {
            port.number: "".join(_field(part, port.number, switch.name) for part in parts)
            for port in switch.ports
        }
        source = f"--port-format {port_format}"
    else:
        names = {port.number: kind.port_name(port.number) for port in switch.ports}
        source = vendor
    for number, name in names.items():
        if not name:
            raise BadInput(f"{source}: no name for port {number} of {switch.name}")
        if not kind.is_name.fullmatch(name):
            raise BadInput(
                f"{source}: {name!r} cannot be a port of {vendor} ({kind.port_name(5)!r} could)"
            )
        if kind.script and name == switch.name:
            raise BadInput(f"{source}: {name!r} is both a port and the bridge")
    if len(set(names.values())) < len(names):
        raise BadInput(f"{source}: two ports of {switch.name} have the same name")
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


def _template(port_format: str) -> list[str]:
    """The template as a list of texts and fields; BadInput for other braces, or without a port."""
    parts = re.split(r"(\{port0?\}|\{switch\})", port_format)
    if not {"{port}", "{port0}"} & set(parts) or any(
        brace in part for part in parts[::2] for brace in "{}"
    ):
        raise BadInput(
            f"--port-format {port_format}: must contain {{port}} or {{port0}}, and no other braces "
            f"but {{switch}}"
        )
    return parts


def _field(part: str, port: int, switch: str) -> str:
    return {"{port}": str(port), "{port0}": str(port - 1), "{switch}": switch}.get(part, part)
