# SPDX-License-Identifier: Apache-2.0
"""Which reservation a job uses, and what jobs there are for an assignment at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ri2n_sdn.contract.choices import KINDS
from ri2n_sdn.jobs.model import Job, Policy, Reservation

__all__ = ["at", "needed", "reservation_of", "soon"]


def at(jobs: Iterable[Job], reservations: Sequence[Reservation], now_s: float) -> tuple[Job, ...]:
    """The jobs to assign at a moment (jobs.assign). `reservations` are all that `needed` keeps.

    A reservation whose time it is has a job of its own (Reservation.as_job), which has the lanes
    from the start to the end, whether or not one of the user's jobs runs. The user's jobs are
    `within` that job, and use its lanes. When the reservation ends, its lanes are free, and its
    jobs use the common paths.
    """
    holders = [each.as_job() for each in reservations if each.begin_s <= now_s < each.end_s]
    return (
        *sorted(holders, key=lambda each: each.id),
        *(_now(job, reservations, now_s) for job in jobs),
    )


def reservation_of(job: Job, reservations: Iterable[Reservation]) -> Reservation | None:
    """The reservation that a job uses at some time: the first by (begin_s, id); None without one.

    It is of the same user, has all hosts of the job, gives all that the job asks for, and its time
    is not over when the job begins. A job that asks for more than the common paths must begin in
    the reservation's time. Before that time it would need what it asks for without a reservation,
    so it must be admitted by itself, and so must a job that asks for more than there is.
    """
    return min(
        (each for each in reservations if _covers(each, job)),
        key=lambda each: (each.begin_s, each.id),
        default=None,
    )


def needed(
    reservations: Iterable[Reservation], jobs: Sequence[Job], now_s: float
) -> tuple[Reservation, ...]:
    """The reservations to keep: those whose time is not over, and those that running jobs used.

    A job whose reservation has ended is known by that reservation alone.
    """
    return tuple(
        each for each in reservations if each.end_s > now_s or any(_covers(each, j) for j in jobs)
    )


def soon(reservations: Iterable[Reservation], now_s: float) -> tuple[Job, ...]:
    """The jobs of reservations to come, for `assign`, in order of their start."""
    coming = [each for each in reservations if each.begin_s > now_s]
    return tuple(each.as_job() for each in sorted(coming, key=lambda each: (each.begin_s, each.id)))


def _now(job: Job, reservations: Sequence[Reservation], now_s: float) -> Job:
    """A job as it is at a moment: in a reservation, after one, or by itself."""
    begun = [each for each in reservations if each.begin_s <= now_s]
    active = reservation_of(job, (each for each in begun if now_s < each.end_s))
    if active is not None:
        return replace(job, within=active.as_job().id)
    if job.policy.asks_for_more and reservation_of(job, begun) is not None:
        common = Policy(max_rate_bps=job.policy.max_rate_bps)
        return replace(job, policy=common, within=None)
    return job if job.within is None else replace(job, within=None)


def _covers(reservation: Reservation, job: Job) -> bool:
    given, asked = reservation.whole_policy.canonical(), job.policy.canonical()
    in_time = job.begin_s < reservation.end_s and (
        not job.policy.asks_for_more or reservation.begin_s <= job.begin_s
    )
    return (
        in_time
        and job.user == reservation.user
        and set(job.hosts) <= set(reservation.hosts)
        and KINDS.index(asked.kind) <= KINDS.index(given.kind)
        and (asked.min_rate_bps or 0) <= (given.min_rate_bps or 0)
        and (not asked.tables or asked.tables == given.tables)
        and set(asked.services) <= set(given.services)
    )
