# SPDX-License-Identifier: Apache-2.0
"""The tables of `ri2n bench fig4`: everybody sends to one host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ri2n_lab.bench.figure import spread
from ri2n_lab.bench.paper import PAPER, paper_share
from ri2n_lab.bench.report_cells import cell, prose
from ri2n_lab.bench.report_context import description
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import (
    Line,
    contender_matrix,
    figure_table,
    name_text,
    peer_lines,
)
from ri2n_lab.bench.report_pictures import Picture, contenders, picture_lines, streams_text
from ri2n_lab.bench.report_rows import Fig4Row, Row, figures_of

__all__ = ["body", "matrix"]


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
    by_topology = {name: [row for row in rows if row.topology == name] for name in topologies}
    yield from contender_matrix(cell, by_topology, _shares)


def _shares(rows: Sequence[Row]) -> str | None:
    total = spread(row.figure("total_of_optimum") for row in rows)
    worst = spread(row.figure("worst_share") for row in rows)
    return None if total is None or worst is None else f"{total.value:.2f} / {worst.value:.2f}"


def _topology(measurement: Measurement, topology: str, rows: Sequence[Fig4Row]) -> Iterator[str]:
    lines = [
        Line([name_text(name, peer)], name, [row for row in rows if row.strategy == name])
        for name, peer in contenders(rows)
    ]
    more: dict[str, Callable[[Sequence[Row]], str]] = {
        f"{cell(client)}, Mbit/s": partial(_goodput, client)
        for client in sorted({client for row in rows for client in row.clients})
    }
    # The paper's figures are for all clients of its own topologies sending as fast as they can.
    settings = measurement.settings
    bulk = settings.get("pattern", "bulk") == "bulk" and not settings.get("clients")
    if topology in PAPER and bulk:
        more["paper: share"] = partial(_paper_share, topology)
        more["paper: link 1 : link 0"] = partial(_paper_weights, topology)
    yield from figure_table(("",), lines, figures_of("fig4"), more)


def _goodput(client: str, rows: Sequence[Row]) -> str:
    """The median of one client, in Mbit/s."""
    clients = [row.clients for row in rows if isinstance(row, Fig4Row)]
    middle = spread(each[client].goodput_bps / 1e6 for each in clients if client in each)
    return "-" if middle is None else f"{middle.value:.1f}"


def _paper_share(topology: str, rows: Sequence[Row]) -> str:
    paper = None if rows[0].figure("peer") else paper_share(topology, rows[0].figure("strategy"))
    return "-" if paper is None else f"{paper:.2f}"


def _paper_weights(topology: str, rows: Sequence[Row]) -> str:
    paper = PAPER[topology]
    found = {"ri2n_plus": paper.weights_plus, "ri2n_plus_plus": paper.weights_plus_plus}
    return found.get(rows[0].figure("strategy")) or "-"
