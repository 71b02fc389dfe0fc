# SPDX-License-Identifier: Apache-2.0
"""Spanning trees over a graph of switches, one VLAN ID each, and the paths in each of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ri2n_sdn.fabric.switches import SwitchGraph

__all__ = ["Int32Array", "TreePaths", "Trees", "trees_from_cables"]

Int32Array: TypeAlias = NDArray[np.int32]

_Near = tuple[int, int]
"""(Sum of costs, leaf)."""

_NO_LEAF: _Near = (1 << 60, -1)


@dataclass(frozen=True, eq=False)
class Trees:
    """T sets of trees over S switches; set t has VLAN ID `vlans[t]`.

    A set has at most one tree in each connected network. Networks share IDs, and a network with
    fewer trees than others is in the first sets only. The first set is that of untagged frames: its
    ID is what switches call it, but hosts' frames do not carry it.
    """

    graph: SwitchGraph
    vlans: tuple[int, ...]
    parent: Int32Array
    """(T, S) the switch above; -1 for a root and for a switch that set t does not reach."""
    cable: Int32Array
    """(T, S) the cable to the switch above, -1 where there is none."""
    depth: Int32Array
    """(T, S) cables up to the root; -1 for a switch that set t does not reach."""

    @property
    def count(self) -> int:
        """T, the number of sets."""
        return len(self.vlans)

    @cached_property
    def root(self) -> Int32Array:
        """(T, S) the root of the tree that each switch is in; -1 where set t does not reach it."""
        switches = np.arange(self.depth.shape[1], dtype=np.int32)
        result = np.where(self.depth >= 0, switches, np.int32(-1))
        for _ in range(int(self.depth.max(initial=0))):
            above = np.take_along_axis(self.parent, np.maximum(result, 0), axis=1)
            result = np.where((result >= 0) & (above >= 0), above, result)
        return result

    @cached_property
    def uses(self) -> NDArray[np.int64]:
        """(C,) how many trees use each cable."""
        used = self.cable[self.cable >= 0]
        return np.bincount(used, minlength=len(self.graph.rate_bps)).astype(np.int64)

    @cached_property
    def on_cables(self) -> tuple[tuple[int, ...], ...]:
        """For each cable, the VLANs whose trees use it, in rising order."""
        found: list[list[int]] = [[] for _ in self.graph.rate_bps]
        sets, switches = np.nonzero(self.cable >= 0)
        for t, cable in zip(sets.tolist(), self.cable[sets, switches].tolist(), strict=True):
            found[cable].append(self.vlans[t])
        return tuple(tuple(sorted(vlans)) for vlans in found)

    @cached_property
    def paths(self) -> Callable[[int], TreePaths]:
        """The paths of a set of trees, by its number."""
        return cache(partial(TreePaths, self))

    def links(self, tree: Int32Array, a: Int32Array, b: Int32Array) -> Int32Array:
        """(N, L) the directed links of N paths, in any order, -1 beyond the end of a path.

        Path n leads from switch a[n] to switch b[n] in tree[n], which must join the two. The path
        from a switch to itself has no links.
        """
        tree, a, b = np.asarray(tree), np.array(a, dtype=np.int32), np.array(b, dtype=np.int32)
        deepest = int(self.depth.max(initial=0))
        result = np.full((len(a), 2 * deepest), -1, dtype=np.int32)
        filled = np.zeros(len(a), dtype=np.int64)
        rows = np.arange(len(a))
        for _ in range(2 * deepest):
            apart = a != b
            if not apart.any():
                break
            climb_a = apart & (self.depth[tree, a] >= self.depth[tree, b])
            climb_b = apart & ~climb_a
            for climbing, end, up in ((climb_a, a, True), (climb_b, b, False)):
                where = rows[climbing]
                cable = self.cable[tree[where], end[where]]
                below_first = self.graph.ends[cable, 0] == end[where]
                leaves_first = below_first if up else ~below_first
                result[where, filled[where]] = 2 * cable + np.where(leaves_first, 0, 1)
                filled[where] += 1
                end[where] = self.parent[tree[where], end[where]]
        return result[:, : int(filled.max(initial=0))]


class TreePaths:
    """Set `number` of the trees, in plain lists.

    Lists are many times faster than arrays when one path at a time is asked for.
    """

    def __init__(self, trees: Trees, number: int) -> None:
        self.parent: list[int] = trees.parent[number].tolist()
        self._depth: list[int] = trees.depth[number].tolist()
        self._root: list[int] = trees.root[number].tolist()
        self._children: list[list[int]] = [[] for _ in self.parent]
        self._up: list[int] = [-1] * len(self.parent)
        ends = trees.graph.ends[:, 0].tolist()
        for switch, (above, cable) in enumerate(
            zip(self.parent, trees.cable[number].tolist(), strict=True)
        ):
            if cable >= 0:
                self._children[above].append(switch)
                self._up[switch] = 2 * cable + (ends[cable] != switch)
        self._order: list[int] = []
        waiting = [switch for switch, depth in enumerate(self._depth) if depth == 0][::-1]
        while waiting:
            switch = waiting.pop()
            self._order.append(switch)
            waiting += reversed(self._children[switch])
        self._rank = {switch: rank for rank, switch in enumerate(self._order)}

    def joined(self, a: int, b: int) -> bool:
        """Whether the set has a tree with both switches."""
        return self._depth[a] >= 0 and self._root[a] == self._root[b]

    def path(self, a: int, b: int) -> tuple[int, ...]:
        """The directed links of the path from a to b, first to last; the two must be `joined`."""
        up: list[int] = []
        down: list[int] = []
        while a != b:
            if self._depth[a] >= self._depth[b]:
                up.append(self._up[a])
                a = self.parent[a]
            else:
                down.append(self._up[b] ^ 1)
                b = self.parent[b]
        return (*up, *reversed(down))

    def ring(self, leaves: Iterable[int]) -> list[tuple[int, int]]:
        """A ring over the leaves of each tree of the set, as pairs (leaf, next leaf), depth first.

        Its paths cross every directed link that lies between any two of the leaves, each exactly
        once.
        """
        members: dict[int, list[int]] = {}
        for leaf in sorted(
            (leaf for leaf in leaves if self._depth[leaf] >= 0), key=self._rank.__getitem__
        ):
            members.setdefault(self._root[leaf], []).append(leaf)
        pairs = []
        for ring in members.values():
            if len(ring) > 1:
                pairs += list(zip(ring, ring[1:] + ring[:1], strict=True))
        return pairs

    def crossings(
        self,
        links: Iterable[int],
        sources: Collection[int],
        sinks: Collection[int],
        costs: Mapping[int, int],
        turn: int = 0,
    ) -> dict[int, tuple[int, int, int]]:
        """For each link (source, sink, cost): the cheapest path from a source to a sink over it.

        `costs` are those of directed links, 0 for a link that is not named; the link itself is not
        counted. A link that no source or no sink is joined with is left out. Among paths of equal
        cost, another one is taken each `turn`.
        """
        above_of = {}
        for switch in self._order:
            if self._up[switch] >= 0:
                above_of[self._up[switch]] = above_of[self._up[switch] ^ 1] = switch
        wanted = [(link, above_of[link]) for link in links if link in above_of]
        if not wanted:
            return {}
        source_below, source_above = self._nearest(sources, costs, turn, 0)
        sink_below, sink_above = self._nearest(sinks, costs, turn, 1)
        crossing_of = {}
        for link, below in wanted:
            upwards = link == self._up[below]
            source = source_below[below] if upwards else source_above[below]
            sink = sink_above[below] if upwards else sink_below[below]
            if source[1] >= 0 and sink[1] >= 0:
                crossing_of[link] = (source[1], sink[1], source[0] + sink[0])
        return crossing_of

    def _nearest(
        self, seeds: Collection[int], costs: Mapping[int, int], turn: int, outward: int
    ) -> tuple[list[_Near], list[_Near]]:
        """By switch: the cheapest seed below it (or itself), and the cheapest of all other seeds.

        The cost of a seed below is that of its path to the switch. The cost of any other seed is
        that of its path to the switch's parent. Costs are those of the links towards the switch, or
        with `outward` = 1 of those away from it.
        """
        below, above = [_NO_LEAF] * len(self.parent), [_NO_LEAF] * len(self.parent)
        # By switch: (cost, seed, the child below which the seed is).
        candidates: dict[int, list[tuple[int, int, int]]] = {}
        for switch in reversed(self._order):
            near = [(0, switch, -1)] if switch in seeds else []
            for child in self._children[switch]:
                cost, seed = below[child]
                if seed >= 0:
                    near.append((cost + costs.get(self._up[child] ^ outward, 0), seed, child))
            if near:
                start = turn % len(near)
                candidates[switch] = near = near[start:] + near[:start]
                below[switch] = min(near, key=itemgetter(0))[:2]
        for switch in self._order:
            near = candidates.get(switch, [])
            cost, seed = above[switch]
            if seed >= 0:
                further = (cost + costs.get(self._up[switch] ^ 1 ^ outward, 0), seed, -2)
                near = [further, *near] if turn % 2 else [*near, further]
            if not near:
                continue
            best = min(near, key=itemgetter(0))
            others = (candidate for candidate in near if candidate[2] != best[2])
            second = min(others, key=itemgetter(0), default=_NO_LEAF)
            for child in self._children[switch]:
                above[child] = second[:2] if best[2] == child else best[:2]
        return below, above


def trees_from_cables(
    graph: SwitchGraph, vlans: tuple[int, ...], cables: list[list[int]], roots: list[list[int]]
) -> Trees:
    """`Trees` from the cables of each set, and the roots of its trees.

    ValueError when the cables of a set form a circle, or when its roots do not reach all of them.
    """
    shape = (len(vlans), len(graph.names))
    parent, cable_of, depth = (np.full(shape, -1, dtype=np.int32) for _ in range(3))
    for t, (of_tree, tops) in enumerate(zip(cables, roots, strict=True)):
        wanted = set(of_tree)
        reached = list(tops)
        depth[t, tops] = 0
        # The list grows by the switches below each one.
        for switch in reached:
            for other, cable in graph.neighbours[switch]:
                if cable not in wanted or cable == cable_of[t, switch]:
                    continue
                if depth[t, other] >= 0:
                    raise ValueError(f"VLAN {vlans[t]} would have a circle at {graph.names[other]}")
                parent[t, other], cable_of[t, other] = switch, cable
                depth[t, other] = depth[t, switch] + 1
                reached.append(other)
        if not wanted.issubset(cable_of[t].tolist()):
            raise ValueError(f"VLAN {vlans[t]}: its roots do not reach all of its cables")
    return Trees(graph, vlans, parent, cable_of, depth)
