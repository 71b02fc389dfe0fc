# SPDX-License-Identifier: Apache-2.0
"""Jobs that have ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ri2n_sdn.contract.printing import cut, one_line
from ri2n_sdn.jobs.model import Job, Policy

__all__ = ["MAX_RECORDS", "MAX_WHY", "Record", "ended", "kept"]

MAX_RECORDS = 10_000
"""The number of records that are kept. `kept` says which ones make way for new ones."""

MAX_WHY = 200
"""The largest number of characters of a reason."""


@dataclass(frozen=True, slots=True)
class Record:
    """A job that has ended: what it was, when it was there, and why it ended (one line)."""

    id: str
    user: str
    uid: int
    hosts: tuple[str, ...]
    policy: Policy
    begin_s: float
    end_s: float
    why: str


def ended(job: Job, now_s: float, why: str) -> Record:
    """The record of a job that ends now; it began before, whatever the hosts' clocks say.

    So a host cannot choose the place that its jobs have in the history.
    """
    return Record(
        job.id,
        job.user,
        job.uid,
        job.hosts,
        job.policy,
        min(now_s, job.begin_s),
        now_s,
        cut(one_line(why), MAX_WHY),
    )


def kept(
    records: Sequence[Record], new: Iterable[Record], most: int = MAX_RECORDS
) -> tuple[Record, ...]:
    """The records with new ones, in the order of their ends; at most `most` of them.

    One host that ends jobs without pause must not push out the records of all others, and neither
    must one user. So each host has a share. Of too many records, the one that goes is the oldest
    one of the user with the most records on the host with the most records. A record counts for the
    first host of its job.

    The host counts first, because a host can make up users, but no other host: it is in nobody's
    job who does not name it. The user counts next, because a user may order jobs on all hosts. The
    controller knows who orders a job, so a user cannot make up other users in this way.

    `records` are in the order of their ends. The records of one host stay while they are at most
    `most` divided by the number of hosts that have records.
    """
    every = (*records, *sorted(new, key=_end_of))
    if len(every) > len(records) > 0 and _end_of(every[len(records)]) < _end_of(records[-1]):
        every = tuple(sorted(every, key=_end_of))
    if len(every) <= most:
        return every
    gone = _making_way(every, len(every) - most)
    return tuple(each for place, each in enumerate(every) if place not in gone)


def _end_of(record: Record) -> tuple[float, str]:
    return record.end_s, record.id


def _making_way(records: Sequence[Record], count: int) -> set[int]:
    """The places of the `count` records that make way; `records` are in the order of their ends."""
    shares: dict[str, dict[str, deque[int]]] = {}
    for place, each in enumerate(records):
        of_host = shares.setdefault(each.hosts[0] if each.hosts else "", {})
        of_host.setdefault(each.user, deque()).append(place)
    sizes = {host: sum(map(len, users.values())) for host, users in shares.items()}
    gone = set()
    for _ in range(count):
        host = max(sizes, key=sizes.__getitem__)
        gone.add(max(shares[host].values(), key=len).popleft())
        sizes[host] -= 1
    return gone
