"""`ri2n bench fig4|failover|fig9|cycle`: the papers' tables, measured in a lab, and the controller's own speed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ri2n_sdn.bench.paper import PAPER, paper_share
from ri2n_sdn.bench.rows import link_ratio
from ri2n_sdn.cli.common import console, note, rate_text, split_list, terminate_as_interrupt
from ri2n_sdn.cli.controller import STRATEGIES
from ri2n_sdn.cli.topology_files import find_topology
from ri2n_sdn.errors import BadInput, NotAvailable

if TYPE_CHECKING:
    from ri2n_sdn.bench.context import Report
    from ri2n_sdn.bench.guests import Cell
    from ri2n_sdn.bench.progress import Progress as BenchProgress
    from ri2n_sdn.fabric.topology import Topology

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, help="Measure the papers' tables with real traffic in a lab (root), and the controller."
)

MAX_STREAMS = 128
DROPS: dict[str, Literal["oldest", "newest"]] = {"oldest": "oldest", "newest": "newest"}
# Named here too, so that `--help` need not load what measures; a test compares.
PEER_NAMES = ["lcb", "lacp_hash", "ovs_equal", "ovs_bond", "ecmp", "mptcp"]

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write rows, context and raw data to FILE; - for stdout."),
]
Mode = Annotated[str, typer.Option(help="How packets are spread; flow: whole flows, by hash.")]
Strategy = Annotated[str, typer.Option(help=f"One of {', '.join(STRATEGIES)}.")]
Strategies = Annotated[str, typer.Option(help=f"{', '.join(STRATEGIES)}, with commas; or all or none.")]
Peers = Annotated[str, typer.Option(help=f"Beside them: {', '.join(PEER_NAMES)}, with commas; or all.")]
KernelOption = Annotated[
    str,
    typer.Option("--kernel", help="host; uml: kernel datapath, in user-mode Linux; virtual: the same in virtual time."),
]
Seed = Annotated[int, typer.Option(min=1, help="Of all random numbers in virtual time; repeats take the next ones.")]
Repeat = Annotated[
    int | None,
    typer.Option(min=1, help="Runs of each; medians are shown. Default 3, in virtual time 1.", show_default=False),
]
Streams = Annotated[int, typer.Option(min=1, max=MAX_STREAMS, help="TCP streams per client.")]


@app.command()
def fig4(
    topologies: Annotated[str, typer.Option(help="Letters of figure 4, names or files, with commas.")] = "d,f,h",
    strategies: Strategies = "all",
    peers: Peers = "",
    mode: Mode = "flow",
    streams: Annotated[str, typer.Option(help="TCP streams per client; several numbers with commas.")] = "8",
    seconds: Annotated[
        int | None,
        typer.Option(min=1, help="The window that is measured. Default 20, in virtual time 10.", show_default=False),
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Seconds of load before the window.")] = 3,
    repeat: Repeat = None,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    pattern: Annotated[str, typer.Option(help="bulk, or ping-B: B only pings once a second (table 8).")] = "bulk",
    clients: Annotated[str, typer.Option(help="Who sends, with commas; default: all that can.")] = "",
    drop: Annotated[
        str,
        typer.Option(help="The frame that a full switch port drops, oldest or newest; default: the topology's."),
    ] = "",
    json_file: JsonFile = None,
) -> None:
    """Every client sends to A at once: goodput, share of the optimum, weights, retransmits (tables 6 and 8)."""
    from ri2n_sdn.bench import fig4 as bench
    from ri2n_sdn.bench.cells import fig4_cells

    _check_mode(mode)
    split_list(pattern, ["bulk", "ping-B"], "--pattern")
    settings = bench.Fig4Settings(
        topologies=[_dropping(find_topology(name), drop) for name in _names(topologies, "--topologies")],
        **_contestants(strategies, peers, "--strategies"),
        mode=mode,
        streams=_stream_counts(streams),
        seconds=seconds or (10 if kernel == "virtual" else 20),
        warmup=warmup,
        repeat=repeat or (1 if kernel == "virtual" else 3),
        pattern=pattern,
        clients=tuple(_names(clients, "--clients")) if clients else (),
    )
    _measure(
        "fig4",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        _where(
            kernel,
            seed,
            settings.topologies,
            lambda files: fig4_cells(settings, files, seed),
            bench.summarized,
            lambda report, progress: bench.run_fig4(settings, report, progress),
        ),
        lambda report: _fig4_table(report, pattern),
    )


@app.command()
def failover(
    fault: Annotated[
        list[str] | None, typer.Option(help="nic_down, peer_nic_down, blackhole, switch_down; default: all.")
    ] = None,
    topology: Annotated[str, typer.Option(help="Needs hosts A and B with two common networks.")] = "fig4/b",
    strategies: Annotated[
        str,
        typer.Option(
            "--strategies", "--strategy", help=f"{', '.join(STRATEGIES)}, with commas; or all or none (only peers)."
        ),
    ] = "max_min",
    peers: Peers = "",
    mode: Mode = "flow",
    repeat: Repeat = None,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    json_file: JsonFile = None,
) -> None:
    """Break the path that a stream uses: outage and losses of 1,000 packets/s, longest stall of TCP."""
    from ri2n_sdn.bench import failover as bench
    from ri2n_sdn.bench.cells import failover_cells

    _check_mode(mode)
    settings = bench.FailoverSettings(
        topology=find_topology(topology),
        faults=split_list(",".join(fault or bench.FAULTS), bench.FAULTS, "--fault"),
        **_contestants(strategies, peers, "--strategies"),
        mode=mode,
        repeat=repeat or (1 if kernel == "virtual" else 3),
    )
    _measure(
        "failover",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        _where(
            kernel,
            seed,
            [settings.topology],
            lambda files: failover_cells(settings, files, seed),
            bench.summarized,
            lambda report, progress: bench.run_failover(settings, report, progress),
        ),
        _failover_table,
    )


@app.command()
def fig9(
    topology: Annotated[str, typer.Option(help="Needs B and D with a NIC eth1.")] = "fig4/e",
    strategy: Strategy = "max_min",
    streams: Streams = 8,
    phase_seconds: Annotated[int, typer.Option(min=4, help="Length of each of the five phases.")] = 15,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    json_file: JsonFile = None,
) -> None:
    """Cut B's, then D's second link under load and give them back: how fast do the weights follow?"""
    from ri2n_sdn.bench import fig9 as bench
    from ri2n_sdn.bench.cells import fig9_cells

    split_list(strategy, STRATEGIES, "--strategy")
    settings = bench.Fig9Settings(find_topology(topology), strategy, streams, phase_seconds)
    _measure(
        "fig9",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        _where(
            kernel,
            seed,
            [settings.topology],
            lambda files: fig9_cells(settings, files, seed),
            lambda _: [],
            lambda report, progress: bench.run_fig9(settings, report, progress),
        ),
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


@app.command()
def report(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="JSON files that the benches wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of results.md and results/.")] = Path("docs"),
) -> None:
    """Make a page of tables and pictures of measurements, and keep their data without iperf3's own beside it."""
    from ri2n_sdn.bench.report import write_report

    written, warnings = write_report(files, output)
    for warning in warnings:
        note(f"warning: {warning}")
    for path in written:
        console().print(str(path), soft_wrap=True)


def _where(
    kernel: str,
    seed: int,
    topologies: Sequence[Topology],
    cells: Callable[[dict[str, Path]], list[Cell]],
    summarize: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
    here: Callable[[Report, BenchProgress], None],
) -> Callable[[Report, BenchProgress], None]:
    """What runs the bench: `here` on this kernel, else its `cells` in guests."""
    if kernel == "host":
        return here
    from ri2n_sdn.bench.guests import run_cells, write_topology
    from ri2n_sdn.lab.kernels import find_kernel

    image = find_kernel(kernel)
    if os.geteuid() != 0:
        raise NotAvailable("a guest needs root: use sudo")

    def run(report: Report, progress: BenchProgress) -> None:
        report.document["context"]["seed"] = seed if image.virtual else None
        with tempfile.TemporaryDirectory(prefix="ri2n-bench.") as folder:
            files = {
                topology.name: write_topology(Path(folder), topology.name, topology.model_dump(mode="json"))
                for topology in topologies
            }
            run_cells(image, cells(files), report, progress, summarize)

    return run


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
    left = ("topology", "strategy", "clients")
    headings = ("topology", "strategy", "streams", "total", "paper", "worst client", "clients", "link 1 : link 0")
    for heading in (*headings, "paper", "retransmits", "slots moved"):
        table.add_column(heading, justify="left" if heading in left else "right")
    for line in report.document["summary"]:
        name, strategy = line["topology"], line["strategy"]
        key = (name, strategy, line["streams"])
        last = [row for row in report.rows if (row["topology"], row["strategy"], row["streams"]) == key][-1]
        if "why_not" in line:
            table.add_row(name, strategy, str(line["streams"]), "-", "-", "-", f"cannot: {line['why_not']}")
            continue
        paper = paper_share(name, strategy) if pattern == "bulk" else None
        table.add_row(
            name,
            strategy,
            str(line["streams"]),
            _with_spread(line, "total_of_optimum"),
            "-" if paper is None else f"({paper:.2f})",
            _with_spread(line, "worst_share"),
            ", ".join(f"{host} {rate_text(seen['goodput_bps'])}" for host, seen in last["clients"].items()),
            _ratios(last["weights"]),
            _paper_weights(name, strategy) if pattern == "bulk" else "-",
            f"{line['retransmits']:g}",
            "-" if line["slots_moved"] is None else f"{line['slots_moved']:g}",
        )
    return table


def _failover_table(report: Report) -> Table:
    table = Table(title="median (smallest..largest)", title_justify="left")
    for heading in ("fault", "strategy", "outage ms", "lost packets", "of", "TCP stall ms", "last path"):
        table.add_column(heading)
    for line in report.document["summary"]:
        key = (line["fault"], line["strategy"])
        last = [row for row in report.rows if (row["fault"], row["strategy"]) == key][-1]
        if "why_not" in line:
            table.add_row(*key, "-", "-", "-", "-", f"cannot: {line['why_not']}")
            continue
        cells = [_with_spread(line, figure, "g") for figure in ("outage_ms", "lost", "tcp_stall_ms")]
        sent = "-" if last["sent"] is None else str(last["sent"])
        cells[1] += ", to the end" if last["lasting"] else ""
        table.add_row(*key, cells[0], cells[1], sent, cells[2], last["path"] or last["tcp_path"])
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


def _contestants(strategies: str, peers: str, option: str) -> dict[str, Any]:
    """What `--strategies` and `--peers` name: at least one of either."""
    own = {"all": STRATEGIES, "none": []}.get(strategies.strip())
    own = split_list(strategies, STRATEGIES, option) if own is None else list(own)
    beside = PEER_NAMES if peers.strip() == "all" else peers and split_list(peers, PEER_NAMES, "--peers")
    if not own and not beside:
        raise BadInput(f"{option} none: name at least one of --peers")
    return {"strategies": own, "peers": tuple(beside)}


def _stream_counts(text: str) -> tuple[int, ...]:
    counts = []
    for word in _names(text, "--streams"):
        if not (word.isascii() and word.isdigit() and 1 <= int(word) <= MAX_STREAMS):
            raise BadInput(f"--streams {word}: must be a number from 1 to {MAX_STREAMS}")
        counts.append(int(word))
    return tuple(dict.fromkeys(counts))


def _dropping(topology: Topology, drop: str) -> Topology:
    """`topology` with `--drop`, if that was given."""
    if not drop:
        return topology
    if drop not in DROPS:
        raise BadInput(f"--drop: unknown {drop!r}; choose from {', '.join(DROPS)}")
    return topology.with_drop(DROPS[drop])


def _check_mode(mode: str) -> None:
    if mode != "flow":
        raise BadInput(f"--mode {mode}: only flow is there; packet mode needs the striping helper")
