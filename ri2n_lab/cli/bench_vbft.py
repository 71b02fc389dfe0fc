# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench vbft`: VLAN fat trees with each path table, compared with one switch for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ri2n_lab.cli.bench_common import (
    MAX_STREAMS,
    JsonFile,
    KernelOption,
    Repeat,
    Seed,
    measure,
    names,
    runner,
)
from ri2n_lab.cli.bench_tables import figure_table
from ri2n_sdn.cli.common import split_list
from ri2n_sdn.errors import BadInput
from ri2n_sdn.shipped import find_topology

if TYPE_CHECKING:
    from ri2n_lab.bench.context import Report

__all__ = ["vbft", "vbft_table"]

# These are named here, too, so that `--help` does not load the benches; a test compares.
PATTERNS = ["bisection", "alltoall", "cg", "shift"]
TABLES = ["cyclic", "spread", "adaptive"]
ENGINES = ["tcp", "udp", "iperf3", "mpi"]
MODES = ["flow", "packet", "packet_fast"]
TOPOLOGIES = "flat,tree_2,tree_4,vbft_2_2,vbft_2_4,vbft_4_2,vbft_4_4"
MAX_MBPS = 10_000


def vbft(
    topologies: Annotated[
        str, typer.Option(help="Names or files, with commas; flat is always measured with them.")
    ] = TOPOLOGIES,
    pattern: Annotated[
        str, typer.Option(help=f"{', '.join(PATTERNS)}, with commas; shift takes long.")
    ] = ("bisection,alltoall,cg"),
    tables: Annotated[
        str, typer.Option(help=f"Path tables: {', '.join(TABLES)}, with commas.")
    ] = ",".join(TABLES),
    mode: Annotated[
        str,
        typer.Option(
            help="flow: whole flows, by hash; packet: each packet by itself, by the helper; "
            "packet_fast: the same, and TCP by the fast path, too. Several with commas."
        ),
    ] = "flow",
    engine: Annotated[
        str,
        typer.Option(
            help="tcp: plain streams; udp: every host sends at 0.9 of its NICs' rate; iperf3: TCP "
            "by iperf3, for bisection and cg; mpi: Open MPI, one rank on each host. Several with "
            "commas."
        ),
    ] = "tcp",
    seconds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Seconds of the window that is measured. Default 10, in virtual time 4.",
            show_default=False,
        ),
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Seconds of load before the window.")] = 3,
    streams: Annotated[
        int, typer.Option(min=1, max=MAX_STREAMS, help="Streams of each pair; only for TCP.")
    ] = 1,
    link_mbps: Annotated[
        int | None,
        typer.Option(
            "--link-mbps",
            min=1,
            max=MAX_MBPS,
            help="Rate of the fastest NIC in Mbit/s; all other rates in proportion. Default 100, "
            "in virtual time 20.",
            show_default=False,
        ),
    ] = None,
    repeat: Repeat = None,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    add_flat: Annotated[bool, typer.Option("--flat/--no-flat", hidden=True)] = True,
    json_file: JsonFile = None,
) -> None:
    """Compare fat trees of cheap switches with one switch for all hosts.

    The table has what all hosts together get, as a share of what they would get with one switch.
    """
    from ri2n_lab.bench import vbft as bench
    from ri2n_lab.bench.cells import vbft_cells
    from ri2n_lab.bench.vbft_rows import compared

    virtual = kernel == "virtual"
    engines = tuple(split_list(engine, ENGINES, "--engine"))
    if "mpi" in engines and kernel != "host":
        raise BadInput("--engine mpi: only with --kernel host: ranks that wait stop virtual time")
    named = [find_topology(name) for name in names(topologies, "--topologies")]
    rate_bps = (link_mbps or (20 if virtual else 100)) * 1_000_000
    settings = bench.VbftSettings(
        topologies=[
            bench.rescaled(topology, rate_bps)
            for topology in (bench.with_flat(named) if add_flat else named)
        ],
        patterns=tuple(split_list(pattern, PATTERNS, "--pattern")),
        tables=tuple(split_list(tables, TABLES, "--tables")),
        modes=tuple(split_list(mode, MODES, "--mode")),
        engines=engines,
        seconds=seconds or (4 if virtual else 10),
        warmup=warmup,
        streams=streams,
        repeat=repeat or (1 if virtual else 3),
    )
    bench.check(settings)
    measure(
        "vbft",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        runner(
            kernel,
            seed,
            settings.topologies,
            lambda files: vbft_cells(settings, files, seed),
            bench.summarized,
            lambda report, progress: bench.run_vbft(settings, report, progress),
            compared,
        ),
        vbft_table,
    )


def vbft_table(report: Report) -> Table:
    """The table: a line for each pattern, engine, mode, topology and path table."""
    from ri2n_lab.bench.vbft_rows import FIGURES

    keys = ("pattern", "engine", "mode", "topology", "table")
    lines = sorted(
        report.document["summary"], key=lambda line: [str(line[name]) for name in keys[:3]]
    )
    return figure_table(
        "shares of flat, median (smallest..largest); bound: what no routing could exceed; fair: "
        "what all pairs could have at once",
        lines,
        report.rows,
        dict(zip(keys, keys, strict=True)),
        FIGURES,
    )
