# SPDX-License-Identifier: Apache-2.0
"""The connection app: which hosts are connected, under which names, with which NICs.

It also takes in replies and errors, and asks hosts for signs of life.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from concurrent.futures import Future

# Before Python 3.11 this is another class than the built-in TimeoutError.
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import Any

from ri2n_sdn.apps import codec, identity
from ri2n_sdn.apps.channel import ECHO, Channel, Close
from ri2n_sdn.apps.charge import Charge
from ri2n_sdn.apps.cluster import App, Member, Port
from ri2n_sdn.apps.openflow import (
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    handler,
    ofp,
    ofp_event,
    parser,
    set_expendable,
)
from ri2n_sdn.apps.silence import Silence
from ri2n_sdn.contract.names import is_host_name
from ri2n_sdn.contract.printing import printable
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.fabric.model import MAX_NIC_PORT
from ri2n_sdn.pipeline.layout import GUEST_PORTS, PLAIN_PORT, WIRE_PORT

__all__ = ["ConnectionApp"]

_LOG = logging.getLogger("ri2n.connection")
_TICK_S = 0.5
# The software, the serial number and the name in a switch's description of itself.
_DESCRIPTION = struct.Struct("!512x256s32s256s")
_MAX_NIC_NAME = 16
# A host from which nothing was read for this time is disconnected.
_SILENT_S = 5.0
# A host that sends something but answers no request for this time is disconnected.
_MUTE_S = 30.0
# A contest waits for other hosts' rows for this time, since they may be read just now.
_PROOF_S = 3.0
_POLL_S = 0.05
_REPLIES = [
    ofp_event.EventOFPBarrierReply,
    ofp_event.EventOFPDescStatsReply,
    ofp_event.EventOFPFlowDescStatsReply,
    ofp_event.EventOFPGroupDescStatsReply,
    ofp_event.EventOFPGroupStatsReply,
    ofp_event.EventOFPPortStatsReply,
]


class ConnectionApp(App):
    """Keeps `cluster.members` and their channels up to date."""

    loop = "tick"
    charge: Charge | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ticked_s = self._listening_s = time.monotonic()

    def start(self) -> None:
        set_expendable(self._expendable)
        super().start()

    def _expendable(self) -> list[Any]:
        """The connections of hosts that do not matter to the cluster."""
        with self.cluster.lock:
            channels = [member.channel for member in self.cluster.expendable()]
        return [channel.datapath for channel in channels if channel is not None]

    @handler(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def state_changed(self, ev: Any) -> None:
        """Ask a new connection who it is, and note that the host of an ended one is away."""
        datapath = ev.datapath
        if ev.state == MAIN_DISPATCHER:
            datapath.ri2n_channel = channel = Channel(datapath)
            if self.charge is not None:
                self.charge.greet(channel)
            reply = channel.request(codec.DESCRIPTION)
            reply.add_done_callback(lambda done: self._described(channel, done))
            return
        ended: Channel | None = getattr(datapath, "ri2n_channel", None)
        if ended is not None:
            ended.close(Close.ENDED)
            with self.cluster.lock:
                member = self.cluster.member_at(ended)
                if member is not None:
                    self._left(member)
                    if not self.cluster.matters(member):
                        self.cluster.forget(member, "host_alone")

    @handler(_REPLIES, MAIN_DISPATCHER)
    def replied(self, ev: Any) -> None:
        """Hand a reply to the request that it answers."""
        channel: Channel | None = ev.msg.datapath.ri2n_channel
        if channel is not None:
            channel.heard_s = time.monotonic()
            channel.answered(ev.msg)

    @handler([ofp_event.EventOFPEchoReply, ofp_event.EventOFPEchoRequest], MAIN_DISPATCHER)
    def echoed(self, ev: Any) -> None:
        """Note a sign of life."""
        channel: Channel | None = ev.msg.datapath.ri2n_channel
        if channel is not None:
            channel.heard_s = time.monotonic()

    @handler(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def refused(self, ev: Any) -> None:
        """Read the switch again after an error that answers no request: it refused a row."""
        message = ev.msg
        channel: Channel | None = message.datapath.ri2n_channel
        if channel is None:
            return
        reason = f"error type {message.type} code {message.code}"
        if channel.failed(message.xid, reason):
            return
        with self.cluster.lock:
            member = self.cluster.member_at(channel)
            # A switch is asked for its role as soon as it has connected.
            charge = self.charge
            if charge is not None and charge.refused(member, message.type, message.code):
                return
            self.cluster.counters.add("switch_errors")
            if member is not None:
                _LOG.warning(
                    "%s refused a message (%s, %s): its rows are read and repaired; if it goes on,"
                    " see the log of ovs-vswitchd there",
                    *(member.name, reason, bytes(message.data or b"")[:24].hex()),
                    extra={"fields": {"host": member.name}},
                )
                member.installed = None
                member.dirty = True
                member.retry_s = time.monotonic() + 1.0

    @handler([ofp_event.EventOFPRoleReply, ofp_event.EventOFPRoleStatus], MAIN_DISPATCHER)
    def role_changed(self, ev: Any) -> None:
        """Take in the role that this controller has at a switch."""
        channel: Channel | None = ev.msg.datapath.ri2n_channel
        with self.cluster.lock:
            member = self.cluster.member_at(channel)
            if member is not None and self.charge is not None:
                self.charge.has_role(member, ev.msg.role)

    @handler(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port_changed(self, ev: Any) -> None:
        """Take in a NIC or a TAP that is new, has changed or was removed."""
        with self.cluster.lock:
            channel: Channel | None = ev.msg.datapath.ri2n_channel
            member = self.cluster.member_at(channel)
            described = _port(ev.msg.desc, member.name) if member is not None else None
            if member is None or described is None:
                return
            deleted = ev.msg.reason == ofp.OFPPR_DELETE
            if _is_tap(described):
                self._tap_changed(member, described, deleted)
            elif deleted:
                if member.ports.pop(described.number, None) is None:
                    return
                self.cluster.wiring.remove_nic((member.name, described.number))
                self.cluster.note("nic_removed", {"host": member.name, "nic": described.name})
                self.cluster.topology_changed()
            else:
                self._nic_changed(member, described)

    def _nic_changed(self, member: Member, described: Port) -> None:
        """Take in a NIC that is new or has changed.

        A host is disconnected when the NIC's address cannot be used or belongs to another host. Its
        peers keep their rows for it, so its other NICs go on. It is let in again when its address
        is repaired.
        """
        cluster, channel = self.cluster, member.channel
        old = member.ports.get(described.number)
        if old is not None and (old.up, old.mac, old.speed_bps) == (
            described.up,
            described.mac,
            described.speed_bps,
        ):
            return
        if old is None or old.mac != described.mac:
            changed = replace(member, ports={**member.ports, described.number: described})
            fault = identity.own_fault(changed) or self._address_conflict(changed)
            if fault is not None and channel is not None:
                self._turn_away(channel, member.name, fault, Close.FOREIGN_ADDRESS)
                return
        member.ports[described.number] = described
        if member.reports_probes:
            cluster.wiring.set_nic((member.name, described.number), described.up, time.monotonic())
        code = "nic_up" if described.up else "nic_down"
        cluster.note(code, {"host": member.name, "nic": described.name})
        cluster.topology_changed()

    def _tap_changed(self, member: Member, tap: Port, deleted: bool) -> None:
        """Take in a change of a TAP: a helper started or stopped, or the TAP is new or removed."""
        ran = member.helper_runs
        if deleted:
            member.taps.pop(tap.number, None)
        elif member.taps.get(tap.number) == tap.up:
            return
        else:
            member.taps[tap.number] = tap.up
        if ran != member.helper_runs:
            member.silence = Silence(time.monotonic())
            code = "helper_runs" if member.helper_runs else "helper_stopped"
            self.cluster.note(code, {"host": member.name})
            self.cluster.helpers_to_greet.add(member.name)
        self.cluster.topology_changed()

    # Which host a connection belongs to

    def _described(self, channel: Channel, reply: Future[bytes]) -> None:
        """Let a switch in that has described itself, or refuse it."""
        if reply.exception() is not None:
            return
        texts = _DESCRIPTION.unpack_from(reply.result())
        software, serial, said = (text.rstrip(b"\0") for text in texts)
        ports, taps = {}, {}
        # The copy is made in one step: the reading thread may change the ports meanwhile.
        described = channel.datapath.ports.copy()
        for raw in described.values():
            port = _port(raw, channel.address)
            if port is not None and _is_tap(port):
                taps[port.number] = port.up
            elif port is not None:
                ports[port.number] = port
        local = described.get(ofp.OFPP_LOCAL)
        if local is None:
            channel.close(Close.NO_LOCAL_PORT)
            return
        name = said.decode("utf-8", "replace") or f"host-{channel.datapath.id:016x}"
        if not is_host_name(name):
            args = {"address": channel.address, "name": name[: identity.MAX_SHOWN]}
            problem = Problem("host_name_invalid", {}, args)
            self._turn_away(channel, None, problem, Close.BAD_NAME)
            return
        version = printable(software)
        candidate = Member(name, channel.datapath.id, str(local.hw_addr), version, ports, channel)
        candidate.control_port = channel.reached_at_port
        candidate.taps = taps
        candidate.certificate_ends_s = channel.datapath.ri2n_certificate_ends_s
        candidate.datapath, candidate.hash_algorithm = _datapath(serial.decode("utf-8", "replace"))
        fault = identity.certificate_fault(name, channel.address, channel.datapath.ri2n_names)
        if fault is not None:
            self._turn_away(channel, name, fault, Close.NOT_ITS_CERTIFICATE)
            return
        fault = identity.own_fault(candidate)
        if fault is not None:
            self._turn_away(channel, name, fault, Close.BAD_ADDRESS)
            return
        rival = self._rival(candidate)
        if rival is None:
            self._admit(candidate)
        else:
            threading.Thread(target=self._contest, args=(candidate, rival), daemon=True).start()

    def _turn_away(self, channel: Channel, name: str | None, problem: Problem, why: Close) -> None:
        """Refuse a switch, which has no name that can be used for None.

        `problem` is shown in `ri2n status`.
        """
        key = channel.address if name is None else f"{name} {channel.address}"
        self.cluster.refusals.note(key, problem)
        channel.close(why)

    def _rival(self, candidate: Member) -> Member | None:
        """A connected host with the candidate's name, datapath ID or one of its MAC addresses."""
        macs = identity.claims(candidate)
        with self.cluster.lock:
            for member, channel in self.cluster.connections():
                if channel.closed or channel is candidate.channel:
                    continue
                if (
                    member.name == candidate.name
                    or member.dpid == candidate.dpid
                    or not macs.isdisjoint(identity.claims(member))
                ):
                    return member
        return None

    def _address_conflict(self, candidate: Member) -> Problem | None:
        """The refusal when another host has one of the candidate's addresses, else None.

        The other host may be connected or away. A host that is away and has the candidate's
        datapath ID is the same one under its former name: it is forgotten. The lock is held.
        """
        cluster, macs = self.cluster, identity.claims(candidate)
        for name, member in list(cluster.members.items()):
            if name == candidate.name:
                continue
            if member.channel is None and member.dpid == candidate.dpid:
                cluster.forget(member, "host_renamed", name=candidate.name)
            elif not macs.isdisjoint(identity.claims(member)):
                old = identity.address_of(member, "an unknown address, not connected now,")
                return identity.refusal(candidate, member, identity.address_of(candidate), old)[0]
        return None

    def _contest(self, candidate: Member, rival: Member) -> None:
        """Decide between a connected host and a new connection with the same identity.

        The new connection may be the same host again, or another host that pretends to be it. So
        the connected one, `rival`, is asked for a sign of life. It may take as long as any host may
        be silent, because a busy host must not lose its place to a pretender. If it does not
        answer, `candidate` replaces it.

        If both are alive, the first one stays. There is one exception: when rows of other hosts
        show that `candidate` was here before, it replaces `rival`. Otherwise, after the controller
        has started anew, a pretender that connects first would keep the real host out.
        """
        old, new = rival.channel, candidate.channel
        assert new is not None
        alive = old is not None and old is not new and self._is_alive(old)
        if not alive or self._was_here_before(candidate, rival):
            if old is not None and alive:
                problem, why = identity.refusal(rival, candidate, old.address, new.address)
                self._turn_away(old, rival.name, problem, why)
            elif old is not None:
                old.close(Close.REPLACED)
            if rival.name != candidate.name:
                self._give_up_claims(rival, identity.claims(candidate))
            self._admit(candidate)
            return
        address = old.address if old else "?"
        problem, why = identity.refusal(candidate, rival, new.address, address)
        self._turn_away(new, candidate.name, problem, why)

    def _is_alive(self, channel: Channel) -> bool:
        """Whether anything is received from a host within the time that any host may be silent.

        The wait is made of many short ones. So the host loses no time while this machine is held
        up. A handler may take in the answer late, but the reading thread notes at once that
        something was received. A host with too many open requests cannot be asked; that does not
        make it dead.
        """
        asked_s = time.monotonic()
        answer = channel.barrier()
        for _ in range(round(_SILENT_S / _POLL_S)):
            try:
                answer.result(timeout=_POLL_S)
                return True
            except FutureTimeoutError:
                pass
            except Exception:
                if channel.closed:
                    return False
                self.cluster.wake.stop.wait(_POLL_S)
            if channel.datapath.heard_s > asked_s:
                return True
        return False

    def _give_up_claims(self, rival: Member, macs: frozenset[str]) -> None:
        """Take the addresses `macs` from a host that lost a contest, and disconnect it.

        Its other NICs stay, as its peers know them.
        """
        with self.cluster.lock:
            if self.cluster.members.get(rival.name) is not rival:
                return
            self._left(rival)
            if rival.mac.lower() in macs:
                self.cluster.forget(rival, "host_address_lost")
                return
            for number in [
                number for number, port in rival.ports.items() if port.mac.lower() in macs
            ]:
                del rival.ports[number]
                self.cluster.wiring.remove_nic((rival.name, number))

    def _was_here_before(self, candidate: Member, rival: Member) -> bool:
        """Whether rows of other hosts were made for the candidate, and none for its rival.

        Waits up to _PROOF_S until the rows of at least one other host have been read.
        """
        contested = identity.claims(candidate) & identity.claims(rival)
        for _ in range(round(_PROOF_S / _POLL_S)):
            with self.cluster.lock:
                others = [
                    member
                    for member, _ in self.cluster.connections()
                    if member is not rival and member.name != candidate.name
                ]
                if not others or any(other.installed is not None for other in others):
                    return identity.was_here(
                        candidate, contested, others
                    ) and not identity.was_here(rival, contested, others)
            if self.cluster.wake.stop.wait(_POLL_S):
                break
        return False

    def _admit(self, candidate: Member) -> None:
        """Let a host in, unless another one has an address of it."""
        cluster = self.cluster
        with cluster.lock:
            channel = candidate.channel
            assert channel is not None
            if channel.closed:
                return
            conflict = self._address_conflict(candidate)
            if conflict is not None:
                self._turn_away(channel, candidate.name, conflict, Close.ADDRESS_TAKEN)
                return
            former = cluster.members.get(candidate.name)
            channel.admitted()
            candidate.came_s = time.monotonic()
            cluster.came_back(candidate)
            if former is not None and (former.dpid, former.mac) == (candidate.dpid, candidate.mac):
                candidate.accepts_wire = former.accepts_wire
                candidate.addresses = former.addresses
                if candidate.helper_runs and former.helper_runs:
                    candidate.silence = former.silence
            # A plan that knows nothing of its jobs would take their paths and walls away.
            candidate.jobs_known = False
            cluster.members[candidate.name] = candidate
            cluster.refusals.clear(f"{candidate.name} {channel.address}")
            for number in set(former.ports if former else {}) - set(candidate.ports):
                cluster.wiring.remove_nic((candidate.name, number))
            cluster.helpers_to_greet.add(candidate.name)
            if candidate.name in cluster.measured.fast:
                cluster.measured.fast[candidate.name].connected_anew()
            if self.charge is not None:
                self.charge.came(candidate)
            known = {"address": channel.address, "ovs": candidate.ovs, "nics": len(candidate.ports)}
            cluster.note("host_connected", {"host": candidate.name}, **known)
            cluster.topology_changed()

    def _left(self, member: Member) -> None:
        member.channel = None
        member.left_s = time.monotonic()
        member.installed = None
        member.dirty = True
        self.cluster.wiring.disconnect(member.name)
        self.cluster.counters.add("hosts_disconnected")
        self.cluster.note("host_disconnected", {"host": member.name})
        self.cluster.topology_changed()

    def _turn(self) -> None:
        """Send each host an echo request, and give up those that were silent or mute for too long.

        A lost connection is noticed only when something is sent.
        """
        with self.cluster.lock:
            channels = [channel for _, channel in self.cluster.connections()]
        now_s = time.monotonic()
        if now_s - self._ticked_s > 2 * _TICK_S:
            # This machine was held up: what hosts sent meanwhile may not have been read yet.
            self._listening_s = now_s
        self._ticked_s = now_s
        for channel in channels:
            if (
                now_s - max(channel.heard_s, channel.datapath.heard_s, self._listening_s)
                > _SILENT_S
            ):
                channel.close(Close.SILENT, seconds=_SILENT_S)
            elif min(channel.mute_s(now_s), now_s - self._listening_s) > _MUTE_S:
                channel.close(Close.UNANSWERED, seconds=_MUTE_S)
            else:
                channel.send(ofp.OFPT_ECHO_REQUEST, ECHO.pack(now_s))
        self.cluster.wake.stop.wait(_TICK_S)


def _datapath(serial: str) -> tuple[str, int]:
    """(datapath, hash algorithm for select groups) from a switch's serial number.

    `host-up` sets it, to `system/1` for example; ("", 0) for any other text. The symmetric L4 hash,
    1, is only used with the kernel's datapath: netdev's leaves out UDP ports.
    """
    datapath, _, best = serial.rstrip("\0").partition("/")
    if datapath not in ("system", "netdev"):
        return "", 0
    return datapath, int(datapath == "system" and best.isdigit() and int(best) >= 1)


def _is_tap(port: Port) -> bool:
    """Whether a port is a helper's TAP, by its number or its name, and so never a NIC.

    Open vSwitch may have given it another number than `host-up` asked for.
    """
    return port.number in (PLAIN_PORT, WIRE_PORT) or port.name in ("ri2n-plain", "ri2n-wire")


def _port(raw: Any, whose: str) -> Port | None:
    """A NIC or a TAP of the bridge; None for other ports. `whose` names the host in the log.

    Others are LOCAL, reserved ports, ports of guests, and ports whose number is too high.
    """
    if raw.port_no > MAX_NIC_PORT or raw.port_no == 0:
        if MAX_NIC_PORT < raw.port_no <= 0xFFFF and raw.port_no not in GUEST_PORTS:
            _LOG.warning(
                "%s: port %d of its bridge is not used: NICs have numbers up to %d",
                *(whose, raw.port_no, MAX_NIC_PORT),
            )
        return None
    speed_bps = 0
    for prop in raw.properties or ():
        if isinstance(prop, parser.OFPPortDescPropEthernet):
            speed_bps = int(prop.curr_speed) * 1000
    up = not raw.state & ofp.OFPPS_LINK_DOWN and not raw.config & ofp.OFPPC_PORT_DOWN
    return Port(raw.port_no, printable(raw.name, _MAX_NIC_NAME), str(raw.hw_addr), up, speed_bps)
