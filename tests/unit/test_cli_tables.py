# SPDX-License-Identifier: Apache-2.0
"""The tables of all commands: what a column shows, what stays empty, and what no name can do."""

from __future__ import annotations

import io
import json
from typing import Any, Literal

import pytest
from rich.console import Console
from rich.table import Table

from ri2n_sdn.cli.tables import Column, comma_list, mark, or_dash, print_list, table, yes_no

HOSTILE = "eth\x1b[2J[/]:smile:"
ROWS: list[dict[str, Any]] = [
    {"name": "B", "mac": "aa", "sent": 5},
    {"name": "B", "mac": None, "sent": 0},
    {"name": "A", "mac": "", "sent": 12},
]
COLUMNS = (
    Column("name"),
    Column("MAC", "mac", or_dash),
    Column("double", lambda row: 2 * row["sent"], "{} B".format, right=True),
)


def lines_of(shown: Table, *, colours: bool = False) -> list[str]:
    """What a terminal of 60 columns gets."""
    file = io.StringIO()
    system: Literal["standard"] | None = "standard" if colours else None  # whatever TERM is here
    console = Console(
        file=file, width=60, force_terminal=colours, color_system=system, markup=False
    )
    console.print(shown)
    return file.getvalue().splitlines()


def words_of(shown: Table) -> list[list[str]]:
    """The cells of each row, without the frame."""
    lines = [line for line in lines_of(shown) if line[0] in "│"]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_a_column_shows_a_key_or_what_a_function_makes_of_the_row() -> None:
    shown = table(COLUMNS, ROWS)
    assert [column.header for column in shown.columns] == ["name", "MAC", "double"]
    assert words_of(shown) == [["B", "aa", "10 B"], ["B", "-", "0 B"], ["A", "-", "24 B"]]
    right = [line.index(" B │") for line in lines_of(shown) if " B │" in line]
    assert len(right) == 3 and len({*right}) == 1, "numbers end below each other"


def test_the_first_cells_are_empty_where_they_are_as_above() -> None:
    assert [row[0] for row in words_of(table(COLUMNS, ROWS, once=1))] == ["B", "", "A"]
    assert [row[0] for row in words_of(table(COLUMNS, ROWS, once=2))] == ["B", "B", "A"]


def test_no_name_changes_the_terminal() -> None:
    (line,) = [
        line for line in lines_of(table([Column("name")], [{"name": HOSTILE}])) if "eth" in line
    ]
    assert r"eth\x1b[2J[/]:smile:" in line and "\x1b" not in line


def test_what_is_wrong_is_easy_to_see() -> None:
    assert [yes_no(value) for value in (True, False, None)] == ["yes", "NO", "-"]
    columns = [Column("alive", written=mark)]
    shown = "\n".join(lines_of(table(columns, [{"alive": False}]), colours=True))
    assert "\x1b[1;31mNO" in shown
    fine = "\n".join(lines_of(table(columns, [{"alive": True}, {"alive": None}]), colours=True))
    assert "31m" not in fine
    away = table(columns, [{"alive": True}], row_style=lambda row: "red")
    assert "\x1b[31m" in "\n".join(lines_of(away, colours=True))


def test_a_value_that_is_not_there_is_a_dash_but_zero_is_a_number() -> None:
    assert [or_dash(value) for value in (None, "", 0, "0")] == ["-", "-", "0", "0"]
    assert [comma_list(names) for names in ([], ["a", "b"])] == ["-", "a, b"]


def test_a_list_is_json_or_a_table_in_order_or_says_that_it_is_empty(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_list(ROWS, COLUMNS, True, "nothing")
    assert json.loads(capsys.readouterr().out) == ROWS, "in the controller's order"
    print_list(ROWS, COLUMNS, False, "nothing", lambda row: row["name"])
    shown = capsys.readouterr().out
    assert shown.index("24 B") < shown.index("10 B") < shown.index(" 0 B")
    print_list([], COLUMNS, False, "nothing")
    assert capsys.readouterr().out == "nothing\n"
    print_list([], COLUMNS, True, "nothing")
    assert json.loads(capsys.readouterr().out) == []
