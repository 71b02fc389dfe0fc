# SPDX-License-Identifier: Apache-2.0
"""`ri2n bench parallel`: transfers over several links by `ri2n_parallel`.

They are compared with plain TCP, MPTCP and the trunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ri2n_lab.cli.bench_common import JsonFile, KernelOption, Repeat, Seed, measure, runner
from ri2n_sdn.cli.common import split_list
from ri2n_sdn.contract.units import table_rate
from ri2n_sdn.errors import BadInput
from ri2n_sdn.shipped import find_topology

if TYPE_CHECKING:
    from ri2n_lab.bench.context import Report
    from ri2n_lab.bench.figure import Figure

__all__ = ["parallel", "parallel_table"]

# These are named here, too, so that `--help` does not load the benches; a test compares.
METHODS = ["tcp", "tcps", "parallel", "mptcp", "trunk_packet", "trunk_flow"]
MIX_METHODS = ["tcp", "dns", "parallel"]
PARTS = ["transfer", "fault", "mix", "roundtrip"]
SETUPS = ["include", "early", "exclude"]
CONNECTIONS = ["fresh", "warm"]
FAULTS = ["one_down", "one_own_down", "one_blackhole", "all_but_one", "all_then_one"]
# What the printed table has a column or words of its own for.
WORDED = {
    *("goodput_bps", "time_ms", "speedup", "of_tcps", "completed", "intact", "stall_s", "total_s"),
    *("served_per_min", "failed", "rtt_us", "over_tcp_us"),
}
MAX_LINKS = 8
MAX_MBPS = 10_000


def parallel(
    links: Annotated[
        int, typer.Option(min=1, max=MAX_LINKS, help="Links between server and clients.")
    ] = 6,
    sizes: Annotated[
        str,
        typer.Option(
            help="Bytes of one transfer: 2K, 56K,1M, or ranges by powers of two; K, M are binary."
        ),
    ] = "2K..64M",
    streams: Annotated[
        str,
        typer.Option(
            help="Connections, each over a link of its own: 4, 1,6 or 1..6. Default: 1 to --links."
        ),
    ] = "",
    methods: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(METHODS)}, with commas. tcp, one connection over one link, is always "
            "measured; tcps are several at once; trunk_... is one over RI2N's trunk of all links."
        ),
    ] = ",".join(METHODS),
    parts: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(PARTS)}, with commas. Default: all; in virtual time all but "
            "roundtrip.",
            show_default=False,
        ),
    ] = "",
    setup: Annotated[
        str,
        typer.Option(
            help="Whether a transfer's time includes connecting. include; early: it does, and the "
            "first bytes go with it (parallel only); exclude."
        ),
    ] = ",".join(SETUPS),
    connections: Annotated[
        str, typer.Option(help="fresh, warm: the first transfer of a connection, or a later one.")
    ] = (",".join(CONNECTIONS)),
    faults: Annotated[str, typer.Option(help=f"{', '.join(FAULTS)}, with commas.")] = ",".join(
        FAULTS
    ),
    fault_size: Annotated[
        str, typer.Option(help="Bytes of the transfer that a fault hits.")
    ] = "64M",
    mix_methods: Annotated[
        str,
        typer.Option(
            help="How the mix chooses a link. tcp: one address; dns: in turn; parallel: "
            "least_connections."
        ),
    ] = ",".join(MIX_METHODS),
    short: Annotated[
        str,
        typer.Option(
            help="Mixes: how many of 8 processes of each client ask for 56 KB, the others for 1000 "
            "x 56 KB."
        ),
    ] = "0,2,4,6,8",
    window: Annotated[
        float, typer.Option(min=0.5, help="Seconds of a mix that are measured.")
    ] = 10.0,
    round_trips: Annotated[int, typer.Option(min=100, help="Round trips of each method.")] = 2000,
    topology: Annotated[
        str,
        typer.Option(
            help="Has server A, client B and, for the mix, further clients, each with a NIC on "
            "every network."
        ),
    ] = "parallel/six",
    link_mbps: Annotated[
        int | None,
        typer.Option(
            "--link-mbps",
            min=1,
            max=MAX_MBPS,
            help="Rate of the fastest NIC in Mbit/s; all other rates in proportion.",
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=1, help="Transfers of each size up to 64K; a row has their median.")
    ] = 1,
    repeat: Repeat = None,
    kernel: KernelOption = "host",
    seed: Seed = 1,
    baseline: Annotated[bool, typer.Option("--baseline/--no-baseline", hidden=True)] = True,
    json_file: JsonFile = None,
) -> None:
    """Transfer over 1 to 6 links at once, and compare with plain TCP.

    The table has goodput against that of one link, links that die, many connections and round
    trips.
    """
    from ri2n_lab.bench import parallel as bench
    from ri2n_lab.bench import parallel_plan as plan
    from ri2n_lab.bench.parallel_cells import parallel_cells
    from ri2n_lab.bench.vbft import rescaled

    virtual = kernel == "virtual"
    chosen = (
        split_list(parts, PARTS, "--parts")
        if parts
        else [part for part in PARTS if not virtual or part != "roundtrip"]
    )
    if virtual and "roundtrip" in chosen:
        raise BadInput("--parts roundtrip: not in virtual time, in which computing takes no time")
    parsed = find_topology(topology)
    settings = plan.ParallelSettings(
        topology=rescaled(parsed, link_mbps * 1_000_000) if link_mbps else parsed,
        links=links,
        sizes=plan.parse_sizes(sizes),
        streams=plan.parse_numbers(streams, "--streams", 1, MAX_LINKS)
        if streams
        else tuple(range(1, links + 1)),
        methods=tuple(split_list(methods, METHODS, "--methods")),
        parts=tuple(chosen),
        setups=tuple(split_list(setup, SETUPS, "--setup")),
        connections=tuple(split_list(connections, CONNECTIONS, "--connections")),
        faults=tuple(split_list(faults, FAULTS, "--faults")),
        fault_bytes=_one_size(plan.parse_sizes(fault_size, "--fault-size"), fault_size),
        mix_methods=tuple(split_list(mix_methods, MIX_METHODS, "--mix-methods")),
        shorts=plan.parse_numbers(short, "--short", 0, 8),
        window_s=window,
        round_trips=round_trips,
        repeat=repeat or (1 if virtual else 3),
        samples=samples,
        baseline=baseline,
    )
    plan.check(settings)
    measure(
        "parallel",
        json_file,
        settings.described(),
        plan.total_seconds(settings),
        runner(
            kernel,
            seed,
            [settings.topology],
            lambda files: parallel_cells(settings, files, seed),
            plan.summarized,
            lambda report, progress: bench.run_parallel(settings, report, progress),
            plan.compared,
        ),
        parallel_table,
    )


def parallel_table(report: Report) -> Table:
    """The table: a line for each kind of transfer, fault, mix and round trip."""
    table = Table(
        title="speedup: goodput against plain TCP over one link, same size and set-up; of TCPs: "
        "goodput against as many plain TCP connections",
        title_justify="left",
    )
    left = ("part", "method", "what")
    for heading in (*left, "size", "streams", "goodput", "speedup", "of TCPs", "more"):
        table.add_column(
            heading, justify="right" if heading in ("streams", "size", "goodput") else "left"
        )
    from ri2n_lab.bench.parallel_plan import FIGURES, size_text

    for line in report.document["summary"]:
        what = [line["connection"], line["setup"], line["fault"]]
        what += [None if line["short"] is None else f"{line['short']} of 8 short"]
        what += [
            None if line["awake"] is None else "CPUs awake" if line["awake"] else "CPUs as they are"
        ]
        table.add_row(
            *(line["part"], line["method"], " ".join(filter(None, what))),
            *(size_text(line["size_bytes"]), str(line["streams"])),
            table_rate(line.get("goodput_bps")),
            *(_figure(line, name) for name in ("speedup", "of_tcps")),
            line.get("why_not") or _more(line) + _others(line, FIGURES[line["part"]]),
        )
    return table


def _one_size(sizes: tuple[int, ...], text: str) -> int:
    if len(sizes) != 1:
        raise BadInput(f"--fault-size {text}: must be one size")
    return sizes[0]


def _figure(line: dict[str, Any], name: str) -> str:
    if line.get(name) is None:
        return "-"
    low, high = line[f"{name}_spread"]
    return f"{line[name]:.3f}" + ("" if low == high else f" ({low:.3f}..{high:.3f})")


def _others(line: dict[str, Any], figures: Sequence[Figure]) -> str:
    """The figures of its part that have no words of their own in `_more` and no column."""
    found = [
        f", {figure.title} {figure.summary_cell(line, [line])}"
        for figure in figures
        if figure.heading and figure.name not in WORDED and line.get(figure.name) is not None
    ]
    return "".join(found)


def _more(line: dict[str, Any]) -> str:
    """The last column: what only this kind of line has."""
    if line["part"] == "fault":
        # The worst of the repeats counts.
        how = "completed" if all(line["completed_spread"]) else "not completed"
        if line["intact"] is not None:
            how += ", intact" if all(line["intact_spread"]) else ", CORRUPT"
        stall = "" if line["stall_s"] is None else f", stall {line['stall_s']:.3f} s"
        return f"{how}{stall}, {line['total_s']:.2f} s in all"
    if line["part"] == "mix":
        return f"{line['served_per_min']:.0f} connections/min, {line['failed']:.0f} failed"
    if line["part"] == "roundtrip":
        over = "" if line["over_tcp_us"] is None else f", {line['over_tcp_us']:+.1f} us over TCP"
        return f"{line['rtt_us']:.1f} us{over}"
    return f"{line['time_ms']:.3f} ms"
