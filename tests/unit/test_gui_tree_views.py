# SPDX-License-Identifier: Apache-2.0
"""Trees of VLANs on the page of the network."""

from __future__ import annotations

from ri2n_sdn.web.gui.picture import paint
from ri2n_sdn.web.gui.scene import scene_of
from ri2n_sdn.web.gui.tree_views import NO_TREE, cables_of, said_of, tree_choices
from ri2n_sdn.web.shape import EMPTY
from tests.unit.web_state import cluster_state


def test_each_tree_is_offered_with_its_cables() -> None:
    state = cluster_state(hosts=2, nics=2)
    assert tree_choices(state) == {
        NO_TREE: "no tree",
        1: "VLAN 1 (2 cables)",
        101: "VLAN 101 (1 cable)",
        102: "VLAN 102 (1 cable)",
    }
    assert tree_choices(EMPTY) == {NO_TREE: "no tree"}
    assert cables_of(state, 1) == set(state["cables"])
    assert cables_of(state, NO_TREE) == cables_of(EMPTY, 1) == set()


def test_a_tree_is_emphasized_and_nothing_else() -> None:
    state = cluster_state(hosts=2, nics=2)
    scene = scene_of(state)
    before = paint(scene, state)
    after = paint(scene, state, cables=cables_of(state, 102))
    changed = {key for key in before if before[key] != after[key]}
    names = {f"c{number}": cable.name for number, cable in enumerate(scene.cables)}
    assert [names[key] for key in changed] == ["s1/48-t1/48"]
    assert after[changed.pop()] == ["cable way"]


def test_what_is_said_names_the_dead() -> None:
    state = cluster_state(hosts=2, nics=2)
    assert said_of(state, NO_TREE) == ""
    assert said_of(state, 1) == "VLAN 1 uses 2 cables; all are alive."
    state["cables"]["s0/48-t0/48"]["alive"] = False
    assert said_of(state, 1) == "VLAN 1: 1 of its 2 cables are dead."
    assert said_of(state, 7) == "VLAN 7 uses no cable."
