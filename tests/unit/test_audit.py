# SPDX-License-Identifier: Apache-2.0
"""The audit trail: who has changed what, in bounded memory and without secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ri2n_sdn.apps.asker import ROOT, Asker
from ri2n_sdn.apps.audit import MAX_DONE, MAX_REFUSED, Audit
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.contract.operations import READING
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.web.gui.setting_views import audit_entry_rows
from tests.unit.rest_controller import RealFeed, controller
from tests.unit.test_web_socket import ADMIN, ALICE, ORDER, TRIED, VIEWER


@pytest.fixture
def api() -> Iterator[LocalApi]:
    with controller() as feed:
        yield feed.api


def ask(api: LocalApi, op: str, who: Any, **values: Any) -> dict[str, Any]:
    return api.answer(json.dumps({"op": op, "as": who, **values}).encode(), web=True)


def told(api: LocalApi) -> list[tuple[Any, ...]]:
    entries = ask(api, "audit", ADMIN)["entries"]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    return [
        (entry["user"], entry["role"], entry["via"], entry["op"], entry["what"], entry["ok"])
        for entry in entries
    ]


def audit_of(api: LocalApi, who: Any, **values: Any) -> list[Any]:
    """The trail after a host_retire."""
    ask(api, "host_retire", who, **values)
    entries: list[Any] = ask(api, "audit", ADMIN)["entries"]
    return entries


def test_it_says_who_has_changed_what_through_which_socket(api: LocalApi) -> None:
    ask(api, "parameters_set", ADMIN, name="hysteresis", value=0.2)
    ask(api, "job_begin", ALICE, job=ORDER)
    api.answer(b'{"op": "strategy", "name": "round_robin"}', None, ROOT)
    api.answer(b'{"op": "job_end", "id": "o1"}', None, Asker(20001, "alice"), everything=False)
    assert told(api) == [
        ("carol", "admin", "web", "parameters_set", "name=hysteresis value=0.2", True),
        ("alice", "user", "web", "job_begin", "id=o1 user=alice policy=paths hosts=A,B", True),
        ("root", "admin", "cli", "strategy", "name=round_robin", True),
        ("alice", "user", "jobs", "job_end", "id=o1", True),
    ]


def test_what_was_refused_is_told_too(api: LocalApi) -> None:
    answers = [
        ask(api, "parameters_set", VIEWER, name="hysteresis", value=0.2),
        ask(api, "parameters_set", ADMIN, name="hysteresis", value=7),
    ]
    assert [each["code"] for each in answers] == ["role_too_low", "parameter_not_number"]
    assert answers[0]["args"].items() >= {"needed": "admin", "user": "guest"}.items()
    entries = ask(api, "audit", ADMIN)["entries"]
    assert [entry["ok"] for entry in entries] == [False, False]
    assert [entry["error"] for entry in entries] == [each["error"] for each in answers]


def test_reading_is_no_entry_and_only_admins_may_read_the_trail(api: LocalApi) -> None:
    for name in READING - {"watch"}:
        ask(api, name, VIEWER, **TRIED.get(name, {}))
    ask(api, "token_list", ADMIN)
    assert told(api) == []
    assert ask(api, "audit", ALICE)["code"] == "role_too_low"


def test_a_dry_run_is_no_entry_and_one_that_was_refused_says_so(api: LocalApi) -> None:
    entries = audit_of(api, ADMIN, name="gone", dry_run=True)
    assert entries == [] and told(api) == []
    entries = audit_of(api, ADMIN, name="A", dry_run=True)
    assert [(entry["what"], entry["ok"]) for entry in entries] == [("name=A dry_run=True", False)]
    needs = refusal("role_too_low", op="host_retire", needed="admin", user="guest", role="viewer")
    assert audit_of(api, VIEWER, name="gone", dry_run=True)[1]["error"] == str(needs)
    assert len(audit_of(api, ADMIN, name="gone", dry_run="yes")) == 3
    entry = audit_of(api, ADMIN, name="gone", force=True, dry_run=False)[3]
    assert (entry["what"], entry["ok"]) == ("name=gone force=True dry_run=False", True)
    rows = audit_entry_rows(entries)
    assert [row["what"] for row in rows] == ["host_retire name=A dry_run=True"] and rows[0]["bad"]


def test_a_hash_is_in_neither_the_trail_nor_the_log(
    api: LocalApi, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "ri2n.audit"):
        ask(api, "token_add", ADMIN, name="t1", role="viewer", hash=64 * "1")
        ask(api, "token_add", ADMIN, name="t1", role="viewer", hash=64 * "1")
    assert "name=t1 role=viewer" in caplog.text
    assert 64 * "1" not in caplog.text + json.dumps(ask(api, "audit", ADMIN))


def test_who_is_refused_cannot_push_out_what_was_done_nor_users_what_admins_did() -> None:
    audit = Audit(lambda: 5.0)
    audit.note("carol", "admin", "web", {"op": "strategy", "name": "max_min"})
    for number in range(2 * MAX_DONE):
        audit.note("alice", "user", "jobs", {"op": "job_end", "id": f"j{number}"})
        audit.note("mallory", "viewer", "web", {"op": "strategy", "name": "x"}, "refused")
    entries = audit.document()["entries"]
    assert entries[0]["what"] == "name=max_min" and len(entries) == 1 + MAX_DONE + MAX_REFUSED


@pytest.mark.parametrize(
    "request_",
    [
        {"op": "x\n" * 99},
        {"op": "strategy", "name": "a\nb" * 999},
        {"op": "job_begin", "job": {"hosts": ["x" * 999] * 999, "id": None}},
        {"op": "job_begin", "job": [1, {"id": [[]]}]},
        {"op": "policy_add", "policy": "x", "name": {"a": "\x1b[31m"}},
        {"op": 5},
        {},
    ],
)
def test_an_entry_is_short_and_one_line_whatever_was_asked(request_: dict[str, Any]) -> None:
    audit = Audit()
    audit.note("alice", "user", "web", request_, "no")
    for entry in audit.document()["entries"]:
        assert entry["op"].isprintable() and entry["what"].isprintable()
        assert len(entry["op"]) <= 80 and len(entry["what"]) <= 200


def test_a_feed_answers_as_the_controller_does(api: LocalApi) -> None:
    """The tests of REST ask the operations themselves."""
    assert isinstance(RealFeed(api).state["controller"]["pid"], int)
