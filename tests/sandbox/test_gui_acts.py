# SPDX-License-Identifier: Apache-2.0
"""What people do in the GUI, in a real browser: roles, strategy, jobs, tokens, tables, charts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from ri2n_lab.cluster.sandbox import Sandbox
from ri2n_sdn.web.auth import hash_of
from ri2n_sdn.web.gui.listing import AWAY
from tests.unit.test_gui_views import PAIR, parameters
from tests.unit.web_state import TOKENS, cluster_state, event
from tests.waiting import wait_until

from .accessible import problems, width_problems
from .browser import CHROMIUM, LONG_MS, FakeController, Visit, browser, serving

__all__ = ["browser"]

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="needs Chromium: apt install chromium"
)
expect.set_options(timeout=LONG_MS)

WRITES = re.compile(
    "^(Begin a job|Reserve paths|Add a policy|Set rights|Add a token|Change the strategy"
    "|(Move|End|Remove|Change) .+)$"
)
"""The names of all buttons that change something."""

ALL_ANSWERED = """
() => [...document.querySelectorAll("section.listing")].every((listing) =>
  [...listing.querySelectorAll(".q-table__container, .empty, .refusal")].some((part) =>
    part.checkVisibility()))
"""
"""Whether each table of a page has its rows, says that there are none, or says why not.

A controller that takes long to answer does not keep a page back: its tables come later.
"""

PAGES = ("/traffic", "/jobs", "/events", "/settings")


# ---- A controller that says what a test wants: many hosts, and refusals


def answered_pairs(request: dict[str, Any]) -> dict[str, Any]:
    """130 active pairs of h0001, of which a page is asked for."""
    if request.get("host", "h0001") != "h0001":
        raise ValueError(f"{request['host']}: no such host")
    pairs = [{**PAIR, "src": "h0001", "dst": f"h{number:04d}"} for number in range(2, 132)]
    found = [pair for pair in pairs if request.get("dst", pair["dst"]) == pair["dst"]]
    assert request["limit"] <= 50, "a page of a table is short"
    page = found[request["offset"] : request["offset"] + request["limit"]]
    return {"pairs": page, "total": len(found), "offset": request["offset"]}


def refused(request: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("refused: no lane is free on <n0>")


ANSWERS: dict[str, Any] = {
    "pairs": answered_pairs,
    "parameters": {"parameters": parameters()},
    "job_history": {"jobs": [{**cluster_state()["jobs"]["j1"], "why": "bob has ended it"}]},
    "job_begin": refused,
    "audit": {"entries": []},
}


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeController]:
    state = cluster_state(hosts=1000, jobs=120, dead=(("h0002", "eth1"),))
    folder = tmp_path_factory.mktemp("acts")
    with FakeController(folder, state, ANSWERS) as made:
        yield made


@pytest.fixture(scope="module")
def url(controller: FakeController) -> Iterator[str]:
    with serving(controller.socket, controller.socket.parent / "web.log") as address:
        yield address


def rows_of(page: Page, table: str) -> Locator:
    """The rows of a table, by the name of its part of the page."""
    return page.get_by_role("region", name=table, exact=True).locator("tbody tr")


def writes_of(page: Page) -> list[str]:
    """The names of the buttons that change something, once all tables of the page are there."""
    page.locator("tbody tr").first.wait_for()
    page.wait_for_function(ALL_ANSWERED)
    names = page.get_by_role("button").evaluate_all(
        "all => all.map((e) => e.getAttribute('aria-label') || e.textContent.trim())"
    )
    return [name for name in names if WRITES.match(name)]


def test_each_role_sees_what_it_may_do_and_no_more(
    controller: FakeController, url: str, browser: Browser
) -> None:
    before = len(controller.asked)
    with Visit(browser, url) as visit:
        seen = {path: writes_of(visit.go(path)) for path in ("/jobs", "/settings")}
        assert seen == {"/jobs": [], "/settings": []}, "a viewer changes nothing"
        visit.log_in("user")
        jobs = writes_of(visit.go("/jobs"))
        assert jobs[:1] == ["Begin a job"] and "Reserve paths" in jobs and "End j1" in jobs
        assert not {"End j2", "Move j2", "Add a policy", "Set rights"} & {*jobs}, "j2 is bob's"
        assert writes_of(visit.go("/settings")) == []
        asked = controller.asked[before:]
        assert asked, "the pages have asked the controller"
        assert all(each["as"]["role"] in ("viewer", "user") for each in asked)
    with Visit(browser, url) as visit:
        visit.log_in("admin")
        jobs = writes_of(visit.go("/jobs"))
        assert {"End j1", "End j2", "Add a policy", "Set rights", "Remove r1"} <= {*jobs}
        settings = writes_of(visit.go("/settings"))
        assert {"Change the strategy", "Add a token", "Change hysteresis", "Remove viewer"} <= {
            *settings
        }


@pytest.mark.long
def test_what_a_page_offers_not_is_not_done_when_the_browser_asks_for_it(
    controller: FakeController, url: str, browser: Browser
) -> None:
    with Visit(browser, url) as visit:
        visit.log_in("user")
        page = visit.go("/jobs")
        rows_of(page, "Jobs").first.wait_for()
        asked = len(controller.asked)
        table = page.get_by_role("region", name="Jobs", exact=True).locator(".q-table__container")
        number = int(str(table.get_attribute("id")).removeprefix("c"))
        for args in (["end", "j2"], ["remove", "j1"], ["end"], "end", [["end"], {"a": 1}], None):
            page.evaluate(
                "([number, args]) => getElement(number).$emit('act', args)", [number, args]
            )
        # What is there is done in this way, so the others were not because they are not there.
        page.evaluate("number => getElement(number).$emit('act', ['details', 'j1'])", number)
        page.get_by_role("button", name="End j1", exact=True).click()
        page.get_by_role("dialog").get_by_text("End the job j1?").wait_for()
        expect(page.get_by_role("dialog").filter(has_text="j2")).to_have_count(0)
        wait_until(
            lambda: "job_show" in {each["op"] for each in controller.asked[asked:]},
            "what is there was not done",
        )
        assert "job_end" not in {each["op"] for each in controller.asked[asked:]}


@pytest.mark.long
def test_a_refusal_is_shown_in_the_controllers_own_words(
    controller: FakeController, url: str, browser: Browser
) -> None:
    with Visit(browser, url) as visit:
        visit.log_in("admin")
        page = visit.go("/jobs")
        page.get_by_role("button", name="Begin a job").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Begin it").click()
        expect(dialog.get_by_role("alert")).to_have_text(
            "Hosts: are missing; name them with commas, as n1,n2"
        )
        dialog.get_by_label("Name", exact=True).fill("o1")
        dialog.get_by_label("Hosts").fill("h0001, h0002")
        dialog.get_by_label("User", exact=True).fill("alice")
        dialog.get_by_text("More: rates").click()
        dialog.get_by_label("Uid").fill("20001")
        dialog.get_by_label("Ends").fill("+2h")
        dialog.get_by_role("button", name="Begin it").click()
        expect(dialog.get_by_role("alert")).to_have_text("refused: no lane is free on <n0>")
        order = controller.asked[-1]
        assert (order["op"], order["job"]["hosts"]) == ("job_begin", ["h0001", "h0002"])
        assert order["as"] == {"user": "admin", "uid": None, "role": "admin"}
        assert problems(page) == []
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")


@pytest.mark.long
@pytest.mark.parametrize("path", PAGES)
def test_a_thousand_hosts_come_by_fifty_also_on_a_phone(
    url: str, browser: Browser, path: str
) -> None:
    with Visit(browser, url, viewport={"width": 360, "height": 740}) as visit:
        page = visit.go(path)
        page.locator("tbody tr").first.wait_for()
        tables = page.locator("tbody")
        for number in range(tables.count()):
            assert tables.nth(number).locator("tr").count() <= 50
        assert problems(page) + width_problems(page) == []


@pytest.mark.long
def test_tables_are_searched_ordered_and_turned_over(
    controller: FakeController, url: str, browser: Browser
) -> None:
    with Visit(browser, url) as visit:
        page = visit.go("/traffic")
        hosts = page.get_by_role("region", name="Hosts", exact=True)
        expect(hosts).to_contain_text("1 to 50 of 1,000")
        hosts.get_by_role("button", name="Next page of Hosts").press("Enter")
        expect(hosts).to_contain_text("51 to 100 of 1,000")
        hosts.get_by_label("Search hosts").fill("h099")
        expect(rows_of(page, "Hosts")).to_have_count(10)
        hosts.get_by_label("Search hosts").fill("no such host")
        expect(hosts).to_contain_text("Nothing fits “no such host”.")
        hosts.get_by_label("Search hosts").fill("h0002")
        expect(rows_of(page, "Hosts")).to_contain_text(["1 of 2 work"])
        pairs = page.get_by_role("region", name="Pairs", exact=True)
        expect(pairs).to_contain_text("1 to 50 of 130")
        pairs.get_by_label("Of this host alone").fill("h7")
        expect(pairs.get_by_role("alert")).to_have_text("h7: no such host")
        pairs.get_by_label("Of this host alone").fill("")
        pairs.get_by_role("button", name="Show h0001 h0003").click()
        chosen = page.get_by_role("region", name="The chosen pair")
        expect(chosen).to_contain_text("48 of 64 slots")
        expect(chosen.locator(".chart svg")).to_have_count(2)
        expect(chosen).to_contain_text("h0001 to h0003: weights of the paths")
        assert problems(page) == []


@pytest.mark.long
def test_charts_show_the_last_minutes_and_go_on(
    controller: FakeController, url: str, browser: Browser
) -> None:
    with Visit(browser, url) as visit:
        page = visit.go("/traffic?host=h0001")
        chart = page.locator(".chart svg").first
        expect(chart).to_contain_text("h0001 has sent: rates")
        drawn = chart.inner_html()
        controller.change({"rates": {"h0001": {"eth0": [9e8, 1.0], "eth1": [1e8, 1.0]}}})
        page.get_by_text(re.compile(r"eth0 900 Mbit/s now")).wait_for()
        wait_until(lambda: chart.inner_html() != drawn, "the chart stays as it was")


@pytest.mark.long
def test_events_are_filtered_and_problems_come_first(
    controller: FakeController, url: str, browser: Browser
) -> None:
    news = [
        event(100, "host_disconnected", {"host": "h0001"}),
        event(101, "nic_down", {"host": "h0002", "nic": "eth0"}),
        event(102, "parameter_set_by", parameter="strategy", value="max_min", by="carol"),
    ]
    with Visit(browser, url) as visit:
        page = visit.go("/events")
        expect(rows_of(page, "Problems")).to_have_count(1)
        controller.change({"events": news})
        expect(rows_of(page, "Events").first).to_contain_text("carol has set it")
        events = page.get_by_role("region", name="Events", exact=True)
        events.get_by_label("Host", exact=True).fill("h0002")
        expect(rows_of(page, "Events")).to_have_count(1)
        expect(rows_of(page, "Events")).to_contain_text(["Check its cable"])
        events.get_by_label("Host", exact=True).fill("")
        events.get_by_label("Severity").click()
        page.get_by_role("option", name="Problem").click()
        expect(rows_of(page, "Events")).to_have_count(1)
        expect(rows_of(page, "Events")).to_contain_text(["Run host-status"])


@pytest.mark.long
def test_without_a_controller_pages_say_what_to_do(
    controller: FakeController, url: str, browser: Browser
) -> None:
    with Visit(browser, url) as visit:
        controller.stop()
        try:
            for path in PAGES:
                page = visit.go(path)
                expect(page.locator(".banner")).to_contain_text("The controller is not reachable")
            pairs = visit.go("/traffic").get_by_role("region", name="Pairs", exact=True)
            expect(pairs.get_by_role("alert")).to_have_text(AWAY)
        finally:
            controller.start()
        expect(rows_of(visit.page, "Pairs").first).to_be_visible()


# ---- A real controller


@pytest.fixture(scope="module")
def real() -> Iterator[Sandbox]:
    with Sandbox({"A": ["net1", "net2"], "B": ["net1", "net2"]}) as box:
        box.start_controller(strategy="max_min")
        box.wait_settled(pairs=False)
        for role, text in TOKENS.items():
            user = {"user": "nobody"} if role == "user" else {}
            box.ask("token_add", name=role, role=role, hash=hash_of(text), **user)
        yield box


@pytest.fixture(scope="module")
def live(real: Sandbox) -> Iterator[str]:
    with serving(real.socket, real.folder / "web.log") as address:
        yield address


def test_a_change_of_strategy_is_confirmed_and_reaches_the_controller(
    real: Sandbox, live: str, browser: Browser
) -> None:
    with Visit(browser, live) as visit:
        visit.log_in("admin")
        page = visit.go("/settings")
        page.get_by_label("New strategy").click()
        page.get_by_role("option", name="round_robin").click()
        page.get_by_role("button", name="Change the strategy").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("changes from max_min to round_robin")
        expect(dialog).to_contain_text("2 connected hosts")
        dialog.get_by_role("button", name="Cancel").click()
        dialog.wait_for(state="detached")
        assert real.ask("status", pairs=False)["strategy"] == "max_min", "nothing is done yet"
        page.get_by_role("button", name="Change the strategy").click()
        dialog.get_by_role("button", name="Change to round_robin").click()
        expect(page.get_by_text("round_robin: Each path gets the same share.")).to_be_visible()
        assert real.ask("status", pairs=False)["strategy"] == "round_robin"
        expect(rows_of(page, "Changes").first).to_contain_text("round_robin")
        expect(rows_of(page, "Changes").first).to_contain_text("admin")
        real.ask("strategy", name="max_min")
        expect(page.get_by_text("max_min: Shares follow")).to_be_visible()


@pytest.mark.long
def test_a_parameter_is_changed_in_its_range(real: Sandbox, live: str, browser: Browser) -> None:
    with Visit(browser, live) as visit:
        visit.log_in("admin")
        page = visit.go("/settings")
        page.get_by_role("button", name="Change hysteresis").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("hysteresis", exact=True).fill("2")
        dialog.get_by_role("button", name="Change it").click()
        expect(dialog.get_by_role("alert")).to_contain_text("must be a number from 0 to 0.5")
        dialog.get_by_label("hysteresis", exact=True).fill("0.25")
        dialog.get_by_role("button", name="Change it").click()
        dialog.wait_for(state="detached")
        row = rows_of(page, "Parameters").filter(has_text="hysteresis")
        expect(row).to_contain_text("0.25")
        known = {each["name"]: each["value"] for each in real.ask("parameters")["parameters"]}
        assert known["hysteresis"] == 0.25


@pytest.mark.long
def test_a_job_begins_moves_and_ends_and_is_in_the_history(
    real: Sandbox, live: str, browser: Browser
) -> None:
    with Visit(browser, live) as visit:
        visit.log_in("user")
        page = visit.go("/jobs")
        page.get_by_role("button", name="Begin a job").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("It will be of nobody.")
        dialog.get_by_label("Name", exact=True).fill("g1")
        dialog.get_by_label("Hosts").fill("A,Z")
        dialog.get_by_label("Ends").fill("+2h")
        dialog.get_by_role("button", name="Begin it").click()
        expect(dialog.get_by_role("alert")).to_have_text("hosts: no host Z; known are A, B")
        dialog.get_by_label("Hosts").fill("A,B")
        dialog.get_by_role("button", name="Begin it").click()
        dialog.wait_for(state="detached")
        row = rows_of(page, "Jobs").filter(has_text="g1")
        expect(row).to_contain_text("nobody")
        job = real.ask("job_show", id="g1")["job"]
        assert (job["user"], job["policy"], job["hosts"]) == ("nobody", "shared", ["A", "B"])

        network = sorted(each["id"] for each in real.ask("status", pairs=False)["networks"])[0]
        page.get_by_role("button", name="Move g1").click()
        dialog.get_by_label("Policy", exact=True).click()
        page.get_by_role("option", name="paths:").click()
        dialog.get_by_label("Paths", exact=True).fill(network)
        dialog.get_by_role("button", name="Move it").click()
        dialog.wait_for(state="detached")
        expect(row).to_contain_text(f"paths: {network}")
        assert real.ask("job_show", id="g1")["job"]["paths"] == [network]

        page.get_by_role("button", name="Details g1").click()
        expect(dialog).to_contain_text("an order")
        assert problems(page) == []
        dialog.get_by_role("button", name="Close").click()
        dialog.wait_for(state="detached")

        page.get_by_role("button", name="End g1").click()
        dialog.get_by_role("button", name="End it").click()
        expect(row).to_have_count(0)
        ended = rows_of(page, "Ended jobs").filter(has_text="g1")
        expect(ended).to_contain_text("nobody has ended it")


@pytest.mark.long
def test_paths_are_reserved_policies_named_and_rights_set(
    real: Sandbox, live: str, browser: Browser
) -> None:
    with Visit(browser, live) as visit:
        visit.log_in("admin")
        page = visit.go("/jobs")
        dialog = page.get_by_role("dialog")
        page.get_by_role("button", name="Reserve paths").click()
        dialog.get_by_label("Name", exact=True).fill("r1")
        dialog.get_by_label("Hosts").fill("A,B")
        dialog.get_by_label("User", exact=True).fill("nobody")
        dialog.get_by_label("Begins").fill("+1h")
        dialog.get_by_label("Ends").fill("+2h")
        dialog.get_by_role("button", name="Reserve them").click()
        expect(rows_of(page, "Reservations").filter(has_text="r1")).to_contain_text("to come")
        page.get_by_role("button", name="Add a policy").click()
        dialog.get_by_label("Name", exact=True).fill("p1")
        dialog.get_by_role("button", name="Add it").click()
        expect(rows_of(page, "Policies").filter(has_text="p1")).to_contain_text("shared")
        page.get_by_role("button", name="Set rights").click()
        dialog.get_by_label("User", exact=True).fill("nobody")
        dialog.get_by_label("May reserve paths").click()
        dialog.get_by_role("button", name="Set them").click()
        expect(rows_of(page, "Rights").filter(has_text="nobody")).to_contain_text("yes")
        assert real.ask("rights_list")["rights"][0]["reserve"] is True
        for name, table in (("r1", "Reservations"), ("p1", "Policies"), ("nobody", "Rights")):
            part = page.get_by_role("region", name=table, exact=True)
            part.get_by_role("button", name=f"Remove {name}").click()
            dialog.get_by_role("button", name=re.compile("^Remove (it|them)$")).click()
            expect(rows_of(page, table).filter(has_text=name)).to_have_count(0)
        assert real.ask("rights_list")["rights"] == []
        assert real.ask("reserve_list")["reservations"] == []


@pytest.mark.long
def test_a_token_is_shown_once_and_a_login_ends_with_it(
    real: Sandbox, live: str, browser: Browser
) -> None:
    with Visit(browser, live) as visit, Visit(browser, live) as other:
        visit.log_in("admin")
        page = visit.go("/settings")
        page.get_by_role("button", name="Add a token").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name", exact=True).fill("bob")
        dialog.get_by_label("Days").fill("7")
        dialog.get_by_role("button", name="Add it").click()
        shown = page.get_by_role("dialog", name="The token bob")
        token = shown.get_by_label("Token", exact=True).input_value()
        assert len(token) == 43
        shown.get_by_role("button", name="Close").click()
        shown.wait_for(state="detached")
        assert token not in page.content()
        row = rows_of(page, "Tokens").filter(has_text="bob")
        expect(row).to_contain_text("viewer")

        there = other.go("/login")
        there.get_by_label("Token").fill(token)
        there.get_by_role("main").get_by_role("button", name="Log in").click()
        there.wait_for_selector("text=bob (viewer)")
        page.get_by_role("button", name="Remove bob").click()
        expect(dialog).to_contain_text("logins with it end")
        dialog.get_by_role("button", name="Remove it").click()
        expect(row).to_have_count(0)
        there.wait_for_url(re.compile(r"/login\?ended=1&"))
        assert "bob" not in {each["name"] for each in real.ask("token_list")["tokens"]}
