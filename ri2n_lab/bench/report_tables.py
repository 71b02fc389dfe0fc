# SPDX-License-Identifier: Apache-2.0
"""One measurement as a page of its own: all of its tables and pictures, and its context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ri2n_lab.bench import (
    report_failover,
    report_fig4,
    report_jobs,
    report_parallel,
    report_rounds,
    report_rules,
    report_striped,
    report_vbft,
)
from ri2n_lab.bench.report_cells import code, table
from ri2n_lab.bench.report_context import context_lines, source
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_pictures import Picture

__all__ = ["detail"]

Body = Callable[[Measurement, Sequence[Picture]], Iterator[str]]
TITLES = {
    "fig4": "Everybody sends to one host",
    "failover": "One fault",
    "fig9": "Links are cut and given back",
    "cycle": "The controller's round",
    "vbft": "VLAN fat trees",
    "parallel": "Parallel networking",
    "stream": "One stream over all links",
    "demand": "A client stops and begins again",
    "helper": "What the helper costs",
    "rules": "What users' rules cost",
    "jobs": "Two users' jobs",
    "web": "What the web process costs",
}
BODIES: dict[str, Body] = {
    "fig4": report_fig4.body,
    "failover": report_failover.body,
    "fig9": report_rounds.fig9,
    "cycle": report_rounds.cycle,
    "vbft": report_vbft.body,
    "parallel": report_parallel.body,
    "stream": report_striped.stream,
    "demand": report_striped.demand,
    "helper": report_striped.helper,
    "rules": report_rules.body,
    "jobs": report_jobs.body,
    "web": report_rounds.web,
}


def detail(measurement: Measurement, drawn: Sequence[Picture]) -> str:
    """The page of one measurement as Markdown: its command, its tables, and its context."""
    incomplete = "" if measurement.complete else " (incomplete)"
    lines = [f"# {TITLES[measurement.kind]}: {measurement.name}{incomplete}", ""]
    if not measurement.complete:
        lines += ["This run was interrupted: what is here was measured, the rest is missing.", ""]
    lines += [
        "Made by:",
        "",
        "```sh",
        *code(measurement.command).strip("`").splitlines(),
        "```",
        "",
    ]
    lines += source(measurement)
    lines += BODIES[measurement.kind](measurement, drawn)
    lines += ["## Context", ""]
    lines += table(("what", "value"), context_lines(measurement))
    lines += ["All measurements: [results.md](../results.md)."]
    return "\n".join(lines) + "\n"
