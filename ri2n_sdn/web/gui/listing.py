# SPDX-License-Identifier: Apache-2.0
"""A table of which the server makes one page at a time, with search, order and buttons in rows."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple, TypeVar

from nicegui import events, ui

from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.web.gui.frame import empty_state, html
from ri2n_sdn.web.gui.markup import plain, text
from ri2n_sdn.web.gui.session import Session

__all__ = [
    "ASKING",
    "AWAY",
    "PAGE_ROWS",
    "Answer",
    "Column",
    "Listing",
    "Paced",
    "Question",
    "Steady",
    "page_of",
]

Row = dict[str, Any]
Item = TypeVar("Item")

PAGE_ROWS = 50
"""So many rows are sent to a browser at most."""

ASKING = "The controller is being asked."
"""What stands in place of an answer until it is there."""

AWAY = "Not known while the controller is away."
"""What stands in place of an answer that only the controller could give."""

ACTIONS = {
    "show": "Show",
    "details": "Details",
    "move": "Move",
    "back": "Move back",
    "end": "End",
    "remove": "Remove",
    "change": "Change",
    "reset": "Set back",
}
"""The buttons that a row may have, and their words."""

# Of rules that are `!important`, those of the first layers count: base is before Quasar's.
_STYLE = """
@layer base {
  .no-outline:focus-visible { outline: 3px solid var(--focus) !important; outline-offset: 2px; }
}
.listing { margin: 0.4em 0 1em; }
.bar { display: flex; flex-wrap: wrap; gap: 0.4em 1em; align-items: center; margin: 0.4em 0; }
.listing .bar .q-field { min-width: min(100%, 14em); }
.listing .q-table__container { border: 1px solid var(--line); border-radius: 8px; }
.listing .q-table th { font-size: 0.85rem; font-weight: 600; }
.listing .q-table .text-right { text-align: right; font-variant-numeric: tabular-nums; }
.listing .q-table td { font-size: 0.9rem; white-space: normal; overflow-wrap: break-word; }
.listing .q-table tbody td { height: auto; padding: 0.35em 0.6em; vertical-align: baseline; }
.listing .q-table .wide { width: 50%; min-width: 14em; overflow-wrap: anywhere; }
.listing .q-table a { text-decoration-color: var(--line); }
.listing .q-table a:hover { text-decoration-color: currentcolor; }
@media (min-width: 641px) { .listing .q-table .short { white-space: nowrap; } }
.listing .q-table th, .listing .q-table td { padding: 0.35em 0.6em; border-color: var(--line); }
.listing tr.bad-row td:first-child { box-shadow: inset 4px 0 0 var(--bad); }
.listing .ago { display: inline-block; min-width: 6em; }
.listing .when { color: var(--muted); white-space: nowrap; }
.actions .q-btn { white-space: nowrap; }
.listing .actions { display: flex; flex-wrap: wrap; gap: 0.2em; }
.q-btn { min-height: 2rem; }
.actions .q-btn, .bar .q-btn { border: 1px solid var(--line); color: var(--text); }
.refusal { color: var(--bad); overflow-wrap: anywhere; }
.dialog { width: min(40em, 92vw); max-width: 92vw; }
.dialog h2 { margin-top: 0; }
.q-btn { text-transform: none; }
h3 { margin: 0.6em 0 0.2em; font-size: 1.1em; font-weight: 600; line-height: 1.3; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2em 1em; margin: 0; }
dl dd { margin: 0; overflow-wrap: anywhere; }
.q-field__messages, .q-field__counter { color: var(--muted); }
"""


class Column(NamedTuple):
    """A column of a table.

    * `cure`: it says what to do. On a phone, where each row is a card, that comes first.
    * `link`: its text leads to the address that a row has under the column's name and `_href`.
    * `wide`: it has the room that others leave.
    * `short`: it is one line, but on a phone. Numbers are so anyway.
    * `time`: its text is a time. How long ago that was stands beside it, where a row has it in Unix
      seconds under the column's name and `_s`.
    """

    name: str
    label: str
    number: bool = False
    link: bool = False
    wide: bool = False
    short: bool = False
    time: bool = False
    cure: bool = False

    @property
    def classes(self) -> str:
        """The classes of its cells."""
        known = {"wide": self.wide, "cure": self.cure}
        known["short"] = self.short or self.number
        return " ".join(name for name, is_so in known.items() if is_so)


class Question(NamedTuple):
    """Which page of a table is wanted."""

    search: str
    sort: str
    offset: int
    limit: int


class Answer(NamedTuple):
    """A page of a table, and how many rows there are on all pages.

    `steady`: the rows of all pages are in an order that is kept. Otherwise the table keeps that of
    the page.
    """

    rows: Sequence[Row]
    total: int
    steady: bool = False


Fetch = Callable[[Question], Answer | Awaitable[Answer]]
Act = Callable[[str, str], Awaitable[None] | None]


class Steady:
    """Keeps rows where they are until another order is asked for.

    Whoever reaches for a button in a row must not get another row under the hand. So what is known
    stays in its order, and what is new comes last, whatever order it would have now.

    `moved` says whether the order would be another one now.
    """

    def __init__(self) -> None:
        self._keys: list[str] = []
        self.moved = False

    def forget(self) -> None:
        """The next order counts."""
        self._keys = []

    def keep(self, keys: Sequence[str]) -> list[str]:
        """These keys, in the order that they had before."""
        there, before = set(keys), set(self._keys)
        self._keys = [key for key in self._keys if key in there]
        self._keys += [key for key in keys if key not in before]
        self.moved = self._keys != list(keys)
        return list(self._keys)

    def arranged(self, rows: Sequence[Row], key: str) -> list[Row]:
        """These rows, which have their keys under `key`, in the order that they had before."""
        by_key = {str(row[key]): row for row in rows}
        return [by_key[each] for each in self.keep(list(by_key))]


def page_of(
    items: Sequence[Item],
    question: Question,
    row: Callable[[Item], Row] | None = None,
    *,
    order: Steady | None = None,
    key: Callable[[Item], str] = str,
) -> Answer:
    """The page that a question asks for, of what is filtered and in order already.

    `row` makes a row of an item, for the items of the page alone; without it they are rows. With an
    `order`, items stay where they were; `key` tells one from another.
    """
    if order is not None:
        by_key = {key(item): item for item in items}
        items = [by_key[each] for each in order.keep(list(by_key))]
    page: Sequence[Any] = items[question.offset : question.offset + question.limit]
    rows = page if row is None else [row(item) for item in page]
    return Answer(rows, len(items), order is not None)


class Listing:
    """A table in a page.

    `fetch` makes the page that a question asks for. It may raise BadInput and NotAvailable, whose
    words are shown then. `act` is called with the name of a button and the key of its row. Rows
    have texts by the names of the columns, and `actions` (names of buttons, between blanks) and
    `bad` (whether something is wrong) where they are needed. `empty` is what to say and what to
    advise where there are no rows. `begin` is what is searched for from the beginning.

    Rows with buttons stand still (`order`): their order changes when another one is chosen, when
    something is searched for, or with the button beside the choice of an order.
    """

    def __init__(
        self,
        session: Session,
        label: str,
        columns: Sequence[Column],
        fetch: Fetch,
        *,
        empty: tuple[str, str],
        key: str = "id",
        search: str | None = None,
        begin: str = "",
        sorts: Mapping[str, str] | None = None,
        act: Act | None = None,
    ) -> None:
        ui.add_css(_STYLE)
        self._session, self._fetch, self._act, self._key = session, fetch, act, key
        self._offset, self._total = 0, 0
        self._shown: Answer | None = None
        self._searched = ""
        self.order = Steady()
        with ui.element("section").classes("listing") as section:
            section.props["aria-label"] = label
            with ui.element("div").classes("bar") as self.bar:
                self._search = self._search_field(search, begin)
                self._sort = self._sort_field(label, sorts)
                self._again = ui.button("Sort again", on_click=self.restart)
                self._again.props("flat no-caps")
                self._again.visible = bool(sorts)
            self._refusal = html("", name="p", classes="refusal").props("role=alert")
            self._table = self._make_table(columns, act is not None)
            self._empty = empty_state(*empty)
            self._none = html(text(ASKING), name="p", classes="muted").props("role=status")
            with ui.element("div").classes("bar pager") as self._pager:
                self._before = ui.button("Previous", on_click=lambda: self._turn(-1))
                self._before.props("flat no-caps").props["aria-label"] = f"Previous page of {label}"
                self._where = ui.label().props("role=status")
                self._after = ui.button("Next", on_click=lambda: self._turn(1))
                self._after.props("flat no-caps").props["aria-label"] = f"Next page of {label}"
        self._show_only(self._none)

    @property
    def question(self) -> Question:
        """The page that is shown."""
        search = str(self._search.value or "") if self._search is not None else ""
        sort = str(self._sort.value) if self._sort is not None else ""
        return Question(search, sort, self._offset, PAGE_ROWS)

    async def refresh(self) -> None:
        """Show the page as it is now. What has not changed is not sent."""
        if not self._session.allowed:
            self._session.turn_to_login()
            return
        question = self.question
        try:
            answer = self._fetch(question)
            if inspect.isawaitable(answer):
                answer = await answer
        except (BadInput, NotAvailable) as error:
            # Why the controller is away is said once, in the banner.
            away = isinstance(error, NotAvailable) and not self._session.feed.connected
            self._refusal.set_content(text(AWAY if away else str(error)))
            self._again.set_enabled(False)
            self._show_only(self._refusal)
            self._shown = None
            return
        if question != self.question:
            return  # Somebody has turned the page meanwhile, and that is shown.
        if self._act is not None and not answer.steady:
            answer = Answer(self.order.arranged(answer.rows, self._key), answer.total)
        self._again.set_enabled(self.order.moved)
        if not answer.rows and self._offset and answer.total:
            self._offset = (answer.total - 1) // PAGE_ROWS * PAGE_ROWS
            await self.refresh()
            return
        if answer != self._shown or (not answer.rows and question.search != self._searched):
            self._searched = question.search
            self._show(answer)

    async def restart(self) -> None:
        """Show the first page, after another search or order was chosen."""
        self._offset = 0
        self.order.forget()
        await self.refresh()

    def _show(self, answer: Answer) -> None:
        self._shown = answer
        shown = [{key: plain(value) for key, value in row.items()} for row in answer.rows]
        if self._table.rows != shown:
            self._table.rows = shown
        # What is not found may be there: that is another message than that there is nothing.
        if searched := self._searched.strip():
            said = f"Nothing fits “{searched}”. Clear the search to see all."
            self._none.set_content(text(said))
        part = self._table if shown else self._none if searched else self._empty
        self._show_only(part, pager=answer.total > PAGE_ROWS)
        self._total = answer.total
        last = self._offset + len(shown)
        self._where.text = f"{self._offset + 1:,} to {last:,} of {answer.total:,}"
        self._before.set_enabled(self._offset > 0)
        self._after.set_enabled(last < answer.total)

    def _show_only(self, shown: ui.element, *, pager: bool = False) -> None:
        """Show one of the parts that stand for each other, and the pager where it is needed."""
        for part in (self._refusal, self._table, self._empty, self._none):
            part.visible = part is shown
        self._pager.visible = pager

    async def _turn(self, pages: int) -> None:
        offset = self._offset + pages * PAGE_ROWS
        if 0 <= offset < max(1, self._total):
            self._offset = offset
            await self.refresh()

    def _search_field(self, label: str | None, begin: str) -> ui.input | None:
        if label is None:
            return None
        field = ui.input(label, value=begin[:128], on_change=self.restart)
        field.props("outlined dense clearable")
        return field.props("debounce=300 type=search autocomplete=off maxlength=128")

    def _sort_field(self, label: str, sorts: Mapping[str, str] | None) -> ui.select | None:
        if not sorts:
            return None
        field = ui.select(dict(sorts), value=next(iter(sorts)), label=f"Order of {label.lower()}")
        field.on_value_change(self.restart)
        return field.props("outlined dense")

    def _make_table(self, columns: Sequence[Column], with_actions: bool) -> ui.table:
        wanted = [*columns, *([Column("actions", "Actions")] if with_actions else [])]
        table = ui.table(
            columns=[
                {
                    "name": column.name,
                    "label": column.label,
                    "field": column.name,
                    "align": "right" if column.number else "left",
                    "classes": column.classes,
                    "headerClasses": column.classes,
                }
                for column in wanted
            ],
            rows=[],
            row_key=self._key,
        )
        table.props("flat wrap-cells hide-no-data")
        table.props(""":table-row-class-fn="row => row.bad ? 'bad-row' : ''" """)
        for column in wanted:
            if column.link:
                table.add_slot(f"body-cell-{column.name}", _link(column.name))
            if column.time:
                table.add_slot(f"body-cell-{column.name}", _time(column.name))
        if with_actions:
            table.add_slot("body-cell-actions", _buttons(self._key))
            table.on("act", self._acted)
        return table

    async def _acted(self, event: events.GenericEventArguments) -> None:
        """A button was pressed. Browsers may say anything, so only those that are there count."""
        if not isinstance(event.args, list) or len(event.args) != 2:
            return
        action, key = event.args
        for row in self._shown.rows if self._shown is not None else ():
            if str(row[self._key]) == str(key) and action in row.get("actions", "").split():
                result = self._act(str(action), str(key)) if self._act is not None else None
                if inspect.isawaitable(result):
                    await result
                return


class Paced:
    """Has something refreshed, but at most every `pause_s`; what is left out follows."""

    def __init__(self, pause_s: float, refresh: Callable[[], Awaitable[None]]) -> None:
        self._pause_s, self._refresh = pause_s, refresh
        self._begun_s, self._news = 0.0, True
        ui.timer(pause_s, self._catch_up, immediate=False)

    async def refresh(self) -> None:
        """Show what is new, now or a little later."""
        self._news = True
        await self._catch_up()

    async def _catch_up(self) -> None:
        if self._news and time.monotonic() - self._begun_s >= self._pause_s:
            self._news, self._begun_s = False, time.monotonic()
            await self._refresh()


def _link(column: str) -> str:
    """The template of a cell whose text is a link, where its row says where to."""
    href = f"props.row.{column}_href"
    return (
        f'<q-td :props="props"><a v-if="{href}" :href="{href}">{{{{ props.value }}}}</a>'
        f"<template v-else>{{{{ props.value }}}}</template></q-td>"
    )


def _time(column: str) -> str:
    """The template of a cell with a time, and how long ago that was (gui.js)."""
    time_s = f"props.row.{column}_s"
    return (
        f'<q-td :props="props"><time v-if="{time_s}" class="ago" :data-time-s="{time_s}"></time>'
        f'<span class="when">{{{{ props.value }}}}</span></q-td>'
    )


def _buttons(key: str) -> str:
    """The template of a cell with a button for each action of its row."""
    words = escape(json.dumps(ACTIONS), quote=True)
    name = f"(({words})[action] || action)"
    return (
        f'<q-td :props="props"><div class="actions">'
        f"<q-btn v-for=\"action in (props.row.actions || '').split(' ').filter(Boolean)\""
        f' :key="action" flat dense no-caps :label="{name}"'
        f" :aria-label=\"{name} + ' ' + props.row.{key}\""
        f" @click=\"() => $parent.$emit('act', [action, props.row.{key}])\" />"
        f"</div></q-td>"
    )
