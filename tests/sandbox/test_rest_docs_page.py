# SPDX-License-Identifier: Apache-2.0
"""The page of the REST operations in a real browser: each operation and each model opens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from ri2n_sdn.web import rest
from tests.unit.web_state import TOKENS, cluster_state

from .browser import CHROMIUM, LONG_MS, FakeController, Visit, browser, serving, until
from .gui_answers import ANSWERS

__all__ = ["browser"]

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="needs Chromium: apt install chromium"
)

expect.set_options(timeout=LONG_MS)

AT_ONCE = 10
"""So many parts are opened at once. The more are open, the longer the viewer takes for each."""

STEPS = pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
"""Each ninth part is tried at each change. The viewer draws all of the page for each click, so that
all parts take minutes on a busy machine."""

OPERATIONS = (".opblock", ".opblock-summary-control", ".opblock-body .responses-wrapper")
MODELS = (
    ".models > div > article",
    ".json-schema-2020-12-accordion",
    ".json-schema-2020-12-body:not(.json-schema-2020-12-body--collapsed)",
)
"""What there is, what is clicked to open and close it, and what is in it while it is open."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("docs")
    with (
        FakeController(folder, cluster_state(), ANSWERS) as controller,
        serving(controller.socket, folder / "web.log") as address,
    ):
        yield address


@pytest.fixture
def page(url: str, browser: Browser) -> Iterator[Page]:
    """The page, which must give no error, no warning and no request to another place."""
    with Visit(browser, url) as visit:
        visit.page.goto(f"{url}/api/v1/docs")
        visit.page.wait_for_selector(".opblock")
        yield visit.page


def opened(page: Page, kind: tuple[str, str, str], step: int) -> int:
    """Open parts of a kind and close them again, some at a time; and return how many there are."""
    each, control, body = kind
    number = page.locator(each).count()
    click = """([each, control, places]) => {
        const parts = document.querySelectorAll(each);
        for (const place of places) parts[place].querySelector(control).click();
    }"""
    are = """([each, body, places, open]) => {
        const parts = document.querySelectorAll(each);
        return places.every((place) => (parts[place].querySelector(body) !== null) === open);
    }"""
    tried = range(0, number, step)
    for first in range(0, len(tried), AT_ONCE):
        places = list(tried[first : first + AT_ONCE])
        for are_open in (True, False):
            page.evaluate(click, [each, control, places])
            until(page, are, [each, body, places, are_open])
    return number


@STEPS
def test_every_operation_opens(page: Page, step: int) -> None:
    made = rest.openapi()["paths"].values()
    assert opened(page, OPERATIONS, step) == sum(map(len, made))


@STEPS
def test_every_model_opens(page: Page, step: int) -> None:
    assert opened(page, MODELS, step) == len(rest.openapi()["components"]["schemas"])


def test_an_operation_is_sent_with_a_token(page: Page, url: str) -> None:
    page.locator(".auth-wrapper .authorize").click()
    page.locator(".auth-container input").fill(TOKENS["viewer"])
    page.locator(".auth-btn-wrapper .authorize").click()
    page.locator(".btn-done").click()
    operation = page.locator("#operations-fabric-list_hosts")
    operation.locator(".opblock-summary-control").click()
    operation.locator(".execute").click()
    answer = operation.locator(".live-responses-table")
    expect(answer).to_contain_text('"name": "h0001"')
    expect(operation.locator(".curl-command")).to_contain_text(f"{url}/api/v1/hosts")
    expect(operation.locator(".curl-command")).to_contain_text("Authorization: Bearer")


def test_without_the_viewer_the_page_leads_to_the_document(url: str, browser: Browser) -> None:
    visit = Visit(browser, url)
    visit.page.route("**/swagger-ui*", lambda route: route.abort())
    visit.page.goto(f"{url}/api/v1/docs")
    expect(visit.page.locator("#note a")).to_have_attribute("href", "openapi.json")
    visit.context.close()
    assert not [trouble for trouble in visit.troubles if trouble.startswith("error")]
