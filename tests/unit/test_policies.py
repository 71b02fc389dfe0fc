# SPDX-License-Identifier: Apache-2.0
"""Policies with names: `ri2n policy`, and the jobs and reservations that use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.apps.asker import ROOT, Asker
from ri2n_sdn.apps.job_book import MAX_POLICIES, JobBook
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.contract.choices import KINDS
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import Ri2nError
from ri2n_sdn.jobs.model import Policy
from tests.unit.commands import Ended, ri2n
from tests.unit.fake_hosts import FakeChannel, cluster_of
from tests.unit.job_rows import FakeStore
from tests.unit.refused import refused, refused_as

ALICE = Asker(20001, "alice")
ADD = ("policy", "add", "gold", "--policy", "exclusive", "--min-rate", "10M")
BEGIN = ("job", "begin", "j1", "--hosts", "A,B", "--user", "20001")
RESERVE = (
    *("reserve", "add", "r1", "--hosts", "A,B", "--user", "20001"),
    *("--begin", "2999-01-01", "--for", "2h"),
)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[LocalApi]:
    """The interface of a controller that knows hosts A and B on two networks, with a store."""
    cluster = cluster_of({name: FakeChannel() for name in "AB"})
    cluster.socket_path = tmp_path / "c.sock"
    cluster.jobs.book = JobBook(FakeStore())
    cluster.jobs.book.load()
    with closing(LocalApi(cluster)) as made:
        yield made


def asked(api: LocalApi, *words: str) -> Ended:
    return ri2n(*words, "--socket", str(api._cluster.socket_path))


def ask(api: LocalApi, op: str, asker: Asker = ROOT, **values: Any) -> dict[str, Any]:
    return api.answer(json.dumps({"op": op, **values}).encode(), None, asker, False)


def as_json(api: LocalApi, *words: str) -> dict[str, Any]:
    done = asked(api, *words, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_a_policy_is_added_shown_listed_and_removed(api: LocalApi) -> None:
    assert asked(api, "policy", "ls").stdout == "no named policies\n"
    assert asked(api, *ADD).stdout == "gold: exclusive; at least 10.0 Mbit/s\n"
    words = ("policy", "add", "walls", "--policy", "isolated", "--service", "10.0.0.9/tcp/2049")
    added = as_json(api, *words, "--table", "10=vlan:1", "--max-rate", "1G")
    expected: dict[str, Any] = {
        "name": "walls",
        "policy": "isolated",
        "paths": [],
        "min_rate_bps": None,
    }
    expected |= {"tables": [{"dscp": 10, "paths": ["vlan:1"]}], "max_rate_bps": 10**9}
    assert added == expected | {"services": ["10.0.0.9/tcp/2049"]}
    assert as_json(api, "policy", "show", "walls") == added
    text = asked(api, "policy", "show", "walls").stdout
    assert text == (
        "walls: isolated; DSCP 10: vlan:1; at most 1.0 Gbit/s\nservice 10.0.0.9/tcp/2049\n"
    )
    listed = asked(api, "policy", "ls", "--json")
    assert [each["name"] for each in json.loads(listed.stdout)] == ["gold", "walls"]
    table = asked(api, "policy", "ls").stdout
    assert "at least 10.0 Mbit/s" in table and "10.0.0.9/tcp/2049" in table
    assert asked(api, "policy", "rm", "walls").stdout == "walls: removed\n"
    assert "walls" not in asked(api, "policy", "ls").stdout


def test_a_job_keeps_what_the_policy_was(api: LocalApi) -> None:
    asked(api, *ADD)
    ordered = as_json(api, *BEGIN, "--named", "gold")
    assert (ordered["policy"], ordered["min_rate_bps"]) == ("exclusive", 10**7)
    assert ask(api, "job_begin", job=_order("j1", named="gold"))["again"]
    asked(api, "policy", "rm", "gold")
    asked(api, "policy", "add", "gold", "--policy", "shared")
    shown = as_json(api, "job", "show", "j1")
    assert (shown["policy"], shown["min_rate_bps"]) == ("exclusive", 10**7)
    moved = as_json(api, "job", "move", "j1", "--named", "gold")
    assert (moved["policy"], moved["min_rate_bps"]) == ("shared", None)


def test_a_reservation_keeps_what_the_policy_was(api: LocalApi) -> None:
    asked(api, *ADD, "--max-rate", "50M")
    assert asked(api, *RESERVE, "--named", "gold", "--rate", "20M").returncode == 0
    asked(api, "policy", "rm", "gold")
    (kept,) = json.loads(asked(api, "reserve", "ls", "--json").stdout)
    assert (kept["policy"], kept["rate_bps"]) == ("exclusive", 2 * 10**7)
    assert (kept["min_rate_bps"], kept["max_rate_bps"]) == (10**7, 5 * 10**7)


def test_a_right_counts_for_what_the_policy_says(api: LocalApi) -> None:
    """A right names kinds of policies; a name changes nothing about that."""
    asked(api, *ADD)
    asked(api, "policy", "add", "plain", "--policy", "shared")
    ask(api, "rights_set", right={"user": "alice", "policies": ["shared"]})
    answer = ask(api, "job_begin", ALICE, job={**_order("j1", named="gold"), "user": "alice"})
    assert answer["code"] == "not_admitted"
    assert "user alice may not use policy exclusive" in answer["args"]["why"]
    assert ask(api, "job_begin", ALICE, job={**_order("j1", named="plain"), "user": "alice"})["ok"]


def test_only_root_gives_names(api: LocalApi) -> None:
    policy = {"policy": "shared"}
    assert ask(api, "policy_add", ALICE, name="mine", policy=policy)["code"] == "root_only"
    assert ask(api, "policy_add", name="mine", policy=policy)["ok"]
    assert ask(api, "policy_remove", ALICE, name="mine")["code"] == "root_only"
    assert ask(api, "policy_show", ALICE, name="mine")["policy"]["policy"] == "shared"
    assert len(ask(api, "policy_list", ALICE)["policies"]) == 1


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (ADD, partial(refusal, "policy_exists", "name", policy="gold")),
        (
            ("policy", "add", "new", "--policy", "mine"),
            partial(refusal, "value_not_one_of", "--policy", value="'mine'", choices=KINDS),
        ),
        (
            ("policy", "add", "new", "--policy", "paths"),
            partial(refusal, "paths_needs_paths", "paths"),
        ),
        (
            ("policy", "add", "new", "--policy", "shared", "--paths", "net1"),
            partial(refusal, "shared_has_no_paths", "paths"),
        ),
        (("policy", "add", "new", "--policy", "shared", "--min-rate", "fast"), "--min-rate"),
        (("policy", "add", "new"), "--policy"),
        (
            ("policy", "add", "a b", "--policy", "shared"),
            partial(refusal, "name_form", "NAME", value="'a b'", marks="._:-"),
        ),
        (("policy", "add", "x" * 65, "--policy", "shared"), "NAME"),
        (
            ("policy", "add", "exclusive", "--policy", "shared"),
            partial(refusal, "policy_name_is_kind", "NAME", name="exclusive"),
        ),
        (("policy", "show", "none"), partial(refusal, "policy_unknown", "name", policy="none")),
        (("policy", "rm", "none"), partial(refusal, "no_such_policy", name="none")),
        ((*BEGIN, "--named", "none"), partial(refusal, "policy_unknown", "named", policy="none")),
        (
            (*BEGIN, "--named", "a b"),
            partial(refusal, "name_form", "--named", value="'a b'", marks="._:-"),
        ),
        ((*BEGIN, "--named", "gold", "--policy", "shared"), "--named: the named policy says what"),
        ((*BEGIN, "--named", "gold", "--min-rate", "1M"), "what --min-rate would"),
        (("job", "move", "j9", "--named", "gold", "--paths", "n"), "what --paths would"),
        (
            (*RESERVE, "--named", "none"),
            partial(refusal, "policy_unknown", "named", policy="none"),
        ),
        ((*RESERVE, "--named", "gold", "--paths", "n"), "what --paths would"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    api: LocalApi, words: tuple[str, ...], fault: str | Callable[[], Ri2nError]
) -> None:
    asked(api, *ADD)
    done = asked(api, *words)
    assert done.returncode == 2 and not done.stdout, done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert (fault if isinstance(fault, str) else str(fault())) in done.stderr, done.stderr
    assert json.loads(asked(api, "job", "ls", "--json").stdout) == []
    assert json.loads(asked(api, "reserve", "ls", "--json").stdout) == []
    (kept,) = json.loads(asked(api, "policy", "ls", "--json").stdout)
    assert (kept["name"], kept["min_rate_bps"]) == ("gold", 10**7)


def test_a_store_that_is_away_is_one_line_and_changes_nothing(api: LocalApi) -> None:
    asked(api, *ADD)
    store = FakeStore()
    store.refuses = True
    api._cluster.jobs.book._storage = store
    for words in ((*ADD[:2], "new", *ADD[3:]), ("policy", "rm", "gold")):
        done = asked(api, *words)
        assert done.returncode == 2 and not done.stdout, done
        assert done.stderr == "ri2n: the store is away\n"
    assert [each["name"] for each in ask(api, "policy_list")["policies"]] == ["gold"]


@pytest.mark.parametrize(
    ("request_", "key", "code", "values"),
    [
        (
            {"op": "policy_add", "name": 5, "policy": {"policy": "shared"}},
            *("name", "not_policy_name", {}),
        ),
        ({"op": "policy_add", "name": "x", "policy": ["shared"]}, "policy", "not_object", {}),
        ({"op": "policy_add", "name": "x"}, "policy", "not_object", {}),
        ({"op": "policy_add", "name": "x", "policy": {}}, "policy", "missing", {}),
        (
            {"op": "policy_add", "name": "x", "policy": {"policy": "shared", "uid": 1}},
            *("policy", "unknown_key", {"name": "'uid'"}),
        ),
        (
            {"op": "policy_add", "name": "x", "policy": {"policy": "all"}},
            *("policy", "value_not_one_of", {"value": "'all'"}),
        ),
        ({"op": "policy_show"}, "name", "not_policy_name", {}),
        ({"op": "policy_remove", "name": "../x"}, "name", "name_form", {"value": "'../x'"}),
        ({"op": "job_begin", "job": {"named": ["gold"]}}, "named", "not_policy_name", {}),
        (
            {"op": "job_begin", "job": {"named": "gold", "paths": []}},
            *("named", "policy_said_twice", {"keys": ["paths"]}),
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_one_line(
    api: LocalApi, request_: dict[str, Any], key: str, code: str, values: dict[str, Any]
) -> None:
    ask(api, "policy_add", name="gold", policy={"policy": "exclusive"})
    answer = ask(api, **request_)
    assert refused_as(answer)[:2] == (code, key) and "\n" not in answer["error"], answer
    assert values.items() <= answer["args"].items(), answer
    assert [each["name"] for each in ask(api, "policy_list")["policies"]] == ["gold"]


def test_there_are_not_more_names_than_the_book_takes() -> None:
    book = JobBook()
    for number in range(MAX_POLICIES):
        book.add_policy(f"p{number}", Policy())
    with refused("policies_full", "name", most=1024):
        book.add_policy("more", Policy())
    book.remove_policy("p7")
    book.add_policy("more", Policy())
    assert len(book.policies) == MAX_POLICIES


def _order(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "user": "20001", "uid": 20001, "hosts": ["A", "B"], **more}
