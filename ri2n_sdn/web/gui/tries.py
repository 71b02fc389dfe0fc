# SPDX-License-Identifier: Apache-2.0
"""The page of a demo with things to try. The web process of a product has no such page.

The buttons ask the demo's own process, over the Unix socket that the option `--demo` names. Nothing
of a demo is an operation of REST or of the controller.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from nicegui import ui

from ri2n_sdn.client import call
from ri2n_sdn.errors import Ri2nError
from ri2n_sdn.web.gui.commands import copyable
from ri2n_sdn.web.gui.frame import empty_state, frame, html, needs_role
from ri2n_sdn.web.gui.markup import text
from ri2n_sdn.web.gui.session import Session

__all__ = ["PATH", "build"]

PATH = "/try"

# The longest try first compiles a program.
TRY_S, ROOM_S = 3600.0, 10.0


async def build(session: Session, *, socket: Path) -> None:
    """Build the page. `socket` is that of the demo's own process."""
    with frame("Try", session):
        if session.who.role != "admin":
            needs_role(session, "admin", "To try something in this demo")
            return
        await _Tries(session, socket).show()


class _Tries:
    """A card with a button for each try, and what became of the last one."""

    def __init__(self, session: Session, socket: Path) -> None:
        self._session, self._socket = session, socket
        self._said = html("", name="p").props('role="status" aria-live="polite"')
        self._cards = ui.element("div").classes("grid")

    async def show(self) -> None:
        """Ask the demo what can be tried, and show it."""
        room: dict[str, Any] | None
        try:
            room = await self._ask("room", ROOM_S)
        except Ri2nError:
            room = None
        self._cards.clear()
        with self._cards:
            if room is None:
                empty_state(
                    "Nothing can be tried yet.",
                    "The demo compares its strategies first. Then load this page again.",
                )
                return
            for each in room["tries"]:
                self._card(each)

    def _card(self, each: dict[str, Any]) -> None:
        with ui.element("section").classes("card") as card:
            card.props["aria-label"] = str(each["title"])
            html(text(str(each["title"])), name="h2")
            html(text(str(each["about"])), name="p")
            words = "Undo it" if each["on"] else "Do it"
            button = ui.button(words, on_click=partial(self._press, each))
            button.props("no-caps unelevated").props["aria-label"] = f"{words}: {each['title']}"
            html(copyable(str(each["command"]), "In a terminal on the demo's machine:"))

    async def _press(self, each: dict[str, Any]) -> None:
        """Let the demo do it, or undo it."""
        if self._session.has_ended() or self._session.who.role != "admin":
            return
        self._say("muted", f"{each['title']}: under way ...")
        for button in self._cards.descendants():
            if isinstance(button, ui.button):
                button.disable()
        try:
            answer = await self._ask("try", TRY_S, name=each["name"])
            kind, said = "", str(answer["text"])
        except Ri2nError as error:
            kind, said = "problem", str(error)
        self._say(kind, said)
        await self.show()

    async def _ask(self, op: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """What the demo answers. Others are served meanwhile."""

        def ask() -> dict[str, Any]:
            return call(self._socket, op, timeout_s=timeout_s, **arguments)

        return await asyncio.to_thread(ask)

    def _say(self, kind: str, said: str) -> None:
        self._said.classes(replace=kind)
        self._said.set_content(text(said))
