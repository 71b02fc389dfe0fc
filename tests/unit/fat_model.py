# SPDX-License-Identifier: Apache-2.0
"""A model of hosts on a network of several switches.

Hosts have the planned bridges; switches learn per VLAN, and flood.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from ri2n_sdn.fabric.helper_links import number_helper_links
from ri2n_sdn.fabric.model import Fabric, Host, Nic
from ri2n_sdn.fabric.switches import SwitchGraph, SwitchSpec, VlanSpec, switch_graph
from ri2n_sdn.pipeline.plan import plan_host
from ri2n_sdn.vlan.build import build_trees
from ri2n_sdn.vlan.routing import DeadParts, VlanRouting
from ri2n_sdn.vlan.tables import pair_candidates
from tests.unit.bridge_model import Bridge, Cluster, Frame, ports_of

RATE_BPS = 10**8


def vbft_graph(leaves: int, uppers: int) -> SwitchGraph:
    """The graph of VBFT(n, m): every leaf has a cable to every upper switch."""
    switches = {
        f"leaf{i}": SwitchSpec.model_validate(
            {
                "links": [
                    {"to": f"up{j}", "port": 100 + j, "rate_bps": RATE_BPS}
                    for j in range(1, uppers + 1)
                ]
            }
        )
        for i in range(1, leaves + 1)
    }
    switches |= {
        f"up{j}": SwitchSpec.model_validate(
            {
                "links": [
                    {"to": f"leaf{i}", "port": i, "rate_bps": RATE_BPS}
                    for i in range(1, leaves + 1)
                ]
            }
        )
        for j in range(1, uppers + 1)
    }
    return switch_graph(switches)


class TreeNetwork:
    """The switches: the native VLAN of each port, what they learned, and the dead links."""

    def __init__(self, routing: VlanRouting, places: Mapping[tuple[str, int], int]) -> None:
        self.routing = routing
        self.trees = routing.trees
        self.places = dict(places)
        self.table: dict[tuple[int, int, str], object] = {}
        """(switch, tree, address) -> the NIC or the cable on which the address was learned."""
        self.dead: set[tuple[int, int]] = set()
        self.learns = True
        self.flooded = 0
        self.crossed: list[str] = []

    def forward(self, frame: Frame, source: tuple[str, int]) -> list[tuple[tuple[str, int], Frame]]:
        """(NIC, frame) of every frame that arrives at a NIC."""
        tags = frame.tags
        tree = 0
        if tags and tags[0][0] in self.trees.vlans[1:]:
            tree = self.trees.vlans.index(tags[0][0])
        found: list[tuple[tuple[str, int], Frame]] = []
        self._at(self.places[source], tree, frame, source, found)
        return found

    def _at(
        self,
        switch: int,
        tree: int,
        frame: Frame,
        came: object,
        found: list[tuple[tuple[str, int], Frame]],
    ) -> None:
        if self.learns:
            self.table[switch, tree, frame.eth_src] = came
        graph, cables = self.trees.graph, self.trees.cable[tree]
        ports: list[object] = [nic for nic, place in self.places.items() if place == switch]
        ports += [("cable", cable) for _, cable in graph.neighbours[switch] if cable in cables]
        target = self.table.get((switch, tree, frame.eth_dst))
        if target is not None and not frame.multicast:
            ports = [target]
        elif not frame.multicast:
            self.flooded += 1
        for port in ports:
            if port == came:
                continue
            if port in self.places:
                found.append((port, frame))
                continue
            cable = port[1]  # type: ignore[index]
            link = 2 * cable + int(graph.ends[cable, 0] != switch)
            if (tree, link) in self.dead:
                continue
            self.crossed.append(graph.link_name(link))
            other = int(graph.ends[cable].sum()) - switch
            self._at(other, tree, frame, port, found)


class FatCluster(Cluster):
    """Hosts n1, n2, ... with one NIC each, `per_leaf` of them on each leaf of VBFT(leaves, uppers).

    Switches have the announcements of all NICs.
    """

    def __init__(
        self,
        leaves: int = 2,
        uppers: int = 2,
        per_leaf: int = 2,
        *,
        table: str = "spread",
        per_pair: int = 4,
        dead: DeadParts | None = None,
        helpers: Collection[str] = (),
        announced: bool = True,
    ) -> None:
        dead = dead or DeadParts()
        graph = vbft_graph(leaves, uppers)
        trees = build_trees(graph, range(leaves), VlanSpec())
        self.taps = []
        self.to_controller = []
        self.networks = {}
        self.hosts = {}
        self.plain = {}
        places: dict[tuple[str, int], int] = {}
        for number in range(1, leaves * per_leaf + 1):
            name, leaf = f"n{number}", (number - 1) // per_leaf
            mac = f"04:00:00:00:{number:02x}:01"
            nic = Nic(name, "nic0", 1, mac, RATE_BPS, network="leaf1", switch=graph.names[leaf])
            own = name in helpers
            self.hosts[name] = Host(
                name,
                number,
                f"06:00:00:00:{number:02x}:00",
                (nic,),
                accepts_wire=True,
                helper=own,
                helper_up=own,
            )
            places[name, 1] = leaf

        def candidates(sender: str, receiver: str, a: int, b: int) -> tuple[int, ...]:
            return pair_candidates(trees, int(sender[1:]), int(receiver[1:]), a, b, table, per_pair)

        self.routing = VlanRouting(trees, candidates, {"leaf1": graph.names}, dead)
        numbers = number_helper_links(Fabric(self.hosts, routing=self.routing), {})
        self.fabric = Fabric(self.hosts, numbers, (), self.routing)
        self.bridges = {
            name: Bridge(plan_host(self.fabric, name, {}, 64), ports_of(host))
            for name, host in self.hosts.items()
        }
        self.switches = TreeNetwork(self.routing, places)
        self.switches.dead |= dead.links
        for (name, _), tree in (
            ((place, tree) for place in places for tree in range(trees.count)) if announced else ()
        ):
            mac, tag = self.hosts[name].nics[0].mac, trees.vlans[tree]
            announcement = Frame(mac, "03:00:00:52:49:33", 0x88B7, tags=((tag, 0),) if tree else ())
            self.send_from_nic(name, announcement)
        self.switches.flooded = 0

    @contextmanager
    def undone(self) -> Iterator[None]:
        switches = self.switches
        held = (dict(switches.table), switches.flooded, list(switches.crossed), switches.learns)
        try:
            with super().undone():
                yield
        finally:
            switches.table, switches.flooded, switches.crossed, switches.learns = held

    def still(self) -> None:
        super().still()
        self.switches.learns = False

    def _onto_wires(
        self, host: str, out: list[tuple[int, Frame]]
    ) -> list[tuple[str, Frame, tuple[str, int]]]:
        return [("", frame, (host, port)) for port, frame in out if port == 1]

    def _spread(self, pending: list[tuple[str, Frame, tuple[str, int]]]) -> list[tuple[str, Frame]]:
        got: list[tuple[str, Frame]] = []
        for _ in range(1000):
            if not pending:
                return got
            _, frame, source = pending.pop(0)
            for (name, port), copy in self.switches.forward(frame, source):
                out = self.bridges[name].receive(copy, port)
                got += self._delivered(name, out)
                pending += self._onto_wires(name, out)
        raise AssertionError("the frame never comes to rest: a storm")
