"""How many events of its jobs each host may have told to operators."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["MAX_AT_ONCE", "EventShare"]

MAX_AT_ONCE = 200
"""So many events of one host are told at once."""

_PER_S = 2.0


class EventShare:
    """A share of the events for each host.

    The controller keeps and logs a limited number of events, of everything that happens. Without a
    share, one host that begins and ends jobs without pause would fill the log, and push out what
    operators must see. Each event costs its host one, of MAX_AT_ONCE; two come back in a second.
    What is not told still stands in the list of jobs and in their history.
    """

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}

    def take(self, host: str, now_s: float) -> bool:
        """Whether an event of the host's is told now (`now_s` is on one clock, in seconds)."""
        used, at_s = self._used.get(host, (0.0, now_s))
        used = max(0.0, used - _PER_S * max(0.0, now_s - at_s))
        told = used + 1 <= MAX_AT_ONCE
        self._used[host] = used + told, now_s
        return told

    def keep(self, hosts: Collection[str]) -> None:
        """Forget all hosts but these."""
        for host in self._used.keys() - set(hosts):
            del self._used[host]
