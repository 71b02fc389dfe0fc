# SPDX-License-Identifier: Apache-2.0
"""The web process's core: roles, tokens, settings, rates of the last minutes, and the guard."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from ri2n_lab.cluster.sandbox import reserve_port
from ri2n_sdn.contract.choices import ROLES
from ri2n_sdn.contract.fair import fair_entry
from ri2n_sdn.contract.operations import Operation
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import BadInput, NotAvailable, Ri2nError
from ri2n_sdn.web import auth as auth_module
from ri2n_sdn.web import history as history_module
from ri2n_sdn.web.auth import ANONYMOUS, Auth, Denied, hash_of
from ri2n_sdn.web.guard import MAX_BODY_BYTES, Guard
from ri2n_sdn.web.history import EVERY_S, KEPT_S, History
from ri2n_sdn.web.settings import WebSettings
from ri2n_sdn.web.shape import checked
from ri2n_sdn.web.who import Who
from tests.unit.commands import ri2n
from tests.unit.web_app import bearer, run, serving
from tests.unit.web_state import TOKENS, FakeFeed, cluster_state, token_document

LOCAL, ELSEWHERE = "127.0.0.1", "192.0.2.7"


def test_a_role_may_do_what_the_ones_before_it_may() -> None:
    for number, role in enumerate(ROLES):
        may = [Who("x", role).may(other) for other in ROLES]
        assert may == [index <= number for index in range(3)]


# ---- Tokens


def test_who_has_which_token() -> None:
    auth = Auth(FakeFeed(), WebSettings())
    assert auth.who_of_token(TOKENS["admin"]) == Who("admin", "admin")
    assert auth.who_of_token(TOKENS["user"]) == Who("user", "user", "alice")
    assert auth.who_of_bearer(f"Bearer {TOKENS['viewer']}", ELSEWHERE) == Who("viewer", "viewer")
    assert auth.who_of_bearer(f"bearer  {TOKENS['viewer']} ", ELSEWHERE).role == "viewer"


@pytest.mark.parametrize(
    "token", ["", "a", "a" * 42, "a" * 44, "A" * 43, "\xff" * 43, "\ud800", "a" * 10_000]
)
def test_nobody_has_another_token(token: str) -> None:
    assert Auth(FakeFeed(), WebSettings()).who_of_token(token) is None


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YTph", TOKENS["admin"]])
def test_another_header_is_refused(header: str) -> None:
    with pytest.raises(Denied, match="must be: Authorization: Bearer TOKEN") as denied:
        Auth(FakeFeed(), WebSettings()).who_of_bearer(header, LOCAL)
    assert denied.value.status == 401


def test_without_a_token_people_of_this_machine_may_look() -> None:
    auth = Auth(FakeFeed(), WebSettings())
    for address in (LOCAL, "::1", "::ffff:127.0.0.1"):
        assert auth.who_of_bearer(None, address) == ANONYMOUS
    for needing, address in ((auth, ELSEWHERE), (auth, ""), (required(), LOCAL)):
        with pytest.raises(Denied, match="a token is needed") as denied:
            needing.who_of_bearer(None, address)
        assert denied.value.status == 401
    assert not ANONYMOUS.may("user")


def required() -> Auth:
    return Auth(FakeFeed(), WebSettings(require_tokens=True))


def test_a_token_that_was_removed_or_has_expired_is_none() -> None:
    feed = FakeFeed()
    auth = Auth(feed, WebSettings())
    session = auth.session_of_token(TOKENS["admin"])
    assert session is not None and auth.who_of_session(session) == Who("admin", "admin")
    assert TOKENS["admin"] not in session.values()
    before = feed.tokens
    for end_s, good in ((time.time() + 60, True), (time.time() - 0.001, False)):
        feed.tokens = {"admin": token_document(TOKENS["admin"], "admin", expires_s=end_s)}
        assert (auth.who_of_token(TOKENS["admin"]) is not None) is good
        assert (auth.who_of_session(session) is not None) is good
        assert (auth.session_of_token(TOKENS["admin"]) is not None) is good
    feed.tokens = {name: token for name, token in before.items() if name != "admin"}
    assert auth.who_of_token(TOKENS["admin"]) is None and auth.who_of_session(session) is None


@pytest.mark.parametrize(
    "session",
    [
        {},
        {"token": "admin"},
        {"token": "admin", "token_mark": ""},
        {"token": "admin", "token_mark": "0" * 16},
        {"token": "admin", "token_mark": None},
        {"token": "admin", "token_mark": "\xe4"},
        {"token": "nobody", "token_mark": "0" * 16},
        {"token": 5, "token_mark": "x"},
    ],
)
def test_a_session_that_no_token_made_is_none(session: dict[str, Any]) -> None:
    assert Auth(FakeFeed(), WebSettings()).who_of_session(session) is None


def test_a_new_token_of_the_same_name_does_not_take_over_a_session() -> None:
    feed = FakeFeed()
    auth = Auth(feed, WebSettings())
    session = auth.session_of_token(TOKENS["admin"])
    feed.tokens = {"admin": token_document("b" * 43, "admin")}
    assert session is not None and auth.who_of_session(session) is None


@pytest.mark.parametrize("match", [None, "t000", "t050", "t099"])
def test_every_stored_hash_is_compared_whatever_matches(
    match: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the time that a check takes does not say how many tokens were tried before a match."""
    feed = FakeFeed()
    names = [f"t{number:03d}" for number in range(100)]
    feed.tokens = {name: token_document(f"token of {name}", "viewer") for name in names}
    compared: list[tuple[bytes, bytes]] = []

    def counted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    class Counted:
        compare_digest = staticmethod(counted)

    monkeypatch.setattr(auth_module, "hmac", Counted)
    who = Auth(feed, WebSettings()).who_of_token(f"token of {match}")
    assert (who.name if who is not None else None) == match
    assert [one.decode() for one, _ in compared] == [feed.tokens[name]["hash"] for name in names]
    assert len({other for _, other in compared}) == 1
    assert {len(text) for pair in compared for text in pair} == {64}


def test_before_the_controller_was_reached_no_token_is_called_wrong() -> None:
    feed = FakeFeed()
    feed.tokens, feed.known, feed.connected = {}, False, False
    with pytest.raises(Denied) as denied:
        Auth(feed, WebSettings()).who_of_bearer(f"Bearer {TOKENS['admin']}", LOCAL)
    assert denied.value.status == 503


# ---- Settings


def test_other_machines_are_served_only_with_tls_and_tokens(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.touch()
    for host in ("0.0.0.0", "::", "192.0.2.7", "web.example"):
        WebSettings(host=host, require_tokens=True, tls_cert=pem, tls_key=pem).check()
        for settings in (
            WebSettings(host=host),
            WebSettings(host=host, require_tokens=True),
            WebSettings(host=host, tls_cert=pem, tls_key=pem),
        ):
            with pytest.raises(BadInput, match="only with TLS and tokens"):
                settings.check()
    for host in ("127.0.0.1", "127.3.4.5", "::1", "localhost", "::ffff:127.0.0.1"):
        WebSettings(host=host).check()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"tls_cert": Path("/nonexistent/c")}, "--tls-key is missing"),
        ({"tls_key": Path("/nonexistent/k")}, "--tls-cert is missing"),
        (
            {"tls_cert": Path("/nonexistent/c"), "tls_key": Path("/nonexistent/k")},
            "--tls-cert /nonexistent/c: no such file",
        ),
        ({"host_names": ("web.example",)}, "--host-name: needs --require-tokens"),
    ],
)
def test_wrong_settings_name_the_option(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadInput, match=fault):
        WebSettings(**given).check()


def test_the_secret_is_made_once_and_is_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    settings = WebSettings(storage_secret_file=path)
    secret = settings.secret()
    assert len(secret) == 64 and settings.secret() == secret
    assert path.stat().st_mode & 0o777 == 0o600 and list(tmp_path.iterdir()) == [path]
    path.chmod(0o640)
    with pytest.raises(NotAvailable, match="others can read it"):
        settings.secret()
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(NotAvailable, match="too short"):
        settings.secret()
    with pytest.raises(NotAvailable, match="No such file"):
        replace(settings, storage_secret_file=tmp_path / "none" / "secret").secret()
    assert WebSettings().secret() != WebSettings().secret()


# ---- Rates of the last minutes


def rates(**of: Sequence[float]) -> Any:
    return {"rates": {"A": of}}


def test_samples_are_two_seconds_apart_and_end_after_a_quarter_of_an_hour() -> None:
    history = History()
    taken = [history.add(1000.0 + second, rates(eth0=[second, 1])) for second in range(5)]
    assert taken == [True, False, True, False, True]
    times, sent, received = history.series("A", "eth0")
    assert times == [1000.0, 1002.0, 1004.0]
    assert sent == [0.0, 2.0, 4.0] and received == [1.0, 1.0, 1.0]
    for number in range(3, 1000):
        history.add(1000.0 + EVERY_S * number, rates(eth0=[2.0 * number, 1]))
    times, sent, _ = history.series("A", "eth0")
    assert len(times) == KEPT_S / EVERY_S and times[-1] == 1000.0 + 2 * 999
    assert sent == [time_s - 1000.0 for time_s in times]


def test_rates_that_are_not_known_are_gaps() -> None:
    history = History()
    for number, of in enumerate(({}, {"eth0": [1, 2]}, {}, {"eth0": [3, 4], "eth1": [10, 20]})):
        history.add(1000.0 + 2 * number, rates(**of))
    times, sent, received = history.series("A", "eth0")
    assert times == [1002.0, 1004.0, 1006.0]
    assert sent == [1, None, 3] and received == [2, None, 4]
    times, sent, _ = history.host("A")
    assert sent == [1, None, 13] and len(times) == 3
    assert [len(each) for each in history.series("A", "eth9")] == [0, 0, 0]


def test_what_is_fair_is_kept_beside_the_rates_and_is_no_rate() -> None:
    history = History()
    for number, pairs in enumerate(([("B", 3.0, 5.0)], [], [("B", 3.0, 5.0), ("C", 1.0, 4.0)])):
        state = rates(eth0=[7, 1])
        state["fair"] = {"A": fair_entry(pairs)} if pairs else {}
        history.add(1000.0 + 2 * number, state)
    assert history.fair("A") == ([1000.0, 1002.0, 1004.0], [5.0, None, 9.0])
    assert history.fair("B") == ([1000.0, 1002.0, 1004.0], [None, None, None])
    assert history.host("A").tx_bps == history.total().tx_bps == [7.0, 7.0, 7.0]


def test_a_clock_that_is_set_back_begins_a_new_history() -> None:
    history = History()
    history.add(1000.0, rates(eth0=[1, 1]))
    assert history.add(900.0, rates(eth0=[2, 2]))
    assert history.series("A", "eth0").time_s == [900.0]


def test_the_memory_of_rates_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MAX_NICS", 128)
    history = History()
    history.add(1000.0, rates(**{f"e{number}": [1, 1] for number in range(1000)}))
    assert history._rates._table.shape[0] == 128
    assert len(history.series("A", "e127")[0]) == 1 and not len(history.series("A", "e128")[0])
    # Rows of NICs that are gone for long are used again.
    for number in range(1, 452):
        history.add(1000.0 + 2 * number, rates(new=[5, 5]))
    assert history.series("A", "new").tx_bps[-1] == 5.0
    assert not len(history.series("A", "e5")[0]) and history._rates._table.shape[0] == 128


def test_a_thousand_hosts_cost_a_few_megabytes() -> None:
    history = History()
    state = cluster_state(hosts=1000, nics=2, jobs=0)
    for number in range(3):
        history.add(1000.0 + 2 * number, state)
    assert history._rates._table.nbytes <= 8e6 and history._fair._table.nbytes <= 2e6
    assert history.series("h0999", "eth1")[1][-1] == pytest.approx(
        state["rates"]["h0999"]["eth1"][0], rel=1e-6
    )


# ---- What a controller's lines must look like


def test_states_of_tests_are_good() -> None:
    for state in (
        cluster_state(),
        cluster_state(3, 3, 5, dead=(("h0001", "eth1"),), away=("h0002",), switched=False),
    ):
        good, dropped = checked(state)
        assert (good, dropped) == (state, 0)


# What an event may have beside its text, in a wrong form.
ODD_SAID: tuple[dict[str, Any], ...] = (
    *({"severity": "worse"}, {"severity": []}, {"code": 5}, {"subject": {"host": 1}}),
    *({"subject": []}, {"args": []}, {"args": {"a": {}}}, {"args": {"a": [[]]}}, {"advice": None}),
)


@pytest.mark.parametrize(
    ("document", "good", "dropped"),
    [
        ([], {}, 1),
        ({"hosts": []}, {}, 1),
        ({"hosts": {"A": 5, "B": None}}, {"hosts": {"B": None}}, 1),
        ({"hosts": {"A": {"nics": {}}}}, {"hosts": {}}, 1),
        ({"rates": {"A": {"eth0": [1]}}}, {"rates": {}}, 1),
        ({"rates": {"A": {"eth0": [1, float("nan")]}}}, {"rates": {}}, 1),
        ({"counters": {"a": 1, "b": True, "c": 10**400}}, {"counters": {"a": 1}}, 2),
        ({"events": [1, {"seq": 1, "time_s": 2, "text": "x"}]}, None, 1),
        *(
            ({"events": [{"seq": 1, "time_s": 2, "text": "x", **odd}]}, {"events": []}, 1)
            for odd in ODD_SAID
        ),
        ({"tokens": {"t": {"hash": "x", "role": "admin"}}}, {"tokens": {}}, 1),
        ({"tokens": {"t": token_document("x", "root")}}, {"tokens": {}}, 1),  # type: ignore[arg-type]
        ({"strange": {}}, {}, 1),
    ],
)
def test_entries_of_another_form_are_left_out(document: Any, good: Any, dropped: int) -> None:
    found, number = checked(document)
    assert number == dropped
    if good is not None:
        assert found == good


# ---- The guard


def test_every_answer_has_the_headers_that_protect_browsers() -> None:
    async def ask() -> None:
        async with serving(FakeFeed()) as client:
            for path in ("/metrics", "/api/v1/hosts", "/nothing"):
                answer = await client.get(path, headers=bearer("viewer"))
                assert answer.status_code == (404 if path == "/nothing" else 200)
                assert answer.headers["x-content-type-options"] == "nosniff", path
                assert answer.headers["x-frame-options"] == "DENY"
                assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
                assert "access-control-allow-origin" not in answer.headers
                assert "strict-transport-security" not in answer.headers

    run(ask())


async def anything(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers everything."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def guarded(**settings: Any) -> httpx.AsyncClient:
    """A client of a guard."""
    guard = Guard(anything, WebSettings(**settings))
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=guard), base_url="http://127.0.0.1:8420"
    )


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("127.0.0.1:8420", True),
        ("localhost:8420", True),
        ("LOCALHOST", True),
        ("[::1]:8420", True),
        ("127.0.0.1:9999", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example:8420", False),
        ("user@127.0.0.1", False),
        ("127.0.0.1/evil", False),
        ("[::1", False),
        ("", False),
        ("192.0.2.7", False),
    ],
)
def test_a_name_of_somebody_else_is_refused(host: str, good: bool) -> None:
    async def ask() -> int:
        async with guarded() as client:
            return (await client.get("/metrics", headers={"Host": host})).status_code

    assert run(ask()) == (200 if good else 421)


def test_further_names_must_be_given() -> None:
    async def ask(name: str, **settings: Any) -> int:
        async with guarded(require_tokens=True, **settings) as client:
            headers = {"Host": name}
            return (await client.get("/metrics", headers=headers)).status_code

    assert run(ask("web.example", host_names=("Web.Example",))) == 200
    assert run(ask("other.example", host_names=("web.example",))) == 421
    assert run(ask("other.example", host="0.0.0.0")) == 200
    assert run(ask("other.example", host="0.0.0.0", host_names=("web.example",))) == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://127.0.0.1:8420"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_pages_of_other_origins_change_nothing(headers: dict[str, str], status: int) -> None:
    async def ask() -> int:
        async with guarded() as client:
            return (await client.post("/metrics", headers=headers)).status_code

    assert run(ask()) == status


@pytest.mark.parametrize(
    ("headers", "good"),
    [
        ({"host": "127.0.0.1:8420", "origin": "http://127.0.0.1:8420"}, True),
        ({"host": "127.0.0.1:8420"}, True),
        ({"host": "127.0.0.1:8420", "origin": "http://evil.example"}, False),
        ({"host": "evil.example", "origin": "http://evil.example"}, False),
        ({"host": "127.0.0.1:8420", "origin": "http://[bad"}, False),
    ],
)
def test_a_page_of_another_origin_opens_no_websocket(headers: dict[str, str], good: bool) -> None:
    sent: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    scope = {
        "type": "websocket",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    run(Guard(app, WebSettings())(scope, receive, send))
    assert sent == ["websocket.accept" if good else "websocket.close"]


def test_a_body_that_is_too_long_is_refused() -> None:
    async def ask() -> None:
        async with guarded() as client:
            for length, status in ((MAX_BODY_BYTES, 200), (MAX_BODY_BYTES + 1, 413)):
                body = b"x" * length
                assert (await client.post("/metrics", content=body)).status_code == status

                async def parts(body: bytes = body) -> Any:
                    yield body

                assert (await client.post("/metrics", content=parts())).status_code == status

    run(ask())


# ---- Commands

NONE = "/nonexistent/controller.sock"
NO_ROLE: dict[str, Any] = {"value": "'root'", "choices": ROLES}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--listen", "0.0.0.0:0"], "may be served only with TLS and tokens"),
        (["--listen", "0.0.0.0:0", "--require-tokens"], "may be served only with TLS and tokens"),
        (["--listen", "nonsense"], "--listen nonsense: must be HOST:PORT"),
        (["--tls-cert", "/nonexistent/c"], "--tls-key is missing"),
        (["--host-name", "web.example"], "--host-name: needs --require-tokens"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options: list[str], fault: str) -> None:
    done = ri2n("web", "--socket", NONE, *options)
    assert done.returncode == 2 and fault in done.stderr and done.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_named() -> None:
    reserved, port = reserve_port()
    with reserved:
        reserved.listen()
        listen = f"127.0.0.1:{port}"
        done = ri2n("web", "--socket", NONE, "--listen", listen)
    assert done.returncode == 2 and f"--listen {listen}: Address already in use" in done.stderr


def test_a_child_is_for_this_machine_alone() -> None:
    done = ri2n("controller", "--web", "--web-listen", "0.0.0.0:8420")
    assert done.returncode == 2 and "is for this machine alone" in done.stderr


def test_a_token_is_shown_once_and_only_its_hash_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []

    def call(path: Path, op: Operation[Any], **arguments: Any) -> dict[str, Any]:
        sent.append({"op": op.name, **arguments})
        kept = {"name": "t", "role": arguments["role"], "user": arguments.get("user")}
        return {"token": {**kept, "created_s": 1.0, "expires_s": None}}

    monkeypatch.setattr("ri2n_sdn.cli.token.call", call)
    tokens = set()
    for _ in range(2):
        done = ri2n("token", "add", "t", "--role", "user", "--user", "al", "--socket", NONE)
        token = done.stdout.strip()
        assert done.returncode == 0 and len(token) == 43 and token not in done.stderr
        asked = sent.pop()
        assert asked == {
            **{"op": "token_add", "name": "t", "role": "user", "user": "al"},
            "hash": hash_of(token),
        }
        tokens.add(token)
    assert len(tokens) == 2
    done = ri2n("token", "add", "t", "--role", "admin", "--days", "3", "--json", "--socket", NONE)
    assert hash_of(json.loads(done.stdout)["token"]) == sent.pop()["hash"]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--role", "root"], partial(refusal, "value_not_one_of", "--role", **NO_ROLE)),
        (["--role", "user"], "--user: is missing"),
        (["--role", "admin", "--days", "0"], "--days"),
        (["--role", "admin"], partial(refusal, "controller_absent", path=NONE)),
    ],
)
def test_a_wrong_token_is_refused_in_one_line(
    options: list[str], fault: str | Callable[[], Ri2nError]
) -> None:
    done = ri2n("token", "add", "t", *options, "--socket", NONE)
    assert done.returncode == 2 and done.stdout == ""
    assert (fault if isinstance(fault, str) else str(fault())) in done.stderr
    assert done.stderr.count("\n") == 1
