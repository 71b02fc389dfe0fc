# SPDX-License-Identifier: Apache-2.0
"""The chart of the first page: what each host sends beside what is fair, and what happened when."""

from __future__ import annotations

import time

from nicegui import ui

from ri2n_sdn.web.gui.charts import thinned
from ri2n_sdn.web.gui.fair_views import (
    MAX_LINES,
    fair_chart,
    lines_of,
    marks_of,
    worst_client,
)
from ri2n_sdn.web.gui.frame import html
from ri2n_sdn.web.gui.markup import text
from ri2n_sdn.web.gui.session import Session

__all__ = ["ClientChart"]

DRAW_S = 4.0
"""The chart is drawn anew so often at most: each time it is sent to the browser whole."""


class ClientChart:
    """The chart with a sentence on the worst client above it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._hosts: list[str] = []
        self._drawn_s = 0.0
        with ui.element("section").classes("card").props('aria-label="Clients"'):
            with ui.element("div").classes("head"):
                html(text("What each host sends, and what is fair for it"), name="h2")
                self._again = ui.button("Choose hosts again", on_click=self._choose_again)
                self._again.props("flat no-caps")
            self._said = html("", name="p").props("role=status")
            about = "Solid: sent. Dashed: fair. Upright lines: strategy, links and jobs changed."
            html(text(about), name="p", classes="muted")
            label = "What each host sends beside what is fair, over time, as a chart"
            with ui.element("div").props("role=img").classes("clients") as named:
                named.props["aria-label"] = label
                self._chart = ui.echart({}, renderer="svg").classes("chart")
                self._chart.props("aria-hidden=true")
        ui.timer(DRAW_S, self.update, immediate=False)  # Time goes on while nothing changes.

    def update(self) -> None:
        """Show what is new."""
        session = self._session
        if not session.allowed:
            return
        said = text(worst_client(session.state, old=session.age.old))
        if said != self._said.content:
            self._said.set_content(said)
        self._again.set_visibility(len(session.state["hosts"]) > MAX_LINES)
        now_s = time.monotonic()
        if now_s - self._drawn_s >= DRAW_S and (session.feed.connected or not self._drawn_s):
            self._drawn_s = now_s
            self._draw()

    def _choose_again(self) -> None:
        self._hosts = []
        self._draw()

    def _draw(self) -> None:
        state, history = self._session.state, self._session.feed.history
        self._hosts = lines_of(state, self._hosts)
        fair, sent = {}, {}
        times: list[float] = []
        for host in self._hosts:
            times, fair[host] = history.fair(host)
            known = history.host(host)
            of_time = dict(zip(known.time_s, known.tx_bps, strict=True))
            sent[host] = [of_time.get(time_s) for time_s in times]
        thin_s, lines = thinned(times, sent)
        _, dashed = thinned(times, fair)
        shown = {host: values for host, values in dashed.items() if any(values)}
        marks = marks_of(state["events"], times[0] if times else 0.0)
        self._chart.options.clear()
        self._chart.options.update(fair_chart(thin_s, lines, shown, marks))
        self._chart.update()
