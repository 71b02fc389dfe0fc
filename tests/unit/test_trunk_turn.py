# SPDX-License-Identifier: Apache-2.0
"""One turn of the trunk app: what it sends to which host in which order, and whom it waits for."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from ri2n_sdn.apps import trunk as trunk_module
from ri2n_sdn.apps.measured import PathRates
from ri2n_sdn.apps.trunk import TrunkApp
from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.pipeline.diff import Installed, Phase, apply, difference, is_full, part
from ri2n_sdn.pipeline.layout import Table
from ri2n_sdn.pipeline.messages import Wanted
from ri2n_sdn.pipeline.plan import plan_host
from tests.problem_texts import problem_texts
from tests.unit import bridge_model
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.trunk_turns import Trunk, expected, model, other

__all__ = ["model"]


def test_all_hosts_take_a_phase_before_any_takes_the_next(model: bridge_model.Cluster) -> None:
    trunk = Trunk(model)
    trunk.fabric = other(model)
    changes = trunk.changes(trunk.fabric)
    assert all(part(changes[name], phase) for name in "AB" for phase in Phase)
    trunk.turn()
    assert trunk.log == expected(changes)
    for name, member in trunk.cluster.members.items():
        assert not member.dirty and not member.busy
        assert member.wanted == plan_host(trunk.fabric, name, {}, 64)
        assert member.installed is not None and not replace(
            difference(member.wanted, member.installed), delete_groups=()
        )


def test_a_turn_follows_one_fabric_and_what_changes_meanwhile_is_for_the_next(
    model: bridge_model.Cluster,
) -> None:
    trunk = Trunk(model)
    before, trunk.fabric = trunk.fabric, other(model)
    changes = trunk.changes(trunk.fabric)

    def change() -> None:
        trunk.fabric = before
        for member in trunk.cluster.members.values():
            member.dirty = True

    trunk.switches["B"].on_done = change
    trunk.turn()
    assert trunk.log == expected(changes)
    assert all(member.dirty for member in trunk.cluster.members.values())


def test_a_host_that_does_not_answer_is_read_again_and_left_out(
    model: bridge_model.Cluster,
) -> None:
    trunk = Trunk(model)
    trunk.fabric = other(model)

    def fail() -> None:
        raise ConnectionError

    trunk.switches["B"].on_done = fail
    trunk.turn()
    member = trunk.cluster.members["B"]
    assert member.installed is None and member.dirty and member.retry_s > 0
    answered = trunk.log.index(("B", "answered", 0))
    assert not [entry for entry in trunk.log[answered + 1 :] if entry[0] == "B"]
    assert not trunk.cluster.members["A"].dirty


def test_a_host_whose_rows_cannot_be_sent_is_read_again_and_everybody_else_goes_on(
    model: bridge_model.Cluster,
) -> None:
    trunk = Trunk(model)
    trunk.fabric = other(model)
    trunk.switches["B"].breaks = True
    trunk.turn()
    odd = trunk.cluster.members.pop("B")
    assert odd.installed is None and odd.dirty and odd.retry_s > 0 and not odd.busy
    assert odd.faults == {"rows_not_sent": "RuntimeError: broken"}
    assert not any(
        member.dirty or member.busy or member.faults for member in trunk.cluster.members.values()
    )
    trunk.cluster.members["B"] = odd
    assert trunk.cluster.counters["host_faults"] == 1


def test_a_host_that_cannot_be_planned_keeps_what_it_has_and_stands_in_status(
    model: bridge_model.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    trunk = Trunk(model)
    trunk.fabric = other(model)
    before = trunk.cluster.members["B"].installed

    def plan(fabric: Fabric, name: str, *rest: Any) -> Wanted:
        if name == "B":
            raise ValueError("two flows for table 2")
        return plan_host(fabric, name, *rest)

    monkeypatch.setattr(trunk_module, "plan_host", plan)
    trunk.turn()
    odd = trunk.cluster.members["B"]
    assert odd.installed is before and odd.dirty and odd.retry_s > 0 and not odd.busy
    assert not [entry for entry in trunk.log if entry[0] == "B"]
    assert not any(member.dirty for name, member in trunk.cluster.members.items() if name != "B")
    problem = (
        "B: its rows cannot be planned, so it keeps those it has: ValueError: two flows for table 2"
    )
    monkeypatch.setattr(trunk.cluster.wiring, "alive", lambda nic: (True, True))
    assert problem in problem_texts(trunk.cluster)
    monkeypatch.setattr(trunk_module, "plan_host", plan_host)
    odd.retry_s = 0.0
    trunk.turn()
    assert not odd.dirty and not odd.faults and problem not in problem_texts(trunk.cluster)


def test_a_mute_host_is_asked_nothing_and_waited_for_by_nobody(model: bridge_model.Cluster) -> None:
    trunk = Trunk(model)
    trunk.fabric = other(model)
    trunk.switches["B"].mute_for_s = 0.6
    trunk.turn()
    assert (
        not [entry for entry in trunk.log if entry[0] == "B"] and trunk.cluster.members["B"].dirty
    )
    assert not any(member.dirty for name, member in trunk.cluster.members.items() if name != "B")
    trunk.switches["B"].mute_for_s = 0.4
    trunk.turn()
    assert not trunk.cluster.members["B"].dirty


def test_a_host_that_says_late_what_it_holds_is_asked_once_and_holds_nobody_up(
    model: bridge_model.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[tuple[list[str], int]] = []

    def no_wait(asked: Any, limit_s: float, bystanders: int = 0) -> set[str]:
        if limit_s == trunk_module._READ_S and any(len(futures) == 3 for _, futures in asked):
            waited.append(([name for name, _ in asked], bystanders))
        return set()

    monkeypatch.setattr(trunk_module, "await_most", no_wait)
    trunk = Trunk(model)
    trunk.fabric = other(model)
    late, switch = trunk.cluster.members["B"], trunk.switches["B"]
    late.installed, late.dirty = None, True
    for _ in range(2):
        trunk.turn()
        assert late.installed is None and late.dirty and len(switch.requests) == 3
        assert not any(
            member.dirty for name, member in trunk.cluster.members.items() if name != "B"
        )
    assert waited == [(["B"], len(trunk.switches) - 1)], "once"
    for request in switch.requests:
        request.set_result(b"")
    trunk.turn()
    assert late.installed is not None and len(switch.requests) == 3
    assert [entry for entry in trunk.log if entry[:2] == ("B", "row")], "it held nothing"


def test_a_host_that_falls_mute_in_a_turn_leaves_the_others_their_change(
    model: bridge_model.Cluster,
) -> None:
    trunk = Trunk(model)
    trunk.fabric = other(model)
    trunk.switches["B"].answers = False
    trunk.turn()
    odd = trunk.cluster.members["B"]
    assert odd.installed is None and odd.dirty and odd.retry_s > 0
    assert [entry for entry in trunk.log if entry[0] == "B"].count(("B", "asked", 0)) == 1
    assert not any(member.dirty for name, member in trunk.cluster.members.items() if name != "B")


def test_what_an_earlier_controller_left_stays_until_there_is_a_whole_plan(
    model: bridge_model.Cluster,
) -> None:
    trunk = Trunk(model)
    trunk.cluster.started = False
    trunk.turn()
    assert {entry[1] for entry in trunk.log} == {"asked", "answered"}


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize(
    ("held", "accepts"), [("all", True), ("nothing", False), ("all but one", None)]
)
def test_what_a_host_holds_tells_whether_it_can_be_sent_frames_with_nic_addresses(
    model: bridge_model.Cluster, held: str, accepts: bool | None, accepted: bool
) -> None:
    """A host that lacks one row may lack it because something has changed.

    A host that has none of these rows has lost all.
    """
    trunk = Trunk(model)
    member = trunk.cluster.members["B"]
    assert member.installed is not None
    receiving = [
        cookie for cookie, table in member.installed.cookies.items() if table == Table.RECEIVE_COUNT
    ]
    for cookie in {
        "all": [],
        "nothing": list(member.installed.cookies),
        "all but one": receiving[:1],
    }[held]:
        del member.installed.cookies[cookie]
    member.accepts_wire = accepted
    trunk.app._adopt([member])
    assert member.accepts_wire == (accepted if accepts is None else accepts)


@pytest.mark.parametrize("mute", [False, True])
@pytest.mark.parametrize("decided", [False, True])
def test_what_a_host_accepts_is_known_while_it_is_late_with_its_jobs(
    model: bridge_model.Cluster, decided: bool, mute: bool
) -> None:
    """Without that, all others would lose the rows towards it until it answers."""
    trunk = Trunk(model)
    late = trunk.cluster.members["B"]
    late.accepts_wire = late.adopted = late.jobs_known = False
    trunk.switches["B"].mute_for_s = 60.0 if mute else 0.0
    trunk.cluster.jobs.decided = decided
    trunk.turn()
    assert late.accepts_wire is late.adopted is decided
    assert not [entry for entry in trunk.log if "row" in entry[1]]


def test_a_host_whose_jobs_become_known_in_a_turn_is_planned_by_the_next_one(
    model: bridge_model.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier controller left in its bridge is taken over first."""
    trunk = Trunk(model)
    member = trunk.cluster.members["A"]
    member.adopted = member.jobs_known = False
    trunk.fabric = other(model)
    plan = trunk.app._plan

    def become_known(*arguments: Any) -> Any:
        member.jobs_known = member.dirty = True
        trunk.cluster.wake.trunk.set()
        return plan(*arguments)

    monkeypatch.setattr(trunk.app, "_plan", become_known)
    trunk.turn()
    assert member.wanted is not None and not is_full(member.wanted) and not member.adopted
    member.dirty = True
    trunk.turn()
    assert is_full(member.wanted) and member.adopted


def test_a_host_that_is_away_and_not_heard_for_five_minutes_is_forgotten() -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": None})
    app = TrunkApp()
    app.cluster = cluster
    path = (1, 1, 0)
    for member in cluster.members.values():
        member.left_s = 0.0  # A has returned meanwhile
    cluster.measured.rates = {
        ("B", "A"): {path: PathRates(tx_bps=0.0, rx_bps=8.0)},
        ("A", "B"): {path: PathRates(8.0, 0.0)},
    }
    app._forget(299.0)
    assert cluster.members["B"].left_s == 0.0
    app._forget(301.0)
    assert set(cluster.members) == {"A", "B"}, "frames of it still come"
    cluster.measured.rates["B", "A"][path] = PathRates(tx_bps=0.0, rx_bps=0.0)
    app._forget(600.0)
    assert set(cluster.members) == {"A", "B"}, "it was heard less than five minutes ago"
    app._forget(602.0)
    assert set(cluster.members) == {"A"}
    assert [event["text"] for event in cluster.events] == [
        "B is forgotten: not connected for 300 s"
    ]


def test_rows_that_somebody_else_changes_again_and_again_stand_in_status(
    model: bridge_model.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two controllers undo each other's changes at every audit."""
    trunk = Trunk(model)
    monkeypatch.setattr(trunk.cluster.wiring, "alive", lambda nic: (True, True))
    member = trunk.cluster.members["B"]

    assert member.wanted is not None
    whole = apply(difference(member.wanted, Installed()), Installed())

    def audit(*, changed: bool) -> list[str]:
        member.audited_s = time.monotonic() - 11.0
        assert member.wanted is not None
        trunk.app._accepted(
            member, member.wanted, difference(member.wanted, Installed() if changed else whole)
        )
        return [line for line in problem_texts(trunk.cluster) if "changes its rows" in line]

    assert not audit(changed=True)  # once is an accident
    assert audit(changed=True) == ["B: somebody else changes its rows again and again"]
    assert not audit(changed=False)


def test_others_may_have_the_lock_while_hosts_are_planned(
    model: bridge_model.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning is much work when there are many hosts.

    With the lock held, signs of life would wait on a busy machine.
    """
    trunk = Trunk(model)
    trunk.fabric = other(model)
    planned: list[str] = []
    free: list[bool] = []

    def watched(fabric: Fabric, name: str, *more: Any) -> Wanted:
        planned.append(name)

        def try_lock() -> None:
            free.append(trunk.cluster.lock.acquire(timeout=1.0))
            if free[-1]:
                trunk.cluster.lock.release()

        other_thread = threading.Thread(target=try_lock)
        other_thread.start()
        other_thread.join()
        return plan_host(fabric, name, *more)

    for member in trunk.cluster.members.values():
        member.dirty, member.adopted = True, False
    monkeypatch.setattr(trunk_module, "plan_host", watched)
    trunk.turn()
    assert planned == ["A", "B", "A", "B"], "to see what they hold, and what they shall hold"
    assert free == [True] * 4


def test_of_many_hosts_few_are_audited_at_once_and_none_is_forgotten() -> None:
    trunk = Trunk(bridge_model.Cluster({f"h{number:02}": ["n1"] for number in range(20)}))
    now_s = 1000.0
    for age, member in enumerate(trunk.cluster.members.values()):
        member.audited_s = now_s - 11.0 - age
    seen: list[str] = []
    for _ in range(3):
        due = trunk.app._due_for_audit(now_s)
        seen += [member.name for member in due]
        for member in due:
            member.audited_s = now_s
    assert seen == [f"h{number:02}" for number in reversed(range(20))], (
        "those first that were longest ago"
    )
    assert trunk.app._due_for_audit(now_s + 9.0) == []
    assert len(trunk.app._due_for_audit(now_s + 11.0)) < 20
    trunk.cluster.started = False
    assert trunk.app._due_for_audit(now_s + 11.0) == []
