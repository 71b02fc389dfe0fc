# SPDX-License-Identifier: Apache-2.0
"""Which lanes each job has to itself, which jobs are refused, and what all others may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ri2n_sdn.fabric.model import Fabric, Path
from ri2n_sdn.jobs.held import Held
from ri2n_sdn.jobs.lanes import Lane, LaneMap, chosen
from ri2n_sdn.jobs.model import Job
from ri2n_sdn.jobs.placing import Placing

__all__ = ["Assignment", "assign"]


@dataclass(frozen=True)
class Assignment:
    """What every job may use, in a fabric at one moment.

    * `jobs`: all jobs by id, refused ones too.
    * `refused`: for each refused job one line that names what is in the way. A refused job uses
      the common paths.
    * `lanes`: the lanes of each job that has lanes of its own (exclusive, or with a min_rate). They
      are the job's at the NICs of its hosts.
    * `notes`: for jobs whose lanes are not as separate as they could be, why.
    * `owners`: the isolated job that each of its hosts belongs to, by host.
    """

    fabric: Fabric = field(default_factory=Fabric)
    jobs: Mapping[str, Job] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    lanes: Mapping[str, frozenset[Lane]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)

    def paths(self, job_id: str, dscp: int | None, paths: Sequence[Path]) -> tuple[Path, ...]:
        """Those of one pair's paths that a job's packets with a DSCP may use, dead ones too.

        It is never empty when `paths` is not, and it has a live path when `paths` has one. A job
        that is unknown or refused has the common paths. So has a job whose own paths are all dead.
        """
        return self._decided(job_id, dscp, paths)[0]

    def why(self, job_id: str, dscp: int | None, paths: Sequence[Path]) -> str | None:
        """Why a job's packets use the common paths though it asked for others; None if they do not.

        It is one line.
        """
        return self._decided(job_id, dscp, paths)[1]

    def common(self, sender: str, receiver: str, paths: Sequence[Path]) -> tuple[Path, ...]:
        """Those of one pair's paths that everybody else may use, dead ones too.

        These are the paths outside of the lanes that jobs have at the two hosts. In a fat tree, as
        long as that leaves a live path, they also cross none of the links between switches that
        jobs' lanes cross. When faults left no live path but those in jobs' lanes, everybody may use
        these: a job's share is no reason to cut others off. So the result has a live path when
        `paths` has one, and it is never empty when `paths` is not.
        """
        taken = self._taken_by(sender, receiver)
        allowed = tuple(path for path in paths if self.lane_map.of(path) not in taken)
        apart = tuple(path for path in allowed if self._links.isdisjoint(path.route.links))
        whole = tuple(paths)
        return _first_alive((apart, allowed, whole)) or allowed or whole

    def holder(self, job_id: str) -> str:
        """The job whose paths a job uses: its reservation's, or its own."""
        job = self.jobs.get(job_id)
        if job is None or job.within is None or job.within not in self.jobs:
            return job_id
        return job_id if job.within in self.refused else job.within

    @cached_property
    def lane_map(self) -> LaneMap:
        """The lanes of the fabric's paths."""
        return LaneMap(self.fabric)

    @cached_property
    def taken(self) -> Mapping[str, Mapping[Lane, str]]:
        """The job that has each lane at a host, by host."""
        result: dict[str, dict[Lane, str]] = {}
        for name, lanes in self.lanes.items():
            for host in self.jobs[name].hosts:
                result.setdefault(host, {}).update(dict.fromkeys(lanes, name))
        return result

    def _taken_by(self, sender: str, receiver: str) -> Mapping[Lane, str]:
        """The job that has each lane at one of two hosts."""
        return {**self.taken.get(sender, {}), **self.taken.get(receiver, {})}

    @cached_property
    def _links(self) -> frozenset[str]:
        """The links between switches that jobs' lanes cross between their hosts."""
        if self.fabric.routing is None:
            return frozenset()
        held = Held(self.lane_map, self.jobs)
        return frozenset(
            link
            for name, lanes in self.lanes.items()
            if lanes
            for path in held.between(self.jobs[name])
            if self.lane_map.of(path) in lanes
            for link in path.route.links
        )

    def _decided(
        self, job_id: str, dscp: int | None, paths: Sequence[Path]
    ) -> tuple[tuple[Path, ...], str | None]:
        """The paths, and why they are common ones though the job asked for others."""
        if not paths:
            return (), None
        sender, receiver = paths[0].own.host, paths[0].peer.host
        common = self.common(sender, receiver, paths)
        holder = self.jobs.get(self.holder(job_id))
        if holder is None or holder.id in self.refused:
            return common, self.refused.get(job_id)
        names, kind = holder.policy.names(dscp), holder.policy.kind
        together = sender in holder.hosts and receiver in holder.hosts
        if together and holder.id in self.lanes and kind != "isolated":
            lanes = self.lanes[holder.id]
            own = tuple(path for path in paths if self.lane_map.of(path) in lanes)
            choices = [chosen(own, names), own]
        else:
            taken = self._taken_by(sender, receiver)
            own = tuple(
                path
                for path in paths
                if taken.get(self.lane_map.of(path) or Lane("", -1), holder.id) == holder.id
            )
            if together and kind == "isolated":
                choices = [chosen(own, names), own]
            elif names and kind != "exclusive":
                own = chosen(own, names)
                choices = [own]
            else:
                return common, None
        living = _first_alive(choices)
        if living is not None:
            return living, None
        choice = _first_alive([common]) or next(filter(None, choices), common)
        return choice, self._loss(holder, paths, own)

    def _loss(self, job: Job, paths: Sequence[Path], own: Sequence[Path]) -> str:
        sender, receiver = paths[0].own.host, paths[0].peer.host
        if not own:
            return f"{sender} and {receiver} have no path of {job.title} in common"
        lanes = [lane for lane in self.lane_map.of_all(own) if lane is not None]
        named = self.lane_map.texts(lanes)
        return (
            f"{job.title} has no live path of its own from {sender} to {receiver}"
            f"{f' ({named})' if named else ''}: it uses the common paths"
        )


def assign(
    fabric: Fabric,
    jobs: Sequence[Job],
    before: Assignment | None = None,
    soon: Sequence[Job] = (),
    *,
    lane_map: LaneMap | None = None,
) -> Assignment:
    """Give each job its lanes, or the reason why it is refused.

    The result depends on the arguments alone, not on their order. Jobs that `before` had accepted
    come first, then earlier ones (begin_s, id). So a job that comes changes nothing for those that
    are there, and lanes move only when faults, a new policy or new hosts make it necessary. When
    lanes must be chosen, those that jobs of `soon` (reservations to come) name are taken last.

    `lane_map` may be one that was made of the same fabric before.

    Hosts of a job that are not in the fabric take no part. Raises ValueError when two jobs have one
    id.
    """
    if len({job.id for job in jobs}) < len(jobs):
        raise ValueError("two jobs have one id")
    by_id = {job.id: job for job in sorted(jobs, key=lambda job: job.id)}
    held = Assignment() if before is None else before

    def rank(job: Job) -> tuple[int, float, str]:
        old = held.jobs.get(job.id)
        if old is None or job.id in held.refused:
            return (2, job.begin_s, job.id)
        same = old.policy == job.policy and set(job.hosts) <= set(old.hosts)
        return (0 if same else 1, job.begin_s, job.id)

    # A job that uses its reservation's paths needs none of its own, if the reservation has them.
    order = sorted(by_id.values(), key=lambda job: (job.within in by_id, rank(job)))
    standing = [job for job in order if rank(job)[0] < 2]
    if lane_map is None or lane_map.fabric is not fabric:
        lane_map = held.lane_map if held.fabric is fabric else LaneMap(fabric)
    placing = Placing(lane_map, by_id, standing, held.lanes, soon)
    for job in order:
        placing.place(job, stands=rank(job)[0] < 2, same=rank(job)[0] == 0)
    result = Assignment(
        fabric,
        by_id,
        dict(sorted(placing.held.refused.items())),
        dict(sorted(placing.lanes.items())),
        dict(sorted(placing.notes.items())),
        dict(sorted(placing.held.owners.items())),
    )
    result.__dict__["lane_map"] = lane_map  # so that what it knows is not asked for again
    return result


def _first_alive(choices: Iterable[tuple[Path, ...]]) -> tuple[Path, ...] | None:
    """The first of these choices of paths with a live path; None when there is none."""
    return next((some for some in choices if any(path.alive for path in some)), None)
