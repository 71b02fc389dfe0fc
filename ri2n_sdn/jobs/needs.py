# SPDX-License-Identifier: Apache-2.0
"""What the lanes of a job must do, for its hosts and for everybody else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ri2n_sdn.fabric.model import UNTAGGED, Nic, NicId
from ri2n_sdn.jobs.choose import LinkRates, Need
from ri2n_sdn.jobs.held import Held, Pair, real
from ri2n_sdn.jobs.lanes import Lane, chosen
from ri2n_sdn.jobs.links import link_needs
from ri2n_sdn.jobs.model import Job

__all__ = ["Keep", "NicRates", "keep_of", "link_rates", "need_of", "nic_rates", "promises"]

Keep = dict[frozenset[Lane], tuple[Pair, str]]
"""A set of lanes -> (the two hosts that have no others left, who needs one of them)."""

NicRates = dict[tuple[str, bool], dict[NicId, tuple[Nic, dict[Lane | None, int]]]]
"""(host, whether it sends) -> NIC -> the rate of each lane there."""

EVERYBODY = "everybody else"


def need_of(
    held: Held, job: Job, kept: frozenset[Lane], soon: Sequence[Job], *, living: bool
) -> Need:
    """What a job's lanes must do. `kept` are those that it has, `soon` the reservations to come.

    With `living`, only live paths count.
    """
    policy = job.policy
    everything: set[Lane] = set()
    named: set[Lane] = set()
    reach: set[frozenset[Lane]] = set()
    tables = held.tables(job)
    for pair in held.pairs(job):
        lanes = real(held.map.of_pair(pair, living=False))
        everything |= lanes
        if policy.all_names:
            named |= held.named(pair, policy.all_names)
        for names in tables if lanes else ():
            wanted = (
                held.map.of_all(chosen(held.map.counted(pair, living=living), names))
                if names
                else held.map.of_pair(pair, living=living)
            )
            if wanted != {None}:
                reach.add(real(wanted))
    wishes = frozenset(named if policy.names(None) else everything)
    candidates = held.free(job, wishes) - held.guarded(job).keys()
    shared = held.shared_links(job, candidates)
    rates = {} if policy.min_rate_bps is None else nic_rates(held, job, living=living)
    return Need(
        candidates,
        frozenset(named) if policy.kind == "exclusive" else frozenset(),
        frozenset(wanted & candidates for wanted in reach),
        frozenset(keep_of(held, job, living=living)) if candidates else frozenset(),
        frozenset(link_rates(nics, held.promised) for nics in rates.values()),
        policy.min_rate_bps or 0,
        kept,
        _named_soon(held, job, soon) & candidates,
        {lane: len(set().union(*links.values())) for lane, links in shared.items()},
        frozenset(c for c in candidates if c.vlan == UNTAGGED and held.map.is_vlan(c)),
        link_needs(held, job, living=living),
    )


def keep_of(held: Held, job: Job, *, living: bool) -> Keep:
    """What must stay free for others: sets of which one lane at least must."""
    keep: Keep = {}
    if job.policy.kind != "isolated":
        for host in held.hosts(job):
            taken = held.taken(host, job.id)
            for peer in sorted(held.fabric.hosts):
                if peer == host or peer in held.owners:
                    continue
                gone = taken | held.taken(peer, job.id)
                for pair in ((host, peer), (peer, host)):
                    left = held.map.of_pair(pair, living=living) - gone
                    if left and None not in left:
                        keep.setdefault(real(left), (pair, EVERYBODY))
    hosts = set(job.hosts)
    for other in held.standing():
        if other.policy.wants_lanes or not other.policy.all_names:
            continue
        if held.rides(other) or hosts.isdisjoint(other.hosts):
            continue
        for names in held.tables(other):
            for pair in held.pairs(other) if names else ():
                if hosts.isdisjoint(pair):
                    continue
                wanted = chosen(held.fabric.paths(*pair), names)
                left = held.map.of_all(held.allowed(other, pair, wanted))
                if left and None not in left:
                    keep.setdefault(real(left), (pair, held.until(other.id)))
    return keep


def nic_rates(held: Held, job: Job, *, living: bool) -> NicRates:
    """The rate of each lane at each NIC of a job's hosts.

    It is that of the slowest of the lane's routes from there to other hosts of the job. The NICs at
    their other ends do not count: they count at their own hosts. With `living` dead paths count
    only for a host that has no live one.
    """
    result: NicRates = {}
    paths = [path for pair in held.pairs(job) for path in held.fabric.paths(*pair)]
    alive = [path for path in paths if path.alive]
    up = {(end.host, sends) for p in alive for end, sends in ((p.own, True), (p.peer, False))}
    for path in paths:
        lane = held.map.of(path)
        for nic, sends in ((path.own, True), (path.peer, False)):
            if path.alive or not living or (nic.host, sends) not in up:
                rate = min(nic.rate_bps, path.route.rate_bps or nic.rate_bps)
                nics = result.setdefault((nic.host, sends), {})
                rates = nics.setdefault(nic.id, (nic, {}))[1]
                rates[lane] = min(rate, rates.get(lane, rate))
    return result


def link_rates(
    nics: Mapping[NicId, tuple[Nic, Mapping[Lane | None, int]]], promised: Mapping[NicId, int]
) -> LinkRates:
    """The NICs of one host for `choose`, with what is left of their rates."""
    return tuple(
        (
            max(nic.rate_bps - promised.get(nic_id, 0), 0),
            tuple(sorted(rates.items(), key=lambda item: item[0] or ("", -1))),
        )
        for nic_id, (nic, rates) in sorted(nics.items())
    )


def promises(held: Held, job: Job, lanes: frozenset[Lane]) -> dict[NicId, int]:
    """What of each NIC's rate a job's min_rate takes, NIC by NIC until it is reached."""
    promised: dict[NicId, int] = {}
    if job.policy.min_rate_bps is None:
        return promised
    for nics in nic_rates(held, job, living=False).values():
        missing = job.policy.min_rate_bps
        for nic_id, (nic, rates) in sorted(nics.items()):
            left = nic.rate_bps - held.promised.get(nic_id, 0)
            share = min(missing, left, sum(rates[lane] for lane in rates if lane in lanes))
            promised[nic_id] = max(promised.get(nic_id, 0), share, 0)
            missing -= max(share, 0)
    return promised


def _named_soon(held: Held, job: Job, soon: Sequence[Job]) -> frozenset[Lane]:
    """The lanes that reservations to come name at the job's hosts while the job still runs."""
    result: set[Lane] = set()
    for other in soon:
        over = job.end_s is not None and job.end_s <= other.begin_s
        if other.id == job.id or over or set(job.hosts).isdisjoint(other.hosts):
            continue
        for pair in held.pairs(other) if other.policy.all_names else ():
            result |= held.named(pair, other.policy.all_names)
    return frozenset(result)
