# SPDX-License-Identifier: Apache-2.0
"""The page of a demo with things to try, and that the product's web process has no such thing."""

from __future__ import annotations

import json
import socketserver
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.unit.web_state import cluster_state

from .accessible import keyboard_problems, problems, width_problems
from .browser import CHROMIUM, LONG_MS, FakeController, Visit, browser, serving
from .gui_answers import ANSWERS

__all__ = ["browser"]

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="needs Chromium: apt install chromium"
)

expect.set_options(timeout=LONG_MS)


class FakeDemo(socketserver.ThreadingUnixStreamServer):
    """A demo's process with two tries; `asked` are the names that were tried."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.asked: list[str] = []
        self.refuses = ""
        super().__init__(str(path), _Handler)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request."""
        if request["op"] == "room":
            on = "cut" in self.asked
            cut = {"name": "cut", "title": "Cut a link", "about": "It is cut.", "on": on}
            job = {"name": "job", "title": "Begin a job", "about": "It begins.", "on": False}
            return {"ok": True, "tries": [{**each, "command": "ri2n demo"} for each in (cut, job)]}
        if self.refuses:
            return {"ok": False, "error": self.refuses}
        self.asked.append(request["name"])
        return {"ok": True, "text": f"done: {request['name']}"}


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """Answer each line."""
        assert isinstance(self.server, FakeDemo)
        for line in self.rfile:
            self.wfile.write(json.dumps(self.server.answer(json.loads(line))).encode() + b"\n")


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeController]:
    """A controller with a cluster."""
    with FakeController(tmp_path_factory.mktemp("gui"), cluster_state(), ANSWERS) as made:
        yield made


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[FakeDemo]:
    """A demo's process."""
    with FakeDemo(tmp_path / "demo.sock") as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def url(controller: FakeController, demo: FakeDemo, tmp_path: Path) -> Iterator[str]:
    """The web process of that demo."""
    options = ("--demo", str(tmp_path / "demo.sock"))
    with serving(controller.socket, tmp_path / "web.log", *options) as address:
        yield address


def test_a_button_does_what_is_to_be_tried_and_then_undoes_it(
    url: str, demo: FakeDemo, browser: Browser
) -> None:
    with Visit(browser, url, color_scheme="light") as visit:
        visit.log_in("admin")
        page = visit.go("/")
        page.get_by_role("link", name="Try", exact=True).click()
        page.get_by_role("heading", name="Try", level=1).wait_for()
        page.get_by_role("button", name="Do it: Cut a link").click()
        page.locator("p[role=status]").get_by_text("done: cut").wait_for()
        page.get_by_role("button", name="Undo it: Cut a link").wait_for()
        assert demo.asked == ["cut"]
        assert problems(page) + keyboard_problems(page) + width_problems(page) == []
        demo.refuses = "something else is being tried"
        page.get_by_role("button", name="Do it: Begin a job").click()
        page.locator("p[role=status]").get_by_text("something else is being tried").wait_for()
        expect(page.get_by_role("button", name="Do it: Begin a job")).to_be_enabled()
        assert demo.asked == ["cut"]


def test_only_an_admin_of_the_demo_may_try_anything(
    url: str, demo: FakeDemo, browser: Browser
) -> None:
    for role in ("", "user"):
        with Visit(browser, url) as visit:
            if role:
                visit.log_in(role)
            page = visit.go("/try")
            page.get_by_text("needs the role admin").wait_for()
            assert page.get_by_role("button", name="Do it").count() == 0
    assert demo.asked == []


def test_a_demo_that_compares_strategies_still_says_so(
    controller: FakeController, browser: Browser, tmp_path: Path
) -> None:
    options = ("--demo", str(tmp_path / "not-there.sock"))
    with (
        serving(controller.socket, tmp_path / "web.log", *options) as address,
        Visit(browser, address) as visit,
    ):
        visit.log_in("admin")
        visit.go("/try").get_by_text("Nothing can be tried yet").wait_for()


def test_without_a_demo_there_is_no_such_page_and_no_such_operation(
    controller: FakeController, tmp_path: Path
) -> None:
    with serving(controller.socket, tmp_path / "web.log") as address:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/try")
        assert refused.value.code == 404
        with urllib.request.urlopen(f"{address}/") as page:
            assert "/try" not in page.read().decode()
        with urllib.request.urlopen(f"{address}/api/v1/openapi.json") as answer:
            document = json.load(answer)
        text = json.dumps([*document["paths"], *document["components"]["schemas"]]).lower()
        assert "demo" not in text and "try" not in text.replace("entry", "").replace("retry", "")


def test_a_demo_adds_nothing_to_rest(controller: FakeController, url: str, tmp_path: Path) -> None:
    def documents(address: str) -> Any:
        with urllib.request.urlopen(f"{address}/api/v1/openapi.json") as answer:
            return json.load(answer)

    with serving(controller.socket, tmp_path / "plain.log") as plain:
        assert documents(url)["paths"].keys() == documents(plain)["paths"].keys()
