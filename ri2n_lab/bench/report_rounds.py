# SPDX-License-Identifier: Apache-2.0
"""The tables of `ri2n bench fig9` and `ri2n bench cycle`: how soon weights follow, and rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.report_cells import cell, code, prose
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Line, figure_table
from ri2n_lab.bench.report_pictures import Picture, picture_lines
from ri2n_lab.bench.report_rows import CycleRow, Fig9Row, WebRow, figures_of

__all__ = ["cycle", "cycle_table", "fig9", "fig9_table", "web", "web_table"]


def fig9(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each phase, and the weights over time."""
    strategy = code(str(measurement.settings.get("strategy", "max_min")))
    yield from prose(
        f"Strategy {strategy}, all clients send all the time. Settled: from when on, after the "
        "change, every share stays within 0.1 of where it is at the end of the phase; HBSPAN is "
        "the controller's interval at that moment. Goodput is that of the phase's second half."
    )
    yield from fig9_table(measurement.fig9)
    for picture in drawn:
        yield from picture_lines(picture, "")


def fig9_table(rows: Sequence[Fig9Row]) -> Iterator[str]:
    """A line for each phase."""
    lines = [Line([cell(row.phase)], row.phase, [row]) for row in rows]
    yield from figure_table(("phase",), lines, figures_of("fig9"))


def cycle(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each number of active pairs."""
    del drawn
    yield from prose(
        "From asking the hosts for counters to acknowledged slot tables, in ms; CPU time is "
        "that of its thread. No traffic, no lab: the hosts are bridges of one Open vSwitch."
    )
    yield from cycle_table(measurement.cycle)


def cycle_table(rows: Sequence[CycleRow]) -> Iterator[str]:
    """A line for each number of active pairs."""
    lines = [
        Line([str(row.hosts), str(row.active_pairs), str(row.rounds)], "", [row])
        for row in sorted(rows, key=lambda row: (row.hosts, row.active_pairs))
    ]
    yield from figure_table(("hosts", "active pairs", "rounds"), lines, figures_of("cycle"))


def web(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line without and one with the web process and its clients."""
    del drawn
    yield from prose(
        "Rounds of the controller, in turn without and with the web process, event streams and "
        "open pages of the GUI. Growth is that over the mean of the two windows beside it."
    )
    yield from web_table(measurement.web)


def web_table(rows: Sequence[WebRow]) -> Iterator[str]:
    """A line for each number of hosts and pairs, watched by nobody or by all."""
    keys = dict.fromkeys((row.hosts, row.active_pairs, row.watched) for row in rows)
    lines = [
        Line(
            [cell(key[2]), str(key[0]), str(key[1])],
            "",
            [row for row in rows if (row.hosts, row.active_pairs, row.watched) == key],
        )
        for key in keys
    ]
    yield from figure_table(("watched by", "hosts", "active pairs"), lines, figures_of("web"))
