# SPDX-License-Identifier: Apache-2.0
"""Whether there is room for a job or reservation, now and until its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ri2n_sdn.contract.units import time_text
from ri2n_sdn.fabric.model import Fabric, Nic, Route, Routing
from ri2n_sdn.jobs.assign import Assignment, assign
from ri2n_sdn.jobs.lanes import LaneMap, order_of
from ri2n_sdn.jobs.model import RESERVED, Job, Reservation
from ri2n_sdn.jobs.reservations import at, soon

__all__ = ["conflict"]

MAX_LATER = 32
"""How many later starts are tried at most for a refused job or reservation."""


def conflict(
    fabric: Fabric,
    running: Sequence[Job],
    reservations: Sequence[Reservation],
    wanted: Job | Reservation,
    now_s: float,
    before: Assignment | None = None,
) -> str | None:
    """Why there is no room for `wanted` from now, or its start, until its end; None if there is.

    The line says what is in the way, who has it and until when. It ends with the next time at which
    there would be room for as long as is wanted, if one of the next MAX_LATER ends of jobs and
    reservations is such a time.

    `before` is the assignment in force, which says what lanes the running jobs have. A running job
    without an end has them for ever, and so has one that is still there after its end. What is
    wanted is not in its own way: a job or reservation with its id is left out. For times to come,
    what is dead now counts as repaired.
    """
    end_s, title = wanted.end_s, wanted.as_job().title
    missing = sorted(set(wanted.hosts) - set(fabric.hosts))
    if missing:
        return f"{title}: there is no host {missing[0]}"
    if end_s is not None and end_s <= now_s:
        return f"{title}: its end {time_text(end_s)} is over"
    plan = _Plan(
        before.lane_map if before is not None and before.fabric is fabric else LaneMap(fabric),
        LaneMap(_healed(fabric)),
        tuple(
            replace(job, end_s=None) if job.end_s is not None and job.end_s <= now_s else job
            for job in running
            if not (isinstance(wanted, Job) and job.id == wanted.id)
        ),
        tuple(
            each
            for each in reservations
            if each.end_s > now_s and not (isinstance(wanted, Reservation) and each.id == wanted.id)
        ),
        now_s,
        before,
    )
    reason = plan.reason(wanted)
    if reason is None:
        return None
    later = plan.later(wanted)
    return reason if later is None else f"{reason}; there is room from {time_text(later)}"


@dataclass(frozen=True)
class _Plan:
    """What is known of the time to come."""

    today: LaneMap
    healed: LaneMap
    running: tuple[Job, ...]
    reservations: tuple[Reservation, ...]
    now_s: float
    before: Assignment | None

    def reason(self, wanted: Job | Reservation) -> str | None:
        """What is in the way of `wanted`; None when nothing is.

        The time to come is played through twice, with `wanted` and without it, from one start of a
        job or reservation to the next. Only starts matter: what ends makes room. Nobody who runs
        now, and no reservation, may be refused with `wanted` but not without it.
        """
        start_s = max(self.now_s, wanted.begin_s)
        name = wanted.as_job().id
        without = beside = self.before
        running_now: set[str] = set()
        for time_s in self._starts(start_s, wanted.end_s):
            without = self._assigned(time_s, without)
            if time_s == self.now_s:
                running_now = set(without.jobs) - set(without.refused)
            if time_s < start_s:
                beside = without
                continue
            beside = self._assigned(time_s, beside, wanted)
            if name in beside.refused:
                return _from(time_s, start_s, beside.refused[name])
            for other in sorted(beside.refused.keys() - without.refused.keys()):
                if other in running_now or other.startswith(RESERVED):
                    return _from(time_s, start_s, _in_the_way(name, other, beside, without))
        return None

    def later(self, wanted: Job | Reservation) -> float | None:
        """The next time at which there is room for as long as is wanted; None if none is known."""
        start_s = max(self.now_s, wanted.begin_s)
        lasts_s = None if wanted.end_s is None else wanted.end_s - start_s
        ends: set[float] = {each.end_s for each in self.reservations}
        ends |= {job.end_s for job in self.running if job.end_s is not None}
        for end_s in sorted(end for end in ends if end > start_s)[:MAX_LATER]:
            moved_end_s = None if lasts_s is None else end_s + lasts_s
            if self.reason(_moved(wanted, end_s, moved_end_s)) is None:
                return end_s
        return None

    def _starts(self, start_s: float, end_s: float | None) -> Iterator[float]:
        """Now, the start that is wanted, and the starts of others before the end, in order."""
        starts = {self.now_s, start_s}
        starts |= {each.begin_s for each in self.reservations}
        starts |= {job.begin_s for job in self.running}
        return iter(sorted(t for t in starts if t >= self.now_s and (end_s is None or t < end_s)))

    def _assigned(
        self, time_s: float, before: Assignment | None, wanted: Job | Reservation | None = None
    ) -> Assignment:
        jobs, reservations = list(self.running), list(self.reservations)
        if isinstance(wanted, Job):
            jobs.append(wanted)
        elif wanted is not None:
            reservations.append(wanted)
        there = [
            job
            for job in jobs
            if job.begin_s <= time_s and (job.end_s is None or time_s < job.end_s)
        ]
        lane_map = self.today if time_s == self.now_s else self.healed
        return assign(
            lane_map.fabric,
            at(there, reservations, time_s),
            before,
            soon(reservations, time_s),
            lane_map=lane_map,
        )


def _moved(wanted: Job | Reservation, begin_s: float, end_s: float | None) -> Job | Reservation:
    if isinstance(wanted, Job):
        return replace(wanted, begin_s=begin_s, end_s=end_s)
    assert end_s is not None
    return replace(wanted, begin_s=begin_s, end_s=end_s)


def _in_the_way(name: str, other: str, beside: Assignment, without: Assignment) -> str:
    """What a job would take from another one."""
    mine, theirs = beside.jobs[name], beside.jobs[other]
    when = f"{theirs.title} from {time_text(theirs.begin_s)} until {time_text(theirs.end_s)}"
    hosts = sorted(set(mine.hosts) & set(theirs.hosts))
    both = without.lanes.get(other, frozenset()) & beside.lanes.get(name, frozenset())
    if both and hosts:
        text = beside.lane_map.text(min(both, key=order_of))
        return f"{mine.title}: {text} at {hosts[0]} belongs to {when}"
    if hosts and "isolated" in (mine.policy.kind, theirs.policy.kind):
        return f"{mine.title}: {hosts[0]} belongs to {when}"
    return f"{mine.title}: it would leave too little for {when}"


def _from(time_s: float, start_s: float, reason: str) -> str:
    """A reason, with the time from which it holds when that is not the start."""
    return reason if time_s == start_s else f"{reason} (from {time_text(time_s)} on)"


def _healed(fabric: Fabric) -> Fabric:
    """The fabric with everything alive."""
    hosts = {
        name: replace(
            host,
            nics=tuple(replace(nic, up=True, tx_alive=True, rx_alive=True) for nic in host.nics),
        )
        for name, host in fabric.hosts.items()
    }
    routing = None if fabric.routing is None else _Healed(fabric.routing)
    return replace(fabric, hosts=hosts, routing=routing)


@dataclass(frozen=True)
class _Healed:
    """A routing in which every route is alive."""

    real: Routing

    def vlans(self, nic: Nic) -> tuple[int, ...]:
        return self.real.vlans(nic)

    def flood_vlans(self, network: str, nics: tuple[Nic, ...]) -> tuple[int, ...]:
        return self.real.flood_vlans(network, nics)

    def routes(self, own: Nic, peer: Nic) -> tuple[Route, ...]:
        return tuple(replace(route, alive=True) for route in self.real.routes(own, peer))

    def capacities_bps(self) -> Mapping[str, float]:
        return self.real.capacities_bps()
