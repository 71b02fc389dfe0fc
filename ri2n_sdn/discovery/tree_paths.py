# SPDX-License-Identifier: Apache-2.0
"""The paths of one tree: between two leaves, in a ring over all leaves, and over a given link."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ri2n_sdn.vlan.trees import Trees

__all__ = ["TreePaths"]

_Near = tuple[int, int]
"""(Sum of costs, leaf)."""

_NO_LEAF: _Near = (1 << 60, -1)


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
                below[switch] = min(near, key=_cost)[:2]
        for switch in self._order:
            near = candidates.get(switch, [])
            cost, seed = above[switch]
            if seed >= 0:
                further = (cost + costs.get(self._up[switch] ^ 1 ^ outward, 0), seed, -2)
                near = [further, *near] if turn % 2 else [*near, further]
            if not near:
                continue
            best = min(near, key=_cost)
            others = (candidate for candidate in near if candidate[2] != best[2])
            second = min(others, key=_cost, default=_NO_LEAF)
            for child in self._children[switch]:
                above[child] = second[:2] if best[2] == child else best[:2]
        return below, above


def _cost(near: tuple[int, int, int]) -> int:
    return near[0]
