# SPDX-License-Identifier: Apache-2.0
"""The jobs app: reads what hosts declare, decides on paths, and tells hosts what became of it.

`jobs/` decides, `pipeline.job_plan` says what follows for each host's rows, and the trunk app
installs them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import App, Cluster, Member
from ri2n_sdn.apps.declared_rows import Reading
from ri2n_sdn.apps.fast_path import obeys
from ri2n_sdn.apps.job_addresses import announcements
from ri2n_sdn.apps.patience import MUTE_S, await_most
from ri2n_sdn.contract.printing import printable
from ri2n_sdn.errors import BadInput, Ri2nError
from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.jobs.assign import assign
from ri2n_sdn.jobs.believed import believed
from ri2n_sdn.jobs.declaration import (
    Answer,
    Declaration,
    read_declaration,
    read_failure,
    write_answer,
    write_order,
)
from ri2n_sdn.jobs.earlier import Earlier, lanes_to_keep, taken_over
from ri2n_sdn.jobs.event_share import EventShare
from ri2n_sdn.jobs.history import Record, ended
from ri2n_sdn.jobs.history import kept as records_kept
from ri2n_sdn.jobs.lanes import LaneMap
from ri2n_sdn.jobs.members import Agreement, agree
from ri2n_sdn.jobs.model import Job, Policy
from ri2n_sdn.jobs.moves import moved
from ri2n_sdn.jobs.orders import told
from ri2n_sdn.jobs.reservations import at, needed, soon
from ri2n_sdn.pipeline.diff import Installed
from ri2n_sdn.pipeline.job_plan import number_channels, plan_jobs
from ri2n_sdn.pipeline.jobs import NO_JOBS, Enclosure, HostJobs, message_rows
from ri2n_sdn.pipeline.priorities import ORDER

__all__ = ["JobsApp", "jobs_changed"]

_LOG = logging.getLogger("ri2n.jobs")
_TICK_S = 0.5
# A turn waits for hosts' declarations for this time at most: until the first decision, which is
# about all hosts, and then. What comes later is used by a later turn.
_FIRST_READ_S, _READ_S = 1.0, 0.1
# A host's declarations are read again after this time, in case that a message was lost.
_AGAIN_S = 2.0
# A host whose answers about its declarations make no sense for this time is planned without its
# classes. One that has not answered is not planned at all.
_UNREAD_S = 3.0
# A host that has declared nothing for this time after the controller took over runs no job of
# before.
_GONE_S = 300.0
# Switches are told the addresses of isolated jobs again after this time. Most forget an address 300
# s after its last frame.
_ANNOUNCE_S = 60.0
_MAX_ORDERS_PER_HOST = 64
# So many records of ended jobs wait for a store that is away.
_MAX_UNWRITTEN = 1000


class JobsApp(App):
    """One thread, which has nothing to do until a host declares a job or an operator orders one.

    What hosts declare stands in their bridges, so a controller that starts reads the declarations
    as it reads rows. A host that has not answered yet is taken to run what the store remembers.
    """

    loop = "jobs"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The connection by which, and the time when, a host's declarations were read last.
        self._read: dict[str, tuple[Channel, float]] = {}
        # The requests for declarations that hosts have not answered yet.
        self._readings: dict[str, Reading] = {}
        # The connections of hosts that wait for it, and since when.
        self._met: dict[str, tuple[Channel, float]] = {}
        self._events = EventShare()
        # What the last decision was made of. It is made again when one of them has changed.
        self._basis: tuple[object, ...] = ()
        self._seen: dict[str, Job] = {}
        # The jobs that the controller before this one knew, and those of their hosts that have not
        # said yet what they run.
        self._remembered: Mapping[str, Job] = {}
        # What it had decided, until this one has decided itself.
        self._earlier: Earlier | None = None
        self._unheard: frozenset[str] = frozenset()
        self._unwritten: tuple[Record, ...] = ()
        self._loaded, self._loaded_s = False, 0.0
        # The walls of hosts whose addresses the switches were told, and when.
        self._announced: dict[str, tuple[Enclosure, float]] = {}
        # The hosts and the policy with which jobs were installed.
        self._installed_as: dict[str, tuple[tuple[str, ...], Policy]] = {}
        # Since when the bridges of a new job's hosts hold its rows.
        self._held_s: dict[str, float] = {}

    def _turn(self) -> None:
        cluster = self.cluster
        cluster.wake.jobs.wait(self._rest_s(time.monotonic()))
        cluster.wake.jobs.clear()
        now_s = time.monotonic()
        with cluster.lock:
            if cluster.passive is not None:
                # Another controller changes the book, and writes down what has ended.
                self._loaded, self._basis, self._unwritten = False, (), ()
                cluster.jobs.decided = False
                cluster.jobs.nudges.keep(())
                return
            # Nothing is decided before all hosts were asked that the controller waited for.
            started = cluster.started
            due = self._due(now_s)
            for member, _ in due:
                cluster.jobs.nudges.began_read(member.name, now_s)
        self._read_declarations(due)
        # What is remembered can be asked for before the first host is there.
        if not self._loaded and cluster.jobs.book.load():
            self._take_over(now_s)
        if not started:
            # Hosts have their time to declare jobs from when they can.
            self._loaded_s = now_s
            return
        with cluster.lock:
            fabric, state = cluster.fabric(), cluster.jobs
            declared = dict(state.declared)
            self._give_up(now_s)
        self._end_orders(time.time())
        # What one host declares must not end the decisions on all others, let alone the controller.
        with cluster.contain_fault("jobs_undecided"):
            self._decide(fabric, declared)
        with cluster.lock:
            self._announce(fabric, state.of_host, now_s)
        # Before a host may be planned: its answers are among the rows that it has.
        self._tell()
        self._admit(now_s)
        # Before the first decision, jobs that are not known have not ended.
        if self._basis:
            if not self._unheard:
                self._remembered = {}
            self._keep(time.time())

    def _take_over(self, now_s: float) -> None:
        """Go on from what the book has just read."""
        state = self.cluster.jobs
        self._seen = state.book.of_hosts()
        self._loaded, self._loaded_s, self._earlier = True, now_s, state.book.earlier()
        installed = state.book.installed()
        self._installed_as = {key: (job.hosts, job.policy) for key, job in installed.items()}
        # Who has carried out an order is known only of one that all have.
        orders = {key: job for key, job in installed.items() if job.source == "order"}
        self._remembered = {**self._seen, **orders}
        hosts = {host for job in self._remembered.values() for host in job.hosts}
        with self.cluster.lock:
            self._unheard = frozenset(hosts - state.declared.keys())
        if state.book.identity:
            # A controller that starts anew must make the same addresses.
            state.key = blake2b(state.book.identity.encode(), digest_size=32).digest()

    # What hosts declare

    def _rest_s(self, now_s: float) -> float:
        """In which time the next turn begins, if nothing happens before."""
        with self.cluster.lock:
            nudges = self.cluster.jobs.nudges
            waits_s = [nudges.due_in_s(member.name, now_s) for member, _ in self._askable(now_s)]
        return min([_TICK_S, *waits_s])

    def _askable(self, now_s: float) -> list[tuple[Member, Channel]]:
        """The hosts that can be asked for their declarations now (cluster.lock is held)."""
        return [
            (member, channel)
            for name, member in self.cluster.members.items()
            if (channel := member.channel) is not None
            and channel.mute_s(now_s) <= MUTE_S
            and (name not in self._readings or self._readings[name].channel is not channel)
        ]

    def _due(self, now_s: float) -> list[tuple[Member, Channel]]:
        """The hosts whose declarations are read now (cluster.lock is held)."""
        due = []
        members, state = self.cluster.members, self.cluster.jobs
        state.nudges.keep(members.keys())
        self._events.keep(members.keys())
        by_host: list[dict[str, Any]] = [self._read, self._readings, state.declared, state.faults]
        for of_host in (*by_host, state.failed):
            for name in of_host.keys() - members.keys():
                del of_host[name]
        again_s = max(_AGAIN_S, 0.02 * len(members))
        for member, channel in self._askable(now_s):
            read_by, read_s = self._read.get(member.name, (None, 0.0))
            nudged = state.nudges.due_in_s(member.name, now_s) == 0.0
            if nudged or read_by is not channel or now_s - read_s > again_s:
                due.append((member, channel))
        return due

    def _read_declarations(self, due: list[tuple[Member, Channel]]) -> None:
        """Ask some hosts for their declarations, and take in what was answered.

        What cannot be read stays as it was. Hosts that answer late do not keep the others waiting.
        """
        for member, channel in due:
            self._readings[member.name] = Reading.begin(channel, self._believed(member))
        asked = {member.name: self._readings[member.name].futures for member, _ in due}
        await_most(list(asked.items()), _READ_S if self._basis else _FIRST_READ_S)
        for name, reading in list(self._readings.items()):
            if reading.done:
                del self._readings[name]
                self._take(name, reading)
            elif name in asked:
                for future in reading.futures:
                    future.add_done_callback(lambda _: self.cluster.wake.jobs.set())

    def _believed(self, member: Member) -> frozenset[int]:
        """The cookies of the messages that a host's bridge holds for all that is known."""
        with self.cluster.lock:
            installed, notes = member.installed, member.planned_jobs.notes
            member.sent_messages.clear()
        if installed is None:
            return frozenset()
        return frozenset(flow.cookie for flow in message_rows(notes)) & installed.cookies.keys()

    def _take(self, name: str, reading: Reading) -> None:
        """Take in a host's answer about its declarations."""
        declarations: list[Declaration] = []
        faults: list[str] = []
        try:
            said, gone = reading.result()
        except Exception as error:
            # Whatever a reply holds, it is this host's fault alone.
            _LOG.debug("%s: its jobs cannot be read: %s", name, printable(repr(error)))
            with self.cluster.lock:
                self.cluster.jobs.nudges.nudged(name, time.monotonic())
            return
        for text in said.declared:
            try:
                declarations.append(read_declaration(name, text))
            except BadInput as error:
                faults.append(printable(str(error)))
        failed: dict[str, str] = {}
        for text in said.failed:
            try:
                failure = read_failure(name, text)
                failed[failure.id] = failure.why
            except BadInput as error:
                faults.append(printable(str(error)))
        with self.cluster.lock:
            state, member = self.cluster.jobs, self.cluster.members.get(name)
            if member is None or member.channel is not reading.channel:
                return
            self._read[name] = reading.channel, time.monotonic()
            self._unheard -= {name}
            self.cluster.counters.add("declarations_read")
            self.cluster.counters.add(
                "dropped_declaration_malformed", len(set(faults) - set(state.faults.get(name, ())))
            )
            state.declared[name] = tuple(declarations)
            state.faults[name] = tuple(faults)
            state.failed[name] = failed
            member.addresses = said.addresses
            self._renew(member, gone - member.sent_messages)

    def _renew(self, member: Member, gone: frozenset[int]) -> None:
        """Send messages again that a host's scripts have deleted (cluster.lock is held).

        `job-begin` deletes the answer to the job that had the class before, so that it does not
        take it for its own. If the new job is the same, so is its answer, and nothing would have to
        be sent if the row were still there. A message that was sent after the host was asked is not
        among `gone`: the answer says nothing about it.
        """
        installed = member.installed
        if installed is None or gone.isdisjoint(installed.cookies):
            return
        cookies = {key: table for key, table in installed.cookies.items() if key not in gone}
        member.installed = Installed(cookies, installed.groups)
        # This is no row that somebody has lost, so the next plan repairs nothing.
        member.dirty, member.audited_s = True, time.monotonic()
        self.cluster.wake.trunk.set()

    def _admit(self, now_s: float) -> None:
        """Let hosts be planned whose declarations were read, or cannot be read."""
        cluster = self.cluster
        with cluster.lock:
            if not cluster.jobs.decided:
                # From now on, it can be found out of each host which frames it accepts.
                cluster.jobs.decided = True
                for member in cluster.members.values():
                    member.dirty = True
            for name in self._met.keys() - cluster.members.keys():
                del self._met[name]
            for name, member in cluster.members.items():
                channel = member.channel
                if member.jobs_known or channel is None:
                    continue
                met_by, met_s = self._met.get(name, (None, now_s))
                if met_by is not channel:
                    met_s = now_s
                self._met[name] = channel, met_s
                read_by, _ = self._read.get(name, (None, 0.0))
                unread = now_s - met_s > _UNREAD_S and name not in self._readings
                if read_by is channel or unread:
                    member.jobs_known = member.dirty = True
                    cluster.wake.trunk.set()

    # What follows

    def _decide(self, fabric: Fabric, declared: Mapping[str, tuple[Declaration, ...]]) -> None:
        """Decide on the paths of all jobs, if anything has changed since the last decision."""
        cluster, state = self.cluster, self.cluster.jobs
        now_s = time.time()
        reserved = needed(
            state.book.reservations.values(), list(state.agreement.jobs.values()), now_s
        )
        phases = [(each.id, each.begin_s <= now_s, each.end_s <= now_s) for each in reserved]
        basis = (fabric, declared, self._unheard, state.book.version, phases)
        if self._basis and fabric is self._basis[0] and basis[1:] == self._basis[1:]:
            return
        book = state.book
        every = [each for declarations in declared.values() for each in declarations]
        every += believed(self._remembered, self._unheard, every, book.orders, book.moves)
        # With no job now and none before, nothing follows.
        if not every and not reserved and state.agreement == Agreement():
            self._basis, self._earlier = basis, None
            return
        before = replace(state.agreement, jobs={**self._remembered, **state.agreement.jobs})
        agreement = moved(agree(every, book.orders, before), book.moves)
        jobs = at((replace(job, id=key) for key, job in agreement.jobs.items()), reserved, now_s)
        # The decision must not depend on itself: it is made from all paths.
        plain = replace(fabric, reserved=None)
        held, wrong = state.assignment, state.wrong_lanes
        if self._earlier is not None:
            held, wrong = taken_over(self._earlier, LaneMap(plain), jobs)
        assignment = assign(plain, jobs, held, soon(reserved, now_s))
        decided = replace(plain, reserved=assignment)
        channels = number_channels(decided, agreement, assignment, state.key, state.channels)
        of_host = plan_jobs(decided, agreement, assignment, state.key, channels)
        with cluster.lock:
            self._note_changes(agreement)
            changed = assignment.lanes != state.assignment.lanes
            state.agreement, state.assignment, state.wrong_lanes = agreement, assignment, wrong
            self._earlier = None
            if state.channels != channels:
                state.channels = channels
                cluster.wake.striping.set()
            # Before the rows: switches must know these addresses when a frame goes to them.
            self._announce(fabric, of_host, time.monotonic())
            self._publish(of_host)
            if changed:
                cluster.topology_changed()
                fabric = cluster.fabric()
        self._basis = (fabric, *basis[1:])

    def _announce(self, fabric: Fabric, of_host: Mapping[str, HostJobs], now_s: float) -> None:
        """Tell the switches the addresses of isolated jobs, new ones at once and all again in time.

        cluster.lock is held.
        """
        walls = {name: wall for name, jobs in of_host.items() if (wall := jobs.enclosure)}
        for name in self._announced.keys() - walls.keys():
            del self._announced[name]
        for name, enclosure in walls.items():
            member = self.cluster.members.get(name)
            # A host whose description of itself makes no sense now is not in the fabric.
            if member is None or member.channel is None or name not in fabric.hosts:
                continue
            last = self._announced.get(name)
            if last is not None and last[0] == enclosure and now_s - last[1] < _ANNOUNCE_S:
                continue
            self._announced[name] = enclosure, now_s
            for port, frame in announcements(fabric, name, enclosure):
                member.channel.send_frame(port, frame)

    def _note_changes(self, agreement: Agreement) -> None:
        """Tell operators of jobs that are new or have other hosts (cluster.lock is held)."""
        before = self.cluster.jobs.agreement.jobs
        for key, job in agreement.jobs.items():
            if key not in before:
                self._note("job_begun", key, job.hosts, user=job.user, policy=job.policy.kind)
            elif before[key].policy != job.policy:
                self._note("job_changed", key, job.hosts, user=job.user, policy=job.policy.kind)

    def _note(self, code: str, key: str, hosts: Sequence[str], **args: str) -> None:
        """Tell operators of an event of a job on these hosts (cluster.lock is held).

        It counts for the first host. What is beyond the host's share is counted alone.
        """
        if self._events.take(hosts[0] if hosts else "", time.monotonic()):
            self.cluster.note(code, {"job": key}, hosts=hosts, **args)
        else:
            self.cluster.counters.add("job_events_not_told")

    def _publish(self, of_host: Mapping[str, HostJobs]) -> None:
        """Have the hosts planned whose rows must change, with the messages that they have."""
        state = self.cluster.jobs
        new = {name: replace(jobs, notes=state.rules(name).notes) for name, jobs in of_host.items()}
        for name in state.of_host.keys() - new.keys():
            if state.of_host[name].notes:
                new[name] = HostJobs(notes=state.of_host[name].notes)
        self._replace(new)

    def _replace(self, of_host: Mapping[str, HostJobs]) -> None:
        """Take over what the rows of hosts must hold, and mark the hosts that have other rows."""
        cluster, state = self.cluster, self.cluster.jobs
        before, state.of_host = state.of_host, of_host
        for name, member in cluster.members.items():
            if before.get(name, NO_JOBS) != of_host.get(name, NO_JOBS):
                member.dirty = True
                cluster.wake.trunk.set()

    # What hosts and operators are told

    def _tell(self) -> None:
        """Answer each declaration, and give the hosts their orders."""
        cluster, state = self.cluster, self.cluster.jobs
        with cluster.lock:
            state.lagging = frozenset()
            states = {key: self._state_of(key) for key in state.agreement.jobs}
            for key in (self._installed_as.keys() | self._held_s.keys()) - states.keys():
                self._installed_as.pop(key, None)
                self._held_s.pop(key, None)
            for key, (what, why) in states.items():
                if state.states.get(key, ("", ""))[0] != what:
                    in_part = what == "installed" and why
                    code = "job_installed_in_part" if in_part else f"job_{what}"
                    self._note(code, key, state.agreement.jobs[key].hosts, why=why)
            state.states = states
            notes: dict[str, dict[int, bytes]] = {}
            for host, declarations in state.declared.items():
                for declared in declarations:
                    answer = self._answer(host, declared, states)
                    notes.setdefault(host, {})[declared.number] = write_answer(answer)
            for host, orders in told(state.book.orders.values(), _MAX_ORDERS_PER_HOST).items():
                for number, order in orders:
                    notes.setdefault(host, {})[ORDER + number] = write_order(order)
            self._replace(
                {
                    name: jobs
                    for name in {*state.of_host, *notes}
                    if (jobs := replace(state.rules(name), notes=notes.get(name, {}))) != NO_JOBS
                }
            )

    def _state_of(self, key: str) -> tuple[str, str]:
        """(state, why) of a job (cluster.lock is held)."""
        cluster, state = self.cluster, self.cluster.jobs
        job = state.agreement.jobs[key]
        if key in state.assignment.refused:
            return "refused", state.assignment.refused[key]
        # A job that was installed stays so while its hosts are planned anew, for instance because a
        # NIC has died, or because this controller has just started.
        is_same = self._installed_as.get(key) == (job.hosts, job.policy)
        if not is_same and (why := self._lacks(key, job)):
            return "waiting", why
        waits = {state.agreement.waiting.get((host, job.id), "") for host in job.hosts} - {""}
        if waits and any(name in cluster.members for name in state.named(job)):
            return "waiting", sorted(waits)[0]
        self._held_s.pop(key, None)
        self._installed_as[key] = (job.hosts, job.policy)
        return "installed", sorted(waits)[0] if waits else ""

    def _lacks(self, key: str, job: Job) -> str:
        """Why a new job's paths do not hold yet; empty: they do (cluster.lock is held)."""
        if late := [name for name in job.hosts if not self._installed(name)]:
            self._held_s.pop(key, None)
            return f"the rows of {', '.join(late)} are not installed yet"
        held_s, cluster = self._held_s.setdefault(key, time.monotonic()), self.cluster
        lagging = {host for host in job.hosts if not obeys(cluster, cluster.members[host], held_s)}
        cluster.jobs.lagging |= lagging
        return "the fast paths of its hosts do not follow its rows yet" if lagging else ""

    def _installed(self, name: str) -> bool:
        """Whether a host's bridge holds what its jobs need (cluster.lock is held)."""
        member = self.cluster.members.get(name)
        return (
            member is not None
            and member.channel is not None
            and member.held_jobs.same_rows(self.cluster.jobs.rules(name))
        )

    def _answer(
        self, host: str, declared: Declaration, states: Mapping[str, tuple[str, str]]
    ) -> Answer:
        state = self.cluster.jobs
        name = declared.job.id
        refused = state.agreement.refused.get((host, name))
        if refused is not None:
            return Answer(name, "refused", refused)
        key = state.agreement.by_class.get((host, declared.number), "")
        what, why = states.get(key, ("waiting", "the controller has not decided yet"))
        return Answer(name, what, why)

    # What is kept

    def _end_orders(self, now_s: float) -> None:
        """End orders whose time is over."""
        over = [
            ended(job, job.end_s, "its time was over")
            for job in self.cluster.jobs.book.orders.values()
            if job.end_s is not None and job.end_s <= now_s
        ]
        self._end(over)

    def _end(self, records: Sequence[Record]) -> bool:
        """Write down that jobs have ended, and return whether that could be done.

        All are one change of the store, which takes a while.
        """
        if not records:
            return True
        try:
            self.cluster.jobs.book.end(*records)
        except Ri2nError as error:
            self._fault(str(error))
            return False
        with self.cluster.lock:
            for record in records:
                why = {"user": record.user, "why": record.why}
                self._note("job_ended", record.id, record.hosts, **why)
        return True

    def _keep(self, now_s: float) -> None:
        """Keep the jobs that there are, and write down those that have ended."""
        cluster, state = self.cluster, self.cluster.jobs
        with cluster.lock:
            jobs, assignment = dict(state.agreement.jobs), state.assignment
            kept = {key: (job, *state.states.get(key, ("", ""))) for key, job in jobs.items()}
        over = []
        for key, job in list(self._seen.items()):
            if key in jobs or key in state.book.orders:
                continue
            if not self._unheard.isdisjoint(job.hosts):
                kept.setdefault(key, (job, "waiting", "its hosts are away"))
                continue
            del self._seen[key]
            if job.source == "host":
                over.append(ended(replace(job, id=key), now_s, "its hosts have ended it"))
        # Some ended while the store was away. An order that has the id of one now goes on.
        waiting = [each for each in self._unwritten if each.id not in state.book.orders]
        self._unwritten = records_kept(waiting, over, _MAX_UNWRITTEN)
        if self._end(self._unwritten):
            self._unwritten = ()
        for key, job in jobs.items():
            # Hosts end a job one after the other; the record shall name all of them.
            before = self._seen.get(key)
            hosts = {*job.hosts, *(before.hosts if before is not None else ())}
            self._seen[key] = replace(job, hosts=tuple(sorted(hosts)))
        lanes = {**dict.fromkeys(kept.keys() - assignment.jobs), **lanes_to_keep(assignment)}
        try:
            state.book.keep(kept, lanes)
        except Ri2nError as error:
            self._fault(str(error))
            return
        with cluster.lock:
            cluster.faults.pop("jobs_not_kept", None)

    def _give_up(self, now_s: float) -> None:
        """Take it that some hosts run none of the jobs of before (cluster.lock is held).

        These are the hosts that had their time since this controller took over and have declared
        nothing. A host that is away and known may still run them. One that was read and then left
        has said which jobs it has: if its jobs of before were kept as well, a host that comes and
        goes could have any number of them.
        """
        if now_s - self._loaded_s >= _GONE_S:
            members = self.cluster.members
            self._unheard = frozenset(
                name for name in self._unheard if name in members and members[name].channel is None
            )

    def _fault(self, text: str) -> None:
        with self.cluster.lock:
            self.cluster.faults["jobs_not_kept"] = printable(text)


def jobs_changed(cluster: Cluster, host: str) -> None:
    """Take in a host's message that its jobs have changed (cluster.lock is not held)."""
    with cluster.lock:
        # Another message before the next read says nothing new, so it wakes nobody.
        if cluster.jobs.nudges.nudged(host, time.monotonic()):
            cluster.wake.jobs.set()
