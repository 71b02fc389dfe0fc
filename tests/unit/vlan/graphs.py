# SPDX-License-Identifier: Apache-2.0
"""Graphs of switches for tests: known ones, random ones, and the trees that must fit them."""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from ri2n_sdn.fabric.switches import SwitchGraph
from ri2n_sdn.vlan.large import FatTree, FatTreeSpec, Generated, fat_tree
from ri2n_sdn.vlan.trees import Trees

__all__ = ["check_trees", "generated", "graph_of", "networks", "torus"]


def graph_of(switches: int, cables: Iterable[tuple[int, int]]) -> SwitchGraph:
    """Switches s0, s1, ... and cables between them."""
    ends = np.array([sorted(cable) for cable in cables], dtype=np.int32).reshape(-1, 2)
    return SwitchGraph(
        tuple(f"s{number}" for number in range(switches)),
        ends,
        np.zeros_like(ends),
        np.full(len(ends), 100_000_000, dtype=np.int64),
    )


def torus(side: int) -> SwitchGraph:
    cells = nx.convert_node_labels_to_integers(
        nx.grid_2d_graph(side, side, periodic=True), ordering="sorted"
    )
    return graph_of(side * side, cells.edges())


def generated(hosts: int, down: int, up: int, stages: int) -> Generated:
    return fat_tree(
        FatTree(name="ft-x", generate=FatTreeSpec(hosts=hosts, down=down, up=up, stages=stages))
    )


@st.composite
def networks(draw: st.DrawFn, most: int = 7) -> tuple[SwitchGraph, list[int]]:
    """A connected graph, perhaps with cables side by side, and at least one leaf."""
    size = draw(st.integers(2, most))
    order = draw(st.permutations(range(size)))
    cables = [(order[place], order[draw(st.integers(0, place - 1))]) for place in range(1, size)]
    switch = st.integers(0, size - 1)
    cables += draw(
        st.lists(
            st.tuples(switch, switch).filter(lambda cable: cable[0] != cable[1]), max_size=2 * size
        )
    )
    return graph_of(size, cables), draw(st.lists(switch, min_size=1, max_size=size, unique=True))


def check_trees(trees: Trees, leaves: Iterable[int]) -> None:
    """Assert that every set has one tree in every network that it reaches at all.

    A tree has no circle, one piece, and all of the leaves. The cables are looked at with networkx,
    independently of parents and depths.
    """
    graph = trees.graph
    assert len(set(trees.vlans)) == trees.count
    assert all(1 <= vlan <= 4094 for vlan in trees.vlans)
    for network in {int(graph.component[leaf]) for leaf in leaves}:
        of_network = [leaf for leaf in leaves if graph.component[leaf] == network]
        counts = {int((trees.depth[:, leaf] >= 0).sum()) for leaf in of_network}
        assert len(counts) == 1, "a tree without some leaf"
        for t in range(counts.pop()):
            reached = np.flatnonzero((trees.depth[t] >= 0) & (graph.component == network)).tolist()
            cables = trees.cable[t, reached]
            tree: nx.MultiGraph[int] = nx.MultiGraph()
            tree.add_nodes_from(reached)
            tree.add_edges_from(graph.ends[cables[cables >= 0]].tolist())
            assert nx.is_tree(tree)
            assert set(of_network) <= set(tree)
            root = int(trees.root[t, reached[0]])
            depths = nx.single_source_shortest_path_length(nx.Graph(tree), root)
            assert {switch: int(trees.depth[t, switch]) for switch in reached} == dict(depths)
