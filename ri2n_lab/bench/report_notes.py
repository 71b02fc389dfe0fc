"""Reasons under a table why something cannot be measured, and the names in its first column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ri2n_lab.bench.report_cells import cell, code, prose
from ri2n_lab.bench.report_pictures import contenders, peer_titles
from ri2n_lab.bench.report_rows import FailoverRow, Fig4Row

__all__ = ["Notes", "name_text", "peer_lines"]


class _Reasoned(Protocol):
    @property
    def why_not(self) -> str | None: ...


class Notes:
    """Reasons why a peer cannot do something, numbered from 1, each once."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def cell(self, name: str, rows: Sequence[_Reasoned]) -> str:
        """`no (1)`, or `-` for what was not measured."""
        reasons = sorted({row.why_not for row in rows if row.why_not is not None})
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


def peer_lines(rows: Iterable[Fig4Row | FailoverRow]) -> Iterator[str]:
    """What the peers are, as far as this version knows them, as a list."""
    titles = peer_titles()
    names = [name for name, peer in contenders(rows) if peer and name in titles]
    for name in names:
        yield from prose(f"*{cell(name)}*: {cell(titles[name])}", item=True)
    if names:
        yield ""


def name_text(name: str, peer: bool) -> str:
    """A strategy as code, a peer in italics."""
    return f"*{cell(name)}*" if peer else code(name)
