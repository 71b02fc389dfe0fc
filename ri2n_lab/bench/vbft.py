# SPDX-License-Identifier: Apache-2.0
"""VLAN fat trees beside one switch for all: what hosts get by bisection, all-to-all, CG and shifts.

By TCP, UDP and MPI. One lab per topology, path table and mode; in it every pattern, every engine.
What counts is what receivers got in one window, the same for all of them, against what they get on
`flat`, where all hosts are on one switch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fast import await_all_fast, parts
from ri2n_lab.bench.meters import switch_drops
from ri2n_lab.bench.patterns import PATTERNS, Pair, pattern_bound, phases
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.rows import summarize
from ri2n_lab.bench.vbft_rows import (
    FIGURES,
    FLAT,
    GROUPS,
    SMOOTH_S,
    UDP_SMOOTH_S,
    compared,
    has_choice,
    vbft_row,
)
from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.bulk import BulkRun, PhaseResult
from ri2n_lab.traffic.flooding import flooded_frames
from ri2n_lab.traffic.iperf import NotTogether
from ri2n_lab.traffic.iperf_pairs import IperfPairs
from ri2n_lab.traffic.mpi import MpiRun, check_mpi
from ri2n_sdn.client import call
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "ENGINES",
    "TABLES",
    "VbftSettings",
    "check",
    "labs",
    "rescaled",
    "run_vbft",
    "summarized",
    "total_seconds",
    "with_flat",
]

Json = dict[str, Any]

ENGINES = ("tcp", "udp", "iperf3", "mpi")
"""What sends: tcp and udp are `ri2n_lab.traffic.bulk`, mpi `ri2n_lab.traffic.mpi_patterns`."""
UDP_SHARE = 0.9
"""Of a sender's NICs.

What TCP needs to find its rate is not in these figures, so they tell when paths had settled.
"""
STREAM_ENGINES = ("tcp", "iperf3")
IPERF_PATTERNS = ("bisection", "cg")
"""Patterns that iperf3 can send.

It needs two processes for each pair: those of 240 pairs, or of 15 phases, are too many for the CPUs
of a machine.
"""
TABLES = ("cyclic", "spread", "adaptive")
STRATEGY = "max_min"
PROGRAM = Path(__file__).parents[1] / "traffic" / "mpi_patterns.py"
# Each of a shift's many phases has a warm-up, and a window that is a third of other patterns'.
SHIFT_WARMUP_S, SHIFT_PART = 1.0, 3
# A queue that holds fewer frames would make TCP lose what it need not lose.
MIN_FRAMES, FRAME_BYTES = 20, 1514
# Clients of iperf3 that do not begin together are told to begin again.
ATTEMPTS = 4
LAB_S = 25.0
READY_S = 120.0
# Before and after a run: processes start, counters are read.
EDGES_S = 5.0
MPI_START_S, MPI_LIMIT_S = 6.0, 90.0


@dataclass(frozen=True)
class VbftSettings:
    """What to run; times in seconds.

    `topologies` are at the rates that are to be measured, `flat` among them.
    """

    topologies: list[Topology]
    patterns: tuple[str, ...] = PATTERNS
    tables: tuple[str, ...] = TABLES
    modes: tuple[str, ...] = ("flow",)
    engines: tuple[str, ...] = ("tcp",)
    seconds: int = 10
    warmup: int = 3
    streams: int = 1
    repeat: int = 3

    def described(self) -> Json:
        """As JSON, with the topologies whole: a file may change later."""
        return {
            **asdict(self),
            "topologies": [topology.model_dump(mode="json") for topology in self.topologies],
        }

    def times(self, pattern: str) -> tuple[float, float]:
        """(warm-up, window) of each phase of a pattern."""
        if pattern == "shift":
            return min(SHIFT_WARMUP_S, float(self.warmup)), max(1.0, self.seconds / SHIFT_PART)
        return float(self.warmup), float(self.seconds)


def with_flat(topologies: Sequence[Topology]) -> list[Topology]:
    """`topologies` with `flat` as the first: the given one, else the same hosts on one switch.

    Raises BadInput when a topology has other hosts than flat: their figures could not be compared.
    """
    given = next((topology for topology in topologies if topology.name == FLAT), None)
    flat = given or _flat_of(topologies[0])
    found = [flat, *(topology for topology in topologies if topology.name != FLAT)]
    for topology in found:
        if topology.managed_hosts() != flat.managed_hosts():
            raise BadInput(f"topology {topology.name}: its hosts are others than those of {FLAT}")
    return found


def rescaled(topology: Topology, rate_bps: int) -> Topology:
    """`topology` with the fastest NIC at `rate_bps`; all NICs, cables and queues in proportion.

    So a queue holds the same time. With a queue of 1,000 frames at a fifth of the rate,
    acknowledgements would wait 0.6 s behind the data of the other direction, and who gets how much
    would be a matter of who began first.
    """
    document = topology.model_dump(mode="json")
    ends = [nic for host in document["hosts"].values() for nic in host["nics"]]
    fastest = max(nic["rate_bps"] for nic in ends)
    ends += [link for switch in document["switches"].values() for link in switch["links"]]
    for end in ends:
        end["rate_bps"] = max(1, round(end["rate_bps"] * rate_bps / fastest))
        if "queue_frames" in end:
            end["queue_frames"] = max(
                MIN_FRAMES, round(end["queue_frames"] * min(1.0, rate_bps / fastest))
            )
    for switch in document["switches"].values():
        scaled = round(switch["port_buffer_bytes"] * min(1.0, rate_bps / fastest))
        switch["port_buffer_bytes"] = max(MIN_FRAMES * FRAME_BYTES, scaled)
    return Topology.model_validate(document)


def labs(settings: VbftSettings) -> list[tuple[Topology, str | None, str]]:
    """(topology, path table, mode) of every lab.

    Where there is only one tree all tables are the same one, None.
    """
    return [
        (topology, table, mode)
        for topology in settings.topologies
        for table in (settings.tables if has_choice(topology) else (None,))
        for mode in settings.modes
    ]


def total_seconds(settings: VbftSettings) -> float:
    """About how long `run_vbft` takes, for the progress bar."""
    runs = sum(
        _run_seconds(settings, pattern, engine)
        for pattern in settings.patterns
        for engine in settings.engines
    )
    return len(labs(settings)) * (LAB_S + settings.repeat * runs)


def summarized(rows: list[Json]) -> list[Json]:
    """The report's summary of these rows."""
    return summarize(rows, GROUPS, FIGURES)


def check(settings: VbftSettings) -> None:
    """BadInput for patterns that the topologies or the engines cannot have."""
    for topology in settings.topologies:
        for pattern in settings.patterns:
            phases(pattern, topology.managed_hosts())
    if "iperf3" in settings.engines and not set(settings.patterns) <= set(IPERF_PATTERNS):
        raise BadInput(
            f"--engine iperf3: only with --pattern {','.join(IPERF_PATTERNS)}; the others need "
            "--engine tcp"
        )


def run_vbft(settings: VbftSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding a row to `report` after each run.

    Labs are removed also when it is interrupted.
    """
    check(settings)  # before the first lab is built
    if "mpi" in settings.engines:
        check_mpi()
    for topology, table, mode in labs(settings):
        name = " ".join(filter(None, (topology.name, table, mode)))
        progress.say(f"{name}: building the lab")
        spec = topology.vlans.model_copy(update={"table": table or "cyclic"})
        with Lab.create(topology.model_copy(update={"vlans": spec}), **parts(mode)) as lab:
            start_and_wait(lab, STRATEGY, READY_S)
            await_all_fast(lab)
            report.describe_lab(lab, name)
            progress.done(LAB_S)
            for pattern in settings.patterns:
                for engine in settings.engines:
                    for repeat in range(1, settings.repeat + 1):
                        progress.say(f"{name} {pattern} {engine} {repeat}/{settings.repeat}")
                        lab.wait_ready(READY_S)
                        key: Json = {
                            "topology": topology.name,
                            "pattern": pattern,
                            "table": table,
                            "mode": mode,
                        }
                        key |= {
                            "engine": engine,
                            "streams": settings.streams if engine in STREAM_ENGINES else None,
                        }
                        row, raw = _run(lab, topology, settings, pattern, engine)
                        progress.done(_run_seconds(settings, pattern, engine))
                        rows = compared([*report.rows, {**key, "repeat": repeat, **row}])
                        raws = [*report.document["raw"], {**key, "repeat": repeat, **raw}]
                        report.replace(rows, raws, summarized(rows))
    report.finish()


def _run(
    lab: Lab, topology: Topology, settings: VbftSettings, pattern: str, engine: str
) -> tuple[Json, Json]:
    hosts = topology.managed_hosts()
    schedule = phases(pattern, hosts)
    warmup_s, window_s = settings.times(pattern)
    flooded, drops = sum(flooded_frames(lab).values()), switch_drops(lab)
    if engine == "mpi":
        results = _mpi(lab, hosts, schedule, warmup_s, window_s, collective=pattern == "alltoall")
    elif engine == "iperf3":
        results = [_iperf(lab, schedule[0], settings, pattern)]
    else:
        rates = {
            name: round(UDP_SHARE * sum(nic.rate_bps for nic in topology.hosts[name].nics))
            for name in hosts
        }
        run = BulkRun(
            lab,
            hosts,
            schedule,
            warmup_s=warmup_s,
            window_s=window_s,
            streams=settings.streams,
            datagram_bps=rates if engine == "udp" else None,
        )
        try:
            results = run.results()
        finally:
            run.stop()
    row = vbft_row(
        results,
        pattern_bound(topology, pattern),
        collective=engine == "mpi" and pattern == "alltoall",
        warmup_s=warmup_s,
        smooth_s=UDP_SMOOTH_S if engine == "udp" else SMOOTH_S,
        hbspan_s=float(call(lab.controller_socket, "status")["hbspan_s"]),
    )
    row |= {
        "flooded": sum(flooded_frames(lab).values()) - flooded,
        "switch_drops": switch_drops(lab) - drops,
    }
    received = [
        {f"{sender}>{receiver}": count for (sender, receiver), count in each.received.items()}
        for each in results
    ]
    return row, {
        "window_s": window_s,
        "received_bytes": received,
        "bins_bytes": [each.bins for each in results],
    }


def _iperf(lab: Lab, pairs: list[Pair], settings: VbftSettings, pattern: str) -> PhaseResult:
    warmup_s, window_s = settings.times(pattern)
    for attempts_left in reversed(range(ATTEMPTS)):
        run = IperfPairs(lab, pairs, warmup_s=warmup_s, window_s=window_s, streams=settings.streams)
        try:
            return run.result()
        except NotTogether:
            if not attempts_left:
                raise
        finally:
            run.stop()
    raise AssertionError("the last attempt returns or raises")


def _mpi(
    lab: Lab,
    hosts: list[str],
    schedule: list[list[Pair]],
    warmup_s: float,
    window_s: float,
    *,
    collective: bool,
) -> list[PhaseResult]:
    """Run the MPI program.

    Raises NotAvailable when it fails or a message had other bytes than were sent.
    """
    rank = {host: number for number, host in enumerate(hosts)}
    document = {
        "collective": collective,
        "phases": [
            [[rank[sender], rank[receiver]] for sender, receiver in pairs] for pairs in schedule
        ],
        "warmup_s": warmup_s,
        "window_s": window_s,
    }
    run = MpiRun(lab, hosts, PROGRAM, [json.dumps(document)])
    try:
        found = json.loads(run.output(MPI_LIMIT_S + 3 * len(schedule) * (warmup_s + window_s)))
    finally:
        run.stop()
    wrong = sum(phase["wrong"] for phase in found)
    if wrong:
        raise NotAvailable(f"{wrong} MPI messages came with other bytes than were sent")
    return [
        PhaseResult(
            window_s,
            {
                (hosts[sender], hosts[receiver]): count
                for sender, receiver, count in phase["received"]
            },
        )
        for phase in found
    ]


def _run_seconds(settings: VbftSettings, pattern: str, engine: str) -> float:
    """The planned seconds of a run; the first topology says how many phases it has."""
    warmup_s, window_s = settings.times(pattern)
    count = len(phases(pattern, settings.topologies[0].managed_hosts()))
    more_s = MPI_START_S if engine == "mpi" else 0.0
    return math.ceil(EDGES_S + more_s + count * (warmup_s + window_s + 0.7))


def _flat_of(topology: Topology) -> Topology:
    document = topology.model_dump(mode="json")
    for host in document["hosts"].values():
        for nic in host["nics"]:
            nic |= {"switch": "sw1", "port": None}
    document |= {"name": FLAT, "description": "all hosts on one switch", "switches": {"sw1": {}}}
    return Topology.model_validate(document)
