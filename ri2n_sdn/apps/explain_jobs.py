# SPDX-License-Identifier: Apache-2.0
"""What jobs have to do with the packets of a pair, for `ri2n explain`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.contract.limits import MAX_DSCP
from ri2n_sdn.contract.operations import Request
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.jobs.moves import move_of
from ri2n_sdn.pipeline.explain import JobView, Pair
from ri2n_sdn.pipeline.job_plan import tables_of
from ri2n_sdn.pipeline.slot_tables import table_in_force

__all__ = ["Packets", "packets_of", "with_jobs"]


@dataclass(frozen=True)
class Packets:
    """Packets of the job with this key and with this DSCP; None stands for any."""

    job: str
    dscp: int | None = None


def packets_of(request: Request) -> Packets | None:
    """The job that a request asks about; None when it asks about none. Raises BadInput."""
    job, dscp = request.get("job"), request.get("dscp")
    if job is None and dscp is None:
        return None
    if not isinstance(job, str):
        raise refusal("not_job_id", "job")
    if dscp is not None and (type(dscp) is not int or not 0 <= dscp <= MAX_DSCP):
        raise refusal("out_of_range", "dscp", low=0, high=MAX_DSCP)
    return Packets(job, dscp)


def with_jobs(cluster: Cluster, pair: Pair, packets: Packets | None) -> Pair:
    """The pair, with what jobs change for these packets or for everybody's.

    cluster.lock is held. Raises BadInput for a job that does not exist.
    """
    state = cluster.jobs
    if packets is not None and packets.job not in state.agreement.jobs:
        raise refusal("no_job_runs", "job", job=packets.job)
    view = JobView(reserved=_reserved(cluster, pair), wall=_wall(cluster, pair))
    if packets is None or pair.target not in pair.fabric.hosts:
        return replace(pair, jobs=view)
    job = state.agreement.jobs[packets.job]
    move = move_of(job, state.book.moves)
    by = f", moved by {move.by}" if move is not None else ""
    name = f"job {packets.job} of {job.user} ({job.policy.kind}{by})"
    if packets.job in state.assignment.refused:
        text = f"{name} was refused: {state.assignment.refused[packets.job]}"
        return replace(pair, jobs=replace(view, text=text))
    if pair.source not in job.hosts:
        text = f"{name} does not run on {pair.source}, so no packet there has its class"
        return replace(pair, jobs=replace(view, text=text))
    tables = tables_of(pair.fabric, state.assignment, packets.job, job, pair.source)
    dscp = packets.dscp if packets.dscp in tables else None
    paths = tables.get(dscp, {}).get(pair.target, ())
    if not paths:
        why = state.assignment.why(packets.job, packets.dscp, pair.paths)
        text = f"packets of {name} go as everybody's here" + (f": {why}" if why else "")
        return replace(pair, jobs=replace(view, text=text))
    slots = table_in_force(paths, None, cluster.config.slots)
    share = {path.key: slots.count(path.key) / len(slots) for path in paths}
    some = f"{len(paths)} of {len(pair.paths)} paths"
    text = f"packets of {name} use {some}, by the paths' rates"
    # Between helpers a job has a channel, but for packets that a path table names by their DSCP.
    ends = pair.source, pair.target
    channels = state.channels.get(ends, {}) if pair.fabric.striped(*ends) else {}
    striped = dscp is None and packets.job in channels
    if striped:
        text = f"both helpers run: packets of {name} go one by one over {some}"
    if dscp is not None:
        text += f" (its table for DSCP {dscp})"
    return replace(
        pair,
        slots=slots,
        own_table=True,
        share=share,
        jobs=replace(view, text=text, own_paths=True, striped=striped),
    )


def _reserved(cluster: Cluster, pair: Pair) -> str:
    """Which jobs have paths of this pair for themselves; empty when none has."""
    fabric = pair.fabric
    if pair.target not in fabric.hosts:
        return ""
    common = fabric.common_paths(pair.source, pair.target)
    if len(common) == len(pair.paths):
        return ""
    taken = cluster.jobs.assignment.taken
    owners = sorted(
        {owner for host in (pair.source, pair.target) for owner in taken.get(host, {}).values()}
    )
    return (
        f"{', '.join(owners)} {'has' if len(owners) == 1 else 'have'} paths for themselves: "
        f"everybody else uses {len(common)} of {len(pair.paths)}"
    )


def _wall(cluster: Cluster, pair: Pair) -> str:
    """Why packets do not pass between these hosts; empty when they do."""
    owners = cluster.jobs.assignment.owners
    for host, other in ((pair.source, pair.target), (pair.target, pair.source)):
        key = owners.get(host)
        if key is not None and owners.get(other) != key:
            job = cluster.jobs.agreement.jobs[key]
            services = len(job.policy.services)
            rest = f", except its {services} services" if services else ""
            return (
                f"{host} belongs to job {key} of {job.user} alone (isolated), and {other} is not "
                f"among the job's hosts: packets are dropped{rest}"
            )
    return ""
