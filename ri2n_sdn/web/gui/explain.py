# SPDX-License-Identifier: Apache-2.0
"""The page that explains which way packets take, with the way drawn on the network."""

from __future__ import annotations

from nicegui import ui

from ri2n_sdn.contract.names import natural
from ri2n_sdn.contract.operations import EXPLAIN
from ri2n_sdn.errors import BadInput
from ri2n_sdn.web.gui.commands import command_of
from ri2n_sdn.web.gui.drawing import Drawing, legend
from ri2n_sdn.web.gui.explain_views import PROTOCOLS, answer_view, nics_of, only, request_of
from ri2n_sdn.web.gui.frame import empty_state, frame, html
from ri2n_sdn.web.gui.listing import ASKING
from ri2n_sdn.web.gui.markup import text
from ri2n_sdn.web.gui.scene import MAX_HOST_ROWS
from ri2n_sdn.web.gui.session import Session

__all__ = ["build"]

MAX_NAMES = 1000
"""So many names of hosts are offered while one is typed."""


def build(session: Session) -> None:
    """Build the page. `?src=H1&dst=H2&protocol=tcp&sport=1&dport=2&job=ID` asks at once.

    `src_ip` and `dst_ip` may be there, too.
    """
    with frame("Explain", session):
        _Explain(session)


class _Explain:
    """The question, the answer, and the picture."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._asked: tuple[str, str] | None = None
        query = session.query
        with ui.element("form").classes("card tools").props("id=question") as form:
            form.on("submit.prevent", self._ask)
            self._fields: dict[str, ui.input | ui.select] = {
                "src": self._field("From host", query.get("src", "")),
                "dst": self._field("To host", query.get("dst", "")),
                "protocol": self._protocol(query.get("protocol", "tcp")),
                "sport": self._field("Source port", query.get("sport", ""), numeric=True),
                "dport": self._field("Destination port", query.get("dport", ""), numeric=True),
                "src_ip": self._field("Source address, if several", query.get("src_ip", "")),
                "dst_ip": self._field("Destination address, if several", query.get("dst_ip", "")),
                "job": self._field("Job, if any", query.get("job", "")),
            }
            ui.button("Explain", on_click=None).props("type=submit unelevated")
        self._error = html("", classes="problem").props('role="alert"')
        self._asking = html("", name="p", classes="muted").props("role=status")
        self._hint = empty_state(
            "Which way do packets take, and why?",
            "Name two hosts. Add the ports of one connection to see the NIC that it uses.",
        )
        self._answer = html("", name="section", classes="card")
        self._answer.props('aria-label="The answer" aria-live="polite"')
        with ui.element("div").classes("card") as self._card:
            self._drawing = Drawing(session.feed, "way")
            html(legend(way="the way of these packets"), classes="legend")
        self._answer.set_visibility(False)
        self._update()
        session.live(self._update)
        if self._fields["src"].value and self._fields["dst"].value:
            ui.timer(0, self._ask, once=True)

    def _field(self, label: str, value: str, numeric: bool = False) -> ui.input:
        names = sorted(self._session.state["hosts"], key=natural)[:MAX_NAMES]
        is_host = label.endswith("host")
        field = ui.input(label, value=value, autocomplete=names if is_host else None)
        return field.props("outlined dense inputmode=numeric" if numeric else "outlined dense")

    @staticmethod
    def _protocol(chosen: str) -> ui.select:
        choices = {"": "any", **{name: name.upper() for name in PROTOCOLS}}
        field = ui.select(choices, value=chosen if chosen in PROTOCOLS else "", label="Protocol")
        return field.props("outlined dense options-dense")

    async def _ask(self) -> None:
        self._error.set_content("")
        typed = {key: str(each.value or "") for key, each in self._fields.items()}
        try:
            arguments = request_of(**typed)
        except BadInput as error:
            self._refuse(str(error))
            return
        self._asking.set_content(text(ASKING))
        answer = await self._session.ask(EXPLAIN, refused=self._refuse, **arguments)
        self._asking.set_content("")
        if answer is None:
            return
        self._session.moved(**typed)
        self._asked = (arguments["src"], arguments["dst"])
        self._drawing.nics = nics_of(answer)
        self._answer.set_content(answer_view(answer, command_of("explain", **arguments)))
        self._answer.set_visibility(True)
        self._hint.set_visibility(False)
        self._update()

    def _refuse(self, words: str) -> None:
        """Say why there is no answer. What was asked before is no answer to this."""
        self._error.set_content(text(words))
        self._answer.set_visibility(False)

    def _update(self) -> None:
        state = self._session.state
        self._card.set_visibility(bool(state["hosts"]))
        # Of very many hosts, the two in question are drawn, each on its own.
        if self._asked is None or len(state["hosts"]) <= MAX_HOST_ROWS:
            self._drawing.show(state)
        else:
            self._drawing.show(only(state, self._asked), whole=False)
