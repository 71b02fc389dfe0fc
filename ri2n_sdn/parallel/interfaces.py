"""The addresses of this host, as its kernel lists them."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

__all__ = ["own_addresses"]

SIOCGIFCONF = 0x8912
ENTRY_BYTES = 40  # struct ifreq on 64-bit machines: name, then sockaddr_in
ENTRIES = 256
GLOBAL_SCOPE = 0


def own_addresses(version: int) -> list[str]:
    """Addresses of one IP version (4, 6) that other hosts can use, in the order of interfaces."""
    found = _ipv4() if version == 4 else _ipv6()
    return [str(one) for one in found if not one.is_loopback and not one.is_link_local]


def _ipv4() -> list[ipaddress.IPv4Address]:
    names = array.array("B", bytes(ENTRIES * ENTRY_BYTES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_:
        request = struct.pack("iP", len(names), names.buffer_info()[0])
        length = struct.unpack("iP", fcntl.ioctl(any_, SIOCGIFCONF, request))[0]
    data = names.tobytes()[:length]
    return [ipaddress.IPv4Address(data[at + 20 : at + 24]) for at in range(0, length, ENTRY_BYTES)]


def _ipv6() -> list[ipaddress.IPv6Address]:
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines]
    return [ipaddress.IPv6Address(bytes.fromhex(field[0])) for field in fields if int(field[3], 16) == GLOBAL_SCOPE]
