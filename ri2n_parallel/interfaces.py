# SPDX-License-Identifier: Apache-2.0
"""The addresses of this host, as its kernel lists them."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

__all__ = ["own_addresses", "own_interfaces"]

SIOCGIFCONF, SIOCGIFNETMASK = 0x8912, 0x891B
ENTRY_BYTES = 40
"""`struct ifreq` on 64-bit machines: the interface's name, then `struct sockaddr_in`."""
MAX_ENTRIES = 256
"""IPv4 addresses of this host that are looked at."""
GLOBAL_SCOPE = 0
"""The scope in /proc/net/if_inet6 of an address that other hosts can use."""


def own_addresses(version: int) -> list[str]:
    """Addresses of one IP version (4, 6) that other hosts can use, in the order of interfaces."""
    interfaces = own_interfaces(version)
    return [
        str(interface.ip)
        for interface in interfaces
        if not interface.is_loopback and not interface.is_link_local
    ]


def own_interfaces(version: int) -> list[ipaddress.IPv4Interface] | list[ipaddress.IPv6Interface]:
    """Addresses of one IP version (4, 6) with their networks.

    Those of IPv4 include addresses that only this host can use.
    """
    return _ipv4() if version == 4 else _ipv6()


def _ipv4() -> list[ipaddress.IPv4Interface]:
    buffer = array.array("B", bytes(MAX_ENTRIES * ENTRY_BYTES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("iP", len(buffer), buffer.buffer_info()[0])
        length = struct.unpack("iP", fcntl.ioctl(control, SIOCGIFCONF, request))[0]
        data = buffer.tobytes()[:length]
        entries = [data[at : at + ENTRY_BYTES] for at in range(0, length, ENTRY_BYTES)]
        interfaces = []
        for entry in entries:
            # The entry names the interface and the address, since one interface may have several.
            try:
                mask = fcntl.ioctl(control, SIOCGIFNETMASK, entry)[20:24]
            except OSError:  # the address is gone
                continue
            bits = int.from_bytes(mask, "big").bit_count()
            address = int.from_bytes(entry[20:24], "big")
            interfaces.append(ipaddress.IPv4Interface((address, bits)))
    return interfaces


def _ipv6() -> list[ipaddress.IPv6Interface]:
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines]
    return [
        ipaddress.IPv6Interface((bytes.fromhex(field[0]), int(field[2], 16)))
        for field in fields
        if int(field[3], 16) == GLOBAL_SCOPE
    ]
