# SPDX-License-Identifier: Apache-2.0
"""Who may hold a connection, when all places are taken or the host does not say who it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from ri2n_sdn.addresses import crowd_of

__all__ = ["Doorkeeper"]

ConnectionT = TypeVar("ConnectionT")


@dataclass
class _Entry:
    # The addresses that count as one, as `crowd_of` names them.
    crowd: str
    until_s: float
    admitted: bool = False


class Doorkeeper(Generic[ConnectionT]):
    """All open connections, at most `places`. Pure: the caller gives the time and closes sockets.

    A connection is a stranger until it is `admitted`, when its host is known by name. When all
    places are taken, a new connection gets the place of a stranger or of an expendable host. The
    caller says which hosts are expendable, because they matter to nobody: an attacker who reaches
    the port may greet correctly under a thousand names.

    The address with the most of these connections gives one up: its oldest stranger, or else its
    oldest host. So an attacker who opens a thousand connections takes places only from himself.
    When no connection may end, the new one is refused.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._open: dict[ConnectionT, _Entry] = {}

    @property
    def is_full(self) -> bool:
        """Whether all places are taken."""
        return len(self._open) >= self.places

    def add(
        self,
        connection: ConnectionT,
        address: str,
        until_s: float,
        expendable: Collection[ConnectionT] = (),
    ) -> ConnectionT | None:
        """Take in a new connection, and return the one that must end for it, or None.

        It may stay a stranger until `until_s`. Admitted connections may end for it if they are in
        `expendable`. When no other may end, the new connection itself is returned.
        """
        evicted: ConnectionT | None = None
        crowd = crowd_of(address)
        if self.is_full:
            may_end = {
                key: entry
                for key, entry in self._open.items()
                if not entry.admitted or key in expendable
            }
            if not may_end:
                return connection
            sizes = Counter(entry.crowd for entry in may_end.values())
            largest = max(sizes.values())
            crowded = {name for name, count in sizes.items() if count == largest}
            if crowd in crowded:
                crowded = {crowd}
            candidates = [key for key, entry in may_end.items() if entry.crowd in crowded]
            evicted = next((key for key in candidates if not may_end[key].admitted), candidates[0])
            del self._open[evicted]
        self._open[connection] = _Entry(crowd, until_s)
        return evicted

    def admitted(self, connection: ConnectionT) -> None:
        """Note that the connection's host is known."""
        entry = self._open.get(connection)
        if entry is not None:
            entry.admitted = True

    def remove(self, connection: ConnectionT) -> None:
        """Forget a closed connection. To do it twice is no error."""
        self._open.pop(connection, None)

    def overdue(self, now_s: float) -> list[ConnectionT]:
        """Remove and return the strangers whose time is over."""
        late = [
            key for key, entry in self._open.items() if not entry.admitted and now_s > entry.until_s
        ]
        for key in late:
            del self._open[key]
        return late
