# SPDX-License-Identifier: Apache-2.0
"""What a real controller refuses: the code, and the HTTP status that follows from its kind.

All sentences are others than those that people read (conftest.py): no status follows from words.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import Formatter
from typing import Any

import pytest
from fastapi import FastAPI

from ri2n_sdn.contract.refusals import KINDS, REFUSALS, refusal
from ri2n_sdn.web.rest.problem import STATUSES
from tests.unit.rest_controller import RealFeed, controller
from tests.unit.web_app import bearer, made_app, run, serving
from tests.unit.web_state import FakeFeed

ALICE = {"id": "o1", "user": "alice", "uid": 20001, "hosts": ["A", "B"]}
BOB = {"id": "o2", "user": "bob", "uid": 20002, "hosts": ["A", "B"]}


@pytest.fixture(scope="module")
def feed() -> Iterator[RealFeed]:
    """A controller."""
    with controller() as made:
        yield made


@pytest.fixture(scope="module")
def app(feed: RealFeed) -> FastAPI:
    """The application, and a job of alice, one of bob, and a policy."""
    made = made_app(feed, requests_per_s=1e6)

    async def fill() -> None:
        async with serving(made) as client:
            for path, body in (
                ("jobs", {**ALICE, "policy": "exclusive", "paths": ["n1"]}),
                ("jobs", BOB),
                ("policies", {"name": "p1", "policy": "exclusive"}),
            ):
                answer = await client.post(f"/api/v1/{path}", json=body, headers=bearer("admin"))
                assert answer.status_code == 201, answer.text

    run(fill())
    return made


@pytest.mark.parametrize(
    ("role", "method", "path", "body", "status", "code"),
    [
        ("user", "POST", "jobs", {**BOB, "id": "o3"}, 403, "not_yours"),
        ("user", "DELETE", "jobs/o2", None, 403, "not_yours"),
        ("user", "PUT", "jobs/o2/policy", {"policy": "exclusive"}, 403, "not_yours"),
        ("admin", "POST", "jobs", {**ALICE, "policy": "isolated"}, 409, "job_exists"),
        (
            *("admin", "POST", "jobs", {**BOB, "id": "o4", "policy": "exclusive", "paths": ["n1"]}),
            *(409, "not_admitted"),
        ),
        ("admin", "POST", "jobs", {**ALICE, "id": "o5", "hosts": ["Z"]}, 422, "host_unknown"),
        ("admin", "POST", "jobs", {**ALICE, "id": "o5", "named": "none"}, 422, "policy_unknown"),
        ("admin", "POST", "jobs", {**ALICE, "id": "o5", "end_s": 1.0}, 422, "end_not_later"),
        ("admin", "POST", "policies", {"name": "p1", "policy": "exclusive"}, 409, "policy_exists"),
        (
            "admin",
            "POST",
            "policies",
            {"name": "shared", "policy": "exclusive"},
            422,
            "policy_name_is_kind",
        ),
        ("admin", "DELETE", "jobs/none", None, 404, "no_such_job"),
        ("admin", "GET", "jobs/none", None, 404, "no_such_job"),
        ("admin", "PUT", "jobs/none/policy", {"policy": "exclusive"}, 404, "no_such_job"),
        ("admin", "DELETE", "jobs/o1/policy", None, 409, "order_has_no_other"),
        ("admin", "DELETE", "reservations/none", None, 404, "no_such_reservation"),
        ("admin", "DELETE", "policies/none", None, 404, "no_such_policy"),
        ("admin", "DELETE", "rights/none", None, 404, "no_such_right"),
        ("admin", "DELETE", "tokens/none", None, 404, "no_such_token"),
        ("admin", "PUT", "strategy", {"name": "none"}, 422, "parameter_unknown_choice"),
        ("admin", "PUT", "parameters/hysteresis", {"value": 7}, 422, "parameter_not_number"),
        ("admin", "PUT", "parameters/hysteresis", {"value": "7"}, 422, "parameter_not_number"),
        ("admin", "PUT", "parameters/slots", {"value": 64}, 409, "parameter_not_live"),
        ("admin", "PUT", "parameters/none", {"value": 64}, 404, "no_such_parameter"),
        ("admin", "PUT", "vlan-tables/x", {"rows": [["A", "B", 1]]}, 409, "no_switch_links"),
        ("viewer", "GET", "explain?src=A&dst=A", None, 422, "same_host"),
        ("viewer", "GET", "explain?src=Z&dst=A", None, 404, "no_such_host"),
        ("viewer", "GET", "explain?src=A&dst=B&sport=3", None, 422, "protocol_missing"),
        ("viewer", "GET", "explain?src=A&dst=B&job=none", None, 422, "no_job_runs"),
        ("viewer", "GET", "pairs?host=Z", None, 404, "no_such_host"),
        (
            "viewer",
            "GET",
            "pairs?all=true&descending=false",
            None,
            422,
            "lowest_first",
        ),
        ("viewer", "GET", "pairs/A/A", None, 404, "no_path"),
    ],
)
def test_a_refusal_has_the_status_that_fits(
    feed: RealFeed,
    app: FastAPI,
    role: str,
    method: str,
    path: str,
    body: Any,
    status: int,
    code: str,
) -> None:
    async def ask() -> None:
        async with serving(app) as client:
            headers = {**bearer(role), "If-Match": "*"} if method == "PUT" else bearer(role)
            if path.startswith("vlan-tables"):
                del headers["If-Match"]
            before = feed.api._audit.document()["entries"]
            answer = await client.request(method, f"/api/v1/{path}", json=body, headers=headers)
            assert answer.status_code == status, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            problem = answer.json()
            assert problem["code"] == code and problem["status"] == status, problem
            places = {fault["where"].partition(".")[0] for fault in problem["errors"]}
            assert places <= {"body", "query", "path"}
            after = feed.api._audit.document()["entries"][len(before) :]
            assert not any(entry["ok"] for entry in after)

    run(ask())


@pytest.mark.parametrize(
    ("method", "path", "body", "where"),
    [
        ("POST", "jobs", {"id": "o9", "hosts": ["A", "Z"]}, "body.hosts"),
        ("POST", "jobs", {"id": "o9", "hosts": ["A B"]}, "body.hosts.0"),
        ("PUT", "strategy", {"name": "none"}, "body.name"),
        ("PUT", "parameters/hysteresis", {"value": 7}, "body.value"),
        ("POST", "policies", {"name": "shared", "policy": "exclusive"}, "body.name"),
        ("PUT", "jobs/o1/policy", {}, "body.policy"),
        ("GET", "explain?src=A&dst=B&protocol=256", None, "query.protocol"),
        ("GET", "explain?src=A&dst=B&sport=3", None, "query.protocol"),
        ("GET", "explain?src=A&dst=B&protocol=tcp&src_ip=fd77::9", None, "query.dst_ip"),
        ("GET", "hosts?limt=3", None, "query.limt"),
    ],
)
def test_a_wrong_request_is_told_where_it_is_wrong(
    app: FastAPI, method: str, path: str, body: Any, where: str
) -> None:
    async def ask() -> None:
        async with serving(app) as client:
            if body is not None and path == "jobs":
                body.update(user="nobody", uid=65534)
            headers = {**bearer("admin"), "If-Match": "*"} if method == "PUT" else bearer("admin")
            answer = await client.request(method, f"/api/v1/{path}", json=body, headers=headers)
            assert answer.status_code == 422, answer.text
            assert [fault["where"] for fault in answer.json()["errors"]] == [where], answer.text

    run(ask())


def test_a_protocol_has_a_name_or_a_number(feed: RealFeed, app: FastAPI) -> None:
    async def ask() -> None:
        async with serving(app) as client:
            for protocol in ("udp", "17"):
                asked = f"/api/v1/explain?src=A&dst=B&protocol={protocol}&sport=1&dport=2"
                answer = await client.get(asked, headers=bearer("viewer"))
                assert answer.status_code == 200, answer.text
                assert feed.asked[-1][2]["flow"]["protocol"] == 17

    run(ask())


def test_of_a_user_it_is_known_who_it_is(app: FastAPI) -> None:
    """An order of a token's user needs no user; the uid must be known."""

    async def ask() -> None:
        async with serving(app) as client:
            body = {"id": "o7", "hosts": ["A", "B"]}
            answer = await client.post("/api/v1/jobs", json=body, headers=bearer("user"))
            assert answer.status_code == 422 and answer.json()["code"] == "uid_missing"
            answer = await client.post("/api/v1/jobs", json=body, headers=bearer("admin"))
            assert answer.status_code == 422 and answer.json()["code"] == "user_missing"
            body |= {"user": "nobody"}
            answer = await client.post("/api/v1/jobs", json=body, headers=bearer("admin"))
            # 200 where this order is there already: this test is run with several wordings.
            assert answer.status_code in (200, 201) and answer.json()["uid"] == 65534, answer.text

    run(ask())


def test_each_refusal_has_the_status_of_its_kind() -> None:
    """Whatever the sentence says: 503 with Retry-After where the same request may succeed later."""

    async def ask() -> None:
        feed = FakeFeed()
        async with serving(made_app(feed, requests_per_s=1e6)) as client:
            for code, (kind, words) in REFUSALS.items():
                args: dict[str, Any] = {
                    name: 1 for _, name, _, _ in Formatter().parse(words) if name
                }
                feed.answers["job_end"] = refusal(code, **args)
                answer = await client.delete("/api/v1/jobs/o1", headers=bearer("admin"))
                assert answer.status_code == STATUSES[kind], code
                assert ("retry-after" in answer.headers) == (answer.status_code == 503), code
                problem = answer.json()
                assert (problem["code"], problem["kind"], problem["args"]) == (code, kind, args)

    run(ask())


def test_every_kind_has_a_status() -> None:
    assert set(STATUSES) == set(KINDS)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("store_away", 503),
        ("store_not_acknowledged", 503),
        ("store_closed", 503),
        ("store_queue_full", 503),
        ("not_in_charge", 503),
        ("stands_by", 503),
        ("host_rows_unread", 503),
        ("connections_full", 503),
        ("over_already", 422),
        ("check_runs", 409),
        ("internal_error", 500),
    ],
)
def test_refusals_that_seldom_come(code: str, status: int) -> None:
    assert STATUSES[REFUSALS[code].kind] == status


def test_a_controller_that_is_away_is_503() -> None:
    async def ask() -> None:
        feed = FakeFeed()
        async with serving(feed) as client:
            assert (await client.get("/api/v1/ready")).status_code == 200
            feed.disconnect("no controller listens there")
            for path in ("ready", "hosts", "jobs", "events", "controller"):
                answer = await client.get(f"/api/v1/{path}")
                assert answer.status_code == 503 and answer.headers["retry-after"] == "2"
                assert answer.json()["code"] == "controller_away"
            assert (await client.get("/api/v1/health")).status_code == 200

    run(ask())


def test_a_controller_whose_words_make_no_sense_is_503(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> None:
        feed = FakeFeed(
            answers={"job_history": {"jobs": [{"id": ["hidden"]}]}, "token_list": {"x": 1}}
        )
        async with serving(feed) as client:
            for path in ("ended-jobs", "tokens"):
                answer = await client.get(f"/api/v1/{path}", headers=bearer("admin"))
                assert answer.status_code == 503, answer.text
                assert answer.json()["code"] == "answer_wrong"

    run(ask())
    # The log names the places, and repeats nothing that stands there.
    said = [record.getMessage() for record in caplog.records if record.name == "ri2n.rest"]
    assert len(said) == 1 and "/api/v1/ended-jobs" in said[0] and "(response." in said[0]
    assert "hidden" not in caplog.text
