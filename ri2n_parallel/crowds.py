"""Pure:

how many may wait who have not said who they are, in all and of each address, and who makes room for
more.
"""

from __future__ import annotations

import ipaddress
from typing import Generic, TypeVar

__all__ = ["Crowds", "crowd_of"]

Key = TypeVar("Key")
SITE_BITS = 64  # of an IPv6 address: a host may give itself any of the rest


class Crowds(Generic[Key]):
    """Those who wait, by address.

    When one more comes than may, the one that has waited for longest makes room: of its own address
    if that has as many as one may have, and otherwise of the address that has the most. So an
    address that connects and connects takes its own places; there are as many for others as `most`
    less `of_one`.
    """

    def __init__(self, most: int, of_one: int) -> None:
        self.most, self.of_one = most, of_one
        self._crowd_of: dict[Key, str] = {}
        self._crowds: dict[str, dict[Key, None]] = {}  # in the order of coming

    def in_the_way(self, crowd: str) -> Key | None:
        """Whose place one more from there takes; None while there is room."""
        if len(self._crowds.get(crowd, ())) < self.of_one:
            if len(self._crowd_of) < self.most:
                return None
            crowd = max(self._crowds, key=lambda each: len(self._crowds[each]))
        return next(iter(self._crowds[crowd]))

    def add(self, key: Key, crowd: str) -> None:
        """One more from there."""
        self._crowd_of[key] = crowd
        self._crowds.setdefault(crowd, {})[key] = None

    def discard(self, key: Key) -> bool:
        """It waits no more; whether it did."""
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
    """What counts as one address: of IPv6 the network's part.

    Of IPv4 in IPv6 (::ffff:192.0.2.1) the IPv4 address.
    """
    bare = address.partition("%")[0]
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return bare
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found) >> SITE_BITS << SITE_BITS, SITE_BITS)))
