# SPDX-License-Identifier: Apache-2.0
"""One turn of the placement app on invented hosts: what one of them sends harms no other."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Member
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.placement import PlacementApp, take_syn_ack
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.pipeline.placement import Connection, path_of_cookie
from tests.unit.fake_hosts import FakeChannel, cluster_of, host_mac
from tests.unit.placed_frames import reply, syn_ack


def test_connections_that_cannot_be_placed_are_their_hosts_own_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of the other servers are placed, and the app goes on."""
    config = parse_model("placement: [{hosts: [A, B]}]", ClusterConfig, "cluster.yaml")
    app = PlacementApp()
    app.cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel(), "C": FakeChannel()}, config)
    placed: list[str] = []

    def place(fabric: Any, member: Member, *rest: Any) -> None:
        if member.name == "A":
            raise IndexError("odd\n")
        placed.append(member.name)

    monkeypatch.setattr(app, "_place", place)
    for _ in range(2):
        for name in "AB":
            app.cluster.syn_acks[name] = deque([b""])
        app.cluster.wake.placement.set()
        app._turn()
    assert placed == ["B", "B"] and app.cluster.counters["host_faults"] == 2
    assert app.cluster.members["A"].faults == {"connections_not_placed": "IndexError: odd\\n"}


@pytest.mark.parametrize("error", [ValueError("odd"), TypeError("odd"), ConnectionError("closed")])
def test_a_host_whose_connections_cannot_be_read_keeps_no_other_from_its_own(
    error: Exception,
) -> None:
    config = parse_model("placement: [{hosts: [A, B]}]", ClusterConfig, "cluster.yaml")
    app = PlacementApp()
    app.cluster = cluster_of({"A": FakeChannel(lambda message: error), "B": FakeChannel()}, config)
    for name in "AB":
        app.cluster.syn_acks[name] = deque([b""])
    app.cluster.wake.placement.set()
    app._turn()
    assert (
        set(app._placed) == {"B"} and app.cluster.counters["connections_not_placed_stranger"] == 1
    )


def test_what_a_host_has_placed_is_read_again_when_it_connects_anew() -> None:
    """It is read even when another host asks: the old rows may have gone with the bridge."""
    config = parse_model("placement: [{hosts: [A, B]}]", ClusterConfig, "cluster.yaml")
    app = PlacementApp()
    app.cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()}, config)

    def channel_of_a_after_a_turn() -> FakeChannel:
        app.cluster.syn_acks["B"] = deque([b""])
        app.cluster.wake.placement.set()
        app._turn()
        return cast(FakeChannel, app.cluster.members["A"].channel)

    assert [len(channel_of_a_after_a_turn().asked) for _ in range(2)] == [1, 1]
    app.cluster.members["A"].channel = cast(Channel, FakeChannel())
    assert [len(channel_of_a_after_a_turn().asked) for _ in range(2)] == [1, 1]


def test_connections_of_servers_that_have_not_asked_yet_count_too() -> None:
    """The controller has just started, and A is a client of C by its first NIC.

    So A's own service begins on the other NIC.
    """
    of_c = Connection("10.0.0.3", 80, "10.0.0.1", 5000, host_mac("A"))
    a, c = FakeChannel(), FakeChannel(lambda _: reply(of_c, path=(1, 1, 0)))
    config = parse_model("placement: [{hosts: [A, C]}]", ClusterConfig, "cluster.yaml")
    app = PlacementApp()
    app.cluster = cluster_of({"A": a, "B": FakeChannel(), "C": c}, config)
    addresses = bytes.fromhex((host_mac("B") + host_mac("A")).replace(":", ""))
    take_syn_ack(app.cluster, "A", addresses + syn_ack("10.0.0.1", "10.0.0.2", (80, 5001))[12:])
    app._turn()
    cookies = [int.from_bytes(message[8:16], "big") for message in a.sent_bytes]
    assert [path_of_cookie(cookie) for cookie in cookies] == [(2, 2, 0)]
