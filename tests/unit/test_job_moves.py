# SPDX-License-Identifier: Apache-2.0
"""Jobs of hosts that are moved to another policy: whose move counts, and how long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.apps.asker import ROOT, Asker
from ri2n_sdn.apps.job_book import JobBook
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.jobs.declaration import Declaration
from ri2n_sdn.jobs.members import Agreement, agree
from ri2n_sdn.jobs.model import Job, PathTable, Policy
from ri2n_sdn.jobs.moves import Move, move_of, moved
from tests.unit.commands import ri2n
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.job_rows import FakeStore
from tests.unit.refused import not_yours, refused_as

ALICE, BOB = Asker(20001, "alice"), Asker(20002, "bob")
JOB = Job("j1", "alice", 20001, ("A", "B"), Policy("exclusive", max_rate_bps=10**8), 1000.0)
PATHS = Policy("paths", (PathTable(None, ("vlan:0",)),))
MOVE = Move("j1", 20001, PATHS, "root", 2000.0)


def declared(job: Job = JOB) -> list[Declaration]:
    return [Declaration(host, 3, job) for host in job.hosts]


def test_a_move_replaces_the_policy_and_nothing_else() -> None:
    before = agree(declared(), {})
    after = moved(before, {"j1": MOVE})
    assert after.jobs == {"j1": replace(JOB, policy=replace(PATHS, max_rate_bps=10**8))}
    assert replace(after, jobs=before.jobs) == before
    assert moved(before, {"j2": replace(MOVE, id="j2")}) is before


@pytest.mark.parametrize(
    "job",
    [
        replace(JOB, uid=20002),
        replace(JOB, begin_s=2000.5),
        replace(JOB, source="order"),
        replace(JOB, id="j1@B"),
    ],
    ids=["of another user", "later", "an order", "another key"],
)
def test_a_move_counts_for_no_other_job(job: Job) -> None:
    assert move_of(JOB, {"j1": MOVE}) == MOVE
    assert move_of(job, {"j1": MOVE}) is None
    agreement = Agreement({job.id: job})
    assert moved(agreement, {"j1": MOVE}) is agreement


def test_hosts_must_agree_all_the_same() -> None:
    """A move does not bring hosts together that declare different policies."""
    other = replace(JOB, policy=PATHS)
    agreement = moved(agree([Declaration("A", 1, JOB), Declaration("B", 1, other)], {}), {})
    assert set(agreement.jobs) == {"j1", "j1@B"}
    after = moved(agreement, {"j1": MOVE})
    assert set(after.jobs) == {"j1", "j1@B"}
    assert after.jobs["j1@B"] == agreement.jobs["j1@B"]


def test_a_move_is_kept_as_long_as_its_job() -> None:
    store = FakeStore()
    book = JobBook(store)
    book.load()
    book.put_move(MOVE)
    book.keep({"j1": (JOB, "installed", "")})
    again = JobBook(store)
    again.load()
    assert again.moves == {"j1": MOVE}
    again.keep({"j1": (JOB, "waiting", "its hosts are away")})
    assert again.moves == {"j1": MOVE}
    store.refuses = True
    with pytest.raises(NotAvailable):
        again.put_move(replace(MOVE, by="bob"))
    with pytest.raises(NotAvailable):
        again.remove_move("j1")
    with pytest.raises(NotAvailable):
        again.keep({})
    assert again.moves == {"j1": MOVE}
    store.refuses = False
    again.keep({})
    assert not again.moves
    last = JobBook(store)
    last.load()
    assert not last.moves


@pytest.fixture
def api(tmp_path: Path) -> Iterator[LocalApi]:
    """The interface of a controller, on whose hosts A and B a job of alice runs."""
    cluster = cluster_of({name: FakeChannel() for name in "AB"})
    cluster.socket_path = tmp_path / "c.sock"
    cluster.jobs.declared = {each.host: (each,) for each in declared()}
    _decide(cluster.jobs)
    with closing(LocalApi(cluster)) as made:
        yield made


def _decide(state: Any) -> None:
    """What the jobs app does when something has changed."""
    every = [each for declarations in state.declared.values() for each in declarations]
    state.agreement = moved(agree(every, {}), state.book.moves)


def ask(api: LocalApi, op: str, asker: Asker = ROOT, **values: Any) -> dict[str, Any]:
    answer = api.answer(json.dumps({"op": op, **values}).encode(), None, asker, False)
    _decide(api._cluster.jobs)
    return answer


def test_a_job_of_hosts_is_moved_and_moved_back(api: LocalApi) -> None:
    socket = ("--socket", str(api._cluster.socket_path))
    done = ri2n("job", "move", "j1", "--paths", "vlan:0", *socket)
    assert done.returncode == 0, done
    _decide(api._cluster.jobs)
    shown = ask(api, "job_show", BOB, id="j1")["job"]
    assert (shown["policy"], shown["paths"], shown["max_rate_bps"]) == ("paths", ["vlan:0"], 10**8)
    assert shown["moved"]["by"] == "root"
    assert shown["moved"]["declared"]["policy"] == "exclusive"
    done = ri2n("job", "show", "j1", *socket)
    assert done.returncode == 0, done
    text = done.stdout
    assert "moved by root at " in text and "its hosts declare exclusive" in text
    assert "ri2n job move j1 --back" in text
    assert ri2n("job", "move", "j1", "--back", *socket).returncode == 0
    _decide(api._cluster.jobs)
    shown = ask(api, "job_show", id="j1")["job"]
    assert (shown["policy"], shown["moved"]) == ("exclusive", None)


def test_its_user_moves_it_within_his_rights_and_always_back(api: LocalApi) -> None:
    paths = {"policy": "paths", "paths": ["vlan:0"]}
    assert not_yours(ask(api, "job_move", BOB, id="j1", job=paths), "bob")
    assert ask(api, "rights_set", right={"user": "alice", "policies": ["paths"]})["ok"]
    refusal = ask(api, "job_move", ALICE, id="j1", job={"policy": "shared"})
    assert refusal["code"] == "not_admitted"
    assert "may not use policy shared" in refusal["args"]["why"]
    assert ask(api, "job_move", ALICE, id="j1", job=paths)["job"]["moved"]["by"] == "alice"
    assert not_yours(ask(api, "job_move", BOB, id="j1", back=True), "bob")
    # Her job manager has given her what she has no right to ask for.
    assert ask(api, "job_move", ALICE, id="j1", back=True)["ok"]


@pytest.mark.parametrize(
    ("words", "key", "code", "values"),
    [
        ({"id": "j1", "back": True}, None, "has_declared_policy", {"job": "j1"}),
        ({"id": "j9", "back": True}, None, "no_such_job", {"name": "j9"}),
        ({"id": "j1", "back": 1}, "back", "not_flag", {}),
        ({"id": "j1", "back": True, "job": {"policy": "shared"}}, "back", "back_and_policy", {}),
        ({"id": "j1"}, "job", "not_object", {}),
        (
            *({"id": "j1", "job": {"policy": "shared", "uid": 1}}, "job", "cannot_be_changed"),
            {"keys": ["uid"]},
        ),
        (
            *({"id": "j1", "job": {"policy": "paths", "paths": ["net9"]}}, None, "not_admitted"),
            {"why": "job j1 (alice): there is no path net9 between its hosts"},
        ),
        (
            {"id": "j1", "job": {"policy": "shared", "max_rate_bps": 5}},
            *("max_rate_bps", "rate_held_by_hosts", {"job": "j1", "id": "j1"}),
        ),
        (
            {"id": "j1", "job": {"policy": "exclusive", "min_rate_bps": 10**9}},
            *("min_rate_bps", "rate_above_most", {"low": "1G", "high": "100M"}),
        ),
        ({"id": "j1", "job": {"named": "none"}}, "named", "policy_unknown", {"policy": "none"}),
    ],
)
def test_a_wrong_move_is_one_line_and_changes_nothing(
    api: LocalApi, words: dict[str, Any], key: str | None, code: str, values: dict[str, Any]
) -> None:
    answer = ask(api, "job_move", **words)
    assert refused_as(answer) == (code, key, values) and "\n" not in answer["error"], answer
    assert not api._cluster.jobs.book.moves


def test_an_order_has_nothing_to_go_back_to(api: LocalApi) -> None:
    order: dict[str, Any] = {"id": "o1", "user": "bob", "uid": 20002, "hosts": ["A"]}
    assert ask(api, "job_begin", job={**order, "policy": "shared"})["ok"]
    answer = ask(api, "job_move", id="o1", back=True)
    assert refused_as(answer) == ("order_has_no_other", None, {"job": "o1"})


def test_an_order_that_has_ended_is_not_given_again_by_a_move(api: LocalApi) -> None:
    """Its hosts may still declare it for a moment."""
    state = api._cluster.jobs
    job = replace(JOB, id="o1", source="order")
    state.agreement = Agreement({"o1": job}, {"o1": {"A": 3}})
    answer = api.answer(
        b'{"op": "job_move", "id": "o1", "job": {"policy": "shared"}}', None, ROOT, False
    )
    assert answer["code"] == "no_such_job" and not state.book.orders


def test_back_has_no_other_option(api: LocalApi) -> None:
    socket = ("--socket", str(api._cluster.socket_path))
    done = ri2n("job", "move", "j1", "--back", "--paths", "net1", *socket)
    assert done.returncode == 2 and "--back: says which policy it is" in done.stderr
    assert len(done.stderr.splitlines()) == 1
