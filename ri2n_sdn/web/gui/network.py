# SPDX-License-Identifier: Apache-2.0
"""The page of the network: hosts, NICs and switches in one picture, and a table of the hosts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from nicegui import events, ui

from ri2n_sdn.contract.names import natural
from ri2n_sdn.contract.operations import JOB_SHOW
from ri2n_sdn.contract.units import counted
from ri2n_sdn.web.gui.client_chart import ClientChart
from ri2n_sdn.web.gui.drawing import Drawing, InPlace, legend, run
from ri2n_sdn.web.gui.explain_views import only
from ri2n_sdn.web.gui.frame import empty_state, frame, html
from ri2n_sdn.web.gui.hosts_table import PAGE_ROWS, cells, details, found, rate_cells, table
from ri2n_sdn.web.gui.markup import text
from ri2n_sdn.web.gui.scene import Nic
from ri2n_sdn.web.gui.session import Session
from ri2n_sdn.web.gui.tree_views import NO_TREE, cables_of, said_of, tree_choices

__all__ = ["build"]

NO_JOB = ""


def build(session: Session) -> None:
    """Build the page. `?host=NAME` and `?job=ID` choose something from the beginning."""
    with frame("Network", session):
        _Network(session)


class _Network:
    """The parts of the page, and what is chosen on it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._job = session.query.get("job", NO_JOB)
        self._job_document: Any = None
        self._tree = NO_TREE
        self._host = session.query.get("host") or None
        self._empty = empty_state(
            "No host has joined yet.",
            "Run host-up --controller with this controller's address on each host. It appears here"
            " by itself, within seconds. If it does not, host-status on the host says why.",
        )
        with ui.element("div").classes("parts") as self._all:
            with ui.element("div").classes("tools"):
                self._jobs = ui.select(
                    {NO_JOB: "no job"},
                    value=NO_JOB,
                    label="Show what a job uses",
                    on_change=self._choose_job,
                ).props("outlined dense options-dense")
                self._trees = ui.select(
                    tree_choices(session.state),
                    value=NO_TREE,
                    label="Show the tree of a VLAN",
                    on_change=self._choose_tree,
                ).props("outlined dense options-dense")
                self._wrong = ui.switch("Only what is wrong", on_change=self._update)
                self._wrong.props["aria-label"] = "Only what is wrong"
                self._said = html("", classes="muted").props('role="status"')
                self._tree_said = html("", classes="muted").props('role="status"')
            with ui.element("div").classes("card") as self._card:
                self._drawing = Drawing(session.feed)
                html(legend(way="used by the job or the tree"), classes="legend")
            self._details = html("", name="section", classes="card")
            self._details.props('id=host-details tabindex=-1 aria-label="The chosen host"')
            self._facts = InPlace(self._details, "cells")
            self._chart = ClientChart(session)
            self._table = _Table(session)
        ui.on("ri2n-row", self._choose_row)
        ui.on("ri2n-host", self._choose_host)
        self._update()
        session.live(self._refresh)
        if self._job:
            ui.timer(0, self._load_job, once=True)
        if self._host:  # It may be below the picture.
            ui.timer(0, lambda: run("reveal", "host-details"), once=True)

    async def _refresh(self) -> None:
        if self._job and self._session.state["jobs"].get(self._job) != self._job_document:
            await self._load_job()
        self._update()

    def _update(self) -> None:
        state = self._session.state
        there = bool(state["hosts"])
        self._empty.set_visibility(not there)
        self._all.set_visibility(there)
        if not there:
            return
        row = self._drawing.row_of(self._host) if self._host else None
        self._drawing.chosen = row.label if row is not None else None
        self._update_trees()
        if self._wrong.value:
            wrong = found(state, "", only_bad=True)
            self._card.set_visibility(bool(wrong))
            self._drawing.show(only(state, wrong), whole=False)
        else:
            self._card.set_visibility(True)
            self._drawing.show(state)
        self._chart.update()
        self._update_jobs()
        self._details.set_visibility(self._host is not None)
        if self._host is not None:
            # Rates change all the time. Only their cells do, so that what somebody reads, has
            # marked or is at with the keyboard stays where it is.
            host, old = self._host, self._session.age.old
            rest, look = details({**state, "rates": {}}, host, old=old), rate_cells(state, host)
            self._facts.show(rest, look, lambda: details(state, host, old=old))
        self._table.update(only_bad=bool(self._wrong.value))

    def _update_jobs(self) -> None:
        jobs = self._session.state["jobs"]
        options = {NO_JOB: "no job"} | {
            key: f"{key} ({jobs[key]['user']}, {counted(len(jobs[key]['hosts']), 'host')})"
            for key in sorted(jobs, key=natural)
        }
        if self._job and self._job not in options:
            options[self._job] = f"{self._job} (has ended)"
        if options != self._jobs.options or self._jobs.value != self._job:
            self._jobs.set_options(options, value=self._job)

    def _update_trees(self) -> None:
        state = self._session.state
        options = tree_choices(state)
        if self._tree not in options:
            self._tree = NO_TREE
        if options != self._trees.options or self._trees.value != self._tree:
            self._trees.set_options(options, value=self._tree)
        self._trees.set_visibility(len(options) > 1)
        self._drawing.cables = cables_of(state, self._tree)
        self._tree_said.set_content(text(said_of(state, self._tree)))

    def _choose_tree(self, event: events.ValueChangeEventArguments[Any]) -> None:
        chosen = event.value if isinstance(event.value, int) else NO_TREE
        if chosen != self._tree:
            self._tree = chosen
            self._update()

    async def _choose_job(self, event: events.ValueChangeEventArguments[Any]) -> None:
        chosen = str(event.value or NO_JOB)
        if chosen != self._job:
            self._job = chosen
            self._session.moved(job=chosen)
            await self._load_job()
            self._update()

    async def _load_job(self) -> None:
        """Find out which NICs the chosen job uses."""
        self._job_document = self._session.state["jobs"].get(self._job)
        self._drawing.nics, said = (), ""
        if self._job and self._job_document is None:
            said = f"Job {self._job} has ended."
        elif self._job:
            answer = await self._session.ask(JOB_SHOW, id=self._job)
            routes = answer["job"]["routes"] if answer is not None else []
            self._drawing.nics = frozenset(
                Nic(host, nic)
                for route in routes
                for host, nic in ((route["src"], route["own"]), (route["dst"], route["peer"]))
            )
            dead = sum(not route["alive"] for route in routes)
            said = f"Job {self._job} uses {counted(len(self._drawing.nics), 'NIC')}" + (
                f"; {dead} of its {counted(len(routes), 'path')} are dead." if dead else "."
            )
        self._said.set_content(text(said))
        self._update()

    def _choose_row(self, event: events.GenericEventArguments) -> None:
        row = self._drawing.row(event.args)
        if row is not None and len(row.hosts) == 1:
            self._show_host(row.hosts[0])
        elif row is not None:
            self._table.show_group(row.hosts)
            self._show_host(None)

    def _choose_host(self, event: events.GenericEventArguments) -> None:
        if isinstance(event.args, str) and event.args in self._session.state["hosts"]:
            self._show_host(event.args)

    def _show_host(self, host: str | None) -> None:
        self._host = host
        self._session.moved(host=host or "")
        self._update()
        run("reveal", "host-details" if host else "hosts")


class _Table:
    """The table of hosts with its search, in pages."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._page, self._only_bad = 0, False
        self._group: Collection[str] | None = None
        with ui.element("section").classes("card").props('id=hosts aria-label="Hosts"'):
            html(text("Hosts"), name="h2")
            with ui.element("div").classes("tools"):
                self._search = ui.input(
                    "Search by name or address", on_change=self._search_again
                ).props("outlined dense clearable debounce=300 type=search")
                self._all = ui.button("All hosts", on_click=self._leave_group).props("outline")
                with ui.element("span").classes("pager"):
                    self._back = ui.button("Previous", on_click=lambda: self._turn(-1))
                    self._next = ui.button("Next", on_click=lambda: self._turn(1))
                    for button in (self._back, self._next):
                        button.props("outline")
                self._said = html("", classes="muted").props('role="status"')
            self._body = InPlace(html("", classes="scroll"), "cells")

    def show_group(self, hosts: Collection[str]) -> None:
        """From now on only these hosts are shown, from the first page on."""
        self._group, self._page = hosts, 0
        self._search.set_value("")

    def update(self, *, only_bad: bool | None = None) -> None:
        """Show the state as it is now; from now on with `only_bad` hosts with a problem alone."""
        if only_bad is not None:
            self._only_bad = only_bad
        state = self._session.state
        names = found(state, self._search.value or "", self._group, only_bad=self._only_bad)
        pages = max(1, -(-len(names) // PAGE_ROWS))
        self._page = min(max(0, self._page), pages - 1)
        first = self._page * PAGE_ROWS
        shown = names[first : first + PAGE_ROWS]
        look = cells(state, shown, old=self._session.age.old)
        none = text(self._none())
        self._body.show(shown, look, lambda: table(shown, look) if shown else none)
        where = f"{first + 1} to {first + len(shown)} of " if pages > 1 else ""
        self._said.set_content(text(f"{where}{counted(len(names), 'host')}"))
        self._back.set_visibility(pages > 1)
        self._next.set_visibility(pages > 1)
        self._back.set_enabled(self._page > 0)
        self._next.set_enabled(self._page < pages - 1)
        self._all.set_visibility(self._group is not None)

    def _none(self) -> str:
        if self._search.value:
            return "No host fits. Clear the search to see all."
        return (
            "No host has a problem. Turn off “Only what is wrong” to see all."
            if self._only_bad
            else "There is no host."
        )

    def _search_again(self) -> None:
        self._page = 0
        self.update()

    def _leave_group(self) -> None:
        self._group, self._page = None, 0
        self.update()

    def _turn(self, by: int) -> None:
        self._page += by
        self.update()
