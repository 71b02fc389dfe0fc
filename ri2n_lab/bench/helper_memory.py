# SPDX-License-Identifier: Apache-2.0
"""How many packets a second the helper's scheduler and reorder buffer do in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from ri2n_lab.bench.figure import names
from ri2n_lab.bench.helper_plan import FIGURES, MEMORY, speed_rows
from ri2n_lab.bench.rows import missing_row
from ri2n_lab.cluster.helpers import find_program
from ri2n_sdn.errors import NotAvailable

__all__ = ["memory_rows"]

SPEED_PROGRAM = "ri2n-reorder-speed"
SPEED_VARIABLE = "RI2N_REORDER_SPEED"
SPEED_LIMIT_S = 300.0

Json = dict[str, Any]


def memory_rows() -> list[Json]:
    """A row for each figure of the speed program, or one that says why there is none."""
    program = _speed_program()
    if program is None:
        return _missing(
            f"no {SPEED_PROGRAM}: `cargo build --release -p ri2n-reorder --example speed` makes "
            f"it, {SPEED_VARIABLE} can name it"
        )
    try:
        done = subprocess.run(
            [program], capture_output=True, text=True, timeout=SPEED_LIMIT_S, check=True
        )
        rows = speed_rows(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        return _missing(f"{SPEED_PROGRAM} failed: {' '.join(str(error).split())}")
    return rows or _missing(f"{SPEED_PROGRAM} printed no figures")


def _missing(why_not: str) -> list[Json]:
    key = {"part": MEMORY, "what": "scheduler and reorder buffer", "datapath": None, "load": None}
    return [missing_row(key, why_not, names(FIGURES))]


def _speed_program() -> str | None:
    """Named by RI2N_REORDER_SPEED, else beside the helper, else the checkout's built example."""
    named = os.environ.get(SPEED_VARIABLE)
    if named:
        return named
    checkout = Path(__file__).resolve().parents[2]
    places = [checkout / "target" / "release" / "examples" / "speed"]
    with suppress(NotAvailable):
        places.insert(0, find_program().with_name(SPEED_PROGRAM))
    return next(
        (str(place) for place in places if os.access(place, os.X_OK)), shutil.which(SPEED_PROGRAM)
    )
