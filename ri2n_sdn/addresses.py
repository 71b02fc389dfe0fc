"""Addresses of the control network:

in one notation, and what counts as one where places are given out by address.
"""

from __future__ import annotations

import ipaddress

__all__ = ["crowd_of", "plain_address"]

SITE_BITS = 64  # of IPv6 addresses: the rest of one is whatever a host likes


def plain_address(address: str) -> str:
    """IPv4 in its own notation, also from a socket that listens on both families
    (::ffff:192.0.2.1); no zone.
    """
    bare = address.partition("%")[0]
    try:
        mapped = ipaddress.IPv6Address(bare).ipv4_mapped
    except ValueError:
        return bare
    return bare if mapped is None else str(mapped)


def crowd_of(address: str) -> str:
    """What counts as one address:

    of IPv6 the network's part, since a host there has all the others too.
    """
    plain = plain_address(address)
    if ":" not in plain:
        return plain
    try:
        found = ipaddress.IPv6Address(plain)
    except ValueError:
        return plain
    return str(ipaddress.IPv6Network((int(found) >> SITE_BITS << SITE_BITS, SITE_BITS)))
