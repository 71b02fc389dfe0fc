# SPDX-License-Identifier: Apache-2.0
"""The tables of parallel networking: transfers, links that die, many connections, round trips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.parallel_plan import FAULTS, FIGURES, METHODS, MIX_METHODS, size_text
from ri2n_lab.bench.report_cells import cell, code, prose, table
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Line, Notes, figure_table
from ri2n_lab.bench.report_pictures import Picture, in_order
from ri2n_lab.bench.report_rows import ParallelRow

__all__ = [
    "body",
    "fault_table",
    "method_text",
    "mix_table",
    "of_part",
    "paper_speedup",
    "round_trip_table",
    "transfer_table",
]

NAMES = {
    "tcp": "plain TCP",
    "parallel": "parallel, {}",
    "mptcp": "MPTCP, {}",
    "trunk_packet": "trunk, packet mode",
    "trunk_flow": "trunk, flow mode",
}
MIX_NAMES = {
    "tcp": "plain TCP, one address",
    "dns": "plain TCP, addresses in turn",
    "parallel": "least_connections",
}
KINDS = {
    ("fresh", "include"): "fresh connections, with their set-up",
    ("fresh", "early"): "fresh connections, first bytes handed to the call to connect",
    ("fresh", "exclude"): "fresh connections, without their set-up",
    ("warm", "exclude"): "warm connections",
}


def paper_speedup(streams: int, size_bytes: int, setup: str | None) -> str:
    """What the Paradise paper says of that many streams over six 10 Mbit/s Ethernets.

    `-` where its text says nothing. Set-up included is figure 8 (total amount, in units of 56 KB);
    excluded is figure 7 (unit of a long transfer).
    """
    if setup != "exclude":
        return "5.6" if streams == 6 and size_bytes >= 50_000_000 else "-"
    if streams == 1:
        return "-"
    if size_bytes <= 2 << 10:
        return "no gain"
    return "gain" if size_bytes >= 8 << 10 or (size_bytes >= 4 << 10 and streams <= 4) else "-"


def body(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """Text and tables of every part."""
    del drawn
    rows = measurement.parallel
    for (connection, setup), title in KINDS.items():
        members = [row for row in rows if (row.connection, row.setup) == (connection, setup)]
        if of_part(members, "transfer"):
            yield from (f"## Transfers over {title}", "")
            yield from prose(
                "Goodput over plain TCP's over one link, for the same size in the same run; from "
                "the first byte "
                f"{'(from the call to connect)' if setup != 'exclude' else 'handed over'} to the "
                "byte that the receiving program sends back when it has the last one. In "
                "brackets, for parallel: of what as many plain TCPs get together. Paper: 6 streams "
                "over six 10 Mbit/s Ethernets, over the fastest that one was at any size."
            )
            yield from transfer_table(rows, connection, setup)
    if members := of_part(rows, "fault"):
        yield from ("## Links die under a transfer", "")
        yield from prose(
            f"{size_text(members[0].size_bytes)}iB over {members[0].links} links; at 0.3 of its "
            "time the fault comes: the server's NIC goes down (one_down, all_but_one), the "
            "client's own (one_own_down), or a switch port delivers nothing any more "
            "(one_blackhole); all_then_one: all of the server's, and 2 s later one is back. Stall: "
            "the longest time without a byte for the receiving program."
        )
        yield from fault_table(members)
    if members := of_part(rows, "mix"):
        yield from ("## Many connections", "")
        yield from prose(
            "Every client runs 8 processes; the short ones ask for 56 KB, the others for 1000 x 56 "
            "KB, close, and ask again. Goodput of all, over that of long ones to one address / "
            "connections served per minute (parts of long ones count in part) / mean difference "
            "between the server's fullest and emptiest interface, in connections, when one more "
            "came. The paper's figure 9 (a) has no numbers in its text."
        )
        yield from mix_table(members)
    if members := of_part(rows, "roundtrip"):
        yield from ("## Round trips of 1 KB", "")
        yield from prose(
            "Plain TCP sockets and parallel by turns, over links without a rate, both ends in "
            "Python; medians in us. CPUs awake: idle ones poll meanwhile. Other load on the "
            "machine is in these figures."
        )
        yield from round_trip_table(members)


def method_text(method: str, streams: int) -> str:
    """What a method is called in tables and pictures."""
    return NAMES.get(method, method).format(streams)


def of_part(rows: Sequence[ParallelRow], part: str) -> list[ParallelRow]:
    """The rows of one part: `transfer`, `fault`, `mix` or `roundtrip`."""
    return [row for row in rows if row.part == part]


def transfer_table(
    rows: Sequence[ParallelRow], connection: str = "fresh", setup: str = "include"
) -> Iterator[str]:
    """Sizes by methods: the speed-up over plain TCP over one link."""
    rows = of_part(rows, "transfer")
    members = [row for row in rows if (row.connection, row.setup) == (connection, setup)]
    sizes = sorted({row.size_bytes for row in members})
    most = max(row.streams for row in members)
    # As many plain TCPs are in the brackets, and of MPTCP the most links will do.
    pairs = sorted(
        {(row.method, row.streams) for row in members if row.method not in ("tcp", "tcps")},
        key=_place,
    )
    pairs = [pair for pair in pairs if pair[0] != "mptcp" or pair[1] == most]
    beside = [
        row
        for row in rows
        if (row.connection, row.setup) == (connection, setup.replace("early", "include"))
    ]
    tcp = {size: _of(beside, "tcp", 1, size) for size in sizes}
    goodput = FIGURES["transfer"][0]
    notes, columns = Notes(), []
    for method, streams in pairs:
        columns.append([_speedup(_of(members, method, streams, size), notes) for size in sizes])
    lines = [
        [
            size_text(size),
            goodput.cell([row.figure(goodput.name) for row in tcp[size]]),
            *(column[index] for column in columns),
            paper_speedup(most, size, setup),
        ]
        for index, size in enumerate(sizes)
    ]
    heads = [method_text(method, streams) for method, streams in pairs]
    yield from table(
        ("size", f"plain TCP, {goodput.unit}", *map(cell, heads), f"paper, {most}"), lines
    )
    yield from notes.lines()


def _speedup(rows: Sequence[ParallelRow], notes: Notes) -> str:
    """The first figure of a transfer beside its goodput, and in brackets the others."""
    if not rows:
        return "-"
    figures = [figure for figure in FIGURES["transfer"][1:] if figure.heading]
    texts = [figure.middle([row.figure(figure.name) for row in rows]) for figure in figures]
    if texts[0] == "-":
        return notes.cell(rows[0].method, rows)
    more = [text for text in texts[1:] if text != "-"]
    return texts[0] + (f" ({', '.join(more)})" if more else "")


def _of(rows: Sequence[ParallelRow], method: str, streams: int, size: int) -> list[ParallelRow]:
    return [
        row for row in rows if (row.method, row.streams, row.size_bytes) == (method, streams, size)
    ]


def _place(pair: tuple[str, int]) -> tuple[int, int]:
    return (METHODS.index(pair[0]) if pair[0] in METHODS else len(METHODS), pair[1])


def fault_table(rows: Sequence[ParallelRow]) -> Iterator[str]:
    """A line for each fault and method."""
    lines = []
    for fault in in_order((row.fault for row in rows if row.fault), list(FAULTS)):
        for method in in_order((row.method for row in rows), list(METHODS)):
            members = [row for row in rows if (row.fault, row.method) == (fault, method)]
            if members:
                title = cell(NAMES.get(method, method).format(members[0].streams))
                lines.append(Line([code(fault), title], method, members))
    yield from figure_table(("fault", ""), lines, FIGURES["fault"])


def mix_table(rows: Sequence[ParallelRow]) -> Iterator[str]:
    """Methods by the number of short connections."""
    shorts = sorted({row.short for row in rows if row.short is not None})
    figures = [figure for figure in FIGURES["mix"] if figure.heading]
    lines = []
    for method in in_order((row.method for row in rows), list(MIX_METHODS)):
        cells = []
        for short in shorts:
            members = [row for row in rows if (row.method, row.short) == (method, short)]
            texts = [
                figure.middle([row.figure(figure.name) for row in members]) for figure in figures
            ]
            failed = sum(row.figure("failed") or 0 for row in members)
            cells.append(
                " / ".join(texts) + (f", {failed:.0f} failed" if failed else "") if members else ""
            )
        lines.append([cell(MIX_NAMES.get(method, method)), *cells])
    yield from table(("", *(f"{short} of 8 short" for short in shorts)), lines)


def round_trip_table(rows: Sequence[ParallelRow]) -> Iterator[str]:
    """A line for each method, with and without idle CPUs kept awake."""
    lines = []
    for awake in (False, True):
        for method in in_order((row.method for row in rows), list(METHODS)):
            members = [row for row in rows if (row.awake, row.method) == (awake, method)]
            if members:
                title = cell(NAMES.get(method, method).format(f"{members[0].streams} links"))
                lines.append(Line(["yes" if awake else "", title], method, members))
    yield from figure_table(("CPUs awake", ""), lines, FIGURES["roundtrip"])
