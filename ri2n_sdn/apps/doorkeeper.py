"""Who may hold a connection:

bounded in number, in time until it is known which host it is, and fair by address.
"""

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
    crowd: str
    until_s: float
    admitted: bool = False


class Doorkeeper(Generic[ConnectionT]):
    """All open connections. Pure: the caller gives the time, and closes what it is told to.

    A connection is a stranger until it is `admitted`: until its host is known by name. When all
    places are taken, a new connection gets a stranger's, or that of a host that may go: the caller
    says which hosts matter to nobody, since whoever reaches the port may come politely and by a
    thousand names. The address that has most of these connections gives one, the oldest stranger or
    else its oldest host: so whoever opens a thousand connections takes places from nobody but
    themselves. When none may go, the new one is turned away.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._open: dict[ConnectionT, _Entry] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self.places

    def comes(
        self,
        connection: ConnectionT,
        address: str,
        until_s: float,
        expendable: Collection[ConnectionT] = (),
    ) -> ConnectionT | None:
        """A connection was made, which may be a stranger until then; admitted ones that are
        `expendable` may go for it.

        Returns the one that must go (itself, when there is no other), or None.
        """
        evicted: ConnectionT | None = None
        crowd = crowd_of(address)
        if self.is_full:
            may_go = {
                key: entry
                for key, entry in self._open.items()
                if not entry.admitted or key in expendable
            }
            if not may_go:
                return connection
            sizes = Counter(entry.crowd for entry in may_go.values())
            most = max(sizes.values())
            crowded = {each for each, count in sizes.items() if count == most}
            if crowd in crowded:
                crowded = {crowd}
            of_them = [key for key, entry in may_go.items() if entry.crowd in crowded]
            evicted = next((key for key in of_them if not may_go[key].admitted), of_them[0])
            del self._open[evicted]
        self._open[connection] = _Entry(crowd, until_s)
        return evicted

    def admitted(self, connection: ConnectionT) -> None:
        """It is known which host it is."""
        entry = self._open.get(connection)
        if entry is not None:
            entry.admitted = True

    def leaves(self, connection: ConnectionT) -> None:
        """It was closed; twice is no error."""
        self._open.pop(connection, None)

    def overdue(self, now_s: float) -> list[ConnectionT]:
        """Strangers whose time is over; they have left with this."""
        late = [
            key for key, entry in self._open.items() if not entry.admitted and now_s > entry.until_s
        ]
        for key in late:
            del self._open[key]
        return late
