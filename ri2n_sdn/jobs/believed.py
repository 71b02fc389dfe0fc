# SPDX-License-Identifier: Apache-2.0
"""What hosts run that a controller which has just started has not heard yet.

It goes by what the controller before it knew.

A host may take long for its first answer, and a controller that starts waits for nobody. If it
decided as if such a host ran nothing, its jobs would be smaller or gone, and other hosts would lose
rows that they need again as soon as the host answers. So until then, the host is taken to run what
it ran before, and only its own answer ends that.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from ri2n_sdn.jobs.declaration import UNKNOWN_CLASS, Declaration
from ri2n_sdn.jobs.model import Job
from ri2n_sdn.jobs.moves import Move, moved_job

__all__ = ["believed"]


def believed(
    remembered: Mapping[str, Job],
    unheard: Container[str],
    declared: Iterable[Declaration],
    orders: Container[str],
    moves: Mapping[str, Move],
) -> list[Declaration]:
    """What the hosts in `unheard` are taken to declare, besides what others have `declared`.

    `remembered` are the jobs that were agreed on, by their keys (jobs.members.Agreement). An order
    is among them only if all of its hosts carried it out. `orders` are the ids of the orders that
    there are now, `moves` the policies to which jobs were moved.

    A job that was moved is remembered with its new policy, but its hosts are together only if they
    declare the same one. So a host is taken to declare what the others in the job do, if the move
    makes the remembered policy of it.
    """
    said: dict[str, list[Declaration]] = {}
    for each in declared:
        said.setdefault(each.job.id, []).append(each)
    result: dict[tuple[str, str], Declaration] = {}
    for key, job in sorted(remembered.items()):
        name = key.partition("@")[0]
        silent = [host for host in job.hosts if host in unheard]
        if not silent or (job.source == "order" and key not in orders):
            continue
        policies = (
            each.job.policy
            for each in said.get(name, ())
            if each.host in job.hosts
            and moved_job(replace(job, id=key, policy=each.job.policy), moves).policy == job.policy
        )
        as_declared = replace(job, id=name, policy=next(policies, job.policy))
        for host in silent:
            result.setdefault((host, name), Declaration(host, UNKNOWN_CLASS, as_declared))
    return list(result.values())
