# SPDX-License-Identifier: Apache-2.0
"""What the commands of `ri2n bench` share: options, choice of the kernel, progress, report."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ri2n_sdn.cli.common import console, note, split_list, terminate_as_interrupt
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.errors import BadInput, NotAvailable

if TYPE_CHECKING:
    from ri2n_lab.bench.context import Report
    from ri2n_lab.bench.guests import Cell
    from ri2n_lab.bench.progress import Progress as BenchProgress
    from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "MAX_STREAMS",
    "PEER_NAMES",
    "Alone",
    "JsonFile",
    "KernelOption",
    "Peers",
    "Repeat",
    "Seed",
    "Strategies",
    "Strategy",
    "Streams",
    "contestants",
    "measure",
    "names",
    "runner",
    "stream_counts",
]

MAX_STREAMS = 128
# These are named here, too, so that `--help` does not load the benches; a test compares.
PEER_NAMES = ["lcb", "lacp_hash", "ovs_equal", "ovs_bond", "ecmp", "mptcp"]

JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Write rows, context and raw data to FILE; - for stdout."
    ),
]
Strategy = Annotated[str, typer.Option(help=f"One of {', '.join(STRATEGIES)}.")]
Strategies = Annotated[
    str, typer.Option(help=f"{', '.join(STRATEGIES)}, with commas; or all, or none.")
]
Alone = Annotated[
    str,
    typer.Option(
        "--autonomous",
        help="Helpers without a controller: strategies as above, with commas; or all.",
    ),
]
Peers = Annotated[
    str,
    typer.Option(
        help=f"What is measured beside them: {', '.join(PEER_NAMES)}, with commas; or all."
    ),
]
KernelOption = Annotated[
    str,
    typer.Option(
        "--kernel",
        help="host; uml: kernel datapath, in user-mode Linux; virtual: the same in virtual time.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=1, help="Decides all random numbers in virtual time; repeats take the next numbers."
    ),
]
Repeat = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Runs of each; the table shows medians. Default 3, in virtual time 1.",
        show_default=False,
    ),
]
Streams = Annotated[int, typer.Option(min=1, max=MAX_STREAMS, help="TCP streams per client.")]


def runner(
    kernel: str,
    seed: int,
    topologies: Sequence[Topology],
    cells: Callable[[dict[str, Path]], list[Cell]],
    summarize: Callable[[list[dict[str, Any]]], list[dict[str, Any]]],
    on_host: Callable[[Report, BenchProgress], None],
    together: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = list,
) -> Callable[[Report, BenchProgress], None]:
    """The function that runs a bench on `kernel`.

    On this machine's kernel ("host") it is `on_host`. Else it runs the bench's `cells` in guests:
    `cells` gets a file for each topology, by name, `summarize` makes the summary of the rows, and
    `together` completes the rows of all cells. Raises NotAvailable without root.
    """
    if kernel == "host":
        return on_host
    from ri2n_lab.bench.guests import run_cells, write_topology
    from ri2n_lab.guests.kernels import find_kernel

    image = find_kernel(kernel)
    if os.geteuid() != 0:
        raise NotAvailable("a guest needs root: use sudo")

    def run(report: Report, progress: BenchProgress) -> None:
        report.document["context"]["seed"] = seed if image.virtual else None
        with tempfile.TemporaryDirectory(prefix="ri2n-bench.") as folder:
            files = {
                topology.name: write_topology(
                    Path(folder), topology.name, topology.model_dump(mode="json")
                )
                for topology in topologies
            }
            run_cells(image, cells(files), report, progress, summarize, together)

    return run


def measure(
    kind: str,
    json_file: Path | None,
    settings: dict[str, Any],
    total_s: float,
    run: Callable[[Report, BenchProgress], None],
    table: Callable[[Report], RenderableType],
) -> None:
    """Run a bench with a progress bar, print its table and write its report.

    What was measured is printed and written also when the bench is interrupted. `json_file` is the
    file of the report, "-" for standard output; `total_s` is about how long the bench takes. Raises
    BadInput when the file cannot be written.
    """
    from ri2n_lab.bench.context import Report

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
    """The progress: a bar with the time left on a terminal, elsewhere a line per step on stderr."""
    from ri2n_lab.bench.progress import Progress as BenchProgress

    if not sys.stderr.isatty():
        printed: list[str] = []

        def line(text: str, over_s: float) -> None:
            if [text] != printed[-1:]:
                note(f"[{over_s:.0f} of about {total_s:.0f} s] {text}")
                printed.append(text)

        yield BenchProgress(line)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=total_s)
        yield BenchProgress(
            lambda text, over_s: bar.update(task, description=text, completed=over_s)
        )


def names(text: str, option: str) -> list[str]:
    """The names in a list with commas; BadInput when there is none."""
    listed = [name.strip() for name in text.split(",") if name.strip()]
    if not listed:
        raise BadInput(f"{option}: is empty")
    return listed


def contestants(strategies: str, peers: str, autonomous: str = "") -> dict[str, Any]:
    """What `--strategies`, `--peers` and `--autonomous` name, as fields of a bench's settings.

    Raises BadInput for an unknown name, and when nothing at all is named.
    """
    of_word = {"all": list(STRATEGIES), "none": []}.get(strategies.strip())
    own = split_list(strategies, STRATEGIES, "--strategies") if of_word is None else of_word
    peer_names, autonomous_names = list[str](), list[str]()
    if peers:
        every = peers.strip() == "all"
        peer_names = PEER_NAMES if every else split_list(peers, PEER_NAMES, "--peers")
    if autonomous:
        every = autonomous.strip() == "all"
        autonomous_names = (
            list(STRATEGIES) if every else split_list(autonomous, STRATEGIES, "--autonomous")
        )
    if not own and not peer_names and not autonomous_names:
        raise BadInput("--strategies none: name at least one of --peers")
    return {
        "strategies": own,
        "peers": tuple(peer_names),
        "autonomous": tuple(autonomous_names),
    }


def stream_counts(text: str) -> tuple[int, ...]:
    """The numbers of `--streams`, each once; BadInput for anything that is no such number."""
    counts = []
    for word in names(text, "--streams"):
        if not (word.isascii() and word.isdigit() and 1 <= int(word) <= MAX_STREAMS):
            raise BadInput(f"--streams {word}: must be a number from 1 to {MAX_STREAMS}")
        counts.append(int(word))
    return tuple(dict.fromkeys(counts))
