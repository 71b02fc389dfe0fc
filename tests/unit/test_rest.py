# SPDX-License-Identifier: Apache-2.0
"""REST under /api/v1: pages, filters, entity tags, limits, errors and the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.operations import Answer, Operation
from ri2n_sdn.web import rest
from ri2n_sdn.web.rest import access, docs_page
from ri2n_sdn.web.rest.etag import etag_of
from ri2n_sdn.web.rest.limits import Buckets
from ri2n_sdn.web.rest.problem import Problem
from ri2n_sdn.web.who import Who
from tests.unit.rest_controller import RealFeed, controller
from tests.unit.web_app import bearer, made_app, run, serving
from tests.unit.web_state import NOW_S, FakeFeed, cluster_state, state_of

V1 = "/api/v1"
FEED = FakeFeed(cluster_state(hosts=12, nics=2, jobs=4, dead=(("h0002", "eth1"),), away=("h0003",)))


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return made_app(FEED, requests_per_s=1e6)


@pytest.fixture
def real() -> Iterator[RealFeed]:
    with controller() as made:
        yield made


def got(app: FastAPI, path: str, role: str = "viewer", **more: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with serving(app) as client:
            headers = {**bearer(role), **more.pop("headers", {})}
            return await client.request(
                more.pop("method", "GET"), f"{V1}/{path}", headers=headers, **more
            )

    return run(ask())


# ---- Lists


@pytest.mark.parametrize(
    ("path", "key", "names", "total"),
    [
        ("hosts?limit=2", "name", ["h0001", "h0002"], 12),
        ("hosts?limit=2&offset=11", "name", ["h0012"], 12),
        ("hosts?offset=99", "name", [], 12),
        ("hosts?limit=2&descending=true", "name", ["h0012", "h0011"], 12),
        ("hosts?connected=false", "name", ["h0003"], 1),
        ("hosts?q=H0001", "name", ["h0001"], 1),
        ("hosts?q=192.0.2.5", "name", ["h0005"], 1),
        ("hosts?sort=tx&limit=1", "name", ["h0012"], 12),
        ("hosts?sort=tx&limit=1&descending=true", "name", ["h0003"], 12),
        ("nics?limit=3", "name", ["eth0", "eth1", "eth0"], 24),
        ("nics?host=h0002&alive=false", "name", ["eth1"], 1),
        ("nics?host=h0003&alive=false", "name", [], 0),
        ("nics?network=n1&limit=1", "name", ["eth1"], 12),
        ("nics?switch=s0&limit=1", "name", ["eth0"], 12),
        ("networks", "id", ["n0", "n1"], 2),
        ("switches?q=t", "name", ["t0", "t1"], 2),
        ("cables", "id", ["s0/48-t0/48", "s1/48-t1/48"], 2),
        ("cables?alive=false", "id", [], 0),
        ("jobs", "id", ["j1", "j2", "j3", "j4"], 4),
        ("jobs?user=bob&descending=true", "id", ["j4", "j2"], 2),
        ("jobs?host=h0001", "id", ["j1"], 1),
        ("jobs?state=refused", "id", [], 0),
        ("reservations", "id", ["r1"], 1),
        ("rights", "user", ["*", "alice"], 2),
        ("policies", "name", ["quiet"], 1),
        ("events", "seq", [3, 2, 1], 3),
        ("events?since=1&descending=false", "seq", [2, 3], 2),
        ("faults?severity=bad&limit=1", "rank", [1], 1),
        ("faults?q=host-status", "rank", [1], 1),
    ],
)
def test_lists_are_paged_sorted_and_filtered(
    app: FastAPI, path: str, key: str, names: list[Any], total: int
) -> None:
    answer = got(app, path)
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert [each[key] for each in page["items"]] == names and page["total"] == total


def test_one_thing_says_what_the_list_says(app: FastAPI) -> None:
    for many, one in (
        ("hosts", "hosts/{name}"),
        ("nics", "hosts/{host}/nics/{name}"),
        ("networks", "networks/{id}"),
        ("switches", "switches/{name}"),
        ("cables", "cables/{id}"),
        ("reservations", "reservations/{id}"),
        ("rights", "rights/{user}"),
        ("policies", "policies/{name}"),
        ("faults", "faults/{id}"),
    ):
        for each in got(app, f"{many}?limit=3").json()["items"]:
            assert got(app, one.format(**each)).json() == each
    assert got(app, "switches/s0").json()["nics"][0] == "h0001:eth0"
    assert got(app, "switches/s0").json()["cables"] == ["s0/48-t0/48"]


def test_the_controller_in_figures(app: FastAPI) -> None:
    found = got(app, "controller").json()
    assert (found["hosts"], found["hosts_connected"], found["nics"]) == (12, 11, 24)
    assert found["nics_alive"] == 21 and found["faults"] == 2 and found["jobs"] == 4
    history = got(app, "hosts/h0001/nics/eth0/history").json()
    assert len(history["time_s"]) == len(history["tx_bps"]) == 1


def test_what_is_answered_says_how_old_it_is() -> None:
    feed = FakeFeed(cluster_state(hosts=2), {"pairs": {"pairs": [], "total": 0, "offset": 0}})
    feed.state["controller"]["sampled_s"] = NOW_S - 7.5
    app = made_app(feed)
    for path in ("hosts", "hosts/h0001", "controller", "faults", "hosts/h0001/history", "pairs"):
        assert got(app, path).headers["Age"] == "7", path
    tag = got(app, "hosts/h0001").headers["ETag"]
    known = got(app, "hosts/h0001", headers={"If-None-Match": tag})
    assert (known.status_code, known.headers["Age"]) == (304, "7")
    health = got(app, "health")
    assert (health.json()["controller"], health.json()["age_s"]) == (True, 7.5)
    # A controller that has died: nothing old is served, and health says for how long.
    feed.connected, feed.why = False, "it has ended"
    assert got(app, "hosts").status_code == got(app, "pairs").status_code == 503
    assert "Age" not in got(app, "hosts").headers
    assert got(app, "health").json() | {"version": ""} == {
        **{"status": "ok", "version": "", "controller": False, "age_s": 7.5}
    }
    # One that stands by reads nothing, and is as old as its last line.
    del feed.state["controller"]["sampled_s"]
    assert got(app, "health").json()["age_s"] == 0.0


def test_a_rate_that_was_not_known_is_null_in_the_history() -> None:
    feed = FakeFeed(cluster_state(hosts=2))
    last_s = NOW_S + 10.0
    feed.history.add(last_s, state_of(rates={}))  # its host was away
    for path in ("hosts/h0001/history", "hosts/h0001/nics/eth0/history"):
        app = made_app(feed)
        found = got(app, path).json()
        assert found["time_s"][-1] == last_s and found["tx_bps"][0] > 0
        assert found["tx_bps"][1:] == found["rx_bps"][1:] == [None]
    items = rest.openapi()["components"]["schemas"]["Samples"]["properties"]["tx_bps"]["items"]
    assert {"type": "null"} in items["anyOf"]


def test_a_page_of_pairs_is_asked_for_and_never_all_pairs() -> None:
    feed = FakeFeed(cluster_state(hosts=1000), {"pairs": {"pairs": [], "total": 0, "offset": 7}})
    app = made_app(feed)
    assert got(app, "pairs?host=h0001&sort=src&offset=7&limit=9").status_code == 200
    assert feed.asked[-1][2] == {
        **{"host": "h0001", "active": True, "sort": "src", "offset": 7, "limit": 9}
    }
    assert got(app, "pairs?limit=501").status_code == 422
    assert got(app, "pairs?all=true&src=h0001").status_code == 200
    assert "active" not in feed.asked[-1][2]


def links(answer: Any) -> dict[str, str]:
    """The addresses in the header `Link`, by what they are."""
    return {
        name: target
        for target, name in re.findall(r'<([^>]*)>; rel="(\w+)"', answer.headers["link"])
    }


def test_links_lead_through_all_pages_of_a_list(app: FastAPI) -> None:
    names: list[str] = []
    path = "/api/v1/hosts?limit=5&sort=name&q=h0"
    while path:
        page = got(app, path.removeprefix("/api/v1/"))
        names += [each["name"] for each in page.json()["items"]]
        found = links(page)
        assert "q=h0" in found["first"] and "sort=name" in found["first"]
        assert ("prev" in found) == (page.json()["offset"] > 0)
        path = found.get("next", "")
    assert names == [f"h{number:04d}" for number in range(1, 13)]
    assert found["last"].endswith("offset=10&limit=5") and found["prev"].endswith(
        "offset=5&limit=5"
    )
    assert links(got(app, "hosts?q=none&offset=7")).keys() == {"first", "last", "prev"}


def test_no_text_of_a_request_breaks_out_of_a_link(app: FastAPI) -> None:
    page = got(app, "hosts?limit=1&q=%3E%0D%0AX-Evil%3A%201%2C%3Chttp%3A%2F%2Fevil%3E%E2%82%AC")
    assert page.status_code == 200 and "x-evil" not in page.headers
    assert "%3E%0D%0AX-Evil%3A+1%2C%3Chttp%3A%2F%2Fevil%3E%E2%82%AC" in page.headers["link"]
    assert links(page).keys() == {"first", "last"}


def test_pages_of_pairs_have_links_too() -> None:
    feed = FakeFeed(cluster_state(), {"pairs": {"pairs": [], "total": 30, "offset": 10}})
    found = links(got(made_app(feed), "pairs?offset=10&limit=10"))
    assert found["next"] == "/api/v1/pairs?offset=20&limit=10"


def test_a_host_that_goes_meanwhile_is_no_error() -> None:
    """Lists are made in a thread, and the state may be another one at each look at it."""

    class Changing(FakeFeed):
        looks = 0

        @property
        def state(self) -> Documents:
            self.looks += 1
            return self._states[self.looks % 2]

        @state.setter
        def state(self, state: Documents) -> None:
            self._states: list[Documents] = [state_of(**{**state, "hosts": {}}), state]

    found = got(made_app(Changing(cluster_state())), "hosts")
    assert found.status_code == 200 and len(found.json()["items"]) == found.json()["total"]


def test_a_state_of_an_old_or_new_controller_is_shown_as_far_as_it_goes() -> None:
    state = cluster_state(hosts=1)
    state["hosts"]["h0001"]["news"] = {"a": 1}
    state["controller"]["news"] = 5
    answer = got(made_app(FakeFeed(state)), "hosts/h0001")
    assert answer.status_code == 200 and "news" not in answer.json()


# ---- Entity tags


def test_a_tag_follows_from_the_document_alone() -> None:
    assert etag_of({"a": 1, "b": 2}) == etag_of({"b": 2, "a": 1}) != etag_of({"a": 1, "b": 3})
    assert re.fullmatch(r'"[0-9a-f]{24}"', etag_of(["\ud800"]))


def test_what_is_known_already_is_not_sent_again(app: FastAPI) -> None:
    first = got(app, "hosts/h0001")
    tag = first.headers["etag"]
    for header in (tag, f'"x", {tag}', f"W/{tag}", "*"):
        again = got(app, "hosts/h0001", headers={"If-None-Match": header})
        assert again.status_code == 304 and not again.content and again.headers["etag"] == tag
    assert got(app, "hosts/h0001", headers={"If-None-Match": '"x"'}).status_code == 200
    for header in ("x", '"', '"a" "b"', "", '"' + "a" * 3000 + '"'):
        answer = got(app, "hosts/h0001", headers={"If-None-Match": header})
        assert answer.status_code == 400, header


@pytest.mark.parametrize(
    ("path", "body", "other"),
    [
        ("parameters/hysteresis", {"value": 0.1}, {"value": 0.2}),
        ("strategy", {"name": "round_robin"}, {"name": "ri2n_plus"}),
        ("rights/bob", {"policies": ["shared"]}, {"policies": ["paths"], "reserve": True}),
        ("jobs/o1/policy", {"policy": "shared"}, {"policy": "paths", "paths": ["n1"]}),
    ],
)
def test_who_comes_second_does_not_overwrite_what_the_first_has_done(
    real: RealFeed, path: str, body: Any, other: Any
) -> None:
    app = made_app(real, requests_per_s=1e6)
    order = {"id": "o1", "user": "bob", "uid": 20002, "hosts": ["A", "B"]}
    assert got(app, "jobs", "admin", method="POST", json=order).status_code == 201

    def put(document: Any, headers: Mapping[str, str]) -> httpx.Response:
        return got(app, path, "admin", method="PUT", json=document, headers=headers)

    if path.startswith("rights"):
        assert put(body, {"If-Match": '"x"'}).status_code == 412
        assert put(body, {}).status_code == 201
    before = got(app, path, "admin")
    tag = before.headers["etag"]
    missing = put(other, {})
    assert missing.status_code == 428 and missing.headers["etag"] == tag
    done = put(other, {"If-Match": tag})
    assert done.status_code == 200, done.text
    asked = len(real.asked)
    stale = put(body, {"If-Match": tag})
    assert stale.status_code == 412 and "changed meanwhile" in stale.json()["detail"]
    assert {op.partition("_")[2] for op, _, _ in real.asked[asked:]} <= {"list", ""}
    assert stale.headers["etag"] == done.headers["etag"] == got(app, path).headers["etag"]
    assert got(app, path).json() == done.json()
    assert put(body, {"If-Match": f'"x", {done.headers["etag"]}'}).status_code == 200
    assert put(other, {"If-Match": "*"}).status_code == 200
    assert put(other, {"If-Match": "*", "If-None-Match": "*"}).status_code == 412
    assert put(other, {"If-Match": f"W/{tag}"}).status_code == 412


def test_a_stale_deletion_is_refused(real: RealFeed) -> None:
    app = made_app(real)
    body = {"name": "p1", "policy": "exclusive"}
    made = got(app, "policies", "admin", method="POST", json=body)
    assert made.status_code == 201 and made.headers["location"] == f"{V1}/policies/p1"
    stale = got(app, "policies/p1", "admin", method="DELETE", headers={"If-Match": '"x"'})
    assert stale.status_code == 412
    tag = got(app, "policies/p1").headers["etag"]
    done = got(app, "policies/p1", "admin", method="DELETE", headers={"If-Match": tag})
    assert done.status_code == 204 and not done.content
    assert got(app, "policies/p1").status_code == 404


def test_a_change_does_not_wait_for_others_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for a controller that hangs. What is refused is not made later, either."""
    monkeypatch.setattr(access, "TURN_S", 0.05)

    class Hanging(FakeFeed):
        async def request(self, op: Operation[Answer], who: Who, **arguments: Any) -> Answer:
            self.asked.append((op.name, who, arguments))
            await hangs.wait()
            return cast(Answer, {})

    async def ask() -> None:
        async with serving(feed) as client:

            def end(job: str) -> asyncio.Task[httpx.Response]:
                asking = client.delete(f"{V1}/jobs/{job}", headers=bearer("admin"))
                return asyncio.create_task(asking)

            first, others = end("j1"), [end(f"j{number}") for number in range(2, 5)]
            answers = await asyncio.gather(*others)
            assert [each.status_code for each in answers] == [503] * 3
            assert "nothing was changed" in answers[0].json()["detail"]
            hangs.set()
            assert (await first).status_code == 204
            assert (await end("j5")).status_code == 204
            assert [arguments["id"] for _, _, arguments in feed.asked] == ["j1", "j5"]

    feed, hangs = Hanging(), asyncio.Event()
    run(ask())


def test_the_same_order_again_changes_nothing(real: RealFeed) -> None:
    app = made_app(real)
    job = {"id": "o1", "user": "bob", "uid": 20002, "hosts": ["A", "B"], "end_s": 4e9}
    reservation = {
        **{"id": "r1", "user": "bob", "hosts": ["B", "A"], "rate_bps": 10**7},
        **{"begin_s": 4e9, "end_s": 4.1e9},
    }
    for path, body in (("jobs", job), ("reservations", reservation)):
        first = got(app, path, "admin", method="POST", json=body)
        again = got(app, path, "admin", method="POST", json=body)
        assert (first.status_code, again.status_code) == (201, 200), again.text
        assert first.headers["location"] == again.headers["location"]
        assert first.json()["id"] == again.json()["id"]
        other = got(app, path, "admin", method="POST", json={**body, "end_s": 4.2e9})
        assert other.status_code == 409, other.text
    assert len(real.state["reservations"]) == 1


def test_a_new_token_is_shown_once_and_works_at_once(real: RealFeed) -> None:
    app = made_app(real)
    body = {"name": "t1", "role": "user", "user": "bob", "days": 3}
    made = got(app, "tokens", "admin", method="POST", json=body)
    text = made.json()["token"]
    assert made.headers["cache-control"] == "no-store" and len(text) == 43
    assert text not in json.dumps(got(app, "tokens", "admin").json())
    assert text not in json.dumps([repr(each) for each in real.asked])
    real.tokens = real.api._tokens.documents()
    me = got(app, "me", headers={"Authorization": f"Bearer {text}"}).json()
    assert me == {"name": "t1", "role": "user", "user": "bob", "may": ["viewer", "user"]}


# ---- Limits


def test_a_bucket_is_emptied_and_filled_up() -> None:
    now = [0.0]
    buckets = Buckets(2.0, 3.0, lambda: now[0])
    assert [buckets.wait_s("a") for _ in range(4)] == [0, 0, 0, 1]
    assert buckets.wait_s("b") == 0
    now[0] = 0.5
    assert [buckets.wait_s("a") for _ in range(2)] == [0, 1]
    now[0] = 1e9
    assert [buckets.wait_s("a") for _ in range(4)] == [0, 0, 0, 1]
    now[0] = 0.0  # a clock that goes backwards fills nothing up
    assert buckets.wait_s("a") == 1
    assert Buckets(0.1, 1.0, lambda: 0.0).wait_s("x") == 0


def test_buckets_are_bounded_whoever_asks() -> None:
    buckets = Buckets(1.0, 1.0, lambda: 0.0, most=100)
    for number in range(1000):
        buckets.wait_s(f"address {number}")
    assert len(buckets) == 100


def test_who_asks_too_often_is_told_when_to_come_back() -> None:
    async def ask() -> None:
        async with serving(FakeFeed(), requests_per_s=0.5) as client:
            answers = [await client.get(f"{V1}/me", headers=bearer("viewer")) for _ in range(4)]
            assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
            assert 1 <= int(answers[-1].headers["retry-after"]) <= 2
            assert answers[-1].headers["content-type"] == "application/problem+json"
            # Another token has a bucket of its own; an address has one for all of its tokens.
            more = [await client.get(f"{V1}/me", headers=bearer("admin")) for _ in range(8)]
            assert [answer.status_code for answer in more].count(200) == 2
            wrong = {"Authorization": "Bearer " + "x" * 43}
            # So who tries tokens out is not even told any more which of them are wrong.
            assert (await client.get(f"{V1}/me", headers=wrong)).status_code == 429
            assert (await client.get("/metrics")).status_code == 200

    run(ask())


# ---- Errors


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("GET", "nothing", {}, 404),
        ("GET", "hosts/", {}, 404),
        ("GET", "hosts/%0a", {}, 404),
        ("GET", "%0a%0d", {}, 404),
        ("GET", "cables/%0a", {}, 404),
        ("PATCH", "hosts", {}, 405),
        ("POST", "jobs/j1/policy", {}, 405),
        ("GET", "hosts?limit=0", {}, 422),
        ("GET", "hosts?limit=x", {}, 422),
        ("GET", "hosts?unknown=%0a", {}, 422),
        ("GET", "hosts?sort=mac", {}, 422),
        ("POST", "jobs", {"content": b"{"}, 400),
        ("POST", "jobs", {"content": b"[" * 60_000}, 400),
        ("POST", "jobs", {"content": b"\xff\xfe"}, 400),
        ("POST", "jobs", {"json": []}, 422),
        ("POST", "jobs", {"json": {"id": "a b", "hosts": []}}, 422),
        ("POST", "jobs", {"content": b'{"id": "\\ud800", "hosts": ["A"]}'}, 422),
        ("POST", "jobs", {"content": b'{"id": "a", "hosts": ["A"], "\\ud800\\n": 1}'}, 422),
        ("POST", "jobs", {"content": b'{"id": "a", "hosts": ["A"], "end_s": NaN}'}, 422),
        ("POST", "jobs", {"content": b'{"id": "a", "hosts": ["A"], "uid": 1e400}'}, 422),
        ("POST", "jobs", {"content": b"x" * 300_000}, 413),
    ],
)
def test_every_error_is_a_problem(
    app: FastAPI, method: str, path: str, more: dict[str, Any], status: int
) -> None:
    if "content" in more:
        more = {**more, "headers": {"Content-Type": "application/json"}}
    answer = got(app, path, "admin", method=method, **more)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate(answer.json())
    assert problem.status == status and problem.detail and problem.detail.isprintable()
    assert len(problem.detail) <= 300
    assert all(each.where.isprintable() for each in problem.errors)
    if status == 400:
        assert problem.code == "body_unreadable"
    if status == 405:
        allowed = "GET, PUT, DELETE" if "policy" in path else "GET"
        assert answer.headers["allow"] == allowed


@pytest.mark.parametrize("path", ["health", "ready"])
def test_probes_answer_without_the_prefix_too(path: str) -> None:
    async def asked() -> list[httpx.Response]:
        async with serving(FakeFeed()) as client:
            return [
                await client.get(f"/{path}"),
                await client.get(f"/api/v1/{path}"),
                await client.post(f"/{path}"),
            ]

    plain, whole, other = run(asked())
    assert (plain.status_code, plain.json()) == (whole.status_code, whole.json())
    assert plain.headers["content-type"] == whole.headers["content-type"]
    assert other.status_code == 405


def test_a_fault_of_the_server_is_a_problem_without_details() -> None:
    feed = FakeFeed(answers={"job_history": ZeroDivisionError("secret")})

    async def ask() -> None:
        transport = httpx.ASGITransport(made_app(feed), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get(f"{V1}/ended-jobs")
            assert answer.status_code == 500 and "secret" not in answer.text
            assert answer.headers["content-type"] == "application/problem+json"

    run(ask())


# ---- The document


def test_the_document_is_complete() -> None:
    made = rest.openapi()
    assert made["servers"] == [{"url": V1}]
    names = []
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            names.append(operation["operationId"])
            assert operation["description"].endswith("."), path
            assert set(operation["tags"]) <= {tag["name"] for tag in made["tags"]}
            answers = operation["responses"]
            good = [answers[status] for status in answers if status < "300"]
            assert good, path
            for answer in good:
                content = answer.get("content", {})
                schema = content.get("application/json", {}).get("schema", {})
                assert (
                    "$ref" in schema
                    or "text/event-stream" in content
                    or "204" in answers
                    or (schema.get("type") == "array")
                ), (path, answer)
            problems = {status for status in answers if status >= "400"}
            assert "429" in problems
            assert method == "get" or {"409", "412", "413", "422"} & problems
            assert (method == "put") == ("428" in problems)
            for status in problems:
                assert set(answers[status]["content"]) == {"application/problem+json"}
    assert len(names) == len(set(names)) > 55
    text = json.dumps(made)
    for reference in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert reference in made["components"]["schemas"]
    assert "HTTPValidationError" not in text


def test_the_page_of_the_document_needs_nothing_from_elsewhere(app: FastAPI) -> None:
    page = got(app, "docs")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    files = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert set(files) >= {"docs.js", "openapi.json", *docs_page.VIEWER}
    for file in files:
        assert not file.startswith(("http", "//")), file
        if not file.startswith("data:"):
            assert got(app, file).status_code == 200
    assert "http" not in got(app, "docs.js").text
    # Only what is listed is served of the package's folder.
    assert got(app, "redoc.standalone.js").status_code == 404
    assert got(app, "openapi.json").json() == rest.openapi()
