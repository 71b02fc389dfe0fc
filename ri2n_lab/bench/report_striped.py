# SPDX-License-Identifier: Apache-2.0
"""The tables of what is measured of the helper: one stream, a change of demand, what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.figure import spread
from ri2n_lab.bench.helper_plan import MEMORY, PARTS, PLAIN
from ri2n_lab.bench.report_cells import cell, prose, table
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Line, Notes, figure_table, name_text
from ri2n_lab.bench.report_pictures import Picture
from ri2n_lab.bench.report_rows import DemandRow, HelperRow, StreamRow, figures_of

__all__ = [
    "demand",
    "demand_table",
    "helper",
    "helper_matrix",
    "stream",
    "stream_matrix",
    "stream_table",
]


def stream(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each set of links, strategy or peer, and kind of stream."""
    del drawn
    yield from prose(
        "Of the sum: goodput, of what full frames could carry over all links together. UDP is sent "
        "at 0.9 of that. Out of order: UDP packets, or TCP segments as the receiver's kernel "
        "counts them (TCPOFOQueue), that came before one that belongs in front of them. Switch "
        "drops: frames dropped at full switch ports."
    )
    yield from stream_table(measurement.stream)


def stream_table(rows: Sequence[StreamRow]) -> Iterator[str]:
    """A line for each set of links, strategy or peer, and kind of stream."""
    groups: dict[tuple[str, str, bool, str, str], list[StreamRow]] = {}
    for row in rows:
        key = (row.links_mbps, row.strategy, row.peer, row.proto, row.cc or "")
        groups.setdefault(key, []).append(row)
    lines = [
        Line(
            [cell(links), name_text(name, peer), cell(f"{proto} {congestion}".strip())],
            name,
            members,
        )
        for (links, name, peer, proto, congestion), members in groups.items()
    ]
    yield from figure_table(("links, Mbit/s", "", "stream"), lines, figures_of("stream"))


def stream_matrix(rows: Sequence[StreamRow]) -> Iterator[str]:
    """Strategies and peers, with their kind of stream, by links: the share of the sum."""
    notes = Notes()
    columns = list(dict.fromkeys(row.links_mbps for row in rows))
    lines = []
    for name, peer, proto, congestion in dict.fromkeys(
        (row.strategy, row.peer, row.proto, row.cc or "") for row in rows
    ):
        cells = [name_text(name, peer), cell(f"{proto} {congestion}".strip())]
        for links in columns:
            members = [
                row
                for row in rows
                if (row.strategy, row.proto, row.cc or "") == (name, proto, congestion)
                and row.links_mbps == links
            ]
            share = spread(row.figure("of_sum") for row in members)
            cells.append(notes.cell(name, members) if share is None else f"{share.value:.2f}")
        lines.append(cells)
    yield from table(("", "stream", *map(cell, columns)), lines)
    yield from notes.lines()


def demand(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each topology and strategy."""
    del drawn
    stops = cell(str(measurement.settings.get("stops", "B")))
    yield from prose(
        f"Every client sends one TCP stream; {stops} stops, and after a pause begins again. "
        "Goodput is sampled every 10 ms and judged over the 50 ms that follow; what does not hold "
        "for half a second (over 200 ms each, as a segment that TCP sends again holds up others) "
        "does not count. The shares are means over the rest of each phase: of the links, and the "
        "worst client's of its max-min fair rate."
    )
    yield from demand_table(measurement.demand)


def demand_table(rows: Sequence[DemandRow]) -> Iterator[str]:
    """A line for each topology and strategy."""
    groups: dict[tuple[str, str, bool], list[DemandRow]] = {}
    for row in rows:
        groups.setdefault((row.topology, row.strategy, row.peer), []).append(row)
    lines = [
        Line([cell(topology), name_text(name, peer)], name, members)
        for (topology, name, peer), members in groups.items()
    ]
    yield from figure_table(("", ""), lines, figures_of("demand"))


def helper(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A table for each part: in memory, streams, round trips, rates."""
    del drawn
    yield from prose(
        "Two hosts whose links have no rate and no switch; the labs of all lines are up at the "
        "same time and are measured by turns. Ratios are to one plain veth in the same round. CPU "
        "seconds are the whole machine's, both hosts together, without those of programs outside "
        "of the lab. Each way: both hosts send at once, and the figure is the sum. Pings go every "
        "20 ms, requests every 2 ms, so that CPUs may sleep; CPUs awake: idle ones poll meanwhile. "
        "Short connections, one after the other, have one request of 1 KB each; requests and "
        "answers are a Python program's, whose time is in all lines. UDP packets are in frames of "
        "64 bytes, as many as iperf3 can send; those count that arrive."
    )
    for part in PARTS:
        rows = [row for row in measurement.helper if row.part == part]
        if rows:
            yield from prose(f"**{part.capitalize()}**")
            yield from _helper_table(rows, in_memory=part == MEMORY)


def _helper_table(rows: Sequence[HelperRow], *, in_memory: bool) -> Iterator[str]:
    """A line for each load, contender and datapath."""
    order = list(dict.fromkeys(row.load for row in rows))
    groups: dict[tuple[str | None, str, str | None], list[HelperRow]] = {}
    for row in sorted(rows, key=lambda row: order.index(row.load)):
        groups.setdefault((row.load, row.what, row.datapath), []).append(row)
    heads = ("in memory",) if in_memory else ("load", "", "datapath")
    lines = []
    for (load, what, datapath), members in groups.items():
        cells = [cell(load or ""), cell(what), cell(datapath or "")]
        lines.append(Line(cells[1:2] if in_memory else cells, what, members))
    yield from figure_table(heads, lines, figures_of("helper"))


def helper_matrix(rows: Sequence[HelperRow]) -> Iterator[str]:
    """Contenders by load: a plain veth's figures, and the others' ratios to them."""
    rows = [row for row in rows if row.part != MEMORY]
    columns = list(dict.fromkeys(row.load or "" for row in rows))
    notes = Notes()
    plain = [[row for row in rows if row.what == PLAIN and row.load == load] for load in columns]
    lines = [[cell(PLAIN), "", *map(_own_figure, plain)]] if any(plain) else []
    for what, datapath in dict.fromkeys((row.what, row.datapath) for row in rows):
        if what == PLAIN:
            continue
        own = [row for row in rows if (row.what, row.datapath) == (what, datapath)]
        cells = [cell(what), cell(datapath or "")]
        for load in columns:
            members = [row for row in own if row.load == load]
            ratio = _middle(members, "of_veth", "times_veth")
            cpu = _middle(members, "cpu_of_veth")
            if ratio is None:
                cells.append(notes.cell(what, members))
                continue
            text = f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"
            cells.append(text if cpu is None else f"{text}, CPU {cpu:.1f}")
        lines.append(cells)
    yield from table(("", "datapath", *map(cell, columns)), lines)
    yield from notes.lines()
    foreign = _middle(rows, "foreign_cpus")
    if foreign is not None:
        yield from prose(
            f"Other programs used {foreign:.1f} CPUs of the machine meanwhile (median)."
        )


def _own_figure(rows: Sequence[HelperRow]) -> str:
    """The figure that ratios are of, with its unit."""
    for figure in figures_of("helper"):
        value = _middle(rows, figure.name)
        if figure.name in ("goodput_bps", "per_s", "median_us") and value is not None:
            return f"{value * figure.scale:{figure.show}} {figure.unit or figure.heading}"
    return "-"


def _middle(rows: Sequence[HelperRow], *figures: str) -> float | None:
    bar = spread(row.figure(figure) for row in rows for figure in figures)
    return None if bar is None else bar.value
