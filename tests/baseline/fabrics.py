# SPDX-License-Identifier: Apache-2.0
"""Fabrics for the baseline of rows: those of shipped topologies, and others drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from ri2n_sdn.fabric.classes import TrafficClass
from ri2n_sdn.fabric.helper_links import number_helper_links
from ri2n_sdn.fabric.model import Fabric, Guest, Host, Nic
from ri2n_sdn.fabric.switches import SwitchGraph, VlanSpec
from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.pipeline.layout import GUEST_PORTS
from ri2n_sdn.vlan.build import build_trees, topology_trees
from ri2n_sdn.vlan.large import load_generated
from ri2n_sdn.vlan.routing import DeadParts, VlanRouting, networks_of
from ri2n_sdn.vlan.tables import pair_candidates
from ri2n_sdn.vlan.trees import Trees
from tests.unit.fat_model import vbft_graph

__all__ = ["Draw", "drawn_fabric", "shipped", "shipped_fabric", "with_helpers"]

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
SMALL_HOSTS, DRAWN_HOSTS = 8, 32
_RATES_BPS = (10**7, 10**8, 10**9)
Item = TypeVar("Item")


class Draw:
    """Draws that follow from a seed alone, in every process and with every version of Python."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # a text is hashed by SHA-512

    def number(self, below: int) -> int:
        """A whole number from 0."""
        return int(self._random.random() * below)

    def chance(self, part: float) -> bool:
        """True in this part of all cases."""
        return self._random.random() < part

    def one(self, items: Sequence[Item]) -> Item:
        """One of some items."""
        return items[self.number(len(items))]

    def some(self, items: Iterable[Item], count: int) -> list[Item]:
        """So many of the items, in their order."""
        ranked = sorted(enumerate(items), key=lambda _: self._random.random())
        return [item for _, item in sorted(ranked[:count], key=lambda pair: pair[0])]


class _Place(NamedTuple):
    """A NIC as drawn or written down. `switch` is None where its network has no cables."""

    name: str
    network: str
    rate_bps: int
    switch: str | None


def shipped(*, small: bool) -> list[str]:
    """The names (`fig4/d`) of shipped topologies of up to SMALL_HOSTS hosts, or the others."""
    names = sorted(
        path.relative_to(TOPOLOGIES).with_suffix("").as_posix()
        for path in TOPOLOGIES.rglob("*.yaml")
    )
    return [name for name in names if _is_small(name) == small]


def shipped_fabric(name: str) -> Fabric:
    """The managed hosts of a shipped topology; DRAWN_HOSTS of them where they are generated."""
    path = TOPOLOGIES / f"{name}.yaml"
    if _is_generated(path):
        file = load_generated(path)
        trees = build_trees(file.graph, sorted(set(file.leaf.tolist())), file.vlans)
        (network,) = networks_of(trees, file.graph.names)
        drawn = Draw(name).some(range(len(file.leaf)), DRAWN_HOSTS)
        places = {
            (f"h{place + 1}", place + 1): [
                _Place("nic0", network, 10**9, file.graph.names[file.leaf[place]])
            ]
            for place in drawn
        }
        return _fabric(places, file.graph, trees, file.vlans)
    topology = load_topology(path)
    cabled = set(topology.graph.component[topology.graph.ends.ravel()].tolist())
    switches = topology.graph.index
    places = {
        (host, topology.number(host)): [
            _Place(
                nic.name,
                topology.network_of[nic.switch],
                nic.rate_bps,
                nic.switch if topology.graph.component[switches[nic.switch]] in cabled else None,
            )
            for nic in topology.hosts[host].nics
        ]
        for host in topology.managed_hosts()
    }
    made = topology_trees(topology) if cabled else None
    return _fabric(places, topology.graph, made, topology.vlans)


def drawn_fabric(draw: Draw) -> Fabric:
    """A flat fabric or a fat tree whose hosts differ in all that rows depend on."""
    if draw.chance(0.6):
        networks = [f"n{number}" for number in range(1, 2 + draw.number(4))]
        places = {
            (f"H{number}", number): [
                _Place(f"eth{port}", draw.one(networks), draw.one(_RATES_BPS), None)
                for port in range(1 + draw.number(4))
            ]
            for number in range(1, 3 + draw.number(4))
        }
        fabric = _fabric(places)
    else:
        leaves, uppers, per_leaf = 1 + draw.number(3), 1 + draw.number(3), 1 + draw.number(2)
        graph = vbft_graph(leaves, uppers)
        spec = VlanSpec.model_validate(
            {"table": draw.one(("cyclic", "spread")), "per_pair": 1 + draw.number(4)}
        )
        trees = build_trees(graph, range(leaves), spec)
        places = {
            (f"H{number}", number): [
                _Place("nic0", "leaf1", 10**8, graph.names[number % leaves]),
                *[_Place("nic1", "flat", 10**9, None)] * draw.chance(0.3),
            ]
            for number in range(1, 2 + leaves * per_leaf)
        }
        links = [
            (tree, link)
            for tree in range(trees.count)
            for link in range(2 * len(graph.ends))
            if draw.chance(0.1)
        ]
        fabric = _fabric(places, graph, trees, spec, DeadParts(links=frozenset(links)))
    return _decorated(fabric, draw)


def with_helpers(fabric: Fabric) -> Fabric:
    """The fabric with a helper that runs on every host."""
    hosts = {
        name: replace(host, helper=True, helper_up=True) for name, host in fabric.hosts.items()
    }
    return replace(fabric, hosts=hosts, helper_link_numbers=_numbers(replace(fabric, hosts=hosts)))


def _is_generated(path: Path) -> bool:
    return "\ngenerate:" in path.read_text(encoding="utf-8")


def _is_small(name: str) -> bool:
    path = TOPOLOGIES / f"{name}.yaml"
    return not _is_generated(path) and len(load_topology(path).hosts) <= SMALL_HOSTS


def _fabric(
    places: dict[tuple[str, int], list[_Place]],
    graph: SwitchGraph | None = None,
    trees: Trees | None = None,
    spec: VlanSpec | None = None,
    dead: DeadParts | None = None,
) -> Fabric:
    routing = None
    if trees is not None and graph is not None and spec is not None:
        numbers = dict(places.keys())
        rule = "cyclic" if spec.table == "profile" else spec.table
        per_pair, all_trees = spec.per_pair, trees

        def candidates(sender: str, receiver: str, a: int, b: int) -> tuple[int, ...]:
            ends = numbers[sender], numbers[receiver]
            return pair_candidates(all_trees, *ends, a, b, rule, per_pair)

        networks = networks_of(trees, graph.names)
        routing = VlanRouting(trees, candidates, networks, dead or DeadParts())
    hosts = {}
    for (name, number), nics in places.items():
        middle = f"{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
        hosts[name] = Host(
            name,
            number,
            f"06:00:{middle}:00",
            tuple(
                Nic(
                    *(name, nic.name, port, f"04:00:{middle}:{port:02x}", nic.rate_bps),
                    network=nic.network,
                    switch=nic.switch,
                )
                for port, nic in enumerate(nics, start=1)
            ),
            accepts_wire=True,
        )
    return Fabric(hosts, routing=routing)


def _decorated(fabric: Fabric, draw: Draw) -> Fabric:
    """The same hosts with helpers, guests, dead NICs, services and so on, as drawn."""
    hosts = {}
    for name, host in fabric.hosts.items():
        helper = draw.chance(0.5)
        guests = [
            Guest(port, f"02:aa:00:00:{host.dpid:02x}:{port % 256:02x}")
            for port in list(GUEST_PORTS)[: draw.number(3)]
        ]
        hosts[name] = replace(
            host,
            nics=tuple(
                replace(
                    nic,
                    up=not draw.chance(0.08),
                    tx_alive=not draw.chance(0.08),
                    rx_alive=not draw.chance(0.08),
                    network=None if draw.chance(0.05) else nic.network,
                )
                for nic in host.nics
            ),
            accepts_wire=not draw.chance(0.1),
            connected=not draw.chance(0.1),
            extra_macs=tuple(
                f"02:bb:00:00:{host.dpid:02x}:{number:02x}" for number in range(draw.number(3))
            ),
            guests=tuple(guests),
            hash_algorithm=draw.number(2),
            control_port=6653 if draw.chance(0.5) else None,
            helper=helper,
            helper_up=helper and not draw.chance(0.2),
            may_stripe=not draw.chance(0.1),
            helper_hangs=helper and draw.chance(0.1),
        )
    plain = replace(fabric, hosts=hosts)
    classes = (
        TrafficClass("tcp", 22),
        TrafficClass("udp", 4791, 26),
        TrafficClass("icmp"),
        TrafficClass(None, None, 46),
    )
    return replace(
        plain,
        helper_link_numbers=_numbers(plain),
        by_flows=tuple(draw.some(classes, draw.number(3))),
        placement={name: draw.one(((), (2049,), (80, 5201))) for name in hosts if draw.chance(0.3)},
    )


def _numbers(fabric: Fabric) -> dict[tuple[str, str], dict[tuple[int, int, int], int]]:
    found = number_helper_links(fabric, {})
    return {pair: dict(numbers) for pair, numbers in found.items()}
