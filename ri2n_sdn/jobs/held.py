# SPDX-License-Identifier: Apache-2.0
"""What jobs have been given so far, and who is in whose way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ri2n_sdn.contract.units import time_text
from ri2n_sdn.fabric.model import NicId, Path
from ri2n_sdn.jobs.lanes import Lane, LaneMap, chosen, concerns, order_of
from ri2n_sdn.jobs.model import Job

__all__ = ["Held", "Pair", "Refusal", "real"]

Pair = tuple[str, str]
"""(Sender, receiver)."""


class Refusal(Exception):
    """A job cannot have what it asks for. The text says what is in the way."""


class Held:
    """What the jobs that have been placed have, and what those hold that stood before.

    * `jobs`: all jobs by id.
    * `placed`: the accepted ones; `refused`: why the others are not.
    * `waiting`: jobs that were accepted before, and that are not placed yet.
    * `owners`: the isolated job of each of its hosts.
    * `promised`: how much of each NIC's rate is promised to jobs with a min_rate, in bit/s.
    """

    def __init__(self, lanes: LaneMap, jobs: Mapping[str, Job]) -> None:
        self.map = lanes
        self.fabric = lanes.fabric
        self.jobs = jobs
        self.refused: dict[str, str] = {}
        self.placed: dict[str, Job] = {}
        self.waiting: dict[str, Job] = {}
        self.owners: dict[str, str] = {}
        self.promised: dict[NicId, int] = {}
        self.links: dict[str, set[str]] = {}
        """The jobs whose lanes cross each link between switches."""
        self._taken: dict[str, dict[Lane, str]] = {}
        self._guards: dict[str, dict[Lane, tuple[str, str]]] = {}

    # ---- Jobs, their hosts and tables

    def rides(self, job: Job) -> bool:
        """Whether a job uses the paths of its reservation, and so needs none of its own."""
        return job.within in self.jobs and job.within not in self.refused

    def standing(self) -> list[Job]:
        """The jobs that are placed, and those that were accepted before."""
        return [*self.placed.values(), *self.waiting.values()]

    def hosts(self, job: Job) -> list[str]:
        """The hosts of a job that are in the fabric, in order."""
        return sorted(host for host in job.hosts if host in self.fabric.hosts)

    def pairs(self, job: Job) -> Iterator[Pair]:
        """The pairs of a job's hosts, in both directions."""
        hosts = self.hosts(job)
        return ((a, b) for a in hosts for b in hosts if a != b)

    def until(self, name: str) -> str:
        """A job as messages call it, and its end."""
        job = self.jobs[name]
        return f"{job.title} until {time_text(job.end_s)}"

    def tables(self, job: Job) -> list[tuple[str, ...]]:
        """The names of each of a job's tables, the default table's first."""
        tables = [table.paths for table in job.policy.tables if table.dscp is not None]
        return [job.policy.names(None), *tables]

    def named(self, pair: Pair, names: Sequence[str]) -> frozenset[Lane]:
        """The lanes between two hosts that the names match; none when they say nothing of them."""
        if not any(concerns(name, pair) for name in names):
            return frozenset()
        return real(self.map.of_all(chosen(self.fabric.paths(*pair), names)))

    # ---- Lanes

    def taken(self, host: str, name: str = "") -> set[Lane]:
        """The lanes that jobs have at a host, but for the job `name`."""
        return {lane for lane, holder in self._taken.get(host, {}).items() if holder != name}

    def free(self, job: Job, lanes: frozenset[Lane]) -> frozenset[Lane]:
        """Those of some lanes that nobody has at the job's hosts."""
        return lanes - {lane for host in job.hosts for lane in self._taken.get(host, {})}

    def allowed(self, job: Job, pair: Pair, paths: Sequence[Path]) -> list[Path]:
        """Those of a pair's paths that no other job has."""
        taken = self.taken(pair[0], job.id) | self.taken(pair[1], job.id)
        return [path for path in paths if self.map.of(path) not in taken]

    def take(self, job: Job, lanes: frozenset[Lane], promised: Mapping[NicId, int]) -> None:
        """Give a job lanes at its hosts, and promise it some of the NICs' rates."""
        for host in job.hosts if lanes else ():
            self._taken.setdefault(host, {}).update(dict.fromkeys(lanes, job.id))
        for nic, rate_bps in promised.items():
            self.promised[nic] = self.promised.get(nic, 0) + rate_bps
        if any(self.map.is_vlan(lane) for lane in lanes):
            self._guards.clear()
            for path in self.between(job):
                for link in path.route.links if self.map.of(path) in lanes else ():
                    self.links.setdefault(link, set()).add(job.id)

    def give_back(self, job: Job) -> frozenset[Lane]:
        """Free the lanes of a job; they are returned."""
        kept: set[Lane] = set()
        for host in job.hosts:
            mine = [lane for lane, name in self._taken.get(host, {}).items() if name == job.id]
            for lane in mine:
                del self._taken[host][lane]
            kept.update(mine)
        if any(self.map.is_vlan(lane) for lane in kept):
            self._guards.clear()
            left = {link: names - {job.id} for link, names in self.links.items()}
            self.links = {link: names for link, names in left.items() if names}
        return frozenset(kept)

    def guarded(self, job: Job) -> dict[Lane, tuple[str, str]]:
        """The lanes that a job cannot have because of a link: (the link, whose it is) by lane.

        In flow mode a rate is kept only on links that nobody else uses. So lanes of two jobs, one
        of which has a min_rate, must not cross the same link between switches.
        """
        if job.id in self._guards:
            return self._guards[job.id]
        result: dict[Lane, tuple[str, str]] = {}
        for path in self.between(job) if self.links else ():
            lane = self.map.of(path)
            for link in path.route.links if lane is not None else ():
                for name in sorted(self.links.get(link, ())):
                    rates = {each.policy.min_rate_bps for each in (job, self.jobs[name])}
                    if lane is not None and rates != {None}:
                        result.setdefault(lane, (link, name))
        self._guards[job.id] = result
        return result

    def in_the_way(
        self, job: Job, lanes: frozenset[Lane], hosts: Sequence[str] | None = None
    ) -> str | None:
        """Who has one of the lanes at one of the hosts, the job's without; None when nobody has."""
        for lane in sorted(lanes, key=order_of):
            for host in self.hosts(job) if hosts is None else hosts:
                name = self._taken.get(host, {}).get(lane)
                if name is not None:
                    return f"{self.map.text(lane)} at {host} belongs to {self.until(name)}"
        guarded = self.guarded(job)
        for lane in sorted(lanes & guarded.keys(), key=order_of):
            link, name = guarded[lane]
            return f"{self.map.text(lane)} crosses {link}, which {self.until(name)} also needs"
        return None

    def shared_links(self, job: Job, lanes: frozenset[Lane]) -> dict[Lane, dict[str, set[str]]]:
        """The links between switches that lanes share with other jobs: by lane, and by job."""
        result: dict[Lane, dict[str, set[str]]] = {}
        for path in self.between(job) if self.links else ():
            lane = self.map.of(path)
            if lane is not None and lane in lanes:
                for link in path.route.links:
                    for name in self.links.get(link, ()):
                        result.setdefault(lane, {}).setdefault(name, set()).add(link)
        return result

    def between(self, job: Job) -> Iterator[Path]:
        """The paths between a job's hosts, in both directions."""
        return (path for pair in self.pairs(job) for path in self.fabric.paths(*pair))


def real(lanes: frozenset[Lane | None]) -> frozenset[Lane]:
    """The lanes without None, which stands for paths in no lane."""
    return frozenset(lane for lane in lanes if lane is not None)
