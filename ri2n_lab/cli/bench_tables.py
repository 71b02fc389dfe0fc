# SPDX-License-Identifier: Apache-2.0
"""What the benches print: tables of the figures that each of them declares.

The functions import the bench that they are about, so that `--help` need not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table

if TYPE_CHECKING:
    from ri2n_lab.bench.context import Report
    from ri2n_lab.bench.figure import Figure

from ri2n_sdn.contract.units import table_rate

__all__ = [
    "MEDIAN",
    "cycle_table",
    "demand_table",
    "failover_table",
    "fig4_table",
    "fig9_table",
    "figure_table",
    "helper_tables",
    "stream_table",
]

Json = dict[str, Any]
Column = Callable[[Json, Sequence[Json]], str]
"""What makes a cell of a line, and of the rows that the line is the summary of."""

MEDIAN = "median (smallest..largest)"


def figure_table(
    title: str,
    lines: Sequence[Json],
    rows: Sequence[Json],
    keys: Mapping[str, str],
    figures: Sequence[Figure],
    more: Mapping[str, Column] | None = None,
) -> Table:
    """A line for each of `lines`: what it is of, its figures, and columns that no figure has.

    `keys` are headings, and the keys of lines and rows below them; `rows` are those that `lines`
    are the summary of. A line that could not be measured says why.
    """
    table = Table(title=title, title_justify="left")
    both = [*lines, *rows]
    shown = [figure for figure in figures if figure.shown(each.get(figure.name) for each in both)]
    for heading in keys:
        table.add_column(heading)
    for figure in shown:
        table.add_column(figure.title, justify="right")
    for heading in more or {}:
        table.add_column(heading)
    if any(line.get("why_not") for line in lines):
        table.add_column("cannot, because")
    for line in lines:
        cells = [_key_text(line.get(key)) for key in keys.values()]
        if line.get("why_not"):
            table.add_row(*cells, *["-"] * (len(shown) + len(more or {})), line["why_not"])
            continue
        members = [row for row in rows if all(row.get(k) == line.get(k) for k in keys.values())]
        cells += [figure.summary_cell(line, members) for figure in shown]
        cells += [column(line, members) for column in (more or {}).values()]
        table.add_row(*cells)
    return table


def fig4_table(report: Report, pattern: str) -> Table:
    """`ri2n bench fig4`: a line for each topology, strategy or peer, and number of streams."""
    from ri2n_lab.bench import fig4
    from ri2n_lab.bench.paper import PAPER, paper_share

    def clients(line: Json, rows: Sequence[Json]) -> str:
        last = rows[-1]["clients"]
        return ", ".join(f"{host} {table_rate(seen['goodput_bps'])}" for host, seen in last.items())

    def share(line: Json, rows: Sequence[Json]) -> str:
        paper = paper_share(line["topology"], line["strategy"])
        return "-" if paper is None else f"{paper:.2f}"

    def weights(line: Json, rows: Sequence[Json]) -> str:
        row, strategy = PAPER.get(line["topology"]), line["strategy"]
        if row is None:
            return "-"
        plus = {"ri2n_plus": row.weights_plus, "ri2n_plus_plus": row.weights_plus_plus}
        return plus.get(strategy) or "-"

    more: dict[str, Column] = {"clients": clients}
    if pattern == "bulk":
        more |= {"paper: share": share, "paper: link 1 : link 0": weights}
    keys = {"topology": "topology", "strategy": "strategy", "streams": "streams"}
    figures = (*fig4.FIGURES, *fig4.PING_FIGURES)
    return figure_table(MEDIAN, report.document["summary"], report.rows, keys, figures, more)


def failover_table(report: Report) -> Table:
    """`ri2n bench failover`: a line for each fault and strategy or peer."""
    from ri2n_lab.bench import failover

    more: dict[str, Column] = {
        "last path": lambda line, rows: rows[-1]["path"] or rows[-1]["tcp_path"]
    }
    keys = {"fault": "fault", "strategy": "strategy"}
    lines = report.document["summary"]
    return figure_table(MEDIAN, lines, report.rows, keys, failover.FIGURES, more)


def fig9_table(report: Report) -> Table:
    """`ri2n bench fig9`: a line for each phase."""
    from ri2n_lab.bench import fig9

    lines = [_alone(row, fig9.FIGURES) for row in report.rows]
    return figure_table("", lines, report.rows, {"phase": "phase"}, fig9.FIGURES)


def cycle_table(report: Report) -> Table:
    """`ri2n bench cycle`: a line for each number of active pairs."""
    from ri2n_lab.bench import cycle

    title = "one round of the controller; CPU time is that of its thread"
    keys = {"hosts": "hosts", "active pairs": "active_pairs", "rounds": "rounds"}
    lines = [_alone(row, cycle.FIGURES) for row in report.rows]
    return figure_table(title, lines, report.rows, keys, cycle.FIGURES)


def stream_table(report: Report) -> Table:
    """`ri2n bench stream`: a line for each set of links, strategy or peer, and kind of stream."""
    from ri2n_lab.bench import stream

    keys = {"links, Mbit/s": "links_mbps", "strategy": "strategy", "stream": "proto", "": "cc"}
    more: dict[str, Column] = {"wakes per frame": _wakes}
    title = "one stream; shares of the sum of the links, " + MEDIAN
    busy = bool(report.document["settings"].get("busy"))
    # Deaths are counted always, and nobody asks for them on a calm machine.
    figures = [each for each in stream.FIGURES if busy or not each.when_measured]
    return figure_table(title, report.document["summary"], report.rows, keys, figures, more)


def demand_table(report: Report) -> Table:
    """`ri2n bench demand`: a line for each strategy."""
    from ri2n_lab.bench import demand

    keys = {"topology": "topology", "strategy": "strategy"}
    return figure_table(MEDIAN, report.document["summary"], report.rows, keys, demand.FIGURES)


def helper_tables(report: Report) -> Group:
    """`ri2n bench helper`: a table for each part, with a line for each load and contender."""
    from ri2n_lab.bench import helper_plan

    keys = {"load": "load", "what": "what", "datapath": "datapath"}
    lines = report.document["summary"]
    order = list(dict.fromkeys(line["load"] for line in lines))
    tables = []
    for part in helper_plan.PARTS:
        own = [line for line in lines if line["part"] == part]
        own.sort(key=lambda line: order.index(line["load"]))
        if own:
            rows = [row for row in report.rows if row["part"] == part]
            tables.append(figure_table(f"{part}, {MEDIAN}", own, rows, keys, helper_plan.FIGURES))
    return Group(*tables)


def _key_text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)


def _alone(row: Json, figures: Sequence[Figure]) -> Json:
    """A row as the summary of itself."""
    ends = {f"{figure.name}_spread": [row.get(figure.name)] * 2 for figure in figures}
    return {**row, **ends}


def _wakes(line: Json, rows: Sequence[Json]) -> str:
    """The sender's and the receiver's, with a word where a helper was awake for nothing."""
    from ri2n_lab.bench.helper_counts import WAKES, WAKES_BOUND

    known = [line[name] for name in WAKES if line.get(name) is not None]
    too_many = f", over {WAKES_BOUND:g}" if any(value > WAKES_BOUND for value in known) else ""
    return " / ".join(f"{value:.2f}" for value in known) + too_many if known else "-"
