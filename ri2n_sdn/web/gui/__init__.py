# SPDX-License-Identifier: Apache-2.0
"""The web GUI: pages by NiceGUI, in the same process and on the same port as the REST interface."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from nicegui import app as pages_app
from nicegui import ui

from ri2n_sdn.shipped import documentation
from ri2n_sdn.web.auth import Auth
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.gui import events, explain, jobs, login, network, settings, traffic, tries
from ri2n_sdn.web.gui.entrance import Entrance, no_such_page, refusal
from ri2n_sdn.web.gui.frame import STATIC
from ri2n_sdn.web.gui.session import LOGIN, Page, Session, Ticker
from ri2n_sdn.web.manual import PATH as MANUAL
from ri2n_sdn.web.settings import WebSettings

__all__ = ["PAGES", "mount"]

PAGES: tuple[Page, ...] = (
    Page("/", "Network", "hub", network.build),
    Page("/explain", "Explain", "route", explain.build),
    Page("/traffic", "Traffic", "show_chart", traffic.build),
    Page("/jobs", "Jobs", "work", jobs.build),
    Page("/events", "Events", "history", events.build),
    Page("/settings", "Settings", "settings", settings.build),
)
"""The pages, in the order of the navigation."""

FILES = Path(__file__).with_name("static")

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><g fill="none" stroke="#2f7fd1"'
    ' stroke-width="3"><path d="M8 8h16M8 24h16M8 8v16M24 8v16"/></g><g fill="#2f7fd1">'
    '<circle cx="8" cy="8" r="5"/><circle cx="24" cy="8" r="5"/><circle cx="8" cy="24" r="5"/>'
    '<circle cx="24" cy="24" r="5"/></g></svg>'
)

# So long a browser may be away until its page is thrown away.
AWAY_S = 10.0

# So long an empty place for what is kept of a tab stays.
TAB_S = 60.0

# So many messages are kept for a browser that was away. It loads the page again if it missed more.
KEPT_MESSAGES = 100


def mount(app: FastAPI, feed: Feed, auth: Auth, settings: WebSettings) -> None:
    """Serve the GUI's pages on `app`, for all paths that nothing else has.

    NiceGUI has one set of pages for a process, so the last call in a process counts.
    """
    ticker, entrance = Ticker(feed), Entrance()
    # Both are empty unless this is not the first call in this process.
    pages_app.user_middleware.clear()
    pages_app.middleware_stack = None
    for path in (login.LOGIN_PATH, "/logout", tries.PATH):
        pages_app.remove_route(path)
    build_form = partial(login.build, from_address=settings.demo is not None)
    form = Page(login.LOGIN_PATH, "Log in", "login", build_form)
    pages = PAGES
    if settings.demo is not None:
        of_demo = partial(tries.build, socket=settings.demo)
        pages = (*PAGES, Page(tries.PATH, "Try", "science", of_demo))
    manual = "" if documentation() is None else f"{MANUAL}/"
    session_of = partial(
        Session, feed, auth, ticker, pages=pages, cluster=settings.called, manual=manual
    )
    for page in (*pages, form):
        _add(page, entrance, session_of)
    login.add_routes(pages_app, auth)  # A page removes all routes of its path first.
    pages_app.add_exception_handler(404, no_such_page)
    # Nothing is kept of tabs. NiceGUI would keep the names that browsers give them for a month.
    pages_app.storage.max_tab_storage_age = TAB_S
    pages_app.add_static_files(STATIC, FILES, max_cache_age=3600)
    ui.run_with(
        app,
        title="RI2N",
        language="en-US",
        favicon=ICON,
        dark=None,
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=AWAY_S,
        message_history_length=KEPT_MESSAGES,
        storage_secret=settings.secret(),
        session_middleware_kwargs={
            # Browsers do not tell ports apart when they send cookies.
            "session_cookie": f"ri2n-{settings.port}",
            "max_age": None,
            "same_site": "lax",
            "https_only": settings.tls,
        },
        show_welcome_message=False,
    )


def _add(page: Page, entrance: Entrance, session_of: Callable[..., Session]) -> None:
    """Serve a page."""

    @ui.page(page.path, title=f"{page.title} - RI2N")
    async def build(request: Request) -> Response | None:
        client = ui.context.client
        wait_s = entrance.wait_s(request)
        if wait_s:
            client.delete()
            return refusal(wait_s)
        session = session_of(
            client=client,
            path=page.path,
            query=request.query_params,
            store=login.store_of_browser(),
            number=request.session.get(LOGIN),
        )
        if not session.allowed and page.path != login.LOGIN_PATH:
            client.delete()
            path = quote(f"{page.path}?{request.url.query}".rstrip("?"))
            return RedirectResponse(f"{login.LOGIN_PATH}?needed=1&next={path}", 303)
        entrance.let_in(session)
        await entrance.build(page, session)
        return None
