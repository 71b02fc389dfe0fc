# SPDX-License-Identifier: Apache-2.0
"""What the VLAN app sends, and what it makes of silence.

It sends probes and announcements of every NIC in every VLAN.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ri2n_sdn.apps import vlans
from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.codec import untagged
from ri2n_sdn.apps.probes import ProbeKind
from ri2n_sdn.apps.vlans import VlanApp
from ri2n_sdn.fabric.model import Fabric, NicId
from ri2n_sdn.vlan.routing import tag_of

from .test_fat_tree import config_of, made

OUI_EXTENDED = 0x88B7


class Line:
    """A channel that keeps the frames that the switch is to send, by port."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        self.answered_s = -1e9
        self.datapath = SimpleNamespace()

    def send_frame(self, port: int, frame: bytes) -> None:
        self.frames.append((port, frame))

    def send(self, kind: int, body: bytes) -> None:
        pass


class World:
    """Hosts of vbft_4_4 with one NIC each, and an app whose time is set by hand."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster(config_of(table="spread"), "max_min", folder / "socket")
        self.tree = self.cluster.fat_tree
        assert self.tree is not None
        _, self.fabric = made(table="spread")
        self.cluster.started = True
        self.cluster.wake.stop.set()  # no waiting between turns
        self.lines = {name: Line() for name in self.fabric.hosts}
        for name, host in self.fabric.hosts.items():
            nic = host.nics[0]
            ports = {1: Port(1, nic.name, nic.mac, True, 10**8)}
            line = cast(Channel, self.lines[name])
            self.cluster.members[name] = Member(name, host.dpid, host.mac, "3.1.0", ports, line)
        monkeypatch.setattr(Cluster, "fabric", lambda _: self.fabric)
        self.now_s = 1000.0
        monkeypatch.setattr(vlans, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.app = VlanApp()
        self.app.cluster = self.cluster

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.025)):
            self.app._turn()
            self.now_s += 0.025

    def announced(self) -> set[tuple[str, int]]:
        """(Host, VLAN ID) of the announcements since the last call."""
        found = set()
        for name, line in self.lines.items():
            mac = bytes.fromhex(self.fabric.hosts[name].nics[0].mac.replace(":", ""))
            for port, frame in line.frames:
                plain, vlan = untagged(frame)
                if plain[12:14] == OUI_EXTENDED.to_bytes(2, "big"):
                    assert port == 1 and plain[6:12] == mac and plain[0] & 1
                    found.add((name, vlan))
            line.frames.clear()
        return found

    def everybody(self) -> set[tuple[str, int]]:
        assert self.tree is not None
        return {
            (name, tag_of(self.tree.trees, tree))
            for name in self.lines
            for tree in range(self.tree.trees.count)
        }


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_every_nic_is_announced_in_every_vlan_and_again_after_a_change(world: World) -> None:
    world.run(2.0)
    assert world.announced() == world.everybody()
    world.run(2.0)
    assert len(world.announced()) < len(world.everybody()) / 2  # they are repeated, but not at once
    # After a change, a switch may have forgotten them.
    world.fabric = Fabric(world.fabric.hosts, routing=world.fabric.routing)
    world.run(2.0)
    assert world.announced() == world.everybody()


def test_nothing_is_sent_before_the_controller_is_in_charge(world: World) -> None:
    world.cluster.started = False
    world.run(1.0)
    assert not any(line.frames for line in world.lines.values())


def test_probes_go_from_nic_to_nic_in_the_vlan_that_they_name(world: World) -> None:
    world.run(1.0)
    macs = {
        bytes.fromhex(host.nics[0].mac.replace(":", "")) for host in world.fabric.hosts.values()
    }
    seen = set()
    for name, line in world.lines.items():
        for port, frame in line.frames:
            if untagged(frame)[0][12:14] == OUI_EXTENDED.to_bytes(2, "big"):
                continue
            probe = world.cluster.probes.decode(frame, world.now_s)
            assert (probe.kind, probe.dpid, probe.port) == (
                ProbeKind.TREE,
                world.fabric.hosts[name].dpid,
                port,
            )
            assert frame[:6] in macs and frame[:6] != frame[6:12]
            seen.add(probe.vlan)
    assert seen == {vlan for _, vlan in world.everybody()}


def test_vlans_are_judged_by_how_far_this_machine_is_behind_with_reading_probes(
    world: World,
) -> None:
    assert world.tree is not None
    world.cluster.wiring.lag_s = 1.5
    world.run(0.025)
    assert world.tree.liveness.lag_s == 1.5


@pytest.mark.parametrize("direction", ["tx", "rx"])
def test_a_port_that_is_dead_in_one_direction_is_taken_over_as_such(
    world: World, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.tree is not None
    nic: NicId = ("n1", 1)
    monkeypatch.setattr(
        type(world.tree.liveness),
        "dead_ports",
        property(lambda _: frozenset({(nic, 2, direction)})),
    )
    assert world.tree.found_dead()
    dead = world.tree.dead
    assert not world.tree.found_dead()  # the same as before
    only = frozenset({(nic, 2)})
    assert (dead.sending, dead.receiving) == (
        (only, frozenset()) if direction == "tx" else (frozenset(), only)
    )
