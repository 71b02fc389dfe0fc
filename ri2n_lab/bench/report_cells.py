# SPDX-License-Identifier: Apache-2.0
"""Markdown that a report is made of: table cells that cannot break their table, tables, prose."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["cell", "code", "prose", "table"]

MAX_COLUMNS = 100


def cell(text: str) -> str:
    """Text that cannot end a table's cell or begin markup of its own."""
    return re.sub(r"([\\|\[`*])", r"\\\1", _one_line(text)).replace("<", "&lt;")


def code(text: str) -> str:
    """`text` as code, without what would end it."""
    return f"`{_one_line(text.replace('`', '').replace('|', '/'))}`"


def prose(text: str, *, item: bool = False) -> Iterator[str]:
    """A paragraph in lines of at most 100 columns and the empty line after it.

    `item` makes it an item of a list, without the empty line.
    """
    yield from textwrap.wrap(
        text,
        MAX_COLUMNS,
        initial_indent="* " if item else "",
        subsequent_indent="  " if item else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    if not item:
        yield ""


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table and the empty line after it."""
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for line in lines:
        yield f"| {' | '.join(line)} |"
    yield ""


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
