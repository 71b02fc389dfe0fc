"""The connection app: who is connected, under which name, with which NICs; replies, errors and signs of life."""

from __future__ import annotations

import logging
import re
import threading
import time
from concurrent.futures import Future
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Cluster, Member, Port, guarded_loop
from ri2n_sdn.apps.openflow import DEAD_DISPATCHER, MAIN_DISPATCHER, OSKenApp, handler, ofp, ofp_event, parser
from ri2n_sdn.fabric.model import MAX_NIC_PORT
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT

__all__ = ["ConnectionApp"]

_LOG = logging.getLogger("ri2n.connection")
_TICK_S = 0.5
_SILENT_S = 5.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_REPLIES = [
    ofp_event.EventOFPBarrierReply,
    ofp_event.EventOFPDescStatsReply,
    ofp_event.EventOFPFlowDescStatsReply,
    ofp_event.EventOFPGroupDescStatsReply,
    ofp_event.EventOFPGroupStatsReply,
    ofp_event.EventOFPPortStatsReply,
]


class ConnectionApp(OSKenApp):
    """Keeps `cluster.members` and their channels."""

    OFP_VERSIONS = [ofp.OFP_VERSION]  # noqa: RUF012 - os-ken's interface
    cluster: Cluster

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ticked_s = self._listening_s = time.monotonic()

    def start(self) -> None:
        super().start()
        guarded_loop(self.cluster, "tick", self._tick)

    @handler(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def state_changed(self, ev: Any) -> None:
        datapath = ev.datapath
        if ev.state == MAIN_DISPATCHER:
            datapath.ri2n_channel = channel = Channel(datapath)
            reply = channel.request(parser.OFPDescStatsRequest(datapath, 0))
            reply.add_done_callback(lambda done: self._described(channel, done))
            return
        gone: Channel | None = getattr(datapath, "ri2n_channel", None)
        if gone is not None:
            gone.close("the connection ended")
            with self.cluster.lock:
                for member in self.cluster.members.values():
                    if member.channel is gone:
                        self._left(member)

    @handler(_REPLIES, MAIN_DISPATCHER)
    def replied(self, ev: Any) -> None:
        channel = ev.msg.datapath.ri2n_channel
        channel.heard_s = time.monotonic()
        channel.answered(ev.msg)

    @handler([ofp_event.EventOFPEchoReply, ofp_event.EventOFPEchoRequest], MAIN_DISPATCHER)
    def echoed(self, ev: Any) -> None:
        ev.msg.datapath.ri2n_channel.heard_s = time.monotonic()

    @handler(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def refused(self, ev: Any) -> None:
        """An error that is no request's answer means that a row was not taken: read the switch again."""
        message = ev.msg
        channel = message.datapath.ri2n_channel
        reason = f"error type {message.type} code {message.code}"
        if channel.failed(message.xid, reason):
            return
        with self.cluster.lock:
            self.cluster.counters["switch_errors"] += 1
            member = self._member_of(channel)
            if member is not None:
                _LOG.warning("%s refused a message: %s, %s", member.name, reason, bytes(message.data or b"")[:24].hex())
                member.installed = None
                member.dirty = True
                member.retry_s = time.monotonic() + 1.0

    @handler(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def port_changed(self, ev: Any) -> None:
        with self.cluster.lock:
            member = self._member_of(ev.msg.datapath.ri2n_channel)
            if member is None:
                return
            described = _port(ev.msg.desc)
            if described is None:
                return
            if _is_tap(described):
                self._tap_changed(member, described, ev.msg.reason == ofp.OFPPR_DELETE)
                return
            old = member.ports.get(described.number)
            if ev.msg.reason == ofp.OFPPR_DELETE:
                member.ports.pop(described.number, None)
                self.cluster.wiring.remove_nic((member.name, described.number))
                self.cluster.note(f"{member.name}: {described.name} was removed")
            else:
                if old is not None and (old.up, old.mac, old.speed_bps) == (
                    described.up,
                    described.mac,
                    described.speed_bps,
                ):
                    return
                member.ports[described.number] = described
                if member.reports_probes:
                    self.cluster.wiring.set_nic((member.name, described.number), described.up, time.monotonic())
                self.cluster.note(f"{member.name}: {described.name} is {'up' if described.up else 'down'}")
            self.cluster.topology_changed()

    def _tap_changed(self, member: Member, tap: Port, deleted: bool) -> None:
        """A helper came or went, or its TAPs did."""
        ran = member.helper_runs
        if deleted:
            member.taps.pop(tap.number, None)
        elif member.taps.get(tap.number) == tap.up:
            return
        else:
            member.taps[tap.number] = tap.up
        if ran != member.helper_runs:
            self.cluster.note(f"{member.name}: its helper {'runs' if member.helper_runs else 'does not run'}")
            self.cluster.helpers_to_greet.add(member.name)
        self.cluster.topology_changed()

    # Who it is

    def _described(self, channel: Channel, reply: Future[list[Any]]) -> None:
        if reply.exception() is not None:
            return
        body = reply.result()[0].body
        ports, taps = {}, {}
        for raw in channel.datapath.ports.values():
            port = _port(raw)
            if port is not None and _is_tap(port):
                taps[port.number] = port.up
            elif port is not None:
                ports[port.number] = port
        local = channel.datapath.ports.get(ofp.OFPP_LOCAL)
        if local is None:
            channel.close("it has no LOCAL port")
            return
        name = body.dp_desc.decode("utf-8", "replace").rstrip("\0") or f"host-{channel.datapath.id:016x}"
        if not _NAME.match(name):
            shown = ascii(name[:64])
            text = f"{channel.address}: refused, its name {shown} is not one: give it another with host-up --name"
            self.cluster.refuse(text, text)
            channel.close("bad name")
            return
        version = body.sw_desc.decode("utf-8", "replace").rstrip("\0")
        candidate = Member(name, channel.datapath.id, str(local.hw_addr), version, ports, channel)
        candidate.controller = channel.reached_at
        candidate.taps = taps
        candidate.datapath, candidate.hash_algorithm = _datapath(body.serial_num.decode("utf-8", "replace"))
        rival = self._rival(candidate)
        if rival is None:
            self._admit(candidate)
        else:
            threading.Thread(target=self._contest, args=(candidate, rival), daemon=True).start()

    def _rival(self, candidate: Member) -> Member | None:
        """A connected member of the same name, or with a MAC address of this one's."""
        macs = {candidate.mac, *(port.mac for port in candidate.ports.values())}
        with self.cluster.lock:
            for member in self.cluster.members.values():
                if member.channel is None or member.channel.closed:
                    continue
                theirs = {member.mac, *(port.mac for port in member.ports.values())}
                if member.name == candidate.name or member.dpid == candidate.dpid or macs & theirs:
                    return member
        return None

    def _contest(self, candidate: Member, rival: Member) -> None:
        """The same host connecting again, or another that pretends to be it? Ask the first for a sign of life.

        It has as long for that as any host may be silent: a busy one must not lose its place to a pretender.
        """
        old, new = rival.channel, candidate.channel
        assert new is not None
        alive = False
        if old is not None and old is not new:
            try:
                old.barrier().result(timeout=_SILENT_S)
                alive = True
            except Exception:
                alive = False
        if not alive:
            if old is not None:
                old.close("replaced by a new connection of the same host")
            self._admit(candidate)
            return
        text, shared = _refusal(candidate, rival, new.address, old.address if old else "?")
        self.cluster.refuse(f"{candidate.name} {new.address}", text)
        new.close(f"another host has the same {shared}")

    def _admit(self, candidate: Member) -> None:
        cluster = self.cluster
        with cluster.lock:
            channel = candidate.channel
            assert channel is not None
            if channel.closed:
                return
            known = cluster.members.get(candidate.name)
            if known is not None and (known.dpid, known.mac) == (candidate.dpid, candidate.mac):
                candidate.accepts_wire = known.accepts_wire
            cluster.members[candidate.name] = candidate
            cluster.admitted(f"{candidate.name} {channel.address}")
            for number in set(known.ports if known else {}) - set(candidate.ports):
                cluster.wiring.remove_nic((candidate.name, number))
            cluster.helpers_to_greet.add(candidate.name)
            cluster.note(
                f"{candidate.name} connected from {channel.address}, Open vSwitch {candidate.ovs}, "
                f"{len(candidate.ports)} NICs"
            )
            cluster.topology_changed()

    def _left(self, member: Member) -> None:
        member.channel = None
        member.left_s = time.monotonic()
        member.installed = None
        member.dirty = True
        self.cluster.wiring.disconnect(member.name)
        self.cluster.note(f"{member.name} disconnected")
        self.cluster.topology_changed()

    def _member_of(self, channel: Channel) -> Member | None:
        return next((member for member in self.cluster.members.values() if member.channel is channel), None)

    def _tick(self) -> None:
        """Without something sent, a lost connection is not noticed; without an answer it is given up."""
        with self.cluster.lock:
            channels = [member.channel for member in self.cluster.members.values() if member.channel is not None]
        now_s = time.monotonic()
        if now_s - self._ticked_s > 2 * _TICK_S:
            self._listening_s = now_s  # this machine was held up: what hosts said meanwhile may not have been read yet
        self._ticked_s = now_s
        for channel in channels:
            if now_s - max(channel.heard_s, channel.datapath.heard_s, self._listening_s) > _SILENT_S:
                channel.close(f"silent for {_SILENT_S:.0f} s")
            else:
                channel.send(parser.OFPEchoRequest(channel.datapath))
        self.cluster.stop.wait(_TICK_S)


def _refusal(candidate: Member, rival: Member, new: str, old: str) -> tuple[str, str]:
    """What is said of a host that another one's identity keeps out, and what the two share."""
    shared, cure = "datapath ID", "give one of the two another MAC address and run host-up there"
    macs = {candidate.mac, *(port.mac for port in candidate.ports.values())}
    both = sorted(macs & {rival.mac, *(port.mac for port in rival.ports.values())})
    if rival.name == candidate.name:
        shared, cure = "name", "give one of the two another with host-up --name"
    elif both:
        shared, cure = f"MAC address {', '.join(both)}", "give one of the two another and run host-up there"
    return f"{candidate.name} at {new} refused: {rival.name} at {old} has the same {shared}: {cure}", shared


def _datapath(serial: str) -> tuple[str, int]:
    """(datapath, hash algorithm for select groups) from the serial number that `host-up` set, e.g. `system/1`.

    The symmetric L4 hash is for kernels only: netdev's leaves UDP ports out.
    """
    datapath, _, best = serial.rstrip("\0").partition("/")
    if datapath not in ("system", "netdev"):
        return "", 0
    return datapath, int(datapath == "system" and best.isdigit() and int(best) >= 1)


def _is_tap(port: Port) -> bool:
    """It is the helper's, or would be if Open vSwitch had given it the number that was asked for: never a NIC."""
    return port.number in (PLAIN_PORT, WIRE_PORT) or port.name in ("ri2n-plain", "ri2n-wire")


def _port(raw: Any) -> Port | None:
    """A NIC or a TAP of the bridge; None for LOCAL and reserved ports, and for numbers that are too high to be used."""
    if raw.port_no > MAX_NIC_PORT or raw.port_no == 0:
        if MAX_NIC_PORT < raw.port_no <= 0xFFFF:
            _LOG.warning("port %d of a bridge is not used: its number is above %d", raw.port_no, MAX_NIC_PORT)
        return None
    speed_bps = 0
    for prop in raw.properties or ():
        if isinstance(prop, parser.OFPPortDescPropEthernet):
            speed_bps = int(prop.curr_speed) * 1000
    up = not raw.state & ofp.OFPPS_LINK_DOWN and not raw.config & ofp.OFPPC_PORT_DOWN
    name = raw.name.decode("utf-8", "replace") if isinstance(raw.name, bytes) else str(raw.name)
    return Port(raw.port_no, name.rstrip("\0"), str(raw.hw_addr), up, speed_bps)
