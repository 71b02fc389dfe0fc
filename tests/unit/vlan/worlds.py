# SPDX-License-Identifier: Apache-2.0
"""Fabrics with NICs on the leaves: VBFT, a fat tree of three stages, a ring, a forest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ri2n_sdn.fabric.model import NicId
from ri2n_sdn.fabric.switches import LinkSpec, SwitchGraph, SwitchSpec, switch_graph
from ri2n_sdn.vlan.trees import Trees, trees_from_cables


@dataclass(frozen=True)
class Fabric:
    """Trees, and the leaf that each NIC is plugged into."""

    trees: Trees
    leaf_of: dict[NicId, int]

    @property
    def graph(self) -> SwitchGraph:
        return self.trees.graph

    def switch(self, name: str) -> int:
        return self.graph.index[name]

    def link(self, a: str, b: str) -> int:
        """The directed link from switch a to switch b."""
        for other, cable in self.graph.neighbours[self.switch(a)]:
            if other == self.switch(b):
                return 2 * cable + int(self.graph.ends[cable, 0] == other)
        raise KeyError((a, b))


def graph_of(cables: Sequence[tuple[str, str]], names: Sequence[str]) -> SwitchGraph:
    """A graph with ports numbered from 1 on each switch."""
    links: dict[str, list[LinkSpec]] = {name: [] for name in names}
    for a, b in cables:
        links[a].append(LinkSpec(to=b, port=len(links[a]) + 1, rate_bps=10**9))
        links[b].append(LinkSpec(to=a, port=len(links[b]) + 1, rate_bps=10**9))
    return switch_graph({name: SwitchSpec(links=tuple(links[name])) for name in names})


def fabric(
    cables: Sequence[tuple[str, str]],
    trees: Sequence[tuple[Sequence[str], Sequence[tuple[str, str]]]],
    nics: Mapping[str, int],
) -> Fabric:
    """A fabric; `trees` are the roots and cables of each, `nics` the single-NIC hosts per leaf."""
    names = list(dict.fromkeys(name for cable in cables for name in cable))
    graph = graph_of(cables, names)
    number = {}
    for cable in graph.cables():
        number[cable.a, cable.b] = number[cable.b, cable.a] = cable.number
    built = trees_from_cables(
        graph,
        tuple(range(101, 101 + len(trees))),
        [[number[cable] for cable in of_tree] for _, of_tree in trees],
        [[graph.index[root] for root in roots] for roots, _ in trees],
    )
    leaf_of: dict[NicId, int] = {}
    for leaf, count in nics.items():
        for _ in range(count):
            leaf_of[f"h{len(leaf_of) + 1:02}", 1] = graph.index[leaf]
    return Fabric(built, leaf_of)


def vbft(n: int, m: int, hosts: int = 4) -> Fabric:
    """n leaves with `hosts` hosts each, m upper switches and trees."""
    leaves = [f"leaf{i + 1}" for i in range(n)]
    cables = [(leaf, f"up{k + 1}") for leaf in leaves for k in range(m)]
    trees = [([f"up{k + 1}"], [(leaf, f"up{k + 1}") for leaf in leaves]) for k in range(m)]
    return fabric(cables, trees, dict.fromkeys(leaves, hosts))


def three_stages(hosts: int = 2) -> Fabric:
    """8 leaves in 4 pods of 2 leaves and 2 middle switches, and 4 tops.

    The first two tops join the first middle switches of the pods.
    """
    below = [
        (f"leaf{2 * pod + i + 1}", f"mid{2 * pod + k + 1}")
        for pod in range(4)
        for i in (0, 1)
        for k in (0, 1)
    ]
    above = [
        (f"mid{2 * pod + k + 1}", f"top{2 * k + j + 1}")
        for pod in range(4)
        for k in (0, 1)
        for j in (0, 1)
    ]
    trees = []
    for top in range(4):
        mids = [f"mid{2 * pod + top // 2 + 1}" for pod in range(4)]
        of_tree = [cable for cable in below if cable[1] in mids] + [
            (mid, f"top{top + 1}") for mid in mids
        ]
        trees.append(([f"top{top + 1}"], of_tree))
    return fabric(below + above, trees, {f"leaf{i + 1}": hosts for i in range(8)})


def ring(size: int = 6, hosts: int = 2) -> Fabric:
    """A ring of switches with NICs on each; every tree leaves another cable out."""
    names = [f"s{i + 1}" for i in range(size)]
    cables = [(names[i], names[(i + 1) % size]) for i in range(size)]
    trees = [
        ([names[0]], [cable for k, cable in enumerate(cables) if k != left_out])
        for left_out in range(size)
    ]
    return fabric(cables, trees, dict.fromkeys(names, hosts))


def forest() -> Fabric:
    """Two networks, one with three trees and one with two.

    So the third set is in the first network only.
    """
    cables = [(f"a{i}", f"u{k}") for i in (1, 2, 3) for k in (1, 2, 3)] + [
        (f"b{i}", f"v{k}") for i in (1, 2) for k in (1, 2)
    ]
    trees = []
    for k in (1, 2, 3):
        roots, of_tree = [f"u{k}"], [(f"a{i}", f"u{k}") for i in (1, 2, 3)]
        if k < 3:
            roots.append(f"v{k}")
            of_tree += [(f"b{i}", f"v{k}") for i in (1, 2)]
        trees.append((roots, of_tree))
    return fabric(cables, trees, {"a1": 2, "a2": 2, "a3": 2, "b1": 2, "b2": 2})


FABRICS = {
    "vbft": vbft(4, 4),
    "three stages": three_stages(),
    "ring": ring(),
    "forest": forest(),
}
