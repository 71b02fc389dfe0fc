"""What the hosts counted of each pair and path: the input of the weight loop."""

from __future__ import annotations

from dataclasses import dataclass

from ri2n_sdn.fabric.model import PairKey, PathKey

__all__ = ["PairCounters", "PathCounters"]


@dataclass(frozen=True)
class PathCounters:
    """One path of a pair: cumulative counters, whether it lives, and the directed links it uses.

    `links` are ids of capacitated links in order: the sender's NIC ("B:1>") first, the receiver's
    (">A:2") last.
    """

    path: PathKey
    alive: bool
    links: tuple[str, ...]
    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int


@dataclass(frozen=True)
class PairCounters:
    """One directed pair; `slots` is the table installed now, `slot_bytes` what each slot carried
    since the last poll.

    `slot_bytes` is None when unknown. After a group was changed its counters hold older traffic:
    the loop ignores the first `slot_bytes` after its own changes.
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
