# SPDX-License-Identifier: Apache-2.0
"""The trunk app: gives each host the rows and groups that `pipeline.plan` wants for it.

It reads what a bridge holds and sends only the difference.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future

# Before Python 3.11 this is another class than the built-in TimeoutError.
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from typing import Any

from ri2n_sdn.apps import codec, identity
from ri2n_sdn.apps.channel import Channel, Refused
from ri2n_sdn.apps.cluster import App, Member
from ri2n_sdn.apps.openflow import ofp
from ri2n_sdn.apps.patience import MUTE_S, RETRY_S, await_most
from ri2n_sdn.apps.startup_rows import MAX_EXTRA_MACS, STARTUP_ROWS, read_addresses
from ri2n_sdn.fabric.model import Fabric, PathKey
from ri2n_sdn.pipeline.diff import (
    AddFlow,
    AddGroup,
    Change,
    DeleteFlows,
    Installed,
    Message,
    ModifyGroup,
    Phase,
    apply,
    batches,
    difference,
    is_full,
    part,
)
from ri2n_sdn.pipeline.layout import (
    GUEST_PORTS,
    LOCAL,
    Table,
    path_of_register,
)
from ri2n_sdn.pipeline.messages import Group, SetField, Wanted
from ri2n_sdn.pipeline.plan import pair_cookie, pair_group_id, plan_host, plan_probes_only
from ri2n_sdn.pipeline.priorities import Receive

__all__ = ["TrunkApp"]

_LOG = logging.getLogger("ri2n.trunk")
# A turn waits for a host's answers for this time at most.
_READ_S = 5.0
# Each host is audited after this time, or after _AUDIT_EACH_S for each host if that is longer:
# an audit reads all rows of a host, which is much work where hosts are many.
_AUDIT_S = 10.0
_AUDIT_EACH_S = 0.3
_AUDITS_AT_ONCE = 8
# A host that is away for this time and that no host hears is forgotten.
_FORGET_S = 300.0
# A group stays in the switch for this time after its last row is gone. A datapath goes on hashing
# for a group until ovs-vswitchd has looked through its flow cache (every 0.5 s at the latest,
# longer on a busy machine). If the group is gone by then, frames between hash and bucket are lost.
# The time is less than _AUDIT_S, so that an audit does not count these groups as unknown ones.
_UNUSED_GROUP_S = 8.0


@dataclass(frozen=True)
class _Reading:
    """The open requests for what a bridge holds, and their connection.

    They ask for its rows, its groups, and the rows of `host-up`. A late answer is used all the
    same.
    """

    channel: Channel
    futures: tuple[Future[bytes], Future[bytes], Future[bytes]]


class TrunkApp(App):
    """One thread reads, plans and changes the hosts that are dirty, and audits the others."""

    loop = "trunk"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._readings: dict[str, _Reading] = {}
        # The number of connected hosts that are not mute.
        self._answering = 0

    def _turn(self) -> None:
        cluster = self.cluster
        cluster.wake.trunk.wait(0.1)
        cluster.wake.trunk.clear()
        now_s = time.monotonic()
        with cluster.lock:
            if cluster.passive is not None:
                return
            self._forget(now_s)
            for name in self._readings.keys() - cluster.members.keys():
                del self._readings[name]
            for member in self._due_for_audit(now_s):
                member.installed, member.dirty = None, True
            for member in cluster.members.values():
                member.dirty |= now_s >= member.sweep_s
            work = [
                (member, channel)
                for member, channel in cluster.connections()
                if member.dirty and now_s >= member.retry_s and channel.mute_s(now_s) < MUTE_S
            ]
            for member, _ in work:
                member.busy = True
            # Hosts that become known meanwhile are planned by a later turn, after `_adopt`.
            known = {name for name, member in cluster.members.items() if member.jobs_known}
            decided = cluster.jobs.decided
            self._answering = sum(
                channel.mute_s(now_s) < MUTE_S for _, channel in cluster.connections()
            )
        try:
            unread = [(member, channel) for member, channel in work if member.installed is None]
            self._read(unread)
            if cluster.started:
                read = {member.name for member, _ in unread}
                # The rows of a host depend on its jobs. A host that is late with what it declares,
                # and perhaps mute, still receives frames, and other hosts' rows depend on that.
                with cluster.lock:
                    found = [
                        member
                        for name, member in cluster.members.items()
                        if member.installed is not None
                        and (decided or name in known)
                        and (name in read or not member.adopted)
                    ]
                self._adopt(found)
            changes = self._plan(work, known)
            # All hosts can receive by the new plan before any host sends by it. They go on
            # receiving by the old plan until no host sends by it any more.
            for phase in Phase:
                sent = [turn for turn in changes if self._sent(*turn, phase)]
                self._acknowledge([(member, channel) for member, channel, _ in sent], phase)
        except Exception:
            with cluster.lock:
                for member, _ in work:
                    member.installed, member.dirty = None, True
            raise
        finally:
            with cluster.lock:
                for member, _ in work:
                    member.busy = False
            if work:
                # Jobs may wait for these rows.
                cluster.wake.jobs.set()

    def _due_for_audit(self, now_s: float) -> list[Member]:
        """The hosts that are read again now: those whose last audit is the longest ago.

        They are few at once, so that the other hosts can be changed in the same turn.
        """
        if not self.cluster.started:
            return []
        members = self.cluster.members.values()
        every_s = max(_AUDIT_S, _AUDIT_EACH_S * len(members))
        due = [
            member
            for member in members
            if now_s - member.audited_s > every_s and member.installed is not None
        ]
        return sorted(due, key=lambda member: member.audited_s)[:_AUDITS_AT_ONCE]

    def _forget(self, now_s: float) -> None:
        """Forget hosts that are away for long and from which no other host receives any more.

        Such a host may be an unmanaged one now. A host that others still receive from is kept.
        """
        cluster = self.cluster
        for name, member in list(cluster.members.items()):
            if member.channel is not None or now_s - member.left_s < _FORGET_S:
                continue
            heard = any(
                path.rx_bps
                for (sender, _), paths in cluster.measured.rates.items()
                if sender == name
                for path in paths.values()
            )
            if heard:
                member.left_s = now_s
                continue
            cluster.forget(member, "host_away_long", away_s=_FORGET_S)

    def _read(self, work: list[tuple[Member, Channel]]) -> None:
        """Read what bridges hold, and keep it in `member.installed`.

        A host that does not answer in time stays dirty, and a later turn takes its answer: the
        others do not wait for it again.
        """
        asked = []
        for member, channel in work:
            reading = self._readings.get(member.name)
            if reading is None or reading.channel is not channel:
                futures = (
                    channel.request(codec.flows()),
                    channel.request(codec.GROUPS),
                    channel.request(STARTUP_ROWS),
                )
                self._readings[member.name] = _Reading(channel, futures)
                asked.append((member.name, futures))
        await_most(asked, _READ_S, self._answering - len(asked))
        for member, channel in work:
            reading = self._readings[member.name]
            if not all(future.done() for future in reading.futures):
                continue
            del self._readings[member.name]
            try:
                of_rows, of_groups, of_startup = (
                    future.result(timeout=0) for future in reading.futures
                )
                rows = codec.read_flow_counters(of_rows)
                groups_held = codec.read_groups(of_groups)
                addresses = read_addresses(of_startup)
            except Exception as error:
                # Whatever a reply holds, it is this host's fault alone.
                _LOG.warning(
                    "%s: its rows cannot be read, and are asked for again: %s",
                    *(member.name, error),
                    extra={"fields": {"host": member.name}},
                )
                member.retry_s = time.monotonic() + RETRY_S
                continue
            with self.cluster.lock:
                if member.channel is channel:
                    member.installed = Installed(
                        {row.cookie: row.table for row in rows},
                        {group.group_id: group for group in groups_held},
                    )
                    own = identity.claims(member)
                    by_mac = {
                        guest.mac: guest
                        for guest in sorted(addresses, reverse=True)
                        if guest.mac not in own
                    }
                    behind = sorted(by_mac.values())[:MAX_EXTRA_MACS]
                    extra = tuple(guest.mac for guest in behind if guest.port == LOCAL)
                    guests = tuple(guest for guest in behind if guest.port in GUEST_PORTS)
                    if (member.extra_macs, member.guests) != (extra, guests):
                        member.extra_macs, member.guests = extra, guests
                        self.cluster.topology_changed()

    def _adopt(self, members: Sequence[Member]) -> None:
        """Take over what an earlier controller left in these hosts.

        These are the slot tables that are installed, and whether the hosts accept frames with NIC
        addresses. A controller that starts anew thus continues where the last one stopped, and
        moves no flow.
        """
        cluster = self.cluster
        if not members:
            return
        with cluster.lock:
            fabric = cluster.fabric()
        for member in members:
            with cluster.contain_fault("rows_not_taken_over", member):
                with cluster.lock:
                    self._adopt_tables(fabric, member)
                    installed = member.installed
                if installed is not None and not _fresh(fabric, member, installed):
                    self._adopt_receiving(fabric, member, installed)

    def _adopt_tables(self, fabric: Fabric, member: Member) -> None:
        """Take over the slot tables of an earlier controller (cluster.lock is held)."""
        cluster = self.cluster
        if member.installed is None:
            return
        # This is done once for a host: a group that is no longer wanted must not come back.
        # So must a group that no row uses. The earlier controller had not deleted it yet, and this
        # one does.
        for peer, receiver in () if member.adopted else cluster.members.items():
            group = member.installed.groups.get(pair_group_id(peer))
            if pair_cookie(member.mac, receiver.mac, peer) not in member.installed.cookies:
                continue
            pair = (member.name, peer)
            if peer != member.name and group is not None and pair not in cluster.pair_slots:
                slots = _slots_of(group)
                if slots is not None and len(slots) == cluster.config.slots:
                    cluster.pair_slots[pair] = slots
                    cluster.measured.tallies.tables_changed({}, {pair: slots}, {pair: 0})
                    alive = [path.key for path in fabric.paths(*pair) if path.alive]
                    cluster.loop.adopt(time.monotonic(), pair, slots, alive)
        member.adopted = True

    def _adopt_receiving(self, fabric: Fabric, member: Member, installed: Installed) -> None:
        """Find out from its rows whether a host accepts frames with NIC addresses.

        The lock is not held for it, since it is as much work as a whole plan.
        """
        with self.cluster.lock:
            of_jobs = self.cluster.jobs.rules(member.name)
        wanted = plan_host(fabric, member.name, {}, self.cluster.config.slots, of_jobs)
        needed = {
            cookie
            for cookie, flow in wanted.flows.items()
            if flow.table in (Table.CLASSIFY, Table.RECEIVE_COUNT)
            or (flow.table, flow.priority) == Receive.TO_NIC
        }
        accepts = needed <= installed.cookies.keys()
        with self.cluster.lock:
            # After a change of wiring, a row more may be needed than there is. The host still
            # accepts such frames: only a bridge that has lost all these rows does not.
            if member.installed is installed and (accepts or not needed & installed.cookies.keys()):
                self._set_accepts(member, accepts)

    def _set_accepts(self, member: Member, accepts: bool) -> None:
        if member.accepts_wire != accepts:
            member.accepts_wire = accepts
            self.cluster.topology_changed()

    def _plan(
        self, work: list[tuple[Member, Channel]], known: Collection[str]
    ) -> list[tuple[Member, Channel, Change]]:
        """What to send to each host. All hosts are planned by the same fabric.

        The jobs of the hosts in `known` are known. What changes meanwhile makes hosts dirty again.
        """
        cluster = self.cluster
        with cluster.lock:
            fabric = cluster.fabric()
            readable = [
                (member, channel)
                for member, channel in work
                if member.installed is not None and cluster.members.get(member.name) is member
            ]
            for member, _ in readable:
                member.dirty = False
        changes = []
        for member, channel in readable:
            change = None
            with cluster.contain_fault("rows_not_planned", member):
                # This is much work where hosts are many. The lock is not held for it, so that no
                # other thread waits. `busy` keeps other threads from this host; what they would
                # have changed makes it dirty again.
                wanted = self._wanted(fabric, member, known)
                with cluster.lock:
                    installed = member.installed
                missing = difference(wanted, installed) if installed is not None else None
                with cluster.lock:
                    if missing is None or member.installed is None:
                        continue
                    change = self._accepted(member, wanted, missing)
            with cluster.lock:
                if change is None:
                    member.dirty, member.retry_s = True, time.monotonic() + RETRY_S
                else:
                    changes.append((member, channel, change))
        return changes

    def _accepted(self, member: Member, wanted: Wanted, change: Change) -> Change:
        """The part of a change that is sent now (cluster.lock is held).

        It keeps `wanted` as the host's plan, and counts what an audit had to repair.
        """
        cluster = self.cluster
        if not is_full(wanted):
            # What an earlier controller left stays in use until there is a full plan.
            change = Change(change.add_groups, change.add_flows)
        now_s = time.monotonic()
        if now_s - member.audited_s > _AUDIT_S and member.wanted == wanted:
            member.repairs = member.repairs + 1 if change else 0
            if change:
                cluster.counters.add("audit_repairs")
                cluster.note("rows_repaired", {"host": member.name})
        if not _may_sweep(member, change, now_s):
            change = replace(change, delete_groups=())
        member.audited_s = now_s
        member.wanted = wanted
        return change

    def _sent(self, member: Member, channel: Channel, whole: Change, phase: Phase) -> bool:
        """Do `_send`. A failure is kept to this host, which is then read again."""
        if member.installed is None or self.cluster.passive is not None:
            return False
        with self.cluster.contain_fault("rows_not_sent", member):
            return self._send(member, channel, whole, phase)
        member.installed, member.dirty, member.retry_s = None, True, time.monotonic() + RETRY_S
        return False

    def _send(self, member: Member, channel: Channel, whole: Change, phase: Phase) -> bool:
        """Send the part of a host's change that belongs to the phase.

        Returns False when there is nothing to wait for.
        """
        cluster = self.cluster
        change = part(whole, phase)
        with cluster.lock:
            if member.installed is None:
                return False
            cluster.counters.add("flow_mods", change.rows)
            cluster.counters.add(
                "group_mods",
                len(change.add_groups) + len(change.modify_groups) + len(change.delete_groups),
            )
        # Encoding takes long. `busy` keeps other threads from this host, and the lock is free for
        # its probes.
        for number, batch in enumerate(batches(change)):
            if number:
                channel.send(ofp.OFPT_BARRIER_REQUEST)
            for message in batch:
                _send_message(channel, message)
        with cluster.lock:
            # Not before sending: the jobs app asks a host for messages in `installed`, and the host
            # must get a message before the request. `installed` is None when the host has refused a
            # row or has left.
            if member.installed is not None:
                member.installed = apply(change, member.installed)
            member.sent_messages.update(
                flow.cookie for flow in change.add_flows if flow.table == Table.JOB_ANSWERS
            )
        return phase is Phase.SEND or bool(change)

    def _wanted(self, fabric: Fabric, member: Member, known: Collection[str]) -> Wanted:
        """A host's plan: full, or for probes alone while the controller does not know enough."""
        cluster = self.cluster
        host = fabric.hosts[member.name]
        wired = [nic for nic in host.nics if nic.network is not None]
        with cluster.lock:
            started = cluster.started
            member.planned_jobs = of_jobs = cluster.jobs.rules(member.name)
            pairs = {
                receiver: slots
                for (sender, receiver), slots in cluster.pair_slots.items()
                if sender == member.name and receiver in fabric.hosts
            }
        if not started or not wired or member.name not in known:
            return plan_probes_only(host)
        return plan_host(fabric, member.name, pairs, cluster.config.slots, of_jobs)

    def _acknowledge(self, sent: list[tuple[Member, Channel]], phase: Phase) -> None:
        """Wait until the hosts have processed what was sent: only then may other hosts rely on it.

        A host that does not confirm it in time is read again.
        """
        barriers = [(member, channel, channel.barrier()) for member, channel in sent]
        await_most([(member.name, (barrier,)) for member, _, barrier in barriers], _READ_S)
        for member, channel, barrier in barriers:
            try:
                barrier.result(timeout=0)
            except (FutureTimeoutError, Refused, ConnectionError):
                with self.cluster.lock:
                    member.installed, member.dirty = None, True
                    member.retry_s = time.monotonic() + RETRY_S
                continue
            with self.cluster.lock:
                if (
                    phase is not Phase.SEND
                    or member.channel is not channel
                    or member.installed is None
                ):
                    continue
                member.reports_probes, member.held_jobs = True, member.planned_jobs
                if member.wanted is not None and is_full(member.wanted):
                    self._set_accepts(member, True)
                now_s = time.monotonic()
                for port in member.ports.values():
                    nic = (member.name, port.number)
                    if not self.cluster.wiring.knows(nic):
                        self.cluster.wiring.set_nic(nic, port.up, now_s)


def _fresh(fabric: Fabric, member: Member, installed: Installed) -> bool:
    """Whether a host has no rows yet that receive from other hosts, as on a new bridge.

    It saves a plan: such a host does not accept frames with NIC addresses.
    """
    others = any(host.nics for name, host in fabric.hosts.items() if name != member.name)
    return (
        not member.accepts_wire and others and Table.RECEIVE_COUNT not in installed.cookies.values()
    )


def _may_sweep(member: Member, change: Change, now_s: float) -> bool:
    """Whether groups that no row uses may be deleted: not before their rows are gone for a while.

    Sets `member.sweep_s`, when that is so.
    """
    if not change.delete_groups:
        member.sweep_s = math.inf
        return True
    if math.isinf(member.sweep_s) or change.rows:
        member.sweep_s = now_s + _UNUSED_GROUP_S
        return False
    if now_s < member.sweep_s:
        return False
    member.sweep_s = math.inf
    return True


def _send_message(channel: Channel, message: Message) -> None:
    """Encode and queue one message."""
    xid = channel.next_xid()
    if isinstance(message, AddFlow):
        data = codec.add_flow(message.flow, xid)
    elif isinstance(message, DeleteFlows):
        data = codec.delete_flows(message.cookie, xid)
    elif isinstance(message, AddGroup):
        data = codec.group_mod(codec.OFPGC_ADD, message.group, xid)
    elif isinstance(message, ModifyGroup):
        data = codec.group_mod(codec.OFPGC_MODIFY, message.group, xid)
    else:
        data = codec.group_mod(codec.OFPGC_DELETE, Group(message.group_id, Group.SELECT, ()), xid)
    channel.send_bytes(data)


def _slots_of(group: Group) -> tuple[PathKey, ...] | None:
    """The slot table in an installed group; None when no controller of this project made it."""
    slots = []
    for bucket in group.buckets:
        match bucket.actions:
            case (SetField("reg1", int(value)), *_):
                slots.append(path_of_register(value))
            case _:
                return None
    return tuple(slots) if slots else None
