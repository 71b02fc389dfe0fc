# SPDX-License-Identifier: Apache-2.0
"""The GUI of a real controller: a link that fails turns red, and its way is explained."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from ri2n_lab.cluster.sandbox import Sandbox, execute
from tests.waiting import wait_until

from .browser import CHROMIUM, Visit, browser, serving
from .declarations import tell_addresses
from .test_trunk import dead_port

__all__ = ["browser"]

pytestmark = [
    pytest.mark.long,  # test_gui_pages.py has a quick one, without a real controller
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt install chromium"),
]

HOSTS = ("A", "B", "C")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A controller as a user starts it, with three hosts of two NICs."""
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}) as made:
        made.spawn = execute
        for number, host in enumerate(HOSTS, 1):
            tell_addresses(made, host, f"10.77.0.{number}", f"fd77::{number}")
        made.start_controller(strategy="max_min")
        made.wait_settled()
        yield made
        assert "Traceback" not in made.log()


def test_a_link_that_fails_turns_red_and_heals(
    sandbox: Sandbox, browser: Browser, tmp_path: Path
) -> None:
    """How long it took is printed. It is not asserted, because a busy machine may take longer."""
    with (
        serving(sandbox.socket, tmp_path / "web.log") as url,
        Visit(browser, url) as visit,
        Visit(browser, url) as other,
    ):
        page = visit.go("/")
        page.locator(".banner").get_by_text("No problem is known").wait_for()
        assert page.locator("[id^=net-l]").count() == 2 * len(HOSTS)
        assert page.locator("[id^=net-l].dead").count() == 0
        with dead_port(sandbox, "B", 1):
            began_s = time.monotonic()
            page.wait_for_selector("[id^=net-l].dead", state="attached")
            print(f"red after {time.monotonic() - began_s:.2f} s")
            dead = page.locator("[id^=net-l].dead")
            assert dead.count() == 1
            row = page.get_by_role("button", name="host B: 1 dead")
            row.click()
            assert "B-e1" in page.locator("#host-details tr", has_text="dead").inner_text()
            page.locator(".banner .line.bad, .banner .line.warning").first.wait_for()

            way = other.go("/explain?src=A&dst=B&protocol=tcp&sport=4000&dport=80")
            answer = way.get_by_role("region", name="The answer")
            answer.get_by_text("A A-e0 → network").wait_for()
            assert way.locator("[id^=way-l].way").count() == 2
            assert way.locator("[id^=way-r].way").count() == 2
        page.locator(".banner").get_by_text("No problem is known").wait_for()
        page.wait_for_selector("[id^=net-l].dead", state="detached")
        # The wrong question is answered in the controller's words.
        way.get_by_label("To host").fill("nobody")
        way.get_by_role("button", name="Explain").click()
        answer.get_by_text("nobody").locator("visible=true").first.wait_for()


def test_of_several_addresses_the_page_asks_for_the_one_that_is_meant(
    sandbox: Sandbox, browser: Browser, tmp_path: Path
) -> None:
    tell_addresses(sandbox, "B", "10.77.0.2", "10.78.0.2")
    wait_until(
        lambda: (
            sandbox.ask("status")["state"]["hosts"]["B"]["addresses"] == ["10.77.0.2", "10.78.0.2"]
        ),
        "the controller does not read them",
    )
    with serving(sandbox.socket, tmp_path / "web.log") as url, Visit(browser, url) as visit:
        page = visit.go("/explain?src=A&dst=B&protocol=tcp&sport=4000&dport=80")
        said = page.get_by_role("alert").filter(has_text="10.77.0.2, 10.78.0.2")
        said.get_by_text("destination address").wait_for()
        page.get_by_label("Destination address").fill("10.78.0.2")
        page.get_by_role("button", name="Explain").click()
        answer = page.get_by_role("region", name="The answer")
        answer.get_by_text("tcp 10.77.0.1:4000 -> 10.78.0.2:80", exact=True).wait_for()
        assert "dst_ip=10.78.0.2" in page.url
