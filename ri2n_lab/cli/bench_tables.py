"""The tables that the benches print of their reports' rows and summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from ri2n_lab.bench.helper_counts import WAKES, WAKES_BOUND
from ri2n_lab.bench.paper import PAPER, paper_share
from ri2n_lab.bench.rows import link_ratio
from ri2n_sdn.cli.common import rate_text

if TYPE_CHECKING:
    from ri2n_lab.bench.context import Report

__all__ = [
    "cycle_table",
    "demand_table",
    "failover_table",
    "fig4_table",
    "fig9_table",
    "helper_table",
    "stream_table",
]

DEMAND_TIMES = ("others_have_it_ms", "all_fair_ms")


def fig4_table(report: Report, pattern: str) -> Table:
    """`ri2n bench fig4`: a line for each topology, strategy or peer, and number of streams."""
    table = Table(
        title="share of the optimum; in brackets the paper's, on the same topology",
        title_justify="left",
    )
    left = ("topology", "strategy", "clients")
    headings = ("topology", "strategy", "streams", "total", "paper", "worst client", "clients")
    pinged = any("ping_load_ms" in line for line in report.document["summary"])
    more = ["link 1 : link 0", "paper", "retransmits", "slots moved", "switch drops"]
    more += ["out of order", "ping ms"] if pinged else ["out of order"]
    for heading in (*headings, *more):
        table.add_column(heading, justify="left" if heading in left else "right")
    for line in report.document["summary"]:
        name, strategy = line["topology"], line["strategy"]
        key = (name, strategy, line["streams"])
        last = [
            row for row in report.rows if (row["topology"], row["strategy"], row["streams"]) == key
        ][-1]
        if "why_not" in line:
            table.add_row(
                name, strategy, str(line["streams"]), "-", "-", "-", f"cannot: {line['why_not']}"
            )
            continue
        paper = paper_share(name, strategy) if pattern == "bulk" else None
        table.add_row(
            name,
            strategy,
            str(line["streams"]),
            _with_spread(line, "total_of_optimum"),
            "-" if paper is None else f"({paper:.2f})",
            _with_spread(line, "worst_share"),
            ", ".join(
                f"{host} {rate_text(seen['goodput_bps'])}" for host, seen in last["clients"].items()
            ),
            _ratios(last["weights"]),
            _paper_weights(name, strategy) if pattern == "bulk" else "-",
            f"{line['retransmits']:g}",
            _figure(line, "slots_moved"),
            _figure(line, "switch_drops"),
            _figure(line, "out_of_order"),
            *(
                [f"{_figure(line, 'ping_idle_ms')} -> {_figure(line, 'ping_load_ms')}"]
                if pinged
                else []
            ),
        )
    return table


def failover_table(report: Report) -> Table:
    """`ri2n bench failover`: a line for each fault and strategy or peer."""
    table = Table(title="median (smallest..largest)", title_justify="left")
    died = any(line.get("traffic_again_ms") is not None for line in report.document["summary"])
    more = ("traffic again ms", "striped again s") if died else ()
    headings = (
        "fault",
        "strategy",
        "outage ms",
        "lost packets",
        "of",
        "twice",
        "out of order",
        "TCP stall ms",
        *more,
    )
    for heading in (*headings, "last path"):
        table.add_column(heading)
    for line in report.document["summary"]:
        key = (line["fault"], line["strategy"])
        last = [row for row in report.rows if (row["fault"], row["strategy"]) == key][-1]
        if "why_not" in line:
            table.add_row(*key, *["-"] * (len(headings) - 2), f"cannot: {line['why_not']}")
            continue
        cells = [
            _with_spread(line, figure, "g") for figure in ("outage_ms", "lost", "tcp_stall_ms")
        ]
        sent = "-" if last["sent"] is None else str(last["sent"])
        cells[1] += ", to the end" if last["lasting"] else ""
        again = (
            [_figure(line, "traffic_again_ms"), _figure(line, "striped_again_s")] if died else []
        )
        order, path = _figure(line, "out_of_order"), last["path"] or last["tcp_path"]
        duplicates = _figure(line, "duplicates")
        table.add_row(*key, *cells[:2], sent, duplicates, order, cells[2], *again, path)
    return table


def fig9_table(report: Report) -> Table:
    """`ri2n bench fig9`: a line for each phase."""
    table = Table()
    for heading in ("phase", "settled after", "HBSPANs", "HBSPAN", "link 1 : link 0", "goodput"):
        table.add_column(heading)
    for row in report.rows:
        table.add_row(
            row["phase"],
            "never" if row["settle_s"] is None else f"{row['settle_s']:.2f} s",
            "-" if row["settle_hbspan"] is None else f"{row['settle_hbspan']:.1f}",
            f"{row['hbspan_s']:g} s",
            _ratios(row["weights"]),
            ", ".join(f"{host} {rate_text(rate)}" for host, rate in row["goodput_bps"].items()),
        )
    return table


def cycle_table(report: Report) -> Table:
    """`ri2n bench cycle`: a line for each number of active pairs."""
    table = Table(
        title="one round of the controller, ms; in brackets CPU time of its thread",
        title_justify="left",
    )
    more = ("settled after, s", "connections dropped", "handler errors", "NIC deaths")
    for heading in ("hosts", "active pairs", "median", "longest", "tables changed", *more):
        table.add_column(heading, justify="right")
    for row in report.rows:
        table.add_row(
            str(row["hosts"]),
            str(row["active_pairs"]),
            f"{row['cycle_s'] * 1e3:.0f} ({row['cpu_s'] * 1e3:.0f})",
            f"{row['cycle_max_s'] * 1e3:.0f}",
            f"{row['changed_tables']}: {row['change_cycle_s'] * 1e3:.0f} "
            f"({row['change_cpu_s'] * 1e3:.0f})",
            *(
                _figure(row, name)
                for name in ("settle_s", "connections_dropped", "handler_errors", "nic_deaths")
            ),
        )
    return table


def stream_table(report: Report) -> Table:
    """`ri2n bench stream`: a line for each set of links, strategy or peer, and kind of stream."""
    table = Table(
        title="one stream; share of the sum of the links, median (smallest..largest)",
        title_justify="left",
    )
    busy = bool(report.document["settings"].get("busy"))
    figures = (
        "goodput",
        "of the sum",
        "retransmits",
        "lost",
        "of",
        "out of order",
        "switch drops",
        "wakes per frame",
    )
    more = ("of one link x links", "link deaths", "NIC deaths") if busy else ()
    for heading in ("links, Mbit/s", "strategy", "stream", *figures, *more):
        table.add_column(heading)
    for line in report.document["summary"]:
        names = (
            line["links_mbps"],
            line["strategy"],
            " ".join(filter(None, (line["proto"], line["cc"]))),
        )
        if "why_not" in line:
            table.add_row(*names, f"cannot: {line['why_not']}")
            continue
        cells = [rate_text(line["goodput_bps"]), _with_spread(line, "of_sum")]
        cells += [
            _figure(line, name)
            for name in ("retransmits", "lost", "sent", "out_of_order", "switch_drops")
        ]
        cells.append(_wakes(line))
        cells += (
            [_figure(line, name) for name in ("of_links", "link_deaths", "nic_deaths")]
            if busy
            else []
        )
        table.add_row(*names, *cells)
    return table


def demand_table(report: Report) -> Table:
    """`ri2n bench demand`: a line for each strategy."""
    table = Table(title="milliseconds, median (smallest..largest)", title_justify="left")
    headings = (
        "it stops: others have 0.95 of the links",
        "then",
        "it begins: all within 10 % of fair",
        "then, worst",
    )
    for heading in ("topology", "strategy", *headings):
        table.add_column(heading)
    for line in report.document["summary"]:
        names = (line["topology"], line["strategy"])
        if "why_not" in line:
            table.add_row(*names, f"cannot: {line['why_not']}")
            continue
        times = [
            "never" if line[name] is None else _with_spread(line, name, "g")
            for name in DEMAND_TIMES
        ]
        shares = [_with_spread(line, name) for name in ("others_after_stop", "worst_after_start")]
        table.add_row(*names, times[0], shares[0], times[1], shares[1])
    return table


def helper_table(report: Report) -> Table:
    """`ri2n bench helper`: a line for each figure in memory and for each contender end to end."""
    table = Table(title="median (smallest..largest)", title_justify="left")
    figures = (
        "packets/s",
        "Gbit/s",
        "of a plain veth",
        "CPU s per Gbit",
        "round trip us",
        "over flow mode us",
    )
    awake = ("CPUs awake: us", "over flow mode us")
    for heading in ("what", "userspace TSO", *figures, *awake):
        table.add_column(heading)
    for line in report.document["summary"]:
        tso = {None: "", True: "on", False: "off"}[line["userspace_tso"]]
        if "why_not" in line:
            table.add_row(line["what"], tso, f"cannot: {line['why_not']}")
            continue
        packets, goodput_bps = line["packets_per_s"], line["goodput_bps"]
        table.add_row(
            line["what"],
            tso,
            "-" if packets is None else f"{packets:,.0f}",
            "-" if goodput_bps is None else f"{goodput_bps / 1e9:.2f}",
            _with_spread(line, "of_veth"),
            _with_spread(line, "cpu_s_per_gbit"),
            _with_spread(line, "rtt_us", "g"),
            _figure(line, "rtt_over_flow_us"),
            _with_spread(line, "rtt_awake_us", "g"),
            _figure(line, "rtt_awake_over_flow_us"),
        )
    return table


def _wakes(line: dict[str, Any]) -> str:
    """Wakes per frame of the sender and the receiver, with a note when one is above the bound."""
    wakes = [line[name] for name in WAKES if line.get(name) is not None]
    too_many = f", over {WAKES_BOUND:g}" if any(value > WAKES_BOUND for value in wakes) else ""
    return " / ".join(f"{value:.2f}" for value in wakes) + too_many if wakes else "-"


def _figure(line: dict[str, Any], name: str) -> str:
    return "-" if line.get(name) is None else f"{line[name]:g}"


def _with_spread(line: dict[str, Any], figure: str, form: str = ".3f") -> str:
    if line[figure] is None:
        return "-"
    low, high = line[f"{figure}_spread"]
    return f"{line[figure]:{form}} ({low:{form}}..{high:{form}})"


def _ratios(weights: dict[str, dict[str, float]]) -> str:
    ratios = {host: link_ratio(paths) for host, paths in weights.items()}
    return (
        ", ".join(f"{host} {ratio:.1f}" for host, ratio in ratios.items() if ratio is not None)
        or "-"
    )


def _paper_weights(topology: str, strategy: str) -> str:
    row = PAPER.get(topology)
    if row is None:
        return "-"
    weights = {"ri2n_plus": row.weights_plus, "ri2n_plus_plus": row.weights_plus_plus}
    return weights.get(strategy) or "-"
