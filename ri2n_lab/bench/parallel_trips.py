# SPDX-License-Identifier: Apache-2.0
"""By how much a round trip of 1 KB is longer than with plain TCP, over links without a rate.

Both are measured by turns, on this machine.
"""

from __future__ import annotations

import statistics
from contextlib import nullcontext
from typing import Any

from ri2n_lab.bench.awake import cpus_awake
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.parallel_lab import CLIENT, Ends, numbered_lab
from ri2n_lab.bench.parallel_plan import (
    LAB_S,
    PING_S,
    ParallelSettings,
    blank_row,
    compared,
    narrowed,
    summarized,
)
from ri2n_lab.bench.peers.base import SERVER
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.unshaped import unshape

__all__ = ["figures", "run_round_trips"]

SIZE_BYTES = 1 << 10
LIMIT_S = 60.0
SKIP = 50  # the first ones are slower for both
PERCENTILE = 0.99

Json = dict[str, Any]


def figures(times_s: list[float]) -> Json:
    """Median and 99th percentile of round trips in us, without the first ones."""
    ordered = sorted(times_s[min(SKIP, len(times_s) // 10) :])
    return {
        "rtt_us": round(statistics.median(ordered) * 1e6, 2),
        "rtt_p99_us": round(
            ordered[min(len(ordered) - 1, int(len(ordered) * PERCENTILE))] * 1e6, 2
        ),
    }


def run_round_trips(settings: ParallelSettings, report: Report, progress: Progress) -> None:
    """Two rows for each repeat, plain TCP's and parallel's, with CPUs as they are and awake."""
    topology = narrowed(settings.topology, settings.links, (SERVER, CLIENT))
    progress.say("round trips: building the lab")
    with numbered_lab(topology, report, "roundtrip") as (lab, known):
        unshape(lab)
        with Ends(lab, known) as ends:
            progress.done(LAB_S)
            for repeat in range(1, settings.repeat + 1):
                for awake in (False, True):
                    progress.say(
                        f"round trips, CPUs {'awake' if awake else 'as they are'}, "
                        f"{repeat}/{settings.repeat}"
                    )
                    with cpus_awake() if awake else nullcontext(True) as possible:
                        if possible:
                            _add(report, settings, ends, repeat, awake=awake)
                    progress.done(PING_S)


def _add(
    report: Report, settings: ParallelSettings, ends: Ends, repeat: int, *, awake: bool
) -> None:
    request = {"streams": settings.links, "size": SIZE_BYTES, "count": settings.round_trips}
    found = ends.ask(LIMIT_S, op="roundtrip", **request)
    rows = [
        blank_row(
            *(
                "roundtrip",
                method,
                settings.links,
                1 if method == "tcp" else settings.links,
                SIZE_BYTES,
            ),
            awake=awake,
            repeat=repeat,
            **figures(found[method]),
        )
        for method in ("tcp", "parallel")
    ]
    every = compared([*report.rows, *rows])
    report.replace(every, report.document["raw"], summarized(every))
