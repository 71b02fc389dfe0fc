"""Jobs get their lanes one after the other; what an earlier one has is in the way of later ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ri2n_sdn.fabric.model import Fabric, Nic, NicId, Path
from ri2n_sdn.jobs.choose import LinkRates, Need, choose, host_rate_bps, order_of
from ri2n_sdn.jobs.lanes import Lane, chosen, concerns, in_fat_tree, lane_of, lane_text, matches
from ri2n_sdn.jobs.model import Job
from ri2n_sdn.jobs.text import rate_text, time_text

__all__ = ["Placing", "Refusal"]

_NAMED = 3
"""How many lanes or links a line names before it counts the others."""


Keep = dict[frozenset[Lane], tuple[tuple[str, str], str]]
"""A set of lanes -> (the two hosts that have these lanes left, who needs one of them)."""


class Refusal(Exception):
    """A job cannot have what it asks for. The text says what is in the way."""


class Placing:
    """What the jobs placed so far have.

    `standing` are jobs that were accepted before, and that may not be placed yet; until then they
    have the lanes of `before`.
    """

    def __init__(
        self,
        fabric: Fabric,
        jobs: Mapping[str, Job],
        standing: Sequence[Job],
        before: Mapping[str, frozenset[Lane]],
        soon: Sequence[Job],
    ) -> None:
        self.refused: dict[str, str] = {}
        self.lanes: dict[str, frozenset[Lane]] = {}
        self.notes: dict[str, str] = {}
        self.owners: dict[str, str] = {}
        self._fabric = fabric
        self._jobs = jobs
        self._soon = soon
        self._waiting = {job.id: job for job in standing}
        self._placed: dict[str, Job] = {}
        self._taken: dict[str, dict[Lane, str]] = {}
        self._promised: dict[NicId, int] = {}
        self._links: dict[str, set[str]] = {}
        """The jobs whose lanes cross each link between switches."""
        self._before = before
        for job in standing:
            if job.policy.wants_lanes and not self._rides(job):
                kept = before.get(job.id, frozenset())
                self._take(job, self._free(job, kept), {})

    def place(self, job: Job, *, stands: bool, same: bool) -> None:
        """Give a job its lanes, or note why it is refused.

        `stands`: it was accepted before; `same`: with this policy, and with all of these hosts.
        """
        self._waiting.pop(job.id, None)
        kept = self._give_back(job)
        try:
            if self._rides(job):
                self._placed[job.id] = job
                return
            self._check_isolation(job)
            self._check_names(job)
            if job.policy.wants_lanes:
                self._place_lanes(job, kept, stands, same)
            else:
                self._check_tables(job)
        except Refusal as refusal:
            self.refused[job.id] = f"{job.title}: {refusal}"
            return
        self._placed[job.id] = job
        if job.policy.kind == "isolated":
            self.owners.update(dict.fromkeys(job.hosts, job.id))

    # ---- What others have

    def _rides(self, job: Job) -> bool:
        """Whether a job uses the paths of its reservation, and so needs none of its own."""
        return job.within in self._jobs and job.within not in self.refused

    def _hosts(self, job: Job) -> list[str]:
        return sorted(host for host in job.hosts if host in self._fabric.hosts)

    def _pairs(self, job: Job) -> Iterator[tuple[str, str]]:
        hosts = self._hosts(job)
        return ((a, b) for a in hosts for b in hosts if a != b)

    def _free(self, job: Job, lanes: frozenset[Lane]) -> frozenset[Lane]:
        taken = {lane for host in job.hosts for lane in self._taken.get(host, {})}
        return lanes - taken

    def _take(self, job: Job, lanes: frozenset[Lane], promised: Mapping[NicId, int]) -> None:
        for host in job.hosts:
            self._taken.setdefault(host, {}).update(dict.fromkeys(lanes, job.id))
        for nic, rate_bps in promised.items():
            self._promised[nic] = self._promised.get(nic, 0) + rate_bps
        if self._fabric.routing is not None:
            for pair in self._pairs(job):
                for path in self._fabric.paths(*pair):
                    if lane_of(self._fabric, path) in lanes:
                        for link in path.route.links:
                            self._links.setdefault(link, set()).add(job.id)

    def _give_back(self, job: Job) -> frozenset[Lane]:
        """Free the lanes that a standing job has from before; they are returned."""
        kept: set[Lane] = set()
        for host in job.hosts:
            mine = [lane for lane, name in self._taken.get(host, {}).items() if name == job.id]
            for lane in mine:
                del self._taken[host][lane]
            kept.update(mine)
        if kept:
            left = {link: names - {job.id} for link, names in self._links.items()}
            self._links = {link: names for link, names in left.items() if names}
        return frozenset(kept)

    def _until(self, name: str) -> str:
        job = self._jobs[name]
        return f"{job.title} until {time_text(job.end_s)}"

    def _in_the_way(self, job: Job, lanes: frozenset[Lane]) -> str | None:
        """Who has one of the lanes at one of the job's hosts; None when nobody has."""
        for lane in sorted(lanes, key=order_of):
            for host in self._hosts(job):
                name = self._taken.get(host, {}).get(lane)
                if name is not None:
                    return (
                        f"{lane_text(self._fabric, lane)} at {host} belongs to {self._until(name)}"
                    )
        guarded = self._guarded(job)
        for lane in sorted(lanes & guarded.keys(), key=order_of):
            link, name = guarded[lane]
            text = lane_text(self._fabric, lane)
            return f"{text} crosses {link}, which {self._until(name)} also needs"
        return None

    def _guarded(self, job: Job) -> dict[Lane, tuple[str, str]]:
        """The lanes that a job cannot have because of a link: (the link, whose it is) by lane.

        In flow mode a rate is kept only on links that nobody else uses. So lanes of two jobs, one
        of which has a min_rate, must not cross the same link between switches.
        """
        result: dict[Lane, tuple[str, str]] = {}
        for pair in self._pairs(job) if self._links else ():
            for path in self._fabric.paths(*pair):
                lane = lane_of(self._fabric, path)
                for link in path.route.links if lane is not None and lane not in result else ():
                    for name in sorted(self._links.get(link, ())):
                        rates = {each.policy.min_rate_bps for each in (job, self._jobs[name])}
                        if lane is not None and rates != {None}:
                            result.setdefault(lane, (link, name))
        return result

    def _lanes(self, paths: Sequence[Path]) -> frozenset[Lane | None]:
        return frozenset(lane_of(self._fabric, path) for path in paths)

    def _named(self, pair: tuple[str, str], names: Sequence[str]) -> frozenset[Lane]:
        """The lanes between two hosts that the names match; none when they say nothing of them."""
        if not any(concerns(name, pair) for name in names):
            return frozenset()
        wanted = self._lanes(chosen(self._fabric.paths(*pair), names))
        return frozenset(lane for lane in wanted if lane is not None)

    def _listed(self, lanes: frozenset[Lane]) -> str:
        return _counted_names({lane_text(self._fabric, lane) for lane in lanes})

    # ---- Hosts and names

    def _check_isolation(self, job: Job) -> None:
        for host in sorted(job.hosts):
            owner = self.owners.get(host)
            if owner is not None:
                raise Refusal(f"{host} belongs to isolated {self._until(owner)}")
        if job.policy.kind != "isolated":
            return
        for other in self._standing():
            for host in sorted(set(job.hosts) & set(other.hosts)):
                if other.within != job.id:
                    raise Refusal(
                        f"{host} cannot be isolated: it also runs {self._until(other.id)}"
                    )

    def _standing(self) -> list[Job]:
        """The jobs that are placed, and those that were accepted before."""
        return [*self._placed.values(), *self._waiting.values()]

    def _check_names(self, job: Job) -> None:
        """Refuse a job that names paths which are nowhere between its hosts.

        The paths of a job with one host lead from there to all others.
        """
        missing = set(job.policy.all_names)
        hosts = self._hosts(job)
        pairs = ((hosts[0], peer) for peer in self._fabric.hosts if peer != hosts[0])
        for pair in self._pairs(job) if len(hosts) > 1 else pairs if hosts else ():
            paths = self._fabric.paths(*pair) if missing else ()
            networks = {path.network for path in paths}
            missing = {n for n in missing if not any(matches(p, n, networks) for p in paths)}
        if hosts and missing:
            where = "between its hosts" if len(hosts) > 1 else f"at {hosts[0]}"
            raise Refusal(f"there is no path {min(missing)} {where}")

    def _tables(self, job: Job) -> list[tuple[str, ...]]:
        """The names of each of a job's tables, the default table's first."""
        tables = [table.paths for table in job.policy.tables if table.dscp is not None]
        return [job.policy.names(None), *tables]

    def _check_tables(self, job: Job) -> None:
        """Refuse a job one of whose tables has no path for two of its hosts."""
        for names in self._tables(job):
            for pair in self._pairs(job) if names else ():
                paths = self._fabric.paths(*pair)
                if paths and not self._allowed(job, pair, chosen(paths, names)):
                    self._refuse_table(job, pair, names)

    def _allowed(self, job: Job, pair: tuple[str, str], paths: Sequence[Path]) -> list[Path]:
        """The paths of a pair that no other job has."""
        taken = {
            lane for host in pair for lane, n in self._taken.get(host, {}).items() if n != job.id
        }
        return [path for path in paths if lane_of(self._fabric, path) not in taken]

    def _refuse_table(self, job: Job, pair: tuple[str, str], names: Sequence[str]) -> None:
        wanted = chosen(self._fabric.paths(*pair), names)
        if not wanted:
            raise Refusal(f"{pair[0]} and {pair[1]} have no path {', '.join(names)} in common")
        lanes = frozenset(lane for lane in self._lanes(wanted) if lane is not None)
        raise Refusal(
            self._in_the_way(replace(job, hosts=pair), lanes)
            or f"{pair[0]} and {pair[1]} have no free path {', '.join(names)}"
        )

    # ---- Lanes

    def _place_lanes(self, job: Job, kept: frozenset[Lane], stands: bool, same: bool) -> None:
        """Choose a job's lanes.

        It keeps what it has, where that does what it must, or else gets the smallest set of lanes
        that does. Both count live paths alone. A job that was accepted before is not refused since
        something broke: if no set will do, dead paths count as live, and the job's packets use the
        common paths meanwhile. If its links became slower, it keeps what it has.
        """
        need = self._need(job, kept, living=True)
        lanes = self._chosen(need)
        weak = False
        if lanes is None and stands:
            whole = self._need(job, kept, living=False)
            lanes = self._chosen(whole)
            if lanes is None and same and whole.required <= kept <= whole.candidates:
                weak = True
                lanes = kept if whole.spares(kept) else None
        if lanes is None:
            self._refuse_lanes(job, need)
            raise Refusal("there is no set of lanes for it")
        self._note_shared(job, lanes, weak)
        self.lanes[job.id] = lanes
        self._take(job, lanes, self._promises(job, lanes))

    def _chosen(self, need: Need) -> frozenset[Lane] | None:
        lanes = choose(replace(need, candidates=need.candidates & need.kept)) if need.kept else None
        return choose(need) if lanes is None else lanes

    def _counted(self, pair: tuple[str, str], living: bool) -> Sequence[Path]:
        """The paths of a pair that count: the live ones, or all when none is or all are asked for.

        So a host that is down does not make a job easier to accept.
        """
        paths = self._fabric.paths(*pair)
        return ([path for path in paths if path.alive] if living else paths) or paths

    def _need(self, job: Job, kept: frozenset[Lane], *, living: bool) -> Need:
        policy = job.policy
        everything: set[Lane] = set()
        named: set[Lane] = set()
        reach: set[frozenset[Lane]] = set()
        for pair in self._pairs(job):
            lanes = {lane for lane in self._lanes(self._fabric.paths(*pair)) if lane is not None}
            everything |= lanes
            named |= self._named(pair, policy.all_names)
            counted = self._counted(pair, living)
            if counted and lanes:
                for names in self._tables(job):
                    wanted = self._lanes(chosen(counted, names))
                    if wanted != {None}:
                        reach.add(frozenset(lane for lane in wanted if lane is not None))
        default = bool(policy.names(None))
        wanted_lanes = frozenset(named if default else everything)
        candidates = self._free(job, wanted_lanes) - self._guarded(job).keys()
        required = frozenset(named) if policy.kind == "exclusive" else frozenset[Lane]()
        return Need(
            candidates,
            required,
            frozenset(wanted & candidates for wanted in reach),
            frozenset(self._keep(job, living)) if candidates else frozenset(),
            self._rates(job, living),
            policy.min_rate_bps or 0,
            kept,
            self._named_soon(job) & candidates,
            self._shared_links(job, candidates),
            frozenset(
                lane
                for lane in candidates
                if not lane.vlan and in_fat_tree(self._fabric, lane.network)
            ),
        )

    def _keep(self, job: Job, living: bool) -> Keep:
        """Sets of which one lane must stay free; between which hosts, and for whom."""
        keep: Keep = {}
        if job.policy.kind != "isolated":
            for host in self._hosts(job):
                for peer in sorted(self._fabric.hosts):
                    if peer == host or peer in self.owners:
                        continue
                    for pair in ((host, peer), (peer, host)):
                        self._add_common(keep, job, pair, living)
        hosts = set(job.hosts)
        for other in self._standing():
            if other.policy.wants_lanes or not other.policy.all_names:
                continue
            if self._rides(other) or not hosts & set(other.hosts):
                continue
            for names in self._tables(other):
                for pair in self._pairs(other) if names else ():
                    if hosts.isdisjoint(pair):
                        continue
                    wanted = chosen(self._fabric.paths(*pair), names)
                    left = self._lanes(self._allowed(other, pair, wanted))
                    if left and None not in left:
                        lanes = frozenset(lane for lane in left if lane is not None)
                        keep.setdefault(lanes, (pair, self._until(other.id)))
        return keep

    def _add_common(self, keep: Keep, job: Job, pair: tuple[str, str], living: bool) -> None:
        """Add what a pair has left of common paths."""
        paths = self._counted(pair, living)
        left = self._lanes(self._allowed(job, pair, paths))
        if left and None not in left:
            lanes = frozenset(lane for lane in left if lane is not None)
            keep.setdefault(lanes, (pair, "everybody else"))

    def _named_soon(self, job: Job) -> frozenset[Lane]:
        """The lanes that reservations to come name at the job's hosts while the job still runs."""
        result: set[Lane] = set()
        for other in self._soon:
            shares = set(job.hosts) & set(other.hosts)
            late = job.end_s is not None and job.end_s <= other.begin_s
            if other.id == job.id or not shares or late or not other.policy.all_names:
                continue
            for pair in self._pairs(other):
                result |= self._named(pair, other.policy.all_names)
        return frozenset(result)

    def _shared_links(self, job: Job, lanes: frozenset[Lane]) -> dict[Lane, int]:
        """How many links between switches each lane shares with lanes of other jobs."""
        links: dict[Lane, set[str]] = {}
        if self._links:
            for pair in self._pairs(job):
                for path in self._fabric.paths(*pair):
                    lane = lane_of(self._fabric, path)
                    if lane is not None and lane in lanes:
                        links.setdefault(lane, set()).update(
                            self._links.keys() & set(path.route.links)
                        )
        return {lane: len(shared) for lane, shared in links.items() if shared}

    # ---- Rates

    def _nic_rates(
        self, job: Job, living: bool
    ) -> dict[tuple[str, bool], dict[NicId, tuple[Nic, dict[Lane | None, int]]]]:
        """(host, whether it sends) -> NIC -> the rate of each lane there.

        The rate of a lane at a NIC is that of the slowest of its routes from there to other hosts
        of the job. The NICs at their other ends do not count: they count at their own hosts. With
        `living` dead paths count only for a host that has no live one.
        """
        result: dict[tuple[str, bool], dict[NicId, tuple[Nic, dict[Lane | None, int]]]] = {}
        paths = [path for pair in self._pairs(job) for path in self._fabric.paths(*pair)]
        alive = [path for path in paths if path.alive]
        up = {(end.host, sends) for p in alive for end, sends in ((p.own, True), (p.peer, False))}
        for path in paths:
            lane = lane_of(self._fabric, path)
            for nic, sends in ((path.own, True), (path.peer, False)):
                if path.alive or not living or (nic.host, sends) not in up:
                    rate = min(nic.rate_bps, path.route.rate_bps or nic.rate_bps)
                    nics = result.setdefault((nic.host, sends), {})
                    rates = nics.setdefault(nic.id, (nic, {}))[1]
                    rates[lane] = min(rate, rates.get(lane, rate))
        return result

    def _rates(self, job: Job, living: bool) -> frozenset[LinkRates]:
        if job.policy.min_rate_bps is None:
            return frozenset()
        return frozenset(
            _link_rates(nics, self._promised) for nics in self._nic_rates(job, living).values()
        )

    def _promises(self, job: Job, lanes: frozenset[Lane]) -> dict[NicId, int]:
        """What of each NIC's rate a job's min_rate takes, NIC by NIC until it is reached."""
        promised: dict[NicId, int] = {}
        for nics in self._nic_rates(job, False).values() if job.policy.min_rate_bps else ():
            missing = job.policy.min_rate_bps or 0
            for nic_id, (nic, rates) in sorted(nics.items()):
                left = nic.rate_bps - self._promised.get(nic_id, 0)
                share = min(missing, left, sum(rates[lane] for lane in rates if lane in lanes))
                promised[nic_id] = max(promised.get(nic_id, 0), share, 0)
                missing -= max(share, 0)
        return promised

    # ---- What to say

    def _refuse_lanes(self, job: Job, need: Need) -> None:
        """Raise Refusal with the first thing that is in the way of any choice."""
        missing = need.required - need.candidates
        if missing:
            raise Refusal(self._in_the_way(job, missing) or f"{self._listed(missing)} is not free")
        self._refuse_reach(job, need)
        self._refuse_rate(job, need)
        self._refuse_keep(job, need)

    def _refuse_reach(self, job: Job, need: Need) -> None:
        """Raise Refusal when two of the hosts do not reach each other in any free lane."""
        for pair in self._pairs(job):
            paths = self._fabric.paths(*pair)
            for names in self._tables(job):
                wanted = self._lanes(chosen(self._counted(pair, True), names))
                lanes = frozenset(lane for lane in wanted if lane is not None)
                if lanes & need.candidates or wanted == {None} or not paths:
                    continue
                if lanes:
                    raise Refusal(
                        self._in_the_way(job, lanes)
                        or f"{self._listed(lanes)} is not free between {pair[0]} and {pair[1]}"
                    )
                if not chosen(paths, names):
                    raise Refusal(
                        f"{pair[0]} and {pair[1]} have no path {', '.join(names)} in common"
                    )
                raise Refusal(f"{', '.join(names)} is dead between {pair[0]} and {pair[1]}")

    def _refuse_rate(self, job: Job, need: Need) -> None:
        """Raise Refusal when the free lanes do not carry the rate at one of the hosts."""
        if need.carries(need.candidates):
            return
        wanted = need.min_rate_bps
        everything = self._everything(job)
        for (host, _), nics in sorted(self._nic_rates(job, True).items()):
            free = host_rate_bps(_link_rates(nics, self._promised), need.candidates)
            if free >= wanted:
                continue
            whole = host_rate_bps(_link_rates(nics, {}), everything)
            text = f"min_rate {rate_text(wanted)} is more than {host}"
            if whole < wanted or free == whole:
                names = f" in {', '.join(job.policy.all_names)}" if job.policy.names(None) else ""
                raise Refusal(f"{text} can carry{names}: its links have {rate_text(whole)} there")
            blame = self._in_the_way(job, everything - need.candidates)
            sharing = [
                other.id
                for other in self._placed.values()
                if host in other.hosts and other.policy.min_rate_bps
            ]
            promised = host_rate_bps(_link_rates(nics, {}), need.candidates) >= wanted
            if sharing and (promised or blame is None):
                blame = f"{self._until(min(sharing))} has the rest"
            raise Refusal(f"{text} has free, {rate_text(free)}: {blame or 'no lane is free'}")

    def _everything(self, job: Job) -> frozenset[Lane]:
        """The lanes that a job could have if no other job had any."""
        names = job.policy.all_names if job.policy.names(None) else ()
        lanes = {
            lane
            for pair in self._pairs(job)
            for lane in self._lanes(chosen(self._fabric.paths(*pair), names))
        }
        return frozenset(lane for lane in lanes if lane is not None)

    def _refuse_keep(self, job: Job, need: Need) -> None:
        """Raise Refusal with the pair that would have no path left."""
        lanes = choose(replace(need, keep=frozenset())) or need.candidates
        reasons = self._keep(job, True)
        for left in sorted(reasons, key=lambda lanes: sorted(map(order_of, lanes))):
            if left <= lanes:
                pair, whose = reasons[left]
                what = "is all that is left" if len(left) == 1 else "are all that is left"
                gone = self._lanes(self._fabric.paths(*pair)) - left
                blame = self._in_the_way(
                    replace(job, hosts=pair), frozenset(lane for lane in gone if lane is not None)
                )
                raise Refusal(
                    f"{self._listed(left)} {what} for {whose} between {pair[0]} and {pair[1]}"
                    f"{f', since {blame}' if blame else ''}"
                )

    def _note_shared(self, job: Job, lanes: frozenset[Lane], weak: bool) -> None:
        """Note what a job does not get although it has lanes of its own, and why."""
        shared: dict[str, set[str]] = {}
        for pair in self._pairs(job) if self._links else ():
            for path in self._fabric.paths(*pair):
                if lane_of(self._fabric, path) in lanes:
                    for link in self._links.keys() & set(path.route.links):
                        for name in self._links[link]:
                            shared.setdefault(name, set()).add(link)
        texts = [
            f"shares {_counted_names(links)} with {self._jobs[name].title}"
            for name, links in sorted(shared.items())
        ]
        vlans = any(in_fat_tree(self._fabric, lane.network) for lane in lanes)
        if vlans and job.policy.kind != "isolated":
            texts.append("its NICs also carry others' frames, since all VLANs share them")
        if not lanes and len(self._hosts(job)) > 1:
            texts.append("there is no lane between its hosts: they share one switch, or no network")
        if weak:
            texts.append("its links changed, and no longer do what it asks for")
        if texts:
            self.notes[job.id] = f"{job.title}: {'; '.join(texts)}"


def _link_rates(
    nics: Mapping[NicId, tuple[Nic, Mapping[Lane | None, int]]], promised: Mapping[NicId, int]
) -> LinkRates:
    return tuple(
        (
            max(nic.rate_bps - promised.get(nic_id, 0), 0),
            tuple(sorted(rates.items(), key=lambda item: item[0] or ("", -1))),
        )
        for nic_id, (nic, rates) in sorted(nics.items())
    )


def _counted_names(names: set[str]) -> str:
    ordered = sorted(names)
    more = len(ordered) - _NAMED
    first = ", ".join(ordered[:_NAMED])
    return f"{first} and {more} more" if more > 0 else first
