"""The tables of `ri2n bench fig4`: everybody sends to one host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.paper import PAPER, paper_share
from ri2n_lab.bench.report_cells import cell, prose, spread_text, table
from ri2n_lab.bench.report_context import description
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Notes, name_text, peer_lines
from ri2n_lab.bench.report_pictures import Picture, contenders, picture_lines, spread, streams_text
from ri2n_lab.bench.report_rows import Fig4Row, Number
from ri2n_lab.bench.rows import link_ratio

__all__ = ["body", "matrix", "ratios"]

# Columns that older files lack: heading and key.
MORE = (
    ("switch drops", "switch_drops"),
    ("out of order", "out_of_order"),
    ("ping idle, ms", "ping_idle_ms"),
    ("ping under load, ms", "ping_load_ms"),
)


def body(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A table over all topologies for each number of streams, then one for each topology."""
    for streams in sorted({row.streams for row in measurement.fig4}):
        rows = [row for row in measurement.fig4 if row.streams == streams]
        title = streams_text(streams)
        yield from (f"## {title[0].upper()}{title[1:]}", "")
        yield from prose(
            "All clients together / worst client, as shares of what is possible and of what is "
            "fair. A peer that needs its switches stacked into one has them so, and its shares are "
            "of what is possible there."
        )
        yield from matrix(rows)
        yield from peer_lines(rows)
        for picture in drawn:
            if picture.streams == streams:
                yield from picture_lines(picture, "")
        for topology in sorted({row.topology for row in rows}):
            text = description(measurement, topology)
            yield f"### {cell(topology)}{': ' if text else ''}{text} ({title})"
            yield ""
            yield from _topology(
                measurement, topology, [row for row in rows if row.topology == topology]
            )


def matrix(rows: Sequence[Fig4Row]) -> Iterator[str]:
    """Strategies and peers by topologies: `all clients together / worst client`."""
    topologies = sorted({row.topology for row in rows})
    notes = Notes()
    lines = []
    for name, peer in contenders(rows):
        cells = [name_text(name, peer)]
        for topology in topologies:
            members = [row for row in rows if (row.topology, row.strategy) == (topology, name)]
            total = spread(row.total_of_optimum for row in members)
            worst = spread(row.worst_share for row in members)
            if total is None or worst is None:
                cells.append(notes.cell(name, members))
            else:
                cells.append(f"{total.value:.2f} / {worst.value:.2f}")
        lines.append(cells)
    yield from table(("", *map(cell, topologies)), lines)
    yield from notes.lines()


def _topology(measurement: Measurement, topology: str, rows: Sequence[Fig4Row]) -> Iterator[str]:
    # The paper's figures are for all clients of its own topologies sending as fast as they can.
    settings = measurement.settings
    beside_paper = (
        topology in PAPER
        and settings.get("pattern", "bulk") == "bulk"
        and not settings.get("clients")
    )
    clients = sorted({client for row in rows for client in row.clients})
    head = [
        "",
        "share of the optimum",
        "worst client",
        *(f"{cell(client)}, Mbit/s" for client in clients),
        "retransmits",
    ]
    head += ["slots moved", "link 1 : link 0"]
    more = [
        (title, name) for title, name in MORE if any(getattr(row, name) is not None for row in rows)
    ]
    head += [title for title, _ in more]
    if beside_paper:
        head += ["paper: share", "paper: link 1 : link 0"]
    notes = Notes()
    lines = []
    for name, peer in contenders(rows):
        members = [row for row in rows if row.strategy == name]
        if all(row.total_of_optimum is None for row in members):
            lines.append(
                [name_text(name, peer), notes.cell(name, members), *[""] * (len(head) - 2)]
            )
            continue
        cells = [
            name_text(name, peer),
            spread_text(spread(row.total_of_optimum for row in members), ".2f"),
            spread_text(spread(row.worst_share for row in members), ".2f"),
        ]
        for client in clients:
            rates = [
                row.clients[client].goodput_bps / 1e6 for row in members if client in row.clients
            ]
            middle = spread(rates)
            cells.append("-" if middle is None else f"{middle.value:.1f}")
        cells.append(spread_text(spread(row.retransmits for row in members), ".0f"))
        cells.append(
            "-" if peer else spread_text(spread(row.slots_moved for row in members), ".0f")
        )
        cells.append(ratios([row.weights for row in members]))
        cells += [
            spread_text(spread(getattr(row, name) for row in members), "g") for _, name in more
        ]
        if beside_paper:
            paper = None if peer else paper_share(topology, name)
            weights = PAPER[topology].weights_plus if name == "ri2n_plus" else ""
            weights = PAPER[topology].weights_plus_plus if name == "ri2n_plus_plus" else weights
            cells += ["-" if paper is None else f"{paper:.2f}", weights or "-"]
        lines.append(cells)
    yield from table(head, lines)
    yield from notes.lines()


def ratios(weights: Sequence[dict[str, dict[str, Number]]]) -> str:
    """`C 7.5`: the median ratio of each client with several NICs.

    `inf` when its first NIC has no share.
    """
    found = []
    for host in sorted({host for each in weights for host in each}):
        ratios = [
            ratio
            for each in weights
            if host in each and (ratio := link_ratio(each[host])) is not None
        ]
        middle = spread(ratios)
        if middle is not None:
            found.append(f"{cell(host)} {middle.value:.1f}")
    return ", ".join(found) or "-"
