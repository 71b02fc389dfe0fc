# SPDX-License-Identifier: Apache-2.0
"""Run a bench in guests with another kernel, several at a time, and join their reports.

Each cell of a bench (one topology with all strategies, one peer, one fault) is a `ri2n bench` of
its own in a fresh guest, so that cells do not disturb each other and, in virtual time, every cell
is exactly repeatable from its seed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.progress import Progress
from ri2n_lab.guests.guest import SHARE, Guest
from ri2n_lab.guests.kernels import Kernel
from ri2n_sdn.errors import NotAvailable

__all__ = ["Cell", "run_cells", "write_topology"]

POLL_S = 0.2
TELL_EVERY_S = 5.0
ATTEMPTS = 2
# Real seconds that a cell may take: booting and building labs, and so much for each planned second.
LIMIT_S, LIMIT_PER_S = 300.0, 40.0
JSON_FILE = "report.json"

Json = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One `ri2n bench` in a guest of its own.

    `arguments` without `--json`, `overlay` is laid over each of its rows.
    """

    label: str
    arguments: tuple[str, ...]
    planned_s: float
    seed: int = 1
    overlay: Json = field(default_factory=dict)


@dataclass
class _Running:
    index: int
    guest: Guest
    worker: int


def run_cells(
    kernel: Kernel,
    cells: Sequence[Cell],
    report: Report,
    progress: Progress,
    summarize: Callable[[list[Json]], list[Json]],
    together: Callable[[list[Json]], list[Json]] = list,
) -> None:
    """Run all cells; `report` is complete after the last.

    In virtual time as many run at once as there are CPUs, else one. `together` gets the rows of all
    cells so far, and returns them with what one cell cannot know. A cell that fails is tried once
    more. Raises NotAvailable, when all others have run, with the first failure.
    """
    state = _State(kernel, cells, report, progress, summarize, together)
    workers = len(os.sched_getaffinity(0)) if kernel.virtual else 1
    waiting = [(index, 1) for index in range(len(cells))]
    attempts: dict[int, int] = {}
    running: list[_Running] = []
    with ExitStack() as guests:
        while waiting or running:
            for worker in sorted(set(range(workers)) - {entry.worker for entry in running}):
                if waiting:
                    index, attempts[index] = waiting.pop(0)
                    running.append(
                        _Running(
                            index,
                            guests.enter_context(_start(kernel, cells[index], worker)),
                            worker,
                        )
                    )
            time.sleep(POLL_S)
            for entry in list(running):
                try:
                    part = _result(entry.guest)
                except NotAvailable as error:
                    if attempts[entry.index] < ATTEMPTS:
                        waiting.append((entry.index, attempts[entry.index] + 1))
                    else:
                        state.failures.append(f"{cells[entry.index].label}: {error}")
                else:
                    if part is None:
                        continue
                    state.add(entry.index, part)
                running.remove(entry)
                entry.guest.end()
            state.tell(running)
    state.finish()


class _State:
    """What the cells have done so far, as one report and one line of progress."""

    def __init__(
        self,
        kernel: Kernel,
        cells: Sequence[Cell],
        report: Report,
        progress: Progress,
        summarize: Callable[[list[Json]], list[Json]],
        together: Callable[[list[Json]], list[Json]],
    ) -> None:
        self.failures: list[str] = []
        self._cells, self._report, self._progress, self._summarize = (
            cells,
            report,
            progress,
            summarize,
        )
        self._together = together
        self._parts: dict[int, Json] = {}
        self._started_s = self._told_s = time.monotonic()
        self._over_s = self._guest_s = 0.0
        self._context: Json = report.document["context"]
        self._context |= {"lab_kernel": kernel.name, "labs": {}, "guest_s": 0.0, "real_s": 0.0}
        progress.say(f"{len(cells)} guests to run on kernel {kernel.name}")

    def add(self, index: int, part: Json) -> None:
        """One cell's report: its rows go where they belong by the order of the cells."""
        self._parts[index] = part
        self._guest_s += part["guest_s"]
        context = part["context"]
        self._context["labs"] |= context.pop("labs", {})
        self._context["guest"] = context
        self._context["guest_s"] = round(self._guest_s, 1)
        self._context["real_s"] = round(time.monotonic() - self._started_s, 1)
        rows, raw = [], []
        for cell_index in sorted(self._parts):
            cell, found = self._cells[cell_index], self._parts[cell_index]
            overlay = {**cell.overlay, "seed": cell.seed}
            rows += [{**row, **(overlay if "why_not" not in row else {})} for row in found["rows"]]
            raw += found["raw"]
        rows = self._together(rows)
        self._report.replace(rows, raw, self._summarize(rows))
        self._told_s = 0.0

    def tell(self, running: Sequence[_Running]) -> None:
        """Show the line of progress, every few seconds and after each cell."""
        if time.monotonic() - self._told_s < TELL_EVERY_S:
            return
        self._told_s = time.monotonic()
        steps = {entry.index: _step(entry.guest) for entry in running}
        planned_s = sum(self._cells[index].planned_s for index in self._parts)
        planned_s += sum(
            min(over_s, self._cells[index].planned_s) for index, (over_s, _) in steps.items()
        )
        now = ", ".join(
            f"{self._cells[index].label} ({text})" for index, (_, text) in steps.items()
        )
        real_s = time.monotonic() - self._started_s
        text = (
            f"{len(self._parts)} of {len(self._cells)} guests, {self._guest_s:.0f} s of theirs "
            f"in {real_s:.0f} s"
        )
        self._progress.done(planned_s - self._over_s)
        self._progress.say(f"{text}; now {now}" if now else text)
        self._over_s = planned_s

    def finish(self) -> None:
        if self.failures:
            count = len(self.failures)
            raise NotAvailable(
                f"{count} of {len(self._cells)} guests failed; the first: {self.failures[0]}"
            )
        self._report.finish()


def _start(kernel: Kernel, cell: Cell, worker: int) -> Guest:
    argv = [
        sys.executable,
        "-m",
        "ri2n_sdn.cli.main",
        "bench",
        *cell.arguments,
        "--json",
        str(SHARE / JSON_FILE),
    ]
    limit_s = LIMIT_S + LIMIT_PER_S * cell.planned_s
    return Guest(kernel, argv, limit_s=limit_s, seed=cell.seed, cpu=worker)


def _result(guest: Guest) -> Json | None:
    """The report of a guest that has ended, None as long as it runs.

    Raises NotAvailable when it failed.
    """
    result = guest.poll()
    if result is None:
        return None
    if result.returncode:
        lines = [line for line in guest.stderr.splitlines() if line.strip()]
        raise NotAvailable(f"status {result.returncode}: {lines[-1] if lines else 'no word'}")
    part: Json = json.loads((guest.share / JSON_FILE).read_text())
    return {**part, "guest_s": result.guest_s}


def _step(guest: Guest) -> tuple[float, str]:
    """(planned seconds that are over, what it does now), from a guest's last progress line."""
    found = re.findall(r"^\[(\d+) of about \d+ s\] (.*)$", guest.stderr, re.MULTILINE)
    return (float(found[-1][0]), found[-1][1]) if found else (0.0, "starting")


def write_topology(folder: Path, name: str, document: Json) -> Path:
    """A topology as a file that guests can read; JSON is YAML."""
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(document))
    return path
