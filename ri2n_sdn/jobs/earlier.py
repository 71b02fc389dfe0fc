# SPDX-License-Identifier: Apache-2.0
"""What jobs had to themselves under an earlier controller: as texts for the store, and back.

The store may be old, or may have been changed by hand. So what it says is checked against the
fabric and the jobs that there are, and what is wrong is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ri2n_sdn.contract.printing import shown
from ri2n_sdn.jobs.assign import Assignment
from ri2n_sdn.jobs.held import Held
from ri2n_sdn.jobs.lanes import Lane, LaneMap, first_few
from ri2n_sdn.jobs.model import RESERVED, Job
from ri2n_sdn.jobs.needs import need_of

__all__ = ["Earlier", "lanes_to_keep", "taken_over"]

_MAX_NAME = 64


@dataclass(frozen=True)
class Earlier:
    """What an earlier controller had decided.

    * `jobs`: the jobs that it had accepted, by id; `@ID` is a reservation.
    * `lanes`: what each of them had to itself, as texts, where it had anything.
    """

    jobs: Mapping[str, Job] = field(default_factory=dict)
    lanes: Mapping[str, Collection[str]] = field(default_factory=dict)


def lanes_to_keep(assignment: Assignment) -> dict[str, frozenset[str]]:
    """The lanes of each job that has some, as texts, and of each reservation that was accepted."""
    return {
        name: frozenset(
            f"{lane.network}/{lane.vlan}" for lane in assignment.lanes.get(name, frozenset())
        )
        for name in assignment.jobs
        if name in assignment.lanes
        or (name.startswith(RESERVED) and name not in assignment.refused)
    }


def taken_over(
    earlier: Earlier, lane_map: LaneMap, jobs: Iterable[Job]
) -> tuple[Assignment, dict[str, str]]:
    """The assignment from which the first decision on `jobs` goes on, and what was refused of it.

    A job that was accepted before comes first again, with the lanes that it had. A lane is refused
    when no such lane is between the job's hosts, when its policy does not name it, or when an
    earlier job has it at one of its hosts: there is one line for each such job, by its id. A job of
    which fewer than two hosts are in the fabric is not judged.
    """
    now = {job.id: job for job in jobs}
    alone = Held(lane_map, now)
    owners: dict[tuple[str, Lane], Job] = {}
    lanes: dict[str, frozenset[Lane]] = {}
    wrong: dict[str, str] = {}
    for old in sorted(earlier.jobs.values(), key=lambda job: (job.begin_s, job.id)):
        job = now.get(old.id)
        if job is None or old.id not in earlier.lanes:
            continue
        found, odd = _read(earlier.lanes[old.id])
        lost = [f"{first_few(odd)} is no lane"] if odd else []
        if job.policy == old.policy and len(alone.hosts(job)) > 1:
            may = need_of(alone, job, frozenset(), (), living=False).candidates
            if found - may:
                lost.append(f"{lane_map.texts(found - may)} is no lane that it may have")
            found &= may
        for lane in sorted(found):
            host = next((host for host in job.hosts if (host, lane) in owners), None)
            if host is not None:
                title = owners[host, lane].title
                lost.append(f"{lane_map.text(lane)} at {host} belongs to {title}")
                found -= {lane}
        owners.update({(host, lane): job for host in job.hosts for lane in found})
        lanes[job.id] = found
        if lost:
            wrong[job.id] = f"{job.title}: the store gives it a wrong lane: {'; '.join(lost)}"
    return Assignment(lane_map.fabric, dict(earlier.jobs), {}, lanes), wrong


def _read(texts: Iterable[str]) -> tuple[frozenset[Lane], list[str]]:
    """The lanes that texts of the store name, and the texts that name none."""
    lanes, odd = set(), []
    for text in sorted(texts):
        network, _, vlan = text.rpartition("/")
        named = 0 < len(network) <= _MAX_NAME and network.isprintable()
        if named and vlan.isascii() and vlan.isdecimal() and len(vlan) <= 4:
            lanes.add(Lane(network, int(vlan)))
        else:
            odd.append(shown(text))
    return frozenset(lanes), odd
