# SPDX-License-Identifier: Apache-2.0
"""When a controller takes charge of its hosts, and when all is settled."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ri2n_sdn.apps.cluster import FRESH_GRACE_S, TAKEOVER_GRACE_S, Cluster
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.pipeline.messages import Group
from tests.unit.app_turns import Clock, channel_of, clock
from tests.unit.fake_hosts import FakeChannel, cluster_of, plan

__all__ = ["clock"]


@pytest.mark.parametrize("taken_over", [False, True])
def test_hosts_that_are_not_declared_are_waited_for(clock: Clock, taken_over: bool) -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    plan(cluster)
    cluster.started, cluster.started_s = False, clock.now_s
    for member in cluster.members.values():
        member.reports_probes = True
        assert member.installed is not None
        member.installed.groups = {1: Group(1, Group.SELECT, ())} if taken_over else {}
    grace_s = TAKEOVER_GRACE_S if taken_over else FRESH_GRACE_S
    assert not cluster.may_start(clock.now_s + grace_s)
    cluster.members["B"].reports_probes = False
    assert not cluster.may_start(clock.now_s + grace_s + 0.1), "its probe rows are not there yet"
    cluster.members["B"].reports_probes = True
    cast(Any, cluster.wiring).settled = False
    assert not cluster.may_start(clock.now_s + grace_s + 0.1)
    cast(Any, cluster.wiring).settled = True
    assert cluster.may_start(clock.now_s + grace_s + 0.1) and cluster.started
    assert cluster.events[-1]["text"] == "in charge of 2 hosts: A, B" and cluster.members["A"].dirty


def test_declared_hosts_are_waited_for_and_no_longer(clock: Clock) -> None:
    config = parse_model("hosts: {A: {}, B: {}}", ClusterConfig, "cluster.yaml")
    cluster = cluster_of({"A": FakeChannel(), "B": None, "C": FakeChannel()}, config)
    cluster.started, cluster.started_s = False, clock.now_s
    for member in cluster.members.values():
        member.reports_probes = True
    assert not cluster.may_start(clock.now_s)
    cluster.members["B"].channel = cluster.members["C"].channel
    assert cluster.may_start(clock.now_s)
    assert not Cluster(config, "max_min", cluster.socket_path).may_start(1e9), "nobody has come"


@pytest.mark.parametrize("declared", [False, True])
def test_nobody_waits_with_taking_charge_for_a_mute_host(clock: Clock, declared: bool) -> None:
    """A mute host counts as absent: it neither delays the start nor makes the controller start."""
    config = parse_model(
        f"hosts: {'{A: {}, B: {}, C: {}}' if declared else '{}'}", ClusterConfig, "cluster.yaml"
    )
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel(), "C": FakeChannel()}, config)
    cluster.started, cluster.started_s = False, clock.now_s
    for name in "AB":
        cluster.members[name].reports_probes = True
    channel_of(cluster, "C").mute_for_s = 0.4  # it may only be late
    assert not cluster.may_start(clock.now_s + TAKEOVER_GRACE_S + 0.1)
    channel_of(cluster, "C").mute_for_s = 0.6
    assert not cluster.may_start(clock.now_s + FRESH_GRACE_S)
    assert cluster.may_start(clock.now_s + FRESH_GRACE_S + 0.1)


@pytest.mark.parametrize("mute_s", [0.0, 0.6])
def test_who_is_quickest_does_not_make_a_controller_begin_without_the_others(
    clock: Clock, mute_s: float
) -> None:
    """A host that shares no network may be a stranger.

    The hosts whose rows are in use get the time that they need to connect.
    """
    cluster = cluster_of({"X": FakeChannel()})
    cluster.started, cluster.started_s = False, clock.now_s
    cluster.members["X"].reports_probes = True
    channel_of(cluster, "X").mute_for_s = mute_s
    assert not cluster.may_start(clock.now_s + FRESH_GRACE_S + 0.1)
    assert not cluster.may_start(clock.now_s + TAKEOVER_GRACE_S)
    assert cluster.may_start(clock.now_s + TAKEOVER_GRACE_S + 0.1)


def test_a_host_that_has_long_been_mute_keeps_nobody_from_being_settled() -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    plan(cluster)
    cluster.members["B"].dirty, cluster.members["B"].accepts_wire = True, False
    channel_of(cluster, "B").mute_for_s = 4.9  # on a busy machine it may only be late
    assert not cluster.settled()
    channel_of(cluster, "B").mute_for_s = 5.1
    assert cluster.settled()


@pytest.mark.parametrize("what", ["accepts_wire", "dirty", "busy", "started", "wiring"])
def test_all_is_settled_when_nothing_is_left_to_do(what: str) -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel(), "C": None})
    plan(cluster)
    cluster.members["C"].dirty = True  # it is away
    assert cluster.settled()
    if what == "started":
        cluster.started = False
    elif what == "wiring":
        cast(Any, cluster.wiring).settled = False
    else:
        setattr(cluster.members["B"], what, what != "accepts_wire")
    assert not cluster.settled()


def test_a_nics_rate_is_the_declared_one_else_what_it_says() -> None:
    config = parse_model("hosts: {A: {nics: {eth0: {rate_bps: 7}}}}", ClusterConfig, "cluster.yaml")
    cluster = cluster_of({"A": FakeChannel()}, config, nics=3)
    cluster.members["A"].ports[3].speed_bps = 0
    assert [nic.rate_bps for nic in cluster.fabric().hosts["A"].nics] == [
        7,
        100_000_000,
        1_000_000_000,
    ]
