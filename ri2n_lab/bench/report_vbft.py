# SPDX-License-Identifier: Apache-2.0
"""The tables of VLAN fat trees: what all hosts get, of what one switch for all gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.figure import spread, spread_text
from ri2n_lab.bench.paper import VBFT_PAPER
from ri2n_lab.bench.patterns import CG_PAIRS
from ri2n_lab.bench.report_cells import cell, code, prose, table
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Line, figure_table
from ri2n_lab.bench.report_pictures import Picture
from ri2n_lab.bench.report_rows import VbftRow, figures_of

__all__ = ["body", "matrix"]

PATTERNS = {
    "bisection": "Bisection: the first half of the hosts sends to the second, i to i + n/2, one "
    "way.",
    "alltoall": "All-to-all: everybody sends to everybody at once.",
    "cg": f"CG's exchange: the pairs {', '.join(f'{one}-{other}' for one, other in CG_PAIRS)} both "
    "ways.",
    "shift": "Shifts: i sends to i + k, for every k one after the other; means.",
}
ENGINES = {
    "tcp": "TCP (cubic), {streams} per pair",
    "udp": "UDP, every host at 0.9 of its NICs' rate",
    "iperf3": "iperf3 (cubic), {streams} per pair",
    "mpi": "MPI (Open MPI, one rank on each host)",
}


def body(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """Text and a table for each pattern, engine and mode."""
    del drawn
    yield from prose(
        "Of flat: what all receivers together got in one window, of what they got in the same run "
        "where all hosts are on one switch. Bound: the most that any routing could give all of "
        "them (a linear program over cables and NICs); of MPI's all-to-all, where all pairs go on "
        "together, the most when all are equal. Worst host: the slowest receiver, of the mean one "
        "on flat. Worst pair: the slowest pair, of the mean one on flat. Fair: what all pairs "
        "could have at once, each the same, of what they could on flat. Flooded: unicast frames "
        "that came to hosts which they were not for, from before the first frame to the end. "
        "Settled: from when on the rate stayed at 0.97 of the window's or more. The paper's "
        "bisection is MPI, its all-to-all the run time of IS (NPB), with the cyclic rule."
    )
    groups: dict[tuple[str, str, str, int | None], list[VbftRow]] = {}
    for row in measurement.vbft:
        groups.setdefault((row.pattern, row.engine, row.mode, row.streams), []).append(row)
    for (pattern, engine, mode, streams), rows in groups.items():
        count = "one stream" if streams == 1 else f"{streams} streams"
        how = ENGINES.get(engine, cell(engine)).format(streams=count)
        yield from (f"## {cell(pattern)}, {cell(engine)}, {cell(mode)} mode", "")
        yield from prose(f"{PATTERNS.get(pattern, '')} {how}, {cell(mode)} mode.".strip())
        yield from _table(rows)


def matrix(rows: Sequence[VbftRow]) -> Iterator[str]:
    """Topologies and path tables by pattern, engine and mode: the share of flat."""
    columns = list(dict.fromkeys((row.pattern, row.engine, row.mode) for row in rows))
    lines = []
    for topology, path_table in dict.fromkeys((row.topology, row.table) for row in rows):
        cells = [cell(topology), code(path_table) if path_table else "-"]
        for column in columns:
            members = [
                row.figure("of_flat")
                for row in rows
                if (row.topology, row.table) == (topology, path_table)
                and (row.pattern, row.engine, row.mode) == column
            ]
            cells.append(spread_text(spread(members), ".2f"))
        lines.append(cells)
    heads = [cell(f"{pattern}, {engine}, {mode}") for pattern, engine, mode in columns]
    yield from table(("topology", "path table", *heads), lines)


def _table(rows: Sequence[VbftRow]) -> Iterator[str]:
    groups: dict[tuple[str, str | None], list[VbftRow]] = {}
    for row in rows:
        groups.setdefault((row.topology, row.table), []).append(row)
    pattern = rows[0].pattern
    lines = [
        Line([cell(topology), code(path_table) if path_table else "-"], topology, members)
        for (topology, path_table), members in groups.items()
    ]
    paper = {line.name: VBFT_PAPER.get((pattern, line.name), "-") for line in lines}
    yield from figure_table(
        ("topology", "path table"),
        lines,
        figures_of("vbft"),
        {"paper, of Flat": lambda members: paper[str(members[0].figure("topology"))]},
    )
