# SPDX-License-Identifier: Apache-2.0
"""Plans: figures of known networks, thinning for small MAC tables, refusal when nothing fits."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from ri2n_sdn.fabric.switches import SwitchGraph, VlanSpec
from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.vlan.build import build_trees
from ri2n_sdn.vlan.macs import mac_entries
from ri2n_sdn.vlan.plan import longest_paths, make_plan
from tests.topology_text import parse_topology
from tests.unit.vlan.graphs import generated, networks

TOPOLOGIES = Path(__file__).resolve().parents[3] / "topologies"


def test_a_vbft() -> None:
    plan = make_plan(load_topology(TOPOLOGIES / "vbft" / "vbft_4_2.yaml"))
    (network,) = plan.networks
    assert (plan.vlans, plan.table, plan.per_pair, plan.mac_exact, plan.notes) == (
        (101, 102),
        "adaptive",
        4,
        True,
        (),
    )
    assert (network.name, network.levelled, network.switches) == ("leaf1", True, (4, 2))
    assert (network.hosts, network.nics, network.trees, network.roots) == (
        16,
        16,
        2,
        ("up1", "up2"),
    )
    assert (network.cables, network.uses_min, network.uses_max, network.unused_cables) == (
        8,
        1,
        1,
        0,
    )
    assert (network.longest_way, network.mac_entries) == (2, 32)
    document = asdict(plan)
    assert json.loads(json.dumps(document))["networks"][0]["roots"] == ["up1", "up2"]
    assert not {"trees", "mac_entries"} & set(document)


def test_separate_switches_are_networks_of_their_own() -> None:
    plan = make_plan(load_topology(TOPOLOGIES / "fig4" / "d.yaml"))
    assert [(network.name, network.hosts, network.trees) for network in plan.networks] == [
        ("s0", 3, 1),
        ("s1", 2, 1),
    ]
    assert len(plan.vlans) == 1


def test_hosts_apart_are_refused() -> None:
    text = (TOPOLOGIES / "vbft" / "tree_2.yaml").read_text()
    text = text.replace("switches:\n", "switches:\n  alone: {}\n").replace(
        "n16: {nics: [{name: nic0, switch: leaf2", "n16: {nics: [{name: nic0, switch: alone"
    )
    with pytest.raises(
        ValueError,
        match=r"^switches\.alone: is not connected with leaf1, so hosts n1 and n16 cannot",
    ):
        make_plan(parse_topology(text))


def test_few_ids_leave_top_switches_out() -> None:
    topology = load_topology(TOPOLOGIES / "vbft" / "vbft_4_4.yaml")
    plan = make_plan(topology, VlanSpec(limit=3))
    assert plan.networks[0].roots == ("up1", "up2", "up3")
    assert (plan.networks[0].unused_cables, plan.networks[0].unused_switches) == (4, 1)
    assert plan.notes == (
        "network leaf1: top switches without a tree of their own, since VLAN IDs are too few:"
        " 1 of 4",
        "network leaf1: switches in no tree: 1",
        "network leaf1: cables in no tree, to be shut down: 4",
    )


@pytest.mark.parametrize("table", ["spread", "adaptive"])
def test_full_tables_take_vlans_from_pairs(table: str) -> None:
    fabric = generated(128, 8, 8, 2)
    leaf, host = fabric.leaf, np.arange(1, 129, dtype=np.int32)
    trees = build_trees(fabric.graph, set(leaf.tolist()), VlanSpec())
    needed = [int(mac_entries(trees, leaf, host, table, k).entries.max()) for k in range(1, 9)]
    assert needed == sorted(needed)
    for wanted, entries in enumerate(needed, start=1):
        spec = VlanSpec.model_validate({"table": table, "per_pair": 8, "mac_table": entries})
        plan = make_plan(fabric, spec)
        fits = max(k for k, most in enumerate(needed, start=1) if most <= entries)
        assert plan.per_pair == fits >= wanted
        assert plan.networks[0].mac_entries == entries
        assert any("VLANs that a pair uses" in note for note in plan.notes) == (fits < 8)
    with pytest.raises(
        ValueError,
        match=rf"^switches\.\w+: {needed[0]} MAC table entries .* limit is {needed[0] - 1}",
    ):
        make_plan(fabric, VlanSpec.model_validate({"table": table, "mac_table": needed[0] - 1}))


def test_cyclic_is_refused_and_not_thinned() -> None:
    topology = load_topology(TOPOLOGIES / "vbft" / "vbft_4_4.yaml")
    assert make_plan(topology, VlanSpec(table="cyclic")).per_pair == 1
    with pytest.raises(
        ValueError,
        match=r"^switches\.leaf1: \d+ MAC table entries.* the limit is 20 \(\d+ other switches",
    ):
        make_plan(topology, VlanSpec(table="cyclic", mac_table=20))


@given(networks())
@settings(deadline=None)
def test_the_longest_way_is_that_of_some_pair(network: tuple[SwitchGraph, list[int]]) -> None:
    graph, leaves = network
    trees = build_trees(graph, leaves, VlanSpec())
    found = longest_paths(trees, np.array(leaves, dtype=np.int32))
    for t in range(trees.count):
        assert found[t, 0] == max(len(trees.paths(t).path(a, b)) for a in leaves for b in leaves)
