# SPDX-License-Identifier: Apache-2.0
"""The discovery app: sends the probes that discovery.wiring asks for, and reports which arrived."""

from __future__ import annotations

import logging
import time
from collections import deque
from statistics import median
from typing import Any

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.channel import ECHO, Channel
from ri2n_sdn.apps.charge import Charge
from ri2n_sdn.apps.cluster import App, Member
from ri2n_sdn.apps.counts import Dropped
from ri2n_sdn.apps.declared_rows import is_jobs_changed
from ri2n_sdn.apps.fast_path import take_fast_report
from ri2n_sdn.apps.jobs import jobs_changed
from ri2n_sdn.apps.openflow import MAIN_DISPATCHER, handler, ofp_event
from ri2n_sdn.apps.placement import take_syn_ack
from ri2n_sdn.apps.probes import ProbeKind
from ri2n_sdn.apps.recall import recall
from ri2n_sdn.apps.striping import take_report
from ri2n_sdn.discovery.wiring import Probe
from ri2n_sdn.pipeline.fast_reports import is_fast_report
from ri2n_sdn.pipeline.layout import LOCAL, WIRE_PORT

__all__ = ["DiscoveryApp"]

_LOG = logging.getLogger("ri2n.discovery")
_TICK_S = 0.025
# A turn whose probes are older than this is counted.
_LAG_S = 0.1
# The lag is the median age of the last so many probes.
_LAG_PROBES = 32


class DiscoveryApp(App):
    """One thread drives `cluster.wiring`. Handlers take in packet-ins and echo replies."""

    loop = "discovery"
    charge: Charge | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ages_s: deque[float] = deque(maxlen=_LAG_PROBES)

    @handler(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, ev: Any) -> None:
        """Take in a probe, a report or a server's SYN-ACK from a host that was let in.

        Only who writes to the bridge's own OpenFlow sockets can make a frame that comes by the port
        CONTROLLER: other controllers do, and the host's fast path.
        """
        now_s, message, cluster = time.monotonic(), ev.msg, self.cluster
        channel: Channel | None = message.datapath.ri2n_channel
        cluster.counters.add("packet_ins")
        in_port = message.match.get("in_port")
        if channel is not None:
            channel.heard_s = now_s
        with cluster.lock:
            member = cluster.member_at(channel)
        if in_port is None or member is None:
            cluster.counters.add("dropped_packet_in_of_stranger")
            return
        frame = bytes(message.data)
        reported = in_port == codec.CONTROLLER and is_fast_report(frame)
        if in_port == codec.CONTROLLER and not reported:
            self._hello(frame, member)
            return
        if cluster.passive is not None:
            return
        if reported:
            take_fast_report(cluster, member, frame, now_s)
            return
        if in_port == WIRE_PORT:
            take_report(cluster, member, frame, now_s)
            return
        if in_port == LOCAL:
            if is_jobs_changed(frame):
                jobs_changed(cluster, member.name)
            else:
                take_syn_ack(cluster, member.name, frame)
            return
        receiver = (member.name, int(in_port))
        age_s = cluster.probes.age_s(frame, now_s)
        if age_s is not None:
            self._ages_s.append(age_s)
        try:
            probe = cluster.probes.decode(frame, now_s, cluster.wiring.lag_s)
        except Dropped as error:
            cluster.counters.add(str(error))
            with cluster.lock:
                cluster.wiring.strange(receiver, now_s)
            return
        with cluster.lock:
            if probe.kind == ProbeKind.LEARNING:
                if cluster.fat_tree is not None and cluster.fat_tree.check is not None:
                    cluster.fat_tree.check.arrived(receiver, probe)
                return
            sender = cluster.member_of(probe.dpid)
            if sender is None:
                cluster.counters.add("dropped_probe_of_stranger")
                return
            ends = ((sender.name, probe.port), receiver)
            if probe.kind == ProbeKind.TREE:
                if cluster.fat_tree is not None:
                    cluster.fat_tree.heard(*ends, probe.vlan, now_s)
                return
            cluster.wiring.heard(*ends, probe.kind == ProbeKind.FLOODED, now_s)
            self._publish()

    def _hello(self, frame: bytes, member: Member) -> None:
        with self.cluster.lock:
            try:
                if member.channel is not None and self.charge is not None:
                    self.charge.heard(frame, member)
            except Dropped as error:
                self.cluster.counters.add(str(error))

    @handler(ofp_event.EventOFPEchoReply, MAIN_DISPATCHER)
    def echoed(self, ev: Any) -> None:
        """Note when the echo request was sent that a host has now answered.

        Echo requests are sent after probes. This handler belongs to the same app as that of
        packet-ins, so an answer waits behind the probes that the host reported before it.
        """
        channel: Channel | None = ev.msg.datapath.ri2n_channel
        data = bytes(ev.msg.data or b"")
        if channel is not None and len(data) == ECHO.size:
            (sent_s,) = ECHO.unpack(data)
            if channel.answered_s < sent_s <= time.monotonic():
                channel.answered_s = sent_s

    def _turn(self) -> None:
        cluster = self.cluster
        now_s = time.monotonic()
        if cluster.passive is not None:
            cluster.wake.stop.wait(_TICK_S)
            return
        with cluster.lock:
            # The lag is how late this machine is in reading probes. It is the median of their ages,
            # so that nobody can feign a lag by repeating a few old probes.
            cluster.wiring.lag_s = median(self._ages_s) if self._ages_s else 0.0
            cluster.counters.add("discovery_lags", cluster.wiring.lag_s > _LAG_S)
            probes = cluster.wiring.tick(now_s, cluster.answered_s)
            for probe in probes:
                self._send(probe, now_s)
            cluster.send_echoes(cluster.wiring.hosts_under_test, now_s)
            self._publish()
            if not cluster.started and cluster.may_start(now_s):
                recall(cluster, now_s)
        cluster.wake.stop.wait(_TICK_S)

    def _publish(self) -> None:
        """Tell the operator and the other apps what the wiring has found out."""
        wiring = self.cluster.wiring
        for event in wiring.events:
            self.cluster.note(event.code, event.subject, **event.args)
        wiring.events.clear()
        if wiring.changed:
            wiring.changed = False
            self.cluster.topology_changed()

    def _send(self, probe: Probe, now_s: float) -> None:
        target_mac = None
        if probe.target is not None:
            target = self.cluster.port_of(probe.target)[1]
            if target is None:
                return
            target_mac = target.mac
        kind = ProbeKind.FLOODED if target_mac is None else ProbeKind.RING
        if self.cluster.send_probe(kind, probe.sender, target_mac, now_s):
            self.cluster.counters.add("probes_sent")
