# SPDX-License-Identifier: Apache-2.0
"""What watchers see: states, and changes that lead from one state to the next."""

from __future__ import annotations

import copy
import json
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.apps import watching
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.measured import Reported
from ri2n_sdn.apps.tokens import Tokens
from ri2n_sdn.apps.watch import (
    cable_documents,
    problem_documents,
    switch_documents,
)
from ri2n_sdn.apps.watching import MAX_WATCHERS, Collector, pause_s
from ri2n_sdn.client import Watch, web_socket_of
from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.contract.state import MAX_EVENTS, difference, merge
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.jobs.model import Job, Policy
from ri2n_sdn.jobs.rights import Right
from ri2n_sdn.pipeline.helper_frames import Report, ReportEntry
from ri2n_sdn.vlan.routing import DeadParts
from ri2n_sdn.vlan.trees import Trees
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.fat_model import vbft_graph

LONG_S = 120.0
WEB = {"user": "web", "uid": None, "role": "viewer"}
values = st.recursive(
    st.integers(0, 3) | st.booleans() | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=4,
)
maps = st.dictionaries(st.sampled_from("ABCD"), values, max_size=4)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """States of one controller, one after the other."""
    number, events, states = 0, list[dict[str, Any]](), []
    for _ in range(draw(st.integers(1, 5))):
        for _ in range(draw(st.integers(0, 3) | st.just(MAX_EVENTS + 7))):
            number += 1
            events = [*events, {"seq": number, "time_s": 1.0, "text": "x"}][-MAX_EVENTS:]
        states.append({"hosts": draw(maps), "jobs": draw(maps), "events": events})
    return states


@settings(max_examples=60)
@given(histories())
def test_changes_lead_from_each_state_to_the_next(states: list[dict[str, Any]]) -> None:
    seen = states[0]
    for before, after in pairwise(states):
        kept = copy.deepcopy((before, seen))
        change = json.loads(json.dumps(difference(before, after)))
        assert (change == {}) == (before == after)
        then, seen = seen, merge(seen, change)
        assert seen == after
        assert (before, then) == kept, "what others still read was changed"


def test_a_state_holds_hosts_networks_and_what_is_wrong() -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": None}, dead=[("A", 2)])
    cluster.note("takes_charge")
    port = cluster.members["A"].ports[1]
    port.tx_bps, port.rx_bps = 1234.5, 0.0
    state = Collector(cluster, Tokens(None)).collect()
    host = state["hosts"]["A"]
    assert host["connected"] and host["address"] == "192.0.2.1"
    assert {name: nic["alive"] for name, nic in host["nics"].items()} == {
        "eth0": True,
        "eth1": False,
    }
    away = state["hosts"]["B"]
    assert (away["connected"], away["address"]) == (False, None)
    assert {nic["alive"] for nic in away["nics"].values()} == {None}
    assert state["networks"]["n1"]["nics"] == ["A:eth0", "B:eth0"]
    assert state["rates"] == {"A": {"eth0": [1234, 0]}}, "what is not known has no rate"
    assert "host_away:B" in state["problems"]
    assert {"host": "A", "nic": "eth1"} in [each["subject"] for each in state["problems"].values()]
    assert state["events"][-1]["code"] == "takes_charge"
    controller = state["controller"]
    assert controller["in_charge"] and controller["strategy"] == "max_min"
    assert "waits_because" not in controller
    json.dumps(state)


def test_no_value_of_a_part_is_none_since_that_removes_a_key() -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": None})
    for passive in (None, "another one is in charge"):
        cluster.passive = passive
        state = Collector(cluster, Tokens(None)).collect()
        for part, entries in state.items():
            if part != "events":
                assert None not in entries.values(), part
    assert state["controller"]["waits_because"] == "another one is in charge"


def test_a_dead_nic_is_the_only_host_that_changes() -> None:
    dead: list[tuple[str, int]] = []
    cluster = cluster_of({name: FakeChannel() for name in "ABC"}, dead=dead)
    collector = Collector(cluster, Tokens(None))
    before = collector.collect()
    cluster.wiring._dead.add(("B", 1))  # type: ignore[attr-defined]
    cluster.topology_changed()
    after = collector.collect()
    change = difference(before, after)
    assert set(change["hosts"]) == {"B"} and not change["hosts"]["B"]["nics"]["eth0"]["alive"]
    assert set(change) <= {"hosts", "problems", "controller", "counters", "outages"}
    assert merge(before, change) == after


def test_what_has_not_changed_is_taken_over_and_not_made_again() -> None:
    cluster = cluster_of({name: FakeChannel() for name in "AB"})
    collector = Collector(cluster, Tokens(None))
    before = collector.collect()
    after = collector.collect()
    same = {part for part in after if after[part] is before[part]}
    assert same >= {"hosts", "networks", "cables", "switches", "jobs", "reservations", "rights"}
    assert difference(before, after) == {}
    cluster.members["A"].channel = None
    cluster.topology_changed()
    assert difference(before, collector.collect())["hosts"].keys() == {"A"}


def test_dead_cables_of_switches_are_shown() -> None:
    graph = vbft_graph(2, 2)
    cables = {frozenset((cable.a, cable.b)): cable.number for cable in graph.cables()}
    dead = DeadParts(links=frozenset({(1, 2 * cables[frozenset(("leaf1", "up2"))] + 1)}))
    trees = cast(Trees, SimpleNamespace(graph=graph, on_cables=((1, 2), (1,), (2,), ())))
    before = {"cables": cable_documents(trees, DeadParts())}
    state = {"cables": cable_documents(trees, dead)}
    assert switch_documents(graph.names, {"leaf1": graph.names}) == {
        name: {"network": "leaf1"} for name in graph.names
    }
    broken = {
        name: sorted(cable["ends"]) for name, cable in state["cables"].items() if not cable["alive"]
    }
    assert broken == {"leaf1/102-up2/1": ["leaf1", "up2"]} and len(state["cables"]) == 4
    assert difference(before, state)["cables"].keys() == broken.keys()
    assert [cable["vlans"] for cable in state["cables"].values()] == [[1, 2], [1], [2], []]


def test_what_helpers_report_is_added_up_once() -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    collector = Collector(cluster, Tokens(None))
    reported = Reported()
    cluster.measured.reports["A"] = reported
    entry = ReportEntry("m", 3, True, True, False, 3, 3, 3, 3, 0, 0, 0, 0)
    reported.take(Report(5000, "m", 1, (entry, replace(entry, link=4))), 10.0)
    assert collector.collect()["helpers"]["A"]["sent"] == 0, "it was sent before"
    entry = replace(entry, sent=6, lost=4)
    reported.take(Report(6000, "m", 1, (entry, replace(entry, link=4))), 11.0)
    sums = collector.collect()["helpers"]["A"]
    assert sums["links"] == sums["usable"] == 2 and (sums["sent"], sums["lost"]) == (6, 2)
    assert sums["striping"] == 0
    assert collector.collect()["helpers"]["A"] is sums
    del cluster.measured.reports["A"]
    assert collector.collect()["helpers"] == {}


def test_a_problem_keeps_its_key_while_its_time_grows() -> None:
    def keys(code: str, **subject: str) -> list[str]:
        found: list[str] = []
        for args in ({"silent_s": 1.5, "part": 0.05}, {"silent_s": 22.0, "part": 0.17}):
            found += problem_documents([Problem(code, subject, args)])
        return found

    assert keys("host_mute", host="A") == ["host_mute:A"] * 2
    assert keys("cable_loses", cable="x") == ["cable_loses:x"] * 2
    assert keys("nic_no_link", host="A", nic="eth1") == ["nic_no_link:A:eth1"] * 2


def test_a_state_costs_what_its_hosts_cost_and_not_their_pairs() -> None:
    """The cost is counted in function calls, on which other processes have no influence."""

    def calls(n_hosts: int) -> int:
        names = [chr(0x100 + number) for number in range(n_hosts)]
        cluster = cluster_of({name: FakeChannel() for name in names})
        for number, member in enumerate(cluster.members.values()):
            member.mac = f"06:00:00:00:01:{number:02x}"
            for port in member.ports.values():
                port.mac = f"04:00:00:00:{number:02x}:{port.number:02x}"
        cluster.pair_slots.update(dict.fromkeys(permutations(names, 2), ((1, 1, 0),) * 64))
        collector = Collector(cluster, Tokens(None))
        last = collector.collect()
        counted = 0

        def count_call(frame: object, event: str, argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        for member in cluster.members.values():
            member.ports[1].tx_bps = member.ports[1].rx_bps = 5.0
        sys.setprofile(count_call)
        try:
            difference(last, collector.collect())
        finally:
            sys.setprofile(None)
        return counted

    assert 100 < calls(60) < 2.5 * calls(30) < 30_000


def test_documents_of_jobs_follow_what_they_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    collector, state = Collector(cluster, Tokens(None)), cluster.jobs
    job = Job("j1", "alice", 7, ("A", "B"), Policy(), 1.0, source="order")
    state.book.add_order(job)
    first = collector.collect()["jobs"]
    assert first["j1"]["user"] == "alice" and collector.collect()["jobs"] is first
    state.failed["A"] = {"j1": "no room"}
    assert "no room" in collector.collect()["jobs"]["j1"]["why"]
    state.states = {"j1": ("refused", "for a reason")}
    assert collector.collect()["jobs"]["j1"]["state"] == "refused"
    again = collector.collect()["jobs"]
    monkeypatch.setattr(watching, "_MAX_KEPT_S", 0.0)
    assert collector.collect()["jobs"] is not again, "and they are made anew after a while"
    state.book.put_right(Right("alice"))
    assert collector.collect()["rights"].keys() == {"alice"}


def test_a_turn_that_waited_for_the_lock_does_not_delay_the_next_one() -> None:
    assert pause_s(took_s=2.0, cpu_s=0.001) < 0.05
    assert pause_s(took_s=0.01, cpu_s=0.001) == pytest.approx(0.49)
    assert pause_s(took_s=0.1, cpu_s=0.1) == pytest.approx(2.0), "much work is done less often"


# ---- Streams


@contextmanager
def controller(hosts: str = "AB") -> Iterator[LocalApi]:
    """The local interface of a controller, in a short folder."""
    with tempfile.TemporaryDirectory(prefix="ri2n-") as folder:
        cluster = cluster_of({name: FakeChannel() for name in hosts})
        cluster.socket_path = Path(folder) / "controller.sock"
        with closing(LocalApi(cluster)) as api:
            yield api


@pytest.fixture
def api() -> Iterator[LocalApi]:
    with controller() as made:
        yield made


def until(watch: Watch, condition: Any) -> Documents:
    """The first state that fulfils a condition; a stream that says nothing fails by itself."""
    for state in watch:
        if condition(state):
            return state
    raise AssertionError("the stream has ended")


def test_a_watcher_gets_the_state_and_then_each_change(api: LocalApi) -> None:
    cluster = api._cluster
    with Watch(cluster.socket_path) as watch:
        first = next(watch)
        assert first["hosts"].keys() == {"A", "B"} and "tokens" not in first
        seq = watch.seq
        with cluster.lock:
            cluster.note("takes_charge")
            cluster.note("rival_gone")
        state = until(watch, lambda state: state["events"])
        assert [event["code"] for event in state["events"]] == ["takes_charge", "rival_gone"]
        assert watch.seq > seq
        with cluster.lock:
            cluster.members["A"].channel = None
            cluster.topology_changed()
        assert until(watch, lambda state: not state["hosts"]["A"]["connected"])
        assert "A" not in watch.state["rates"]


def test_all_watchers_see_the_same_and_the_work_is_done_once(
    api: LocalApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, calls = api._cluster, []
    real = Collector.collect
    monkeypatch.setattr(Collector, "collect", lambda self: calls.append(1) or real(self))  # type: ignore[func-returns-value]
    watches = [Watch(cluster.socket_path) for _ in range(MAX_WATCHERS)]
    try:
        calls.clear()  # A new watcher's first state is made for it.
        cluster.counters.add("something")
        states = [
            until(watch, lambda state: state["counters"].get("something")) for watch in watches
        ]
        assert all(state == states[0] for state in states)
        assert len(calls) < MAX_WATCHERS
    finally:
        for watch in watches:
            watch.close()


def test_one_watcher_too_many_is_refused_and_counted(
    api: LocalApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = api._cluster.socket_path
    monkeypatch.setattr(watching, "_LIFE_S", LONG_S)
    watches = [Watch(path) for _ in range(MAX_WATCHERS)]
    try:
        with pytest.raises(NotAvailable) as refused:
            Watch(path)
        assert (refused.value.code, refused.value.values) == ("watchers_full", {"most": 8})
        assert api._cluster.counters["watchers_refused"] == 1
        watches.pop().close()
        # Nothing is sent, and the place is free at once all the same.
        Watch(path).close()
        watches.append(Watch(path))
        assert api._cluster.counters["watchers_refused"] == 1
        assert not api._cluster.counters["watchers_cut_off"]
    finally:
        for watch in watches:
            watch.close()


@pytest.mark.parametrize(("lines", "n_bytes"), [(10**9, 200_000), (20, 10**9)])
def test_a_watcher_that_does_not_read_is_cut_off_and_counted(
    api: LocalApi, monkeypatch: pytest.MonkeyPatch, lines: int, n_bytes: int
) -> None:
    monkeypatch.setattr(watching, "_MAX_LINES", lines)
    monkeypatch.setattr(watching, "_MAX_BYTES", n_bytes)
    monkeypatch.setattr(watching, "_STALLED_S", LONG_S)
    monkeypatch.setattr(watching, "_EVERY_S", 0.01)
    cluster = api._cluster
    with socket.socket(socket.AF_UNIX) as idle, Watch(cluster.socket_path) as reader:
        idle.connect(str(cluster.socket_path))
        idle.sendall(b'{"op": "watch"}\n')
        for number, state in zip(range(1000), reader, strict=False):
            if state["counters"].get("watchers_cut_off"):
                break
            with cluster.lock:
                for each in range(50):
                    cluster.note("path_table_ended", owner=f"{number} {each} " + 200 * "x")
        assert cluster.counters["watchers_cut_off"] == 1
        idle.settimeout(LONG_S)
        read = 0
        while chunk := idle.recv(1 << 16):
            read += len(chunk)
        assert read < 10_000_000


def test_a_sign_of_life_comes_when_nothing_changes(
    api: LocalApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LIFE_S", 0.02)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LONG_S)
        connection.connect(str(api._cluster.socket_path))
        connection.sendall(b'{"op": "watch"}\n')
        lines = connection.makefile("rb")
        first = json.loads(lines.readline())
        assert json.loads(lines.readline()) == {"seq": first["seq"], "changed": {}}


def test_a_controller_that_ends_ends_the_streams_behind_a_whole_line() -> None:
    with controller() as api:
        watch = Watch(api._cluster.socket_path)
        next(watch)
        api.close()
        assert list(watch) == []
        watch.close()
        with pytest.raises(NotAvailable):
            Watch(api._cluster.socket_path)


def test_a_failure_ends_the_streams_and_nothing_else(
    api: LocalApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = api._cluster.socket_path
    with monkeypatch.context() as patch:
        with Watch(path) as watch:
            next(watch)
            patch.setattr(watching, "problems_of", lambda cluster: 1 / 0)
            list(watch)
        assert api._cluster.counters["watch_errors"]
        with pytest.raises(NotAvailable) as refused:
            Watch(path)
        assert refused.value.code == "internal_error"
    with Watch(path) as again:
        assert next(again)["hosts"]


def test_the_web_process_is_told_about_tokens(api: LocalApi) -> None:
    path = web_socket_of(api._cluster.socket_path)
    with Watch(path, who=WEB) as watch:
        assert next(watch)["tokens"] == {}
        api.answer(
            json.dumps(
                {"op": "token_add", "name": "t1", "role": "viewer", "hash": 64 * "a"}
            ).encode()
        )
        state = until(watch, lambda state: state["tokens"])
        assert state["tokens"]["t1"]["hash"] == 64 * "a"


def test_a_new_watcher_knows_what_was_acknowledged_before(api: LocalApi) -> None:
    """Also when another one watches, which hears of changes twice a second at most."""
    path = web_socket_of(api._cluster.socket_path)
    with Watch(path, who=WEB) as first:
        next(first)
        for digit in "abc":
            token = {"op": "token_add", "name": digit, "role": "viewer", "hash": 64 * digit}
            assert api.answer(json.dumps(token).encode())["ok"]
            with Watch(path, who=WEB) as second:
                assert digit in next(second)["tokens"]
            assert (
                digit in until(first, lambda state, name=digit: name in state["tokens"])["tokens"]
            )


def test_a_broken_stream_is_no_clean_end() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="ri2n-") as folder,
        socket.socket(socket.AF_UNIX) as server,
    ):
        path = Path(folder) / "s"
        server.bind(str(path))
        server.listen(1)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.makefile("rb").readline()
                connection.sendall(b'{"ok": true, "seq": 1, "state": {}}\n{"seq": 2, "chan')

        thread = threading.Thread(target=serve)
        thread.start()
        with Watch(path) as watch:
            assert not next(watch)
            with pytest.raises(NotAvailable) as ended:
                next(watch)
            assert ended.value.code == "controller_broke_off"
        thread.join()
