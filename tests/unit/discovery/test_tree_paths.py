# SPDX-License-Identifier: Apache-2.0
"""The paths of a tree between its leaves, and those that cross a link at the least cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.vlan.worlds import FABRICS


@pytest.mark.parametrize("name", FABRICS)
def test_the_ring_crosses_every_link_between_leaves_once(name: str) -> None:
    fabric = FABRICS[name]
    for tree in range(fabric.trees.count):
        paths = fabric.trees.paths(tree)
        leaves = sorted(set(fabric.leaf_of.values()))
        crossed = [link for a, b in paths.ring(leaves) for link in paths.path(a, b)]
        assert len(set(crossed)) == len(crossed)
        between = {
            link for a in leaves for b in leaves if paths.joined(a, b) for link in paths.path(a, b)
        }
        assert set(crossed) == between


@pytest.mark.parametrize("name", FABRICS)
def test_a_path_leads_over_cables_of_its_tree_and_meets_no_switch_twice(name: str) -> None:
    """In a tree there is one such path alone."""
    trees = FABRICS[name].trees
    for tree in range(trees.count):
        paths, cables = trees.paths(tree), set(trees.cable[tree].tolist()) - {-1}
        reached = [s for s in range(len(trees.graph.names)) if trees.depth[tree, s] >= 0]
        for a in reached:
            for b in reached:
                if not paths.joined(a, b):
                    continue
                met = [a]
                for cable, back in (divmod(link, 2) for link in paths.path(a, b)):
                    assert cable in cables
                    assert trees.graph.ends[cable, back] == met[-1]
                    met.append(int(trees.graph.ends[cable, 1 - back]))
                assert met[-1] == b and len(set(met)) == len(met)


@given(st.sampled_from(sorted(FABRICS)), st.data())
def test_a_crossing_crosses_its_link_and_costs_the_least(name: str, data: st.DataObject) -> None:
    trees = FABRICS[name].trees
    tree = data.draw(st.integers(0, trees.count - 1))
    paths = trees.paths(tree)
    leaves = sorted(set(FABRICS[name].leaf_of.values()))
    sources = data.draw(st.sets(st.sampled_from(leaves), min_size=1))
    sinks = data.draw(st.sets(st.sampled_from(leaves), min_size=1))
    links = [2 * int(cable) + back for cable in trees.cable[tree] if cable >= 0 for back in (0, 1)]
    costs = data.draw(st.dictionaries(st.sampled_from(links), st.integers(0, 3)))
    found = paths.crossings(links, sources, sinks, costs, data.draw(st.integers(0, 9)))
    for link in links:
        prices = [
            sum(costs.get(each, 0) for each in path if each != link)
            for a in sources
            for b in sinks
            if paths.joined(a, b) and link in (path := paths.path(a, b))
        ]
        if link in found:
            a, b, price = found[link]
            assert a in sources and b in sinks and link in paths.path(a, b)
            assert price == min(prices)
            assert price == sum(costs.get(each, 0) for each in paths.path(a, b) if each != link)
        else:
            assert not prices


def test_of_crossings_that_cost_the_same_another_one_is_taken_each_turn() -> None:
    fabric = FABRICS["vbft"]
    paths, leaves = fabric.trees.paths(0), set(fabric.leaf_of.values())
    up, down = fabric.link("leaf1", "up1"), fabric.link("up1", "leaf1")
    found = [paths.crossings([up, down], leaves, leaves, {}, turn) for turn in range(4)]
    others = leaves - {fabric.switch("leaf1")}
    assert {each[up][1] for each in found} == others
    assert {each[down][0] for each in found} == others
