# SPDX-License-Identifier: Apache-2.0
"""Who is in charge, and who believes whom about it."""

from __future__ import annotations

import struct
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ri2n_sdn.apps import charge as module
from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.charge import Charge
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.connection import ConnectionApp
from ri2n_sdn.apps.memory import Memory
from ri2n_sdn.apps.openflow import ofp
from ri2n_sdn.apps.problems import problems_of
from ri2n_sdn.apps.rivals import Hello
from ri2n_sdn.pipeline.diff import Installed
from ri2n_sdn.store.rows import ClusterRow, HostRow, State
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.test_connection import Line, switch_event

HOSTS = "ABC"


class FakeStore:
    """What the charge asks of a store."""

    def __init__(self) -> None:
        self.active, self.deposed, self.problem = False, False, cast(str | None, None)
        self.epoch, self.run = 0, "mine"
        self.rows = State(ClusterRow(7, "", "other (10.0.0.2:6653)"), "uuid")

    def state(self) -> State:
        return self.rows


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(module, "_TURN_S", 0.0)
    monkeypatch.setattr(module, "_HELLO_S", 0.0)
    return cluster_of({name: FakeChannel() for name in HOSTS})


def channel_of(cluster: Cluster, name: str) -> FakeChannel:
    return cast(FakeChannel, cluster.members[name].channel)


def with_store(cluster: Cluster) -> tuple[Charge, FakeStore, list[str]]:
    store, anew = FakeStore(), list[str]()
    cluster.memory = Memory(cast(Any, store), common=True)
    return Charge(cluster, "me", lambda: anew.append("anew")), store, anew


def roles(cluster: Cluster, name: str) -> list[tuple[int, int]]:
    found = []
    for kind, body in channel_of(cluster, name).sent:
        assert kind == ofp.OFPT_ROLE_REQUEST
        found.append(struct.unpack("!I4xQ", body))
    return found


def test_a_standby_is_a_slave_and_becomes_master_with_its_epoch(cluster: Cluster) -> None:
    charge, store, anew = with_store(cluster)
    charge.came(cluster.members["A"])
    assert roles(cluster, "A") == [(ofp.OFPCR_ROLE_SLAVE, 7)]
    charge._turn()
    assert cluster.passive == "other (10.0.0.2:6653) is in charge" and not cluster.started
    assert [event["code"] for event in cluster.events] == ["stands_by"]
    assert not problems_of(cluster) and not channel_of(cluster, "A").sent_bytes
    store.active, store.epoch = True, 9
    store.rows = State(hosts={"Z": HostRow("Z", "9", "02:00:00:00:00:09")})
    charge._turn()
    assert cluster.passive is None and cluster.remembered.expected == {"Z"}
    for name in HOSTS:
        assert roles(cluster, name)[-1] == (ofp.OFPCR_ROLE_MASTER, 9)
        assert len(channel_of(cluster, name).sent_bytes) == 1, "it says hello"
    assert not anew


def in_charge(cluster: Cluster) -> tuple[Charge, FakeStore, list[str]]:
    charge, store, anew = with_store(cluster)
    store.active, store.epoch = True, 9
    charge._turn()
    return charge, store, anew


def test_one_that_was_deposed_starts_anew_once(cluster: Cluster) -> None:
    charge, store, anew = in_charge(cluster)
    store.active, store.deposed = False, True
    charge._turn()
    charge._turn()
    assert anew == ["anew"]


def test_switches_that_refuse_count_only_without_the_store_and_when_most_do(
    cluster: Cluster,
) -> None:
    charge, store, anew = in_charge(cluster)
    stale = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)
    assert charge.refused(cluster.members["A"], *stale)
    assert charge.refused(cluster.members["A"], ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
    assert not charge.refused(cluster.members["A"], ofp.OFPET_BAD_REQUEST, 0)
    charge.has_role(cluster.members["B"], ofp.OFPCR_ROLE_SLAVE)
    charge._turn()
    assert not anew, "the store says that all is well"
    store.problem = "it does not answer"
    charge.has_role(cluster.members["B"], ofp.OFPCR_ROLE_MASTER)
    charge._turn()
    assert not anew, "one of three hosts"
    charge.has_role(cluster.members["B"], ofp.OFPCR_ROLE_SLAVE)
    charge.came(cluster.members["A"])
    charge._turn()
    assert not anew, "the first one has connected again"
    charge.refused(cluster.members["A"], *stale)
    charge._turn()
    assert anew == ["anew"]


def test_a_switch_that_refuses_a_role_before_it_is_let_in_is_no_host_with_another_master(
    cluster: Cluster,
) -> None:
    """It is asked for its role again when it is let in."""
    charge, store, anew = in_charge(cluster)
    assert charge.refused(None, ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)
    assert charge.refused(None, ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
    assert not charge.refused(None, ofp.OFPET_BAD_REQUEST, 0)
    store.problem = "it does not answer"
    charge._turn()
    codes = [event["code"] for event in cluster.events]
    assert "host_has_other_master" not in codes and not anew


def test_a_switch_that_refuses_a_role_has_refused_no_row_whether_it_is_let_in_or_not(
    cluster: Cluster,
) -> None:
    app = ConnectionApp()
    app.cluster = cluster
    app.charge, _, _ = in_charge(cluster)
    member = cluster.members["A"]
    stranger, line = Line(0.0), Line(0.0)
    member.channel, member.installed, member.dirty = cast(Channel, line), Installed(), False
    for kind, code in (module._STALE, module._IS_SLAVE):
        for each in (stranger, line):
            app.refused(switch_event(each, xid=5, type=kind, code=code, data=b""))
    assert cluster.counters["switch_errors"] == 0
    assert member.installed is not None and not member.dirty
    for count, each in enumerate((stranger, line), 1):
        app.refused(switch_event(each, xid=5, type=ofp.OFPET_BAD_REQUEST, code=0, data=b""))
        assert cluster.counters["switch_errors"] == count


def test_errors_about_roles_mean_nothing_without_a_common_store(cluster: Cluster) -> None:
    charge = Charge(cluster, "me")
    stale = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)
    assert not charge.refused(cluster.members["A"], *stale)
    assert not charge.refused(None, *stale)
    charge.came(cluster.members["A"])
    assert not channel_of(cluster, "A").sent, "no role is asked for"


def test_the_later_one_stands_back_and_comes_back_when_the_first_has_gone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: now.s)
    cluster.started = False
    anew: list[str] = []
    charge = Charge(cluster, "me", lambda: anew.append("anew"))
    first = Hello(1.0, "first", "first (10.0.0.1:6653)")
    late = Hello(4e9, "late", "late (10.0.0.3:6653)")
    for name in HOSTS:
        charge.heard(late.encode(), cluster.members[name])
    charge._turn()
    assert cluster.passive is None
    assert [problem.id for problem in problems_of(cluster)] == ["rival_should_yield:late"]
    for name in HOSTS[:2]:
        charge.heard(first.encode(), cluster.members[name])
    charge._turn()
    assert cluster.passive is not None and first.name in cluster.passive
    ids = {problem.id for problem in problems_of(cluster)}
    assert ids == {"rival_was_first:first", "rival_in_charge:late"}
    assert cluster.events[-1]["code"] == "stands_back"
    now.s += 6.1  # nobody hears of the two any more
    charge._turn()
    assert cluster.passive is None and not anew, "it was never in charge, so nothing is stale"
    cluster.was_in_charge = True
    for name in HOSTS:
        charge.heard(first.encode(), cluster.members[name])
    charge._turn()
    now.s += 6.1
    charge._turn()
    assert anew == ["anew"]


def test_its_own_hello_and_that_of_its_own_store_are_nothing(cluster: Cluster) -> None:
    charge, store, _ = in_charge(cluster)
    store.rows = State(ClusterRow(9), "uuid")
    charge.heard(charge.own_hello().encode(), cluster.members["A"])
    charge.heard(Hello(1.0, "x", "x", "uuid").encode(), cluster.members["A"])
    assert not cluster.rivals.known(HOSTS, time.monotonic())
    charge.heard(Hello(1.0, "x", "x", "").encode(), cluster.members["A"])
    assert [rival.name for rival in cluster.rivals.known(HOSTS, time.monotonic())] == ["x"]
