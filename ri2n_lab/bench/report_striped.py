# SPDX-License-Identifier: Apache-2.0
"""The tables of what is measured of the helper: one stream, a change of demand, what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.figure import spread
from ri2n_lab.bench.helper import MEMORY_FIGURES
from ri2n_lab.bench.report_cells import cell, prose, table
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Line, Notes, figure_table, name_text
from ri2n_lab.bench.report_pictures import Picture
from ri2n_lab.bench.report_rows import DemandRow, HelperRow, StreamRow, figures_of

__all__ = [
    "demand",
    "demand_table",
    "end_to_end_table",
    "helper",
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
    """The figures in memory, then those from end to end."""
    del drawn
    yield from prose(
        "In memory: packets a second on one core. End to end: one TCP stream between two hosts "
        "over links without a rate, beside one plain veth in the same run; CPU seconds are the "
        "whole machine's. Round trips are those of an idle ping every 20 ms; CPUs awake: idle ones "
        "poll meanwhile, so that nobody waits until a CPU has woken. Other load on the machine is "
        "in these figures."
    )
    yield from memory_table(measurement.helper)
    yield from end_to_end_table(measurement.helper)


def memory_table(rows: Sequence[HelperRow]) -> Iterator[str]:
    """A line for each figure in memory."""
    yield from _helper_table(("in memory",), [row for row in rows if row.part == "memory"])


def end_to_end_table(rows: Sequence[HelperRow]) -> Iterator[str]:
    """A line for each contender end to end, with and without userspace TSO."""
    heads = ("end to end", "userspace TSO")
    yield from _helper_table(heads, [row for row in rows if row.part != "memory"])


def _helper_table(heads: Sequence[str], rows: Sequence[HelperRow]) -> Iterator[str]:
    groups: dict[tuple[str, bool | None], list[HelperRow]] = {}
    for row in rows:
        groups.setdefault((row.what, row.userspace_tso), []).append(row)
    lines = [
        Line([cell(what), {None: "", True: "on", False: "off"}[tso]][: len(heads)], what, members)
        for (what, tso), members in groups.items()
    ]
    # In memory and end to end have figures of their own.
    figures = [
        figure
        for figure in figures_of("helper")
        if (figure.name in MEMORY_FIGURES) == (len(heads) == 1)
    ]
    if lines:
        yield from figure_table(heads, lines, figures)
