"""One measurement as a section of the page:

tables, pictures, and below each what made it and on what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench import report_parallel, report_vbft
from ri2n_lab.bench import report_striped as striped
from ri2n_lab.bench.failover import FAULTS, HELPER_FAULTS, packets_per_s
from ri2n_lab.bench.paper import PAPER, paper_share
from ri2n_lab.bench.report_cells import cell, code, spread_text, table
from ri2n_lab.bench.report_context import context_lines, description, source
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Notes, name_text
from ri2n_lab.bench.report_pictures import (
    OUTAGE_END_MS,
    STALL_END_MS,
    Picture,
    contenders,
    in_order,
    peer_titles,
    spread,
)
from ri2n_lab.bench.report_rows import FailoverRow, Fig4Row, Number
from ri2n_lab.bench.rows import link_ratio

__all__ = ["section"]

TITLES = {
    "fig4": "Everybody sends to one host",
    "failover": "One fault",
    "fig9": "Links are cut and given back",
    "cycle": "The controller's round",
    "vbft": report_vbft.TITLE,
    "parallel": report_parallel.TITLE,
    **striped.TITLES,
}

# Columns that older files lack: heading, key, and how it is written.
FAILOVER_MORE = (
    ("out of order", "out_of_order", ".0f"),
    ("traffic again after, ms", "traffic_again_ms", ".0f"),
    ("striped again after, s", "striped_again_s", ".2f"),
)
MORE = (
    ("switch drops", "switch_drops"),
    ("out of order", "out_of_order"),
    ("ping idle, ms", "ping_idle_ms"),
    ("ping under load, ms", "ping_load_ms"),
)


def section(measurement: Measurement, drawn: Sequence[Picture]) -> str:
    """The section of one measurement as Markdown, with its context at the end."""
    incomplete = "" if measurement.complete else " (incomplete)"
    lines = [f"## {TITLES[measurement.kind]}: {measurement.name}{incomplete}", ""]
    if not measurement.complete:
        lines += ["This run was interrupted: what is here was measured, the rest is missing.", ""]
    body = {"fig4": _fig4, "failover": _failover, "fig9": _fig9, "cycle": _cycle}.get(
        measurement.kind
    )
    if body:
        lines += body(measurement, drawn)
    else:
        of_kind = {"vbft": report_vbft.body, "parallel": report_parallel.body}
        lines += of_kind.get(measurement.kind, striped.body)(measurement)
    lines += [f"### Context of {measurement.name}", ""]
    lines += table(("what", "value"), context_lines(measurement))
    return "\n".join(lines)


# ---- kinds


def _fig4(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    for streams in sorted({row.streams for row in measurement.fig4}):
        rows = [row for row in measurement.fig4 if row.streams == streams]
        topologies = sorted({row.topology for row in rows})
        title = _streams_text(streams)
        yield from (f"### {title[0].upper()}{title[1:]} ({measurement.name})", "")
        yield (
            "All clients together / worst client, as shares of what is possible and of what is "
            "fair. A peer that needs"
            " its switches stacked into one has them so, and its shares are of what is possible "
            "there."
        )
        yield ""
        notes = Notes()
        matrix = []
        for name, peer in contenders(rows):
            cells = [name_text(name, peer)]
            for topology in topologies:
                members = [row for row in rows if (row.topology, row.strategy) == (topology, name)]
                total, worst = (
                    spread(row.total_of_optimum for row in members),
                    spread(row.worst_share for row in members),
                )
                if total is None or worst is None:
                    cells.append(notes.cell(name, members))
                else:
                    cells.append(f"{total.value:.2f} / {worst.value:.2f}")
            matrix.append(cells)
        yield from table(("", *map(cell, topologies)), matrix)
        yield from notes.lines()
        yield from _peers(rows)
        yield from source(measurement, rows)
        for picture in drawn:
            if picture.streams == streams:
                yield from _picture(picture)
                yield from source(measurement, rows)
        for topology in topologies:
            members = [row for row in rows if row.topology == topology]
            text = description(measurement, topology)
            yield from (
                f"#### {cell(topology)}{': ' if text else ''}{text} ({_streams_text(streams)})",
                "",
            )
            yield from _fig4_topology(measurement, topology, members)
            yield from source(measurement, members)


def _fig4_topology(
    measurement: Measurement, topology: str, rows: Sequence[Fig4Row]
) -> Iterator[str]:
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
        cells.append(_ratios([row.weights for row in members]))
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


def _failover(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    rows = measurement.failover
    mode = "packet" if any(row.mode == "packet" for row in rows) else "flow"
    yield (
        f"{packets_per_s(mode):,} UDP packets per second between two hosts, and in a run of its "
        "own a bulk TCP stream;"
        " the fault hits a NIC or switch that the stream uses. Outage: the longest time without a "
        "packet. Values near"
        f" {OUTAGE_END_MS:,.0f} ms (UDP) or {STALL_END_MS:,.0f} ms (TCP) mean: until the run "
        "ended. Lost to the end:"
        " packets were still lost then, whatever the longest time without any."
    )
    yield ""
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
    yield from _peers(rows)
    yield from source(measurement, rows)
    for picture in drawn:
        yield from _picture(picture)
        yield from source(measurement, rows)


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


def _fig9(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    clients = sorted({client for row in measurement.fig9 for client in row.goodput_bps})
    yield (
        f"Strategy {code(str(measurement.settings.get('strategy', 'max_min')))}, all clients send "
        "all the time."
        " Settled: from when on, after the change, every share stays within 0.1 of where it is at "
        "the end of the phase;"
        " HBSPAN is the controller's interval at that moment. Goodput is that of the phase's "
        "second half."
    )
    yield ""
    head = ("phase", "settled after, s", "in HBSPANs", "HBSPAN, s", "link 1 : link 0")
    lines = []
    for row in measurement.fig9:
        settled = ["never", "-"] if row.settle_s is None else [f"{row.settle_s:.2f}", "-"]
        if row.settle_hbspan is not None:
            settled[1] = f"{row.settle_hbspan:.1f}"
        rates = [
            f"{row.goodput_bps[client] / 1e6:.1f}" if client in row.goodput_bps else "-"
            for client in clients
        ]
        lines.append(
            [cell(row.phase), *settled, f"{row.hbspan_s:g}", _ratios([row.weights]), *rates]
        )
    yield from table((*head, *(f"{cell(client)}, Mbit/s" for client in clients)), lines)
    yield from source(measurement, ())
    for picture in drawn:
        yield from _picture(picture)
        yield from source(measurement, ())


def _cycle(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    yield (
        "From asking the hosts for counters to acknowledged slot tables, in ms; in brackets CPU "
        "time of its thread. No"
        " traffic, no lab: the hosts are bridges of one Open vSwitch."
    )
    yield ""
    head = [
        "hosts",
        "active pairs",
        "rounds",
        "median",
        "longest",
        "a round that changes tables",
        "tables changed",
    ]
    busy = any(row.settle_s is not None for row in measurement.cycle)
    lines = []
    for row in sorted(measurement.cycle, key=lambda row: (row.hosts, row.active_pairs)):
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
    yield from source(measurement, ())


# ---- cells


def _streams_text(streams: int) -> str:
    return "one TCP stream per client" if streams == 1 else f"{streams} TCP streams per client"


def _peers(rows: Sequence[Fig4Row | FailoverRow]) -> Iterator[str]:
    """What the peers are, as far as this version knows them."""
    titles = peer_titles()
    lines = [
        f"* *{cell(name)}*: {cell(titles[name])}"
        for name, peer in contenders(rows)
        if peer and name in titles
    ]
    if lines:
        yield from (*lines, "")


def _ratios(weights: Sequence[dict[str, dict[str, Number]]]) -> str:
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


def _picture(picture: Picture) -> Iterator[str]:
    yield from (f"![{picture.alt}](results/{picture.name}.svg)", "")
