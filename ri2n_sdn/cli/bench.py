"""`ri2n bench fig4|failover|fig9|cycle`: the papers' tables, measured in a lab, and the controller's own speed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ri2n_sdn.bench.paper import PAPER, paper_share
from ri2n_sdn.bench.rows import link_ratio
from ri2n_sdn.cli.common import console, note, rate_text, split_list, terminate_as_interrupt
from ri2n_sdn.cli.controller import STRATEGIES
from ri2n_sdn.cli.topology_files import find_topology
from ri2n_sdn.errors import BadInput

if TYPE_CHECKING:
    from ri2n_sdn.bench.context import Report
    from ri2n_sdn.bench.progress import Progress as BenchProgress

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="Measure the papers' tables with real traffic in a lab (root), and the controller."
)

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write rows, context and raw data to FILE; - for stdout."),
]
Mode = Annotated[str, typer.Option(help="How packets are spread; flow: whole flows, by hash.")]
Strategy = Annotated[str, typer.Option(help=f"One of {', '.join(STRATEGIES)}.")]
Streams = Annotated[int, typer.Option(min=1, max=128, help="TCP streams per client.")]


@app.command()
def fig4(
    topologies: Annotated[str, typer.Option(help="Letters of figure 4, names or files, with commas.")] = "d,f,h",
    strategies: Annotated[str, typer.Option(help="With commas.")] = ",".join(STRATEGIES),
    mode: Mode = "flow",
    streams: Streams = 8,
    seconds: Annotated[int, typer.Option(min=1, help="Length of the window that is measured.")] = 20,
    warmup: Annotated[int, typer.Option(min=0, help="Seconds of load before the window.")] = 3,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each; the table shows medians.")] = 3,
    pattern: Annotated[str, typer.Option(help="bulk, or ping-B: B only pings once a second (table 8).")] = "bulk",
    clients: Annotated[str, typer.Option(help="Who sends, with commas; default: all that can.")] = "",
    json_file: JsonFile = None,
) -> None:
    """Every client sends to A at once: goodput, share of the optimum, weights, retransmits (tables 6 and 8)."""
    from ri2n_sdn.bench import fig4 as bench

    _check_mode(mode)
    split_list(pattern, ["bulk", "ping-B"], "--pattern")
    settings = bench.Fig4Settings(
        topologies=[find_topology(name) for name in _names(topologies, "--topologies")],
        strategies=split_list(strategies, STRATEGIES, "--strategies"),
        mode=mode,
        streams=streams,
        seconds=seconds,
        warmup=warmup,
        repeat=repeat,
        pattern=pattern,
        clients=tuple(_names(clients, "--clients")) if clients else (),
    )
    _measure(
        "fig4",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        lambda report, progress: bench.run_fig4(settings, report, progress),
        lambda report: _fig4_table(report, pattern),
    )


@app.command()
def failover(
    fault: Annotated[
        list[str] | None, typer.Option(help="nic_down, peer_nic_down, blackhole, switch_down; default: all.")
    ] = None,
    topology: Annotated[str, typer.Option(help="Needs hosts A and B with two common networks.")] = "fig4/b",
    strategy: Strategy = "max_min",
    mode: Mode = "flow",
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each; the table shows medians.")] = 3,
    json_file: JsonFile = None,
) -> None:
    """Break the path that a stream uses: outage and losses of 1,000 packets/s, longest stall of TCP."""
    from ri2n_sdn.bench import failover as bench

    _check_mode(mode)
    split_list(strategy, STRATEGIES, "--strategy")
    settings = bench.FailoverSettings(
        topology=find_topology(topology),
        faults=split_list(",".join(fault or bench.FAULTS), bench.FAULTS, "--fault"),
        strategy=strategy,
        mode=mode,
        repeat=repeat,
    )
    _measure(
        "failover",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        lambda report, progress: bench.run_failover(settings, report, progress),
        _failover_table,
    )


@app.command()
def fig9(
    topology: Annotated[str, typer.Option(help="Needs B and D with a NIC eth1.")] = "fig4/e",
    strategy: Strategy = "max_min",
    streams: Streams = 8,
    phase_seconds: Annotated[int, typer.Option(min=4, help="Length of each of the five phases.")] = 15,
    json_file: JsonFile = None,
) -> None:
    """Cut B's, then D's second link under load and give them back: how fast do the weights follow?"""
    from ri2n_sdn.bench import fig9 as bench

    split_list(strategy, STRATEGIES, "--strategy")
    settings = bench.Fig9Settings(find_topology(topology), strategy, streams, phase_seconds)
    _measure(
        "fig9",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        lambda report, progress: bench.run_fig9(settings, report, progress),
        _fig9_table,
    )


@app.command()
def cycle(
    hosts: Annotated[int, typer.Option(min=2, max=256, help="Hosts with two NICs each, in a sandbox: no root.")] = 32,
    pairs: Annotated[str, typer.Option(help="Numbers of active pairs, with commas.")] = "31,124,496,992",
    seconds: Annotated[float, typer.Option(min=1, help="Length of the measurement for each number.")] = 10.0,
    json_file: JsonFile = None,
) -> None:
    """How long the controller's round takes, from asking for counters to acknowledged slot tables."""
    from ri2n_sdn.bench import cycle as bench

    try:
        counts = [int(word) for word in _names(pairs, "--pairs")]
    except ValueError:
        raise BadInput(f"--pairs {pairs}: must be numbers with commas") from None
    _measure(
        "cycle",
        json_file,
        {"hosts": hosts, "pairs": counts, "seconds": seconds},
        bench.total_seconds(counts, seconds),
        lambda report, progress: bench.run_cycle(hosts, counts, seconds, report, progress),
        _cycle_table,
    )


def _measure(
    kind: str,
    json_file: Path | None,
    settings: dict[str, Any],
    total_s: float,
    run: Callable[[Report, BenchProgress], None],
    table: Callable[[Report], Table],
) -> None:
    """Run a bench with a progress bar; show and keep what was measured also when it is interrupted."""
    from ri2n_sdn.bench.context import Report

    terminate_as_interrupt()
    to_stdout = json_file is not None and str(json_file) == "-"
    try:
        report = Report(kind, None if to_stdout else json_file, settings)
    except OSError as error:
        raise BadInput(f"--json {json_file}: {error.strerror}") from None
    try:
        with _progress(total_s) as progress:
            run(report, progress)
    finally:
        if to_stdout:
            sys.stdout.write(json.dumps(report.document, indent=1) + "\n")
        elif report.rows:
            console().print(table(report))
            if json_file is not None:
                complete = "" if report.document["complete"] else " (incomplete)"
                note(f"written to {json_file}{complete}")


@contextmanager
def _progress(total_s: float) -> Iterator[BenchProgress]:
    """A bar with the time left on a terminal; a line per step on stderr elsewhere."""
    from ri2n_sdn.bench.progress import Progress as BenchProgress

    if not sys.stderr.isatty():
        seen: list[str] = []

        def line(text: str, over_s: float) -> None:
            if [text] != seen[-1:]:
                note(f"[{over_s:.0f} of about {total_s:.0f} s] {text}")
                seen.append(text)

        yield BenchProgress(line)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=total_s)
        yield BenchProgress(lambda text, over_s: bar.update(task, description=text, completed=over_s))


# ---- tables


def _fig4_table(report: Report, pattern: str) -> Table:
    table = Table(title="share of the optimum; in brackets the paper's, on the same topology", title_justify="left")
    headings = ("topology", "strategy", "total", "paper", "worst client", "clients", "link 1 : link 0")
    for heading in (*headings, "paper", "retransmits", "slots moved"):
        table.add_column(heading, justify="left" if heading in ("topology", "strategy", "clients") else "right")
    for line in report.document["summary"]:
        name, strategy = line["topology"], line["strategy"]
        rows = [row for row in report.rows if (row["topology"], row["strategy"]) == (name, strategy)]
        paper = paper_share(name, strategy) if pattern == "bulk" else None
        table.add_row(
            name,
            strategy,
            _with_spread(line, "total_of_optimum"),
            "-" if paper is None else f"({paper:.2f})",
            _with_spread(line, "worst_share"),
            ", ".join(f"{host} {rate_text(seen['goodput_bps'])}" for host, seen in rows[-1]["clients"].items()),
            _ratios(rows[-1]["weights"]),
            _paper_weights(name, strategy) if pattern == "bulk" else "-",
            f"{line['retransmits']:g}",
            f"{line['slots_moved']:g}",
        )
    return table


def _failover_table(report: Report) -> Table:
    table = Table(title="median (smallest..largest)", title_justify="left")
    for heading in ("fault", "outage ms", "lost packets", "of", "TCP stall ms", "last path"):
        table.add_column(heading)
    for line in report.document["summary"]:
        last = [row for row in report.rows if row["fault"] == line["fault"]][-1]
        cells = [_with_spread(line, figure, "g") for figure in ("outage_ms", "lost", "tcp_stall_ms")]
        table.add_row(line["fault"], cells[0], cells[1], str(last["sent"]), cells[2], last["path"])
    return table


def _fig9_table(report: Report) -> Table:
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


def _cycle_table(report: Report) -> Table:
    table = Table(title="one round of the controller, ms; in brackets CPU time of its thread", title_justify="left")
    for heading in ("hosts", "active pairs", "median", "longest", "all tables changed"):
        table.add_column(heading, justify="right")
    for row in report.rows:
        table.add_row(
            str(row["hosts"]),
            str(row["active_pairs"]),
            f"{row['cycle_s'] * 1e3:.0f} ({row['cpu_s'] * 1e3:.0f})",
            f"{row['cycle_max_s'] * 1e3:.0f}",
            f"{row['change_cycle_s'] * 1e3:.0f} ({row['change_cpu_s'] * 1e3:.0f})",
        )
    return table


def _with_spread(line: dict[str, Any], figure: str, form: str = ".3f") -> str:
    if line[figure] is None:
        return "-"
    low, high = line[f"{figure}_spread"]
    return f"{line[figure]:{form}} ({low:{form}}..{high:{form}})"


def _ratios(weights: dict[str, dict[str, float]]) -> str:
    ratios = {host: link_ratio(paths) for host, paths in weights.items()}
    return ", ".join(f"{host} {ratio:.1f}" for host, ratio in ratios.items() if ratio is not None) or "-"


def _paper_weights(topology: str, strategy: str) -> str:
    row = PAPER.get(topology)
    found = {"ri2n_plus": row.weights_plus, "ri2n_plus_plus": row.weights_plus_plus} if row else {}
    return found.get(strategy) or "-"


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadInput(f"{option}: is empty")
    return names


def _check_mode(mode: str) -> None:
    if mode != "flow":
        raise BadInput(f"--mode {mode}: only flow is there; packet mode needs the striping helper")
