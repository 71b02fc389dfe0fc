# SPDX-License-Identifier: Apache-2.0
"""What is said to a job that gets no lanes: the first thing that is in the way of any choice."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from ri2n_sdn.contract.units import exact_rate
from ri2n_sdn.jobs.choose import Need, choose, host_rate_bps
from ri2n_sdn.jobs.held import Held, Refusal, real
from ri2n_sdn.jobs.lanes import Lane, chosen, order_of
from ri2n_sdn.jobs.links import worst_link
from ri2n_sdn.jobs.model import Job
from ri2n_sdn.jobs.needs import keep_of, link_rates, nic_rates

__all__ = ["refuse_lanes", "refuse_table"]


def refuse_lanes(held: Held, job: Job, need: Need) -> None:
    """Raise Refusal for a job whose `need` no set of lanes meets."""
    missing = need.required - need.candidates
    if missing:
        reason = held.in_the_way(job, missing)
        raise Refusal(reason or f"{held.map.texts(missing)} is not free")
    _refuse_reach(held, job, need)
    _refuse_rate(held, job, need)
    _refuse_links(held, job, need)
    _refuse_keep(held, job, need)
    raise Refusal("there is no set of lanes for it")


def refuse_table(held: Held, job: Job, pair: tuple[str, str], names: tuple[str, ...]) -> None:
    """Raise Refusal for a job one of whose tables has no path for two of its hosts."""
    wanted = chosen(held.fabric.paths(*pair), names)
    if not wanted:
        raise Refusal(f"{pair[0]} and {pair[1]} have no path {', '.join(names)} in common")
    reason = held.in_the_way(job, real(held.map.of_all(wanted)), pair)
    raise Refusal(reason or f"{pair[0]} and {pair[1]} have no free path {', '.join(names)}")


def _refuse_reach(held: Held, job: Job, need: Need) -> None:
    """Raise Refusal when two of the hosts do not reach each other in any free lane."""
    for pair in held.pairs(job):
        paths = held.fabric.paths(*pair)
        for names in held.tables(job):
            wanted = held.map.of_all(chosen(held.map.counted(pair, living=True), names))
            lanes = real(wanted)
            if lanes & need.candidates or wanted == {None} or not paths:
                continue
            if lanes:
                raise Refusal(
                    held.in_the_way(job, lanes)
                    or f"{held.map.texts(lanes)} is not free between {pair[0]} and {pair[1]}"
                )
            if not chosen(paths, names):
                raise Refusal(f"{pair[0]} and {pair[1]} have no path {', '.join(names)} in common")
            raise Refusal(f"{', '.join(names)} is dead between {pair[0]} and {pair[1]}")


def _refuse_rate(held: Held, job: Job, need: Need) -> None:
    """Raise Refusal when the free lanes do not carry the rate at one of the hosts."""
    if need.hosts_carry(need.candidates):
        return
    wanted = need.min_rate_bps
    everything = _could_have(held, job)
    for (host, _), nics in sorted(nic_rates(held, job, living=True).items()):
        free = host_rate_bps(link_rates(nics, held.promised), need.candidates)
        if free >= wanted:
            continue
        whole = host_rate_bps(link_rates(nics, {}), everything)
        text = f"min_rate {exact_rate(wanted)} is more than {host}"
        if whole < wanted or free == whole:
            names = f" in {', '.join(job.policy.all_names)}" if job.policy.names(None) else ""
            raise Refusal(f"{text} can carry{names}: its links have {exact_rate(whole)} there")
        blame = held.in_the_way(job, everything - need.candidates)
        sharing = [
            other.id
            for other in held.placed.values()
            if host in other.hosts and other.policy.min_rate_bps
        ]
        promised = host_rate_bps(link_rates(nics, {}), need.candidates) >= wanted
        if sharing and (promised or blame is None):
            blame = f"{held.until(min(sharing))} has the rest"
        raise Refusal(f"{text} has free, {exact_rate(free)}: {blame or 'no lane is free'}")


def _refuse_links(held: Held, job: Job, need: Need) -> None:
    """Raise Refusal when a link between switches does not carry what the hosts send together.

    It is the worst one when the job has as many lanes as it may have, so that everybody keeps a
    path. There may be several such sets; the message is about one of them.
    """
    lanes = _most(need, need.candidates)
    worst = worst_link(need.links, lanes, need.min_rate_bps)
    if worst is None:
        return
    text = (
        f"min_rate {exact_rate(need.min_rate_bps)} is more than {worst.link} can carry: its rate "
        f"is {exact_rate(int(worst.rate_bps))}, and the job would send "
        f"{_short_rate(worst.load_bps(lanes, need.min_rate_bps))} over it"
    )
    # Other jobs are to blame when it would fit without them.
    everything = _could_have(held, job)
    more = _most(need, everything)
    if more > lanes and worst_link(need.links, more, need.min_rate_bps) is None:
        blame = held.in_the_way(job, everything - need.candidates)
        text += f", since {blame}" if blame else ""
    raise Refusal(text)


def _most(need: Need, candidates: frozenset[Lane]) -> frozenset[Lane]:
    """As many of the lanes as leave others what they need."""
    lanes = need.required
    for lane in sorted(candidates, key=need.order):
        if need.spares(lanes | {lane}):
            lanes |= {lane}
    return lanes


def _short_rate(rate_bps: float) -> str:
    """A rate with four digits, rounded up, as it is compared with a lower one."""
    unit = 10 ** max(len(str(ceil(rate_bps))) - 4, 0)
    return exact_rate(ceil(rate_bps / unit) * unit)


def _could_have(held: Held, job: Job) -> frozenset[Lane]:
    """The lanes that a job could have if no other job had any."""
    names = job.policy.all_names if job.policy.names(None) else ()
    return frozenset(
        lane
        for pair in held.pairs(job)
        for lane in real(held.map.of_all(chosen(held.fabric.paths(*pair), names)))
    )


def _refuse_keep(held: Held, job: Job, need: Need) -> None:
    """Raise Refusal with the pair that would have no path left."""
    lanes = choose(replace(need, keep=frozenset())) or need.candidates
    keep = keep_of(held, job, living=True)
    for left in sorted(keep, key=lambda lanes: sorted(map(order_of, lanes))):
        if not left <= lanes:
            continue
        pair, whose = keep[left]
        what = "is all that is left" if len(left) == 1 else "are all that is left"
        gone = real(held.map.of_pair(pair, living=False)) - left
        blame = held.in_the_way(job, gone, pair)
        raise Refusal(
            f"{held.map.texts(left)} {what} for {whose} between {pair[0]} and {pair[1]}"
            f"{f', since {blame}' if blame else ''}"
        )
