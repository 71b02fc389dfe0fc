"""What counts as one address where places are given out by address."""

from __future__ import annotations

import ipaddress

__all__ = ["crowd_of"]

SITE_BITS = 64  # of IPv6 addresses: the rest of one is whatever a host likes


def crowd_of(address: str) -> str:
    """What counts as one address: of IPv6 the network's part, since a host there has all the others too."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> SITE_BITS << SITE_BITS, SITE_BITS)))
