# SPDX-License-Identifier: Apache-2.0
"""Guests for `ri2n bench parallel`: for each kind of transfer, method under faults, and mix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ri2n_lab.bench.guests import Cell
from ri2n_lab.bench.parallel_plan import (
    FAULT_METHODS,
    ParallelSettings,
    contestants,
    mix_runs,
    size_text,
    total_seconds,
)

__all__ = ["parallel_cells"]


def parallel_cells(settings: ParallelSettings, files: Mapping[str, Path], seed: int) -> list[Cell]:
    """All guests in the order of the rows; speedups are filled in when plain TCP's rows are there.

    `files` are the topologies by name; repeat n has the seed `seed` + n - 1.
    """
    one = replace(settings, repeat=1, baseline=False)
    found: list[tuple[str, ParallelSettings]] = []
    if "transfer" in settings.parts:
        for method, streams in contestants(settings):
            alone = replace(one, parts=("transfer",), methods=(method,), streams=(streams,))
            found.append((f"{method} {streams}", alone))
    if "fault" in settings.parts:
        for method in FAULT_METHODS:
            if method in settings.methods:
                found.append(
                    (
                        f"faults {method}",
                        replace(one, parts=("fault",), methods=(method,), streams=(1,)),
                    )
                )
    if "mix" in settings.parts:
        for method, short in mix_runs(settings):
            alone = replace(
                one, parts=("mix",), mix_methods=(method,), shorts=(short,), streams=(1,)
            )
            found.append((f"mix {method} {short}", alone))
    if "roundtrip" in settings.parts:
        found.append(("round trips", replace(one, parts=("roundtrip",), streams=(1,))))
    path = str(files[settings.topology.name])
    return [
        Cell(
            label,
            _arguments(each, path),
            total_seconds(each),
            seed + number,
            {"repeat": number + 1},
        )
        for label, each in found
        for number in range(settings.repeat)
    ]


def _arguments(settings: ParallelSettings, topology: str) -> tuple[str, ...]:
    options: dict[str, object] = {
        "topology": topology,
        "links": settings.links,
        "parts": ",".join(settings.parts),
        "streams": ",".join(map(str, settings.streams)),
        "methods": ",".join(settings.methods),
    }
    if "transfer" in settings.parts:
        options["sizes"] = ",".join(map(size_text, settings.sizes))
        options |= {
            "setup": ",".join(settings.setups),
            "connections": ",".join(settings.connections),
        }
        options["samples"] = settings.samples
    if "fault" in settings.parts:
        options |= {
            "faults": ",".join(settings.faults),
            "fault-size": size_text(settings.fault_bytes),
        }
    if "mix" in settings.parts:
        options |= {
            "mix-methods": ",".join(settings.mix_methods),
            "short": ",".join(map(str, settings.shorts)),
        }
        options["window"] = settings.window_s
    if "roundtrip" in settings.parts:
        options["round-trips"] = settings.round_trips
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ("parallel", *words, "--repeat", "1", "--no-baseline")
