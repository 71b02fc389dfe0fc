# SPDX-License-Identifier: Apache-2.0
"""Jobs in the controller: what is read from rows, what is kept, and who may ask for what."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.apps import local_api
from ri2n_sdn.apps.asker import ROOT, Asker
from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.declared_rows import is_jobs_changed, read_said
from ri2n_sdn.apps.job_book import JobBook
from ri2n_sdn.apps.job_state import JobState
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.client import call, jobs_socket_of
from ri2n_sdn.discovery.nic_state import NicState
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.jobs.history import MAX_RECORDS, Record, ended
from ri2n_sdn.jobs.members import Agreement
from ri2n_sdn.jobs.model import Job, PathTable, Policy, Reservation, Service
from ri2n_sdn.jobs.rights import Right
from ri2n_sdn.store.rows import Change
from tests.unit.fake_hosts import FakeChannel
from tests.unit.job_rows import FakeStore, address_row, described
from tests.unit.refused import not_yours, refused, refused_as

POLICY = Policy(
    "isolated",
    (PathTable(None, ("net1",)), PathTable(10, ("net2", "net1/12"))),
    (Service("10.0.0.9", "tcp", 2049), Service("fd77::9", "udp", 53)),
    10**6,
    10**7,
)


def job(name: str = "j1", **more: Any) -> Job:
    fields: dict[str, Any] = {"source": "order", **more}
    return Job(name, "alice", 20001, ("A", "B"), fields.pop("policy", POLICY), 10.0, **fields)


@given(st.lists(st.binary(min_size=1, max_size=200).map(lambda b: b.rstrip(b"\0") + b"x")))
def test_notes_of_rows_are_read_without_their_padding(notes: list[bytes]) -> None:
    assert read_said(described(*notes)) == (notes[:63], [], ())
    assert read_said(described(*notes, cookie=0x524B)) == ([], notes[:64], ())
    both = described(*notes[:63]) + described(b"failed", cookie=0x524B)
    assert read_said(both) == (notes[:63], [b"failed"], ())


def test_the_addresses_of_a_host_are_read_in_order() -> None:
    told = ["10.77.0.10", "fd77::1", "10.77.0.9", "fd00::1", "10.77.0.9"]
    rows = b"".join(address_row(each) for each in told)
    wanted = ("10.77.0.9", "10.77.0.10", "fd00::1", "fd77::1")
    assert read_said(described(b"job") + rows) == ([b"job"], [], wanted)
    # A row for a whole network, of another field or of a job tells no address.
    other = address_row("10.77.0.0", mask="255.255.255.0") + address_row("10.77.0.3", "ipv4_dst")
    assert read_said(other + address_row("10.77.0.4", cookie=0x524A)) == ([], [], ())
    many = b"".join(address_row(f"10.77.1.{number}") for number in range(40))
    assert read_said(many).addresses == tuple(f"10.77.1.{number}" for number in range(16))


@pytest.mark.parametrize("cookie", [0x524A, 0x524B, 0x524C])
def test_of_too_many_rows_the_rest_is_not_looked_at(cookie: int) -> None:
    rows = [described(b"%d" % number, cookie=cookie) for number in range(63 + 64 + 16)]
    read_said(b"".join(rows) + b"\0\1")
    with pytest.raises(ValueError, match="cut off"):
        read_said(b"".join(rows[1:]) + b"\0\1")


@given(st.binary(max_size=400), st.integers(0, 400))
def test_rows_that_make_no_sense_are_refused(noise: bytes, cut: int) -> None:
    for body in (noise, described(b'{"v":1}')[:cut] + noise):
        with suppress(ValueError):
            read_said(body)


def test_only_the_hosts_own_message_says_that_jobs_have_changed() -> None:
    frame = bytes.fromhex("03000052494a02524a00000088b5") + b"JOBS"
    assert is_jobs_changed(frame)
    for wrong in (frame[:-1], b"\x02" + frame[1:], frame[:12] + b"\x08\x00" + frame[14:], b""):
        assert not is_jobs_changed(wrong)


def test_everything_in_the_book_survives_a_new_start() -> None:
    store = FakeStore()
    book = JobBook(store)
    assert book.load()
    book.add_order(job())
    book.add_order(job("over"))
    book.end(ended(job("over"), 50.0, "alice has ended it"))
    book.put_reservation(Reservation("r1", "alice", ("A", "B"), 100.0, 200.0, 10**6, POLICY))
    book.put_right(Right("alice", frozenset({"paths"}), 10**9, 4, True))
    book.add_policy("walls", POLICY)
    book.keep({"h1": (job("h1", source="host"), "installed", "")})
    again = JobBook(store)
    assert again.load()
    assert again.orders == {"j1": job()} == dict(book.orders)
    assert again.of_hosts() == {"h1": job("h1", source="host")}
    assert again.reservations == book.reservations and again.rights == book.rights
    assert list(again.history) == list(book.history) != []
    assert again.policies == book.policies == {"walls": POLICY}
    book.remove_reservation("r1")
    book.remove_right("alice")
    book.remove_policy("walls")
    book.keep({})
    again = JobBook(store)
    again.load()
    assert (again.reservations, again.rights, again.of_hosts()) == ({}, {}, {})
    assert not again.policies
    assert again.orders == {"j1": job()}, "an order stays though no host carries it out"


def test_what_the_store_does_not_acknowledge_is_not_done() -> None:
    store = FakeStore()
    book = JobBook(store)
    book.load()
    book.add_order(job())
    book.put_right(Right("alice"))
    book.add_policy("walls", POLICY)
    store.refuses = True
    version = book.version
    changes: list[Callable[[], None]] = [
        lambda: book.add_order(job("j2")),
        lambda: book.end(ended(job(), 50.0, "over")),
        lambda: book.put_right(Right("bob")),
        lambda: book.remove_right("alice"),
        lambda: book.add_policy("fast", POLICY),
        lambda: book.remove_policy("walls"),
        lambda: book.put_reservation(Reservation("r", "a", ("A",), 1.0, 2.0)),
    ]
    for change in changes:
        with pytest.raises(NotAvailable):
            change()
    assert (set(book.orders), set(book.rights), list(book.history)) == ({"j1"}, {"alice"}, [])
    assert book.version == version and not book.reservations and set(book.policies) == {"walls"}


def test_what_has_not_changed_is_not_written() -> None:
    store = FakeStore()
    book = JobBook(store)
    book.load()
    jobs = {"h1": (job("h1", source="host"), "installed", "")}
    for _ in range(5):
        book.keep(jobs)
    assert store.writes == 1


def test_a_store_that_is_away_at_the_start_is_read_later() -> None:
    store = FakeStore()
    JobBook(store).add_order(job())
    store.active = False
    book = JobBook(store)
    assert not book.load() and not book.orders
    store.active = True
    assert book.load() and set(book.orders) == {"j1"}


def test_the_oldest_record_makes_way() -> None:
    store = FakeStore()
    book = JobBook(store)
    records = [ended(job(f"j{n}"), 50.0 + n, "over") for n in range(MAX_RECORDS)]
    book.end(*records)
    for number in range(MAX_RECORDS, MAX_RECORDS + 3):
        book.end(ended(job(f"j{number}"), 50.0 + number, "over"))
    kept = [row for row in store.rows.values() if isinstance(row, Record)]
    assert len(book.history) == len(kept) == MAX_RECORDS
    assert book.history[0].id == "j3" and {row.id for row in kept} == {r.id for r in book.history}
    assert store.writes == 4, "what ends together is written together"


def test_a_host_that_ends_jobs_without_pause_pushes_out_its_own_records_alone() -> None:
    store = FakeStore()
    book = JobBook(store)
    honest = [ended(job(f"j{n}"), 50.0 + n, "over") for n in range(9)]
    book.end(*honest)
    flood = [
        replace(ended(job(f"z{n}"), 99.0 + n, "over"), user=f"u{n}", hosts=("Z",))
        for n in range(MAX_RECORDS + 50)
    ]
    book.end(*flood[: MAX_RECORDS - 9])
    for at in range(MAX_RECORDS - 9, len(flood), 20):
        book.end(*flood[at : at + 20])
    assert list(book.history) == [*honest, *flood[-(MAX_RECORDS - 9) :]]
    again = JobBook(store)
    assert again.load() and list(again.history) == list(book.history)


def test_the_reservations_say_anew_within_which_one_a_job_is() -> None:
    store = FakeStore()
    book = JobBook(store)
    book.keep({"j1": (job("j1", within="@r1"), "installed", "")})
    again = JobBook(store)
    assert again.load() and again.installed() == {"j1": job("j1")}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[LocalApi]:
    """The interface of a controller that knows hosts A and B on two networks."""
    cluster = Cluster(ClusterConfig(), "max_min", tmp_path / "socket")
    for number, name in enumerate("AB", 1):
        ports = {
            port: Port(port, f"e{port}", f"04:00:00:00:0{number}:0{port}", True, 10**9)
            for port in (1, 2)
        }
        channel = cast(Channel, FakeChannel())
        cluster.members[name] = Member(
            name, number, f"02:00:00:00:00:0{number}", "3.1.0", ports, channel
        )
        for port in ports:
            cluster.wiring._nics[name, port] = NicState(True, True, 0.0, network=port)
    cluster.topology_changed()
    with closing(LocalApi(cluster)) as made:
        yield made


def ask(api: LocalApi, op: str, asker: Asker = ROOT, **values: Any) -> dict[str, Any]:
    return api.answer(json.dumps({"op": op, **values}).encode(), None, asker, False)


ORDER: dict[str, Any] = {
    "id": "o1",
    "user": "alice",
    "uid": 20001,
    "hosts": ["A", "B"],
    "policy": "exclusive",
}
ALICE, BOB = Asker(20001, "alice"), Asker(20002, "bob")


def test_a_user_begins_and_ends_his_own_jobs_only(api: LocalApi) -> None:
    assert ask(api, "job_begin", ALICE, job=ORDER)["job"]["user"] == "alice"
    assert not_yours(ask(api, "job_begin", BOB, job={**ORDER, "id": "o2"}), "bob")
    lies = {**ORDER, "id": "o2", "user": "bob"}
    assert not_yours(ask(api, "job_begin", BOB, job=lies), "bob")
    assert not_yours(ask(api, "job_end", BOB, id="o1"), "bob")
    assert not_yours(ask(api, "job_move", BOB, id="o1", job={"policy": "shared"}), "bob")
    assert ask(api, "job_list", BOB)["jobs"][0]["id"] == "o1"
    assert ask(api, "job_end", ALICE, id="o1") == {"ok": True}
    assert ask(api, "job_history")["jobs"][0]["why"] == "alice has ended it"


def test_who_may_ask_about_jobs_may_ask_about_nothing_else(api: LocalApi) -> None:
    for operation in ("status", "reload", "strategy", "explain", "vlan_table"):
        code, key, values = refused_as(ask(api, operation))
        assert (code, key, values["choices"][0]) == ("not_one_of", "op", "job_begin")


def test_the_second_socket_is_for_all_users_and_the_first_for_its_owner(api: LocalApi) -> None:
    path = api._cluster.socket_path
    assert path.stat().st_mode & 0o077 == 0
    assert jobs_socket_of(path).stat().st_mode & 0o666 == 0o666
    assert call(jobs_socket_of(path), "job_list")["jobs"] == []
    with refused("not_one_of", "op"):
        call(jobs_socket_of(path), "status")


def test_a_user_cannot_take_all_of_the_controllers_connections(
    api: LocalApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_api, "asker_of", lambda _: BOB)
    with ExitStack() as stack:

        def ask_once() -> dict[str, Any]:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(jobs_socket_of(api._cluster.socket_path)))
            connection.sendall(b'{"op": "job_list"}\n')
            reply: dict[str, Any] = json.loads(connection.makefile().readline())
            return reply

        answers = [ask_once() for _ in range(9)]
    assert all(answer["ok"] for answer in answers[:8])
    assert answers[8]["code"] == "connections_full"
    monkeypatch.undo()
    assert call(jobs_socket_of(api._cluster.socket_path), "job_list")["ok"]


@pytest.mark.parametrize(
    ("key", "value", "code", "values"),
    [
        ("id", "../x", "name_form", {"value": "'../x'"}),
        ("id", 5, "value_wrong", {}),
        ("user", "", "user_not_name", {"value": "''"}),
        ("uid", -1, "value_out_of_range", {"value": "'-1'", "low": 0}),
        ("hosts", ["A", "Z"], "host_unknown", {"host": "Z", "known": ["A", "B"]}),
        ("hosts", [], "none_there", {}),
        ("policy", "mine", "value_not_one_of", {"value": "'mine'"}),
        (
            *("paths", ["net9"], "not_admitted"),
            {"why": "job o1 (alice): there is no path net9 between its hosts"},
        ),
        ("min_rate_bps", 10**12, "not_admitted", {}),
        ("max_rate_bps", 0, "rate_out_of_range", {"value": "'0'"}),
        ("end_s", 1.0, "end_not_later", {}),
        ("begin_s", -5.0, "time_out_of_range", {"value": "'-5.0'"}),
        ("source", "host", "unknown_key", {"name": "source"}),
        ("colour", "red", "unknown_key", {"name": "'colour'"}),
    ],
)
def test_a_wrong_order_is_one_line_that_names_the_key(
    api: LocalApi, key: str, value: object, code: str, values: dict[str, Any]
) -> None:
    answer = ask(api, "job_begin", job={**ORDER, key: value})
    named = None if code in ("not_admitted", "unknown_key") else key
    assert refused_as(answer)[:2] == (code, named) and "\n" not in answer["error"], answer
    assert values.items() <= answer["args"].items(), answer
    assert ask(api, "job_list")["jobs"] == []


def test_a_job_begun_twice_is_the_same_or_refused(api: LocalApi) -> None:
    assert ask(api, "job_begin", job=ORDER)["ok"]
    assert ask(api, "job_begin", job=ORDER)["again"]
    again = ask(api, "job_begin", job={**ORDER, "policy": "shared"})
    assert refused_as(again) == ("job_exists", "id", {"job": "o1"})


def test_a_host_that_declares_much_nonsense_hides_no_other_hosts_problem() -> None:
    state = JobState()
    state.faults = {"A": tuple(f"fault {n}" for n in range(63)), "Z": ("odd", "odder")}
    state.agreement = Agreement(refused={("B", "j1"): "not his"})
    problems = list(state.problems(0.0))
    assert [(each.subject["host"], each.args["why"]) for each in problems[:5]] == [
        *(("A", "fault 0"), ("B", "not his"), ("Z", "odd"), ("A", "fault 1"), ("Z", "odder"))
    ]
    assert [each.code for each in problems[:2]] == ["job_undeclared", "job_refused_at_host"]
    assert (problems[-1].code, problems[-1].args) == ("more_problems_of_jobs", {"count": 46})
    assert len(problems) == 21


class MeetingStore(FakeStore):
    """A store in which two writers meet, if two may write at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = Barrier(2)

    def write(self, *changes: Change) -> None:
        with suppress(BrokenBarrierError):
            self.meeting.wait(0.5)
        super().write(*changes)


@pytest.mark.parametrize("op", ["job_begin", "job_move", "reserve_add"])
def test_of_two_orders_at_once_the_second_is_refused_and_told_of_the_first(
    api: LocalApi, op: str
) -> None:
    """There is one lane to give away: the other one stays common."""
    times = {"begin_s": 4e9, "end_s": 4.1e9}
    requests: dict[Asker, dict[str, Any]] = {}
    for asker in (ALICE, BOB):
        order = {**ORDER, "id": f"of-{asker.name}", "user": asker.name, "uid": asker.uid}
        requests[asker] = {"job": order}
        if op == "job_move":
            assert ask(api, "job_begin", asker, job={**order, "policy": "shared"})["ok"]
            requests[asker] = {"id": order["id"], "job": {"policy": "exclusive"}}
        elif op == "reserve_add":
            del order["uid"]
            requests[asker] = {"reservation": order | times}
    api._cluster.jobs.book._storage = MeetingStore()
    with ThreadPoolExecutor(2) as threads:
        answers = list(
            threads.map(lambda asker: (asker, ask(api, op, asker, **requests[asker])), requests)
        )
    ((first, _),) = [(asker, answer) for asker, answer in answers if answer["ok"]]
    ((_, refusal),) = [(asker, answer) for asker, answer in answers if not answer["ok"]]
    assert f"of-{first.name}" in refusal["args"]["why"] and "\n" not in refusal["error"], refusal
    assert refusal["code"] == "not_admitted"


def test_a_reservation_is_made_once_and_ends(api: LocalApi) -> None:
    wanted: dict[str, Any] = {"id": "r1", "user": "alice", "hosts": ["A", "B"]}
    wanted |= {"begin_s": 4e9, "end_s": 4.1e9, "rate_bps": 10**8}
    assert ask(api, "reserve_add", ALICE, reservation=wanted)["reservation"]["id"] == "r1"
    again = ask(api, "reserve_add", reservation=wanted)
    assert refused_as(again) == ("reservation_exists", "id", {"reservation": "r1"})
    overlapping = {**wanted, "id": "r2", "user": "bob"}
    refusal = ask(api, "reserve_add", BOB, reservation=overlapping)
    assert refusal["code"] == "not_admitted"
    assert "alice" in refusal["args"]["why"] and "r1" in refusal["args"]["why"], refusal
    late = {**wanted, "id": "r3", "begin_s": 4.2e9}
    assert not ask(api, "reserve_add", reservation=late)["ok"], "its end is before its start"
    assert [each["id"] for each in ask(api, "reserve_list")["reservations"]] == ["r1"]
    assert not_yours(ask(api, "reserve_remove", BOB, id="r1"), "bob")
    assert ask(api, "reserve_remove", ALICE, id="r1")["ok"]
    assert ask(api, "reserve_add", BOB, reservation=overlapping)["ok"]


def test_rights_are_roots_to_give_and_hold_for_everybody_else(api: LocalApi) -> None:
    right = {"user": "alice", "policies": ["shared"]}
    assert ask(api, "rights_set", ALICE, right=right)["code"] == "root_only"
    assert ask(api, "rights_set", right=right)["ok"]
    refusal = ask(api, "job_begin", ALICE, job=ORDER)
    assert refusal["code"] == "not_admitted"
    assert "may not use policy exclusive" in refusal["args"]["why"]
    assert ask(api, "job_begin", job=ORDER)["ok"], "root may order it for her"
    assert ask(api, "rights_list")["rights"][0]["user"] == "alice"
    assert ask(api, "rights_remove", ALICE, user="alice")["code"] == "root_only"
    assert ask(api, "rights_remove", user="alice")["ok"]
    for wrong in ({"user": "alice", "policies": ["all"]}, {"user": 5}, {"colour": 1}, 7):
        assert not ask(api, "rights_set", right=wrong)["ok"]
