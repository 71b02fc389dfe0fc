# SPDX-License-Identifier: Apache-2.0
"""What the controller knows of jobs now: declarations, who is together, paths, and problems."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ri2n_sdn.apps.job_book import JobBook
from ri2n_sdn.contract.problems import MAX_SHOWN, Problem, at_most
from ri2n_sdn.jobs.assign import Assignment
from ri2n_sdn.jobs.declaration import Declaration
from ri2n_sdn.jobs.members import Agreement
from ri2n_sdn.jobs.model import Job, Policy
from ri2n_sdn.jobs.nudges import Nudges
from ri2n_sdn.pipeline.job_plan import Channels
from ri2n_sdn.pipeline.jobs import NO_JOBS, HostJobs

__all__ = ["JobState"]


@dataclass
class JobState:
    """Everything about jobs, read and written under the cluster's lock; `book` has its own.

    * `declared`: what each host's bridge says, as last read. `faults`: what is wrong there.
    * `agreement`, `assignment`: the jobs and their paths. `of_host`: what follows for the rows,
      `channels`: for the helpers. `decided`: whether that was decided since this controller is in
      charge, also for hosts that have not been read yet.
    * `states`: of each job, "installed", "waiting" or "refused", and why.
    * `failed`: by host, the orders that it cannot carry out, and why in its own words.
    * `wrong_lanes`: of jobs whose lanes in the store were refused, why.
    * `nudges`: hosts that said that their jobs have changed, and when each is read again.
    * `lagging`: hosts for which a new job waits, since what passes beside their bridges does not
      obey its rows yet.
    * `key`: the secret from which those of isolated jobs are made.
    """

    book: JobBook = field(default_factory=JobBook)
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    declared: dict[str, tuple[Declaration, ...]] = field(default_factory=dict)
    faults: dict[str, tuple[str, ...]] = field(default_factory=dict)
    agreement: Agreement = field(default_factory=Agreement)
    assignment: Assignment = field(default_factory=Assignment)
    of_host: Mapping[str, HostJobs] = field(default_factory=dict)
    channels: Channels = field(default_factory=dict)
    decided: bool = False
    states: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    failed: dict[str, Mapping[str, str]] = field(default_factory=dict)
    wrong_lanes: Mapping[str, str] = field(default_factory=dict)
    nudges: Nudges = field(default_factory=Nudges)
    lagging: frozenset[str] = frozenset()

    def rules(self, host: str) -> HostJobs:
        """What a host's rows must hold about jobs."""
        return self.of_host.get(host, NO_JOBS)

    def declared_policy(self, key: str) -> Policy | None:
        """The policy of a job as its hosts declare it; None when none of them does."""
        numbers = self.agreement.classes.get(key, {})
        for host, number in numbers.items():
            for each in self.declared.get(host, ()):
                if each.number == number and each.job.id == key.partition("@")[0]:
                    return each.job.policy
        return None

    def named(self, job: Job) -> set[str]:
        """The hosts that a job names and that have not declared it."""
        named = {
            name
            for host in job.hosts
            for declared in self.declared.get(host, ())
            if declared.job.id == job.id
            for name in declared.job.hosts
        }
        return named - set(job.hosts)

    def failures(self, key: str) -> dict[str, str]:
        """Why hosts cannot carry out an order, by host. What they say of other jobs is nothing."""
        order = self.book.orders.get(key)
        said = {host: self.failed.get(host, {}).get(key) for host in order.hosts} if order else {}
        return {host: why for host, why in said.items() if why is not None}

    def state_of(self, key: str) -> tuple[str, str]:
        """(state, why) of a job, for people.

        The words of a host end the line, so that no host can speak for another one.
        """
        what, why = self.states.get(key, ("waiting", "no host has begun it yet"))
        failures = self.failures(key)
        if not failures or what == "refused":
            return what, why
        host = min(failures)
        begun = host in self.agreement.classes.get(key, ())
        line = f"{host} cannot {'change' if begun else 'begin'} it: {failures[host]}"
        if len(failures) > 1:
            return what, f"{len(failures)} hosts cannot carry out the order; {line}"
        return what, line

    def problems(self, now_s: float) -> Iterator[Problem]:
        """What is wrong with jobs, and whose fault it is. `now_s` is on the monotonic clock."""
        yield from at_most(
            self.nudges.too_often(now_s),
            lambda host: Problem("jobs_change_too_often", {"host": host}),
            "more_jobs_change_too_often",
        )
        for key in sorted(self.wrong_lanes.keys() & self.assignment.jobs.keys())[:MAX_SHOWN]:
            yield Problem("job_lanes_wrong", {"job": key}, {"why": self.wrong_lanes[key]})
        found = _in_turn(self._of_hosts())
        found += [
            Problem("job_refused", {"job": key}, {"why": why})
            for key, why in sorted(self.assignment.refused.items())
            if key in self.agreement.jobs
        ]
        yield from at_most(found, lambda problem: problem, "more_problems_of_jobs")

    def _of_hosts(self) -> Iterator[Problem]:
        """What is wrong with jobs at single hosts, those that cannot be read first."""
        for host, faults in self.faults.items():
            for number, why in enumerate(faults, 1):
                yield Problem("job_undeclared", {"host": host}, {"number": number, "why": why})
        for key in sorted({key for failed in self.failed.values() for key in failed}):
            for host, why in self.failures(key).items():
                yield Problem("job_order_not_done", {"host": host, "job": key}, {"why": why})
        for (host, name), why in sorted(self.agreement.refused.items()):
            yield Problem("job_refused_at_host", {"host": host, "job": name}, {"why": why})


def _in_turn(problems: Iterable[Problem]) -> list[Problem]:
    """In the order of hosts: first one of each host, then the second ones.

    So a host that declares much nonsense does not hide what is wrong at others.
    """
    seen: Counter[str] = Counter()
    order = []
    for place, problem in enumerate(problems):
        host = problem.subject["host"]
        order.append((seen[host], host, place, problem))
        seen[host] += 1
    return [problem for *_, problem in sorted(order, key=lambda each: each[:3])]
