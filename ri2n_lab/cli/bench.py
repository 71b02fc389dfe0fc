# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench ...`: measure the papers' tables in a lab, and the controller's own speed.

This file has fig4, failover, fig9, cycle and report; bench_striped.py, bench_vbft.py,
bench_parallel.py, bench_rules.py, bench_jobs.py and bench_web.py have the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ri2n_lab.cli import (
    bench_jobs,
    bench_parallel,
    bench_rules,
    bench_striped,
    bench_vbft,
    bench_web,
)
from ri2n_lab.cli.bench_common import (
    Alone,
    JsonFile,
    KernelOption,
    Peers,
    Repeat,
    Seed,
    Strategies,
    Strategy,
    Streams,
    contestants,
    measure,
    names,
    runner,
    stream_counts,
)
from ri2n_lab.cli.bench_tables import cycle_table, failover_table, fig4_table, fig9_table
from ri2n_lab.cli.unowned import remove_unowned
from ri2n_sdn.cli.common import console, note, split_list
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.errors import BadInput
from ri2n_sdn.shipped import find_topology

if TYPE_CHECKING:
    from ri2n_sdn.fabric.topology import Topology

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Measure the papers' tables with real traffic in a lab (root), and the controller.",
)
for command in (
    bench_striped.stream,
    bench_striped.demand,
    bench_striped.helper,
    bench_vbft.vbft,
    bench_parallel.parallel,
    bench_rules.rules,
    bench_jobs.jobs,
    bench_web.web,
):
    app.command()(command)


@app.callback()
def _first() -> None:
    """Remove labs that nobody owns, before every bench."""
    remove_unowned()


DROPS: dict[str, Literal["oldest", "newest"]] = {"oldest": "oldest", "newest": "newest"}
MODES = ["flow", "flow_fast", "packet", "packet_fast"]
PACKET_MODES = ["packet", "packet_fast"]

Mode = Annotated[
    str,
    typer.Option(
        help="How traffic is spread. flow: whole flows, by hash; flow_fast: the same, by the fast "
        "path; packet: each packet by itself, by the helper; packet_fast: the same, and TCP by the "
        "fast path, too."
    ),
]


@app.command()
def fig4(
    topologies: Annotated[
        str, typer.Option(help="Letters of figure 4, names or files, with commas.")
    ] = "d,f,h",
    strategies: Strategies = "all",
    peers: Peers = "",
    autonomous: Alone = "",
    mode: Mode = "flow",
    plain: Annotated[str, typer.Option(help="Hosts without a helper, with commas.")] = "",
    streams: Annotated[
        str,
        typer.Option(
            help="TCP streams per client; several numbers with commas. Default 8, in packet mode "
            "1.",
            show_default=False,
        ),
    ] = "",
    seconds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Seconds of the window that is measured. Default 20, in virtual time 10.",
            show_default=False,
        ),
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Seconds of load before the window.")] = 3,
    repeat: Repeat = None,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    pattern: Annotated[
        str, typer.Option(help="bulk, or ping-B: B only pings once a second (table 8).")
    ] = "bulk",
    clients: Annotated[
        str, typer.Option(help="The hosts that send, with commas; default: all that can.")
    ] = "",
    ping: Annotated[
        bool,
        typer.Option("--ping", help="Measure also round trips from B to A, idle and under load."),
    ] = False,
    drop: Annotated[
        str,
        typer.Option(
            help="The frame that a full switch port drops, oldest or newest; default: the "
            "topology's."
        ),
    ] = "",
    json_file: JsonFile = None,
) -> None:
    """Let every client send to A at once (tables 6 and 8).

    The table has goodput, share of the optimum, weights and retransmits.
    """
    from ri2n_lab.bench import fig4 as bench
    from ri2n_lab.bench.cells import fig4_cells

    _check_mode(mode, autonomous, plain)
    split_list(pattern, ["bulk", "ping-B"], "--pattern")
    settings = bench.Fig4Settings(
        topologies=[
            _dropping(find_topology(name), drop) for name in names(topologies, "--topologies")
        ],
        **contestants(strategies, peers, autonomous),
        mode=mode,
        streams=stream_counts(streams or ("1" if mode in PACKET_MODES else "8")),
        seconds=seconds or (10 if kernel == "virtual" else 20),
        warmup=warmup,
        repeat=repeat or (1 if kernel == "virtual" else 3),
        pattern=pattern,
        clients=tuple(names(clients, "--clients")) if clients else (),
        plain=tuple(names(plain, "--plain")) if plain else (),
        ping=ping,
    )
    measure(
        "fig4",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        runner(
            kernel,
            seed,
            settings.topologies,
            lambda files: fig4_cells(settings, files, seed),
            bench.summarized,
            lambda report, progress: bench.run_fig4(settings, report, progress),
        ),
        lambda report: fig4_table(report, pattern),
    )


@app.command()
def failover(
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="nic_down, peer_nic_down, blackhole, switch_down, switch_killed, "
            "peer_switch_killed (ovs-vswitchd), "
            "in packet mode also helper_killed and peer_helper_killed; default: all."
        ),
    ] = None,
    topology: Annotated[
        str, typer.Option(help="Needs hosts A and B with two common networks.")
    ] = "fig4/b",
    strategies: Annotated[
        str,
        typer.Option(
            "--strategies",
            "--strategy",
            help=f"{', '.join(STRATEGIES)}, with commas; or all or none (only peers).",
        ),
    ] = "max_min",
    peers: Peers = "",
    autonomous: Alone = "",
    mode: Mode = "flow",
    repeat: Repeat = None,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    json_file: JsonFile = None,
) -> None:
    """Break the path that a stream uses: the outage and losses of UDP, the longest stall of TCP."""
    from ri2n_lab.bench import failover as bench
    from ri2n_lab.bench.cells import failover_cells

    _check_mode(mode, autonomous)
    faults = [*bench.FAULTS, *(bench.HELPER_FAULTS if mode in PACKET_MODES else ())]
    settings = bench.FailoverSettings(
        topology=find_topology(topology),
        faults=split_list(",".join(fault or faults), faults, "--fault"),
        **contestants(strategies, peers, autonomous),
        mode=mode,
        repeat=repeat or (1 if kernel == "virtual" else 3),
    )
    measure(
        "failover",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        runner(
            kernel,
            seed,
            [settings.topology],
            lambda files: failover_cells(settings, files, seed),
            bench.summarized,
            lambda report, progress: bench.run_failover(settings, report, progress),
        ),
        failover_table,
    )


@app.command()
def fig9(
    topology: Annotated[str, typer.Option(help="Needs B and D with a NIC eth1.")] = "fig4/e",
    strategy: Strategy = "max_min",
    streams: Streams = 8,
    phase_seconds: Annotated[
        int, typer.Option(min=4, help="Length of each of the five phases.")
    ] = 15,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    json_file: JsonFile = None,
) -> None:
    """Cut the second link of B, then that of D, and restore both, all under load.

    The table shows how fast the weights follow.
    """
    from ri2n_lab.bench import fig9 as bench
    from ri2n_lab.bench.cells import fig9_cells

    split_list(strategy, STRATEGIES, "--strategy")
    settings = bench.Fig9Settings(find_topology(topology), strategy, streams, phase_seconds)
    measure(
        "fig9",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        runner(
            kernel,
            seed,
            [settings.topology],
            lambda files: fig9_cells(settings, files, seed),
            lambda _: [],
            lambda report, progress: bench.run_fig9(settings, report, progress),
        ),
        fig9_table,
    )


@app.command()
def cycle(
    hosts: Annotated[
        int, typer.Option(min=2, max=256, help="Hosts with two NICs each, in a sandbox: no root.")
    ] = 32,
    pairs: Annotated[
        str, typer.Option(help="Numbers of active pairs, with commas.")
    ] = "31,124,496,992",
    seconds: Annotated[
        float, typer.Option(min=1, help="Length of the measurement for each number.")
    ] = 10.0,
    busy: Annotated[
        bool,
        typer.Option(
            "--busy",
            help="Run a spinning program on each CPU; as root, with the priorities that services "
            "have.",
        ),
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Measure how long the controller takes to settle, and how long a round of it takes.

    A round goes from the request for counters to acknowledged slot tables.
    """
    from ri2n_lab.bench import cycle as bench

    try:
        counts = [int(word) for word in names(pairs, "--pairs")]
    except ValueError:
        raise BadInput(f"--pairs {pairs}: must be numbers with commas") from None
    measure(
        "cycle",
        json_file,
        {"hosts": hosts, "pairs": counts, "seconds": seconds, "busy": busy},
        bench.total_seconds(counts, seconds),
        lambda report, progress: bench.run_cycle(hosts, counts, seconds, report, progress, busy),
        cycle_table,
    )


@app.command()
def report(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSON files that the benches wrote.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of results.md and results/.")
    ] = Path("docs"),
) -> None:
    """Make a page with tables and pictures of measurements.

    The data are kept beside the page, without iperf3's own reports.
    """
    from ri2n_lab.bench.report import write_report

    written, warnings = write_report(files, output)
    for warning in warnings:
        note(f"warning: {warning}")
    for path in written:
        console().print(str(path), soft_wrap=True)


def _dropping(topology: Topology, drop: str) -> Topology:
    """`topology` with `--drop`, if that was given."""
    if not drop:
        return topology
    if drop not in DROPS:
        raise BadInput(f"--drop: unknown {drop!r}; choose from {', '.join(DROPS)}")
    return topology.with_drop(DROPS[drop])


def _check_mode(mode: str, *needs_helpers: object) -> None:
    if mode not in MODES:
        raise BadInput(f"--mode: unknown {mode!r}; choose from {', '.join(MODES)}")
    if mode not in PACKET_MODES and any(needs_helpers):
        raise BadInput("--autonomous and --plain are about helpers: they need --mode packet")
