"""The tables of `ri2n bench fig9` and `ri2n bench cycle`: how soon weights follow, and rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.report_cells import cell, code, prose, table
from ri2n_lab.bench.report_fig4 import ratios
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_pictures import Picture, picture_lines
from ri2n_lab.bench.report_rows import CycleRow, Fig9Row

__all__ = ["cycle", "cycle_table", "fig9", "fig9_table"]


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
    clients = sorted({client for row in rows for client in row.goodput_bps})
    head = ("phase", "settled after, s", "in HBSPANs", "HBSPAN, s", "link 1 : link 0")
    lines = []
    for row in rows:
        settled = ["never", "-"] if row.settle_s is None else [f"{row.settle_s:.2f}", "-"]
        if row.settle_hbspan is not None:
            settled[1] = f"{row.settle_hbspan:.1f}"
        rates = [
            f"{row.goodput_bps[client] / 1e6:.1f}" if client in row.goodput_bps else "-"
            for client in clients
        ]
        lines.append(
            [cell(row.phase), *settled, f"{row.hbspan_s:g}", ratios([row.weights]), *rates]
        )
    yield from table((*head, *(f"{cell(client)}, Mbit/s" for client in clients)), lines)


def cycle(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each number of active pairs."""
    del drawn
    yield from prose(
        "From asking the hosts for counters to acknowledged slot tables, in ms; in brackets CPU "
        "time of its thread. No traffic, no lab: the hosts are bridges of one Open vSwitch."
    )
    yield from cycle_table(measurement.cycle)


def cycle_table(rows: Sequence[CycleRow]) -> Iterator[str]:
    """A line for each number of active pairs."""
    head = [
        "hosts",
        "active pairs",
        "rounds",
        "median",
        "longest",
        "a round that changes tables",
        "tables changed",
    ]
    busy = any(row.settle_s is not None for row in rows)
    lines = []
    for row in sorted(rows, key=lambda row: (row.hosts, row.active_pairs)):
        lines.append(
            [
                *(str(row.hosts), str(row.active_pairs), str(row.rounds)),
                f"{row.cycle_s * 1e3:.0f} ({row.cpu_s * 1e3:.0f})",
                f"{row.cycle_max_s * 1e3:.0f}",
                f"{row.change_cycle_s * 1e3:.0f} ({row.change_cpu_s * 1e3:.0f})",
                str(row.changed_tables),
            ]
        )
        if busy:
            lines[-1].append("-" if row.settle_s is None else f"{row.settle_s:.0f}")
            counts = (row.connections_dropped, row.handler_errors, row.nic_deaths)
            lines[-1] += ["-" if count is None else str(count) for count in counts]
    if busy:
        head += [
            "settled after, s",
            "connections dropped",
            "errors of handlers",
            "NICs taken for dead",
        ]
    yield from table(head, lines)
