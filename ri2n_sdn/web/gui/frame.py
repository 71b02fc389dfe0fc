# SPDX-License-Identifier: Apache-2.0
"""What all pages have in common: header, navigation, the banner of problems, one heading.

A page builds its content like this:

    def build(session: Session) -> None:
        with frame("Traffic", session):
            body = ui.column()
            session.live(lambda: fill(body, session.state))

Rules for pages: all colours are the variables of gui.css, so that they have contrast in both
themes; every input and button has a name (a label or `aria-label`); what is not known yet, or not
there, is an `empty_state` that says what to do; the classes `card`, `grid`, `table`, `muted`,
`num` and `phone-only` are there for the layout. Tailwind is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

from nicegui import ui

from ri2n_sdn.contract.units import ago_text, page_time
from ri2n_sdn.web.gui.banner import banner
from ri2n_sdn.web.gui.markup import Markup, tag, text
from ri2n_sdn.web.gui.session import Session

__all__ = ["age_line", "ago", "empty_state", "frame", "head", "html", "needs_role"]

STATIC = "/_ri2n"
"""Where the GUI's own files are."""

_THEMES = ("auto", "light", "dark")


def html(content: str, *, name: str = "div", classes: str = "") -> ui.html:
    """An element with HTML that is safe already (`markup.py`); `set_content` changes it."""
    return ui.html(content, sanitize=False, tag=name).classes(classes)


def ago(time_s: float) -> Markup:
    """How long ago a time was. The browser keeps it up to date (gui.js)."""
    said = ago_text(time.time() - time_s)
    return tag("time", said, class_="ago", data_time_s=time_s, title=page_time(time_s))


def head(title: str, button: tuple[str, Callable[[], None]] | None = None) -> None:
    """A heading of second rank, with a button (its words, and what it does) where there is one."""
    with ui.element("div").classes("head"):
        html(text(title), name="h2")
        if button is not None:
            ui.button(button[0], on_click=button[1]).props("no-caps unelevated")


def empty_state(title: str, advice: str) -> ui.html:
    """What a page shows where there is nothing: that it is so, and what to do."""
    return html(text(tag("strong", title), tag("p", advice)), classes="empty card").props(
        "role=note"
    )


def needs_role(session: Session, role: str, doing: str) -> ui.html:
    """What a page shows instead of what only another role may do."""
    who = session.who
    advice = (
        f"{who.name} has the role {who.role}. Ask an admin for a token with the role {role}."
        if session.logged_in
        else "Log in with a token of that role. An admin makes one on the page Settings. Root makes"
        f" one on the controller's machine: ri2n token add NAME --role {role}"
    )
    return empty_state(f"{doing} needs the role {role}.", advice)


@contextmanager
def frame(title: str, session: Session, *, lists_problems: bool = False) -> Iterator[None]:
    """The page around what is built inside. `title` is the page's only heading of first rank.

    `lists_problems`: the page has all problems, so that the banner need not have them.
    """
    ui.add_head_html(
        f'<link rel="stylesheet" href="{STATIC}/gui.css"><script src="{STATIC}/gui.js"></script>'
    )
    with ui.header(elevated=False).classes("top"):
        html(tag("a", "Skip to the content", href="#content"), classes="skip")
        html(_brand(session), classes="brand")
        if session.allowed:
            html(navigation(session), name="nav").props('aria-label="Pages"')
        html(account(session), classes="account")
    content = ui.element("div").props(f"id=content tabindex=-1 data-now-s={time.time():.3f}")
    with content.classes("content"):
        if session.allowed:
            _add_banner(session, lists_problems)
        with ui.element("div").classes("title"):
            html(text(title), name="h1")
            if session.allowed:
                _add_age(session, content)
        yield


def _brand(session: Session) -> Markup:
    """The way to the first page, and which cluster it is: who has several must not mix them up."""
    brand = tag("a", "RI2N", href="/", aria_label="RI2N, to the first page")
    if not session.allowed or not session.cluster:
        return brand
    return text(brand, tag("span", session.cluster, class_="cluster", title="this cluster"))


def navigation(session: Session) -> Markup:
    """The links to all pages. The one that is open says so to screen readers."""
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag(
                    "a",
                    tag("span", page.icon, class_="material-icons", aria_hidden="true"),
                    tag("span", page.title),
                    href=page.path,
                    aria_current="page" if page.path == session.path else None,
                ),
            )
            for page in session.pages
        ),
    )


def account(session: Session) -> Markup:
    """Who I am, the manual, the theme, and the way in or out."""
    who = session.who
    name = f"{who.name} ({who.role})"
    if session.logged_in:
        way = tag(
            "form",
            tag("button", "Log out", type="submit", class_="plain"),
            method="post",
            action="/logout",
        )
    else:
        way = tag("a", "Log in", href=f"/login?next={quote(session.here)}", class_="plain")
    theme = tag(
        "button",
        "Theme: auto",
        type="button",
        class_="plain",
        id="theme",
        data_themes=" ".join(_THEMES),
    )
    manual = tag("a", "Manual", href=session.manual, class_="manual") if session.manual else ""
    return text(tag("span", name, class_="who", aria_label=f"You are {name}"), manual, theme, way)


def _add_banner(session: Session, listed: bool) -> None:
    feed = session.feed
    shown = html("", name="section", classes="banner")
    shown.props('aria-label="State of the cluster" role="status"')

    def update() -> None:
        shown.set_content(
            banner(
                feed.state,
                connected=feed.connected,
                why=feed.why,
                age=session.age,
                listed=listed,
            )
        )

    update()
    session.live(update)


def _add_age(session: Session, content: ui.element) -> None:
    """How old the figures of the page are. What is old is grey on the whole page (gui.css)."""
    shown = html("", name="p", classes="age")

    def update() -> None:
        age = session.age
        content.classes(add="stale" if age.old else "", remove="" if age.old else "stale")
        shown.set_content(age_line(age.read_s, old=age.old))

    update()
    session.live(update)


def age_line(read_s: float | None, *, old: bool) -> Markup:
    """One line about the age of all figures of a page; nothing where there are none."""
    if read_s is None:
        return text()
    return text("As of " if old else "Figures read ", ago(read_s))
