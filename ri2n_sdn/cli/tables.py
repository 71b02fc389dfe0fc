# SPDX-License-Identifier: Apache-2.0
"""Tables as data: a table is a list of columns, and each column knows what it shows of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ri2n_sdn.cli.common import console, print_json
from ri2n_sdn.contract.printing import printable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["Column", "comma_list", "mark", "or_dash", "print_list", "table", "yes_no"]


class Column(NamedTuple):
    """A column: its heading, the value of a row that it shows, and how this value is written.

    `value` is a key of the row, or a function of the whole row. Left out, it is the heading as a
    key. Rates and counts stand on the `right`. `wide`: only where there is room. `short`: how the
    value is written where there is little room; None is as `written`.
    """

    heading: str
    value: str | Callable[[Any], Any] = ""
    written: Callable[[Any], str | Text] = str
    right: bool = False
    wide: bool = False
    short: Callable[[Any], str | Text] | None = None

    @property
    def key(self) -> str:
        """The key of the value in a row."""
        return self.value if isinstance(self.value, str) and self.value else self.heading

    def cell(self, row: Any) -> Text:
        """What stands in a row. Names come from hosts, and may hold what changes a terminal."""
        from rich.text import Text  # who prints JSON needs nothing of it

        value = self.value(row) if callable(self.value) else row[self.key]
        shown = value if isinstance(value, Text) else self.written(value)
        return shown if isinstance(shown, Text) else Text(printable(shown, None))


def table(
    columns: Iterable[Column],
    rows: Iterable[Any],
    *,
    once: int = 0,
    row_style: Callable[[Any], str] = lambda row: "",
    **looks: Any,
) -> Table:
    """A table of these columns and rows. `looks` are further arguments of rich's `Table`.

    The first `once` cells of a row are empty where they are as in the row above.

    The table adapts to the width of the terminal as it is printed. Where the whole table is too
    wide, it loses its frame and shows short forms. Then its `wide` columns go, the last one first.
    What is left folds names and sentences. Nothing is cut off.
    """
    from rich.table import Table
    from rich.text import Text

    from ri2n_sdn.cli.adapting import Adapting

    every, listed = list(columns), list(rows)

    def made(table: Table, shown: Sequence[Column]) -> Table:
        former = list[Text]()
        for column in shown:
            # Folded numbers are hard to read, so words fold.
            side: Literal["right", "left"] = "right" if column.right else "left"
            table.add_column(column.heading, justify=side, overflow="fold", no_wrap=column.right)
        for row in listed:
            cells = [column.cell(row) for column in shown]
            first = [Text()] * once if cells[:once] == former else cells[:once]
            table.add_row(*first, *cells[once:], style=row_style(row))
            former = cells[:once]
        return table

    def narrower() -> Iterator[Table]:
        """The table in less and less columns of the terminal."""
        plain: dict[str, Any] = {"box": None, "pad_edge": False, "padding": (0, 2, 0, 0)}
        left = [column._replace(written=column.short or column.written) for column in every]
        while True:
            yield made(Table(**looks, **plain), left)
            wide = [column for column in left if column.wide]
            if not wide:
                return
            left.remove(wide[-1])

    return made(Adapting(narrower, **looks), every)


def print_list(
    rows: Sequence[Any],
    columns: Iterable[Column],
    as_json: bool,
    none: str,
    order: Callable[[Any], Any] = lambda row: 0,
) -> None:
    """Print a controller's list: as JSON, or as a table in an `order`; `none` when it is empty."""
    if as_json:
        print_json(rows)
    elif not rows:
        print(none)
    else:
        console().print(table(columns, sorted(rows, key=order)))


def or_dash(value: object) -> str:
    """A value; `-` for None and for nothing."""
    return "-" if value in (None, "") else str(value)


def comma_list(values: Sequence[str]) -> str:
    """Names, with commas between them; `-` when there are none."""
    return ", ".join(values) or "-"


def yes_no(value: object) -> str:
    """`yes`, `NO`, or `-` for None, which means that it is not known."""
    return "-" if value is None else "yes" if value else "NO"


def mark(value: object) -> Text:
    """As `yes_no`, and `NO` is easy to see."""
    from rich.text import Text

    return Text(yes_no(value), style="bold red" if value is not None and not value else "")
