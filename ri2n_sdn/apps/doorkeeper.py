"""Who may hold a connection before it is known which host it is: bounded in number and in time, and fair by address."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Doorkeeper"]

ConnectionT = TypeVar("ConnectionT")


@dataclass
class _Entry:
    address: str
    until_s: float
    admitted: bool = False


class Doorkeeper(Generic[ConnectionT]):
    """All open connections. Pure: the caller gives the time, and closes what it is told to.

    A connection is a stranger until it is `admitted`: until its host is known by name. When all places are taken, a new
    connection gets the place of the oldest stranger of the address that has most strangers: so whoever opens a thousand
    connections takes places from nobody but themselves. When nobody is a stranger, the new one is turned away.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._open: dict[ConnectionT, _Entry] = {}

    def __len__(self) -> int:
        return len(self._open)

    def comes(self, connection: ConnectionT, address: str, until_s: float) -> ConnectionT | None:
        """A connection was made, which may be a stranger until then.

        Returns the one that must go for it (itself, when there is no other), or None.
        """
        evicted: ConnectionT | None = None
        if len(self._open) >= self.places:
            strangers = Counter(entry.address for entry in self._open.values() if not entry.admitted)
            if not strangers:
                return connection
            most = max(strangers.values())
            crowded = {each for each, count in strangers.items() if count == most}
            if address in crowded:
                crowded = {address}
            evicted = next(key for key, entry in self._open.items() if entry.address in crowded and not entry.admitted)
            del self._open[evicted]
        self._open[connection] = _Entry(address, until_s)
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
        late = [key for key, entry in self._open.items() if not entry.admitted and now_s > entry.until_s]
        for key in late:
            del self._open[key]
        return late
