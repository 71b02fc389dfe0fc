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
ENTRY_BYTES = 40  # struct ifreq on 64-bit machines: name, then sockaddr_in
ENTRIES = 256
GLOBAL_SCOPE = 0


def own_addresses(version: int) -> list[str]:
    """Addresses of one IP version (4, 6) that other hosts can use, in the order of interfaces."""
    found = _ipv4() if version == 4 else _ipv6()
    return [str(one.ip) for one in found if not one.is_loopback and not one.is_link_local]


def own_interfaces(version: int) -> list[ipaddress.IPv4Interface] | list[ipaddress.IPv6Interface]:
    """Addresses of one IP version with their networks, also those that only this host can use."""
    return _ipv4() if version == 4 else _ipv6()


def _ipv4() -> list[ipaddress.IPv4Interface]:
    names = array.array("B", bytes(ENTRIES * ENTRY_BYTES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_:
        request = struct.pack("iP", len(names), names.buffer_info()[0])
        length = struct.unpack("iP", fcntl.ioctl(any_, SIOCGIFCONF, request))[0]
        data = names.tobytes()[:length]
        entries = [data[at : at + ENTRY_BYTES] for at in range(0, length, ENTRY_BYTES)]
        found = []
        for entry in entries:
            try:  # the mask of this address of the interface, by both
                mask = fcntl.ioctl(any_, SIOCGIFNETMASK, entry)[20:24]
            except OSError:  # it is gone
                continue
            bits = int.from_bytes(mask, "big").bit_count()
            found.append(ipaddress.IPv4Interface((int.from_bytes(entry[20:24], "big"), bits)))
    return found


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
