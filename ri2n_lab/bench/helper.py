# SPDX-License-Identifier: Apache-2.0
"""What the helper costs on this machine: packets a second in memory, and one TCP stream end to end.

End to end, every contender has a lab of two hosts whose links have no rate. Its row says what it
got beside a plain veth in the same run, for how many CPU seconds of the whole machine, and how long
the round trips of an idle ping were, with CPUs that sleep in between and with CPUs that are kept
awake. Other load on the machine is in these figures, so they are ratios of one run, not speeds.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ri2n_lab.bench.awake import cpus_awake
from ri2n_lab.bench.context import Report
from ri2n_lab.bench.figure import Figure, names
from ri2n_lab.bench.meters import Pings
from ri2n_lab.bench.peers import Peer, await_whole
from ri2n_lab.bench.peers.base import SERVER, pings
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.rows import missing_row, summarize
from ri2n_lab.bench.stream import CLIENT, topology_of
from ri2n_lab.bench.striped import Autonomous, await_striped, contender
from ri2n_lab.bench.unshaped import unshape
from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.helpers import find_program
from ri2n_lab.traffic.iperf import IperfRun
from ri2n_sdn.errors import NotAvailable

__all__ = [
    "CONTENDERS",
    "FIGURES",
    "MEMORY_FIGURES",
    "HelperSettings",
    "busy_s",
    "run_helper",
    "speed_rows",
    "summarized",
    "total_seconds",
]

CONTENDERS = {
    "veth": "one link, no RI2N: Linux alone",
    "mptcp": "Multipath TCP over all links",
    "autonomous": "the helper on the NICs, without Open vSwitch",
    "flow": "the bridges alone, flow mode",
    "packet": "the bridges and the helper",
}
"""{contender: what it is}, in the order in which they are measured end to end."""

SPEED_PROGRAM = "ri2n-reorder-speed"
SPEED_VARIABLE = "RI2N_REORDER_SPEED"
SPEED_LIMIT_S = 300.0
LINK_MBPS = 10_000
WARMUP_S = 1
# Below 10 ms ping does not sleep in between, and takes a CPU from what it measures.
PING_S, PING_INTERVAL_S = 5.0, 0.02
LAB_S = 10.0
GROUPS = ("part", "what", "userspace_tso")
OVER_FLOW = {"rtt_us": "rtt_over_flow_us", "rtt_awake_us": "rtt_awake_over_flow_us"}
MEMORY_FIGURES = ("packets_per_s",)
"""The figures that are measured in memory; all others are measured end to end."""

FIGURES = (
    Figure("packets_per_s", "packets/s", show=",.0f"),
    Figure("goodput_bps", "goodput", "Gbit/s", show=".2f", scale=1e-9),
    Figure("of_veth", "of a plain veth", show=".2f"),
    Figure("cpu_s_per_gbit", "CPU s per Gbit", show=".2f"),
    Figure("rtt_us", "round trip", "us"),
    Figure("rtt_over_flow_us", "over flow mode", "us"),
    Figure("rtt_awake_us", "CPUs awake: round trip", "us"),
    Figure("rtt_awake_over_flow_us", "CPUs awake: over flow mode", "us"),
)
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

Json = dict[str, Any]


@dataclass(frozen=True)
class HelperSettings:
    """What to run: `links` links between the two hosts, `seconds` of each stream."""

    what: tuple[str, ...] = tuple(CONTENDERS)
    links: int = 2
    seconds: int = 10
    repeat: int = 3

    @property
    def labs(self) -> list[tuple[str, bool | None]]:
        """(contender, userspace TSO) of each lab; None where there is no bridge."""
        return [
            (what, tso)
            for what in self.what
            for tso in ((False, True) if what in ("flow", "packet") else (None,))
        ]

    def described(self) -> Json:
        """As JSON."""
        return asdict(self)


def total_seconds(settings: HelperSettings) -> float:
    """About how long `run_helper` takes, for the progress bar."""
    return LAB_S + len(settings.labs) * (LAB_S + settings.repeat * _run_seconds(settings))


def _run_seconds(settings: HelperSettings) -> float:
    return settings.seconds + WARMUP_S + 1 + 2 * PING_S + 1.0


def summarized(rows: list[Json]) -> list[Json]:
    """The report's summary of these rows.

    Ratios are to the medians of the plain veth and of flow mode.
    """
    rows = [row for row in rows if row["part"] == "memory"] + beside(
        [row for row in rows if row["part"] != "memory"]
    )
    return summarize(rows, GROUPS, FIGURES)


def beside(rows: Iterable[Json]) -> list[Json]:
    """The rows with `of_veth` and, for packet mode, times over flow mode.

    None without anything to compare with.
    """
    rows = list(rows)

    def middle(figure: str, what: str, tso: bool | None) -> float | None:
        found = [row[figure] for row in rows if (row["what"], row["userspace_tso"]) == (what, tso)]
        known = [value for value in found if value is not None]
        return statistics.median(known) if known else None

    found = []
    for row in rows:
        veth_bps = middle("goodput_bps", "veth", None)
        share = (
            row["goodput_bps"] / veth_bps if veth_bps and row["goodput_bps"] is not None else None
        )
        made = {**row, "of_veth": None if share is None else round(share, 4)}
        for figure, added in OVER_FLOW.items():
            flow_us = middle(figure, "flow", row["userspace_tso"])
            known = row["what"] == "packet" and row[figure] is not None and flow_us is not None
            made[added] = round(row[figure] - flow_us, 1) if known else None
        found.append(made)
    return found


def run_helper(settings: HelperSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding a row to `report` after each run.

    Labs are removed also when it is interrupted.
    """
    progress.say("in memory")
    for row in _memory():
        report.add(row, row, summarized([*report.rows, row]))
    progress.done(LAB_S)
    for what, tso in settings.labs:
        label = what if tso is None else f"{what}, userspace TSO {'on' if tso else 'off'}"
        progress.say(f"{label}: building the lab")
        why_not = _why_not(what)
        if why_not is not None:
            row = missing_row(_key(what, tso), why_not, names(FIGURES))
            report.add(row, row, summarized([*report.rows, row]))
            progress.done(LAB_S + settings.repeat * _run_seconds(settings))
            continue
        _run_lab(what, tso, label, settings, report, progress)
    rows = report.rows
    report.replace(
        [row for row in rows if row["part"] == "memory"]
        + beside([row for row in rows if row["part"] != "memory"]),
        report.document["raw"],
        summarized(rows),
    )
    report.finish()


# ---- in memory


def speed_rows(output: str) -> list[Json]:
    """Rows from lines of JSON {"what": ..., "packets_per_s": ...} of the speed program.

    Other lines are ignored.
    """
    rows = []
    for line in output.splitlines():
        if line.startswith("{"):
            found = json.loads(line)
            row = {
                **_key(str(found["what"]), None, "memory"),
                "repeat": 1,
                **dict.fromkeys(names(FIGURES)),
            }
            rows.append({**row, "packets_per_s": round(float(found["packets_per_s"]))})
    return rows


def _memory() -> list[Json]:
    key = _key("scheduler and reorder buffer", None, "memory")
    program = _speed_program()
    if program is None:
        why_not = (
            f"no {SPEED_PROGRAM}: `cargo build --release --example speed` in reorder/ makes it"
        )
        return [missing_row(key, f"{why_not}, {SPEED_VARIABLE} can name it", names(FIGURES))]
    try:
        done = subprocess.run(
            [program], capture_output=True, text=True, timeout=SPEED_LIMIT_S, check=True
        )
        rows = speed_rows(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        return [
            missing_row(
                key, f"{SPEED_PROGRAM} failed: {' '.join(str(error).split())}", names(FIGURES)
            )
        ]
    return rows or [missing_row(key, f"{SPEED_PROGRAM} printed no figures", names(FIGURES))]


def _speed_program() -> str | None:
    """Named by RI2N_REORDER_SPEED, else beside the helper, else the checkout's built example."""
    named = os.environ.get(SPEED_VARIABLE)
    if named:
        return named
    example = (
        Path(__file__).resolve().parents[2]
        / "reorder"
        / "target"
        / "release"
        / "examples"
        / "speed"
    )
    places = [example]
    with suppress(NotAvailable):
        places.insert(0, find_program().with_name(SPEED_PROGRAM))
    return next(
        (str(place) for place in places if os.access(place, os.X_OK)), shutil.which(SPEED_PROGRAM)
    )


# ---- end to end


def _key(what: str, tso: bool | None, part: str = "end to end") -> Json:
    return {"part": part, "what": what, "userspace_tso": tso}


def _peer(what: str) -> Peer | None:
    """The peer or the lone helper that this contender is, if it is one."""
    return {"mptcp": contender("mptcp"), "autonomous": Autonomous("max_min")}.get(what)


def _why_not(what: str) -> str | None:
    peer = _peer(what)
    return (
        peer.lacks()
        if peer is not None
        else Autonomous("max_min").lacks()
        if what == "packet"
        else None
    )


def _run_lab(
    what: str,
    tso: bool | None,
    label: str,
    settings: HelperSettings,
    report: Report,
    progress: Progress,
) -> None:
    peer = _peer(what)
    count = 1 if what == "veth" else settings.links
    topology = topology_of(",".join([str(LINK_MBPS)] * count))
    software = peer.software if peer else "none" if what == "veth" else "ri2n"
    with Lab.create(
        topology, software=software, helpers=what == "packet", userspace_tso=bool(tso)
    ) as lab:
        unshape(lab, userspace_tso=bool(tso))
        if peer is not None:
            peer.set_up(lab)
            await_whole(peer, lab, [CLIENT], SERVER)
        elif software == "ri2n":
            start_and_wait(lab, "max_min")
            await_striped(lab, [CLIENT], SERVER)
        elif not pings(lab, CLIENT, lab.address(SERVER), count=3):
            raise NotAvailable(f"{label}: {SERVER} does not answer {CLIENT}")
        report.describe_lab(lab, label)
        progress.done(LAB_S)
        for repeat in range(1, settings.repeat + 1):
            progress.say(f"{label} {repeat}/{settings.repeat}")
            measured, raw = _measure(lab, settings, peer)
            row = {**_key(what, tso), "repeat": repeat, **dict.fromkeys(names(FIGURES)), **measured}
            report.add(row, {**row, **raw}, summarized([*report.rows, row]))
            progress.done(_run_seconds(settings))


def _measure(lab: Lab, settings: HelperSettings, peer: Peer | None) -> tuple[Json, Json]:
    address = peer.target(lab, CLIENT, SERVER) if peer else lab.address(SERVER)
    times_ms = _round_trips(lab, address)
    with cpus_awake() as awake:
        awake_ms = _round_trips(lab, address) if awake else []
    length_s = WARMUP_S + settings.seconds + 1
    prefix = peer.prefix if peer else ()
    run = IperfRun(
        lab,
        SERVER,
        [CLIENT],
        streams=1,
        seconds=length_s,
        prefix=prefix,
        addresses={CLIENT: address},
    )
    try:
        time.sleep(max(0.0, run.start_s + WARMUP_S - time.monotonic()))
        before_s = busy_s(Path("/proc/stat").read_text())
        time.sleep(max(0.0, run.start_s + WARMUP_S + settings.seconds - time.monotonic()))
        cpu_s = busy_s(Path("/proc/stat").read_text()) - before_s
        result = run.results(skip_s=WARMUP_S, window_s=settings.seconds)[CLIENT]
    finally:
        run.stop()
    gbit = result.goodput_bps * settings.seconds / 1e9
    row = {
        "goodput_bps": round(result.goodput_bps),
        "cpu_s_per_gbit": round(cpu_s / gbit, 4) if gbit else None,
        "rtt_us": round(statistics.median(times_ms) * 1000, 1),
        "rtt_awake_us": round(statistics.median(awake_ms) * 1000, 1) if awake_ms else None,
    }
    reports = {"client": result.client_report, "server": result.server_report}
    return row, {"iperf3": reports, "pings_ms": times_ms, "pings_awake_ms": awake_ms}


def _round_trips(lab: Lab, address: str) -> list[float]:
    pings_sent = Pings(lab, CLIENT, address, PING_INTERVAL_S)
    time.sleep(PING_S)  # the length of the measurement
    return pings_sent.times_ms()


def busy_s(stat: str) -> float:
    """CPU seconds of this machine since it began, without idle, waiting and stolen time.

    From /proc/stat.
    """
    user, nice, system, _idle, _wait, irq, soft_irq = map(int, stat.split("\n", 1)[0].split()[1:8])
    return (user + nice + system + irq + soft_irq) * TICK_S
