"""What the controller knows of jobs now: declarations, who is together, paths, and problems."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ri2n_sdn.apps.job_book import JobBook
from ri2n_sdn.fabric.problem import Problem
from ri2n_sdn.jobs.assign import Assignment
from ri2n_sdn.jobs.declaration import Declaration
from ri2n_sdn.jobs.members import Agreement
from ri2n_sdn.jobs.model import Policy
from ri2n_sdn.jobs.nudges import Nudges
from ri2n_sdn.pipeline.job_plan import Channels
from ri2n_sdn.pipeline.jobs import NO_JOBS, HostJobs

__all__ = ["JobState"]

_MAX_SHOWN = 20


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
        hasty = self.nudges.too_often(now_s)
        for host in hasty[:_MAX_SHOWN]:
            yield Problem(
                "warning",
                f"{host}: it says too often that its jobs have changed, so it is answered later",
                "find out there what begins and ends jobs, or sends these messages",
            )
        if len(hasty) > _MAX_SHOWN:
            yield Problem("warning", f"{len(hasty) - _MAX_SHOWN} more hosts do, too")
        lines = _in_turn(
            [
                *((host, fault) for host, faults in self.faults.items() for fault in faults),
                *(
                    (host, f"job {name}: {why}")
                    for (host, name), why in self.agreement.refused.items()
                ),
                *(
                    (host, f"cannot carry out the order of job {key}: {why}")
                    for key in sorted({key for failed in self.failed.values() for key in failed})
                    for host, why in self.failures(key).items()
                ),
            ]
        )
        lines += [
            f"refused: {why}"
            for key, why in sorted(self.assignment.refused.items())
            if key in self.agreement.jobs
        ]
        for key in sorted(self.wrong_lanes.keys() & self.assignment.jobs.keys())[:_MAX_SHOWN]:
            yield Problem(
                "warning", self.wrong_lanes[key], "its lanes were chosen anew; see `ri2n job show`"
            )
        for line in lines[:_MAX_SHOWN]:
            yield Problem("warning", line, "see `ri2n job ls`; its packets go as everybody's")
        if len(lines) > _MAX_SHOWN:
            yield Problem(
                "warning", f"{len(lines) - _MAX_SHOWN} more problems of jobs", "see the log"
            )


def _in_turn(lines: Iterable[tuple[str, str]]) -> list[str]:
    """`HOST: TEXT` of each line, in order; first one of each host, then the second ones.

    So a host that declares much nonsense does not hide what is wrong at others.
    """
    seen: Counter[str] = Counter()
    order = []
    for host, text in sorted(lines):
        order.append((seen[host], host, text))
        seen[host] += 1
    return [f"{host}: {text}" for _, host, text in sorted(order)]
