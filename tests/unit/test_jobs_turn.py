# SPDX-License-Identifier: Apache-2.0
"""One turn of the jobs app: whom it asks, what it makes of late answers, and what it keeps."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from ri2n_sdn.apps import jobs as jobs_module
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.codec import Question, flows
from ri2n_sdn.apps.fast_path import take_fast_report
from ri2n_sdn.apps.job_book import JobBook
from ri2n_sdn.apps.jobs import JobsApp, jobs_changed
from ri2n_sdn.jobs.declaration import Declaration
from ri2n_sdn.jobs.lanes import Lane
from ri2n_sdn.jobs.model import Job, Policy
from ri2n_sdn.jobs.rights import Right
from ri2n_sdn.pipeline.diff import Installed
from ri2n_sdn.pipeline.jobs import HostJobs, message_rows
from ri2n_sdn.pipeline.layout import Table
from ri2n_sdn.store.rows import LanesRow, Put
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.fast_frames import state_frame
from tests.unit.job_notes import declaration_note
from tests.unit.job_rows import FakeStore, address_row, described


class Host(FakeChannel):
    """A host with declarations, and with answers in its bridge; `late` ones answer when told."""

    def __init__(self, *declared: Declaration) -> None:
        super().__init__(self._reply)
        self.declared = declared
        self.addresses: tuple[str, ...] = ()
        self.messages = b""
        self.late = False
        self.open: list[tuple[Future[bytes], Question | None]] = []

    def _reply(self, question: Question | None) -> bytes:
        if question == flows(Table.JOB_ANSWERS):
            return self.messages
        rows = b"".join(map(address_row, self.addresses))
        return described(*map(declaration_note, self.declared)) + rows

    def request(self, question: Question | None) -> Future[bytes]:
        if not self.late:
            return super().request(question)
        self.asked.append(question)
        self.open.append((Future(), question))
        return self.open[-1][0]

    def answer_all(self) -> None:
        while self.open:
            future, question = self.open.pop()
            future.set_result(self._reply(question))


def declared(host: str, name: str, number: int = 1) -> Declaration:
    job = Job(name, "alice", 7, tuple(sorted({"A", host})), Policy("shared"), 10.0)
    return Declaration(host, number, job)


def app_of(store: FakeStore | None = None, **hosts: Host) -> JobsApp:
    return app_with(store, hosts)


def app_with(store: FakeStore | None, hosts: Mapping[str, Host], nics: int = 2) -> JobsApp:
    app = JobsApp()
    app.cluster = cluster_of(hosts, nics=nics)
    app.cluster.jobs.book = JobBook(store)
    return app


def turn(app: JobsApp) -> None:
    app.cluster.wake.jobs.set()
    app._turn()


def jobs_of(cluster: Cluster) -> set[str]:
    return set(cluster.jobs.agreement.jobs)


def nudge(app: JobsApp, host: str) -> None:
    jobs_changed(app.cluster, host)


def test_a_host_that_answers_late_keeps_nobody_waiting_and_its_answer_is_used() -> None:
    one, late = Host(declared("A", "a")), Host()
    app = app_of(A=one, B=late)
    turn(app)
    assert jobs_of(app.cluster) == {"a"}
    late.declared, late.late, one.declared = (declared("B", "b"),), True, (declared("A", "c"),)
    asked = len(late.asked)
    for host in "AB":
        nudge(app, host)
    turn(app)
    assert jobs_of(app.cluster) == {"c"}
    for _ in range(5):
        nudge(app, "B")
        turn(app)
    assert len(late.asked) == asked + 1, "it was asked again before it has answered"
    assert app._rest_s(time.monotonic()) > 0, "its nudge is waited for without a pause"
    app.cluster.wake.jobs.clear()
    late.answer_all()
    assert app.cluster.wake.jobs.is_set()
    late.late = False
    turn(app)
    assert jobs_of(app.cluster) == {"b", "c"}


def test_the_addresses_of_a_host_are_those_that_it_told_last() -> None:
    host = Host()
    app = app_of(A=host)
    told: tuple[tuple[str, ...], ...] = (("10.77.0.1", "fd77::1"), ("10.77.0.9",), ())
    for addresses in told:
        host.addresses = addresses[::-1]
        nudge(app, "A")
        turn(app)
        assert app.cluster.members["A"].addresses == addresses


def test_an_answer_of_an_old_connection_is_not_used() -> None:
    late = Host(declared("A", "a"))
    app = app_of(A=late)
    turn(app)
    late.late, late.declared = True, (declared("A", "old"),)
    nudge(app, "A")
    turn(app)
    app.cluster.members["A"].channel = Host(declared("A", "new"))  # type: ignore[assignment]
    late.answer_all()
    turn(app)
    turn(app)
    assert jobs_of(app.cluster) == {"new"}


def test_a_message_that_is_gone_is_sent_again_and_is_no_repair() -> None:
    host = Host(declared("A", "a"))
    app = app_of(A=host)
    member = app.cluster.members["A"]
    rows = {flow.priority: flow for flow in message_rows({1: b"one", 1001: b"two"})}
    member.planned_jobs = HostJobs(notes={1: b"one", 1001: b"two"})
    other = next(iter(message_rows({9: b"of another plan"}))).cookie
    cookies = {flow.cookie: int(flow.table) for flow in rows.values()}
    member.installed = Installed({**cookies, other: int(Table.JOB_ANSWERS), 5: 30})
    member.dirty, member.audited_s = False, 0.0
    host.messages = entry(rows[1001].cookie)
    app._read_declarations([(member, host)])  # type: ignore[list-item]
    assert member.installed.cookies.keys() == {rows[1001].cookie, other, 5}
    assert member.dirty and member.audited_s > 0 and app.cluster.wake.trunk.is_set()
    member.dirty = False
    app._read_declarations([(member, host)])  # type: ignore[list-item]
    assert not member.dirty, "nothing more is gone"


def entry(cookie: int) -> bytes:
    """A row, as a switch describes it, without counters and instructions."""
    match, statistics = struct.pack("!HH4x", 1, 4), struct.pack("!HH4x", 0, 4)
    return struct.pack("!H2xBx10xQ", 40, Table.JOB_ANSWERS, cookie) + match + statistics


def test_a_host_that_comes_and_goes_keeps_no_job_that_it_has_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = FakeStore()
    host = Host()
    app = app_of(store, A=host)
    member = app.cluster.members["A"]
    tell = app._tell

    def tell_and_leave() -> None:
        tell()
        member.channel = None

    monkeypatch.setattr(app, "_tell", tell_and_leave)
    for number in range(8):
        host.declared = tuple(declared("A", f"j{number}-{n}", n) for n in range(1, 4))
        member.channel = host  # type: ignore[assignment]
        nudge(app, "A")
        turn(app)
        names = {f"j{number}-{n}" for n in range(1, 4)}
        assert app._seen.keys() == store.state().jobs.keys() == names
    assert len(app.cluster.jobs.book.history) == 7 * 3
    assert store.writes == 8 + 7, "what ends together is written together"


def test_a_job_that_ends_while_the_store_is_away_is_written_down_later() -> None:
    store = FakeStore()
    host = Host(declared("A", "a"))
    app = app_of(store, A=host)
    turn(app)
    store.refuses = True
    for number in range(2100 // 60):
        host.declared = tuple(declared("A", f"j{number}-{n}", n) for n in range(1, 61))
        app._read.clear()  # as if its time for a read had come
        turn(app)
    assert "jobs_not_kept" in app.cluster.faults and store.state().jobs.keys() == {"a"}
    assert len(app._unwritten) == 1000, "what waits is bounded"
    store.refuses = False
    turn(app)
    turn(app)
    assert not app._unwritten and not app.cluster.faults
    assert len(app.cluster.jobs.book.history) == len(store.state().history) == 1000
    assert len(store.state().jobs) == 60


def test_what_is_remembered_is_there_before_the_first_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """And hosts have their time to declare jobs, however late the first one comes."""
    store = FakeStore()
    before = JobBook(store)
    before.put_right(Right("alice"))
    before.keep({"b": (declared("B", "b").job, "installed", "")})
    app = app_of(store)
    app.cluster.started = False
    turn(app)
    assert set(app.cluster.jobs.book.rights) == {"alice"}
    monkeypatch.setattr(jobs_module, "_GONE_S", 60.0)
    app._loaded_s -= 120.0  # as if nobody had come for two minutes
    turn(app)
    app.cluster.started = True
    turn(app)
    assert not app.cluster.jobs.book.history and set(store.state().jobs) == {"b"}


def test_nothing_is_decided_before_all_hosts_were_asked_that_the_controller_waited_for() -> None:
    """A host that comes while others are read makes the controller begin, and was not asked yet."""
    store = FakeStore()
    JobBook(store).keep({"b": (declared("B", "b").job, "installed", "")})
    of_b = declared("B", "b")
    one, other = Host(replace(of_b, host="A")), Host(of_b)
    app = app_of(store, A=one, B=other)
    member = app.cluster.members["B"]
    member.channel, app.cluster.started = None, False
    read = app._read_declarations

    def read_and_begin(due: list[Any]) -> None:
        read(due)
        member.channel = other  # type: ignore[assignment]
        app.cluster.started = True

    app._read_declarations = read_and_begin  # type: ignore[method-assign]
    turn(app)
    assert one.asked and not other.asked and not jobs_of(app.cluster)
    assert store.state().jobs["b"].state == "installed", "nothing was decided"
    turn(app)
    assert other.asked and jobs_of(app.cluster) == {"b"}


def test_jobs_of_a_host_that_was_not_read_yet_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FakeStore()
    JobBook(store).keep({"b": (declared("B", "b").job, "installed", "")})
    silent = Host(declared("B", "b"))
    silent.late = True
    monkeypatch.setattr(jobs_module, "_FIRST_READ_S", 0.05)
    app = app_of(store, A=Host(), B=silent)
    for member in app.cluster.members.values():
        member.installed = Installed()
    turn(app)
    assert jobs_of(app.cluster) == {"b"}
    assert store.state().jobs["b"].state == "installed" and not app.cluster.jobs.book.history
    silent.late = False
    silent.answer_all()
    turn(app)
    assert jobs_of(app.cluster) == {"b"}
    silent.declared = ()
    nudge(app, "B")
    turn(app)
    (record,) = app.cluster.jobs.book.history
    assert record.id == "b" and not store.state().jobs


def kept_jobs() -> tuple[FakeStore, list[Declaration]]:
    """A store that knows two jobs, and what their hosts declare: the first one also of `B`."""
    store = FakeStore()
    one = Job("one", "alice", 7, ("A", "B"), Policy("exclusive"), 10.0)
    walls = Job("walls", "bob", 8, ("C", "D"), Policy("isolated"), 11.0)
    JobBook(store).keep({job.id: (job, "installed", "") for job in (one, walls)})
    return store, [
        Declaration(host, number, job)
        for number, job in ((1, one), (2, walls))
        for host in job.hosts
    ]


@pytest.mark.parametrize("late", ["B", "D", "BD", "AC", "ABCD"])
def test_a_host_that_answers_late_after_a_start_changes_nothing_for_others(
    late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were taken away would be needed again as soon as the host answers."""
    monkeypatch.setattr(jobs_module, "_FIRST_READ_S", 0.05)
    store, declarations = kept_jobs()
    by_host = {each.host: Host(each) for each in declarations}
    at_once = app_of(store, **by_host)
    turn(at_once)
    store, _ = kept_jobs()
    hosts = {each.host: Host(each) for each in declarations}
    app = app_of(store, **hosts)
    heard, members = set(hosts) - set(late), app.cluster.members
    for name, host in hosts.items():
        host.late, members[name].jobs_known = name in late, False
    turn(app)
    assert {name: app.cluster.jobs.rules(name) for name in heard} == {
        name: at_once.cluster.jobs.rules(name) for name in heard
    }
    assert {name: members[name].jobs_known for name in hosts} == {
        name: name in heard for name in hosts
    }, "a host is planned when its classes are known"
    for name in heard:
        members[name].dirty = False
    for name in late:
        hosts[name].late = False
        hosts[name].answer_all()
    turn(app)
    assert app.cluster.jobs.of_host == at_once.cluster.jobs.of_host
    assert not any(members[name].dirty for name in heard)
    assert all(member.jobs_known for member in members.values())
    assert {row.state for row in store.state().jobs.values()} == {"installed"}
    assert not app.cluster.jobs.book.history


def test_a_host_is_not_planned_before_its_answers_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its bridge may hold them already, and a plan without them would delete them."""
    store, declarations = kept_jobs()
    app = app_of(store, **{each.host: Host(each) for each in declarations})
    cluster, planned = app.cluster, dict[str, HostJobs]()
    for member in cluster.members.values():
        member.jobs_known = False

    def plan() -> None:
        for name, member in cluster.members.items():
            if member.jobs_known:
                planned.setdefault(name, cluster.jobs.rules(name))

    # The trunk app may run as soon as it is woken.
    monkeypatch.setattr(cluster.wake.trunk, "set", plan)
    turn(app)
    plan()
    assert planned == cluster.jobs.of_host
    assert all(jobs.notes for jobs in planned.values())


def exclusive_jobs() -> tuple[FakeStore, dict[str, Host]]:
    """Two jobs that run on A and B, and that had the first two of three networks.

    The one with the first network ends, and the other one goes on.
    """
    store = FakeStore()
    one, two = (Job(name, "alice", 7, ("A", "B"), Policy("exclusive"), 10.0) for name in ("1", "2"))
    hosts = {name: Host(Declaration(name, 1, one), Declaration(name, 2, two)) for name in one.hosts}
    app = app_with(store, hosts, nics=3)
    turn(app)
    for name, host in hosts.items():
        host.declared = (Declaration(name, 2, two),)
        nudge(app, name)
    turn(app)
    assert app.cluster.jobs.assignment.lanes == {"2": {Lane("n2", 0)}}
    assert store.state().lanes == {"2": LanesRow("2", frozenset({"n2/0"}))}
    return store, hosts


@pytest.mark.parametrize("late", ["", "B", "AB"])
def test_a_controller_that_starts_anew_gives_a_job_the_lanes_that_it_had(
    late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "_FIRST_READ_S", 0.05)
    store, hosts = exclusive_jobs()
    for name in late:
        hosts[name].late = True
    app = app_with(store, hosts, nics=3)
    turn(app)
    turn(app)
    assert app.cluster.jobs.assignment.lanes == {"2": {Lane("n2", 0)}}
    assert not list(app.cluster.jobs.problems(0.0))
    for name in late:
        hosts[name].late = False
        hosts[name].answer_all()
    turn(app)
    assert app.cluster.jobs.assignment.lanes == {"2": {Lane("n2", 0)}}
    for name, host in hosts.items():
        host.declared = ()
        nudge(app, name)
    turn(app)
    assert not store.state().lanes and not store.state().jobs


def test_status_says_which_lane_of_the_store_is_wrong_until_the_job_ends() -> None:
    store, hosts = exclusive_jobs()
    store.write(Put(LanesRow("2", frozenset({"n7/0"}))))
    app = app_with(store, hosts, nics=3)
    turn(app)
    jobs = app.cluster.jobs
    assert jobs.assignment.lanes == {"2": {Lane("n1", 0)}}
    assert store.state().lanes == {"2": LanesRow("2", frozenset({"n1/0"}))}
    (problem,) = jobs.problems(0.0)
    assert problem.text == (
        "job 2 (alice): the store gives it a wrong lane: n7 is no lane that it may have"
    )
    turn(app)
    assert list(jobs.problems(0.0)) == [problem]
    for name, host in hosts.items():
        host.declared = ()
        nudge(app, name)
    turn(app)
    assert not list(jobs.problems(0.0))


def test_a_host_is_planned_without_its_classes_only_when_its_answers_make_no_sense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is late would lose rows that it needs again when it has answered."""
    monkeypatch.setattr(jobs_module, "_FIRST_READ_S", 0.05)
    monkeypatch.setattr(jobs_module, "_UNREAD_S", 0.0)
    late, odd = Host(), Host()
    late.late, odd.answer = True, lambda message: ValueError("odd")
    app = app_of(A=late, B=odd)
    members = app.cluster.members
    members["A"].jobs_known = members["B"].jobs_known = False
    for _ in range(3):
        turn(app)
    assert members["B"].jobs_known and not members["A"].jobs_known
    late.answer_all()
    turn(app)
    assert members["A"].jobs_known


def test_only_its_own_answer_or_a_long_time_ends_the_jobs_of_a_late_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs_module, "_FIRST_READ_S", 0.05)
    store, declarations = kept_jobs()
    hosts = {each.host: Host(each) for each in declarations}
    hosts["B"].late = hosts["D"].late = True
    app = app_of(store, **hosts)
    turn(app)
    hosts["A"].declared = ()
    nudge(app, "A")
    turn(app)
    jobs = app.cluster.jobs.agreement.jobs
    assert {key: job.hosts for key, job in jobs.items()} == {"one": ("B",), "walls": ("C", "D")}
    hosts["B"].declared, hosts["B"].late = (), False
    hosts["B"].answer_all()
    turn(app)
    assert jobs_of(app.cluster) == {"walls"}
    app._loaded_s -= 2 * jobs_module._GONE_S
    turn(app)
    assert app.cluster.jobs.agreement.jobs["walls"].hosts == ("C",)
    app.cluster.members["D"].channel = None
    turn(app)
    assert app.cluster.jobs.agreement.jobs["walls"].hosts == ("C",), "it was given up"


def test_a_first_decision_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store, declarations = kept_jobs()
    app = app_of(store, **{each.host: Host(each) for each in declarations})
    with monkeypatch.context() as patch:
        patch.setattr(jobs_module, "agree", lambda *_: 1 / 0)
        turn(app)
    assert app.cluster.faults
    assert set(store.state().jobs) == {"one", "walls"} and not app.cluster.jobs.book.history
    turn(app)
    assert not app.cluster.faults and jobs_of(app.cluster) == {"one", "walls"}


def test_more_messages_before_the_next_read_wake_nobody_and_the_last_one_is_read() -> None:
    host = Host()
    app = app_of(A=host)
    turn(app)
    wake, asked = app.cluster.wake.jobs, len(host.asked)
    wake.clear()
    nudge(app, "A")
    assert wake.is_set()
    wake.clear()
    for _ in range(100):
        nudge(app, "A")
    assert not wake.is_set() and 0 < app._rest_s(time.monotonic()) <= 0.5
    host.declared = (declared("A", "a"),)
    for _ in range(100):
        if len(host.asked) > asked:
            break
        app._turn()  # it waits for its time
    assert jobs_of(app.cluster) == {"a"} and len(host.asked) == asked + 1
    nudge(app, "A")
    assert wake.is_set()
    app.cluster.passive = "another one"
    turn(app)
    assert app._rest_s(time.monotonic()) == 0.5, "who is not in charge reads nothing"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (("installed", ""), "job_installed"),
        (("installed", "B has ended it"), "job_installed_in_part"),
        (("waiting", "for B"), "job_waiting"),
        (("refused", "no lane"), "job_refused"),
    ],
)
def test_each_state_of_a_job_is_an_event_of_its_own(
    state: tuple[str, str], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_of(A=Host(declared("A", "a")))
    monkeypatch.setattr(app, "_state_of", lambda key: state)
    turn(app)
    begun, told = app.cluster.events
    assert (begun["code"], told["code"]) == ("job_begun", code)
    assert told["subject"] == {"job": "a"} and told["text"].endswith(": ".join(filter(None, state)))


def test_a_host_that_begins_and_ends_jobs_without_pause_does_not_push_out_other_events() -> None:
    host = Host()
    app = app_of(A=host)
    app.cluster.note("takes_charge")
    for number in range(12):
        host.declared = tuple(declared("A", f"j{number}-{n}", n) for n in range(1, 64))
        app._read.clear()  # as if its time for a read had come
        turn(app)
    codes = [event["code"] for event in app.cluster.events]
    assert codes[0] == "takes_charge" and 200 < len(codes) < 400
    assert app.cluster.counters["job_events_not_told"] > 1000
    assert len(app.cluster.jobs.book.history) == 11 * 63, "the history has all of them"


def obeying(app: JobsApp, host: str, digest: int) -> None:
    """A host reports which of its rows its fast path obeys."""
    frame = state_frame([], mac=app.cluster.members[host].mac, obeyed=digest)
    take_fast_report(app.cluster, app.cluster.members[host], frame, time.monotonic())


def test_a_job_waits_for_the_fast_paths_of_its_hosts() -> None:
    both = declared("B", "b")
    app = app_of(A=Host(replace(both, host="A")), B=Host(both))
    members, jobs = app.cluster.members, app.cluster.jobs
    for host in "AB":
        members[host].installed = Installed({5: 30})
        obeying(app, host, 0)
    turn(app)
    why = "the fast paths of its hosts do not follow its rows yet"
    assert jobs.states["b"] == ("waiting", why) and jobs.lagging == {"A", "B"}
    obeying(app, "A", Installed({5: 30}).digest)
    turn(app)
    assert jobs.states["b"] == ("waiting", why) and jobs.lagging == {"B"}
    # What others report wakes nobody, nor does what is not new.
    app.cluster.wake.jobs.clear()
    obeying(app, "A", 7)
    obeying(app, "B", 0)
    assert not app.cluster.wake.jobs.is_set()
    obeying(app, "A", Installed({5: 30}).digest)
    obeying(app, "B", Installed({5: 30}).digest)
    assert app.cluster.wake.jobs.is_set()
    members["B"].busy = True
    turn(app)
    assert jobs.states["b"][0] == "waiting", "the last rows may not be there yet"
    members["B"].busy = False
    turn(app)
    assert jobs.states["b"] == ("installed", "") and not jobs.lagging
    # What holds goes on while rows change.
    obeying(app, "B", 0)
    turn(app)
    assert jobs.states["b"][0] == "installed"
