"""One turn of the trunk app: what it sends to which host in which order, and what it waits for."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ri2n_sdn.apps import codec
from ri2n_sdn.apps import trunk as trunk_module
from ri2n_sdn.apps.cluster import Cluster, Member
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.measured import PathRates
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.apps.slot_groups import send_slots
from ri2n_sdn.apps.trunk import TrunkApp
from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.pipeline.diff import (
    AddFlow,
    AddGroup,
    Change,
    DeleteFlows,
    Installed,
    Message,
    ModifyGroup,
    Phase,
    apply,
    batches,
    difference,
    part,
)
from ri2n_sdn.pipeline.layout import Table
from ri2n_sdn.pipeline.messages import Wanted
from ri2n_sdn.pipeline.plan import pair_group_id, plan_host
from ri2n_sdn.weights.loop import PairDecision
from ri2n_sdn.weights.slots import default_slots
from tests.problem_texts import problem_texts
from tests.unit import bridge_model
from tests.unit.fake_hosts import FakeChannel, cluster_of, plan

Summary = tuple[str, str, int]
"""(host, what, of which cookie or group)."""
_COMMANDS = {
    codec.OFPGC_ADD: "group",
    codec.OFPGC_MODIFY: "modify",
    codec.OFPGC_DELETE: "delete group",
}


class Switch:
    """Replaces a channel: keeps what is sent.

    It calls `on_done` when its answer was waited for.
    """

    def __init__(self, name: str, log: list[Summary]) -> None:
        self.name, self.log = name, log
        self.datapath = SimpleNamespace(ofproto=ofp, ofproto_parser=parser)
        self.on_done: Callable[[], None] = lambda: None
        self.breaks = False
        self.mute_for_s = 0.0
        self.answers = True
        self.requests: list[Future[list[Any]]] = []

    def mute_s(self, now_s: float) -> float:
        return self.mute_for_s

    def next_xid(self) -> int:
        return 1

    def send(self, *messages: Any) -> None:
        for message in messages:
            if self.breaks:
                raise RuntimeError("broken")
            if isinstance(message, parser.OFPBarrierRequest):
                self.log.append((self.name, "barrier", 0))
            else:
                what = "row" if message.command == ofp.OFPFC_ADD else "delete row"
                self.log.append((self.name, what, message.cookie))

    def send_bytes(self, data: bytes) -> None:
        if not data:
            return
        if self.breaks:
            raise RuntimeError("broken")
        if data[1] == ofp.OFPT_FLOW_MOD:
            self.log.append((self.name, "row", *struct.unpack_from("!Q", data, 8)))
            return
        command, number = struct.unpack_from("!H2xI", data, 8)
        self.log.append((self.name, _COMMANDS[command], number))

    def request(self, message: Any) -> Future[list[Any]]:
        self.requests.append(Future())
        return self.requests[-1]

    def barrier(self) -> Future[list[Any]]:
        self.log.append((self.name, "asked", 0))
        switch = self

        class Answer(Future[list[Any]]):
            def result(self, timeout: float | None = None) -> list[Any]:
                switch.log.append((switch.name, "answered", 0))
                switch.on_done()
                return super().result(timeout)

        answer = Answer()
        if self.answers:
            answer.set_result([])
        return answer


class Trunk:
    """A trunk app with switches that hold the plans of one fabric."""

    def __init__(self, model: bridge_model.Cluster) -> None:
        self.log: list[Summary] = []
        self.fabric = model.fabric
        self.cluster = Cluster(ClusterConfig(), "ri2n_plus_plus", Path("none"))
        self.cluster.started = True
        self.cluster.wake.trunk.set()
        self.cluster.fabric = lambda: self.fabric  # type: ignore[method-assign]
        self.app = TrunkApp()
        self.app.cluster = self.cluster
        self.switches = {name: Switch(name, self.log) for name in model.hosts}
        for name, host in model.hosts.items():
            wanted = plan_host(self.fabric, name, {}, 64)
            self.cluster.members[name] = Member(
                name,
                host.dpid,
                host.mac,
                "",
                {},
                channel=self.switches[name],  # type: ignore[arg-type]
                accepts_wire=True,
                installed=apply(difference(wanted, Installed()), Installed()),
                wanted=wanted,
                adopted=True,
                audited_s=time.monotonic(),
            )

    def changes(self, fabric: Fabric) -> dict[str, Change]:
        found = {}
        for name, member in self.cluster.members.items():
            assert member.installed is not None
            wanted = plan_host(fabric, name, {}, 64)
            # Groups whose rows go now are deleted later.
            found[name] = replace(difference(wanted, member.installed), delete_groups=())
        return found

    def turn(self) -> None:
        self.log.clear()
        self.cluster.wake.trunk.set()
        self.app._turn()


def summary(name: str, message: Message) -> Summary:
    if isinstance(message, AddFlow):
        return (name, "row", message.flow.cookie)
    if isinstance(message, DeleteFlows):
        return (name, "delete row", message.cookie)
    if isinstance(message, AddGroup | ModifyGroup):
        return (
            name,
            "group" if isinstance(message, AddGroup) else "modify",
            message.group.group_id,
        )
    return (name, "delete group", message.group_id)


def expected(changes: dict[str, Change]) -> list[Summary]:
    log: list[Summary] = []
    for phase in (Phase.RECEIVE, Phase.SEND, Phase.SWEEP):
        waited = []
        for name, change in changes.items():
            for number, batch in enumerate(batches(part(change, phase))):
                log += [(name, "barrier", 0)] * bool(number) + [
                    summary(name, message) for message in batch
                ]
            if part(change, phase) or phase is Phase.SEND:
                waited.append(name)
        log += [(name, "asked", 0) for name in waited] + [(name, "answered", 0) for name in waited]
    return log


@pytest.fixture
def model() -> bridge_model.Cluster:
    return bridge_model.Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]}, helpers="AB")


def other(model: bridge_model.Cluster) -> Fabric:
    """A plan in which one NIC of A has another address.

    Rows are added, replaced and deleted at both hosts, and groups are changed.
    """
    first, second = model.hosts["A"].nics
    hosts = {
        **model.hosts,
        "A": replace(model.hosts["A"], nics=(replace(first, mac="04:00:00:00:01:99"), second)),
    }
    return replace(model.fabric, hosts=hosts)


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
    assert odd.faults == {"its rows cannot be sent": "RuntimeError: broken"}
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
        request.set_result([])
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
    assert [text for _, _, text in cluster.events] == ["B is forgotten: not connected for 300 s"]


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
    assert list(odd.faults) == ["its slot tables cannot be sent"]


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
