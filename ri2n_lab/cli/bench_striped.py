# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench stream|demand|helper`: what the helper `ri2n-reorder` achieves and what it costs."""

from __future__ import annotations

from typing import Annotated

import typer

from ri2n_lab.cli.bench_common import (
    Alone,
    JsonFile,
    KernelOption,
    Peers,
    Repeat,
    Seed,
    Strategies,
    contestants,
    measure,
    names,
    runner,
    stream_counts,
)
from ri2n_lab.cli.bench_tables import demand_table, helper_tables, stream_table
from ri2n_sdn.cli.common import split_list
from ri2n_sdn.errors import BadInput
from ri2n_sdn.shipped import find_topology

__all__ = ["demand", "helper", "stream"]

# These are named here, too, so that `--help` does not load the benches; a test compares.
LINKS = ("100,100", "100,50", "100,100,10", "100,100,100,100")
PROTOCOLS = ["tcp", "udp"]
CONGESTION_CONTROLS = ["cubic", "bbr", "reno"]
BUSY_PEERS = "lcb,mptcp"
CONTENDERS = [
    "veth",
    "mptcp",
    "ovs_bond",
    "autonomous",
    "flow",
    "flow_fast",
    "packet",
    "packet_fast",
]
MODES = ["packet", "packet_fast"]
DATAPATHS = ["netdev", "netdev-tso", "system"]


def stream(
    links: Annotated[
        list[str] | None,
        typer.Option(
            help="Rates in Mbit/s of the links between two hosts, with commas; several times for "
            "several sets. Default: 100,100 and 100,50 and 100,100,10 and 100,100,100,100.",
            show_default=False,
        ),
    ] = None,
    strategies: Strategies = "max_min",
    peers: Peers = "",
    autonomous: Alone = "",
    proto: Annotated[
        str,
        typer.Option(help="tcp, udp, or both with a comma; udp sends 0.9 of the links' rate."),
    ] = "tcp",
    cc: Annotated[
        str, typer.Option(help="TCP's congestion control: cubic, bbr, reno, with commas.")
    ] = "cubic",
    mode: Annotated[
        str,
        typer.Option(
            help="packet: by the helper; packet_fast: the same, and TCP by the fast path, too."
        ),
    ] = "packet",
    seconds: Annotated[
        int, typer.Option(min=1, help="Seconds of the window that is measured.")
    ] = 20,
    repeat: Repeat = None,
    busy: Annotated[
        bool,
        typer.Option(
            "--busy",
            help="Run a spinning program on each CPU, with the services' priorities; the table "
            "then has link deaths, and the share of one link's plain TCP times the links. Then "
            "the defaults are --links 100,100, --peers lcb,mptcp and --repeat 1; what is measured "
            "beside the helpers takes 60 s at most.",
        ),
    ] = False,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    json_file: JsonFile = None,
) -> None:
    """Send one stream over all links of two hosts.

    The table has its share of the links' sum, losses, reordering and wakes of the helpers.
    """
    from ri2n_lab.bench import stream as bench
    from ri2n_lab.bench.cells import stream_cells

    if busy and kernel == "virtual":
        raise BadInput("--busy: programs that spin stop virtual time; take --kernel host or uml")
    if mode not in MODES:
        raise BadInput(f"--mode: unknown {mode!r}; choose from {', '.join(MODES)}")
    links = links or list(LINKS[:1] if busy else LINKS)
    settings = bench.StreamSettings(
        links=tuple(dict.fromkeys(",".join(map(str, bench.parse_links(text))) for text in links)),
        **contestants(strategies, peers or (BUSY_PEERS if busy else ""), autonomous),
        protos=tuple(split_list(proto, PROTOCOLS, "--proto")),
        ccs=tuple(split_list(cc, CONGESTION_CONTROLS, "--cc")),
        seconds=seconds,
        repeat=repeat or (1 if busy or kernel == "virtual" else 3),
        busy=busy,
        mode=mode,
    )
    measure(
        "stream",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        runner(
            kernel,
            seed,
            [],
            lambda _: stream_cells(settings, seed),
            bench.summarized,
            lambda report, progress: bench.run_stream(settings, report, progress),
            bench.together,
        ),
        stream_table,
    )


def demand(
    topology: Annotated[
        str, typer.Option(help="Letter of figure 4, name or file; all clients send to A.")
    ] = "f",
    strategies: Strategies = "max_min",
    autonomous: Alone = "",
    stops: Annotated[str, typer.Option(help="The client that stops and begins again.")] = "B",
    before_seconds: Annotated[int, typer.Option(min=1, help="Seconds before it stops.")] = 4,
    pause_seconds: Annotated[int, typer.Option(min=1, help="Seconds that it is silent.")] = 3,
    after_seconds: Annotated[int, typer.Option(min=2, help="Seconds after it begins again.")] = 4,
    repeat: Repeat = None,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    json_file: JsonFile = None,
) -> None:
    """Let a client stop and begin again.

    The table shows how soon the others use its share, and how soon it has its share back.
    """
    from ri2n_lab.bench import demand as bench
    from ri2n_lab.bench.cells import demand_cells

    named = contestants(strategies, "", autonomous)
    settings = bench.DemandSettings(
        topology=find_topology(topology),
        strategies=named["strategies"],
        stops=stops,
        before_s=before_seconds,
        pause_s=pause_seconds,
        after_s=after_seconds,
        repeat=repeat or (1 if kernel == "virtual" else 3),
        autonomous=named["autonomous"],
    )
    measure(
        "demand",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        runner(
            kernel,
            seed,
            [settings.topology],
            lambda files: demand_cells(settings, files, seed),
            bench.summarized,
            lambda report, progress: bench.run_demand(settings, report, progress),
        ),
        demand_table,
    )


def helper(
    what: Annotated[str, typer.Option(help=f"{', '.join(CONTENDERS)}, with commas.")] = ",".join(
        CONTENDERS
    ),
    datapaths: Annotated[
        str, typer.Option(help=f"Of those with bridges: {', '.join(DATAPATHS)}, with commas.")
    ] = ",".join(DATAPATHS),
    links: Annotated[
        int, typer.Option(min=1, max=8, help="Links between the two hosts, without a rate.")
    ] = 2,
    streams: Annotated[
        str, typer.Option(help="Numbers of TCP streams, with commas; one way, then both ways.")
    ] = "1,8",
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of each load.")] = 5,
    repeat: Annotated[
        int, typer.Option(min=1, help="Rounds over all labs; the tables show medians.")
    ] = 3,
    tries: Annotated[
        int,
        typer.Option(
            min=1,
            help="Measure a load up to so many times while other programs use CPUs; the calmest "
            "counts.",
        ),
    ] = 1,
    json_file: JsonFile = None,
) -> None:
    """Measure what helper and fast path cost on this machine, beside a plain veth.

    The tables have packets/s in memory; TCP streams with their CPU seconds; round trips; short
    connections and small UDP packets.
    """
    from ri2n_lab.bench import helper as bench

    wanted = split_list(",".join(names(what, "--what")), CONTENDERS, "--what")
    chosen = split_list(",".join(names(datapaths, "--datapaths")), DATAPATHS, "--datapaths")
    settings = bench.HelperSettings(
        tuple(name for name in CONTENDERS if name in wanted),
        links,
        seconds,
        repeat,
        stream_counts(streams),
        tuple(name for name in DATAPATHS if name in chosen),
        tries,
    )
    measure(
        "helper",
        json_file,
        settings.described(),
        bench.total_seconds(settings),
        lambda report, progress: bench.run_helper(settings, report, progress),
        helper_tables,
    )
