# SPDX-License-Identifier: Apache-2.0
"""The login: a form that takes a token, and the two requests that begin and end a login."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from nicegui import app as pages_app
from nicegui import ui

from ri2n_sdn.web.auth import MAX_TOKEN_CHARS, Auth
from ri2n_sdn.web.gui.frame import frame, html
from ri2n_sdn.web.gui.markup import Markup, tag, text
from ri2n_sdn.web.gui.session import LOGIN, Session, begin_login, end_login

__all__ = ["LOGIN_PATH", "add_routes", "build", "own_path", "store_of_browser"]

LOGIN_PATH = "/login"

_SAID = {
    "failed": (
        "bad",
        "This token is not known, or it has ended. Ask an admin for a new one:"
        " ri2n token add NAME --role user",
    ),
    "ended": ("warning", "Your login has ended, because its token was removed or has run out."),
    "needed": ("warning", "This web interface shows nothing without a login."),
}


def build(session: Session, *, from_address: bool = False) -> None:
    """The page with the form, whose field has the focus.

    `from_address`: a token that stands behind the "#" of the page's address logs in at once. A
    browser sends that part of an address to no server. Only a demo has this: elsewhere, whoever
    sends a link could make others log in as himself.
    """
    with frame("Log in", session):
        html(form(session.query), classes="card narrow")
    ui.run_javascript(f"ri2n.login({json.dumps(from_address)})")


def form(query: Mapping[str, str]) -> Markup:
    """The form. It works without scripts, and password managers know what it is."""
    said = [
        tag("p", tag("strong", words), class_=f"line {kind}", role="alert")
        for key, (kind, words) in _SAID.items()
        if key in query
    ]
    field = tag(
        "input",
        id="token",
        name="token",
        type="password",
        required=True,
        maxlength=MAX_TOKEN_CHARS,
        autocomplete="current-password",
        spellcheck="false",
        aria_describedby="token-help",
    )
    help_ = tag(
        "p",
        "A token is a secret that an admin of the cluster gives you. With it you act as yourself:"
        " on your own jobs as a user, or on everything as an admin. The first token is made by root"
        " on the controller's machine: ",
        tag("code", "ri2n token add NAME --role admin"),
        id="token-help",
        class_="muted",
    )
    return text(
        *said,
        tag(
            "form",
            tag("label", "Token", for_="token"),
            field,
            help_,
            tag("input", type="hidden", name="next", value=own_path(query.get("next"))),
            tag("button", "Log in", type="submit", class_="primary"),
            method="post",
            action=LOGIN_PATH,
            class_="plain-form",
        ),
    )


def store_of_browser() -> MutableMapping[str, Any]:
    """What is kept of the browser that has sent the request under way."""
    return pages_app.storage.user


def own_path(path: object) -> str:
    """The path to go to after the login: one of this site, whatever was asked for."""
    asked = str(path or "/")
    parts = urlsplit(asked)
    plain = asked.startswith("/") and not asked.startswith("//") and "\\" not in asked
    return asked if plain and not parts.netloc and asked.isprintable() else "/"


def add_routes(app: FastAPI, auth: Auth) -> None:
    """Let browsers begin and end logins. That the forms are of this site, guard.py sees to."""

    async def log_in(request: Request) -> Response:
        async with request.form(max_files=0, max_fields=4) as fields:
            token, path = str(fields.get("token", "")).strip(), own_path(fields.get("next"))
        number = begin_login(auth, store_of_browser(), token)
        if number is None:
            return RedirectResponse(f"{LOGIN_PATH}?failed=1&next={quote(path)}", 303)
        request.session[LOGIN] = number
        return RedirectResponse(path, 303)

    async def log_out(request: Request) -> Response:
        request.session.pop(LOGIN, None)
        end_login(store_of_browser())
        return RedirectResponse("/", 303)

    for path, handler in ((LOGIN_PATH, log_in), ("/logout", log_out)):
        app.add_api_route(path, handler, methods=["POST"], include_in_schema=False)
