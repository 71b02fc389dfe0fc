# SPDX-License-Identifier: Apache-2.0
"""IP addresses of the control network: one notation, and which of them count as one address."""

from __future__ import annotations

import ipaddress

__all__ = ["crowd_of", "is_loopback", "plain_address"]

# The leading bits of an IPv6 address that belong to the network. A host can choose the others.
SITE_BITS = 64


def plain_address(address: str) -> str:
    """The address without a zone, and an IPv4 address in its own notation.

    A socket that listens on both families shows IPv4 addresses as ::ffff:192.0.2.1.
    """
    bare = address.partition("%")[0]
    try:
        mapped = ipaddress.IPv6Address(bare).ipv4_mapped
    except ValueError:
        return bare
    return bare if mapped is None else str(mapped)


def crowd_of(address: str) -> str:
    """The text that stands for all addresses that count as one.

    An IPv4 address counts as itself. All addresses of an IPv6 network (/64) count as one, since a
    host in that network can have any of them.
    """
    plain = plain_address(address)
    if ":" not in plain:
        return plain
    try:
        return str(ipaddress.IPv6Network((plain, SITE_BITS), strict=False))
    except ValueError:
        return plain


def is_loopback(host: str) -> bool:
    """Whether a name or address is that of a machine for itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(plain_address(host)).is_loopback
    except ValueError:
        return False
