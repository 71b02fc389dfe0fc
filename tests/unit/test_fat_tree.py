# SPDX-License-Identifier: Apache-2.0
"""What the controller makes of declared switches.

That is trees, the trees that each pair may use, tables of programs, and errors in one line.
"""

from __future__ import annotations

import json
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from ri2n_lab.cluster.plan import cluster_config
from ri2n_sdn.apps import local_vlans
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.config import ClusterConfig, load_cluster_config
from ri2n_sdn.apps.fat_tree import FatTree
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.local_vlans import Leases
from ri2n_sdn.apps.vlan_check import check_vlans
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.model import Fabric, Host, Nic
from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.vlan.priming import Prime
from tests.unit.refused import refused

TOPOLOGIES = Path(__file__).resolve().parents[2] / "topologies"


def written(name: str = "vbft_4_4", **vlans: Any) -> dict[str, Any]:
    """Write the cluster.yaml of a shipped topology."""
    document = cluster_config(load_topology(TOPOLOGIES / "vbft" / f"{name}.yaml"))
    document["vlans"] = vlans
    return document


def config_of(**vlans: Any) -> ClusterConfig:
    return ClusterConfig.model_validate(written(**vlans), strict=False)


def made(**vlans: Any) -> tuple[FatTree, Fabric]:
    """The fat tree, and a fabric of all its hosts; every NIC has been announced in every tree."""
    config = config_of(**vlans)
    tree = FatTree.of(config)
    assert tree is not None
    hosts = {}
    for number, (name, host) in enumerate(config.hosts.items(), 1):
        switch = host.nics["nic0"].switch
        assert switch is not None
        nic = Nic(
            name,
            "nic0",
            1,
            f"04:00:00:00:{number:02x}:01",
            10**8,
            network=tree.network_of.get(switch),
            switch=switch,
        )
        hosts[name] = Host(name, number, f"06:00:00:00:{number:02x}:00", (nic,), accepts_wire=True)
    nics = {nic.id: tree.trees_at(str(nic.switch)) for host in hosts.values() for nic in host.nics}
    now_s = 0.0
    announced: set[Prime] = set()
    while len(announced) < 4 * len(nics):
        announced.update(tree.priming.tick(now_s, nics, frozenset()))
        now_s += 0.025
        assert now_s < 10
    return tree, Fabric(hosts, routing=tree.routing(hosts))


CG = [(1, 4), (2, 8), (3, 12), (6, 9), (7, 13), (11, 14)]


def test_one_switch_is_no_fat_tree() -> None:
    assert FatTree.of(ClusterConfig()) is None
    flat = ClusterConfig.model_validate(written("flat"), strict=False)
    assert FatTree.of(flat) is None


def test_adaptive_gives_each_of_the_papers_pairs_links_of_its_own() -> None:
    tree, fabric = made(table="adaptive")
    active = [(f"n{a}", f"n{b}") for a, b in CG] + [(f"n{b}", f"n{a}") for a, b in CG]
    sent = {pair: {fabric.paths(*pair)[0].key: 50e6} for pair in active}
    step = tree.choose(5.0, fabric, dict.fromkeys(active, ()), sent)
    assert step is not None
    used: list[str] = []
    for pair in active:
        allowed = [path for path in fabric.paths(*pair) if tree.allows(path)]
        assert len(allowed) == 1
        used += allowed[0].route.links
    assert len(used) == len(set(used)), "two pairs share a cable"


def test_a_pair_gets_a_vlan_in_which_the_switches_know_both_its_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where they know only one end, they flood what is sent to the other."""
    tree, fabric = made(table="adaptive")
    monkeypatch.setattr(
        tree.priming, "ready", lambda nic, number, now_s: number == 2 or nic[0] == "n1"
    )
    active = [("n1", f"n{receiver}") for receiver in (5, 9, 13)]
    sent = {pair: {fabric.paths(*pair)[0].key: 50e6} for pair in active}
    tree.choose(5.0, fabric, dict.fromkeys(active, ()), sent)
    allowed = {
        path.route.vlan for pair in active for path in fabric.paths(*pair) if tree.allows(path)
    }
    assert allowed == {tree.tag(2)}


@pytest.mark.parametrize("known", [True, False], ids=["switches known", "switches not known yet"])
def test_a_controller_that_starts_anew_leaves_pairs_in_their_vlans(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """It knows of no traffic yet, and of no VLAN but those in the tables that it finds."""
    for number in range(4):
        tree, fabric = made(table="adaptive")
        monkeypatch.setattr(tree.priming, "ready", lambda *_: known)
        pairs = [("n1", "n9"), ("n2", "n10"), ("n9", "n1")]
        found = {pair: (fabric.paths(*pair)[number].key,) * 64 for pair in pairs}
        step = tree.choose(5.0, fabric, found, {})
        assert step is not None and not step.moved
        for pair in pairs:
            allowed = [path.key for path in fabric.paths(*pair) if tree.allows(path)]
            assert allowed == [found[pair][0]]


def test_a_pair_whose_table_has_several_vlans_stays_in_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree, fabric = made(table="adaptive")
    monkeypatch.setattr(tree.priming, "ready", lambda *_: False)
    paths = fabric.paths("n1", "n9")
    tree.choose(5.0, fabric, {("n1", "n9"): tuple(path.key for path in paths) * 16}, {})
    assert all(map(tree.allows, paths))


def test_spread_allows_all_and_cyclic_has_one() -> None:
    for table, paths in (("spread", 4), ("cyclic", 1)):
        tree, fabric = made(table=table)
        assert tree.choose(5.0, fabric, {("n1", "n9"): ()}, {}) is None
        assert [tree.allows(path) for path in fabric.paths("n1", "n9")] == [True] * paths


@pytest.mark.parametrize("table", ["adaptive", "spread", "cyclic"])
def test_a_programs_table_counts_while_it_is_set(table: str) -> None:
    tree, _ = made(table=table, per_pair=2)
    fabric = made(table=table, per_pair=2)[1]

    def vlans(now_s: float) -> set[int]:
        changed = Fabric(fabric.hosts, routing=tree.routing(fabric.hosts))
        tree.choose(now_s, changed, {("n1", "n9"): ()}, {("n1", "n9"): {(1, 1, 0): 1e6}})
        return {path.route.vlan for path in changed.paths("n1", "n9") if tree.allows(path)}

    before = vlans(5.0)
    for vlan, tag in ((101, 0), (104, 104), (102, 102)):
        tree.set_table("job", {("n1", "n9"): vlan})
        assert vlans(5.1) == {tag}
    assert tree.clear_table("job") and not tree.clear_table("job")
    assert vlans(5.2) == before


def test_a_profile_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "run.csv"
    file.write_text("sender,receiver,bytes\n" + "".join(f"n{a},n{b},1000\n" for a, b in CG))
    _, fabric = made(table="profile", profile=str(file))
    used = [
        link for a, b in CG for path in fabric.paths(f"n{a}", f"n{b}") for link in path.route.links
    ]
    assert len(used) == len(set(used)) == 10
    assert len(fabric.paths("n1", "n16")) == 1, "a pair that was not recorded has the cyclic rule's"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"vlans": {"table": "profile"}},
            "vlans.profile: the table profile needs a recorded matrix",
        ),
        ({"vlans": {"ids": [10, 11]}}, "vlans.ids: 2 VLAN IDs for 4 trees"),
        ({"vlans": {"ids": [0, 11]}}, "vlans.ids[0]"),
        ({"vlans": {"first": 4095}}, "vlans.first"),
        ({"vlans": {"first": 4093}}, "vlans.first: 4 VLAN IDs counted from 4093 would exceed 4094"),
        ({"vlans": {"table": "best"}}, "vlans.table"),
        ({"vlans": {"colour": 1}}, "vlans.colour: unknown key"),
        (
            {"switches.up1.links": []},
            "switches.leaf1.links: port 5 is wired to up1, but up1 has no such link to leaf1",
        ),
        ({"switches.leaf1.links": []}, "but leaf1 has no such link to up"),
        (
            {"hosts.n1.nics.nic0.switch": "leaf9"},
            "hosts.n1.nics.nic0.switch: no switch 'leaf9' in switches",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    document = json.loads(json.dumps(written()))
    for path, value in change.items():
        *parents, last = path.split(".")
        place = document
        for key in parents:
            place = place[key]
        place[last] = value
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(BadInput) as caught:
        FatTree.read(load_cluster_config(file), file)
    text = str(caught.value)
    assert said in text and text.startswith(str(file)) and "\n" not in text, text


def test_a_leaf_that_is_joined_with_nobody_is_named(tmp_path: Path) -> None:
    document = json.loads(json.dumps(written()))
    document["switches"]["leaf4"]["links"] = []
    for up in ("up1", "up2", "up3", "up4"):
        document["switches"][up]["links"] = [
            link for link in document["switches"][up]["links"] if link["to"] != "leaf4"
        ]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(BadInput, match=r"switches\.leaf4: is not connected with leaf1"):
        FatTree.read(load_cluster_config(file), file)


# ---- the local interface


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster(config_of(table="spread"), "max_min", tmp_path / "socket")
    tree, fabric = made(table="spread")
    monkeypatch.setattr(found, "fat_tree", tree)
    monkeypatch.setattr(Cluster, "fabric", lambda _: fabric)
    return found


@pytest.mark.parametrize(
    ("request_", "key", "code", "values"),
    [
        ({}, "owner", "owner_form", {}),
        ({"owner": "x" * 65, "pairs": []}, "owner", "owner_form", {}),
        ({"owner": "a\nb", "pairs": []}, "owner", "owner_form", {}),
        ({"owner": "a"}, "pairs", "pairs_form", {}),
        ({"owner": "a", "pairs": [["n1", "n2"]]}, "pairs", "pairs_form", {}),
        ({"owner": "a", "pairs": [["n1", 2, 101]]}, "pairs", "pairs_form", {}),
        (
            {"owner": "a", "pairs": [["n1", "n99", 101]]},
            *("pairs", "host_not_there", {"host": "n99"}),
        ),
        (
            {"owner": "a", "pairs": [["n1", "n1", 101]]},
            *("pairs", "pair_twice", {"src": "n1", "dst": "n1"}),
        ),
        (
            {"owner": "a", "pairs": [["n1", "n2", 101], ["n1", "n2", 102]]},
            *("pairs", "pair_twice", {"src": "n1", "dst": "n2"}),
        ),
        (
            {"owner": "a", "pairs": [["n1", "n2", 999]]},
            *("pairs", "table_wrong", {"why": "a: pair n1 n2: there is no VLAN 999"}),
        ),
        (
            {"owner": "a", "pairs": [["n1", "n2", "101"]]},
            *("pairs", "table_wrong", {"why": "a: pair n1 n2: there is no VLAN -1"}),
        ),
        ({"owner": "a", "pairs": [["n1", "n2", 101]], "lease": 1}, "pairs", "pairs_form", {}),
    ],
)
def test_bad_tables_change_nothing(
    cluster: Cluster,
    request_: dict[str, Any],
    key: str | None,
    code: str,
    values: dict[str, str],
) -> None:
    good = {"owner": "a", "pairs": [["n1", "n9", 103]]}
    assert local_vlans.set_table(cluster, good, Leases()) == {"owners": {"a": 1}}
    with refused(code, key, **values):
        local_vlans.set_table(cluster, request_, Leases())
    assert (
        cluster.fat_tree is not None and cluster.fat_tree.adaptive.table_vlan(("n1", "n9")) == 103
    )


def test_a_lease_ends_with_its_connection_and_others_stay(cluster: Cluster) -> None:
    leases = Leases()
    row = [["n1", "n9", 103]]
    local_vlans.set_table(cluster, {"owner": "stays", "pairs": row}, leases)
    local_vlans.set_table(cluster, {"owner": "goes", "pairs": row, "lease": True}, leases)
    assert cluster.fat_tree is not None
    leases.end(cluster)
    assert cluster.fat_tree.adaptive.tables == {"stays": 1}
    local_vlans.set_table(cluster, {"owner": "stays", "pairs": []}, Leases())
    assert cluster.fat_tree.adaptive.tables == {}


def test_a_table_that_is_set_again_without_a_lease_outlives_its_connection(
    cluster: Cluster,
) -> None:
    leases = Leases()
    for lease in (True, False):
        local_vlans.set_table(
            cluster, {"owner": "job", "pairs": [["n1", "n9", 103]], "lease": lease}, leases
        )
    leases.end(cluster)
    assert cluster.fat_tree is not None and cluster.fat_tree.adaptive.tables == {"job": 1}


@pytest.mark.parametrize("lease", [True, False])
def test_a_table_that_another_connection_has_set_meanwhile_is_not_the_first_ones_to_take(
    cluster: Cluster, lease: bool
) -> None:
    """Whoever names no owner is `operator`, so two programs may have the same owner."""
    first, second = Leases(), Leases()
    asked = {"owner": "operator", "pairs": [["n1", "n9", 103]]}
    local_vlans.set_table(cluster, {**asked, "lease": True}, first)
    local_vlans.set_table(cluster, {**asked, "lease": lease}, second)
    assert cluster.fat_tree is not None and first.held(cluster) == []
    first.end(cluster)
    assert cluster.fat_tree.adaptive.tables == {"operator": 1}
    second.end(cluster)
    assert cluster.fat_tree.adaptive.tables == ({} if lease else {"operator": 1})


def test_who_has_given_its_lease_back_holds_nothing(cluster: Cluster) -> None:
    leases = Leases()
    local_vlans.set_table(
        cluster, {"owner": "job", "pairs": [["n1", "n9", 103]], "lease": True}, leases
    )
    assert leases.held(cluster) == ["job"]
    local_vlans.set_table(cluster, {"owner": "job", "pairs": []}, leases)
    assert leases.held(cluster) == []
    local_vlans.set_table(cluster, {"owner": "job", "pairs": [["n1", "n9", 103]]}, Leases())
    leases.end(cluster)
    assert cluster.fat_tree is not None and cluster.fat_tree.adaptive.tables == {"job": 1}


@pytest.mark.parametrize(("lease", "silent_s"), [(True, None), (False, 60.0)])
def test_who_holds_a_lease_may_be_silent_for_as_long_as_it_runs(
    cluster: Cluster, lease: bool, silent_s: float | None
) -> None:
    near, far = socket.socketpair()
    with closing(LocalApi(cluster)) as api, near, far:
        request = {"op": "vlan_table", "owner": "job", "pairs": [["n1", "n9", 103]], "lease": lease}
        near.sendall(json.dumps(request).encode() + b"\n")
        near.shutdown(socket.SHUT_WR)
        api._servers[0].RequestHandlerClass(far, "", api._servers[0])
        assert json.loads(near.recv(1 << 16)) == {"ok": True, "owners": {"job": 1}}
        assert far.gettimeout() == silent_s


def test_without_declared_links_there_is_nothing_to_ask(tmp_path: Path) -> None:
    plain = Cluster(ClusterConfig(), "max_min", tmp_path / "socket")
    with refused("no_switch_links", "switches"):
        local_vlans.set_table(plain, {"owner": "a", "pairs": []}, Leases())
    with refused("no_switch_links", "switches"):
        check_vlans(plain)
