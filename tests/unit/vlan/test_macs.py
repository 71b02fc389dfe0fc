# SPDX-License-Identifier: Apache-2.0
"""MAC table entries: the counting against a look at every pair's path, switch by switch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.fabric.switches import SwitchGraph, VlanSpec
from ri2n_sdn.vlan import macs
from ri2n_sdn.vlan.build import build_trees
from ri2n_sdn.vlan.macs import mac_entries
from ri2n_sdn.vlan.tables import pair_candidates
from ri2n_sdn.vlan.trees import Int32Array, Trees
from tests.unit.vlan.graphs import generated, networks, torus

TABLES = [("cyclic", 1), ("spread", 1), ("adaptive", 3)]


def one_by_one(
    trees: Trees, leaf: list[int], host: list[int], managed: list[bool], table: str, k: int
) -> list[int]:
    known: list[set[tuple[int, int]]] = [set() for _ in trees.graph.names]
    component = trees.graph.component
    for nic, at in enumerate(leaf):
        for switch, names in enumerate(known):
            if trees.depth[0, switch] >= 0 and component[switch] == component[at]:
                names.add((nic, 0))
        for other, there in enumerate(leaf):
            if host[nic] == host[other] or not (managed[nic] and managed[other]):
                continue
            for tree in pair_candidates(trees, host[nic], host[other], at, there, table, k):
                for link in trees.paths(tree).path(at, there):
                    for switch in trees.graph.ends[link // 2].tolist():
                        known[switch].add((nic, tree))
    return [len(names) for names in known]


def arrays(leaf: list[int], host: list[int]) -> tuple[Int32Array, Int32Array]:
    return np.array(leaf, dtype=np.int32), np.array(host, dtype=np.int32)


@given(networks(most=6), st.data(), st.sampled_from(TABLES))
@settings(deadline=None)
def test_counts_are_those_of_all_pairs(
    network: tuple[SwitchGraph, list[int]], data: st.DataObject, table: tuple[str, int]
) -> None:
    graph, leaves = network
    leaf = data.draw(st.lists(st.sampled_from(leaves), min_size=1, max_size=10))
    host = data.draw(st.lists(st.integers(1, 12), min_size=len(leaf), max_size=len(leaf)))
    managed = data.draw(st.lists(st.booleans(), min_size=len(leaf), max_size=len(leaf)))
    trees = build_trees(graph, leaf, VlanSpec())
    found = mac_entries(trees, *arrays(leaf, host), *table, np.array(managed))
    assert found.exact
    assert found.entries.tolist() == one_by_one(trees, leaf, host, managed, *table)


@pytest.mark.parametrize(("table", "per_pair"), TABLES)
@pytest.mark.parametrize("levelled", [True, False])
def test_counting_hosts_together(
    monkeypatch: pytest.MonkeyPatch, table: str, per_pair: int, levelled: bool
) -> None:
    fabric = generated(64, 4, 2, 3)
    graph, leaf = (
        (fabric.graph, fabric.leaf.tolist()) if levelled else (torus(3), [*range(9), *range(9)])
    )
    host = list(range(1, len(leaf) + 1))
    trees = build_trees(graph, leaf, VlanSpec())
    truth = one_by_one(trees, leaf, host, [True] * len(leaf), table, per_pair)
    monkeypatch.setattr(macs, "MAX_EXACT", 0)
    found = mac_entries(trees, *arrays(leaf, host), table, per_pair)
    if table == "cyclic":
        assert not found.exact
        assert (found.entries >= truth).all()
        assert found.entries.max() <= 1.5 * max(truth)
    else:
        assert found.exact
        assert found.entries.tolist() == truth


def test_where_hosts_are_counted_together_several_nics_of_one_make_it_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, leaf, host = torus(3), [*range(9), *range(1, 9), 0], [*range(1, 10), *range(1, 10)]
    trees = build_trees(graph, leaf, VlanSpec())
    truth = one_by_one(trees, leaf, host, [True] * len(leaf), "spread", 1)
    monkeypatch.setattr(macs, "MAX_EXACT", 0)
    found = mac_entries(trees, *arrays(leaf, host), "spread", 1)
    assert not found.exact
    assert (found.entries >= truth).all() and found.entries.tolist() != truth


def test_networks_are_counted_apart() -> None:
    from tests.unit.vlan.graphs import graph_of

    graph = graph_of(5, [(0, 2), (1, 2), (0, 3), (1, 3)])
    leaf, host = [0, 1, 4, 4], [1, 2, 1, 2]
    trees = build_trees(graph, leaf, VlanSpec())
    found = mac_entries(trees, *arrays(leaf, host), "spread", 4)
    # The base tree's top, 2, and the other tree's, 3, see both hosts.
    assert found.entries.tolist() == [4, 4, 2, 2, 2]
