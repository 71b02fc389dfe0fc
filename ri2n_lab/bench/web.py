# SPDX-License-Identifier: Apache-2.0
"""What the web process and all who look at it cost the controller's control loop.

Hosts of a sandbox connect to one controller, and frames make pairs of them active, as in `ri2n
bench cycle`. Windows without and with the web process follow each other in turn: what else happens
on the machine changes slowly, so it is in both. Each window with it is compared with the mean of
the two windows beside it. The clients have the lowest priority, because in a cluster they run on
other machines; the web process has the usual one. As root, Open vSwitch and the controller have the
priorities of their services.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.cycle import START_S, Cycles
from ri2n_lab.bench.figure import Figure, Number
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.rows import summarize
from ri2n_lab.bench.spinners import cpu_seconds
from ri2n_lab.cluster.sandbox import execute, reserve_port
from ri2n_sdn.errors import BadInput, NotAvailable

__all__ = ["FIGURES", "WebCostSettings", "compared", "run_web", "summarized", "total_seconds"]

Json = dict[str, Any]
NONE, ALL = "none", "all"
GROUPS = ("watched", "hosts", "active_pairs")
# Against hanging for ever.
WAIT_S = 240.0
# Lists and pages are filled, and caches warm, before a window begins.
CALM_S = 2.0
WINDOW_MORE_S = 8.0

FIGURES = (
    Figure("rounds", "rounds", kind=int, required=True),
    Figure("cycle_s", "round", "ms", scale=1e3, show=".2f", kind=Number, required=True),
    Figure("cpu_s", "its CPU time", "ms", scale=1e3, show=".2f", kind=Number, required=True),
    Figure("cycle_growth", "growth of the round", "%", scale=1e2, show="+.1f", when_measured=True),
    Figure("cpu_growth", "of its CPU time", "%", scale=1e2, show="+.1f", when_measured=True),
    Figure("controller_cpu", "controller's CPU", "%", scale=1e2, show=".1f", kind=Number),
    Figure("web_cpu", "web process's CPU", "%", scale=1e2, show=".1f", when_measured=True),
    Figure("streams", "streams", kind=int | None, when_measured=True),
    Figure("sessions", "sessions", kind=int | None, when_measured=True),
)


@dataclass(frozen=True)
class WebCostSettings:
    """What is measured: a sandbox, who looks at it, and the windows.

    `seconds` is the length of a window; there are `repeat` windows with clients, and one more
    without.
    """

    hosts: int = 100
    pairs: int = 200
    streams: int = 50
    sessions: int = 20
    seconds: float = 20.0
    repeat: int = 5

    def described(self) -> Json:
        """The settings of a report."""
        return asdict(self)


def total_seconds(settings: WebCostSettings) -> float:
    """About how many seconds a run takes."""
    windows = 2 * settings.repeat + 1
    return START_S * settings.hosts / 32 + windows * (settings.seconds + WINDOW_MORE_S)


def summarized(rows: list[Json]) -> list[Json]:
    """The report's summary of these rows: a line without and one with the web process."""
    return summarize(rows, GROUPS, FIGURES)


def compared(rows: Sequence[Json]) -> list[Json]:
    """The rows, those with clients with their growth over the mean of the two rows beside them.

    Rows of both kinds follow each other, and both ends are without clients.
    """
    found = [dict(row) for row in rows]
    for index, row in enumerate(found):
        if row["watched"] == ALL and 0 < index < len(found) - 1:
            for figure, growth in (("cycle_s", "cycle_growth"), ("cpu_s", "cpu_growth")):
                beside = fmean((found[index - 1][figure], found[index + 1][figure]))
                row[growth] = row[figure] / beside - 1
    return found


def run_web(settings: WebCostSettings, report: Report, progress: Progress) -> None:
    """Measure all windows, and add a row for each.

    Raises BadInput for numbers that cannot be, NotAvailable when the hosts do not settle, the pairs
    do not become active, or the clients are not served.
    """
    most = settings.hosts * (settings.hosts - 1)
    if not 1 <= settings.pairs <= most:
        raise BadInput(f"--pairs {settings.pairs}: {settings.hosts} hosts have 1 to {most} pairs")
    progress.say(f"{settings.hosts} hosts")
    with Cycles(settings.hosts, as_services=True) as cycles:
        # The order of the windows is fixed, and nothing of ours draws a number.
        report.describe(
            datapath="dummy",
            seed=None,
            priorities=cycles.priorities(),
            settled={"settle_s": round(cycles.start_s, 2)},
        )
        progress.done(START_S * settings.hosts / 32)
        raw: list[Any] = []
        rows: list[Json] = []
        for number in range(2 * settings.repeat + 1):
            watched = ALL if number % 2 else NONE
            progress.say(f"window {number + 1} of {2 * settings.repeat + 1}, watched by {watched}")
            row, rounds = _window(cycles, settings, watched == ALL)
            rows.append({**row, "repeat": number // 2 + 1})
            raw.append(rounds)
            known = compared(rows)
            report.replace(known, raw, summarized(known))
            progress.done(settings.seconds + WINDOW_MORE_S)
    report.finish()


def _window(cycles: Cycles, settings: WebCostSettings, watched: bool) -> tuple[Json, list[Json]]:
    """One window's row, and the rounds that it was computed from."""
    with _clients(cycles, settings) if watched else _nobody() as (web, clients):
        cycles.steady(settings.pairs, CALM_S)
        cpu_s = [_cpu_s(pid) for pid in (cycles.controller_pid, web)]
        began_s = time.monotonic()
        rounds = cycles.steady(settings.pairs, settings.seconds)
        took_s = time.monotonic() - began_s
        spent_s = [
            _cpu_s(pid) - before
            for pid, before in zip((cycles.controller_pid, web), cpu_s, strict=True)
        ]
        said = clients() if clients is not None else {}
    row = {
        **dict.fromkeys(figure.name for figure in FIGURES),
        **{"watched": ALL if watched else NONE, "hosts": settings.hosts},
        **{"active_pairs": settings.pairs, "rounds": len(rounds)},
        "cycle_s": median(each["cycle_s"] for each in rounds),
        "cpu_s": median(each["cpu_s"] for each in rounds),
        "controller_cpu": spent_s[0] / took_s,
        "web_cpu": spent_s[1] / took_s if watched else None,
        "load_average": os.getloadavg()[0],
        **said,
    }
    return row, rounds


def _cpu_s(pid: int | None) -> float:
    return 0.0 if pid is None else cpu_seconds(Path(f"/proc/{pid}/stat").read_text())


@contextmanager
def _nobody() -> Iterator[tuple[None, None]]:
    yield None, None


@contextmanager
def _clients(cycles: Cycles, settings: WebCostSettings) -> Iterator[tuple[int, Any]]:
    """The web process's number, and what ends the clients and says what came in."""
    sandbox = cycles.sandbox
    log = sandbox.folder / "web.log"
    reserved, port = reserve_port()
    words = ["web", "--socket", str(sandbox.socket), "--listen", f"127.0.0.1:{port}"]
    web = execute("", words, log)
    clients: subprocess.Popen[str] | None = None
    try:
        url = f"http://127.0.0.1:{port}"
        _await_web(url, web, log)
        command = [sys.executable, "-m", "ri2n_lab.bench.web_clients", url]
        command += [str(settings.streams), str(settings.sessions)]
        with (sandbox.folder / "clients.log").open("w") as errors:
            clients = subprocess.Popen(
                ["nice", "-n", "19", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert clients.stdout is not None and clients.stdin is not None
        if clients.stdout.readline().strip() != "ready":
            said = (sandbox.folder / "clients.log").read_text()
            raise NotAvailable(f"the clients are not served: {said[-500:]}; {_end_of(log)}")

        def finish() -> Json:
            assert clients is not None
            said, _ = clients.communicate("", timeout=WAIT_S)
            try:
                found: Json = json.loads(said)
            except ValueError:
                why = (sandbox.folder / "clients.log").read_text()[-500:]
                raise NotAvailable(f"clients were cut off: {why}; {_end_of(log)}") from None
            if (found["streams"], found["sessions"]) != (settings.streams, settings.sessions):
                raise NotAvailable(f"not all clients were served to the end: {found}")
            return found

        yield web.pid, finish
    finally:
        if clients is not None and clients.poll() is None:
            clients.kill()
            clients.wait()
        web.terminate()
        try:
            web.wait(timeout=30)
        except subprocess.TimeoutExpired:
            web.kill()
            web.wait()
        reserved.close()


def _await_web(url: str, web: Any, log: Path) -> None:
    """Wait until the web process has its controller."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
                if b"\nri2n_up 1.0\n" in answer.read():
                    return
        except OSError:
            pass
        if web.poll() is not None or time.monotonic() > deadline_s:
            raise NotAvailable(f"ri2n web does not serve: {_end_of(log)}")
        time.sleep(0.1)


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-500:] if log.exists() else "it wrote nothing"
