# SPDX-License-Identifier: Apache-2.0
"""What the local interface answers about NICs and events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.local_api import LocalApi
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
    assert ask(api, "events", since="x")["error"] == "since: must be a number"


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
    assert ask(api, "status", pairs="x")["error"] == "pairs: must be true or false"


def test_nics_that_were_taken_for_dead_are_a_counter(api: LocalApi) -> None:
    assert ask(api, "status")["counters"]["nic_deaths"] == 0
    api._cluster.wiring.deaths = 3
    assert ask(api, "status")["counters"]["nic_deaths"] == 3
