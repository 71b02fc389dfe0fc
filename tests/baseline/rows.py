# SPDX-License-Identifier: Apache-2.0
"""A hash of what `plan_host` plans, for each of many fabrics, strategies and jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b

from ri2n_sdn.fabric.model import Fabric, PairKey, PathKey
from ri2n_sdn.jobs.assign import assign
from ri2n_sdn.jobs.declaration import UNKNOWN_CLASS, Declaration
from ri2n_sdn.jobs.members import agree
from ri2n_sdn.jobs.model import Job, PathTable, Policy, Service
from ri2n_sdn.pipeline.job_plan import number_channels, plan_jobs
from ri2n_sdn.pipeline.jobs import NO_JOBS, HostJobs
from ri2n_sdn.pipeline.messages import Group, Wanted
from ri2n_sdn.pipeline.plan import plan_host, plan_probes_only
from ri2n_sdn.weights.counters import Count, PairCounters, PathCounters
from ri2n_sdn.weights.loop import LoopSettings, WeightLoop
from ri2n_sdn.weights.strategies import STRATEGIES
from tests.baseline.fabrics import (
    Draw,
    drawn_fabric,
    shipped,
    shipped_fabric,
    with_helpers,
)

__all__ = ["large_rows", "rows"]

SLOTS = 64
SEEDS = range(100)
WHOLE_HOSTS = 16
KEY = bytes(range(32))
STEPS, STEP_S = 4, 0.5
_SERVICES = (Service("10.0.0.9", "tcp", 2049), Service("fd77::9", "udp", 53))
Tables = Mapping[PairKey, tuple[PathKey, ...]]


def rows() -> str:
    """The cases of all small topologies, and those that are drawn."""
    lines: list[str] = []
    for name in shipped(small=True):
        lines += _of_topology(name, shipped_fabric(name))
    for seed in SEEDS:
        draw = Draw(f"case {seed}")
        fabric = drawn_fabric(draw)
        tables = slot_tables(fabric, draw.one(list(STRATEGIES)), f"tables {seed}")
        jobs = draw.one(list(some_jobs(fabric).values()))
        decided = decided_jobs(fabric, jobs, unknown=draw.chance(0.2))
        lines.append(_line(f"drawn {seed}", *decided, tables))
    return "".join(lines)


def large_rows() -> str:
    """The cases of all other topologies. The largest have every strategy and every job once."""
    lines: list[str] = []
    for name in shipped(small=False):
        fabric = shipped_fabric(name)
        lines += _of_topology(name, fabric, whole=len(fabric.hosts) <= WHOLE_HOSTS)
    return "".join(lines)


def _of_topology(name: str, plain: Fabric, *, whole: bool = True) -> Iterator[str]:
    """All strategies with all jobs; with helpers, each of the jobs with one of the strategies.

    Not `whole`, that is so without helpers, too.
    """
    strategies = list(STRATEGIES)
    for shift, fabric in enumerate((plain, with_helpers(plain))):
        tables = {strategy: slot_tables(fabric, strategy, name) for strategy in strategies}
        for turn, (jobs, declared) in enumerate(some_jobs(fabric).items()):
            decided = decided_jobs(fabric, declared)
            one = strategies[(turn + shift) % len(strategies)]
            for strategy in strategies if whole and not shift else (one,):
                title = f"{name}{' helpers' * shift} {strategy} {jobs}"
                yield _line(title, *decided, tables[strategy])


def some_jobs(fabric: Fabric) -> dict[str, list[Job]]:
    """The cases of jobs by name. Their hosts and networks are the first and last of the fabric."""
    names = sorted(fabric.hosts)
    first, second = tuple(names[:2]), tuple(names[2:4]) or tuple(names[:2])
    networks = list(fabric.networks) or ["none"]
    tables = (PathTable(None, (networks[0],)), PathTable(10, (networks[-1],)))

    def job(name: str, hosts: tuple[str, ...], policy: Policy, begin_s: float = 1.0) -> Job:
        return Job(name, f"user-of-{name}", 20001, hosts, policy, begin_s)

    exclusive = job("own", first, Policy("exclusive"))
    named = job("named", tuple(dict.fromkeys(first + second)), Policy("paths", tables), 2.0)
    isolated = job("alone", first, Policy("isolated", (), _SERVICES))
    rated = job("rated", second, Policy("shared", min_rate_bps=10**6), 3.0)
    return {
        "none": [],
        "exclusive": [exclusive],
        "paths": [named],
        "isolated": [isolated],
        "rated": [rated],
        "several": [exclusive, named, rated],
    }


def slot_tables(fabric: Fabric, strategy: str, seed: str) -> Tables:
    """The slot tables that a strategy makes of drawn traffic; not all pairs are active."""
    draw = Draw(f"{seed} {strategy}")
    loop = WeightLoop(LoopSettings(strategy=strategy, slots=SLOTS))
    names = sorted(fabric.hosts)
    pairs = [(a, b) for a in names for b in names if fabric.paths(a, b) and a != b]
    if len(pairs) > SLOTS:
        pairs = draw.some(pairs, SLOTS)
    paths = {pair: fabric.paths(*pair) for pair in pairs}
    step_bytes = {
        (pair, path.key): 0 if draw.chance(0.3) else draw.number(path.rate_bps // 16)
        for pair in pairs
        for path in paths[pair]
    }
    tables: dict[PairKey, tuple[PathKey, ...]] = {}
    for step in range(STEPS):
        counters = []
        for pair in pairs:
            read = [
                PathCounters(path.key, path.alive, path.links, n, n)
                for path in paths[pair]
                for read_bytes in (step * step_bytes[pair, path.key],)
                for n in (Count(read_bytes // 1000, read_bytes),)
            ]
            moved = tuple(draw.number(10**5) for _ in range(SLOTS))
            counters.append(PairCounters(*pair, tuple(read), tables.get(pair, ()), moved))
        decision = loop.step(100.0 + step * STEP_S, counters, fabric.capacities_bps())
        tables = {pair: made.slots for pair, made in decision.pairs.items() if made.slots}
    return tables


def _line(name: str, planned: Fabric, of_jobs: Mapping[str, HostJobs], tables: Tables) -> str:
    """One case: how many rows and groups all hosts have, and their hash."""
    said = blake2b(digest_size=12)
    n_rows = n_groups = 0
    for host in sorted(planned.hosts):
        own = {receiver: slots for (sender, receiver), slots in tables.items() if sender == host}
        wanted = plan_host(planned, host, own, SLOTS, of_jobs.get(host, NO_JOBS))
        n_rows, n_groups = n_rows + len(wanted.flows), n_groups + len(wanted.groups)
        for text in (host, *_written(wanted), *_written(plan_probes_only(planned.hosts[host]))):
            said.update(text.encode() + b"\n")
    return f"{name}: {n_rows} rows {n_groups} groups {said.hexdigest()}\n"


def decided_jobs(
    fabric: Fabric, jobs: list[Job], *, unknown: bool = False
) -> tuple[Fabric, dict[str, HostJobs]]:
    """The fabric with the lanes of jobs, and what each host's rows hold about them.

    With `unknown`, the class of each job is unknown on its first host.
    """
    declarations = [
        Declaration(host, UNKNOWN_CLASS if unknown and not place else 3 + number, job)
        for number, job in enumerate(jobs)
        for place, host in enumerate(job.hosts)
    ]
    agreement = agree(declarations, {})
    assignment = assign(fabric, list(agreement.jobs.values()))
    planned = replace(fabric, reserved=assignment) if assignment.lanes else fabric
    decided = (planned, agreement, assignment, KEY)
    of_jobs = plan_jobs(*decided, number_channels(*decided, {}))
    if jobs:
        last = jobs[-1].hosts[-1]
        notes = {1000: b"an order", 3: b'{"v": 1}'}
        of_jobs[last] = replace(of_jobs.get(last, NO_JOBS), notes=notes)
    return planned, of_jobs


def _written(wanted: Wanted) -> list[str]:
    """The rows and groups as text, in order. The cookie of a row is a hash of all that it holds."""
    flows = [
        f"{cookie:016x} {flow.cookie:016x} {flow.table} {flow.counts and tuple(flow.counts)}"
        for cookie, flow in wanted.flows.items()
    ]
    groups = [
        f"group {number} {group.group_id} {group.kind} {group.hash_algorithm} {_buckets(group)}"
        for number, group in wanted.groups.items()
    ]
    return sorted(flows) + sorted(groups)


def _buckets(group: Group) -> str:
    """The buckets as text; a slot table has the same few again and again."""
    different = {id(bucket): bucket for bucket in group.buckets}
    texts = {number: repr(bucket) for number, bucket in different.items()}
    return ", ".join(texts[id(bucket)] for bucket in group.buckets)
