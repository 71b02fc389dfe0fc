# SPDX-License-Identifier: Apache-2.0
"""One transfer over several links, by `ri2n_parallel`, plain TCP, MPTCP and RI2N's trunk.

A transfer lasts from the first byte handed over (set-up excluded) or from the call to connect
(included) to the moment when the client has one byte back, which the receiving program sends once
it has the last one. A lab is built once for each kind of method; sizes and methods take turns in
it, so that what a machine does besides hits all alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.parallel_ends import EndSettings
from ri2n_lab.bench.parallel_faults import run_faults
from ri2n_lab.bench.parallel_lab import (
    CLIENT,
    Ends,
    limit_subflows,
    mptcp_lacks,
    numbered_lab,
    trunk_lab,
)
from ri2n_lab.bench.parallel_mix import run_mixes
from ri2n_lab.bench.parallel_plan import (
    LAB_S,
    TRUNK_LAB_S,
    TRUNKS,
    ParallelSettings,
    blank_row,
    check,
    compared,
    contestants,
    kinds,
    narrowed,
    one_link_bps,
    samples,
    size_text,
    summarized,
    transfer_seconds,
)
from ri2n_lab.bench.parallel_trips import run_round_trips
from ri2n_lab.bench.peers.base import SERVER
from ri2n_lab.bench.progress import Progress
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.helpers import find_program
from ri2n_sdn.errors import NotAvailable

__all__ = ["run_parallel"]

WARM_BYTES = 1 << 20
"""Bytes of each stream before a warm transfer, at least: slow start is over by then."""
TIMES = {
    ("fresh", "include"): "include_s",
    ("fresh", "early"): "early_s",
    ("fresh", "exclude"): "fresh_s",
    ("warm", "exclude"): "warm_s",
}
LIMIT_S, SLOWEST = 30.0, 20.0
"""A transfer may take so many seconds, and so many times what one link would need."""

Json = dict[str, Any]


def run_parallel(settings: ParallelSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding rows to `report` after each size.

    Labs are removed also when it is interrupted.
    """
    check(settings)
    parts = {
        "transfer": _run_transfers,
        "fault": run_faults,
        "mix": run_mixes,
        "roundtrip": run_round_trips,
    }
    for part, run in parts.items():
        if part in settings.parts:
            run(settings, report, progress)
    report.finish()


def _run_transfers(settings: ParallelSettings, report: Report, progress: Progress) -> None:
    topology = narrowed(settings.topology, settings.links, (SERVER, CLIENT))
    pairs = contestants(settings)
    plain = [pair for pair in pairs if pair[0] not in TRUNKS]
    if plain:
        progress.say("building the lab with one subnet per network")
        with numbered_lab(topology, report, "transfer") as (lab, ends):
            progress.done(LAB_S)
            _measure(lab, ends, plain, settings, report, progress)
    for method, streams in pairs:
        if method not in TRUNKS:
            continue
        mode = method.removeprefix("trunk_")
        if (why_not := _trunk_lacks(mode)) is not None:
            progress.done(TRUNK_LAB_S)
            for size in settings.sizes:
                _add(report, _missing(settings, method, streams, size, why_not))
            continue
        progress.say(f"building the lab with the trunk, {mode} mode")
        with trunk_lab(topology, mode, report, method) as (lab, ends):
            progress.done(TRUNK_LAB_S)
            _measure(lab, ends, [(method, streams)], settings, report, progress)


def _measure(
    lab: Lab,
    known: EndSettings,
    pairs: Sequence[tuple[str, int]],
    settings: ParallelSettings,
    report: Report,
    progress: Progress,
) -> None:
    with Ends(lab, known) as ends:
        for size in settings.sizes:
            rows: list[Json] = []
            for method, streams in pairs:
                if method == "mptcp" and (why_not := mptcp_lacks()) is not None:
                    rows += _missing(settings, method, streams, size, why_not)
            for repeat in range(1, settings.repeat + 1):
                for method, streams in pairs:
                    progress.say(f"{size_text(size)} {method} {streams} {repeat}/{settings.repeat}")
                    if method != "mptcp" or known.mptcp:
                        rows += _transfer(lab, ends, settings, method, streams, size, repeat)
                    progress.done(
                        transfer_seconds(settings, method, streams, size) / settings.repeat
                    )
            _add(report, rows)


def _transfer(
    lab: Lab,
    ends: Ends,
    settings: ParallelSettings,
    method: str,
    streams: int,
    size: int,
    repeat: int,
) -> list[Json]:
    """The rows of one connection: fresh with and without its set-up, warm, with early data."""
    if method == "mptcp":
        limit_subflows(lab, streams)
    links = settings.links if method in TRUNKS else streams
    warm_bytes = max(size, WARM_BYTES * links) if "warm" in settings.connections else 0
    limit_s = LIMIT_S + SLOWEST * max(size, warm_bytes) * 8 / one_link_bps(settings)
    plain = "tcp" if method in TRUNKS else method
    wanted = kinds(settings, method)
    every: dict[tuple[str, str], list[float]] = {kind: [] for kind in wanted}
    for _ in range(samples(settings, size)):
        found = ends.ask(
            limit_s, op="transfer", method=plain, streams=streams, size=size, warm_bytes=warm_bytes
        )
        found["include_s"] = found["connect_s"] + found["fresh_s"]
        if ("fresh", "early") in wanted:
            found |= ends.ask(limit_s, op="early", method=plain, streams=streams, size=size)
        for kind, values in every.items():
            values.append(found[TIMES[kind]])
    times = {kind: statistics.median(values) for kind, values in every.items()}
    return [
        blank_row(
            *("transfer", method, settings.links, streams, size),
            connection=connection,
            setup=setup,
            repeat=repeat,
            time_ms=round(times[connection, setup] * 1e3, 6),
            goodput_bps=round(size * 8 / times[connection, setup]),
        )
        for connection, setup in wanted
    ]


def _missing(
    settings: ParallelSettings, method: str, streams: int, size: int, why_not: str
) -> list[Json]:
    """The rows that say why there are no figures, one for each kind."""
    key = ("transfer", method, settings.links, streams, size)
    return [
        blank_row(*key, connection=connection, setup=setup, why_not=why_not)
        for connection, setup in kinds(settings, method)
    ]


def _trunk_lacks(mode: str) -> str | None:
    """Why the trunk cannot be measured in that mode: the helper is not built."""
    if mode == "packet":
        try:
            find_program()
        except NotAvailable as error:
            return str(error)
    return None


def _add(report: Report, rows: Sequence[Json]) -> None:
    """Add rows, with what all rows together tell, and their summary."""
    every = compared([*report.rows, *rows])
    report.replace(every, report.document["raw"], summarized(every))
