# SPDX-License-Identifier: Apache-2.0
"""Spanning trees over a graph of switches, one VLAN ID each, and the paths in each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ri2n_sdn.fabric.switches import SwitchGraph

__all__ = ["Int32Array", "Trees", "trees_from_cables"]

Int32Array: TypeAlias = NDArray[np.int32]


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
        result = np.where(
            self.depth >= 0, np.arange(self.depth.shape[1], dtype=np.int32), -1
        ).astype(np.int32)
        for _ in range(int(self.depth.max(initial=0))):
            above = np.where(
                result >= 0, np.take_along_axis(self.parent, np.maximum(result, 0), axis=1), -1
            )
            result = np.where(above >= 0, above, result).astype(np.int32)
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

    def path(self, tree: int, a: int, b: int) -> tuple[int, ...]:
        """The directed links of the path from switch a to switch b in one tree, first to last.

        ValueError when there is no path.
        """
        if self.depth[tree, a] < 0 or self.root[tree, a] != self.root[tree, b]:
            raise ValueError(
                f"no path between {self.graph.names[a]} and {self.graph.names[b]} in VLAN "
                f"{self.vlans[tree]}"
            )
        up: list[int] = []
        down: list[int] = []
        parent, cable_of, depth, ends = (
            self.parent[tree],
            self.cable[tree],
            self.depth[tree],
            self.graph.ends,
        )
        while a != b:
            if depth[a] >= depth[b]:
                cable = int(cable_of[a])
                up.append(2 * cable + int(ends[cable, 0] != a))
                a = int(parent[a])
            else:
                cable = int(cable_of[b])
                down.append(2 * cable + int(ends[cable, 0] == b))
                b = int(parent[b])
        return (*up, *reversed(down))


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
        left = set(of_tree)
        waiting = list(tops)
        depth[t, tops] = 0
        while waiting:
            below: list[int] = []
            for switch in waiting:
                for other, cable in graph.neighbours[switch]:
                    if cable not in wanted or cable == cable_of[t, switch]:
                        continue
                    if depth[t, other] >= 0:
                        raise ValueError(
                            f"VLAN {vlans[t]} would have a circle at {graph.names[other]}"
                        )
                    parent[t, other], cable_of[t, other], depth[t, other] = (
                        switch,
                        cable,
                        depth[t, switch] + 1,
                    )
                    left.discard(cable)
                    below.append(other)
            waiting = below
        if left:
            raise ValueError(f"VLAN {vlans[t]}: its roots do not reach all of its cables")
    return Trees(graph, vlans, parent, cable_of, depth)
