"""The counters of each pair and path, as read from the hosts: the input of the weight loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ri2n_sdn.fabric.model import PairKey, PathKey

__all__ = ["ZERO", "Count", "PairCounters", "PathCounters"]


class Count(NamedTuple):
    """What a row, a bucket or a path has carried, cumulative."""

    packets: int
    bytes: int


ZERO = Count(0, 0)


@dataclass(frozen=True)
class PathCounters:
    """One path of a pair: cumulative counters, whether it is alive, and the links that it uses.

    `links` has the ids of links with a capacity, in order: the one of the sender's NIC ("B:1>")
    comes first, the one of the receiver's NIC (">A:2") last.
    """

    path: PathKey
    alive: bool
    links: tuple[str, ...]
    sent: Count
    received: Count


@dataclass(frozen=True)
class PairCounters:
    """The counters of one directed pair, and its slot table.

    `slots` is the table that is installed now. `slot_bytes` has the bytes that each slot carried
    since the last poll; None when unknown. After a group was changed, its counters may hold older
    traffic, so the loop ignores the first `slot_bytes` after its own changes.
    """

    sender: str
    receiver: str
    paths: tuple[PathCounters, ...]
    slots: tuple[PathKey, ...]
    slot_bytes: tuple[int, ...] | None = None

    @property
    def key(self) -> PairKey:
        """(sender, receiver)."""
        return self.sender, self.receiver
