# SPDX-License-Identifier: Apache-2.0
"""How many events of its jobs each host may have told to operators."""

from __future__ import annotations

from collections.abc import Collection

from ri2n_sdn.contract.bucket import TokenBucket

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
        self._shares: dict[str, TokenBucket] = {}

    def take(self, host: str, now_s: float) -> bool:
        """Whether an event of the host's is told now (`now_s` is on one clock, in seconds)."""
        share = self._shares.setdefault(host, TokenBucket(_PER_S, MAX_AT_ONCE))
        return share.take(now_s)

    def keep(self, hosts: Collection[str]) -> None:
        """Forget all hosts but these."""
        for host in self._shares.keys() - set(hosts):
            del self._shares[host]
