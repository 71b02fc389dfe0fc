# SPDX-License-Identifier: Apache-2.0
"""Path tables: the paper's row, symmetry, even dealing, and different first cables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.fabric.switches import SwitchGraph, VlanSpec
from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.vlan.build import build_trees, topology_trees
from ri2n_sdn.vlan.tables import candidates, first_trees, pair_candidates
from tests.unit.vlan.graphs import generated, graph_of, networks

VBFT = Path(__file__).resolve().parents[3] / "topologies" / "vbft"
CG = [(1, 4), (2, 8), (3, 12), (6, 9), (7, 13), (11, 14)]  # the paper's nodes, numbered from 0
SEVERAL = ["spread", "adaptive", "profile"]


@pytest.mark.parametrize(("m", "row"), [(2, [2, 1, 2, 1, 2, 2]), (4, [2, 3, 4, 3, 4, 4])])
def test_the_exchange_pairs_of_cg(m: int, row: list[int]) -> None:
    """VFREC-Net, table 3: nodes 0..15, IDs 1..m in order of nodes, the lower node's ID.

    The table's m = 4 column ends in 2 for 11-14. No cyclic dealing gives that: node 11 has the ID
    of nodes 3 and 7, which is 4 in rows 3-12 and 7-13, and node 14 that of nodes 2 and 6, which is
    3 in rows 2-8 and 6-9. `2(*)` is what the m = 2 column rightly has in that row: a slip of the
    pen. All other eleven entries are the rule's.
    """
    for n in (2, 4):
        topology = load_topology(VBFT / f"vbft_{n}_{m}.yaml")
        trees = topology_trees(topology)
        place = topology.graph.index
        leaf = [place[spec.nics[0].switch] for spec in topology.hosts.values()]
        far = [(a, b) for a, b in CG if leaf[a] != leaf[b]]
        a, b = np.array(far).T
        leaf_a, leaf_b = np.array(leaf)[a], np.array(leaf)[b]
        ids = candidates(trees, a + 1, b + 1, leaf_a, leaf_b, "cyclic")[:, 0] + 1
        assert ids.tolist() == [vlan for pair, vlan in zip(CG, row, strict=True) if pair in far]
    a, b = np.array(CG).T
    assert (first_trees("cyclic", a + 1, b + 1, np.array(m)) + 1).tolist() == row


def test_own_trees_are_dealt_evenly() -> None:
    number, last = np.arange(1, 10), np.array(10)
    dealt = first_trees("cyclic", number, last, np.array(4))
    assert dealt.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[SwitchGraph, list[int], int, int, int, int]:
    graph, leaves = draw(networks())
    number = st.integers(1, 10_000)
    a, b = draw(st.tuples(number, number).filter(lambda both: both[0] != both[1]))
    return graph, leaves, a, b, draw(st.sampled_from(leaves)), draw(st.sampled_from(leaves))


@given(pairs(), st.sampled_from(["cyclic", *SEVERAL]), st.integers(1, 9), st.integers(1, 9))
def test_both_hosts_agree(
    pair: tuple[SwitchGraph, list[int], int, int, int, int], table: str, per_pair: int, limit: int
) -> None:
    graph, leaves, a, b, leaf_a, leaf_b = pair
    trees = build_trees(graph, leaves, VlanSpec(limit=limit))
    found = pair_candidates(trees, a, b, leaf_a, leaf_b, table, per_pair)
    assert found == pair_candidates(trees, b, a, leaf_b, leaf_a, table, per_pair)
    assert len(set(found)) == len(found)
    assert all(0 <= tree < trees.count for tree in found)
    if leaf_a == leaf_b:
        assert found == (0,)
    else:
        assert len(found) == (1 if table == "cyclic" else min(per_pair, trees.count))
    if table == "cyclic":
        assert candidates(trees, a, b, leaf_a, leaf_b, "cyclic").tolist() == [list(found)]


@given(st.integers(1, 40), st.integers(1, 4))
def test_over_all_pairs_every_tree_comes_first_equally_often(trees: int, times: int) -> None:
    hosts = 2 * trees * times
    a, b = (np.array(side) + 1 for side in np.triu_indices(hosts, 1))
    count = np.full(len(a), trees)
    starts = first_trees("spread", a, b, count)
    assert np.array_equal(starts, first_trees("spread", b, a, count))
    assert np.ptp(np.bincount(starts, minlength=trees)) == 0
    # The result depends on (a, b) mod 2 trees.
    assert np.array_equal(starts, first_trees("spread", a + 6 * trees, b + 2 * trees, count))
    shift = 1 + int(starts.sum()) % (hosts - 1)
    i = np.arange(1, hosts + 1)
    of_shift = first_trees("spread", i, (i - 1 + shift) % hosts + 1, np.full(hosts, trees))
    assert np.ptp(np.bincount(of_shift, minlength=trees)) == 0


def test_candidates_leave_a_leaf_over_different_cables() -> None:
    fabric = generated(4096, 16, 8, 3)
    trees = build_trees(fabric.graph, set(fabric.leaf.tolist()), VlanSpec())
    a = np.arange(1, 4097)
    for shift in (16, 100, 2048):
        b = (a - 1 + shift) % 4096 + 1
        leaf_a, leaf_b = fabric.leaf[a - 1], fabric.leaf[b - 1]
        found = candidates(trees, a, b, leaf_a, leaf_b, "spread", 4)
        assert np.ptp(np.bincount(found.ravel(), minlength=64)) == 0
        for leaf in (leaf_a, leaf_b):
            cables = np.sort(trees.cable[found, leaf[:, None]], axis=1)
            assert (np.diff(cables, axis=1) > 0).all()


def test_different_networks_have_no_trees_and_small_ones_only_their_own() -> None:
    graph = graph_of(6, [(0, 2), (1, 2), (0, 3), (1, 3), (4, 5)])
    trees = build_trees(graph, [0, 1, 4, 5], VlanSpec())
    assert trees.count == 2
    rows = candidates(trees, [1, 1, 3], [2, 3, 4], [0, 0, 4], [1, 4, 5], "spread", 4)
    assert sorted(rows[0].tolist()) == [0, 1]
    assert rows[1:].tolist() == [[-1, -1], [0, -1]]
    assert pair_candidates(trees, 1, 3, 0, 4) == ()
    assert candidates(trees, 1, 3, 0, 4, "cyclic").tolist() == [[-1]]
