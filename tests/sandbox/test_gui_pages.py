# SPDX-License-Identifier: Apache-2.0
"""Every page of the GUI in a real browser: no error, no foreign request, usable by everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from ri2n_sdn.web.gui import PAGES
from tests.unit.web_state import TOKENS, cluster_state

from .accessible import keyboard_problems, problems, width_problems
from .browser import CHROMIUM, LONG_MS, FakeController, Visit, browser, serving, until
from .gui_answers import ANSWERS

__all__ = ["browser"]

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="needs Chromium: apt install chromium"
)

expect.set_options(timeout=LONG_MS)

QUICK = ("/", "/login")
"""The pages that are tried each time."""

DEAD = "[id^=net-l].dead"

HOSTILE = (
    '<img src=x onerror="window.hacked=1">{{constructor.constructor("window.hacked=2")()}}'
    "${window.hacked=3}`</script><script>window.hacked=4</script>'\"\\"
)
NAME = re.compile("h0001|eth0|n0|s0|alice|j1|r1")


def pages(*left_out: str) -> list[Any]:
    """All paths, those that take time with a mark."""
    paths = [*(page.path for page in PAGES), "/login"]
    return [
        pytest.param(path, marks=() if path in QUICK else pytest.mark.long)
        for path in paths
        if path not in left_out
    ]


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeController]:
    with FakeController(tmp_path_factory.mktemp("gui"), cluster_state(), ANSWERS) as made:
        yield made


@pytest.fixture(scope="module")
def url(controller: FakeController) -> Iterator[str]:
    folder = controller.socket.parent
    with serving(controller.socket, folder / "web.log") as address:
        yield address


@pytest.mark.parametrize("path", pages())
def test_a_page_is_good_for_everybody(url: str, browser: Browser, path: str) -> None:
    with Visit(browser, url, color_scheme="light") as visit:
        page = visit.go(path)
        found = problems(page) + keyboard_problems(page) + width_problems(page)
        page.emulate_media(color_scheme="dark")
        until(page, "document.body.classList.contains('body--dark')")
        assert found + [f"dark: {each}" for each in problems(page)] == []


@pytest.mark.long
@pytest.mark.parametrize("role", ["admin", "user"])
def test_all_pages_are_good_for_who_has_logged_in(url: str, browser: Browser, role: str) -> None:
    with Visit(browser, url, color_scheme="light") as visit:
        visit.log_in(role)
        paths = [page.path for page in PAGES]
        assert visit.page.locator("nav[aria-label=Pages] a").count() == len(paths)
        for path in paths:
            page = visit.go(path)
            assert page.locator("nav a[aria-current=page]").get_attribute("href") == path
            assert (path, problems(page) + width_problems(page)) == (path, [])


def hostile(value: Any) -> Any:
    """A document in which every name of something is hostile, also as a key."""
    if isinstance(value, dict):
        return {hostile(key): hostile(each) for key, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return NAME.sub(lambda found: HOSTILE + found[0], value) if isinstance(value, str) else value


@pytest.mark.long
def test_no_name_is_a_script(browser: Browser, tmp_path: Path) -> None:
    state = hostile(cluster_state(dead=(("h0001", "eth0"),)))
    state["hosts"] = {name: {**host, "ovs": HOSTILE} for name, host in state["hosts"].items()}
    state["controller"] |= {"strategy": HOSTILE, "version": HOSTILE, "waits_because": HOSTILE}
    state["problems"] = {"k": {"severity": "bad", "text": HOSTILE, "advice": HOSTILE, "rank": 0}}
    state["events"] = [{"seq": 1, "time_s": 1.0, "text": f"{HOSTILE} disconnected"}]
    name = quote(HOSTILE)
    paths = [f"{page.path}?host={name}h0001&job={name}j1&src={name}&dst={name}" for page in PAGES]
    with (
        FakeController(tmp_path, state, ANSWERS) as controller,
        serving(controller.socket, tmp_path / "web.log") as url,
        Visit(browser, url) as visit,
    ):
        for path in [*paths, f"/login?next=/{name}"]:
            page = visit.go(path)
            # What has failed is shown in the banner, the last part that comes.
            page.locator(".banner").get_by_text(HOSTILE).first.wait_for()
            page.wait_for_load_state("networkidle")
            assert page.evaluate("window.hacked") is None, path
            assert page.locator("img").count() == 0, path


def test_a_dead_link_an_absent_controller_and_its_return(
    controller: FakeController, url: str, browser: Browser, tmp_path: Path
) -> None:
    """A page shows what changes by itself, and says first what is wrong."""
    state = controller.state
    with Visit(browser, url) as visit:
        page = visit.go("/")
        page.locator(".banner").get_by_text("No problem is known").wait_for()
        assert page.locator(DEAD).count() == 0
        page.evaluate("window.before = document.querySelector('.picture svg')")
        host = "h0002"
        dead = {**state["hosts"][host]}
        dead["nics"] = {**dead["nics"], "eth1": {**dead["nics"]["eth1"], "up": False}}
        trouble = {
            "severity": "bad",
            "text": f"{host}:eth1 has no link",
            "advice": "look at its cable",
            "rank": 0,
        }
        controller.change({"hosts": {host: dead}, "problems": {"k1": trouble}})
        page.wait_for_selector(DEAD, state="attached")
        line = page.locator(DEAD).evaluate("e => getComputedStyle(e).stroke")
        assert line == page.evaluate("getComputedStyle(document.querySelector('.line.bad')).color")
        row = page.get_by_role("button", name=f"host {host}: 1 dead")
        page.locator(".banner").get_by_text("look at its cable").wait_for()
        # The picture was not sent again.
        assert page.evaluate("window.before === document.querySelector('.picture svg')")

        row.press("Enter")
        details = page.locator("#host-details")
        details.get_by_text("dead: no link").wait_for()

        controller.stop()
        page.locator(".banner").get_by_text("The controller is not reachable").wait_for()
        assert page.locator(".banner .line").first.inner_text().startswith("Problem: The contr")
        assert page.locator(DEAD).count() == 1  # What was known is shown still.
        controller.change({"hosts": {host: state["hosts"][host]}, "problems": {"k1": None}})
        controller.start()
        page.locator(".banner").get_by_text("No problem is known").wait_for()
        expect(page.locator(DEAD)).to_have_count(0)  # The picture follows the banner.
        assert page.evaluate("window.before === document.querySelector('.picture svg')")


def test_a_login_with_its_refusal_and_its_end(
    controller: FakeController, url: str, browser: Browser
) -> None:
    with Visit(browser, url) as visit, Visit(browser, url) as other:
        page = visit.go("/login?next=/explain")
        page.get_by_label("Token").fill("x" * 43)
        page.get_by_role("main").get_by_role("button", name="Log in").press("Enter")
        page.get_by_role("alert").get_by_text("not known").wait_for()
        visit.log_in("user")
        assert "user (user)" in page.locator("header").inner_text()
        tokens = controller.state["tokens"]
        controller.change({"tokens": {"user": None}})
        page.wait_for_url(re.compile(r"/login\?ended=1&next=/$"))
        assert "anonymous (viewer)" in page.locator("header").inner_text()
        controller.change({"tokens": {"user": tokens["user"]}})
        other.log_in("admin")
        cookies = other.context.cookies()
        assert all(each["httpOnly"] and each["sameSite"] == "Lax" for each in cookies)
        other.page.get_by_role("button", name="Log out").click()
        other.page.wait_for_selector("text=anonymous (viewer)")


TOKEN_IN_ADDRESS = f"/login#token={TOKENS['admin']}"


def test_the_field_of_the_token_has_the_focus_and_an_address_logs_nobody_in(
    url: str, browser: Browser
) -> None:
    """A link that somebody sends must not make others log in as himself."""
    with Visit(browser, url) as visit:
        page = visit.go(TOKEN_IN_ADDRESS)
        until(page, "document.activeElement.id === 'token'")
        assert page.get_by_label("Token").input_value() == ""
        assert "anonymous (viewer)" in page.locator("header").inner_text()


def test_in_a_demo_the_address_logs_in_and_leaves_no_token_behind(
    controller: FakeController, browser: Browser, tmp_path: Path
) -> None:
    options = ("--demo", str(tmp_path / "demo.sock"))
    with serving(controller.socket, tmp_path / "web.log", *options) as demo:
        with Visit(browser, demo) as visit:
            page = visit.page
            page.goto(f"{demo}{TOKEN_IN_ADDRESS}")
            page.wait_for_selector("text=Log out")
            assert "admin (admin)" in page.locator("header").inner_text()
            assert page.url == f"{demo}/"
            # The login page is in the history only if it was loaded whole before it was left.
            history = visit.context.new_cdp_session(page).send("Page.getNavigationHistory")
            addresses = [entry["url"] for entry in history["entries"]]
            assert addresses[-1] == f"{demo}/"
            assert not [address for address in addresses if TOKENS["admin"] in address]
            page.goto(f"{demo}/login")
            until(page, "document.activeElement.id === 'token'")
        with Visit(browser, demo) as visit:
            visit.page.goto(f"{demo}/login#token=wrong")
            visit.page.get_by_role("alert").get_by_text("not known").wait_for()


def test_what_is_made_anew_keeps_the_focus_and_stays_unfolded(
    controller: FakeController, url: str, browser: Browser
) -> None:
    def trouble(rank: int, text: str, **subject: str) -> dict[str, Any]:
        about = {"code": "host_away", "subject": subject, "args": {}, "severity": "bad"}
        return {**about, "text": text, "advice": "", "rank": rank}

    names = sorted(controller.state["hosts"])
    problems = {
        host: trouble(rank, f"{host} is away", host=host) for rank, host in enumerate(names)
    }
    with Visit(browser, url) as visit:
        page = visit.go("/")
        try:
            controller.change({"problems": problems})
            page.get_by_text("1 more problem").click()
            link = page.get_by_role("link", name=f"Show host {names[-1]}")
            link.focus()
            page.evaluate("window.before = document.activeElement")
            news = {"new": trouble(0, "something else"), names[0]: None}
            controller.change({"problems": news})
            page.get_by_text("something else").wait_for()
            assert page.evaluate("!window.before.isConnected"), "the banner was made anew"
            expect(link).to_be_visible()
            expect(link).to_be_focused()
            link.press("Enter")
            page.get_by_role("heading", name=f"Host {names[-1]}").wait_for()
        finally:
            controller.change({"problems": dict.fromkeys((*names, "new"))})
        page.get_by_text("No problem is known").wait_for()


def test_a_job_is_begun_with_few_fields_and_the_keyboard(
    controller: FakeController, url: str, browser: Browser
) -> None:
    def begin(request: dict[str, Any]) -> dict[str, Any]:
        return {"job": {**request["job"], "state": "waiting", "why": "no host has begun it yet"}}

    controller.answers["job_begin"] = begin
    with Visit(browser, url) as visit:
        visit.log_in("admin")
        page = visit.go("/jobs")
        page.get_by_role("button", name="Begin a job").press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_label("Hosts")).to_be_focused()
        expect(dialog.get_by_label("Name", exact=True)).to_have_value("job-1")
        labels = dialog.locator("label:visible").all_inner_texts()
        assert [label.split("\n")[0] for label in labels] == [
            *("Hosts", "Ends", "User", "Name", "Policy")
        ]
        page.keyboard.type("h0001,h0002")
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_have_text("User: is missing")
        user = dialog.get_by_label("User", exact=True)
        expect(user).to_be_focused()
        expect(user).to_have_attribute("aria-invalid", "true")
        page.keyboard.type("nobody-at-all")
        page.keyboard.press("Enter")
        expect(dialog.get_by_label("Uid")).to_be_focused()
        assert problems(page) == []
        user.fill("root")
        dialog.get_by_text("The same as a command").click()
        command = "ri2n job begin job-1 --hosts h0001,h0002 --user root"
        expect(dialog.locator("code")).to_have_text(command)
        user.press("Enter")
        dialog.wait_for(state="detached")
        assert controller.asked[-1]["job"] == {
            **{"id": "job-1", "hosts": ["h0001", "h0002"], "user": "root", "uid": 0},
            "policy": "shared",
        }


def test_without_tokens_a_stranger_sees_nothing(
    controller: FakeController, browser: Browser, tmp_path: Path
) -> None:
    with (
        serving(controller.socket, tmp_path / "web.log", "--require-tokens") as closed,
        Visit(browser, closed) as visit,
    ):
        page = visit.go("/explain?src=h0001")
        assert page.url.startswith(f"{closed}/login?needed=1&next=/explain")
        assert page.locator(".banner, nav, svg.net").count() == 0
        page.get_by_label("Token").fill("v" * 43)
        page.get_by_label("Token").press("Enter")
        page.wait_for_url("**/explain?src=h0001")
        assert page.get_by_label("From host").input_value() == "h0001"
