# SPDX-License-Identifier: Apache-2.0
"""The page of results: one section for each question, with a table, pictures and commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from ri2n_lab.bench.fast import FLOW_FAST, PACKET, PACKET_FAST
from ri2n_lab.bench.figure import Figure
from ri2n_lab.bench.parallel_plan import size_text
from ri2n_lab.bench.report_cells import code, prose, table
from ri2n_lab.bench.report_charts import Chart, chart_picture
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import peer_lines
from ri2n_lab.bench.report_pictures import Picture, picture_lines
from ri2n_lab.bench.report_rows import FailoverRow, Fig4Row, figures_of

__all__ = ["page"]

INTRODUCTION = (
    "`ri2n bench` measured all of this, and `ri2n bench report docs/results/*.json` writes this "
    "page. Below each table stand the commands that made it, with links to pages that have "
    "everything: all figures, reasons, and what the measurement ran on. The data lie beside those "
    "pages. A name that ends with `host` is in real time on the machine; all else is in virtual "
    "time.",
    "Figures are medians of the repeats. Names in `code` are strategies of this software "
    "(`autonomous_...`: by the helpers, without a controller), names in *italics* are what it is "
    "compared with; *no* with a number: it cannot do this, for the reason below the table.",
)
MAX_PICTURES = 2


@dataclass(frozen=True)
class Question:
    """A question, and how measurements answer it.

    `rows` are those of a measurement that are about it, none when it is about something else. Two
    measurements may have the same figures: `key` says what a row is a figure of, and the first
    measurement that has a key fills it. `table` makes the table of the rows that are left, and
    `chart` says what is drawn of them where the first measurement has no pictures of its own.
    """

    title: str
    text: str
    rows: Callable[[Measurement], Sequence[Any]]
    key: Callable[[Any], object]
    table: Callable[[Sequence[Any]], Iterator[str]]
    chart: Chart | None = None


def _fig4(mode: str, pattern: str) -> Callable[[Measurement], Sequence[Any]]:
    """Rows of figure 4 in a mode, with as many streams as were measured."""

    def rows(measurement: Measurement) -> Sequence[Any]:
        if measurement.settings.get("pattern", "bulk") != pattern:
            return []
        if measurement.settings.get("mode", "flow") != mode:
            return []
        most = max((row.streams for row in measurement.fig4), default=0)
        return [row for row in measurement.fig4 if row.streams == most]

    return rows


def _failover(mode: str) -> Callable[[Measurement], Sequence[Any]]:
    def rows(measurement: Measurement) -> Sequence[Any]:
        modes = {row.mode for row in measurement.failover}
        # Peers have a mode, too: that of the run, or none.
        own = next((each for each in (PACKET_FAST, PACKET, FLOW_FAST) if each in modes), "flow")
        return measurement.failover if own == mode else []

    return rows


def _stream(mode: str, *, busy: bool) -> Callable[[Measurement], Sequence[Any]]:
    def rows(measurement: Measurement) -> Sequence[Any]:
        if measurement.settings.get("mode", PACKET) != mode:
            return []
        beside = any(row.figure("of_links") is not None for row in measurement.stream)
        return measurement.stream if beside is busy else []

    return rows


def _transfers(measurement: Measurement) -> Sequence[Any]:
    """Over fresh connections with their set-up; one link and the most, every second size."""
    found = [
        row
        for row in report_parallel.of_part(measurement.parallel, "transfer")
        if (row.connection, row.setup) == ("fresh", "include")
    ]
    most = max((row.streams for row in found), default=0)
    return [row for row in found if row.streams in (1, most)]


def _jobs(*, exchanges: bool) -> Callable[[Measurement], Sequence[Any]]:
    return lambda measurement: [row for row in measurement.jobs if bool(row.exchange) is exchanges]


def _declared(kind: str, name: str) -> Figure:
    """The figure of this name."""
    return next(figure for figure in figures_of(kind) if figure.name == name)


def _sizes(rows: Sequence[Any]) -> Iterator[str]:
    sizes = sorted({row.size_bytes for row in rows})[::2]
    return report_parallel.transfer_table([row for row in rows if row.size_bytes in sizes])


def _part(part: str) -> Callable[[Measurement], Sequence[Any]]:
    return lambda measurement: report_parallel.of_part(measurement.parallel, part)


def _of_topology(row: Any) -> object:
    return (row.topology, row.strategy)


SHARES = (
    "Each cell has what all clients together get, of the largest total that the links can carry (a "
    "linear program), and what the worst client gets, of its max-min fair rate: 1.00 / 1.00 is the "
    "best. The columns are topologies, most of them those of figure 4 of the RI2N++ paper."
)
OUTAGES = (
    "Each cell has the longest time without a packet of a UDP stream and the longest stall of a "
    "TCP stream, in ms: UDP / TCP. *no end*: packets were still lost, or nothing had come again, "
    "when the run ended."
)
QUESTIONS = (
    Question(
        "Does everybody get a fair share?",
        f"All clients send to one host at once, by flows, with several TCP streams each. {SHARES}",
        _fig4("flow", "bulk"),
        _of_topology,
        report_fig4.matrix,
    ),
    Question(
        "Is that so by the fast path, too?",
        "As before, with the fast path beside the bridges. The cells are as in the first table.",
        _fig4(FLOW_FAST, "bulk"),
        _of_topology,
        report_fig4.matrix,
    ),
    Question(
        "And when one client has little to send?",
        "As before, but B only pings once a second (table 8 of the paper).",
        _fig4("flow", "ping-B"),
        _of_topology,
        report_fig4.matrix,
    ),
    Question(
        "Is one stream per client enough, packet by packet?",
        "All clients send one TCP stream to one host, with helpers on all hosts. The cells are as "
        "in the first table.",
        _fig4("packet", "bulk"),
        _of_topology,
        report_fig4.matrix,
    ),
    Question(
        "And with the fast path beside the helpers?",
        "TCP passes beside the bridges then. The cells are as in the first table.",
        _fig4(PACKET_FAST, "bulk"),
        _of_topology,
        report_fig4.matrix,
    ),
    Question(
        "Can one stream use all links?",
        "One stream between two hosts, with helpers on both. Each cell has its goodput, of what "
        "full frames could carry over all links together. The columns are the rates of the links "
        "in Mbit/s. UDP is sent at 0.9 of their sum.",
        _stream(PACKET, busy=False),
        lambda row: (row.links_mbps, row.strategy, row.proto, row.cc),
        report_striped.stream_matrix,
        Chart(
            "question-stream",
            "One TCP stream (cubic) over all links",
            "share of the sum of the links",
            "links, Mbit/s",
            figure=partial(_declared, "stream", "of_sum"),
            rows=lambda row: row.cc == "cubic",
            group=lambda row: row.links_mbps,
            label=lambda row: row.strategy,
            ours=lambda row: not row.peer,
            mark=(1.0, "sum"),
        ),
    ),
    Question(
        "Can it with the fast path beside the helpers?",
        "The same, with one TCP stream. Sent again: segments in all of the time.",
        _stream(PACKET_FAST, busy=False),
        lambda row: (row.links_mbps, row.strategy, row.proto, row.cc),
        report_striped.stream_table,
    ),
    Question(
        "And on a busy machine?",
        "One stream, beside a program that spins on each CPU, in real time. Of the sum: as above. "
        "A link or a NIC that is taken for dead was alive.",
        _stream(PACKET, busy=True),
        lambda row: (row.links_mbps, row.strategy, row.proto, row.cc),
        report_striped.stream_table,
    ),
    Question(
        "How soon do others use what a client leaves?",
        "Every client sends one TCP stream; one stops, and after a pause begins again. The shares "
        "are means over the rest of each phase: of the links, and the worst client's of its "
        "max-min fair rate.",
        lambda measurement: measurement.demand,
        lambda row: (row.topology, row.strategy),
        report_striped.demand_table,
    ),
    Question(
        "How long is the outage when something dies, by flows?",
        f"The fault hits a NIC or a switch that the stream uses, by flows. {OUTAGES}",
        _failover("flow"),
        lambda row: (row.fault, row.strategy),
        report_failover.matrix,
    ),
    Question(
        "And by flows on the fast path?",
        "The same with the fast path beside the bridges. The cells are as in the table before.",
        _failover(FLOW_FAST),
        lambda row: (row.fault, row.strategy),
        report_failover.matrix,
    ),
    Question(
        "How long is the outage when something dies, packet by packet?",
        "The same with helpers on both hosts. The cells are as in the table before.",
        _failover("packet"),
        lambda row: (row.fault, row.strategy),
        report_failover.matrix,
    ),
    Question(
        "And when the fast path is beside the helpers?",
        "UDP passes the helpers, TCP passes beside the bridges. The cells are as before.",
        _failover(PACKET_FAST),
        lambda row: (row.fault, row.strategy),
        report_failover.matrix,
    ),
    Question(
        "How soon do the weights follow when links are cut and given back?",
        "All clients send all the time. Settled: from when on, after the change, every share stays "
        "within 0.1 of where it is at the end of the phase; HBSPAN is the controller's interval.",
        lambda measurement: measurement.fig9,
        lambda row: row.phase,
        report_rounds.fig9_table,
    ),
    Question(
        "What does a fat tree of cheap switches give?",
        "Each cell has what all receivers together got, of what they got with all hosts on one "
        "switch (`flat`), for one traffic pattern, kind of traffic and mode.",
        lambda measurement: measurement.vbft,
        lambda row: (row.topology, row.table, row.pattern, row.engine, row.mode),
        report_vbft.matrix,
        Chart(
            "question-vbft",
            "All hosts together on fat trees and on other networks",
            "share of one switch for all",
            "pattern and kind of traffic",
            figure=partial(_declared, "vbft", "of_flat"),
            rows=lambda row: True,
            group=lambda row: f"{row.pattern}, {row.engine}",
            label=lambda row: " ".join(filter(None, (row.topology, row.table))),
            ours=lambda row: row.table is not None,
            mark=(1.0, "one switch for all"),
            kinds=("fat trees:", "others:"),
        ),
    ),
    Question(
        "How much faster are several links for an ordinary user?",
        "`ri2n_parallel` over fresh connections, with their set-up: goodput over that of plain TCP "
        "over one link, for the same size. In brackets: of what as many plain TCPs get together.",
        _transfers,
        lambda row: (row.method, row.streams, row.size_bytes),
        _sizes,
        Chart(
            "question-parallel",
            "Transfers over all links, with their set-up",
            "times plain TCP over one link",
            "bytes",
            figure=partial(_declared, "parallel", "speedup"),
            # The trunk has one stream over all links.
            rows=lambda row: (
                row.method.startswith(("parallel", "mptcp", "trunk"))
                and (row.streams > 1 or row.method.startswith("trunk"))
            ),
            group=lambda row: size_text(row.size_bytes),
            label=lambda row: report_parallel.method_text(row.method, row.streams),
            ours=lambda row: row.method != "mptcp",
            mark=(1.0, "plain TCP"),
        ),
    ),
    Question(
        "What happens to such a transfer when links die?",
        "At 0.3 of the transfer's time the fault comes. Stall: the longest time without a byte for "
        "the receiving program.",
        _part("fault"),
        lambda row: (row.fault, row.method),
        report_parallel.fault_table,
    ),
    Question(
        "Which link does a new connection take?",
        "Eight processes on every client ask for short (56 KB) or long answers, again and again. "
        "Each cell has goodput, over that of long ones to one address / connections served per "
        "minute / connections by which the server's links differ.",
        _part("mix"),
        lambda row: (row.method, row.short),
        report_parallel.mix_table,
    ),
    Question(
        "How long does a question with its answer take?",
        "Round trips of 1 KB in us, over links without a rate, in real time. CPUs awake: idle ones "
        "poll meanwhile.",
        _part("roundtrip"),
        lambda row: (row.method, row.awake),
        report_parallel.round_trip_table,
    ),
    Question(
        "How long is a round of the controller?",
        "From asking the hosts for counters to acknowledged slot tables, and its CPU time. With "
        "`--busy` a program spins on each CPU.",
        lambda measurement: measurement.cycle,
        lambda row: (row.hosts, row.active_pairs),
        report_rounds.cycle_table,
    ),
    Question(
        "What does the web process cost the controller?",
        "Rounds of the controller in turn without and with the web process, event streams and open "
        "pages of the GUI. Growth is that over the mean of the two windows beside it.",
        lambda measurement: measurement.web,
        lambda row: (row.hosts, row.active_pairs, row.watched),
        report_rounds.web_table,
    ),
    Question(
        "What do helper and fast path cost?",
        "Two hosts over links without a rate, in real time, measured by turns. The first line has "
        "one plain veth's goodput, median of round trips, or what passes in a second; the others "
        "have their ratios to it, each in the same round. For round trips, less is better. CPU: "
        "the ratio of the CPU time for each Gbit, connection or packet.",
        lambda measurement: measurement.helper,
        lambda row: (row.part, row.what, row.datapath, row.load),
        report_striped.helper_matrix,
    ),
    Question(
        "Does a job keep its path to itself?",
        f"{report_jobs.EXPLAINED} Each cell has what job one gets / job two gets, of what it gets "
        "alone without a policy. Of two equal lanes one is 0.50.",
        _jobs(exchanges=False),
        lambda row: (row.topology, row.mode, row.policy, row.job, row.beside, row.apart),
        report_jobs.matrix,
    ),
    Question(
        "How long does a job's MPI exchange take beside another job?",
        f"{report_jobs.EXCHANGES_EXPLAINED} Each cell has how many times as long an exchange takes "
        "as when nobody else sends and there is no policy, with the smallest and the largest of "
        "the rounds / what job two gets, of what it gets alone.",
        _jobs(exchanges=True),
        lambda row: (row.topology, row.exchange, row.policy, row.job, row.beside, row.apart),
        report_jobs.exchange_matrix,
    ),
    Question(
        "What do users' rules cost?",
        f"{report_rules.EXPLAINED} Each cell has a round trip / TCP goodput / CPU time per bit, of "
        "those without rules at the same time; in brackets by how many us a round trip is longer.",
        lambda measurement: measurement.rules,
        lambda row: (row.over, row.method, row.beside),
        report_rules.matrix,
    ),
)


def page(
    measurements: Sequence[Measurement],
    drawn: Mapping[str, Sequence[Picture]],
    folder: str,
) -> tuple[str, list[Picture]]:
    """The page as Markdown, and the pictures that it has besides those of the measurements.

    `drawn` are pictures by measurement; all lie in `folder`, which ends with a slash.
    """
    charts: list[Picture] = []
    lines = ["# Results", ""]
    for text in INTRODUCTION:
        lines += prose(text)
    compared: list[Fig4Row | FailoverRow] = []
    for measurement in measurements:
        compared += [*measurement.fig4, *measurement.failover]
    lines += peer_lines(compared)
    # A short name is that of the general case, a longer one that of a special case.
    ordered = sorted(measurements, key=lambda each: (len(each.name), each.name))
    left = {measurement.name for measurement in ordered}
    for question in QUESTIONS:
        members = [each for each in ordered if question.rows(each)]
        left -= {each.name for each in members}
        if members:
            rows = _together(question, members)
            shown = list(drawn.get(members[0].name, []))[-MAX_PICTURES:]
            chart = chart_picture(question.chart, rows) if question.chart else None
            charts += [chart] if chart else []
            shown += [chart] if chart else []
            lines += _section(question, members, rows, shown, folder)
    others = [each for each in ordered if each.name in left]
    if others:
        lines += ["## Other measurements", ""]
        lines += _commands(others, folder)
    return "\n".join(lines), charts


def _section(
    question: Question,
    members: Sequence[Measurement],
    rows: Sequence[Any],
    pictures: Sequence[Picture],
    folder: str,
) -> Iterator[str]:
    yield from (f"## {question.title}", "")
    yield from prose(question.text)
    yield from question.table(rows)
    for picture in pictures:
        yield from picture_lines(picture, folder)
    yield from _commands(members, folder)


def _together(question: Question, members: Sequence[Measurement]) -> list[Any]:
    """The rows of all that ran on the kernel of the first: other kernels have figures of their own.

    Rows with the same key are repeats when they are of one measurement.
    """
    kernel = members[0].context.get("lab_kernel")
    rows: list[Any] = []
    for measurement in members:
        if measurement.context.get("lab_kernel") == kernel:
            known = {question.key(row) for row in rows}
            rows += [row for row in question.rows(measurement) if question.key(row) not in known]
    return rows


def _commands(members: Sequence[Measurement], folder: str) -> Iterator[str]:
    """A line for each measurement: a link to its own page, and its command."""
    yield from table(
        ("all of it", "command"),
        [
            [
                f"[{each.name}]({folder}{each.name}.md){'' if each.complete else ' (incomplete)'}",
                code(each.command),
            ]
            for each in members
        ],
    )
