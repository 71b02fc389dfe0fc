# SPDX-License-Identifier: Apache-2.0
"""Tables of figures, and the reasons below them why something cannot be measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ri2n_lab.bench.figure import Figure
from ri2n_lab.bench.report_cells import cell, code, prose, table
from ri2n_lab.bench.report_pictures import contenders, peer_titles
from ri2n_lab.bench.report_rows import FailoverRow, Fig4Row, Row

__all__ = ["Line", "Notes", "contender_matrix", "figure_table", "name_text", "peer_lines"]


@dataclass(frozen=True)
class Line:
    """A line of a table: the cells that say what it is of, its name in reasons, and its rows."""

    cells: Sequence[str]
    name: str
    rows: Sequence[Row]


class Notes:
    """Reasons why a peer cannot do something, numbered from 1, each once."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def cell(self, name: str, rows: Sequence[Row]) -> str:
        """`no (1)`, or `-` for what was not measured."""
        reasons = sorted({reason for row in rows if (reason := row.figure("why_not"))})
        if not reasons:
            return "-"
        numbers = []
        for reason in reasons:
            text = f"*{cell(name)}*: {cell(reason)}"
            if text not in self._texts:
                self._texts.append(text)
            numbers.append(str(self._texts.index(text) + 1))
        return f"no ({', '.join(numbers)})"

    def lines(self) -> Iterator[str]:
        """The reasons, to stand below the table."""
        for number, text in enumerate(self._texts, start=1):
            yield from prose(f"({number}) {text}{'' if text.endswith('.') else '.'}", item=True)
        if self._texts:
            yield ""


def contender_matrix(
    heading: Callable[[str], str],
    columns: Mapping[str, Sequence[FailoverRow] | Sequence[Fig4Row]],
    text: Callable[[Sequence[Row]], str | None],
) -> Iterator[str]:
    """A table of contenders by `columns`, with the reasons below it why a cell has no figure.

    `text` makes a cell of a contender's rows in a column; None: nothing was measured.
    """
    notes = Notes()
    lines = []
    for name, peer in contenders(row for rows in columns.values() for row in rows):
        cells = [name_text(name, peer)]
        for rows in columns.values():
            members = [row for row in rows if row.strategy == name]
            cells.append(text(members) or notes.cell(name, members))
        lines.append(cells)
    yield from table(("", *map(heading, columns)), lines)
    yield from notes.lines()


def peer_lines(rows: Iterable[Fig4Row | FailoverRow]) -> Iterator[str]:
    """What the peers are, as far as this version knows them, as a list."""
    titles = peer_titles()
    names = [name for name, peer in contenders(rows) if peer and name in titles]
    for name in names:
        yield from prose(f"*{cell(name)}*: {cell(titles[name])}", item=True)
    if names:
        yield ""


def figure_table(
    heads: Sequence[str],
    lines: Sequence[Line],
    figures: Iterable[Figure],
    more: Mapping[str, Callable[[Sequence[Row]], str]] | None = None,
) -> Iterator[str]:
    """A table of figures: `heads` stand above the cells that say what a line is of.

    `more` are columns that no figure has, by heading. Where nothing was measured stands the number
    of the reason, and the reasons stand below the table.
    """
    rows = [row for line in lines for row in line.rows]
    shown = [figure for figure in figures if figure.shown(row.figure(figure.name) for row in rows)]
    extra = dict(more or {})
    notes = Notes()
    cells = []
    for line in lines:
        values = {figure: [row.figure(figure.name) for row in line.rows] for figure in shown}
        if any(value for each in values.values() for value in each if value != {}) or not any(
            row.figure("why_not") for row in line.rows
        ):
            texts = [cell(figure.cell(each)) for figure, each in values.items()]
            texts += [text(line.rows) for text in extra.values()]
        else:
            texts = [notes.cell(line.name, line.rows), *[""] * (len(shown) + len(extra) - 1)]
        cells.append([*line.cells, *texts])
    yield from table((*heads, *(cell(figure.title) for figure in shown), *extra), cells)
    yield from notes.lines()


def name_text(name: str, peer: bool) -> str:
    """A strategy as code, a peer in italics."""
    return f"*{cell(name)}*" if peer else code(name)
