# SPDX-License-Identifier: Apache-2.0
"""The paths that pairs of NICs may use.

They follow from the trees, the candidates of a path table, and what is dead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ri2n_sdn.fabric.model import UNTAGGED, Nic, NicId, Route
from ri2n_sdn.vlan.trees import Trees

__all__ = ["DeadParts", "VlanRouting", "networks_of", "tag_of"]

Candidates = Callable[[str, str, int, int], tuple[int, ...]]
"""(Sender, receiver, the sender's switch, the receiver's) -> the trees that they may use."""


def tag_of(trees: Trees, tree: int) -> int:
    """The VLAN ID that hosts put on frames of a tree; UNTAGGED for the first tree."""
    return trees.vlans[tree] if tree else UNTAGGED


@dataclass(frozen=True)
class DeadParts:
    """The parts of trees that do not work."""

    links: frozenset[tuple[int, int]] = frozenset()
    """(Tree, directed link)."""
    sending: frozenset[tuple[NicId, int]] = frozenset()
    """(NIC, tree): what the NIC sends in it does not pass its switch."""
    receiving: frozenset[tuple[NicId, int]] = frozenset()
    """(NIC, tree): what is sent to the NIC in it does not pass its switch."""


@dataclass(frozen=True, eq=False)
class VlanRouting:
    """Implements `fabric.model.Routing`; a new one is made when something dies or comes back.

    `networks` are the switches of each network, by its name. A NIC whose switch is not declared may
    use the base tree alone: it is not known which links its frames cross.
    """

    trees: Trees
    candidates: Candidates
    networks: Mapping[str, tuple[str, ...]]
    dead: DeadParts = DeadParts()
    _paths: dict[tuple[int, int, int], Route] = field(default_factory=dict)

    def routes(self, own: Nic, peer: Nic) -> tuple[Route, ...]:
        """The paths from NIC to NIC of one network, in order of the trees.

        When all trees that the table allows are dead for the two, the next tree that works is
        added.
        """
        index = self.trees.graph.index
        if own.switch is None or peer.switch is None:
            return (Route(),)
        a, b = index[own.switch], index[peer.switch]
        wanted = sorted(self.candidates(own.host, peer.host, a, b))
        routes = {tree: self._route(tree, own, peer, a, b) for tree in wanted}
        if not any(route is not None and route.alive for route in routes.values()):
            first = wanted[0] if wanted else 0
            for step in range(1, self.trees.count):
                tree = (first + step) % self.trees.count
                route = self._route(tree, own, peer, a, b)
                if route is not None and route.alive:
                    routes[tree] = route
                    break
        return tuple(route for _, route in sorted(routes.items()) if route is not None)

    def _route(self, tree: int, own: Nic, peer: Nic, a: int, b: int) -> Route | None:
        path = self._path(tree, a, b)
        if path is not None and (
            (own.id, tree) in self.dead.sending or (peer.id, tree) in self.dead.receiving
        ):
            return replace(path, alive=False)
        return path

    def capacities_bps(self) -> Mapping[str, float]:
        """The rate of every directed link between switches in bit/s, by the link's name."""
        return self._capacities

    @cached_property
    def _capacities(self) -> dict[str, float]:
        graph = self.trees.graph
        rates = np.repeat(graph.rate_bps, 2).astype(np.float64).tolist()
        return {graph.link_name(link): rate for link, rate in enumerate(rates)}

    def vlans(self, nic: Nic) -> tuple[int, ...]:
        """The VLAN IDs of frames that a NIC may receive.

        These are all of its network, since the ones in use change.
        """
        members = self.networks.get(nic.network or "")
        if members is None:
            return (UNTAGGED,)
        return tuple(tag_of(self.trees, tree) for tree in self._trees_of(members))

    def flood_vlans(self, network: str, nics: Collection[Nic]) -> tuple[int, ...]:
        """The VLANs to flood in: the tree with the fewest dead parts, and one that differs from it.

        A part is a link, or the port of one of `nics`: where a VLAN is missing at a port, one host
        receives no broadcasts. Of the other trees with the fewest dead parts, the second one shares
        the fewest cables with the first, so that one fault seldom breaks both.
        """
        members = self.networks.get(network)
        if members is None:
            return (UNTAGGED,)
        places = [self.trees.graph.index[name] for name in members]
        trees = self._trees_of(members)
        cables = {tree: set(self.trees.cable[tree, places].tolist()) - {-1} for tree in trees}
        damage = Counter(t for t, link in self.dead.links if link // 2 in cables.get(t, ()))
        ports = (*self.dead.sending, *self.dead.receiving)
        nic_ids = {nic.id for nic in nics} if ports else set()
        damage.update(tree for nic_id, tree in ports if nic_id in nic_ids)
        best = min(trees, key=lambda tree: (damage[tree], tree))

        def rank(tree: int) -> tuple[int, int, int]:
            return (damage[tree], len(cables[best] & cables[tree]), tree)

        second = min((tree for tree in trees if tree != best), key=rank, default=None)
        return tuple(tag_of(self.trees, tree) for tree in (best, second) if tree is not None)

    def _trees_of(self, members: tuple[str, ...]) -> list[int]:
        """The trees of the network of these switches."""
        place = self.trees.graph.index[members[0]]
        return np.flatnonzero(self.trees.depth[:, place] >= 0).tolist()

    def _path(self, tree: int, a: int, b: int) -> Route | None:
        key = (tree, a, b)
        if key not in self._paths:
            trees = self.trees
            paths = trees.paths(tree)
            if not paths.joined(a, b):
                return None
            links = paths.path(a, b)
            rates = [int(trees.graph.rate_bps[link // 2]) for link in links]
            self._paths[key] = Route(
                tag_of(trees, tree),
                tuple(trees.graph.link_name(link) for link in links),
                not any((tree, link) in self.dead.links for link in links),
                min(rates, default=None),
            )
        return self._paths[key]


def networks_of(trees: Trees, switches: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The switches of each network with cables; its name is its first switch of `switches`."""
    members: dict[int, list[str]] = {}
    for name in switches:
        members.setdefault(int(trees.graph.component[trees.graph.index[name]]), []).append(name)
    return {names[0]: tuple(names) for names in members.values() if len(names) > 1}
