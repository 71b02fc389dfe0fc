# SPDX-License-Identifier: Apache-2.0
"""A model of bridges and learning switches, which runs frames through planned flows.

Tests assert where the frames arrive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from ri2n_sdn.fabric.classes import TrafficClass
from ri2n_sdn.fabric.helper_links import number_helper_links
from ri2n_sdn.fabric.model import Fabric, Host, Nic, PathKey
from ri2n_sdn.pipeline.jobs import NO_JOBS, HostJobs
from ri2n_sdn.pipeline.layout import GUEST_PORTS, LOCAL, PLAIN_PORT, WIRE_PORT
from ri2n_sdn.pipeline.plan import plan_host
from tests.unit.one_bridge import CONTROLLER, Bridge, Frame, connection_of, startup_rows
from tests.unit.order_model import Arrival, Sent, check_change

__all__ = ["CONTROLLER", "Bridge", "Cluster", "Frame", "Network", "connection_of", "ports_of"]


def ports_of(host: Host) -> list[int]:
    """The bridge's ports that have carrier while nothing is broken."""
    taps = [PLAIN_PORT, WIRE_PORT] if host.helper_up or host.helper_hangs else []
    return [*(nic.port for nic in host.nics), *taps, *(guest.port for guest in host.guests)]


class Network:
    """A learning switch. Its members are (host, port) of bridges and (name, 0) of plain hosts."""

    def __init__(self) -> None:
        self.members: set[tuple[str, int]] = set()
        self.table: dict[str, tuple[str, int]] = {}
        self.learns = True

    def forward(self, frame: Frame, source: tuple[str, int]) -> list[tuple[str, int]]:
        if self.learns:
            self.table[frame.eth_src] = source
        target = self.table.get(frame.eth_dst)
        if not frame.multicast and target is not None:
            return [target] if target != source else []
        return sorted(self.members - {source})


class Cluster:
    """Managed hosts with their planned bridges, plain hosts, and switches.

    `hosts` has the network of each NIC. Hosts in `helpers` have a helper that runs. Frames that go
    to TAPs and to guests' ports are kept in `taps`, frames that go to the controller in
    `to_controller`.
    """

    def __init__(
        self,
        hosts: Mapping[str, list[str]],
        plain: Mapping[str, str] | None = None,
        helpers: Collection[str] = (),
        by_flows: tuple[TrafficClass, ...] = (),
        placement: Mapping[str, tuple[int, ...]] | None = None,
        jobs: Mapping[str, HostJobs] | None = None,
    ) -> None:
        self.taps: list[tuple[str, int, Frame]] = []
        self.to_controller: list[tuple[str, Frame]] = []
        self.hosts: dict[str, Host] = {}
        self.networks: dict[str, Network] = {}
        for number, (name, wires) in enumerate(hosts.items(), 1):
            nics = tuple(
                Nic(
                    name,
                    f"eth{i}",
                    i + 1,
                    f"04:00:00:00:{number:02x}:{i + 1:02x}",
                    10**8,
                    network=network,
                )
                for i, network in enumerate(wires)
            )
            own = name in helpers
            self.hosts[name] = Host(
                name,
                number,
                f"06:00:00:00:{number:02x}:00",
                nics,
                accepts_wire=True,
                helper=own,
                helper_up=own,
            )
            for nic in nics:
                self.networks.setdefault(nic.network or "", Network()).members.add(nic.id)
        self.plain = dict(plain or {})
        for name, network in self.plain.items():
            self.networks.setdefault(network, Network()).members.add((name, 0))
        self.fabric = Fabric(
            self.hosts,
            number_helper_links(Fabric(self.hosts), {}),
            by_flows,
            placement=placement or {},
        )
        self.bridges = {
            name: Bridge(
                plan_host(self.fabric, name, {}, 64, (jobs or {}).get(name, NO_JOBS)),
                ports_of(host),
            )
            for name, host in self.hosts.items()
        }

    def plain_mac(self, name: str) -> str:
        return f"0a:00:00:00:00:{sorted(self.plain).index(name) + 1:02x}"

    def cut(self, host: str, port: int) -> None:
        """Take the carrier from a NIC and its switch port. There is no new plan.

        The switch forgets the addresses that it learned on that port.
        """
        self.bridges[host].carrier.discard(port)
        for network in self.networks.values():
            network.members.discard((host, port))
            network.table = {mac: at for mac, at in network.table.items() if at != (host, port)}

    def replan(
        self,
        fabric: Fabric,
        pair_slots: Mapping[tuple[str, str], tuple[PathKey, ...]] | None = None,
        slots: int = 64,
        jobs: Mapping[str, HostJobs] | None = None,
    ) -> None:
        """Bring the bridges of all hosts of `fabric` to their new plans.

        Frames are sent at every moment of the change (`check_change`).
        """
        wanted = {}
        for name in fabric.hosts:
            own = {
                receiver: table
                for (sender, receiver), table in (pair_slots or {}).items()
                if sender == name
            }
            wanted[name] = plan_host(fabric, name, own, slots, (jobs or {}).get(name, NO_JOBS))
        check_change(self, wanted, fabric)
        self.fabric = fabric

    def plug(self, host: Host) -> None:
        """Add a host, or replace one, that no controller has seen yet. There is no new plan."""
        self.unplug(host.name)
        self.hosts[host.name] = host
        for nic in host.nics:
            self.networks.setdefault(nic.network or "", Network()).members.add(nic.id)
        if host.name in self.bridges:
            self.bridges[host.name].carrier = set(ports_of(host))
        else:
            taps = [PLAIN_PORT, WIRE_PORT] if host.helper else []
            rows = startup_rows(host.mac, {nic.port: nic.mac for nic in host.nics}, taps)
            self.bridges[host.name] = Bridge(rows, ports_of(host))

    def unplug(self, name: str) -> None:
        """Pull all cables of a host. There is no new plan."""
        self.hosts.pop(name, None)
        for network in self.networks.values():
            network.members = {member for member in network.members if member[0] != name}
            network.table = {mac: at for mac, at in network.table.items() if at[0] != name}

    @contextmanager
    def undone(self) -> Iterator[None]:
        """A context at whose end bridges and switches forget what they learned in it."""
        bridges = [
            (
                bridge,
                dict(bridge.learned),
                dict(bridge.followed),
                dict(bridge.placed),
                bridge.learns,
            )
            for bridge in self.bridges.values()
        ]
        tables = [
            (network, dict(network.table), network.learns) for network in self.networks.values()
        ]
        taps, to_controller = list(self.taps), list(self.to_controller)
        try:
            yield
        finally:
            for bridge, learned, followed, placed, learns in bridges:
                bridge.learned, bridge.followed, bridge.placed, bridge.learns = (
                    learned,
                    followed,
                    placed,
                    learns,
                )
            for network, table, learns in tables:
                network.table, network.learns = table, learns
            self.taps[:], self.to_controller[:] = taps, to_controller

    def still(self) -> None:
        """From now on, bridges and switches learn nothing."""
        for bridge in self.bridges.values():
            bridge.learns = False
        for network in self.networks.values():
            network.learns = False

    def outcome(self, sent: Sent) -> Counter[Arrival]:
        """All arrivals of a frame: at hosts, their helpers and guests, and the controller."""
        self.taps.clear()
        self.to_controller.clear()
        if sent.wire:
            got = self.send_from_nic(sent.host, sent.frame, sent.in_port)
        else:
            got = self.send(sent.host, sent.frame, sent.in_port)
        return Counter(
            [(host, LOCAL, frame) for host, frame in got]
            + self.taps
            + [(host, CONTROLLER, frame) for host, frame in self.to_controller]
        )

    def send_from_nic(self, host: str, frame: Frame, port: int = 1) -> list[tuple[str, Frame]]:
        """Send a frame as the controller does: out of the NIC, without the tables."""
        return self._spread(self._onto_wires(host, [(port, frame)]))

    def send(self, host: str, frame: Frame, in_port: int = LOCAL) -> list[tuple[str, Frame]]:
        """Send a frame from `host`, or from one of its TAPs.

        Returns (host, frame) for each copy that a host gets.
        """
        if host in self.plain:
            return self._spread([(self.plain[host], frame, (host, 0))])
        out = self.bridges[host].receive(frame, in_port)
        return self._delivered(host, out) + self._spread(self._onto_wires(host, out))

    def _spread(self, pending: list[tuple[str, Frame, tuple[str, int]]]) -> list[tuple[str, Frame]]:
        got: list[tuple[str, Frame]] = []
        for _ in range(1000):
            if not pending:
                return got
            network, sent, source = pending.pop(0)
            for name, port in self.networks[network].forward(sent, source):
                if name in self.plain:
                    if sent.multicast or sent.eth_dst == self.plain_mac(name):
                        got.append((name, sent))
                    continue
                out = self.bridges[name].receive(sent, port)
                got += self._delivered(name, out)
                pending += self._onto_wires(name, out)
        raise AssertionError("the frame never comes to rest: a storm")

    def _delivered(self, host: str, out: list[tuple[int, Frame]]) -> list[tuple[str, Frame]]:
        """The frames that the host itself gets. Those for others on its bridge are kept."""
        kept = (PLAIN_PORT, WIRE_PORT, *GUEST_PORTS)
        self.taps += [(host, port, frame) for port, frame in out if port in kept]
        self.to_controller += [(host, frame) for port, frame in out if port == CONTROLLER]
        return [(host, frame) for port, frame in out if port == LOCAL]

    def _onto_wires(
        self, host: str, out: list[tuple[int, Frame]]
    ) -> list[tuple[str, Frame, tuple[str, int]]]:
        return [
            (nic.network or "", frame, nic.id)
            for port, frame in out
            for nic in (self.hosts[host].nics if host in self.hosts else ())
            if nic.port == port
        ]
