"""Dialogs that ask before something changes, and forms that show why a change was refused."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from nicegui import ui

from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.web.gui.frame import html
from ri2n_sdn.web.gui.markup import tag, text
from ri2n_sdn.web.gui.session import Session

__all__ = ["change", "check", "confirm", "field", "form", "information", "notify"]

Submit = Callable[[], Awaitable[str | None] | str | None]


async def change(session: Session, op: str, **arguments: Any) -> dict[str, Any]:
    """The controller's answer to a request that changes something, in the name of who is here.

    Raises BadInput and NotAvailable with the words to show. A login that has ended meanwhile leads
    to the login.
    """
    if session.number is not None and not session.logged_in and session.feed.connected:
        session.client.open("/login?ended=1")
        raise BadInput("Your login has ended. Log in again.")
    return await session.feed.request(op, session.who, **arguments)


def notify(words: str) -> None:
    """Tell that something was done."""
    ui.notify(words, type="positive", multi_line=True, attrs={"role": "status"})


def field(label: str, *, value: str = "", hint: str = "", lines: bool = False) -> Any:
    """An input of a form, with its label and a hint below it."""
    made = ui.textarea(label, value=value) if lines else ui.input(label, value=value)
    made.props("outlined dense autocomplete=off spellcheck=false maxlength=20000 autogrow")
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
def form(title: str, word: str, submit: Submit, *, danger: bool = False) -> Iterator[ui.dialog]:
    """A dialog with what is built inside, a button `word`, and one that cancels; it is opened.

    `submit` makes the change, and returns what to tell then. It may raise BadInput and
    NotAvailable, whose words are shown in the dialog, which stays open.
    """
    with _dialog(title) as dialog:
        yield dialog
        refusal = html("", name="p", classes="refusal").props("role=alert")
        refusal.visible = False

        async def press() -> None:
            button.disable()
            try:
                result = submit()
                said = await result if inspect.isawaitable(result) else result
            except (BadInput, NotAvailable) as error:
                refusal.set_content(text(str(error)))
                refusal.visible = True
                return
            finally:
                button.enable()
            dialog.close()
            if said:
                notify(said)

        with ui.element("div").classes("bar"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            button = ui.button(word, on_click=press)
            button.props(f"no-caps unelevated color={'negative' if danger else 'primary'}")


def confirm(
    title: str,
    sentences: Sequence[str],
    word: str,
    submit: Submit,
    *,
    danger: bool = True,
) -> None:
    """Ask before something changes. `sentences` say what will happen."""
    with form(title, word, submit, danger=danger):
        html(tag("ul", *(tag("li", sentence) for sentence in sentences)))


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
