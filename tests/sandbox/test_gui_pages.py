"""Every page of the GUI in a real browser: no error, no foreign request, usable by everybody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from ri2n_sdn.web.gui.pages import PAGES
from tests.unit.web_state import cluster_state

from .accessible import keyboard_problems, problems, width_problems
from .browser import CHROMIUM, FakeController, Visit, browser, serving, until
from .gui_answers import ANSWERS

__all__ = ["browser"]

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="needs Chromium: apt install chromium"
)

QUICK = ("/", "/login")
"""The pages that are tried each time."""

DEAD = "[id^=net-l].dead"


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


def test_a_dead_link_an_absent_controller_and_its_return(
    controller: FakeController, url: str, browser: Browser, tmp_path: Path
) -> None:
    """A page shows what changes by itself, and says first what is wrong."""
    state = controller.state
    with Visit(browser, url) as visit:
        page = visit.go("/")
        assert page.locator(DEAD).count() == 0
        assert "No problem is known" in page.locator(".banner").inner_text()
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
        assert "look at its cable" in page.locator(".banner").inner_text()
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
        assert page.locator(DEAD).count() == 0
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
        page.wait_for_url("**/login?ended=1")
        assert "anonymous (viewer)" in page.locator("header").inner_text()
        controller.change({"tokens": {"user": tokens["user"]}})
        other.log_in("admin")
        cookies = other.context.cookies()
        assert all(each["httpOnly"] and each["sameSite"] == "Lax" for each in cookies)
        other.page.get_by_role("button", name="Log out").click()
        other.page.wait_for_selector("text=anonymous (viewer)")


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
