# SPDX-License-Identifier: Apache-2.0
"""Which hosts are together in a job, by what they declare and what the controller ordered.

A host is believed only about itself. Two hosts are together only if each names the other, with the
same id, uid and policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ri2n_sdn.jobs.declaration import UNKNOWN_CLASS, Declaration
from ri2n_sdn.jobs.model import Job

__all__ = ["Agreement", "agree"]

_NAMED = 4
"""How many hosts a line names before it counts the others."""


@dataclass(frozen=True)
class Agreement:
    """The jobs that there are, and what keeps a host out of one.

    * `jobs`: by id, with the hosts that agree. Where hosts that do not agree declare one id, only
      one of the jobs has it; the id of another becomes `ID@HOST`, with its first host. No declared
      id has an `@`.
    * `classes`: for each job, the class that each of its hosts gave it. A host is left out while
      its class is unknown.
    * `refused`, `waiting`: by host and id, what keeps the host out of the job, or which hosts the
      job still waits for, in one line.
    """

    jobs: Mapping[str, Job] = field(default_factory=dict)
    classes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)
    waiting: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @cached_property
    def by_class(self) -> Mapping[tuple[str, int], str]:
        """The id of the job that has a class on a host, by (host, class)."""
        return {
            (host, number): name
            for name, numbers in self.classes.items()
            for host, number in numbers.items()
        }


def agree(
    declarations: Iterable[Declaration],
    ordered: Mapping[str, Job],
    before: Agreement | None = None,
) -> Agreement:
    """The jobs of all hosts' declarations. `ordered` are the controller's own, by id.

    A declaration of source "order" belongs to the order with its id; the order says what the
    policy is. `before` is the last agreement: a job keeps its id while it has some of its hosts.
    """
    refused: dict[tuple[str, str], str] = {}
    waiting: dict[tuple[str, str], str] = {}
    by_id: dict[str, list[Declaration]] = {}
    orders: dict[str, list[Declaration]] = {}
    for each in _once_per_host(declarations, refused):
        at = (each.host, each.job.id)
        order = ordered.get(each.job.id)
        if each.job.source == "order":
            fault = _fault_of_order(each, order)
            if fault is None:
                orders.setdefault(each.job.id, []).append(each)
            else:
                refused[at] = fault
        elif order is not None:
            refused[at] = f"job {each.job.id} is an order of the controller; choose another id"
        else:
            by_id.setdefault(each.job.id, []).append(each)

    jobs: dict[str, Job] = {}
    classes: dict[str, dict[str, int]] = {}

    def add(key: str, job: Job, declared: Sequence[Declaration], named: Iterable[str]) -> None:
        """A job of the hosts that declare it; it waits for the others that are named."""
        members = tuple(each.host for each in declared)
        jobs[key] = replace(job, id=key, hosts=members)
        known = (each for each in declared if each.number != UNKNOWN_CLASS)
        classes[key] = {each.host: each.number for each in known}
        name = declared[0].job.id
        line = _waits(name, set(named) - set(members))
        waiting.update({(host, name): line for host in members if line})

    for name, of_order in sorted(orders.items()):
        add(name, replace(ordered[name], source="order"), of_order, ordered[name].hosts)
    for name, declared in sorted(by_id.items()):
        groups = _groups(declared)
        first = _rightful(groups, before.jobs.get(name) if before is not None else None)
        for group in groups:
            key = name if group is first else f"{name}@{group[0].host}"
            add(key, _joined(group), group, {host for each in group for host in each.job.hosts})
    return Agreement(jobs, classes, refused, waiting)


def _once_per_host(
    declarations: Iterable[Declaration], refused: dict[tuple[str, str], str]
) -> list[Declaration]:
    """Each id and each class once per host, the lowest class and the first id, in order of hosts.

    A host that declares one of them twice lies or is broken, so the others are refused.
    """
    kept: list[Declaration] = []
    classes: dict[tuple[str, int], str] = {}
    ids: dict[tuple[str, str], int] = {}
    for each in sorted(declarations, key=lambda each: (each.host, each.number, each.job.id)):
        host, number, name = each.host, each.number, each.job.id
        if (host, number) in classes:
            refused[host, name] = (
                f"class {number} at {host} belongs to job {classes[host, number]} already"
            )
        elif (host, name) in ids:
            refused[host, name] = f"{host} declares job {name} with class {ids[host, name]} already"
            classes[host, number] = name
        else:
            if number != UNKNOWN_CLASS:
                classes[host, number] = name
            ids[host, name] = number
            kept.append(each)
    return kept


def _fault_of_order(declared: Declaration, order: Job | None) -> str | None:
    """Why a declaration does not carry out an order; None when it does."""
    name = declared.job.id
    if order is None:
        return f"the controller has no order {name}"
    if declared.host not in order.hosts:
        return f"order {name} is not for {declared.host}"
    if declared.job.uid != order.uid:
        return f"order {name} is for uid {order.uid} ({order.user}), not {declared.job.uid}"
    return None


@dataclass
class _Group:
    """Hosts that all name each other: their declarations, and the hosts that all of them name."""

    declared: list[Declaration]
    hosts: set[str]
    named: set[str]

    def admits(self, each: Declaration) -> bool:
        """Whether a host names all hosts of the group, all of them name it, and they agree."""
        first = self.declared[0].job
        return (
            each.host in self.named
            and each.job.uid == first.uid
            and each.job.policy == first.policy
            and self.hosts.issubset(each.job.hosts)
        )

    def add(self, each: Declaration) -> None:
        """Add a host that the group admits."""
        self.declared.append(each)
        self.hosts.add(each.host)
        self.named.intersection_update(each.job.hosts)


def _groups(declared: Sequence[Declaration]) -> list[list[Declaration]]:
    """Groups of hosts that all name each other, the largest group first.

    A host joins the first group in which it agrees with every host, in order of the hosts' names.
    """
    groups: list[_Group] = []
    for each in declared:
        group = next((group for group in groups if group.admits(each)), None)
        if group is None:
            groups.append(_Group([each], {each.host}, set(each.job.hosts)))
        else:
            group.add(each)
    found = [group.declared for group in groups]
    return sorted(found, key=lambda group: (-len(group), group[0].host))


def _joined(group: Sequence[Declaration]) -> Job:
    """The job of hosts that agree: from the first start to the last end that they know."""
    ends = [each.job.end_s for each in group]
    known = [end for end in ends if end is not None]
    return replace(
        group[0].job,
        begin_s=min(each.job.begin_s for each in group),
        end_s=max(known) if len(known) == len(ends) else None,
    )


def _rightful(groups: Sequence[list[Declaration]], before: Job | None) -> list[Declaration]:
    """The group whose job has the id as its key.

    It is the group with the most hosts of the job that had the key before, so that a host that
    begins to declare somebody else's id does not rename that job. Among equals it is the largest.
    """
    held = set(before.hosts) if before is not None and before.source == "host" else set()
    return max(groups, key=lambda group: sum(each.host in held for each in group))


def _waits(name: str, absent: Collection[str]) -> str:
    """The line about hosts that a job names and that do not take part; empty when there is none."""
    if not absent:
        return ""
    hosts = sorted(absent)
    more = len(hosts) - _NAMED
    listed = ", ".join(hosts[:_NAMED]) + (f" and {more} more hosts" if more > 0 else "")
    return f"waits for {listed} to declare job {name} with the same hosts, user and policy"
