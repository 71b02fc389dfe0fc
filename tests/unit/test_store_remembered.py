# SPDX-License-Identifier: Apache-2.0
"""What the controller does with what an earlier one knew, without a store."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from ri2n_sdn.apps.cluster import FRESH_GRACE_S, TAKEOVER_GRACE_S, Cluster
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.problems import problems_of
from ri2n_sdn.apps.recall import recall
from ri2n_sdn.apps.remember import Rememberer, host_row
from ri2n_sdn.apps.remembered import Remembered, links_row, remembered
from ri2n_sdn.discovery.wiring import Wiring
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.helper_links import number_pair
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.pipeline.diff import Installed
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT
from ri2n_sdn.pipeline.messages import Group
from ri2n_sdn.pipeline.plan import plan_host
from ri2n_sdn.store.rows import Change, HostRow, LinksRow, NetworkRow, Put, Remove, Row, State
from tests.unit.app_turns import channel_of
from tests.unit.fake_hosts import FakeChannel, cluster_of, host_mac, plan


def row_of(cluster: Cluster, name: str, away_since_s: float | None = None) -> HostRow:
    row = host_row(cluster, cluster.members[name], None, 0.0)
    return replace(row, away_since_s=away_since_s)


def restarted(names: str, hosts: dict[str, HostRow], config: str = "{}") -> Cluster:
    """A cluster whose hosts `names` have come, and that remembers `hosts`; it may not start yet."""
    parsed = parse_model(config, ClusterConfig, "cluster.yaml")
    cluster = cluster_of({name: FakeChannel() for name in names}, parsed)
    plan(cluster)
    cluster.started, cluster.started_s = False, 0.0
    cluster.remember(Remembered(dict(hosts)))
    for member in cluster.members.values():
        member.reports_probes = True
        assert member.installed is not None
        member.installed.groups = {1: Group(1, Group.SELECT, ())}  # an earlier controller's
        cluster.came_back(member)
    return cluster


def test_nobody_waits_when_all_remembered_hosts_are_back() -> None:
    full = cluster_of({name: FakeChannel() for name in "AB"})
    hosts = {name: row_of(full, name) for name in "AB"}
    assert restarted("AB", hosts).may_start(0.1)
    partly = restarted("A", hosts)
    assert not partly.may_start(TAKEOVER_GRACE_S)
    texts = [problem.text for problem in problems_of(partly)]
    assert "B was connected before the controller started anew, and has not come back" in texts
    assert partly.may_start(TAKEOVER_GRACE_S + 0.1), "a host that is gone is not waited for"


def test_a_host_that_was_away_is_not_waited_for() -> None:
    full = cluster_of({name: FakeChannel() for name in "ABC"})
    hosts = {name: row_of(full, name, 5.0 if name == "C" else None) for name in "ABC"}
    cluster = restarted("AB", hosts, "hosts: {A: {}, C: {}}")
    assert cluster.may_start(0.1)
    assert not any("has not come back" in problem.text for problem in problems_of(cluster))


def test_a_declared_host_that_nobody_remembers_is_waited_for() -> None:
    full = cluster_of({"A": FakeChannel()})
    cluster = restarted("AB", {"A": row_of(full, "A")}, "hosts: {A: {}, B: {}, C: {}}")
    assert not cluster.may_start(TAKEOVER_GRACE_S)


def test_a_host_that_was_renamed_is_back() -> None:
    full = cluster_of({name: FakeChannel() for name in "AB"})
    former = HostRow("old", row_of(full, "B").datapath_id, "02:00:00:00:00:99")
    assert restarted("AB", {"A": row_of(full, "A"), "old": former}).may_start(0.1)


def test_a_host_that_came_and_left_again_is_waited_for() -> None:
    full = cluster_of({name: FakeChannel() for name in "AB"})
    cluster = restarted("AB", {name: row_of(full, name) for name in "AB"})
    cluster.members["B"].channel = None
    assert not cluster.may_start(TAKEOVER_GRACE_S)


def test_a_remembered_host_is_kept_that_leaves_before_its_networks_are_known() -> None:
    full = cluster_of({name: FakeChannel() for name in "AB"})
    cluster = restarted("AB", {"B": row_of(full, "B")})
    cluster.wiring = Wiring()
    assert cluster.matters(cluster.members["B"]) and not cluster.matters(cluster.members["A"])
    cluster.started = True
    assert not cluster.matters(cluster.members["B"]), "this controller knows itself who matters"


def wired(names: str, mute: str = "") -> Cluster:
    """Hosts whose NICs probes have found, but for those in `mute`."""
    cluster = cluster_of({name: FakeChannel() for name in names})
    cluster.wiring = Wiring()
    nics = [(name, port) for name in names for port in cluster.members[name].ports]
    cluster.wiring.believe({nic: f"n{nic[1]}" for nic in nics if nic[0] not in mute}, {})
    for nic in nics:
        if nic[0] not in mute:
            cluster.wiring.set_nic(nic, True, 0.0)
    return cluster


def one_direction_dead(cluster: Cluster) -> None:
    cluster.wiring._kill(("C", 1), "rx")


def no_carrier(cluster: Cluster) -> None:
    cluster.members["C"].ports[2].up = False
    cluster.wiring.set_nic(("C", 2), False, 0.0)


def another_rate(cluster: Cluster) -> None:
    cluster.members["C"].ports[2].speed_bps = 10**10


def a_helper(cluster: Cluster, *, runs: bool = True) -> None:
    for member in cluster.members.values():
        member.taps = {PLAIN_PORT: True, WIRE_PORT: runs or member.name != "C"}


def not_ready(cluster: Cluster) -> None:
    cluster.members["C"].accepts_wire = False


@pytest.mark.parametrize(
    "comes",
    ["not at all", "is mute", "is late with its probes", "leaves", "leaves after its probes"],
)
@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        one_direction_dead,
        no_carrier,
        another_rate,
        a_helper,
        partial(a_helper, runs=False),
        not_ready,
    ],
    ids=["all well", "a dead direction", "no carrier", "a rate", "a helper", "TAPs", "not ready"],
)
def test_a_host_that_does_not_answer_a_new_controller_costs_others_no_row(
    change: Callable[[Cluster], None], comes: str
) -> None:
    """Others get the rows that a controller would give them which has run on.

    It may have answered some requests, but its rows were not taken over yet.
    """
    before, store = wired("ABC"), FakeStore()
    change(before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ri2n_sdn.apps.remember._EVERY_S", 0.0)
        Rememberer(before, cast(Any, store))._turn()
    there = comes != "not at all"
    after = wired("ABC", mute="C") if there else wired("AB")
    for name, member in after.members.items():
        member.reports_probes, member.accepts_wire = name != "C", name != "C"
        member.taps = dict(before.members[name].taps)
    if there:
        late = after.members["C"]
        late.ports = deepcopy(before.members["C"].ports)
        late.installed = Installed() if comes == "is late with its probes" else None
        late.reports_probes = comes == "leaves after its probes"
    after.started, after.started_s = False, 0.0
    after.remember(remembered(store.state()))
    for name in after.members:
        after.came_back(after.members[name])
    if comes == "leaves after its probes":
        for port in after.members["C"].ports.values():
            after.wiring.set_nic(("C", port.number), port.up, 0.0)
    for cluster in (before, after):
        if "C" not in cluster.members:
            continue
        if comes in ("is mute", "is late with its probes"):
            channel_of(cluster, "C").mute_for_s = 9.0
        else:
            cluster.members["C"].channel = None
            cluster.wiring.disconnect("C")
            cluster.topology_changed()
    assert not after.may_start(0.1), "it waits for C"
    assert after.may_start(TAKEOVER_GRACE_S + 0.1)
    recall(after, TAKEOVER_GRACE_S + 0.1)
    for name in "AB":
        rows = [plan_host(cluster.fabric(), name, {}, 16) for cluster in (before, after)]
        assert rows[0] == rows[1]
        to_c = [flow for flow in rows[1].flows.values() if ("eth_dst", host_mac("C")) in flow.match]
        assert len(to_c) >= 3
    if comes == "not at all":
        texts = [problem.text for problem in problems_of(after)]
        assert "C was connected before the controller started anew, and has not come back" in texts
        assert not any("C is not connected" in text for text in texts)


@pytest.mark.parametrize(
    ("helper", "mac", "silent"),
    [("on", host_mac("A"), False), ("off", host_mac("A"), True), ("off", host_mac("X"), False)],
)
def test_a_helper_that_hung_before_a_new_start_gets_traffic_when_it_reports(
    helper: str, mac: str, silent: bool
) -> None:
    cluster = wired("A")
    member = cluster.members["A"]
    member.taps = {PLAIN_PORT: True, WIRE_PORT: True}
    cluster.remember(Remembered({"A": replace(row_of(cluster, "A"), helper=helper, mac=mac)}))
    cluster.came_back(member)
    assert member.silence.silent is silent
    now_s = member.silence.since_s
    member.silence.judge(now_s + 1.0, now_s + 1.0)
    assert not member.silence.silent
    member.silence.silent = False
    cluster.came_back(member)
    assert not member.silence.silent, "what is remembered of a host counts once"


def test_rows_of_the_store_that_make_no_sense_bring_no_host_back() -> None:
    good = host_row(wired("C"), wired("C").members["C"], None, 0.0)
    of_a = host_row(wired("A"), wired("A").members["A"], None, 0.0)
    rows = {
        "C": good,
        "D": replace(good, name="D", datapath_id="no number"),
        "E": replace(of_a, name="E", datapath_id="e"),
        "bad name": replace(good, name="bad name", mac="06:00:00:00:47:00", nic_names={}),
        "G": replace(good, name="G", mac="m", nic_names={}),
        "H": replace(good, name="H", mac="06:00:00:00:48:00", nic_names={9999: "eth0"}),
        "I": replace(good, name="I", mac="06:00:00:00:49:00", nic_macs={}),
        "J": replace(good, name="J", mac="06:00:00:00:4a:00", nic_names={}, away_since_s=5.0),
        "F": replace(good, name="F", mac="06:00:00:00:46:00", nic_macs={}, nic_names={}),
    }
    cluster = wired("AB")
    cluster.started, cluster.started_s = False, 0.0
    cluster.remember(Remembered(rows))
    for member in cluster.members.values():
        member.reports_probes = True
    assert cluster.may_start(TAKEOVER_GRACE_S + 0.1)
    recall(cluster, TAKEOVER_GRACE_S + 0.1)
    assert cluster.members.keys() == {"A", "B", "C", "F"}
    assert not cluster.faults and cluster.fabric().hosts.keys() == cluster.members.keys()


def test_without_a_memory_all_is_as_ever() -> None:
    cluster = restarted("AB", {})
    assert not cluster.may_start(FRESH_GRACE_S + 0.1)
    assert cluster.may_start(TAKEOVER_GRACE_S + 0.1)


@pytest.mark.parametrize(
    ("change", "doubtful"),
    [
        ({}, set()),
        ({"mac": "02:00:00:00:00:aa"}, {1, 2, 3}),
        ({"datapath_id": "9"}, {1, 2, 3}),
        ({"nics": {1: ("e0", "m1"), 2: ("other", "m2")}}, {2, 3}),
        ({"nics": {1: ("e0", "m1"), 2: ("e1", "m9"), 4: ("e3", "m4")}}, {2, 3, 4}),
    ],
)
def test_what_is_believed_of_other_nics_is_dropped(
    change: dict[str, Any], doubtful: set[int]
) -> None:
    row = HostRow("A", "1", "02:00:00:00:00:01", {1: "e0", 2: "e1", 3: "e2"}, {1: "M1", 2: "m2"})
    row.nic_macs[3] = "m3"  # type: ignore[index]
    same = {1: ("e0", "m1"), 2: ("e1", "m2"), 3: ("e2", "m3")}
    came = {"datapath_id": "1", "mac": row.mac, "nics": same, **change}
    known = Remembered({"A": row})
    assert {port for _, port in known.came("A", **came)} == doubtful
    assert not known.hosts and known.expected == {"A"}
    assert not known.came("B", **came)


def test_links_that_differ_from_a_new_start_are_rows_and_come_back() -> None:
    paths = [(1, 1, 0), (1, 2, 0), (2, 2, 12)]
    assert links_row(("A", "B"), number_pair(paths, {})) is None
    numbers = number_pair(paths, {(2, 2, 12): 0})
    row = links_row(("A", "B"), numbers)
    assert row == LinksRow("A", "B", {"2/2/12": 0, "1/1/0": 1, "1/2/0": 2})
    assert remembered(State(links={("A", "B"): row})).links == {("A", "B"): numbers}
    assert number_pair(paths, numbers) == numbers


def test_rows_that_make_no_sense_are_left_out() -> None:
    state = State(
        hosts={"A": HostRow("A", "1", "m")},
        networks={"n1": NetworkRow("n1", frozenset({"A:1", "A:x", "B:1", "A", ":", "A:-1"}))},
        links={
            ("B", "A"): LinksRow("B", "A", {"1/1/0": 0}),
            ("A", "B"): LinksRow("A", "B", {"1/1/0": 0, "1/2": 1, "x/1/0": 2, "1/2/0": 3}),
            ("A", "C"): LinksRow("A", "C", {"1/1/0": 0, "1/2/0": 0}),
        },
    )
    found = remembered(state)
    assert found.networks == {("A", 1): "n1"}
    assert found.links == {("A", "B"): {(1, 1, 0): 0, (1, 2, 0): 3}}


class FakeStore:
    """Keeps what is written, or refuses it."""

    def __init__(self) -> None:
        self.active, self.problem = True, None
        self.rows: dict[tuple[str, str], Row] = {}
        self.writes: list[tuple[Change, ...]] = []
        self.away = False

    def state(self) -> State:
        hosts = {row.name: row for row in self.rows.values() if isinstance(row, HostRow)}
        networks = {row.name: row for row in self.rows.values() if isinstance(row, NetworkRow)}
        return State(hosts=hosts, networks=networks)

    def write(self, *changes: Change, timeout_s: float) -> None:
        if self.away:
            raise NotAvailable("it does not answer")
        self.writes.append(changes)
        for change in changes:
            assert isinstance(change.row, HostRow | NetworkRow)
            key = (type(change.row).__name__, change.row.name)
            if isinstance(change, Put):
                self.rows[key] = change.row
            else:
                assert isinstance(change, Remove)
                del self.rows[key]


@pytest.fixture
def remembering(monkeypatch: pytest.MonkeyPatch) -> tuple[Cluster, FakeStore, Rememberer]:
    monkeypatch.setattr("ri2n_sdn.apps.remember._EVERY_S", 0.0)
    cluster, store = cluster_of({name: FakeChannel() for name in "AB"}), FakeStore()
    plan(cluster)
    return cluster, store, Rememberer(cluster, cast(Any, store))


def test_only_what_has_changed_is_written(
    remembering: tuple[Cluster, FakeStore, Rememberer],
) -> None:
    cluster, store, rememberer = remembering
    cluster.started = False
    rememberer._turn()
    assert not store.writes, "before the first plan, nobody knows who is missing"
    cluster.started = True
    rememberer._turn()
    assert store.state().hosts == {name: row_of(cluster, name) for name in "AB"}
    assert store.state().networks.keys() == cluster.fabric().networks.keys()
    rememberer._turn()
    cluster.topology_changed()
    rememberer._turn()
    assert len(store.writes) == 1, "nothing has changed"
    cluster.members["B"].channel = None
    cluster.topology_changed()
    rememberer._turn()
    (change,) = store.writes[1]
    assert change.row.name == "B" and change.row.away_since_s is not None  # type: ignore[union-attr]
    cluster.topology_changed()
    rememberer._turn()
    assert len(store.writes) == 2, "the time of its leaving does not change"


def test_a_host_that_is_not_back_is_kept_for_some_time(
    remembering: tuple[Cluster, FakeStore, Rememberer], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, store, rememberer = remembering
    gone = HostRow("gone", "f", "02:00:00:00:00:0f", {1: "e0"}, {1: "m"})
    store.rows["HostRow", "gone"] = gone
    cluster.remember(Remembered({"gone": gone}, {("gone", 1): "n1"}))
    rememberer._turn()
    assert store.state().hosts["gone"].away_since_s is not None
    assert "gone:1" in store.state().networks["n1"].nics
    monkeypatch.setattr("ri2n_sdn.apps.remember.FORGET_S", -1.0)
    rememberer._turn()
    assert store.state().hosts.keys() == {"A", "B"}
    assert "gone:1" not in store.state().networks["n1"].nics


def test_what_could_not_be_written_is_written_later(
    remembering: tuple[Cluster, FakeStore, Rememberer],
) -> None:
    cluster, store, rememberer = remembering
    store.away = True
    rememberer._turn()
    assert cluster.counters["memory_not_written"] == 1 and not cluster.faults
    store.away = False
    rememberer._turn()
    assert store.state().hosts.keys() == {"A", "B"}
