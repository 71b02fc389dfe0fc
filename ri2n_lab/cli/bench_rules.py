# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench rules`: what many users' rules cost on the hosts, beside the paper's and none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ri2n_lab.cli.bench_common import JsonFile, measure
from ri2n_lab.cli.bench_tables import MEDIAN, figure_table
from ri2n_sdn.cli.common import split_list

if TYPE_CHECKING:
    from ri2n_lab.bench.context import Report

__all__ = ["rules", "rules_table"]

# These are named here, too, so that `--help` does not load the benches; a test compares.
OVERS = ["veth", "gigabit", "bridge"]
COUNTS = "0,1,10,100,1000,10000"


def rules(
    counts: Annotated[
        str, typer.Option(help="Numbers of users with rules, 0 to 20000, with commas.")
    ] = COUNTS,
    over: Annotated[
        str,
        typer.Option(
            help="What is between two hosts. veth: a veth pair; gigabit: the same at 1 Gbit/s, as "
            "the paper's NICs; bridge: a veth pair, and Open vSwitch in each host. Several with "
            "commas."
        ),
    ] = ",".join(OVERS),
    seconds: Annotated[
        float,
        typer.Option(min=0.1, max=600, help="Seconds that each method is measured for a row."),
    ] = 1.8,
    repeat: Annotated[
        int, typer.Option(min=1, help="Rows of each method; the table shows medians.")
    ] = 3,
    json_file: JsonFile = None,
) -> None:
    """Measure what many users' rules cost: a job's verdict map, the paper's rules, and none.

    The table has round trips, goodput and CPU time, and what they are of those without rules at the
    same time. CPU time is that of the two programs and of Open vSwitch in both hosts.
    """
    from ri2n_lab.bench import rules as bench

    settings = bench.RulesSettings(
        counts=bench.parse_counts(counts),
        over=tuple(split_list(over, OVERS, "--over")),
        seconds=seconds,
        repeat=repeat,
    )
    bench.check()
    measure(
        "rules",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        lambda report, progress: bench.run_rules(settings, report, progress),
        rules_table,
    )


def rules_table(report: Report) -> Table:
    """The table: a line for each link, method and number of rules."""
    from ri2n_lab.bench.rules import FIGURES

    keys = {"over": "over", "method": "method", "rules": "rules"}
    title = "map: a job's; owner: the paper's; again: no rules once more; " + MEDIAN
    return figure_table(title, report.document["summary"], report.rows, keys, FIGURES)
