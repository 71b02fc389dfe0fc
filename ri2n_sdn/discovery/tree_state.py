"""What is known of NICs, trees and dead links at one moment:

what liveness and its inquiries ask again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ri2n_sdn.discovery.fault_causes import causes, in_words, vlan_text
from ri2n_sdn.discovery.tree_paths import TreePaths
from ri2n_sdn.fabric.model import NicId
from ri2n_sdn.vlan.trees import Trees

__all__ = ["DEAD_COST", "Direction", "End", "Port", "TreeProbe", "TreeState"]

Direction: TypeAlias = Literal["tx", "rx"]

End: TypeAlias = tuple[NicId, Direction]

Port: TypeAlias = tuple[NicId, int, Direction]
"""(NIC, tree, direction)."""

DEAD_COST = 1 << 20
"""More than any number of suspects on a way (TreePaths.crossings)."""


@dataclass(frozen=True, slots=True)
class TreeProbe:
    """A probe to send from NIC `sender` to NIC `target` in VLAN `Trees.vlans[tree]` (tree 0:

    untagged).
    """

    sender: NicId
    target: NicId
    tree: int

    @property
    def ends(self) -> tuple[End, End]:
        return (self.sender, "tx"), (self.target, "rx")


class TreeState:
    """NICs with their leaves, and what is dead. `nics_at` are the usable NICs of each leaf,
    sorted.
    """

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self.leaf_of: dict[NicId, int] = {}
        self.usable: frozenset[NicId] = frozenset()
        self.nics_at: dict[int, list[NicId]] = {}
        self._ways: dict[int, TreePaths] = {}
        self._dead: dict[int, set[int]] = {}
        self._dead_ports: set[Port] = set()
        self._alive: dict[tuple[int, int, int], bool] = {}

    def set_nics(self, leaf_of: Mapping[NicId, int], usable: frozenset[NicId]) -> None:
        self.leaf_of, self.usable = dict(leaf_of), usable
        self.nics_at = {}
        for nic in sorted(usable):
            self.nics_at.setdefault(leaf_of[nic], []).append(nic)

    def set_dead(self, dead: Iterable[tuple[int, int]], ports: Iterable[Port]) -> None:
        """The (tree, directed link) and the ports that are dead."""
        self._dead, self._dead_ports, self._alive = {}, set(ports), {}
        for tree, link in dead:
            self._dead.setdefault(tree, set()).add(link)

    def dead_in(self, tree: int) -> Set[int]:
        """The dead links of a tree."""
        return self._dead.get(tree, frozenset())

    def of(self, tree: int) -> TreePaths:
        found = self._ways.get(tree)
        if found is None:
            found = self._ways[tree] = TreePaths(self.trees, tree)
        return found

    def way(self, probe: TreeProbe) -> tuple[int, ...]:
        """The directed links that a probe crosses."""
        return self.of(probe.tree).way(self.leaf_of[probe.sender], self.leaf_of[probe.target])

    def way_alive(self, tree: int, a: int, b: int) -> bool:
        """There is a way from leaf a to leaf b and nothing on it is dead."""
        dead = self.dead_in(tree)
        if not dead:
            return self.of(tree).joined(a, b)
        found = self._alive.get((tree, a, b))
        if found is None:
            ways = self.of(tree)
            found = self._alive[tree, a, b] = ways.joined(a, b) and dead.isdisjoint(ways.way(a, b))
        return found

    def port_alive(self, nic: NicId, tree: int) -> tuple[bool, bool]:
        return (nic, tree, "tx") not in self._dead_ports, (nic, tree, "rx") not in self._dead_ports

    def can(self, probe: TreeProbe) -> bool:
        """Both NICs are usable."""
        return probe.sender in self.usable and probe.target in self.usable

    def explained(self, probe: TreeProbe) -> bool:
        """What is known to be dead explains that the probe was lost."""
        a, b = self.leaf_of[probe.sender], self.leaf_of[probe.target]
        sends, receives = (
            self.port_alive(probe.sender, probe.tree)[0],
            self.port_alive(probe.target, probe.tree)[1],
        )
        return not (sends and receives and (a == b or self.way_alive(probe.tree, a, b)))

    def ends(self, tree: int, leaf: int, direction: Direction) -> list[NicId]:
        """The NICs of a leaf that may send ("tx") or receive ("rx") in the tree."""
        nics = self.nics_at.get(leaf, [])
        if not self._dead_ports:
            return nics
        return [nic for nic in nics if (nic, tree, direction) not in self._dead_ports]

    def leaves(self, tree: int, direction: Direction) -> set[int]:
        return {leaf for leaf in self.nics_at if self.ends(tree, leaf, direction)}

    def in_words(self, label: Callable[[NicId], str]) -> dict[str, str]:
        """Each element of which something is dead, and what is wrong with it."""
        spans: dict[int, set[int]] = {}

        def spanned(tree: int) -> set[int]:
            if tree not in spans:
                ways = self.of(tree)
                spans[tree] = {
                    link // 2 for a, b in ways.ring(self.nics_at) for link in ways.way(a, b)
                }
            return spans[tree]

        dead = [(tree, link) for tree, links in self._dead.items() for link in links]
        now: dict[str, str] = {}
        for cause in causes(self.trees, dead, spanned, self.nics_at):
            element, text = in_words(self.trees, cause)
            now[element] = f"{now[element]}; {text}" if element in now else text
        by_port: dict[tuple[NicId, tuple[bool, bool]], list[int]] = {}
        for nic, tree in {(nic, tree) for nic, tree, _ in self._dead_ports}:
            by_port.setdefault((nic, self.port_alive(nic, tree)), []).append(self.trees.vlans[tree])
        for (nic, alive), vlans in sorted(by_port.items()):
            where = f"{label(nic)} on {self.trees.graph.names[self.leaf_of[nic]]}"
            what = {
                (False, False): "does not work",
                (False, True): "nothing it sends in it arrives",
            }
            now[f"{where}, {vlan_text(vlans)}"] = what.get(alive, "nothing arrives in it")
        return now
