# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench web`: what the web process and its clients cost the controller's control loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ri2n_lab.cli.bench_common import JsonFile, measure
from ri2n_lab.cli.bench_tables import MEDIAN, figure_table

if TYPE_CHECKING:
    from ri2n_lab.bench.context import Report

__all__ = ["web", "web_table"]


def web(
    hosts: Annotated[
        int, typer.Option(min=2, max=256, help="Hosts with two NICs each, in a sandbox: no root.")
    ] = 100,
    pairs: Annotated[int, typer.Option(min=1, help="Number of active pairs.")] = 200,
    streams: Annotated[int, typer.Option(min=0, max=64, help="Event streams that are read.")] = 50,
    sessions: Annotated[
        int, typer.Option(min=0, max=64, help="Open pages of the GUI, with their websockets.")
    ] = 20,
    seconds: Annotated[float, typer.Option(min=1, help="Length of each window.")] = 20.0,
    repeat: Annotated[
        int, typer.Option(min=1, help="Windows with clients; one more is without.")
    ] = 5,
    json_file: JsonFile = None,
) -> None:
    """Measure how much longer a round of the controller takes while many look at the cluster.

    Windows without and with the web process and its clients follow each other in turn. Growth is
    that over the mean of the two windows beside it.
    """
    from ri2n_lab.bench import web as bench

    settings = bench.WebCostSettings(hosts, pairs, streams, sessions, seconds, repeat)
    measure(
        "web",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        lambda report, progress: bench.run_web(settings, report, progress),
        web_table,
    )


def web_table(report: Report) -> Table:
    """The table: a line without and one with the web process."""
    from ri2n_lab.bench.web import FIGURES

    keys = {"watched by": "watched", "hosts": "hosts", "active pairs": "active_pairs"}
    title = "rounds of the controller without and with the web process and clients; " + MEDIAN
    return figure_table(title, report.document["summary"], report.rows, keys, FIGURES)
