# SPDX-License-Identifier: Apache-2.0
"""The page of settings: strategy, parameters, who changed what, tokens, versions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from ri2n_sdn import __version__
from ri2n_sdn.contract.answers import Parameter, ParameterSet
from ri2n_sdn.contract.operations import AUDIT, PARAMETERS, PARAMETERS_SET, TOKEN_ADD, TOKEN_REMOVE
from ri2n_sdn.contract.units import number_text
from ri2n_sdn.errors import BadInput
from ri2n_sdn.web.auth import new_token
from ri2n_sdn.web.gui import setting_views as views
from ri2n_sdn.web.gui.commands import command_of
from ri2n_sdn.web.gui.dialogs import (
    Command,
    Submit,
    change,
    confirm,
    field,
    form,
    information,
    operation,
    remove,
    side_by_side,
)
from ri2n_sdn.web.gui.frame import frame, head, html, needs_role
from ri2n_sdn.web.gui.listing import Answer, Column, Listing, Paced, Question, page_of
from ri2n_sdn.web.gui.markup import facts, tag, text
from ri2n_sdn.web.gui.session import Callback, Session

__all__ = ["build"]

_UNTIL_RESTART = (
    "The change lasts until the controller starts again. What shall last is in cluster.yaml."
)

AUDIT_S = 3.0
"""The controller is asked who changed what so often at most by one page."""

ROLES = {
    "viewer": "viewer: sees everything, changes nothing",
    "user": "user: acts on the jobs of one user",
    "admin": "admin: may do everything",
}


async def build(session: Session) -> None:
    """Build the page."""
    with frame("Settings", session):
        parts = [_strategy(session), _Parameters(session).refresh, _audit(session).refresh]
        for refresh in (*parts, _tokens(session), _versions(session)):
            await session.follow(refresh)


def _strategy(session: Session) -> Callback:
    """The strategy in force, and a way to change it."""
    select: ui.select | None = None
    html(text("Strategy"), name="h2")
    with ui.element("div").classes("card"):
        shown = html("", name="p").props("role=status")
        if session.who.role == "admin":
            with ui.element("div").classes("bar"):
                select = ui.select(list(views.STRATEGIES), label="New strategy")
                select.props("outlined dense").style("min-width: 14em")
                button = ui.button("Change the strategy").props("no-caps unelevated")
                button.on_click(lambda: _change_strategy(session, str(select.value or "")))
    if select is None:
        needs_role(session, "admin", "Changing the strategy and the parameters")

    def refresh() -> None:
        name = session.state["controller"].get("strategy")
        content = text("The strategy is not known yet: the controller was not reached.")
        if name is not None:
            about = views.STRATEGIES.get(name, "no description.")
            content = text(tag("strong", name), f": {about}")
        if shown.content != content:
            shown.set_content(content)
            if select is not None and select.value is None and name in views.STRATEGIES:
                select.value = name

    return refresh


def _change_strategy(session: Session, wanted: str) -> None:
    now = session.state["controller"].get("strategy")
    if wanted == now or wanted not in views.STRATEGIES:
        ui.notify("Choose another strategy than the one in force.", type="warning")
        return
    asked = {"name": "strategy", "value": wanted}
    said = f"The strategy is {wanted} now. Before it was {now}."
    confirm(
        f"Change the strategy to {wanted}?",
        views.consequences(session.state, wanted),
        f"Change to {wanted}",
        *operation(session, PARAMETERS_SET, lambda: asked, lambda answer: said),
        danger=False,
    )


class _Parameters:
    """The parameters with ranges and defaults, and a form to change one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: Sequence[Parameter] = ()
        self._values: object = None
        html(text("Parameters"), name="h2")
        self._table = Listing(
            self._session,
            "Parameters",
            [
                Column("id", "Parameter"),
                Column("value", "Value", number=True),
                Column("default", "Default", number=True),
                Column("range", "Range", short=True),
                Column("about", "What it is", wide=True),
            ],
            self._fetch,
            act=self._act if session.who.role == "admin" else None,
            empty=("No parameter is known.", "The controller must be reached first."),
        )

    async def _fetch(self, question: Question) -> Answer:
        answer = await self._session.feed.request(PARAMETERS, self._session.who)
        self._known = answer["parameters"]
        return page_of(views.parameter_rows(self._known, self._session.who), question)

    async def refresh(self) -> None:
        """Ask anew if a value has changed."""
        values = self._session.state["controller"].get("parameters")
        if values != self._values or not self._known:
            self._values = values
            await self._table.refresh()

    def _act(self, action: str, name: str) -> None:
        parameter = next(each for each in self._known if each["name"] == name)
        if action == "reset":
            self._reset(parameter)
        else:
            self._change(parameter)

    def _change(self, parameter: Parameter) -> None:
        name, row = parameter["name"], views.parameter_rows([parameter], self._session.who)[0]

        def wanted() -> int | float | str:
            return views.parameter_value(parameter, str(value_field.value or ""))

        with form(f"Change {name}", "Change it", *self._set(name, wanted)):
            html(text(row["about"]), name="p")
            value_field = field(
                name,
                value=number_text(parameter["value"]).replace(",", ""),
                hint=f"From {row['range']}. The default is {row['default']}.",
            )
            html(text(_UNTIL_RESTART), name="p", classes="muted")

    def _reset(self, parameter: Parameter) -> None:
        name, row = parameter["name"], views.parameter_rows([parameter], self._session.who)[0]
        confirm(
            f"Set {name} back?",
            [f"It is {row['value']} now, and will be {row['default']}.", _UNTIL_RESTART],
            "Set it back",
            *self._set(name, lambda: parameter["default"]),
            danger=False,
        )

    def _set(self, name: str, wanted: Callable[[], object]) -> tuple[Submit, Command]:
        """How a dialog sets a parameter, and the command that does the same."""

        def said(answer: ParameterSet) -> str:
            return f"{name} is {answer['value']} now, until the controller starts again."

        def asked() -> dict[str, object]:
            return {"name": name, "value": wanted()}

        submit, command = operation(self._session, PARAMETERS_SET, asked, said)

        async def submit_and_show() -> str | None:
            done = await submit()
            await self._table.refresh()
            return done

        return submit_and_show, command


def _audit(session: Session) -> Paced:
    """Who changed what: from the controller's audit trail for admins, otherwise from events."""

    async def fetch(question: Question) -> Answer:
        if session.who.role == "admin":
            with contextlib.suppress(BadInput):  # of a controller that keeps no such trail
                answer = await session.feed.request(AUDIT, session.who)
                return page_of(views.audit_entry_rows(answer["entries"], question.search), question)
        return page_of(views.audit_rows(session.state["events"], question.search), question)

    html(text("Who changed what"), name="h2")
    table = Listing(
        session,
        "Changes",
        [
            Column("time", "Time", time=True),
            Column("who", "Who"),
            Column("what", "What"),
            Column("result", "Result"),
        ],
        fetch,
        key="key",
        search="Search changes",
        empty=(
            "Nobody has changed anything yet.",
            "Changes are kept until the controller starts again.",
        ),
    )
    return Paced(AUDIT_S, table.refresh)


def _tokens(session: Session) -> Callback:
    """The tokens, for admins alone."""
    admin = session.who.role == "admin"
    head("Tokens", ("Add a token", lambda: _add_token(session)) if admin else None)
    if not admin:
        needs_role(session, "admin", "Seeing and changing tokens")
        return lambda: None

    def fetch(question: Question) -> Answer:
        if session.who.role != "admin":
            return Answer((), 0)
        tokens = session.feed.tokens
        found = views.token_rows(tokens, session.who, time.time(), question.search)
        return page_of(found, question)

    def remove_token(action: str, name: str) -> None:
        sentences = [
            "Whoever uses it is refused from now on, and logins with it end.",
            "It cannot be brought back. A new token is needed instead.",
        ]
        if name == session.who.name:
            sentences.insert(0, "This is the token that you have logged in with.")
        remove(session, TOKEN_REMOVE, f"the token {name}", sentences, name=name)

    columns = [
        Column("id", "Name"),
        Column("role", "Role"),
        Column("user", "User"),
        Column("expires", "Ends"),
    ]
    empty = ("There is no token.", "Add one for each person or program.")
    return Listing(
        session,
        "Tokens",
        columns,
        fetch,
        search="Search tokens",
        act=remove_token,
        empty=empty,
    ).refresh


def _add_token(session: Session) -> None:
    """Ask for a new token, which is shown once."""

    def wanted_token() -> dict[str, Any]:
        whose = str(user.value or "") if user.visible else ""
        days_typed = str(days.value or "")
        return views.token_request(str(name.value or ""), str(role.value), whose, days_typed)

    async def submit() -> None:
        wanted = wanted_token()
        token, digest = new_token()
        await change(session, TOKEN_ADD, hash=digest, **wanted)
        with session.client.layout:
            _show_once(wanted["name"], token)

    def command() -> str | None:
        return command_of("token_add", **wanted_token())

    with form("Add a token", "Add it", submit, command):
        with side_by_side():
            name = field("Name", hint="Whose it is, or for which program, as alice or backup")
            days = field("Days", value="90", hint="How long it is good; empty for no end")
        role = ui.select(ROLES, value="viewer", label="Role").props("outlined dense")
        role.style("width: 100%")
        user = field("User", hint="Whose jobs it is for; needed for the role user")
        user.bind_visibility_from(role, "value", lambda chosen: chosen != "viewer")


def _show_once(name: str, token: str) -> None:
    with information(f"The token {name}") as dialog:
        dialog.props("persistent")
        once = html(text("Copy it now: it is shown this one time, and kept nowhere."), name="p")
        once.props("role=alert")
        shown = ui.input("Token", value=token).props("outlined dense readonly")
        shown.props("autocomplete=off spellcheck=false").style("width: 100%")
        html(tag("button", "Copy", type="button", class_="plain copy", data_copy=token))
        use = (
            "People give it on the page Log in. Scripts send it as the header"
            " Authorization: Bearer TOKEN."
        )
        html(text(use), name="p", classes="muted")


def _versions(session: Session) -> Callback:
    """Versions, and what else tells one controller from another."""
    html(text("Versions"), name="h2")
    shown = html("", classes="card")
    links = (
        tag("a", "The REST interface, with all its operations", href="/api/v1/docs"),
        tag("a", "Metrics for Prometheus", href="/metrics"),
    )

    def refresh() -> None:
        rows = views.fact_rows(session.state, __version__)
        known = facts((row["id"], row["value"]) for row in rows)
        shown.set_content(text(known, *(tag("p", link, class_="ways") for link in links)))

    return refresh
