"""The tables of `ri2n bench failover`: one fault under a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.failover import FAULTS, HELPER_FAULTS, packets_per_s
from ri2n_lab.bench.report_cells import code, prose, spread_text, table
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Notes, name_text, peer_lines
from ri2n_lab.bench.report_pictures import (
    OUTAGE_END_MS,
    STALL_END_MS,
    Picture,
    contenders,
    in_order,
    picture_lines,
    spread,
)
from ri2n_lab.bench.report_rows import FailoverRow

__all__ = ["body", "matrix"]

# A TCP stream has no end when it stalls until less than this before the end of the run.
NEAR_END_MS = 100.0
# Columns that older files lack: heading, key, and how it is written.
FAILOVER_MORE = (
    ("out of order", "out_of_order", ".0f"),
    ("traffic again after, ms", "traffic_again_ms", ".0f"),
    ("striped again after, s", "striped_again_s", ".2f"),
)


def body(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each fault and strategy or peer."""
    rows = measurement.failover
    mode = "packet" if any(row.mode == "packet" for row in rows) else "flow"
    yield from prose(
        f"{packets_per_s(mode):,} UDP packets per second between two hosts, and in a run of its "
        "own a bulk TCP stream; the fault hits a NIC or switch that the stream uses. Outage: the "
        f"longest time without a packet. Values near {OUTAGE_END_MS:,.0f} ms (UDP) or "
        f"{STALL_END_MS:,.0f} ms (TCP) mean: until the run ended. Lost to the end: packets were "
        "still lost then, whatever the longest time without any."
    )
    notes = Notes()
    lines = []
    more = [
        each for each in FAILOVER_MORE if any(getattr(row, each[1]) is not None for row in rows)
    ]
    for fault in in_order((row.fault for row in rows), [*FAULTS, *HELPER_FAULTS]):
        for name, peer in contenders(row for row in rows if row.fault == fault):
            members = [row for row in rows if (row.fault, row.strategy) == (fault, name)]
            for mode in sorted({row.mode for row in members}):
                lines.append(
                    _failover_line(
                        fault, name, peer, [r for r in members if r.mode == mode], notes, more
                    )
                )
    head = ("fault", "", "outage, ms", "lost packets", "of", "lost to the end", "TCP stall, ms")
    yield from table((*head, *(title for title, _, _ in more)), lines)
    yield from notes.lines()
    yield from peer_lines(rows)
    for picture in drawn:
        yield from picture_lines(picture, "")


def matrix(rows: Sequence[FailoverRow]) -> Iterator[str]:
    """Strategies and peers by faults: `outage, ms / TCP stall, ms`.

    A stream that had not recovered when the run ended has `no end`.
    """
    faults = in_order((row.fault for row in rows), [*FAULTS, *HELPER_FAULTS])
    notes = Notes()
    lines = []
    for name, peer in contenders(rows):
        cells = [name_text(name, peer)]
        for fault in faults:
            members = [row for row in rows if (row.fault, row.strategy) == (fault, name)]
            outage = spread(row.outage_ms for row in members)
            stall = spread(row.tcp_stall_ms for row in members)
            if outage is None and stall is None:
                cells.append(notes.cell(name, members))
                continue
            udp = "-" if outage is None else f"{outage.value:,.0f}"
            tcp = "-" if stall is None else f"{stall.value:,.0f}"
            if any(row.lasting for row in members):
                udp = "no end"
            if stall is not None and stall.high > STALL_END_MS - NEAR_END_MS:
                tcp = "no end"
            cells.append(f"{udp} / {tcp}")
        lines.append(cells)
    yield from table(("", *map(code, faults)), lines)
    yield from notes.lines()


def _failover_line(
    fault: str,
    name: str,
    peer: bool,
    rows: Sequence[FailoverRow],
    notes: Notes,
    more: Sequence[tuple[str, str, str]],
) -> list[str]:
    modes = set() if peer else {row.mode for row in rows} - {"flow"}
    title = name_text(name, peer) + (f" ({', '.join(sorted(modes))})" if modes else "")
    figures = [spread(row.outage_ms for row in rows), spread(row.lost for row in rows)]
    figures += [spread(row.sent for row in rows), spread(row.tcp_stall_ms for row in rows)]
    if all(figure is None for figure in figures):
        return [code(fault), title, notes.cell(name, rows), *[""] * (4 + len(more))]
    sent = figures[2]
    cells = [
        spread_text(figures[0], ".0f"),
        spread_text(figures[1], ".0f"),
        "-" if sent is None else f"{sent.value:.0f}",
    ]
    cells += [_lasting(rows), spread_text(figures[3], ".0f")]
    cells += [spread_text(spread(getattr(row, key) for row in rows), form) for _, key, form in more]
    return [code(fault), title, *cells]


def _lasting(rows: Sequence[FailoverRow]) -> str:
    """In how many repeats packets were still lost when the stream ended."""
    seen = [row.lasting for row in rows if row.lasting is not None]
    if not seen or sum(seen) in (0, len(seen)):
        return "-" if not seen else ("yes" if seen[0] else "no")
    return f"{sum(seen)} of {len(seen)}"
