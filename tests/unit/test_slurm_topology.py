# SPDX-License-Identifier: Apache-2.0
"""The tree of switches that Slurm is told, and the command that writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.fabric.slurm_topology import SlurmTree, slurm_tree, write_conf, write_yaml
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.shipped import find_topology

from .commands import ri2n
from .test_cli_client import answering, listener

Shape = dict[str, Any]


def shape(tree: SlurmTree) -> list[Any]:
    """The tree as nested lists: a leaf is a text with its hosts, in order of these texts."""
    by_name = {switch.name: switch for switch in tree.switches}
    children = {child for switch in tree.switches for child in switch.children}

    def below(name: str) -> Any:
        switch = by_name[name]
        assert bool(switch.nodes) != bool(switch.children)
        if switch.nodes:
            return " ".join(switch.nodes)
        return sorted((below(child) for child in switch.children), key=str)

    return sorted((below(name) for name in by_name if name not in children), key=str)


def places_of(topology: Topology) -> dict[str, set[str]]:
    return {host: {nic.switch for nic in spec.nics} for host, spec in topology.hosts.items()}


def tree_of(name: str) -> SlurmTree:
    topology = find_topology(name)
    cables = [(cable.a, cable.b) for cable in topology.graph.cables()]
    return slurm_tree(places_of(topology), cables)


def test_hosts_in_all_networks_are_one_leaf() -> None:
    tree = slurm_tree({"n1": ["a", "b"], "n2": ["b", "a"], "n3": ["a", "b"]})
    assert shape(tree) == ["n1 n2 n3"] and tree.notes == ()
    assert tree.switches[0].places == ("a", "b")


def test_hosts_with_fewer_networks_are_a_leaf_of_their_own() -> None:
    assert shape(tree_of("fig4/d")) == [["A C", "B"]]


def test_each_host_is_in_one_leaf_of_every_shipped_topology() -> None:
    for name in ("fig4/a", "fig4/h", "mixed", "unequal", "vbft_2_4", "torus_9", "ft_32"):
        topology, tree = find_topology(name), tree_of(name)
        nodes = [node for switch in tree.switches for node in switch.nodes]
        assert sorted(nodes) == sorted(topology.hosts), name


def test_a_fat_tree_has_its_leaves_below_one_switch() -> None:
    topology, tree = find_topology("vbft_2_2"), tree_of("vbft_2_2")
    leaves: dict[str, list[str]] = {}
    for host, spec in topology.hosts.items():
        leaves.setdefault(spec.nics[0].switch, []).append(host)
    assert shape(tree) == [sorted(" ".join(hosts) for hosts in leaves.values())]
    assert {switch.name for switch in tree.switches if switch.nodes} == set(leaves)


def test_pods_are_joined_before_the_core() -> None:
    places = {f"n{leaf}{host}": [f"leaf{leaf}"] for leaf in range(4) for host in range(2)}
    cables = [(f"leaf{leaf}", f"agg{leaf // 2}{a}") for leaf in range(4) for a in range(2)]
    cables += [(f"agg{pod}{a}", f"core{a}") for pod in range(2) for a in range(2)]
    assert shape(slurm_tree(places, cables)) == [[["n00 n01", "n10 n11"], ["n20 n21", "n30 n31"]]]


def test_hosts_that_share_nothing_are_in_trees_of_their_own() -> None:
    tree = slurm_tree({"n1": ["a"], "n2": ["a"], "n3": ["b"]})
    assert shape(tree) == ["n1 n2", "n3"] and tree.notes == ()


def test_what_a_tree_cannot_say_is_told() -> None:
    tree = slurm_tree({"n1": ["a"], "n2": ["a", "b"], "n3": ["b"]})
    assert shape(tree) == [["n1", "n2", "n3"]]
    assert tree.notes == ("hosts share no network, but Slurm may give them to one job: n1 and n3",)
    assert slurm_tree({"n1": ["a"], "n2": ["b"]}, [("a", "c"), ("c", "b")]).notes == ()


def test_hosts_without_a_network_or_with_a_hostile_name_are_left_out() -> None:
    tree = slurm_tree({"n1": ["a"], "n2": [], "n3\nSwitchName=x Nodes=y": ["a"], "n[4-5]": ["a"]})
    assert shape(tree) == ["n1"]
    assert len(tree.notes) == 3 and all("\n" not in line for line in tree.notes)
    hostile = slurm_tree({"n1": ["a\nSwitchName=x Nodes=y"], "n2": ["a,b"]})
    assert [switch.name for switch in hostile.switches] == ["leaf1", "leaf2"]
    assert all(
        line.startswith(("#", "SwitchName=leaf")) for line in write_conf(hostile).splitlines()
    )


def test_names_do_not_collide() -> None:
    places = {"n1": ["leaf1"], "n2": ["a", "leaf1"], "n3": ["level1-1", "a"], "n4": ["level1-1"]}
    names = [switch.name for switch in slurm_tree(places).switches]
    assert len(set(names)) == len(names)


def read_conf(text: str) -> dict[str, set[str]]:
    """What is below each switch of a topology.conf."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"SwitchName=(\S+) (?:Nodes|Switches)=(\S+)", line)
            assert match, line
            found[match[1]] = set(match[2].split(","))
    return found


networks = st.dictionaries(
    st.integers(0, 30).map("n{}".format),
    st.sets(st.integers(0, 6).map("s{}".format), max_size=4),
    max_size=12,
)
wires = st.lists(st.tuples(*[st.integers(0, 9).map("s{}".format)] * 2), max_size=12)


@given(networks, wires)
def test_trees_of_any_network(
    places: Mapping[str, Iterable[str]], cables: list[tuple[str, str]]
) -> None:
    """Each host is in one leaf, and two hosts are in one tree exactly when something joins them."""
    tree = slurm_tree(places, cables)
    assert tree == slurm_tree(dict(reversed(list(places.items()))), reversed(cables))
    below = read_conf(write_conf(tree))
    parents = {child: name for name, members in below.items() for child in members}
    assert sum(map(len, below.values())) == len(parents), "nothing is below two switches"
    hosts = {host for host, own in places.items() if own}
    assert {name for name in parents if name not in below} == hosts

    def root(name: str) -> str:
        return root(parents[name]) if name in parents else name

    joined: dict[str, set[str]] = {host: {host, *places[host]} for host in hosts}
    joined |= {f"cable {number}": set(cable) for number, cable in enumerate(cables)}
    for one in sorted(hosts):
        seen = {one}
        while more := set().union(*(s for s in joined.values() if s & seen)) - seen:
            seen |= more
        assert {other for other in hosts if root(other) == root(one)} == seen & hosts
    (document,) = yaml.safe_load(write_yaml(tree)) if tree.switches else ({},)
    if document:
        assert document["topology"] == "ri2n" and document["cluster_default"] is True
        assert {
            switch["switch"]: set((switch.get("nodes") or switch["children"]).split(","))
            for switch in document["tree"]["switches"]
        } == below


# ---- the command


def status(settled: bool = True, **hosts: list[tuple[str | None, str | None]]) -> bytes:
    """A controller's answer, with (network, switch) of the NICs of each host."""
    document = {
        "controller": {"settled": settled},
        "cables": {f"{leaf}-up": {"ends": [leaf, "up"]} for leaf in ("leaf1", "leaf2")},
        "hosts": {
            name: {
                "nics": {
                    f"eth{number}": {"network": net, "switch": switch}
                    for number, (net, switch) in enumerate(nics)
                }
            }
            for name, nics in hosts.items()
        },
    }
    return answer_with(document)


def answer_with(state: object) -> bytes:
    return json.dumps({"ok": True, "state": state}).encode() + b"\n"


def test_the_command_writes_the_file(tmp_path: Path) -> None:
    answer = status(A=[("up", "leaf1")], B=[("up", "leaf2")], C=[(None, None)])
    path = tmp_path / "topology.conf"
    with listener(answering(answer)) as socket:
        done = ri2n("slurm", "topology", "--socket", str(socket))
        assert done.returncode == 0 and "host C is left out" in done.stderr
        assert read_conf(done.stdout) == {
            "leaf1": {"A"},
            "leaf2": {"B"},
            "level2-1": {"leaf1", "leaf2"},
        }
        written = ri2n("slurm", "topology", "--socket", str(socket), "--output", str(path))
        assert written.stdout == "" and path.read_text() == done.stdout
        assert path.stat().st_mode & 0o777 == 0o644
        as_yaml = ri2n("slurm", "topology", "--format", "yaml", "--socket", str(socket))
        assert yaml.safe_load(as_yaml.stdout)[0]["tree"]["switches"][0] == {
            "switch": "leaf1",
            "nodes": "A",
        }
    assert [file.name for file in tmp_path.iterdir()] == ["topology.conf"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (status(settled=False, A=[("n", None)]), "still learns which networks there are"),
        (status(A=[(None, None)]), "knows no host in any network"),
        (b'{"ok": true, "settled": true}\n', "of another version"),
        (answer_with({"controller": {"settled": True}}), "of another version (key 'hosts')"),
        (answer_with({"controller": {"settled": True}, "hosts": [1]}), "of another version"),
    ],
)
def test_without_networks_nothing_is_written(tmp_path: Path, answer: bytes, why: str) -> None:
    path = tmp_path / "topology.conf"
    path.write_text("old")
    with listener(answering(answer)) as socket:
        done = ri2n("slurm", "topology", "--socket", str(socket), "--output", str(path))
    assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1
    assert path.read_text() == "old"


@pytest.mark.parametrize("where", ["missing/topology.conf", "."])
def test_an_output_that_cannot_be_written_is_named(tmp_path: Path, where: str) -> None:
    with listener(answering(status(A=[("n", None)]))) as socket:
        done = ri2n("slurm", "topology", "--socket", str(socket), "--output", f"{tmp_path}/{where}")
    assert done.returncode == 2 and done.stderr.startswith(f"ri2n: --output {tmp_path}")
    assert list(tmp_path.iterdir()) == []
