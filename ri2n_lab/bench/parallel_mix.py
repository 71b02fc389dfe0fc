# SPDX-License-Identifier: Apache-2.0
"""Many connections at once, as in figure 9 (a): for 56 KB, or for a thousand times that.

Goodput of all clients together, and connections served per minute, when the server's interfaces are
chosen by the server (`least_connections`), by the clients in turn, as from a name server, or not at
all.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.parallel_ends import EndSettings
from ri2n_lab.bench.parallel_lab import Ends, Program, numbered_lab, stop_all
from ri2n_lab.bench.parallel_mix_ends import MixSettings
from ri2n_lab.bench.parallel_plan import (
    LAB_S,
    MIX_LEAD_S,
    ParallelSettings,
    blank_row,
    compared,
    mix_runs,
    mix_seconds,
    narrowed,
    summarized,
)
from ri2n_lab.bench.peers.base import SERVER
from ri2n_lab.bench.progress import Progress
from ri2n_lab.cluster import Lab

__all__ = ["run_mixes"]

LEAD_S = 1.0  # from the word to start to the first connection
WARMUP_S = 2.0
MODULE = "ri2n_lab.bench.parallel_mix_ends"
START_S = 120.0  # many interpreters on few CPUs
END_S = 60.0

Json = dict[str, Any]


def run_mixes(settings: ParallelSettings, report: Report, progress: Progress) -> None:
    """A row for each method, mix and repeat."""
    topology = narrowed(settings.topology, settings.links, list(settings.topology.hosts))
    progress.say("mixes: building the lab")
    with (
        numbered_lab(topology, report, "mix") as (lab, known),
        Ends(lab, known, client=None) as ends,
    ):
        progress.done(LAB_S)
        for repeat in range(1, settings.repeat + 1):
            for method, short in mix_runs(settings):
                long = settings.processes - short
                progress.say(
                    f"{method}, {short} short and {long} long per client, "
                    f"{repeat}/{settings.repeat}"
                )
                ends.uneven()  # forget what was before
                row, raw = _one(lab, known, settings, method, short)
                row |= {"repeat": repeat, "uneven": ends.uneven()["mean"]}
                rows = compared([*report.rows, row])
                report.replace(rows, [*report.document["raw"], raw], summarized(rows))
                progress.done(mix_seconds(settings))


def _one(
    lab: Lab, known: EndSettings, settings: ParallelSettings, method: str, short: int
) -> tuple[Json, Json]:
    clients = [host for host in lab.topology.hosts if host != SERVER]
    # The k-th process of every client before the next of any, so that turns by number mix clients
    # and kinds.
    places = [
        (client, 1 if place < short else settings.times)
        for place in range(settings.processes)
        for client in clients
    ]
    programs: list[Program] = []
    try:
        for number, (client, times) in enumerate(places):
            wanted = MixSettings(
                *(known, method, number, settings.unit_bytes, times),
                warmup_s=WARMUP_S,
                window_s=settings.window_s,
            )
            programs.append(Program(lab, client, MODULE, json.dumps(asdict(wanted))))
        for program in programs:
            program.line(START_S)
        start_s = time.monotonic() + LEAD_S
        for program in programs:
            program.send(repr(start_s))
        found = [
            program.answer(LEAD_S + WARMUP_S + settings.window_s + END_S) for program in programs
        ]
    finally:
        stop_all(programs)
    row = blank_row(
        *("mix", method, settings.links, 1, settings.unit_bytes),
        short=short,
        processes=settings.processes * len(clients),
        goodput_bps=round(sum(each["bytes"] for each in found) * 8 / settings.window_s),
        served_per_min=round(sum(each["served"] for each in found) * 60 / settings.window_s, 1),
        failed=sum(each["failed"] for each in found),
    )
    processes = [
        {"client": client, "times": times, **each}
        for (client, times), each in zip(places, found, strict=True)
    ]
    return row, {"part": "mix", "method": method, "short": short, "processes": processes}


assert MIX_LEAD_S >= LEAD_S + WARMUP_S
