"""The discovery app: sends the probes that fabric.wiring asks for, and tells it which arrived."""

from __future__ import annotations

import hmac
import logging
import secrets
import struct
import time
from collections import deque
from hashlib import blake2b
from statistics import median
from typing import Any

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.cluster import Cluster, guarded_loop
from ri2n_sdn.apps.openflow import MAIN_DISPATCHER, OSKenApp, handler, ofp, ofp_event, parser
from ri2n_sdn.apps.striping import take_report
from ri2n_sdn.fabric.wiring import Probe
from ri2n_sdn.pipeline.layout import ETH_RI2N, WIRE_PORT

__all__ = ["DiscoveryApp", "ProbeCodec"]

_LOG = logging.getLogger("ri2n.discovery")
_TICK_S = 0.025
_LAG_S = 0.1
_LAG_PROBES = 32
_ECHO = struct.Struct("!d")  # when it was sent


class ProbeCodec:
    """Probe frames, signed with a key of this run, so that nobody else's frame changes what is known of the wiring."""

    MULTICAST = "03:00:00:52:49:32"
    MAX_AGE_S = 2.0
    _HEAD = struct.Struct("!4sBB2xQIQ")  # magic, version, flooded, dpid, port, time in ns
    _MAGIC, _VERSION, _TAG = b"RI2P", 1, 16

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def encode(self, source_mac: str, target_mac: str | None, dpid: int, port: int, now_s: float) -> bytes:
        """A frame from NIC (dpid, port), to `target_mac` or flooded (None)."""
        ethernet = _mac(target_mac or self.MULTICAST) + _mac(source_mac) + struct.pack("!H", ETH_RI2N)
        body = self._HEAD.pack(self._MAGIC, self._VERSION, target_mac is None, dpid, port, int(now_s * 1e9))
        return ethernet + body + self._tag(body)

    def age_s(self, frame: bytes, now_s: float) -> float | None:
        """How long ago one of our own probes was sent; None when it is not one."""
        body = frame[14 : 14 + self._HEAD.size]
        tag = frame[14 + self._HEAD.size : 14 + self._HEAD.size + self._TAG]
        if len(tag) < self._TAG or not hmac.compare_digest(tag, self._tag(body)):
            return None
        return now_s - float(self._HEAD.unpack(body)[5]) / 1e9

    def decode(self, frame: bytes, now_s: float) -> tuple[int, int, bool]:
        """(dpid, port, flooded) of the sender; raises ValueError with the name of a drop counter."""
        body = frame[14 : 14 + self._HEAD.size]
        tag = frame[14 + self._HEAD.size : 14 + self._HEAD.size + self._TAG]
        if len(tag) < self._TAG:
            raise ValueError("probe_truncated")
        magic, version, flooded, dpid, port, sent_ns = self._HEAD.unpack(body)
        if magic != self._MAGIC or version != self._VERSION:
            raise ValueError("probe_unknown")
        if not hmac.compare_digest(tag, self._tag(body)):
            raise ValueError("probe_forged")
        if not 0 <= now_s - sent_ns / 1e9 <= self.MAX_AGE_S:
            raise ValueError("probe_old")
        return dpid, port, bool(flooded)

    def _tag(self, body: bytes) -> bytes:
        return blake2b(body, key=self._key, digest_size=self._TAG).digest()


class DiscoveryApp(OSKenApp):
    """Drives `cluster.wiring`."""

    OFP_VERSIONS = [ofp.OFP_VERSION]  # noqa: RUF012 - os-ken's interface
    cluster: Cluster

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._probes = ProbeCodec()
        self._ages_s: deque[float] = deque(maxlen=_LAG_PROBES)

    def start(self) -> None:
        super().start()
        guarded_loop(self.cluster, "discovery", self._turn)

    @handler(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, ev: Any) -> None:
        now_s = time.monotonic()
        message = ev.msg
        channel = message.datapath.ri2n_channel
        channel.heard_s = now_s
        cluster = self.cluster
        cluster.counters["packet_ins"] += 1
        if int(message.match["in_port"]) == WIRE_PORT:
            take_report(cluster, message.datapath.id, bytes(message.data), now_s)
            return
        age_s = self._probes.age_s(bytes(message.data), now_s)
        if age_s is not None:
            self._ages_s.append(age_s)
        try:
            dpid, port, flooded = self._probes.decode(bytes(message.data), now_s)
        except ValueError as error:
            cluster.counters[f"dropped_{error}"] += 1
            return
        with cluster.lock:
            names = {member.dpid: member.name for member in cluster.members.values()}
            receiver = names.get(message.datapath.id)
            sender = names.get(dpid)
            if receiver is None or sender is None:
                cluster.counters["dropped_probe_of_stranger"] += 1
                return
            cluster.wiring.heard((sender, port), (receiver, int(message.match["in_port"])), flooded, now_s)
            self._publish()

    @handler(ofp_event.EventOFPEchoReply, MAIN_DISPATCHER)
    def echoed(self, ev: Any) -> None:
        """An answer to an echo request that was sent after probes; here, so that it waits behind reports of probes."""
        channel = ev.msg.datapath.ri2n_channel
        data = bytes(ev.msg.data or b"")
        if len(data) == _ECHO.size:
            (sent_s,) = _ECHO.unpack(data)
            if channel.answered_s < sent_s <= time.monotonic():
                channel.answered_s = sent_s

    def _turn(self) -> None:
        cluster = self.cluster
        now_s = time.monotonic()
        with cluster.lock:
            # How far this machine is behind with reading probes. Most of them must be old, so that nobody can feign
            # that by repeating a few.
            cluster.wiring.lag_s = median(self._ages_s) if self._ages_s else 0.0
            cluster.counters["discovery_lags"] += cluster.wiring.lag_s > _LAG_S
            probes = cluster.wiring.tick(now_s, self._answered_s)
            for probe in probes:
                self._send(probe, now_s)
            for host in cluster.wiring.hosts_under_test:
                member = cluster.members.get(host)
                if member is not None and member.channel is not None:
                    member.channel.send(parser.OFPEchoRequest(member.channel.datapath, _ECHO.pack(now_s)))
            self._publish()
            if not cluster.started:
                cluster.may_start(now_s)
        cluster.stop.wait(_TICK_S)

    def _publish(self) -> None:
        wiring = self.cluster.wiring
        for text in wiring.events:
            self.cluster.note(text)
        wiring.events.clear()
        if wiring.changed:
            wiring.changed = False
            self.cluster.topology_changed()

    def _answered_s(self, host: str) -> float:
        member = self.cluster.members.get(host)
        return member.channel.answered_s if member is not None and member.channel is not None else -1e9

    def _send(self, probe: Probe, now_s: float) -> None:
        member = self.cluster.members.get(probe.sender[0])
        port = member.ports.get(probe.sender[1]) if member is not None else None
        if member is None or port is None or member.channel is None:
            return
        target_mac = None
        if probe.target is not None:
            target = self.cluster.members.get(probe.target[0])
            target_port = target.ports.get(probe.target[1]) if target is not None else None
            if target_port is None:
                return
            target_mac = target_port.mac
        frame = self._probes.encode(port.mac, target_mac, member.dpid, port.number, now_s)
        member.channel.send_bytes(codec.packet_out(port.number, frame, member.channel.next_xid()))
        self.cluster.counters["probes_sent"] += 1


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
