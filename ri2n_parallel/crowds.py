# SPDX-License-Identifier: Apache-2.0
"""Pure: how many clients may wait before they have said who they are, and which one makes room."""

from __future__ import annotations

import ipaddress
from typing import Generic, TypeVar

__all__ = ["Crowds", "crowd_of"]

Key = TypeVar("Key")
SITE_BITS = 64
"""Leading bits of an IPv6 address that name its network; a host may choose all the others."""


class Crowds(Generic[Key]):
    """Clients that wait, by address: at most `max_total` of all and `max_of_crowd` of one address.

    All clients of one address are a crowd. When one more comes than is allowed, the client that has
    waited for longest makes room: one of its own crowd if that is full, otherwise one of the
    largest crowd. So an address that connects again and again only takes places of its own, and
    `max_total` less `max_of_crowd` places are left for others.
    """

    def __init__(self, max_total: int, max_of_crowd: int) -> None:
        self.max_total, self.max_of_crowd = max_total, max_of_crowd
        self._crowd_of: dict[Key, str] = {}
        # The clients of each crowd, in the order in which they came.
        self._crowds: dict[str, dict[Key, None]] = {}

    def displaced_by(self, crowd: str) -> Key | None:
        """The client whose place one more of this crowd takes; None while there is room."""
        if len(self._crowds.get(crowd, ())) < self.max_of_crowd:
            if len(self._crowd_of) < self.max_total:
                return None
            crowd = max(self._crowds, key=lambda other: len(self._crowds[other]))
        return next(iter(self._crowds[crowd]))

    def add(self, key: Key, crowd: str) -> None:
        """Add a client to this crowd."""
        self._crowd_of[key] = crowd
        self._crowds.setdefault(crowd, {})[key] = None

    def discard(self, key: Key) -> bool:
        """Remove a client that waits no more; whether it was there."""
        crowd = self._crowd_of.pop(key, None)
        if crowd is None:
            return False
        del self._crowds[crowd][key]
        if not self._crowds[crowd]:
            del self._crowds[crowd]
        return True

    def __contains__(self, key: Key) -> bool:
        return key in self._crowd_of

    def __len__(self) -> int:
        return len(self._crowd_of)


def crowd_of(address: str) -> str:
    """The crowd of an address: an IPv4 address, or the network of an IPv6 address.

    An IPv4 address in an IPv6 one (::ffff:192.0.2.1) counts as IPv4. A text that is no address is a
    crowd of its own.
    """
    bare = address.partition("%")[0]
    try:
        parsed = ipaddress.ip_address(bare)
    except ValueError:
        return bare
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed) >> SITE_BITS << SITE_BITS, SITE_BITS)))
