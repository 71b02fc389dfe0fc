# SPDX-License-Identifier: Apache-2.0
"""The demo's table: what each client got under each strategy, beside what is fair. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from ri2n_sdn.cli.tables import Column, table
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.contract.units import short_rate, table_rate

if TYPE_CHECKING:
    from rich.table import Table

    from ri2n_lab.bench.fair import Optimum

__all__ = ["STREAMS", "compared"]

STREAMS = 8
"""The TCP streams from every client to the server."""

_FAIR = "(fair optimum)"
_ROOM_COLUMNS = 30
"""So many columns of a terminal of 80 are left for clients beside the strategies and the sums."""

_Row = dict[str, Any]


def compared(
    results: Mapping[str, _Row], clients: Sequence[str], optimum: Optimum, running: str
) -> Group:
    """The table, with a row for each strategy, and what its figures are.

    `running` is the strategy that runs, "" for none. Where names of clients would not fit beside
    each other, clients have the rows, and strategies the columns.
    """
    fair = {"clients": optimum.fair_bps, "total_of_optimum": 1.0, "worst_share": 1.0}
    known: dict[str, _Row | None] = {name: results.get(name) for name in STRATEGIES}
    known[_FAIR] = fair
    short = [name for name, row in results.items() if row["cpus_short"]]
    labels = {name: f"{name} *" if name in short else name for name in known}
    if running:
        labels[running] = f"{running} ..."
    needed = sum(max(len(client), len("100.0M")) + 2 for client in clients)
    made = _by_strategy if needed <= _ROOM_COLUMNS else _by_client
    hint = (
        "while a strategy runs, the figures are what arrives on the wire; then they are the "
        "goodput that iperf3 measured"
    )
    lines = [Text(hint, style="dim")]
    for name in short:
        words = _cpu_words(results[name]["cpus"])
        lines.append(Text(f"* {name}: CPUs short: {words}", style="yellow"))
    if short:
        said = "Where CPUs are short, links may stay empty for want of them."
        lines.append(Text(said, style="yellow"))
    return Group(made(known, labels, clients), *lines)


def _cpu_words(cpus: Mapping[str, float | None]) -> str:
    words = [f"{cpus['idle']:.0%} idle", f"{cpus['stolen']:.0%} stolen"]
    if cpus["waiting"] is not None:
        words.append(f"waited for {cpus['waiting']:.0%} of the time")
    return ", ".join(words)


def _by_strategy(
    known: Mapping[str, _Row | None], labels: Mapping[str, str], clients: Sequence[str]
) -> Table:
    rows = [
        {"strategy": labels[name], **_cells(row, clients), "known": row is not None}
        for name, row in known.items()
    ]
    columns = (
        Column("strategy"),
        *(_rate(client) for client in clients),
        _rate("total"),
        Column("of optimum", right=True),
        Column("worst share", right=True),
    )
    return table(columns, rows, row_style=_style, title=_title(), title_justify="left")


def _by_client(
    known: Mapping[str, _Row | None], labels: Mapping[str, str], clients: Sequence[str]
) -> Table:
    cells = {name: _cells(row, clients) for name, row in known.items()}
    rows = [
        {"client": client, **{name: cells[name][client] for name in known}}
        for client in (*clients, "total", "of optimum", "worst share")
    ]
    columns = (
        Column("client"),
        *(_rate(name)._replace(heading=labels[name], value=name) for name in known),
    )
    return table(columns, rows, title=_title(), title_justify="left")


def _title() -> str:
    return f"{STREAMS} TCP streams from every client to the server"


def _cells(row: _Row | None, clients: Sequence[str]) -> _Row:
    """The rate of each client and of all, and the shares in words; None for what is not known."""
    if row is None:
        return {**dict.fromkeys((*clients, "total")), "of optimum": "", "worst share": ""}
    return {
        **{client: row["clients"][client] for client in clients},
        "total": sum(row["clients"][client] for client in clients),
        "of optimum": f"{row['total_of_optimum']:.0%}",
        "worst share": f"{row['worst_share']:.0%}",
    }


def _rate(name: str) -> Column:
    """A column of rates, or of words, which stay as they are."""

    def written(rate: float | str | None) -> str:
        return "" if rate is None else rate if isinstance(rate, str) else table_rate(rate)

    def short(rate: float | str | None) -> str:
        return "" if rate is None else rate if isinstance(rate, str) else short_rate(rate)

    return Column(name, written=written, right=True, short=short)


def _style(row: _Row) -> str:
    label = str(row["strategy"])
    return "bold" if label.endswith("...") else "" if row["known"] and label != _FAIR else "dim"
