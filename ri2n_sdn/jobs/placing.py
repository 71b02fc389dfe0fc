# SPDX-License-Identifier: Apache-2.0
"""Jobs get their lanes one after the other; what an earlier one has is in the way of later ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ri2n_sdn.jobs.choose import Need, choose
from ri2n_sdn.jobs.held import Held, Refusal
from ri2n_sdn.jobs.lanes import Lane, LaneMap, chosen, first_few, matches
from ri2n_sdn.jobs.model import Job
from ri2n_sdn.jobs.needs import need_of, promises
from ri2n_sdn.jobs.refusals import refuse_lanes, refuse_table

__all__ = ["Placing"]


class Placing:
    """Places jobs.

    `standing` are jobs that were accepted before; until they are placed they have the lanes of
    `before`. `soon` are the jobs of reservations to come.
    """

    def __init__(
        self,
        lane_map: LaneMap,
        jobs: Mapping[str, Job],
        standing: Sequence[Job],
        before: Mapping[str, frozenset[Lane]],
        soon: Sequence[Job],
    ) -> None:
        self.lanes: dict[str, frozenset[Lane]] = {}
        self.notes: dict[str, str] = {}
        self.held = Held(lane_map, jobs)
        self._soon = soon
        self.held.waiting.update({job.id: job for job in standing})
        for job in standing:
            if job.policy.wants_lanes and not self.held.rides(job):
                kept = before.get(job.id, frozenset())
                self.held.take(job, self.held.free(job, kept), {})

    def place(self, job: Job, *, stands: bool, same: bool) -> None:
        """Give a job its lanes, or note why it is refused.

        `stands`: it was accepted before; `same`: with this policy, and with all of these hosts.
        """
        held = self.held
        held.waiting.pop(job.id, None)
        kept = held.give_back(job)
        try:
            if held.rides(job):
                held.placed[job.id] = job
                return
            self._check_isolation(job)
            self._check_names(job)
            if job.policy.wants_lanes:
                self._place_lanes(job, kept, stands, same)
            else:
                self._check_tables(job)
        except Refusal as refusal:
            held.refused[job.id] = f"{job.title}: {refusal}"
            return
        held.placed[job.id] = job
        if job.policy.kind == "isolated":
            held.owners.update(dict.fromkeys(job.hosts, job.id))

    def _check_isolation(self, job: Job) -> None:
        held = self.held
        for host in sorted(job.hosts):
            owner = held.owners.get(host)
            if owner is not None:
                raise Refusal(f"{host} belongs to isolated {held.until(owner)}")
        for other in held.standing() if job.policy.kind == "isolated" else ():
            for host in sorted(set(job.hosts) & set(other.hosts)):
                if other.within != job.id:
                    raise Refusal(f"{host} cannot be isolated: it also runs {held.until(other.id)}")

    def _check_names(self, job: Job) -> None:
        """Refuse a job that names paths which are nowhere between its hosts.

        The paths of a job with one host lead from there to all others.
        """
        missing = set(job.policy.all_names)
        hosts = self.held.hosts(job)
        if not hosts or not missing:
            return
        fabric = self.held.fabric
        pairs = ((hosts[0], peer) for peer in fabric.hosts if peer != hosts[0])
        for pair in self.held.pairs(job) if len(hosts) > 1 else pairs:
            paths = fabric.paths(*pair) if missing else ()
            networks = {path.network for path in paths}
            missing = {n for n in missing if not any(matches(p, n, networks) for p in paths)}
        if missing:
            where = "between its hosts" if len(hosts) > 1 else f"at {hosts[0]}"
            raise Refusal(f"there is no path {min(missing)} {where}")

    def _check_tables(self, job: Job) -> None:
        """Refuse a job one of whose tables has no path for two of its hosts."""
        held = self.held
        for names in held.tables(job):
            for pair in held.pairs(job) if names else ():
                paths = held.fabric.paths(*pair)
                if paths and not held.allowed(job, pair, chosen(paths, names)):
                    refuse_table(held, job, pair, names)

    def _place_lanes(self, job: Job, kept: frozenset[Lane], stands: bool, same: bool) -> None:
        """Choose a job's lanes.

        It keeps what it has, where that does what it must, or else gets the smallest set of lanes
        that does. Both count live paths alone. A job that was accepted before is not refused since
        something broke: if no set will do, dead paths count as live, and the job's packets use the
        common paths meanwhile. If its links became slower, it keeps what it has.
        """
        need = need_of(self.held, job, kept, self._soon, living=True)
        lanes = _chosen(need)
        weak = False
        if lanes is None and stands:
            whole = need_of(self.held, job, kept, self._soon, living=False)
            lanes = _chosen(whole)
            if lanes is None and same and whole.required <= kept <= whole.candidates:
                weak = True
                lanes = kept if whole.spares(kept) else None
        if lanes is None:
            refuse_lanes(self.held, job, need)
            return
        self._note(job, lanes, weak)
        self.lanes[job.id] = lanes
        self.held.take(job, lanes, promises(self.held, job, lanes))

    def _note(self, job: Job, lanes: frozenset[Lane], weak: bool) -> None:
        """Note what a job does not get although it has lanes of its own, and why."""
        held = self.held
        shared: dict[str, set[str]] = {}
        for by_job in held.shared_links(job, lanes).values():
            for name, links in by_job.items():
                shared.setdefault(name, set()).update(links)
        texts = [
            f"shares {first_few(sorted(links))} with {held.jobs[name].title}"
            for name, links in sorted(shared.items())
        ]
        if job.policy.kind != "isolated" and any(held.map.is_vlan(lane) for lane in lanes):
            texts.append("its NICs also carry others' frames, since all VLANs share them")
        if not lanes and len(held.hosts(job)) > 1:
            texts.append("there is no lane between its hosts: they share one switch, or no network")
        if weak:
            texts.append("its links changed, and no longer do what it asks for")
        if texts:
            self.notes[job.id] = f"{job.title}: {'; '.join(texts)}"


def _chosen(need: Need) -> frozenset[Lane] | None:
    """The lanes of a job: of those that it has, if they will do, or else of all."""
    lanes = choose(replace(need, candidates=need.candidates & need.kept)) if need.kept else None
    return choose(need) if lanes is None else lanes
