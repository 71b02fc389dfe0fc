# SPDX-License-Identifier: Apache-2.0
"""The VLAN app: finds dead parts of networks of switches, and announces all NICs' addresses.

It announces them in every VLAN, so that the switches know each NIC there.
"""

from __future__ import annotations

import time
from typing import Any

from ri2n_sdn.apps import codec
from ri2n_sdn.apps.cluster import App
from ri2n_sdn.apps.fat_tree import FatTree
from ri2n_sdn.apps.job_addresses import announcement
from ri2n_sdn.apps.probes import ProbeKind
from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.pipeline.layout import ANNOUNCED_TO
from ri2n_sdn.vlan.priming import Use

__all__ = ["VlanApp"]

_TICK_S = 0.025
_USED_S = 0.5
_PRIME = bytes.fromhex("02524e0001") + b"RI2N address announcement"
"""What follows the EtherType in an announcement.

It begins with a locally administered protocol identifier of five bytes (IEEE 802, section 9.2.4).
"""


class VlanApp(App):
    """One thread. It does not run when cluster.yaml declares no links between switches."""

    loop = "vlans"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fabric: Fabric | None = None
        self._in_use: frozenset[Use] = frozenset()
        self._in_use_s = -1e9

    def start(self) -> None:
        if self.cluster.fat_tree is not None:
            super().start()

    def _turn(self) -> None:
        cluster = self.cluster
        tree = cluster.fat_tree
        assert tree is not None
        now_s = time.monotonic()
        with cluster.lock:
            if cluster.started:
                self._probe(tree, now_s)
                self._announce(tree, now_s)
        cluster.wake.stop.wait(_TICK_S)

    def _probe(self, tree: FatTree, now_s: float) -> None:
        """Send the probes that are due, and take over what they have shown."""
        cluster, liveness = self.cluster, tree.liveness
        fabric = cluster.fabric()
        usable = {
            nic.id
            for host in fabric.hosts.values()
            if host.connected and host.accepts_wire
            for nic in host.nics
            if nic.sends and nic.receives
        }
        liveness.set_nics(tree.leaf_of(fabric), usable)
        liveness.lag_s = cluster.wiring.lag_s
        for probe in liveness.tick(now_s, cluster.answered_s):
            far, tag = cluster.port_of(probe.target)[1], tree.tag(probe.tree)
            if far is not None and cluster.send_probe(
                ProbeKind.TREE, probe.sender, far.mac, now_s, tag
            ):
                cluster.counters.add("probes_sent")
        cluster.send_echoes(liveness.hosts_under_test, now_s)
        for event in liveness.events:
            cluster.note(event.code, event.subject, **event.args)
        liveness.events.clear()
        if liveness.changed:
            liveness.changed = False
            if tree.found_dead():
                cluster.topology_changed()

    def _announce(self, tree: FatTree, now_s: float) -> None:
        """Send the announcements that are due, with the NIC's address as source."""
        cluster = self.cluster
        if now_s >= self._in_use_s + _USED_S:
            self._in_use_s = now_s
            in_use = frozenset(tree.in_use(cluster.pair_slots))
            # The same object tells `priming` that nothing has changed.
            if in_use != self._in_use:
                self._in_use = in_use
        fabric = cluster.fabric()
        nics = {
            # A NIC without a declared switch is announced in the first tree alone.
            nic.id: 1 if nic.switch is None else tree.trees_at(nic.switch)
            for host in fabric.hosts.values()
            if host.connected and host.accepts_wire
            for nic in host.nics
            if nic.network in tree.networks and nic.up
        }
        if fabric is not self._fabric:
            # Switches forget addresses when a port goes down or a spanning tree changes.
            self._fabric = fabric
            tree.priming.due_at_once()
        for prime in tree.priming.tick(now_s, nics, self._in_use):
            member, port = self.cluster.port_of(prime.sender)
            if member is None or port is None or member.channel is None:
                continue
            target_mac = ANNOUNCED_TO
            if prime.target is not None:
                target = self.cluster.port_of(prime.target)[1]
                if target is None:
                    continue
                target_mac = target.mac
            frame = codec.tagged(announcement(target_mac, port.mac, _PRIME), tree.tag(prime.tree))
            member.channel.send_frame(port.number, frame)
            cluster.counters.add("announcements_sent")
