# SPDX-License-Identifier: Apache-2.0
"""What the rows of each host must hold about jobs: jobs and their paths become classes and walls.

It is the step between `jobs/`, which decides, and `pipeline.jobs`, which makes rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations

from ri2n_sdn.fabric.model import Fabric, PairKey, Path
from ri2n_sdn.jobs.assign import Assignment
from ri2n_sdn.jobs.members import Agreement
from ri2n_sdn.jobs.model import Job
from ri2n_sdn.pipeline.helper_frames import MAX_CHANNEL
from ri2n_sdn.pipeline.jobs import ClassTable, Enclosure, HostJobs

__all__ = ["Channel", "Channels", "job_secret", "number_channels", "plan_jobs", "tables_of"]


@dataclass(frozen=True)
class Channel:
    """A job's way from one helper to another: a number, which both ends of the pair use, and a tag.

    `paths` are those that the job's packets of the default table may take, in this direction.
    `min_rate_bps` is what the job's policy guarantees; 0 for nothing.
    """

    number: int
    tag: int
    paths: tuple[Path, ...]
    min_rate_bps: int = 0


Channels = Mapping[PairKey, Mapping[str, Channel]]
"""(sender, receiver) -> the job's key -> its channel."""


def job_secret(cluster_key: bytes, key: str) -> bytes:
    """The secret of an isolated job, which only the controller and the job's bridges know.

    `key` is the job's key in the agreement, `cluster_key` the secret of the cluster (32 bytes).
    """
    return blake2b(key.encode(), key=cluster_key, digest_size=32).digest()


def number_channels(
    fabric: Fabric,
    agreement: Agreement,
    assignment: Assignment,
    cluster_key: bytes,
    before: Channels,
) -> Channels:
    """The channels of all jobs between hosts that both have a helper.

    A channel keeps its number while it is there. A job beyond the 63rd between two hosts has none:
    its packets go by its slot tables. So do packets that a path table names by their DSCP, since a
    channel has one choice of paths.
    """
    result: dict[PairKey, dict[str, Channel]] = {}
    for key in sorted(agreement.jobs):
        job = agreement.jobs[key]
        if key in assignment.refused:
            continue
        helpers = [name for name in job.hosts if name in fabric.hosts and fabric.hosts[name].helper]
        out = {
            host: tables_of(fabric, assignment, key, job, host).get(None, {}) for host in helpers
        }
        tag = int.from_bytes(job_secret(cluster_key, key)[:4], "big")
        for low, high in combinations(helpers, 2):
            there, back = out[low].get(high, ()), out[high].get(low, ())
            if not there or not back:
                continue
            old = before.get((low, high), {}).get(key)
            taken = {each.number for each in before.get((low, high), {}).values()}
            taken |= {each.number for each in result.get((low, high), {}).values()}
            free = next((n for n in range(1, MAX_CHANNEL + 1) if n not in taken), None)
            number = old.number if old is not None else free
            if number is not None:
                rate = job.policy.min_rate_bps or 0
                result.setdefault((low, high), {})[key] = Channel(number, tag, there, rate)
                result.setdefault((high, low), {})[key] = Channel(number, tag, back, rate)
    return result


def plan_jobs(
    fabric: Fabric,
    agreement: Agreement,
    assignment: Assignment,
    cluster_key: bytes,
    channels: Channels | None = None,
) -> dict[str, HostJobs]:
    """What each host's rows must hold, without the messages for its scripts.

    Hosts without a job that needs rows are left out. A refused job needs none: its packets go as
    everybody's. A host whose class of a job is unknown gets no rows for the class.
    """
    tables: dict[str, list[ClassTable]] = {}
    enclosures: dict[str, Enclosure] = {}
    for key, job in agreement.jobs.items():
        if key in assignment.refused:
            continue
        numbers = agreement.classes[key]
        for host in job.hosts:
            if host not in fabric.hosts:
                continue
            if assignment.owners.get(host) == key:
                secret = job_secret(cluster_key, key)
                members = frozenset(name for name in job.hosts if name in fabric.hosts)
                enclosures[host] = Enclosure(key, secret, members, job.policy.services)
            if host not in numbers:
                continue
            for dscp, paths in tables_of(fabric, assignment, key, job, host).items():
                channel_numbers = {
                    receiver: of_pair[key].number
                    for receiver in (paths if dscp is None else ())
                    if key in (of_pair := (channels or {}).get((host, receiver), {}))
                }
                table = ClassTable(numbers[host], dscp, paths, channel_numbers)
                tables.setdefault(host, []).append(table)
    return {
        host: HostJobs(
            tuple(sorted(tables.get(host, ()), key=lambda table: (table.number, str(table.dscp)))),
            enclosures.get(host),
        )
        for host in sorted({*tables, *enclosures})
    }


def tables_of(
    fabric: Fabric, assignment: Assignment, key: str, job: Job, host: str
) -> dict[int | None, Mapping[str, tuple[Path, ...]]]:
    """The paths of a job from one of its hosts: by DSCP, then by receiver.

    Receivers to which the job's packets go as everybody's are left out. A policy that names paths
    holds towards every host; lanes of the job's own are between its hosts.
    """
    policy = job.policy
    marks = dict.fromkeys((None, *(table.dscp for table in policy.tables)))
    if not policy.wants_lanes and not policy.all_names:
        return {}
    result: dict[int | None, Mapping[str, tuple[Path, ...]]] = {}
    for dscp in marks:
        paths: dict[str, tuple[Path, ...]] = {}
        for receiver in job.hosts if policy.wants_lanes else fabric.hosts:
            if receiver == host or receiver not in fabric.hosts:
                continue
            chosen = assignment.paths(key, dscp, fabric.paths(host, receiver))
            if chosen and chosen != fabric.common_paths(host, receiver):
                paths[receiver] = chosen
        if paths:
            result[dscp] = paths
    return result
