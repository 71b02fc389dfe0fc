# SPDX-License-Identifier: Apache-2.0
"""What is known of NICs, trees and dead links at one moment.

Liveness and its inquiries ask for it again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.discovery.fault_causes import find_causes, problem_of
from ri2n_sdn.discovery.nic_state import Direction
from ri2n_sdn.fabric.model import NicId
from ri2n_sdn.vlan.trees import Trees

__all__ = ["DEAD_COST", "Element", "End", "Port", "TreeProbe", "TreeState"]

End: TypeAlias = tuple[NicId, Direction]
"""One end of a probe: its sender ("tx") or its receiver ("rx")."""

Port: TypeAlias = tuple[NicId, int, Direction]
"""(NIC, tree, direction): what a NIC sends or receives in one VLAN."""

Element: TypeAlias = tuple[str, ...]
"""A switch, a direction of a cable, or a NIC in some VLANs."""

DEAD_COST = 1 << 20
"""The cost of a dead link for `TreePaths.crossings`: more than any number of suspects costs."""

# By what works of a NIC in a VLAN: whether its frames pass its leaf, whether frames to it do.
_PORT_CODES = {
    (False, False): "nic_vlans_cut",
    (False, True): "nic_vlans_unheard",
    (True, False): "nic_vlans_hear_nothing",
}


@dataclass(frozen=True, slots=True)
class TreeProbe:
    """A probe to send from NIC `sender` to NIC `target` in VLAN `Trees.vlans[tree]`.

    In tree 0 it is untagged.
    """

    sender: NicId
    target: NicId
    tree: int

    @property
    def ends(self) -> tuple[End, End]:
        """The sender's end and the receiver's."""
        return (self.sender, "tx"), (self.target, "rx")


class TreeState:
    """NICs with their leaves, and what is dead.

    `leaf_of` is the leaf that each NIC is plugged into; `usable` NICs work, and their hosts can be
    asked; `nics_at` are the usable NICs of each leaf, sorted; `paths` gives the paths of a tree.
    """

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self.leaf_of: dict[NicId, int] = {}
        self.usable: frozenset[NicId] = frozenset()
        self.nics_at: dict[int, list[NicId]] = {}
        self.paths = trees.paths
        self._dead: dict[int, set[int]] = {}
        self._dead_ports: set[Port] = set()
        self._alive: dict[tuple[int, int, int], bool] = {}

    def set_nics(self, leaf_of: Mapping[NicId, int], usable: frozenset[NicId]) -> None:
        """The leaf that each NIC is plugged into, and the NICs that can be asked."""
        self.leaf_of, self.usable = dict(leaf_of), usable
        self.nics_at = {}
        for nic in sorted(usable):
            self.nics_at.setdefault(leaf_of[nic], []).append(nic)

    def set_dead(self, dead: Iterable[tuple[int, int]], ports: Iterable[Port]) -> None:
        """Everything that is dead: (tree, directed link) and ports."""
        self._dead, self._dead_ports, self._alive = {}, set(ports), {}
        for tree, link in dead:
            self._dead.setdefault(tree, set()).add(link)

    def dead_in(self, tree: int) -> Set[int]:
        """The dead links of a tree."""
        return self._dead.get(tree, frozenset())

    def path(self, probe: TreeProbe) -> tuple[int, ...]:
        """The directed links that a probe crosses."""
        return self.paths(probe.tree).path(self.leaf_of[probe.sender], self.leaf_of[probe.target])

    def path_alive(self, tree: int, a: int, b: int) -> bool:
        """Whether there is a path from leaf a to leaf b, and no link of it is dead."""
        dead, paths = self.dead_in(tree), self.paths(tree)
        if not dead:
            return paths.joined(a, b)
        if (tree, a, b) not in self._alive:
            joined = paths.joined(a, b)
            self._alive[tree, a, b] = joined and dead.isdisjoint(paths.path(a, b))
        return self._alive[tree, a, b]

    def port_alive(self, nic: NicId, tree: int) -> tuple[bool, bool]:
        """(Whether the NIC's frames in that tree pass its leaf, whether frames to it do)."""
        return (nic, tree, "tx") not in self._dead_ports, (nic, tree, "rx") not in self._dead_ports

    def can(self, probe: TreeProbe) -> bool:
        """Whether the probe can be sent and reported: both its NICs are usable."""
        return probe.sender in self.usable and probe.target in self.usable

    def explained(self, probe: TreeProbe) -> bool:
        """Whether something that is known to be dead explains that the probe was lost."""
        if any((nic, probe.tree, direction) in self._dead_ports for nic, direction in probe.ends):
            return True
        a, b = self.leaf_of[probe.sender], self.leaf_of[probe.target]
        return a != b and not self.path_alive(probe.tree, a, b)

    def ends(self, tree: int, leaf: int, direction: Direction) -> list[NicId]:
        """The NICs of a leaf that may send ("tx") or receive ("rx") in the tree."""
        nics = self.nics_at.get(leaf, [])
        if not self._dead_ports:
            return nics
        return [nic for nic in nics if (nic, tree, direction) not in self._dead_ports]

    def leaves(self, tree: int, direction: Direction) -> set[int]:
        """The leaves with a NIC that may send ("tx") or receive ("rx") in the tree."""
        return {leaf for leaf in self.nics_at if self.ends(tree, leaf, direction)}

    def problems(self, name: Callable[[NicId], str]) -> dict[Element, list[Problem]]:
        """By element of which something is dead: what is wrong with it."""

        @cache
        def spanned(tree: int) -> set[int]:
            paths = self.paths(tree)
            return {link // 2 for a, b in paths.ring(self.nics_at) for link in paths.path(a, b)}

        dead = [(tree, link) for tree, links in self._dead.items() for link in links]
        found: dict[Element, list[Problem]] = {}
        for cause in find_causes(self.trees, dead, spanned, self.nics_at):
            problem = problem_of(self.trees, cause)
            found.setdefault(tuple(problem.subject.values()), []).append(problem)
        by_port: dict[tuple[NicId, tuple[bool, bool]], list[int]] = {}
        for nic, tree in {(nic, tree) for nic, tree, _ in self._dead_ports}:
            by_port.setdefault((nic, self.port_alive(nic, tree)), []).append(self.trees.vlans[tree])
        for (nic, alive), vlans in sorted(by_port.items()):
            args = {"switch": self.trees.graph.names[self.leaf_of[nic]], "vlans": sorted(vlans)}
            problem = Problem(_PORT_CODES[alive], {"host": nic[0], "nic": name(nic)}, args)
            found[(*problem.subject.values(), *map(str, args["vlans"]))] = [problem]
        return found
