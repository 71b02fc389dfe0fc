# SPDX-License-Identifier: Apache-2.0
"""Tests of what all pages of the GUI share: markup, the banner, logins, the telling of changes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from fastapi import Request
from nicegui import Client, ui

from ri2n_sdn.contract.documents import TokenEntry
from ri2n_sdn.contract.operations import JOB_LIST
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.contract.sample import OLD_SAMPLE_S
from ri2n_sdn.contract.units import ago_text
from ri2n_sdn.web.age import Age, age_of
from ri2n_sdn.web.auth import Auth, hash_of
from ri2n_sdn.web.gui import entrance as entrances
from ri2n_sdn.web.gui import session as sessions
from ri2n_sdn.web.gui.banner import MAX_SHOWN, banner
from ri2n_sdn.web.gui.entrance import Entrance, no_such_page, refusal
from ri2n_sdn.web.gui.frame import age_line
from ri2n_sdn.web.gui.login import form, own_path
from ri2n_sdn.web.gui.markup import Markup, plain, tag, text
from ri2n_sdn.web.gui.session import (
    Page,
    Session,
    Ticker,
    begin_login,
    end_login,
    who_of_login,
)
from ri2n_sdn.web.settings import WebSettings
from ri2n_sdn.web.shape import EMPTY
from tests.unit.web_state import state_of

ENDED = "/login?ended=1&next=/x%3Fhost%3Da%2526b"
HOSTILE = "<img src=x onerror=alert(1)>\"'&"


# ---- Markup


def test_what_is_no_markup_is_escaped_everywhere() -> None:
    made = tag("p", HOSTILE, tag("b", HOSTILE), title=HOSTILE)
    assert "<img" not in made and made.count("&lt;img") == 3
    assert '"' not in made.removeprefix('<p title="').split('">')[0]


def test_no_text_turns_the_direction_of_writing_round() -> None:
    assert text("a\u202egpj.exe") == "a\ufffdgpj.exe" and plain("\u2067x") == "\ufffdx"
    assert text("שלום") == "שלום" and plain(7) == 7


def test_markup_is_not_escaped_again() -> None:
    assert text("<", tag("b", "x"), Markup("<i>")) == "&lt;<b>x</b><i>"


def test_attributes_that_are_none_or_false_are_left_out() -> None:
    made = tag("input", required=True, disabled=False, list=None, aria_label="x", for_="y", name=1)
    assert made == '<input required aria-label="x" for="y" name="1">'


# ---- The banner


def a_problem(rank: int, severity: str = "bad") -> dict[str, Any]:
    return {"severity": severity, "text": f"trouble {rank}", "advice": f"cure {rank}", "rank": rank}


def banner_of(state: dict[str, Any], **facts: Any) -> str:
    old = facts.pop("old", False)
    age = Age(facts.pop("read_s", 0.0), old)
    return banner(state_of(**state), **{"connected": True, "why": None, "age": age} | facts)


def test_the_worst_is_first_and_the_rest_unfolds() -> None:
    ranks = [4, 0, 3, 1, 2]
    said = banner_of({"problems": {str(rank): a_problem(rank) for rank in ranks}})
    places = [said.index(f"trouble {rank}") for rank in range(5)]
    assert places == sorted(places)
    assert places[MAX_SHOWN - 1] < said.index("<details") < places[MAX_SHOWN]
    assert "2 more problems" in said and "cure 4" in said and "No problem" not in said


def test_an_unreachable_controller_comes_before_all_problems() -> None:
    state = {"problems": {"a": a_problem(0)}}
    said = banner_of(state, connected=False, why=f"nobody listens at {HOSTILE}")
    assert said.index("not reachable") < said.index("trouble 0")
    assert "nobody listens at &lt;img" in said and "systemctl status" in said
    assert "how it was at" not in said and "how it was at" in banner_of(
        {"hosts": {"a": {}}}, connected=False, old=True
    )


def test_nobody_knows_whether_a_problem_of_an_old_state_is_there_still() -> None:
    said = banner_of({"problems": {"a": a_problem(0)}}, connected=False, old=True)
    assert "Was a problem:</strong> <span>trouble 0" in said
    assert said.count("Problem:") == 1, "the one that the controller is away"


def test_a_controller_that_is_there_and_reads_nothing_is_not_well() -> None:
    said = banner_of({"hosts": {"a": {}}}, old=True, read_s=1_795_730_000.0)
    assert "read no counters since 2026-11-26 21:53:20 UTC" in said and "No problem" not in said
    waits = {"waits_because": "the other has the lock"}
    said = banner_of({"controller": waits}, old=True)
    assert "not in charge" in said and "read no counters" not in said, "one reason is enough"


def test_what_is_wrong_leads_to_the_page_that_shows_it() -> None:
    state = {
        "hosts": {"h1": {}, "h2": {}},
        "jobs": {"j1": {}},
        "problems": {
            problem.id: {**problem.document(), "rank": rank}
            for rank, problem in enumerate(
                [
                    Problem("nic_no_link", {"host": "h2", "nic": "eth0"}),
                    Problem("job_refused", {"job": "j1"}, {"why": "h1 has no lane"}),
                    Problem("job_refused", {"job": "h1"}, {"why": "h1 is the name of a host, too"}),
                ]
            )
        },
    }
    said = banner_of(state)
    assert re.findall(r'<a href="([^"]+)">([^<]+)</a>', said) == [
        ("/?host=h2", "Show host h2"),
        ("/jobs?search=j1", "Show job j1"),
    ]


def test_times_say_their_zone() -> None:
    said = banner_of({"hosts": {"a": {}}}, connected=False, old=True, read_s=1_795_730_000.0)
    assert "how it was at 2026-11-26 21:53:20 UTC" in said


def test_before_the_first_connection_nothing_is_said_of_old_data() -> None:
    assert "how it was" not in banner_of({}, connected=False)


def test_one_who_waits_says_why() -> None:
    said = banner_of({"controller": {"waits_because": "the other has the lock"}})
    assert "not in charge: the other has the lock" in said


def test_all_is_well_only_when_it_is() -> None:
    state = {"hosts": {"a": {}, "b": {}}, "networks": {"n": {}}, "controller": {"strategy": "x"}}
    assert "No problem is known. 2 hosts, 1 network, strategy x." in banner_of(state)
    assert "waits for hosts" in banner_of({})


# ---- Ages


class Told(NamedTuple):
    """What a feed knows, as `age_of` needs it."""

    state: Any
    connected: bool
    heard_s: float | None


def told(connected: bool = True, hosts: bool = True, **controller: Any) -> Told:
    state = state_of(controller=controller, hosts={"A": {"connected": hosts}})
    return Told(state, connected, 990.0)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (told(sampled_s=995.0), Age(995.0, False)),
        (told(False, sampled_s=995.0), Age(995.0, True)),
        (told(sampled_s=999.0 - OLD_SAMPLE_S), Age(999.0 - OLD_SAMPLE_S, True)),
        # A controller with long rounds is not late yet.
        (told(sampled_s=999.0 - OLD_SAMPLE_S, hbspan_s=4.0), Age(999.0 - OLD_SAMPLE_S, False)),
        # An earlier controller does not say when it has read its counters.
        (told(strategy="max_min"), Age(990.0, False)),
        (told(False, strategy="max_min"), Age(990.0, True)),
        # While all hosts are away there is nothing to read.
        (told(hosts=False, sampled_s=500.0), Age(500.0, False)),
        (told(False, hosts=False, sampled_s=500.0), Age(500.0, True)),
        # Nothing is known, so nothing is old.
        (Told(EMPTY, False, None), Age(None, False)),
    ],
)
def test_figures_are_old_when_there_are_no_newer_ones(known: Told, expected: Age) -> None:
    assert age_of(known, 1000.0) == expected


def test_the_age_of_a_page_in_words() -> None:
    now_s = time.time()
    assert "Figures read <time" in age_line(now_s - 2, old=False)
    said = age_line(now_s - 125, old=True)
    assert said.startswith("As of <time") and ">2 min ago</time>" in said
    assert age_line(None, old=False) == ""


@pytest.mark.parametrize(
    ("age_s", "said"),
    [
        *((-3.0, "now"), (0.9, "now"), (1.0, "1 s ago"), (59.9, "59 s ago"), (60.0, "1 min ago")),
        *((7199.0, "1 h ago"), (86_400.0, "1 d ago"), (1e9, "11,574 d ago")),
    ],
)
def test_how_long_ago_has_one_unit(age_s: float, said: str) -> None:
    assert ago_text(age_s) == said


# ---- The login


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("/jobs?id=3", "/jobs?id=3"),
        *(
            (bad, "/")
            for bad in (None, "", "jobs", "//evil.org/x", "https://evil.org", "/\\evil.org")
        ),
        *((bad, "/") for bad in ("/\t/evil.org", "javascript:alert(1)", "/x\r\nSet-Cookie: a=b")),
    ],
)
def test_a_login_leads_to_this_site_alone(asked: object, expected: str) -> None:
    assert own_path(asked) == expected


def test_the_form_says_what_happened_and_escapes_where_it_leads() -> None:
    made = form({"failed": "1", "next": f"/{HOSTILE}"})
    assert "not known" in made and "has ended, because" not in made and "<img" not in made


class Source:
    """Where tokens come from, as Auth wants it."""

    known = connected = True
    heard_s: float | None = None
    seq = 1

    def __init__(self) -> None:
        self.tokens: dict[str, TokenEntry] = {
            "ann": {"hash": hash_of("s3cret"), "role": "user", "user": "ann", "expires_s": None}
        }
        self.change = asyncio.Event()
        self.state = EMPTY

    async def changed(self, after: int, timeout_s: float) -> int:
        if after == self.seq:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.change.wait(), timeout_s)
        self.change.clear()
        return self.seq

    def next(self) -> None:
        self.seq += 1
        self.change.set()


def test_a_login_lasts_as_long_as_its_token() -> None:
    source = Source()
    auth = Auth(cast(Any, source), WebSettings())
    store: dict[str, Any] = {}
    assert begin_login(auth, store, "wrong") is None and store == {}
    number = begin_login(auth, store, "s3cret")
    assert "s3cret" not in str(store)
    who = who_of_login(auth, store, number)
    assert who is not None and (who.name, who.role, who.user) == ("ann", "user", "ann")
    source.tokens["ann"]["role"] = "viewer"
    assert who_of_login(auth, store, number).role == "viewer"  # type: ignore[union-attr]
    source.tokens["ann"]["hash"] = hash_of("another of the same name")
    assert who_of_login(auth, store, number) is None


def test_a_login_needs_the_number_and_a_logout_counts_for_all_tabs() -> None:
    auth = Auth(cast(Any, Source()), WebSettings())
    store: dict[str, Any] = {}
    first = begin_login(auth, store, "s3cret")
    number = begin_login(auth, store, "s3cret")
    assert [who_of_login(auth, store, each) for each in (None, "", "x", "\udcff", first)] == [
        None
    ] * 5
    assert who_of_login(auth, store, number) is not None
    end_login(store)
    end_login(store)
    assert who_of_login(auth, store, number) is None


def test_a_login_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = Auth(cast(Any, Source()), WebSettings())
    store: dict[str, Any] = {}
    number = begin_login(auth, store, "s3cret")
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + sessions.LOGIN_S)
    assert who_of_login(auth, store, number) is None


# ---- The telling of changes


def a_session(
    source: Source,
    ticker: Ticker,
    store: dict[str, Any] | None = None,
    number: str | None = None,
) -> Session:
    auth = Auth(cast(Any, source), WebSettings())
    with Client(ui.page("")) as client:
        client.tab_id = "here"  # The browser is connected.
        return Session(
            source,  # type: ignore[arg-type]
            *(auth, ticker, client, "/x", {"host": "a&b", "job": ""}, ()),
            store=store or {},
            number=number,
        )


async def until(condition: Any) -> None:
    deadline_s = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.001)


def test_pages_are_told_of_changes_while_they_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PAUSE_S", 0.001)

    async def run() -> None:
        source = Source()
        ticker = Ticker(source)  # type: ignore[arg-type]
        told: list[tuple[str, int]] = []
        pages = {name: a_session(source, ticker) for name in "abc"}
        for name, page in pages.items():

            def callback(name: str = name) -> None:
                told.append((name, source.seq))
                if name == "a":
                    raise ValueError("a broken page")

            page.live(callback)
        await asyncio.sleep(0.01)
        assert told == []  # Nothing has changed yet.
        source.next()
        await until(lambda: len(told) == 3)
        pages["b"].client.tab_id = None  # Its browser is away,
        source.next()
        await until(lambda: len(told) == 5)
        pages["b"].client.tab_id = "here"  # and is back.
        await pages["b"].refresh()
        pages["c"].client.delete()
        source.next()
        await until(lambda: len(told) == 8)
        assert [name for name, _ in told] == [*"abc", *"ac", "b", *"ab"]
        assert [seq for _, seq in told] == [2, 2, 2, 3, 3, 3, 4, 4]
        for name in "ab":
            pages[name].client.delete()
        source.next()
        await until(lambda: ticker.idle)

    asyncio.run(run())


def test_a_host_that_changes_is_told_at_once_and_rates_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "PAUSE_S", 3600.0)

    async def run() -> None:
        source = Source()
        told: list[int] = []
        page = a_session(source, Ticker(source))  # type: ignore[arg-type]
        page.live(lambda: told.append(source.seq))
        await asyncio.sleep(0)
        for _ in range(3):
            source.state = {**source.state, "hosts": {}}
            source.next()
            await until(lambda: told and told[-1] == source.seq)
        source.state = {**source.state, "rates": {}}
        source.next()
        for _ in range(100):
            await asyncio.sleep(0)
        assert told == [2, 3, 4]
        page.client.delete()

    asyncio.run(run())


def test_a_page_whose_login_has_ended_turns_to_the_login() -> None:
    async def run() -> None:
        source = Source()
        store: dict[str, Any] = {}
        number = begin_login(Auth(cast(Any, source), WebSettings()), store, "s3cret")
        page = a_session(source, Ticker(source), store, number)  # type: ignore[arg-type]
        opened: list[str] = []
        page.client.open = lambda target, new_tab=False: opened.append(target)  # type: ignore
        told: list[int] = []
        page.live(lambda: told.append(source.seq))
        source.next()
        await page.refresh()
        assert told == [2] and page.who.name == "ann"
        del source.tokens["ann"]
        source.next()
        await page.refresh()
        assert told == [2] and opened == [ENDED] and page.who.role == "viewer"
        assert await page.ask(JOB_LIST) is None
        page.client.delete()

    asyncio.run(run())


def test_no_page_waits_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that has asked a controller which does not answer."""
    monkeypatch.setattr(sessions, "PAUSE_S", 0.001)

    async def run() -> None:
        source = Source()
        ticker = Ticker(source)  # type: ignore[arg-type]
        slow, quick = (a_session(source, ticker) for _ in range(2))
        answered, told, asked = asyncio.Event(), list[int](), list[int]()

        async def ask() -> None:
            asked.append(source.seq)
            await answered.wait()

        slow.live(ask)
        quick.live(lambda: told.append(source.seq))
        for expected in ([2], [2, 3]):
            source.next()
            await until(lambda expected=expected: told == expected)
        assert asked == [2]
        answered.set()
        await until(lambda: asked == [2, 3])
        for page in (slow, quick):
            page.client.delete()

    asyncio.run(run())


def test_a_page_whose_login_has_ended_takes_no_events() -> None:
    """A browser may send them by hand, and no news may come that would turn it to the login."""

    async def run() -> None:
        source = Source()
        store: dict[str, Any] = {}
        number = begin_login(Auth(cast(Any, source), WebSettings()), store, "s3cret")
        page = a_session(source, Ticker(source), store, number)  # type: ignore[arg-type]
        taken, opened = list[dict[str, Any]](), list[str]()
        page.client.open = lambda target, new_tab=False: opened.append(target)  # type: ignore
        setattr(page.client, "handle_event", taken.append)  # noqa: B010 (mypy: a method)
        Entrance().let_in(page)
        page.client.handle_event({"id": 1})
        end_login(store)
        page.client.handle_event({"id": 2})
        del source.tokens["ann"]
        page.client.handle_event({"id": 3})
        assert taken == [{"id": 1}] and opened == [ENDED] * 2
        page.client.delete()

    asyncio.run(run())


def test_pages_without_a_browser_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrances, "MAX_WAITING", 2)

    async def run() -> None:
        source = Source()
        entrance, ticker = Entrance(), Ticker(source)  # type: ignore[arg-type]
        pages = [a_session(source, ticker) for _ in range(5)]
        for number, page in enumerate(pages):
            entrance.let_in(page)
            if number == 1:  # Its browser connects.
                for handler in page.client.connect_handlers:
                    page.client.safe_invoke(handler)
        assert [page.client.is_deleted for page in pages] == [True, False, True, False, False]
        for page in pages:
            if not page.client.is_deleted:
                page.client.delete()

    asyncio.run(run())


def test_an_address_gets_so_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrances, "PAGES_PER_S", 0.001)
    monkeypatch.setattr(entrances, "BURST", 3.0)
    entrance = Entrance()

    def waits(address: str) -> bool:
        return bool(entrance.wait_s(Request({"type": "http", "client": (address, 1)})))

    assert [waits("192.0.2.1") for _ in range(5)] == [*3 * [False], *2 * [True]]
    assert not waits("192.0.2.2")
    answer = refusal(7)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    nothing = no_such_page(Request({"type": "http"}), ValueError(HOSTILE))
    assert nothing.status_code == 404 and b"<img" not in nothing.body


def test_a_page_is_sent_though_its_content_is_not_there_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entrances, "BUILD_S", 0.01)

    async def run() -> None:
        source = Source()
        session = a_session(source, Ticker(source))  # type: ignore[arg-type]
        answered = asyncio.Event()

        async def build(session: Session) -> None:
            ui.label("first")
            await answered.wait()
            ui.label("later")

        def broken(session: Session) -> None:
            raise ValueError("broken")

        def texts() -> list[str]:
            known = session.client.elements.values()
            return [each.text for each in known if isinstance(each, ui.label)]

        await Entrance.build(Page("/x", "X", "x", build), session)
        assert texts() == ["first"]
        answered.set()
        await until(lambda: texts() == ["first", "later"])
        with pytest.raises(ValueError, match="broken"):
            await Entrance.build(Page("/x", "X", "x", broken), session)
        session.client.delete()

    asyncio.run(run())


def test_without_tokens_everybody_here_may_look_and_otherwise_nobody() -> None:
    source = Source()
    for address, required, expected in (
        ("127.0.0.1", False, True),
        ("127.0.0.1", True, False),
        ("192.0.2.7", False, False),
    ):
        auth = Auth(cast(Any, source), WebSettings(require_tokens=required))
        client: Any = SimpleNamespace(ip=address)
        feed: Any = source
        page = Session(feed, auth, Ticker(feed), client, "/x", {}, ())
        assert page.allowed is expected
