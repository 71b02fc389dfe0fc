# SPDX-License-Identifier: Apache-2.0
"""Generated fat trees: the paper's 4,096 hosts, 65,536 hosts, any others, and files with errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.switches import SwitchGraph
from ri2n_sdn.vlan.build import build_trees
from ri2n_sdn.vlan.large import load_generated
from ri2n_sdn.vlan.plan import make_plan
from tests.unit.vlan.graphs import check_trees, generated

LARGE = Path(__file__).resolve().parents[3] / "topologies" / "large"


def check_ports(graph: SwitchGraph, down: int, up: int) -> None:
    """No port is used twice, none is beyond the switch."""
    ends = np.stack([graph.ends.ravel(), graph.ports.ravel()], axis=1)
    assert len(np.unique(ends, axis=0)) == len(ends)
    assert graph.ports.min() >= 1
    assert graph.ports.max() <= down + up


def test_the_papers_4096_hosts() -> None:
    fabric = load_generated(LARGE / "ft-4096.yaml")
    check_ports(fabric.graph, 16, 8)
    assert np.bincount(fabric.leaf).tolist() == [16] * 256
    plan = make_plan(fabric)
    network = plan.networks[0]
    assert len(plan.vlans) == network.trees == 64
    assert (network.switches, network.hosts, network.cables) == (
        (256, 128, 64),
        4096,
        256 * 8 + 128 * 8,
    )
    assert (network.unused_cables, network.unused_switches, network.longest_way) == (0, 0, 4)
    assert sorted(network.roots) == sorted(f"top{number}" for number in range(1, 65))
    leaves = sorted(set(fabric.leaf.tolist()))
    check_trees(build_trees(fabric.graph, leaves, fabric.vlans), leaves)


@pytest.mark.long
def test_65536_hosts() -> None:
    fabric = load_generated(LARGE / "ft-65536.yaml")
    check_ports(fabric.graph, 16, 8)
    plan = make_plan(fabric)
    network = plan.networks[0]
    assert len(plan.vlans) == network.trees == 256
    assert (network.switches, network.hosts, network.longest_way) == (
        (4096, 2048, 1024, 512),
        65_536,
        6,
    )
    assert (network.unused_switches, network.unused_cables) == (256, 256 * 16)
    leaves = np.unique(fabric.leaf)
    trees = build_trees(fabric.graph, leaves.tolist(), fabric.vlans)
    assert (trees.depth[:, leaves] == 3).all()
    for cables, uses in (
        (slice(0, 32_768), {32}),
        (slice(32_768, 49_152), {4}),
        (slice(49_152, None), {0, 1}),
    ):
        assert set(trees.uses[cables].tolist()) == uses
    assert any("256 of 512" in note for note in plan.notes)


@given(st.integers(2, 6), st.integers(1, 4), st.integers(1, 4), st.integers(2, 4))
@settings(deadline=None, max_examples=40)
def test_any_of_them_has_one_tree_per_top_switch(
    joined: int, down: int, up: int, stages: int
) -> None:
    hosts = joined * down ** (stages - 1)
    assume(joined <= down + up and hosts <= 400)
    fabric = generated(hosts, down, up, stages)
    check_ports(fabric.graph, down, up)
    assert len(np.unique(fabric.graph.component)) == 1
    plan = make_plan(fabric)
    assert plan.networks[0].trees == min(256, up ** (stages - 1))
    assert plan.networks[0].longest_way == 2 * (stages - 1)
    leaves = sorted(set(fabric.leaf.tolist()))
    check_trees(build_trees(fabric.graph, leaves, fabric.vlans), leaves)


@pytest.mark.parametrize(
    ("generate", "text"),
    [
        ("{hosts: 4096, down: 16, up: 8}", "generate.stages: is missing"),
        ("{hosts: 4096, down: 16, up: 8, stages: 3, layers: 3}", "generate.layers: unknown key"),
        (
            "{hosts: 4000, down: 16, up: 8, stages: 3}",
            "generate: hosts: 4000 is no multiple of 256",
        ),
        (
            "{hosts: 16384, down: 16, up: 8, stages: 3}",
            "generate: hosts: a top switch would join 64 parts",
        ),
        ("{hosts: 4096, down: 16, up: 0, stages: 3}", "generate.up"),
        (
            "{hosts: 2, down: 1, up: 1000, stages: 8}",
            "generate: up: 2002002002002002002000 cables between switches",
        ),
        (
            "{hosts: 2, down: 1, up: 708, stages: 3}",
            "generate: up: 1003944 cables between switches, more than 1000000",
        ),
        ("{hosts: 4096, down: 16, up: 8, stages: 3}\nhosts: {}", "hosts: unknown key"),
    ],
)
def test_bad_files(tmp_path: Path, generate: str, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"name: x\ngenerate: {generate}\n")
    with pytest.raises(BadInput) as caught:
        load_generated(file)
    assert str(caught.value).startswith(f"{file}: {text}")
    assert "\n" not in str(caught.value)
