# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench jobs`: two jobs on the same hosts, with and without a policy for one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ri2n_lab.cli.bench_common import (
    JsonFile,
    KernelOption,
    Repeat,
    Seed,
    Streams,
    measure,
    names,
    runner,
)
from ri2n_lab.cli.bench_tables import MEDIAN, figure_table
from ri2n_sdn.cli.common import split_list
from ri2n_sdn.errors import BadInput
from ri2n_sdn.shipped import find_topology

if TYPE_CHECKING:
    from ri2n_lab.bench.context import Report

__all__ = ["jobs", "jobs_table"]

# These are named here, too, so that `--help` does not load the benches; a test compares.
POLICIES = ["none", "exclusive", "min_rate", "max_rate", "isolated"]
EXCHANGES = ["is", "cg"]
EXCHANGE_POLICIES = "none,exclusive"
EXCHANGE_MBPS = 20
MODES = ["flow", "packet", "packet_fast"]
MAX_MBPS = 10_000


def jobs(
    topologies: Annotated[
        str, typer.Option(help="Names or files, with commas; half of the hosts send to the others.")
    ] = "fig4/b,vbft_2_2",
    policies: Annotated[
        str | None,
        typer.Option(
            help=f"Policies of job one: {', '.join(POLICIES)}, with commas. Default all of them, "
            f"with --exchange {EXCHANGE_POLICIES}.",
            show_default=False,
        ),
    ] = None,
    exchange: Annotated[
        str | None,
        typer.Option(
            help="What job one does by MPI in place of its streams, on this machine's kernel: "
            f"{', '.join(EXCHANGES)}, with commas.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="flow: whole flows, by hash; packet: each packet by itself; packet_fast: the "
            "same, and TCP of no job by the fast path, too."
        ),
    ] = "flow",
    streams: Streams = 8,
    seconds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Seconds of the window that is measured. Default 10, in virtual time 5.",
            show_default=False,
        ),
    ] = None,
    warmup: Annotated[int, typer.Option(min=1, help="Seconds of load before the window.")] = 3,
    link_mbps: Annotated[
        int | None,
        typer.Option(
            "--link-mbps",
            min=1,
            max=MAX_MBPS,
            help="Rate of the fastest NIC in Mbit/s; all other rates in proportion. Default: the "
            f"topology's, in virtual time 20, with --exchange {EXCHANGE_MBPS}.",
            show_default=False,
        ),
    ] = None,
    repeat: Repeat = None,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    json_file: JsonFile = None,
) -> None:
    """Let two users' jobs send on the same hosts: job one a stream, job two --streams of them.

    The table has what each gets, of what it has alone, without a policy and with policies for job
    one. With --exchange job one exchanges messages by MPI, and the table also has how long it took.
    """
    from ri2n_lab.bench import jobs as bench
    from ri2n_lab.bench import jobs_plan
    from ri2n_lab.bench.cells import jobs_cells
    from ri2n_lab.bench.vbft import rescaled

    if mode not in MODES:
        raise BadInput(f"--mode: unknown {mode!r}; choose from {', '.join(MODES)}")
    exchanges = tuple(split_list(exchange, EXCHANGES, "--exchange")) if exchange else ()
    if exchanges and kernel != "host":
        raise BadInput("--exchange: needs --kernel host: MPI spins, which stops a guest's clock")
    virtual = kernel == "virtual"
    found = [find_topology(name) for name in names(topologies, "--topologies")]
    mbps = link_mbps or (20 if virtual else EXCHANGE_MBPS if exchanges else None)
    chosen = policies or (EXCHANGE_POLICIES if exchanges else ",".join(POLICIES))
    settings = jobs_plan.JobsSettings(
        topologies=[rescaled(each, mbps * 1_000_000) for each in found] if mbps else found,
        policies=tuple(split_list(chosen, POLICIES, "--policies")),
        mode=mode,
        streams=streams,
        seconds=seconds or (5 if virtual else 10),
        warmup=warmup,
        repeat=repeat or (1 if virtual else 3),
        exchanges=exchanges,
    )
    bench.check(settings)
    measure(
        "jobs",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        runner(
            kernel,
            seed,
            settings.topologies,
            lambda files: jobs_cells(settings, files, seed),
            jobs_plan.summarized,
            lambda report, progress: bench.run_jobs(settings, report, progress),
            jobs_plan.compared,
        ),
        jobs_table,
    )


def jobs_table(report: Report) -> Table:
    """The table: a line for each topology, policy and job, alone and beside the other."""
    from ri2n_lab.bench.jobs_plan import FIGURES

    keys = {"topology": "topology", "mode": "mode", "policy": "policy", "job": "job"}
    keys["beside the other"] = "beside"
    more = {"hosts apart": "apart", "exchange": "exchange"}
    keys |= {head: name for head, name in more.items() if any(row[name] for row in report.rows)}
    title = "two users' jobs on the same hosts; " + MEDIAN
    return figure_table(title, report.document["summary"], report.rows, keys, FIGURES)
