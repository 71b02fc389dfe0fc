# SPDX-License-Identifier: Apache-2.0
"""Dialogs that ask before something changes, and forms that show why a change was refused."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.value_element import ValueElement

from ri2n_sdn.contract.operations import Answer, Operation
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.web.gui.commands import command_of, copyable
from ri2n_sdn.web.gui.drawing import run
from ri2n_sdn.web.gui.frame import html
from ri2n_sdn.web.gui.markup import tag, text
from ri2n_sdn.web.gui.session import Session

__all__ = [
    "change",
    "check",
    "confirm",
    "field",
    "form",
    "information",
    "operation",
    "remove",
    "side_by_side",
]

Submit = Callable[[], Awaitable[str | None]]
Command = Callable[[], str | None]

_INPUTS = (ui.input, ui.select)  # A textarea is an input.


async def change(session: Session, op: Operation[Answer], **arguments: object) -> Answer:
    """The controller's answer to a request that changes something, in the name of who is here.

    Raises BadInput and NotAvailable with the words to show. A login that has ended meanwhile leads
    to the login.
    """
    if session.has_ended():
        raise refusal("login_ended")
    return await session.feed.request(op, session.who, **arguments)


def operation(
    session: Session,
    op: Operation[Answer],
    wanted: Callable[[], Mapping[str, object]],
    said: Callable[[Answer], str],
) -> tuple[Submit, Command]:
    """How a dialog carries out an operation, and the command that does the same.

    `wanted` are the arguments, which may raise BadInput. `said` tells of the controller's answer.
    """

    async def submit() -> str:
        return said(await change(session, op, **wanted()))

    url = str(session.client.request.base_url)
    return submit, lambda: command_of(op.name, url, **wanted())


def field(label: str, *, value: str = "", hint: str = "", lines: bool = False) -> Any:
    """An input of a form, with its label and a hint below it."""
    made = ui.textarea(label, value=value) if lines else ui.input(label, value=value)
    made.props("outlined dense autocomplete=off spellcheck=false maxlength=20000 autogrow")
    made.props("hide-bottom-space")  # So that a hint of two lines does not cover what is below.
    if not lines:
        made.props(remove="autogrow")
    if hint:
        made.props["hint"] = hint
    return made.style("width: 100%")


def check(label: str, *, value: bool = False) -> ui.checkbox:
    """A box to tick, whose label is its name, too."""
    made = ui.checkbox(label, value=value)
    made.props["aria-label"] = label
    return made


@contextlib.contextmanager
def side_by_side() -> Iterator[None]:
    """What is built inside stands in two columns, where there is room for them."""
    with ui.element("div").classes("fields"):
        yield


@contextlib.contextmanager
def form(
    title: str,
    word: str,
    submit: Submit,
    command: Command | None = None,
    *,
    danger: bool = False,
) -> Iterator[ui.dialog]:
    """A dialog with what is built inside, a button `word`, and one that cancels; it is opened.

    `submit` makes the change, and returns what to tell then. It may raise BadInput and
    NotAvailable, whose words are shown in the dialog, which stays open; the field whose label is
    the error's key is marked. Enter in an input is the same as the button. `command` gives the
    command line that does the same, None when there is none; it may raise BadInput, too.
    """
    with _dialog(title) as dialog:
        yield dialog
        inputs = [each for each in dialog.descendants() if isinstance(each, _INPUTS)]
        if command is not None:
            _add_command(dialog, command)
        refused = html("", name="p", classes="refusal").props("role=alert")
        refused.visible = False

        async def press() -> None:
            if not button.enabled:
                return  # Enter was pressed twice.
            button.disable()
            button.props("loading")  # A controller may be slow to answer.
            try:
                said = await submit()
            except (BadInput, NotAvailable) as error:
                refused.set_content(text(str(error)))
                refused.visible = True
                _mark(inputs, error.key)
                return
            finally:
                button.props(remove="loading")
                button.enable()
            dialog.close()
            if said:
                ui.notify(said, type="positive", multi_line=True, attrs={"role": "status"})

        with ui.element("div").classes("bar"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            button = ui.button(word, on_click=press)
            button.props(f"no-caps unelevated color={'negative' if danger else 'primary'}")
        for each in inputs:
            if isinstance(each, ui.input) and not isinstance(each, ui.textarea):
                each.on("keydown.enter", press)
        if inputs:
            inputs[0].props("autofocus")


def _mark(inputs: Sequence[ValueElement[Any]], key: str | None) -> None:
    """Mark the field that a refusal's key names, and no other, and move the focus there."""
    for each in inputs:
        named = str(each.props.get("label", "")).casefold()
        wrong = key is not None and named == key.casefold()
        each.props.set_bool("error", wrong)
        each.props.set_optional("aria-invalid", "true" if wrong else None)
        if not wrong:
            continue
        for around in each.ancestors():
            if isinstance(around, ui.expansion):
                around.open()
        run("enter", each.html_id)


def _add_command(dialog: ui.dialog, command: Command) -> None:
    """A part that unfolds and has the command for what is in the dialog's inputs."""
    values = [each for each in dialog.descendants() if isinstance(each, ValueElement)]
    with ui.expansion("The same as a command").classes("fold") as fold:
        shown = html("")

    def update() -> None:
        if not fold.value:
            return
        try:
            line = command()
        except BadInput as error:
            shown.set_content(tag("p", f"Fill in the form first. {error}", class_="muted"))
            return
        none = tag("p", "No command does exactly this.", class_="muted")
        shown.set_content(none if line is None else copyable(line))

    fold.on_value_change(update)
    for each in values:
        each.on_value_change(update)


def confirm(
    title: str,
    sentences: Sequence[str],
    word: str,
    submit: Submit,
    command: Command | None = None,
    *,
    danger: bool = True,
) -> None:
    """Ask before something changes. `sentences` say what will happen. `command`: as of `form`."""
    with form(title, word, submit, command, danger=danger):
        html(tag("ul", *(tag("li", sentence) for sentence in sentences)))


def remove(
    session: Session,
    op: Operation[Any],
    what: str,
    sentences: Sequence[str],
    *,
    many: bool = False,
    **key: str,
) -> None:
    """Ask before an operation removes something. `many`: `what` is more than one thing."""
    them, are = ("them", "are") if many else ("it", "is")
    done = f"{what[:1].upper()}{what[1:]} {are} removed."
    confirm(
        f"Remove {what}?",
        sentences,
        f"Remove {them}",
        *operation(session, op, lambda: key, lambda answer: done),
    )


@contextlib.contextmanager
def information(title: str) -> Iterator[ui.dialog]:
    """A dialog that shows what is built inside, and is closed with a button; it is opened."""
    with _dialog(title) as dialog:
        yield dialog
        ui.button("Close", on_click=dialog.close).props("flat no-caps")


@contextlib.contextmanager
def _dialog(title: str) -> Iterator[ui.dialog]:
    """A dialog with what is built inside; it is opened, and goes when it is closed."""
    dialog = ui.dialog().props("no-route-dismiss")
    dialog.props["aria-label"] = title
    with dialog, ui.card().classes("dialog"):
        html(text(title), name="h2")
        yield dialog
    dialog.on("hide", dialog.delete)
    dialog.open()
