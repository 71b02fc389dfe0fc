# SPDX-License-Identifier: Apache-2.0
"""What the local interface answers about the state, NICs and events."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.client import Watch
from ri2n_sdn.contract.state import State
from ri2n_sdn.discovery.nic_state import NicState
from tests.unit.fake_hosts import FakeChannel


@pytest.fixture
def api(tmp_path: Path) -> Iterator[LocalApi]:
    cluster = Cluster(ClusterConfig(), "max_min", tmp_path / "socket")
    ports = {1: Port(1, "e1", "04:00:00:00:00:01", True, 10**9)}
    channel = cast(Channel, FakeChannel())
    cluster.members["A"] = Member("A", 1, "02:00:00:00:00:01", "3.1.0", ports, channel)
    made = LocalApi(cluster)
    yield made
    made.close()


def ask(api: LocalApi, operation: str, **values: Any) -> dict[str, Any]:
    return api.answer(json.dumps({"op": operation, **values}).encode())


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("receives", [True, False])
def test_a_nic_is_alive_when_it_sends_and_receives(
    api: LocalApi, monkeypatch: pytest.MonkeyPatch, sends: bool, receives: bool
) -> None:
    monkeypatch.setattr(api._cluster.wiring, "alive", lambda _: (sends, receives))
    (nic,) = ask(api, "status")["hosts"][0]["nics"]
    assert nic["alive"] == (sends and receives)


def test_events_are_told_once(api: LocalApi) -> None:
    for host in ("one", "two", "three"):
        api._cluster.note("host_disconnected", {"host": host})
    events = ask(api, "events")["events"]
    assert [event["subject"]["host"] for event in events] == ["one", "two", "three"]
    assert ask(api, "events", since=events[1]["seq"])["events"] == events[2:]
    assert ask(api, "events", since=events[2]["seq"])["events"] == []
    refused = ask(api, "events", since="x")
    assert (refused["code"], refused["key"]) == ("not_number", "since")


def test_a_status_may_be_had_without_the_pairs(
    api: LocalApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = api._cluster
    ports = {1: Port(1, "e1", "04:00:00:00:00:02", True, 10**9)}
    cluster.members["B"] = Member("B", 2, "02:00:00:00:00:02", "3.1.0", ports)
    for nic in (("A", 1), ("B", 1)):
        monkeypatch.setitem(cluster.wiring._nics, nic, NicState(True, True, 0.0, network=1))
    cluster.topology_changed()
    whole, short = ask(api, "status"), ask(api, "status", pairs=False)
    assert [(pair["src"], pair["dst"]) for pair in whole["pairs"]] == [("A", "B"), ("B", "A")]
    assert short["pairs"] == [] and short["hosts"] == whole["hosts"]
    refused = ask(api, "status", pairs="x")
    assert (refused["code"], refused["key"]) == ("not_flag", "pairs")


def test_nics_that_were_taken_for_dead_are_a_counter(api: LocalApi) -> None:
    assert ask(api, "status")["counters"]["nic_deaths"] == 0
    api._cluster.wiring.deaths = 3
    assert ask(api, "status")["counters"]["nic_deaths"] == 3


@pytest.mark.parametrize("sampled_s", [None, 1.5e9])
def test_a_status_has_the_state_that_a_watcher_begins_with(
    api: LocalApi, sampled_s: float | None
) -> None:
    cluster = api._cluster
    cluster.topology_changed()
    cluster.measured.sampled_s = sampled_s
    assert ask(api, "policy_add", name="p1", policy={"policy": "exclusive"})["ok"]
    status = json.loads(json.dumps(ask(api, "status")))
    with Watch(cluster.socket_path) as watch:
        assert status["state"] == watch.state and "tokens" not in status["state"]
    assert "p1" in status["state"]["policies"]
    assert status["version"] == 2
    assert status["state"]["controller"].get("sampled_s") == sampled_s
    for answer in (status, ask(api, "pairs"), ask(api, "explain", src="A", dst="B")):
        assert answer["sampled_s"] == sampled_s


def test_one_thread_at_a_time_collects(api: LocalApi, monkeypatch: pytest.MonkeyPatch) -> None:
    both, met, collect = threading.Barrier(2), [], api._watching._collector.collect

    def collected() -> State:
        # The first thread waits here for the second one, which must not come before it has gone.
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)
            met.append(True)
        return collect()

    monkeypatch.setattr(api._watching._collector, "collect", collected)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: ask(api, "status"), range(2)))
    assert all(answer["ok"] for answer in answers) and not met
