# SPDX-License-Identifier: Apache-2.0
"""Hosts, NICs and networks of which a test can break anything, for the discovery of wiring."""

from __future__ import annotations

from collections import deque

from ri2n_sdn.discovery.wiring import Probe, Wiring
from ri2n_sdn.fabric.model import NicId

__all__ = ["TICK_S", "World", "settled", "two_networks"]

TICK_S = 0.025


class World:
    """NICs on networks; probes take 1 ms. `mute` NICs cannot send, `deaf` ones cannot receive.

    `stalled` and `frozen` say until when a host is so. The probes of a stalled host are late,
    although it answers echo requests. A frozen one does nothing at all until then; afterwards it
    does `speed` things a tick, in the order in which it was asked. NICs that are `flooded` get so
    many probes of strangers that they report no others.
    """

    def __init__(self, wires: dict[NicId, str]) -> None:
        self.now_s = 100.0
        self.wires = dict(wires)
        self.wiring = Wiring()
        self.mute: set[NicId] = set()
        self.deaf: set[NicId] = set()
        self.silent_hosts: set[str] = set()
        self.log: list[str] = []
        self.sent = 0
        self.reports = 0
        self.delay_s = 0.001
        self.stalled: dict[str, float] = {}
        self.frozen: dict[str, float] = {}
        self.speed = 10**9
        self.asked: dict[str, deque[Probe | float]] = {host: deque() for host, _ in wires}
        self.answered: dict[str, float] = {}
        self.echoes_s = 0.0  # when all hosts are sent the next echo request
        self.delayed: list[tuple[float, NicId, NicId, bool]] = []
        self.flooded: set[NicId] = set()
        for nic in sorted(wires):
            self.wiring.set_nic(nic, True, self.now_s)

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += TICK_S
            self.tick()

    def tick(self) -> None:
        for probe in self.wiring.tick(self.now_s, lambda host: self.answered.get(host, -1e9)):
            self.sent += 1
            self.asked.setdefault(probe.sender[0], deque()).append(probe)
        echoed = set(self.wiring.hosts_under_test)
        if self.now_s >= self.echoes_s:
            self.echoes_s = self.now_s + 0.5
            echoed |= {host for host, _ in self.wires}
        for host in sorted(echoed):
            self.asked.setdefault(host, deque()).append(self.now_s)
        for host, asked in self.asked.items():
            if host in self.silent_hosts or self.now_s < self.frozen.get(host, 0.0):
                continue
            for _ in range(min(self.speed, len(asked))):
                thing = asked.popleft()
                if isinstance(thing, Probe):
                    self._send(thing)
                else:
                    self.answered[host] = thing
        due = [report for report in self.delayed if report[0] <= self.now_s + 0.001]
        self.delayed = [report for report in self.delayed if report[0] > self.now_s + 0.001]
        for _, sender, receiver, flooded in due:
            if receiver not in self.flooded:
                self.wiring.heard(sender, receiver, flooded, self.now_s + 0.001)
        for nic in self.flooded:
            for _ in range(25):
                self.wiring.strange(nic, self.now_s)
        self.log += [event.text for event in self.wiring.events]
        self.wiring.events.clear()

    def _send(self, probe: Probe) -> None:
        if probe.sender in self.mute or probe.sender not in self.wires:
            return
        for nic, network in sorted(self.wires.items()):
            if nic == probe.sender or network != self.wires[probe.sender] or nic in self.deaf:
                continue
            if nic[0] in self.silent_hosts or probe.target not in (None, nic):
                continue
            self.reports += 1
            late_s = [
                late.get(host, 0.0)
                for late in (self.stalled, self.frozen)
                for host in (nic[0], probe.sender[0])
            ]
            self.delayed.append(
                (max(self.now_s, *late_s) + self.delay_s, probe.sender, nic, probe.target is None)
            )

    def learned(self) -> dict[str, set[NicId]]:
        found: dict[str, set[NicId]] = {}
        for nic in self.wires:
            found.setdefault(self.wiring.network(nic) or "?", set()).add(nic)
        return found

    def agrees(self) -> bool:
        actual: dict[str, set[NicId]] = {}
        for nic, network in self.wires.items():
            actual.setdefault(network, set()).add(nic)
        return sorted(map(sorted, actual.values())) == sorted(map(sorted, self.learned().values()))

    def dead(self) -> dict[NicId, tuple[bool, bool]]:
        return {
            nic: self.wiring.alive(nic)
            for nic in self.wires
            if self.wiring.alive(nic) != (True, True)
        }


def two_networks(hosts: int) -> dict[NicId, str]:
    return {(f"h{i:03}", port): f"net{port}" for i in range(hosts) for port in (1, 2)}


def settled(wires: dict[NicId, str], seconds: float = 1.5) -> World:
    world = World(wires)
    world.run(seconds)
    assert world.wiring.settled and world.agrees(), world.learned()
    assert not world.dead()
    return world
