# SPDX-License-Identifier: Apache-2.0
"""Other policies for jobs that hosts have declared.

Hosts declare a job with one policy, and are together in it only if that agrees. Root or the user
may move the job to another policy while it runs. The move changes nothing of who is in the job: it
replaces the policy after the hosts have agreed. It belongs to that one run of the job, so it counts
for no later job with the same id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ri2n_sdn.jobs.members import Agreement
from ri2n_sdn.jobs.model import Job, Policy

__all__ = ["Move", "move_of", "moved", "moved_job"]


@dataclass(frozen=True, slots=True)
class Move:
    """Another policy for the declared job with this key and uid.

    `by` is who has moved it. `moved_s` is when, in seconds since 1970, and not before the job's
    start. The policy's `max_rate_bps` means nothing: hosts hold a job to the one that they declare.
    """

    id: str
    uid: int
    policy: Policy
    by: str
    moved_s: float


def move_of(job: Job, moves: Mapping[str, Move]) -> Move | None:
    """The move that counts for a job; None when there is none.

    A job of another user, one that began after the move, and an order are other jobs, whatever
    their ids are.
    """
    move = moves.get(job.id)
    if move is None or job.source != "host" or job.uid != move.uid or job.begin_s > move.moved_s:
        return None
    return move


def moved_job(job: Job, moves: Mapping[str, Move]) -> Job:
    """The job with the policy to which it was moved; the same job when it was not."""
    move = move_of(job, moves)
    if move is None:
        return job
    return replace(job, policy=replace(move.policy, max_rate_bps=job.policy.max_rate_bps))


def moved(agreement: Agreement, moves: Mapping[str, Move]) -> Agreement:
    """The agreement of hosts with the policies to which jobs were moved."""
    jobs = {key: moved_job(job, moves) for key, job in agreement.jobs.items()}
    same = all(jobs[key] is job for key, job in agreement.jobs.items())
    return agreement if same else replace(agreement, jobs=jobs)
