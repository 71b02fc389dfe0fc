# SPDX-License-Identifier: Apache-2.0
"""The tables of `ri2n bench rules`: what users' rules cost, beside the paper's figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ri2n_lab.bench.report_cells import cell, code, prose, table
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Line, Notes, figure_table
from ri2n_lab.bench.report_pictures import Picture
from ri2n_lab.bench.report_rows import RulesRow, figures_of
from ri2n_lab.bench.rules import METHODS, NONE, OWN, PAPER

__all__ = ["EXPLAINED", "body", "matrix"]

SHARES = ("rtt_of_none", "goodput_of_none", "cpu_of_none")
EXPLAINED = (
    "So many users have rules in both hosts, and one of them sends: `map` is one verdict map from "
    "user to class, as `job-begin` marks; *owner* is the paper's way, an owner rule and an ip rule "
    "with a routing table for each user; *again* has no rules, and shows by what two measurements "
    "of one thing differ. `veth`: a veth pair joins the hosts; `gigabit`: the same at 1 Gbit/s; "
    "`bridge`: with Open vSwitch (its userspace datapath) in each host. A pair of hosts shares one "
    "CPU, so that goodput, too, pays for every packet's work at both ends."
)


def body(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """The shares of none, then all figures: a line for each link, method and number of rules."""
    del drawn
    yield from prose(
        f"{EXPLAINED} The methods take slices of 50 ms of round trips and 100 ms of TCP by turns. "
        "A share of none is made of slices that followed one another, and in a row every method "
        "was on every pair of hosts. CPU time is that of both programs, and of Open vSwitch in "
        "both hosts, by the clocks of their processes; what the kernel does for a packet is in it. "
        "At 1 Gbit/s the CPU is idle at times, and what the kernel does then is in no process's "
        "time: no figure. Figures are medians of the rows, with the smallest and the largest."
    )
    yield from matrix(measurement.rules)
    lines = [
        Line([code(over), cell(method), str(rules)], method, members)
        for over, method, rules in dict.fromkeys(
            (row.over, row.method, row.rules) for row in measurement.rules
        )
        if (
            members := [
                row
                for row in measurement.rules
                if (row.over, row.method, row.rules) == (over, method, rules)
            ]
        )
    ]
    yield from figure_table(("", "method", "rules"), lines, figures_of("rules"))


def matrix(rows: Sequence[RulesRow]) -> Iterator[str]:
    """Links and methods by numbers of rules: shares of none; below them the paper's figures."""
    counts = sorted({row.beside for row in rows})
    notes = Notes()
    lines = []
    for over in dict.fromkeys(row.over for row in rows):
        for method in METHODS:
            members = [row for row in rows if (row.over, row.method) == (over, method)]
            if method == NONE or not members:
                continue
            cells = [code(over), code(method) if method == OWN else f"*{method}*"]
            for count in counts:
                found = [row for row in members if row.beside == count]
                cells.append(_shares(found) or notes.cell(method, found))
            lines.append(cells)
    lines.append(["*the paper*", "*owner*", *(_paper(count) for count in counts)])
    heads = (f"{count:,} user{'' if count == 1 else 's'}" for count in counts)
    yield from table(("", "", *heads), lines)
    yield from notes.lines()


def _shares(rows: Sequence[RulesRow]) -> str | None:
    texts = []
    for name in SHARES:
        values = [value for row in rows if (value := row.figure(name)) is not None]
        texts.append(_share(median(values)) if values else "-")
    if set(texts) == {"-"}:
        return None
    over_us = [value for row in rows if (value := row.figure("rtt_over_none_us")) is not None]
    return _cell(texts, median(over_us) if over_us else None)


def _paper(count: int) -> str:
    """What the paper measured with so many rules, of what it measured with none."""
    found, none = PAPER.get(count), PAPER[0]
    if found is None:
        return "-"
    pairs = (
        (found.rtt_ms, none.rtt_ms),
        (found.tcp_mbps, none.tcp_mbps),
        (found.cpu_percent, none.cpu_percent),
    )
    texts = ["-" if own is None or base is None else _share(own / base) for own, base in pairs]
    return _cell(texts, (found.rtt_ms - none.rtt_ms) * 1e3)


def _cell(texts: Sequence[str], over_us: float | None) -> str:
    first, *others = texts
    over = ""
    if over_us is not None:
        # To add 0.0 makes 0.0 of -0.0.
        over = f" ({round(over_us, 1) + 0.0:+.{1 if abs(over_us) < 10 else 0}f})"
    return " / ".join([first + over, *others])


def _share(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
