"""Jobs that have ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ri2n_sdn.jobs.model import Job, Policy

__all__ = ["MAX_RECORDS", "MAX_WHY", "Record", "ended", "kept", "matching"]

MAX_RECORDS = 10_000
"""The number of records that are kept. The oldest go first."""

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
    """The record of a job that ends now; not before it began, whatever the hosts' clocks say."""
    line = " ".join("".join(c if c.isprintable() else " " for c in why).split())
    return Record(
        job.id,
        job.user,
        job.uid,
        job.hosts,
        job.policy,
        job.begin_s,
        max(now_s, job.begin_s),
        line if len(line) <= MAX_WHY else f"{line[: MAX_WHY - 3]}...",
    )


def kept(
    records: Sequence[Record], new: Iterable[Record], most: int = MAX_RECORDS
) -> tuple[Record, ...]:
    """The records with new ones, in order of their ends; the newest `most` of them."""
    return tuple(sorted((*records, *new), key=lambda each: (each.end_s, each.id))[-most:])


def matching(
    records: Iterable[Record],
    *,
    id: str | None = None,
    user: str | None = None,
    host: str | None = None,
    since_s: float | None = None,
) -> list[Record]:
    """The records of an id, a user, a host, and that ended at or after `since_s`; None is any."""
    return [
        each
        for each in records
        if id in (None, each.id)
        and user in (None, each.user)
        and (host is None or host in each.hosts)
        and (since_s is None or each.end_s >= since_s)
    ]
