# SPDX-License-Identifier: Apache-2.0
"""Every route of the OpenAPI document, tried by everybody: who may change something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ri2n_sdn.contract.operations import READING
from ri2n_sdn.web.rest.document import PREFIX
from tests.unit.rest_controller import RealFeed, controller
from tests.unit.test_web_socket import OWN
from tests.unit.web_app import bearer, run, serving

# What is in paths, and bodies with which each operation would do something.
NAMES = {
    **{"host": "A", "nic": "eth0", "network": "n1", "switch": "s1", "cable": "s1/1-s2/1"},
    **{"src": "A", "dst": "B", "fault": "0" * 12, "job": "o1", "reservation": "r1"},
    **{"user": "bob", "policy": "p1", "owner": "x", "name": "hysteresis"},
}
BODIES: dict[str, Any] = {
    "begin_job": {"id": "o9", "hosts": ["A", "B"], "user": "alice", "uid": 20001},
    "move_job": {"policy": "paths", "paths": ["n2"]},
    "add_reservation": {
        **{"id": "r9", "user": "alice", "hosts": ["A", "B"], "rate_bps": 10**7},
        **{"begin_s": 4.2e9, "end_s": 4.3e9},
    },
    "set_right": {"policies": ["shared"]},
    "add_policy": {"name": "p9", "policy": "exclusive"},
    "set_strategy": {"name": "round_robin"},
    "set_parameter": {"value": 0.2},
    "set_vlan_table": {"rows": [["A", "B", 101]]},
    "add_token": {"name": "t9", "role": "admin"},
}
NEW = {"set_right", "set_vlan_table"}
"""These make what was not there."""

PUBLIC = {"health", "ready"}
ADMINS = {"audit", "list_tokens", "show_token"}


@pytest.fixture
def feed() -> Iterator[RealFeed]:
    with controller() as made:
        yield made


async def operations(client: httpx.AsyncClient) -> list[tuple[str, str, dict[str, Any]]]:
    """(method, path, operation) of all operations of the document."""
    made = (await client.get(f"{PREFIX}/openapi.json")).json()
    return [
        (method.upper(), path, operation)
        for path, methods in made["paths"].items()
        for method, operation in methods.items()
    ]


async def tried(
    client: httpx.AsyncClient, method: str, path: str, operation: dict[str, Any], **more: Any
) -> httpx.Response:
    """The answer to an operation, with arguments with which it would do something."""
    query = {"src": "A", "dst": "B"} if path in ("/paths", "/explain") else {}
    query |= {"max_s": "0"} if path.endswith("stream") else {}
    name = operation["operationId"]
    headers = dict(more["headers"])
    if method == "PUT" and name not in NEW:
        headers["If-Match"] = "*"
    body = BODIES[name] if "requestBody" in operation else None
    url = PREFIX + path.format(**NAMES)
    return await client.request(method, url, params=query, json=body, headers=headers)


@pytest.mark.parametrize("headers", [bearer("viewer"), {}], ids=["viewer", "no token"])
def test_a_viewer_and_one_without_a_token_can_change_nothing(
    feed: RealFeed, headers: dict[str, str]
) -> None:
    async def ask() -> None:
        async with serving(feed) as client:
            for method, path, operation in await operations(client):
                before = feed.api._audit.document()
                answer = await tried(client, method, path, operation, headers=headers)
                name = operation["operationId"]
                if method != "GET" or name in ADMINS:
                    assert answer.status_code == (403 if headers else 401), (name, answer.text)
                    assert "the role" in answer.json()["detail"]
                else:
                    assert answer.status_code in (200, 404, 409), (name, answer.text)
                assert feed.api._audit.document() == before, name
            assert {op for op, _, _ in feed.asked} <= READING

    run(ask())


def test_without_a_token_nothing_is_shown_where_tokens_are_required(feed: RealFeed) -> None:
    async def ask() -> None:
        async with serving(feed, require_tokens=True) as client:
            for method, path, operation in await operations(client):
                for headers in ({}, {"Authorization": "Bearer " + "x" * 43}):
                    answer = await tried(client, method, path, operation, headers=headers)
                    if operation["operationId"] in PUBLIC:
                        assert answer.status_code == 200
                    else:
                        assert answer.status_code == 401, (path, answer.text)
                        assert answer.headers["www-authenticate"].startswith("Bearer")
            assert not feed.asked

    run(ask())


def test_a_user_changes_own_jobs_and_reservations_alone(feed: RealFeed) -> None:
    async def ask() -> None:
        async with serving(feed) as client:
            for method, path, operation in await operations(client):
                answer = await tried(client, method, path, operation, headers=bearer("user"))
                assert answer.status_code < 500, answer.text
            changes = {op for op, _, _ in feed.asked} - READING
            assert changes <= OWN and changes, changes

    run(ask())


def test_an_admin_may_do_what_the_others_are_refused(feed: RealFeed) -> None:
    """So the others were refused because of their role, and not because of the arguments."""

    async def ask() -> None:
        async with serving(feed) as client:
            all_of_them = await operations(client)
            for method in ("GET", "POST", "PUT", "DELETE"):
                for each, path, operation in all_of_them:
                    if each == method:
                        answer = await tried(
                            client, method, path, operation, headers=bearer("admin")
                        )
                        assert answer.status_code not in (401, 403, 422, 428), answer.text
                        assert answer.status_code < 500, answer.text
            changes = {op for op, _, _ in feed.asked} - READING
            assert changes >= {"job_begin", "policy_add", "rights_set", "token_add"}
            assert changes >= {"parameters_set", "reserve_add"}
            tokens = [arguments for op, _, arguments in feed.asked if op == "token_add"]
            assert tokens and all(len(each["hash"]) == 64 for each in tokens)

    run(ask())


def test_every_route_asks_who_it_is(feed: RealFeed) -> None:
    """A route that is added without a role would be open to everybody."""

    async def ask() -> None:
        async with serving(feed) as client:
            for method, _, operation in await operations(client):
                needed = operation.get("security", [{}])
                assert ("health" in operation["tags"] and len(needed) == 1) or {
                    "token": []
                } in needed
                optional = {} in needed
                assert optional == (method == "GET" and operation["operationId"] not in ADMINS)

    run(ask())
