# SPDX-License-Identifier: Apache-2.0
"""How many pages browsers may ask for, how long one may take, and what there is in place of one.

A page that is sent is kept here, with all its elements, until its browser connects and goes. So
pages that no browser ever connects to are bounded, and so is how fast an address asks for more.
"""

from __future__ import annotations

import asyncio
import inspect
import logging

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from nicegui import Client

from ri2n_sdn.web.gui.markup import Markup, tag, text
from ri2n_sdn.web.gui.session import Page, Session
from ri2n_sdn.web.rest.limits import Buckets, address_of

__all__ = ["BUILD_S", "MAX_WAITING", "Entrance", "no_such_page", "refusal"]

LOG = logging.getLogger(__name__)

MAX_WAITING = 64
"""So many pages wait for their browsers to connect. Those that wait longest make room for others.

A browser needs a second or two. If its page has gone by then, it loads the page again.
"""

PAGES_PER_S, BURST = 5.0, 100.0
"""An address may ask for so many pages: in the long run, and at once.

All users may be behind one proxy, and a session of 20 windows may be opened again at once.
"""

BUILD_S = 2.5
"""A page is sent after this time at the latest, with what it has then; the rest follows."""


class Entrance:
    """Lets browsers have pages."""

    def __init__(self) -> None:
        self._buckets = Buckets(PAGES_PER_S, BURST)
        self._waiting: dict[str, Client] = {}

    def wait_s(self, request: Request) -> int:
        """0, or after how many seconds whoever asks may ask for a page again."""
        return self._buckets.wait_s(address_of(request.scope))

    def let_in(self, session: Session) -> None:
        """Make room for a page, and see to it that only those who may use it do so."""
        client = session.client

        def forget() -> None:
            self._waiting.pop(client.id, None)

        self._waiting[client.id] = client
        client.on_connect(forget)
        client.on_delete(forget)
        while len(self._waiting) > MAX_WAITING:
            self._waiting.pop(next(iter(self._waiting))).delete()
        handle = client.handle_event

        def handle_event(msg: dict[str, object]) -> None:
            if session.accepts_events():
                handle(msg)

        setattr(client, "handle_event", handle_event)  # noqa: B010 (mypy: a method)

    @staticmethod
    async def build(page: Page, session: Session) -> None:
        """Build a page. What waits for the controller for long goes on after it was sent."""

        async def content() -> None:
            with session.client:
                result = page.build(session)
                if inspect.isawaitable(result):
                    await result

        task = asyncio.create_task(content(), name=f"page {page.path}")
        done, _ = await asyncio.wait({task}, timeout=BUILD_S)
        if done:
            task.result()
        else:
            task.add_done_callback(_tell_failure)


def no_such_page(request: Request, error: Exception) -> Response:
    """The answer where there is nothing."""
    return _plain(404, "There is no such page.", tag("a", "Go to the first page", href="/"))


def refusal(wait_s: int) -> Response:
    """The answer to those who ask for pages too often."""
    answer = _plain(429, "Too many pages were asked for.", f"Wait {wait_s} s, and load it again.")
    answer.headers["Retry-After"] = str(wait_s)
    return answer


def _plain(status: int, title: str, advice: str) -> Response:
    """A page without scripts, which costs nothing."""
    head = text(tag("meta", charset="utf-8"), tag("title", f"{title} - RI2N"))
    body = tag("main", tag("h1", title), tag("p", advice))
    page = tag("html", tag("head", head), tag("body", body), lang="en")
    return HTMLResponse(text(Markup("<!doctype html>"), page), status)


def _tell_failure(task: asyncio.Task[None]) -> None:
    """Tell of a page that failed after it was sent, when nobody waits for it any more."""
    if not task.cancelled() and (error := task.exception()) is not None:
        LOG.error("%s: cannot be built", task.get_name(), exc_info=error)
