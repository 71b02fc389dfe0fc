# SPDX-License-Identifier: Apache-2.0
"""The trunk app's groups and slot tables: when they are sent, taken over and deleted."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ri2n_sdn.apps import trunk as trunk_module
from ri2n_sdn.apps.slot_groups import send_slots
from ri2n_sdn.apps.trunk import TrunkApp
from ri2n_sdn.pipeline.plan import pair_group_id
from ri2n_sdn.weights.loop import PairDecision
from ri2n_sdn.weights.slots import default_slots
from tests.unit import bridge_model
from tests.unit.fake_hosts import FakeChannel, cluster_of, plan
from tests.unit.trunk_turns import Trunk, model

__all__ = ["model"]


def test_a_group_outlives_its_rows_for_as_long_as_a_datapath_may_remember_it(
    model: bridge_model.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise frames that a busy datapath's cache still sends to the group would be lost."""
    now_s = time.monotonic()
    monkeypatch.setattr(trunk_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    trunk = Trunk(model)
    table = tuple(path.key for path in model.fabric.paths("A", "B")) * 32
    trunk.cluster.pair_slots["A", "B"] = table
    trunk.turn()
    made = {number for _, what, number in trunk.log if what == "group"}
    assert pair_group_id("B") in made
    del trunk.cluster.pair_slots["A", "B"]  # the pair has fallen silent
    trunk.cluster.members["A"].dirty = True
    deleted = []
    for elapsed_s in (0.0, 5.0, 2.9, 0.2, 0.2):
        now_s += elapsed_s
        trunk.turn()
        deleted.append({number for _, what, number in trunk.log if what == "delete group"})
    assert deleted == [set(), set(), set(), made, set()]


def test_groups_whose_rows_go_one_after_the_other_go_together_when_the_last_ones_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group that has just lost its rows must not go with one that lost them before."""
    now_s = time.monotonic()
    monkeypatch.setattr(trunk_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    model = bridge_model.Cluster({name: ["n1", "n2"] for name in "ABC"})
    trunk = Trunk(model)
    for peer in "BC":
        table = tuple(path.key for path in model.fabric.paths("A", peer)) * 32
        trunk.cluster.pair_slots["A", peer] = table
    trunk.turn()
    made = {number for _, what, number in trunk.log if what == "group"}
    assert made == {pair_group_id("B"), pair_group_id("C")}
    deleted = []
    for elapsed_s, silent in ((0.0, "B"), (5.0, "C"), (3.2, ""), (4.7, ""), (0.2, "")):
        now_s += elapsed_s
        if silent:
            del trunk.cluster.pair_slots["A", silent]
            trunk.cluster.members["A"].dirty = True
        trunk.turn()
        deleted.append({number for _, what, number in trunk.log if what == "delete group"})
    assert deleted == [set(), set(), set(), set(), made]


@pytest.mark.parametrize("slots", [64, 32])
def test_tables_of_an_earlier_controller_are_taken_over_where_they_have_as_many_slots(
    slots: int,
) -> None:
    """The number of slots in cluster.yaml may have changed since."""
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    table = default_slots([(1, 1, 0), (2, 2, 0)], [3.0, 1.0], slots)
    plan(cluster, {("A", "B"): table})
    cluster.pair_slots.clear()
    app = TrunkApp()
    app.cluster = cluster
    app._adopt(list(cluster.members.values()))
    assert cluster.pair_slots == ({("A", "B"): table} if slots == cluster.config.slots else {})
    assert all(member.adopted and not member.faults for member in cluster.members.values())


def test_a_group_that_no_row_uses_is_not_taken_over() -> None:
    """Its pair had fallen silent; the earlier controller did not live to delete it."""
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    table = default_slots([(1, 1, 0), (2, 2, 0)], [3.0, 1.0], cluster.config.slots)
    plan(cluster, {("A", "B"): table})
    member = cluster.members["A"]
    assert member.installed is not None
    unused = member.installed.groups[pair_group_id("B")]
    cluster.pair_slots.clear()
    plan(cluster)
    member.installed.groups[unused.group_id] = unused
    app = TrunkApp()
    app.cluster = cluster
    app._adopt(list(cluster.members.values()))
    assert cluster.pair_slots == {} and member.adopted and not member.faults


@pytest.mark.parametrize("state", ["at rest", "busy", "dirty"])
def test_a_new_table_is_sent_unless_a_turn_is_about_to_send_it(
    model: bridge_model.Cluster, state: str
) -> None:
    """A turn plans with the table that it finds.

    What is sent besides might arrive before the group exists, or undo what the turn sends.
    """
    trunk = Trunk(model)
    table = tuple(path.key for path in model.fabric.paths("A", "B")) * 32
    trunk.cluster.pair_slots["A", "B"] = table
    trunk.turn()
    trunk.log.clear()
    member = trunk.cluster.members["A"]
    member.busy, member.dirty = state == "busy", state == "dirty"
    barriers = send_slots(trunk.cluster, {("A", "B"): PairDecision({}, None, table[::-1], 64)})
    assert trunk.cluster.pair_slots["A", "B"] == table[::-1]
    if state == "at rest":
        assert (
            trunk.log == [("A", "modify", pair_group_id("B")), ("A", "asked", 0)]
            and len(barriers) == 1
        )
        assert not member.dirty
    else:
        assert not trunk.log and not barriers
        assert member.dirty and trunk.cluster.wake.trunk.is_set()


def test_a_host_that_cannot_be_sent_its_tables_is_read_again_and_the_others_get_theirs(
    model: bridge_model.Cluster,
) -> None:
    trunk = Trunk(model)
    pairs = [("A", "B"), ("B", "A")]
    tables = {pair: tuple(path.key for path in model.fabric.paths(*pair)) * 32 for pair in pairs}
    trunk.cluster.pair_slots.update(tables)
    trunk.turn()
    trunk.log.clear()
    trunk.switches["A"].breaks = True
    barriers = send_slots(
        trunk.cluster, {pair: PairDecision({}, None, tables[pair][::-1], 64) for pair in pairs}
    )
    assert len(barriers) == 1 and trunk.log == [
        ("B", "modify", pair_group_id("A")),
        ("B", "asked", 0),
    ]
    odd = trunk.cluster.members["A"]
    assert (
        odd.installed is None
        and odd.dirty
        and odd.retry_s > 0
        and not trunk.cluster.members["B"].dirty
    )
    assert list(odd.faults) == ["slot_tables_not_sent"]


def test_a_table_that_changes_nothing_but_dead_slots_is_not_sent(
    model: bridge_model.Cluster,
) -> None:
    trunk = Trunk(model)
    one, other = (path.key for path in model.fabric.paths("A", "B"))
    dead = tuple(replace(nic, up=nic.port != other[0]) for nic in model.hosts["A"].nics)
    trunk.fabric = replace(
        model.fabric, hosts={**model.hosts, "A": replace(model.hosts["A"], nics=dead)}
    )
    trunk.cluster.pair_slots["A", "B"] = (one,) * 64
    trunk.turn()
    trunk.log.clear()
    send_slots(trunk.cluster, {("A", "B"): PairDecision({}, None, (one, other) * 32, 32)})
    assert trunk.log == [("A", "asked", 0)]
