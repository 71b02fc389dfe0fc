# SPDX-License-Identifier: Apache-2.0
"""Trees: they are trees, fat trees get the paper's, others use cables as evenly as possible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.fabric.switches import SwitchGraph, VlanSpec
from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.vlan.build import build_trees, check_reach, switch_levels, topology_trees
from ri2n_sdn.vlan.plan import longest_paths
from tests.topology_text import parse_topology
from tests.unit.vlan.graphs import check_trees, generated, graph_of, networks, torus

VBFT = Path(__file__).resolve().parents[3] / "topologies" / "vbft"


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """All partitions of items into groups."""
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for place, group in enumerate(rest):
            yield [*rest[:place], [items[0], *group], *rest[place + 1 :]]


def least_maximum(graph: SwitchGraph, trees: int) -> int:
    """How many of so many spanning trees use the most used cable, at the least.

    By Tutte and Nash-Williams, cables taken c times hold T spanning trees exactly when, however the
    switches are put into n groups, c times the cables between groups are at least T (n - 1).
    """
    worst = 0
    for groups in partitions(list(range(len(graph.names)))):
        group_of = {switch: number for number, group in enumerate(groups) for switch in group}
        between = sum(group_of[a] != group_of[b] for a, b in graph.ends.tolist())
        if len(groups) > 1:
            worst = max(worst, -(-trees * (len(groups) - 1) // between))
    return worst


@given(networks(), st.integers(1, 9))
@settings(deadline=None)
def test_trees_of_random_graphs_are_trees(
    network: tuple[SwitchGraph, list[int]], limit: int
) -> None:
    graph, leaves = network
    trees = build_trees(graph, leaves, VlanSpec(limit=limit))
    assert 1 <= trees.count <= limit
    assert trees.vlans == tuple(range(101, 101 + trees.count))
    check_trees(trees, leaves)
    for t in range(trees.count):
        for a in leaves:
            for b in leaves:
                there, back = trees.paths(t).path(a, b), trees.paths(t).path(b, a)
                assert [link ^ 1 for link in reversed(there)] == list(back)


@given(networks(), st.integers(1, 7))
@settings(deadline=None, max_examples=60)
def test_no_cable_is_used_more_than_it_has_to_be(
    network: tuple[SwitchGraph, list[int]], limit: int
) -> None:
    graph, _ = network
    everywhere = list(range(len(graph.names)))
    trees = build_trees(graph, everywhere, VlanSpec(limit=limit))
    asked = min(limit, max(len(everywhere), -(-len(graph.ends) // (len(everywhere) - 1))))
    assert trees.uses.max() <= least_maximum(graph, asked)
    if trees.count == asked:  # none came out twice
        assert trees.uses.max() == least_maximum(graph, asked)


@pytest.mark.parametrize(
    ("graph", "uses"),
    [
        (graph_of(4, nx.complete_graph(4).edges()), (2, 2)),
        (graph_of(5, nx.complete_graph(5).edges()), (2, 2)),
        (graph_of(6, nx.cycle_graph(6).edges()), (5, 5)),
        (torus(3), (4, 4)),
        (torus(4), (7, 8)),
    ],
    ids=["K4", "K5", "ring", "torus 3", "torus 4"],
)
def test_known_graphs_are_used_evenly(graph: SwitchGraph, uses: tuple[int, int]) -> None:
    everywhere = range(len(graph.names))
    trees = build_trees(graph, everywhere, VlanSpec())
    check_trees(trees, everywhere)
    assert trees.count == len(graph.names)
    assert (trees.uses.min(), trees.uses.max()) == uses


def test_a_full_mesh_has_stars_and_a_torus_short_ways() -> None:
    mesh = build_trees(graph_of(9, nx.complete_graph(9).edges()), range(9), VlanSpec())
    assert longest_paths(mesh, np.arange(9, dtype=np.int32)).max() == 2
    # A tree of shortest paths from its root is at most twice as wide as the torus is (4), even
    # after cables were exchanged.
    assert (
        longest_paths(
            build_trees(torus(4), range(16), VlanSpec()), np.arange(16, dtype=np.int32)
        ).max()
        <= 8
    )


def test_64_switches_without_levels() -> None:
    graph = torus(8)
    trees = build_trees(graph, range(64), VlanSpec())
    check_trees(trees, range(64))
    assert (trees.count, trees.uses.min(), trees.uses.max()) == (64, 31, 32)


def test_a_tree_of_switches_is_its_only_tree() -> None:
    graph = graph_of(4, [(0, 1), (1, 2), (1, 3)])
    assert build_trees(graph, range(4), VlanSpec()).count == 1


def test_cables_side_by_side_are_all_used() -> None:
    direct = build_trees(graph_of(2, [(0, 1)] * 3), [0, 1], VlanSpec())
    assert (direct.count, direct.uses.tolist()) == (3, [1, 1, 1])
    over_a_top_switch = build_trees(
        graph_of(3, [(0, 2), (0, 2), (1, 2), (1, 2)]), [0, 1], VlanSpec()
    )
    assert (over_a_top_switch.count, over_a_top_switch.uses.tolist()) == (2, [1, 1, 1, 1])


def test_a_folded_clos_has_several_ways_down_and_uses_all() -> None:
    # Two pods of two leaves (0, 1; 2, 3) and two middle switches (4, 5; 6, 7), each wired to both
    # tops (8, 9).
    cables = [
        (leaf + 2 * pod, mid + 2 * pod) for pod in (0, 1) for leaf in (0, 1) for mid in (4, 5)
    ]
    cables += [(mid, top) for mid in (4, 5, 6, 7) for top in (8, 9)]
    graph = graph_of(10, cables)
    trees = build_trees(graph, range(4), VlanSpec())
    check_trees(trees, range(4))
    assert set(trees.root[:, 0].tolist()) == {8, 9}
    assert (trees.count, trees.uses.tolist()) == (4, [2] * 8 + [1] * 8)


@pytest.mark.parametrize(
    ("name", "count", "roots", "longest"),
    [
        ("flat", 1, ["sw1"], 0),
        ("tree_2", 1, ["up1"], 2),
        ("tree_4", 1, ["up1"], 2),
        ("vbft_2_2", 2, ["up1", "up2"], 2),
        ("vbft_2_4", 4, ["up1", "up2", "up3", "up4"], 2),
        ("vbft_2_4x2", 8, ["up1", "up2", "up3", "up4"] * 2, 2),
        ("vbft_4_2", 2, ["up1", "up2"], 2),
        ("vbft_4_4", 4, ["up1", "up2", "up3", "up4"], 2),
        ("ft_32", 4, ["top1", "top2", "top3", "top4"], 4),
        ("ring_6", 6, None, 5),
        ("torus_9", 9, None, None),
    ],
)
def test_the_shipped_networks(
    name: str, count: int, roots: list[str] | None, longest: int | None
) -> None:
    topology = load_topology(VBFT / f"{name}.yaml")
    assert topology.name == name.replace("_", "-")
    assert topology.warnings() == []
    assert list(topology.hosts) == [f"n{number}" for number in range(1, len(topology.hosts) + 1)]
    trees = topology_trees(topology)
    leaves = [
        topology.graph.index[nic.switch] for spec in topology.hosts.values() for nic in spec.nics
    ]
    check_trees(trees, leaves)
    assert trees.count == count
    if roots is not None:
        assert [topology.graph.names[root] for root in trees.root[:, leaves[0]].tolist()] == roots
    if longest is not None:
        assert longest_paths(trees, np.array(leaves)).max() == longest
    assert trees.uses.min(initial=1) >= 1


def test_every_vbft_has_one_cable_from_each_leaf_to_each_upper_switch() -> None:
    for n in (2, 4):
        for m in (2, 4):
            topology = load_topology(VBFT / f"vbft_{n}_{m}.yaml")
            pairs = sorted((cable.a, cable.b) for cable in topology.graph.cables())
            assert pairs == [
                (f"leaf{i}", f"up{j}") for i in range(1, n + 1) for j in range(1, m + 1)
            ]
            assert [len(topology.nics_on(f"leaf{i}")) for i in range(1, n + 1)] == [16 // n] * n


def test_neighbouring_trees_leave_a_leaf_by_different_cables_however_tops_are_numbered() -> None:
    """Leaves 0 and 1, each below two middle switches.

    Of the tops 6 to 9 the first and the last join the same two.
    """
    below = [(0, 2), (0, 3), (1, 4), (1, 5)]
    above = [(2, 6), (4, 6), (3, 7), (5, 7), (3, 8), (5, 8), (2, 9), (4, 9)]
    trees = build_trees(graph_of(10, below + above), [0, 1], VlanSpec())
    assert trees.parent[:, 0].tolist() == [2, 3, 2, 3]


@pytest.mark.parametrize(
    ("hosts", "down", "up", "stages"), [(64, 4, 4, 3), (96, 4, 3, 3), (32, 2, 3, 4)]
)
@pytest.mark.parametrize("limit", [1, 3, 5, 6, 8, 256])
def test_thinned_fat_trees_use_each_level_evenly(
    hosts: int, down: int, up: int, stages: int, limit: int
) -> None:
    fabric = generated(hosts, down, up, stages)
    leaves = sorted(set(fabric.leaf.tolist()))
    trees = build_trees(fabric.graph, leaves, VlanSpec(limit=limit))
    check_trees(trees, leaves)
    assert trees.count == min(limit, up ** (stages - 1))
    level, levelled = switch_levels(fabric.graph, leaves)
    assert levelled.all()
    below = level[fabric.graph.ends[:, 0]]
    for stage in range(stages - 1):
        uses = trees.uses[below == stage]
        assert uses.max() - uses.min() <= 1


def test_thinned_graphs_without_levels() -> None:
    trees = build_trees(torus(3), range(9), VlanSpec(limit=4))
    # There are 4 trees of 8 cables over 18 cables.
    assert (trees.count, trees.uses.min(), trees.uses.max()) == (4, 1, 2)
    assert build_trees(torus(3), range(9), VlanSpec(limit=2)).count == 2


def test_vlan_ids_go_up_to_the_last_one_there_is() -> None:
    assert VlanSpec(first=4091).numbers(4) == (4091, 4092, 4093, 4094)
    with pytest.raises(
        ValueError, match=r"^vlans\.first: 4 VLAN IDs counted from 4092 would exceed 4094"
    ):
        VlanSpec(first=4092).numbers(4)


def test_networks_share_vlan_ids() -> None:
    # Network A: 3 tops; B: one switch; C: no hosts.
    graph = graph_of(8, [(0, 2), (1, 2), (0, 3), (1, 3), (0, 4), (1, 4), (6, 7)])
    trees = build_trees(graph, [0, 1, 5], VlanSpec(ids=(7, 9, 8)))
    check_trees(trees, [0, 1, 5])
    assert trees.vlans == (7, 9, 8)
    assert (trees.depth[:, 5] >= 0).tolist() == [True, False, False]
    assert not (trees.depth[:, [6, 7]] >= 0).any()


def test_a_fat_tree_without_one_cable_keeps_the_other_trees() -> None:
    cables = [(leaf, top) for leaf in (0, 1, 2) for top in (3, 4, 5)][:-1]
    trees = build_trees(graph_of(6, cables), range(3), VlanSpec())
    check_trees(trees, range(3))
    assert trees.root[:, 0].tolist() == [3, 4]


CABLE = """
name: x
switches:
  a: {links: [{to: b, port: 9, rate_bps: 1000000}]}
  b: {links: [{to: a, port: 9, rate_bps: 1000000}]}
  c: {}
hosts:
  h1: {nics: [{name: eth0, switch: a, rate_bps: 1000000}]}
  h2: {nics: [{name: eth0, switch: c, rate_bps: 1000000}]}
"""


def test_bad_input_names_the_element() -> None:
    with pytest.raises(
        ValueError, match=r"^switches\.c: is not connected with a, so hosts h1 and h2 cannot reach"
    ):
        topology_trees(parse_topology(CABLE))
    together = CABLE.replace(
        "nics: [{name: eth0, switch: c",
        "nics: [{name: eth1, switch: b, rate_bps: 1}, {name: eth0, switch: c",
    )
    assert topology_trees(parse_topology(together)).count == 1  # c is a second network of h2's
    check_reach(graph_of(2, []), {"h1": [0], "h2": [1]})  # no cables at all: networks by design
    with pytest.raises(ValueError, match=r"vlans\.ids: 2 VLAN IDs for 9 trees"):
        build_trees(torus(3), range(9), VlanSpec(ids=(5, 6)))
    with pytest.raises(ValueError, match="no NIC is plugged"):
        build_trees(torus(3), [], VlanSpec())
