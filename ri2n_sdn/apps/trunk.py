"""The trunk app:

brings every host's tables and groups to what `pipeline.plan` wants, by difference.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import (
    TimeoutError as FutureTimeoutError,
)  # another than the built-in one before Python 3.11
from dataclasses import dataclass, replace
from typing import Any

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.channel import Channel, Refused
from ri2n_sdn.apps.cluster import Cluster, Member, guarded_loop
from ri2n_sdn.apps.flow_codec import flow_mod
from ri2n_sdn.apps.flow_messages import add_flow, delete_flows, flow_request
from ri2n_sdn.apps.openflow import OSKenApp, ofp, parser
from ri2n_sdn.apps.patience import MUTE_S, await_most
from ri2n_sdn.apps.startup_rows import MAX_EXTRA_MACS, read_addresses, startup_request
from ri2n_sdn.fabric.model import Fabric, PairKey, PathKey
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
from ri2n_sdn.pipeline.plan import pair_group_id, plan_host, plan_probes_only, slot_group
from ri2n_sdn.pipeline.slot_tables import table_changes, table_in_force
from ri2n_sdn.weights.loop import PairDecision

__all__ = ["TrunkApp", "send_slots", "slots_in_force"]

_LOG = logging.getLogger("ri2n.trunk")
_READ_S = 5.0
_AUDIT_S = 10.0
_AUDIT_EACH_S = 0.3  # with many hosts less often: all that they hold is read
_AUDITS_AT_ONCE = 8
_AGAIN_S = 1.0
_FORGET_S = 300.0
# A datapath goes on hashing for a group until ovs-vswitchd has looked through its flow cache (every
# 0.5 s at the latest, longer on a busy machine); frames between hash and bucket are lost if the
# group is gone by then. Less than _AUDIT_S, so that an audit does not take these groups for strays.
_UNUSED_GROUP_S = 8.0


@dataclass(frozen=True)
class _Reading:
    """What a bridge was asked, and by which connection.

    An answer that comes late is good all the same.
    """

    channel: Channel
    flows: Future[list[Any]]
    groups: Future[list[Any]]
    startup: Future[list[Any]]

    @property
    def done(self) -> bool:
        """All of it is answered, or will not be."""
        return self.flows.done() and self.groups.done() and self.startup.done()


class TrunkApp(OSKenApp):
    """One thread reads, plans and changes the hosts that are marked dirty.

    The same one audits the others.
    """

    OFP_VERSIONS = [ofp.OFP_VERSION]  # noqa: RUF012 - os-ken's interface
    cluster: Cluster

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._readings: dict[str, _Reading] = {}
        self._answering = 0  # connected hosts that are not mute

    def start(self) -> None:
        super().start()
        guarded_loop(self.cluster, "trunk", self._turn)

    def _turn(self) -> None:
        cluster = self.cluster
        cluster.wake.trunk.wait(0.1)
        cluster.wake.trunk.clear()
        now_s = time.monotonic()
        with cluster.lock:
            self._forget(now_s)
            for name in self._readings.keys() - cluster.members.keys():
                del self._readings[name]
            for member in self._due_for_audit(now_s):
                member.installed, member.dirty = None, True
            for member in cluster.members.values():
                member.dirty |= now_s >= member.sweep_s
            work = [
                (member, member.channel)
                for member in cluster.members.values()
                if member.dirty
                and member.channel is not None
                and now_s >= member.retry_s
                and member.channel.mute_s(now_s) < MUTE_S
            ]
            for member, _ in work:
                member.busy = True
            self._answering = sum(
                member.channel is not None and member.channel.mute_s(now_s) < MUTE_S
                for member in cluster.members.values()
            )
        try:
            unread = [(member, channel) for member, channel in work if member.installed is None]
            self._read(unread)
            if cluster.started:
                read = {member.name for member, _ in unread}
                self._adopt(
                    [member for member, _ in work if member.name in read or not member.adopted]
                )
            changes = self._plan(work)
            # All hosts can receive by the new plan before any of them sends by it, and go on
            # receiving by the old one until none of them does.
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

    def _due_for_audit(self, now_s: float) -> list[Member]:
        """Hosts to be read again now:

        longest ago first, and few at once, so that the others can be changed.
        """
        members = self.cluster.members.values()
        every_s = max(_AUDIT_S, _AUDIT_EACH_S * len(members))
        due = [
            member
            for member in members
            if now_s - member.audited_s > every_s and member.installed is not None
        ]
        return (
            sorted(due, key=lambda member: member.audited_s)[:_AUDITS_AT_ONCE]
            if self.cluster.started
            else []
        )

    def _forget(self, now_s: float) -> None:
        """A host that is away for long and that nobody hears any more may have become an
        unmanaged one.
        """
        cluster = self.cluster
        for name, member in list(cluster.members.items()):
            if member.channel is not None or now_s - member.left_s < _FORGET_S:
                continue
            heard = any(
                path.rx_bps > 0
                for (sender, _), paths in cluster.measured.rates.items()
                if sender == name
                for path in paths.values()
            )
            if heard:
                member.left_s = now_s
                continue
            cluster.forget(member, f"{name} is forgotten: not connected for {_FORGET_S:.0f} s")

    def _read(self, work: list[tuple[Member, Channel]]) -> None:
        """Ask what bridges hold. Who has not answered yet stays dirty and is waited for once:

        others have work, too.
        """
        asked = []
        for member, channel in work:
            open_one = self._readings.get(member.name)
            if open_one is None or open_one.channel is not channel:
                flows = channel.request(flow_request(channel))
                groups = channel.request(
                    parser.OFPGroupDescStatsRequest(channel.datapath, 0, ofp.OFPG_ALL)
                )
                startup = channel.request(startup_request(channel))
                self._readings[member.name] = _Reading(channel, flows, groups, startup)
                asked.append((member.name, (flows, groups, startup)))
        await_most(asked, _READ_S, self._answering - len(asked))
        for member, channel in work:
            reading = self._readings[member.name]
            if not reading.done:
                continue
            del self._readings[member.name]
            try:
                rows = _bodies(reading.flows, codec.read_flow_counters)
                found = _bodies(reading.groups, codec.read_groups)
                addresses = _bodies(reading.startup, read_addresses)
            except Exception as error:  # whatever it says, it is this host that says it
                _LOG.warning("%s: cannot read what it holds: %s", member.name, error)
                member.retry_s = time.monotonic() + _AGAIN_S
                continue
            with self.cluster.lock:
                if member.channel is channel:
                    member.installed = Installed(
                        {row.cookie: row.table for row in rows},
                        {group.group_id: group for group in found},
                    )
                    own = {
                        member.mac.lower(),
                        *(port.mac.lower() for port in member.ports.values()),
                    }
                    by_mac = {
                        each.mac: each
                        for each in sorted(addresses, reverse=True)
                        if each.mac not in own
                    }
                    behind = sorted(by_mac.values())[:MAX_EXTRA_MACS]
                    extra = tuple(each.mac for each in behind if each.port == LOCAL)
                    guests = tuple(each for each in behind if each.port in GUEST_PORTS)
                    if (member.extra_macs, member.guests) != (extra, guests):
                        member.extra_macs, member.guests = extra, guests
                        self.cluster.topology_changed()

    def _adopt(self, members: list[Member]) -> None:
        """Take over slot tables that are installed, and find hosts that already accept NIC
        addresses.

        A controller that starts anew thus continues where the last one stopped, and moves no flow.
        """
        cluster = self.cluster
        with cluster.lock:
            fabric = cluster.fabric()
        for member in members:
            with cluster.alone(member, "what it holds cannot be taken over"):
                with cluster.lock:
                    self._adopt_tables(fabric, member)
                    installed = member.installed
                if installed is not None and not _fresh(fabric, member, installed):
                    self._adopt_receiving(fabric, member, installed)

    def _adopt_tables(self, fabric: Fabric, member: Member) -> None:
        """Slot tables of an earlier controller (cluster.lock is held)."""
        cluster = self.cluster
        if member.installed is None:
            return
        # Only what an earlier controller left: a group that is no longer wanted must not come back.
        for peer in () if member.adopted else cluster.members:
            group = member.installed.groups.get(pair_group_id(peer))
            pair = (member.name, peer)
            if peer != member.name and group is not None and pair not in cluster.pair_slots:
                slots = _slots_of(group)
                if slots is not None and len(slots) == cluster.config.slots:
                    cluster.pair_slots[pair] = slots
                    alive = [path.key for path in fabric.paths(*pair) if path.alive]
                    cluster.loop.adopt(time.monotonic(), pair, slots, alive)
        member.adopted = True

    def _adopt_receiving(self, fabric: Fabric, member: Member, installed: Installed) -> None:
        """Whether it takes frames with NIC addresses.

        Without the lock, as it is as much work as a whole plan.
        """
        wanted = plan_host(fabric, member.name, {}, self.cluster.config.slots)
        needed = {
            cookie
            for cookie, flow in wanted.flows.items()
            if flow.table in (Table.CLASSIFY, Table.RECEIVE_COUNT)
            or (flow.table == Table.RECEIVE and flow.priority == 195)
        }
        accepts = needed <= installed.cookies.keys()
        with self.cluster.lock:
            # A change of wiring may want a row more: only a bridge that lost all of them is back at
            # nothing.
            if member.installed is installed and (accepts or not needed & installed.cookies.keys()):
                self._set_accepts(member, accepts)

    def _set_accepts(self, member: Member, accepts: bool) -> None:
        if member.accepts_wire != accepts:
            member.accepts_wire = accepts
            self.cluster.topology_changed()

    def _plan(self, work: list[tuple[Member, Channel]]) -> list[tuple[Member, Channel, Change]]:
        """What to send to each host, all by the fabric of one moment:

        what changes meanwhile makes them dirty again.
        """
        cluster = self.cluster
        with cluster.lock:
            fabric = cluster.fabric()
            known = [
                (member, channel)
                for member, channel in work
                if member.installed is not None and cluster.members.get(member.name) is member
            ]
            for member, _ in known:
                member.dirty = False
        changes = []
        for member, channel in known:
            change = None
            with cluster.alone(member, "it cannot be planned and keeps what it has"):
                # Much work where hosts are many. It is done without the lock, so that nobody else
                # is late for it; `busy` keeps others from this host, and what they would have
                # changed makes it dirty again.
                wanted = self._wanted(fabric, member)
                with cluster.lock:
                    installed = member.installed
                missing = difference(wanted, installed) if installed is not None else None
                with cluster.lock:
                    if missing is None or member.installed is None:
                        continue
                    change = self._accepted(member, wanted, missing)
            with cluster.lock:
                if change is None:
                    member.dirty, member.retry_s = True, time.monotonic() + _AGAIN_S
                else:
                    changes.append((member, channel, change))
        return changes

    def _accepted(self, member: Member, wanted: Wanted, change: Change) -> Change:
        """What of a change is sent now.

        From now on the host is known to hold `wanted` (cluster.lock is held).
        """
        cluster = self.cluster
        if not is_full(wanted):
            # What an earlier controller left stays in use until there is a whole plan.
            change = Change(change.add_groups, change.add_flows)
        now_s = time.monotonic()
        if now_s - member.audited_s > _AUDIT_S and member.wanted == wanted:
            member.repairs = member.repairs + 1 if change else 0
            if change:
                cluster.counters["audit_repairs"] += 1
                cluster.note(f"{member.name}: rows were missing or strange, put right")
        if not _may_sweep(member, change, now_s):
            change = replace(change, delete_groups=())
        member.audited_s = now_s
        member.wanted = wanted
        return change

    def _sent(self, member: Member, channel: Channel, whole: Change, phase: Phase) -> bool:
        """`_send`, of which what fails is this host's alone."""
        if member.installed is None:
            return False
        with self.cluster.alone(member, "its rows cannot be sent"):
            return self._send(member, channel, whole, phase)
        member.installed, member.dirty, member.retry_s = None, True, time.monotonic() + _AGAIN_S
        return False

    def _send(self, member: Member, channel: Channel, whole: Change, phase: Phase) -> bool:
        """Send what of a host's change belongs to the phase.

        False when there is nothing to wait for.
        """
        cluster = self.cluster
        change = part(whole, phase)
        with cluster.lock:
            if member.installed is None:
                return False
            member.installed = apply(change, member.installed)
            cluster.counters["flow_mods"] += change.rows
            cluster.counters["group_mods"] += (
                len(change.add_groups) + len(change.modify_groups) + len(change.delete_groups)
            )
        # Encoding takes long; `busy` keeps others from this host, and the lock is free for its
        # probes.
        for number, batch in enumerate(batches(change)):
            if number:
                channel.send(parser.OFPBarrierRequest(channel.datapath))
            for message in batch:
                _send_message(channel, message)
        return phase is Phase.SEND or bool(change)

    def _wanted(self, fabric: Fabric, member: Member) -> Wanted:
        cluster = self.cluster
        host = fabric.hosts[member.name]
        known = [nic for nic in host.nics if nic.network is not None]
        with cluster.lock:
            started = cluster.started
            pairs = {
                receiver: slots
                for (sender, receiver), slots in cluster.pair_slots.items()
                if sender == member.name and receiver in fabric.hosts
            }
        if not started or not known:
            return plan_probes_only(host)
        return plan_host(fabric, member.name, pairs, cluster.config.slots)

    def _acknowledge(self, sent: list[tuple[Member, Channel]], phase: Phase) -> None:
        """Wait until the hosts have processed what was sent; only then may others rely on it."""
        barriers = [(member, channel, channel.barrier()) for member, channel in sent]
        await_most([(member.name, (barrier,)) for member, _, barrier in barriers], _READ_S)
        for member, channel, barrier in barriers:
            try:
                barrier.result(timeout=0)
            except (FutureTimeoutError, Refused, ConnectionError):
                with self.cluster.lock:
                    member.installed, member.dirty = None, True
                    member.retry_s = time.monotonic() + _AGAIN_S
                continue
            with self.cluster.lock:
                if (
                    phase is not Phase.SEND
                    or member.channel is not channel
                    or member.installed is None
                ):
                    continue
                if not member.reports_probes:
                    member.reports_probes = True
                if member.wanted is not None and is_full(member.wanted):
                    self._set_accepts(member, True)
                now_s = time.monotonic()
                for port in member.ports.values():
                    nic = (member.name, port.number)
                    if not self.cluster.wiring.knows(nic):
                        self.cluster.wiring.set_nic(nic, port.up, now_s)


def _fresh(fabric: Fabric, member: Member, installed: Installed) -> bool:
    """Nothing that receives is on a bridge of which nothing else was known:

    no plan is needed to see that.
    """
    others = any(host.nics for name, host in fabric.hosts.items() if name != member.name)
    return (
        not member.accepts_wire and others and Table.RECEIVE_COUNT not in installed.cookies.values()
    )


def send_slots(cluster: Cluster, decisions: dict[PairKey, PairDecision]) -> list[Future[list[Any]]]:
    """Send the slot tables that changed, and return barriers to wait for (cluster.lock is held).

    A pair that has its group already gets that group modified; one that becomes active makes its
    host be planned. Pairs that are no longer active go back to a shared group.
    """
    changes = table_changes(
        cluster.pair_slots,
        {pair: (decision.slots, decision.moved) for pair, decision in decisions.items()},
    )
    cluster.pair_slots = changes.tables
    cluster.counters["slots_moved"] += changes.moved
    fabric = cluster.fabric()
    barriers: list[Future[list[Any]]] = []
    for sender in dict.fromkeys([*changes.receivers, *sorted(changes.to_plan)]):
        member = cluster.members.get(sender)
        if member is None or member.channel is None:
            continue
        receivers = changes.receivers.get(sender, [])
        if sender in changes.to_plan or not _holds_groups(member, receivers):
            member.dirty = True
            cluster.wake.trunk.set()
            continue
        sent = len(barriers)
        with cluster.alone(member, "its slot tables cannot be sent"):
            barriers.append(_send_tables(cluster, fabric, member, member.channel, receivers))
        if len(barriers) == sent:
            member.installed, member.dirty, member.retry_s = None, True, time.monotonic() + _AGAIN_S
    return barriers


def _holds_groups(member: Member, receivers: Sequence[str]) -> bool:
    """Nobody is about to change the host, and rows of its lead to a group for each of these
    receivers.
    """
    if member.busy or member.dirty or member.installed is None or member.wanted is None:
        return False
    # A group may still be there that no row uses any more.
    used = member.installed.groups.keys() & member.wanted.groups.keys()
    return all(pair_group_id(receiver) in used for receiver in receivers)


def _send_tables(
    cluster: Cluster, fabric: Fabric, member: Member, channel: Channel, receivers: list[str]
) -> Future[list[Any]]:
    """Modify a host's groups for these receivers, and return a barrier."""
    assert member.wanted is not None and member.installed is not None
    groups = dict(member.wanted.groups)
    messages: list[bytes] = []
    for receiver in receivers:
        own = cluster.pair_slots[member.name, receiver]
        slots = table_in_force(fabric.paths(member.name, receiver), own, cluster.config.slots)
        group = slot_group(pair_group_id(receiver), slots, member.hash_algorithm)
        if member.installed.groups[group.group_id] == group:
            continue
        groups[group.group_id] = member.installed.groups[group.group_id] = group
        messages.append(codec.group_mod(codec.OFPGC_MODIFY, group, channel.next_xid()))
    channel.send_bytes(b"".join(messages))
    cluster.counters["group_mods"] += len(messages)
    member.wanted = Wanted(member.wanted.flows, groups)
    return channel.barrier()


def slots_in_force(cluster: Cluster, sender: str, receiver: str) -> tuple[PathKey, ...]:
    """The slot table that a pair uses now, its own or a shared one (cluster.lock is held)."""
    paths = cluster.fabric().paths(sender, receiver)
    return table_in_force(paths, cluster.pair_slots.get((sender, receiver)), cluster.config.slots)


def _may_sweep(member: Member, change: Change, now_s: float) -> bool:
    """Whether groups without rows may be deleted:

    none of their rows was there for a while (sets `sweep_s`).
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
    if isinstance(message, AddFlow):
        data = flow_mod(message.flow, channel.next_xid())
        if data is None:
            channel.send(add_flow(channel.datapath, message.flow))
        else:
            channel.send_bytes(data)
    elif isinstance(message, DeleteFlows):
        channel.send(delete_flows(channel.datapath, message.cookie))
    elif isinstance(message, AddGroup):
        channel.send_bytes(codec.group_mod(codec.OFPGC_ADD, message.group, channel.next_xid()))
    elif isinstance(message, ModifyGroup):
        channel.send_bytes(codec.group_mod(codec.OFPGC_MODIFY, message.group, channel.next_xid()))
    else:
        gone = Group(message.group_id, Group.SELECT, ())
        channel.send_bytes(codec.group_mod(codec.OFPGC_DELETE, gone, channel.next_xid()))


def _bodies(future: Future[list[Any]], read: Any) -> list[Any]:
    """All entries of a multipart reply.

    Raises TimeoutError, Refused, ConnectionError or ValueError.
    """
    parts = future.result(timeout=0)
    return [entry for part in parts for raw in part.body for entry in read(raw.data)]


def _slots_of(group: Group) -> tuple[PathKey, ...] | None:
    """The slot table in an installed group; None when it is not one of ours."""
    slots = []
    for bucket in group.buckets:
        first = bucket.actions[0] if bucket.actions else None
        if (
            not isinstance(first, SetField)
            or first.name != "reg1"
            or not isinstance(first.value, int)
        ):
            return None
        slots.append(path_of_register(first.value))
    return tuple(slots) if slots else None
