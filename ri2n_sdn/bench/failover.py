"""How long a fault is felt: a numbered UDP stream and a bulk TCP stream between two hosts, one fault on their path.

Each fault is measured twice, each time on a whole fabric: once under the UDP stream (outage, lost packets), once
under TCP (longest time without a byte). The fault hits the NICs that the stream really uses, seen by their counters.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from ri2n_sdn.bench.context import Report
from ri2n_sdn.bench.progress import Progress
from ri2n_sdn.bench.ready import start_and_wait
from ri2n_sdn.bench.rows import summarize
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.lab import Lab
from ri2n_sdn.lab.traffic import Stream

__all__ = ["FAULTS", "FailoverSettings", "run_failover", "total_seconds"]

FAULTS = ["nic_down", "peer_nic_down", "blackhole", "switch_down"]
SENDER, RECEIVER = "B", "A"
PACKETS_PER_S = 1000
STREAM_S = 6.0
FAULT_AT_S = 2.0
LOOK_S = 0.3
TCP_PORT = 5700
FIGURES = ("outage_ms", "lost", "tcp_stall_ms")
LAB_S = 10.0


@dataclass(frozen=True)
class FailoverSettings:
    """What to run; the topology must have hosts A and B with at least two common networks."""

    topology: Topology
    faults: list[str]
    strategy: str = "max_min"
    mode: str = "flow"
    repeat: int = 3

    def described(self) -> dict[str, Any]:
        """As JSON, with the topology whole."""
        return {**asdict(self), "topology": self.topology.model_dump(mode="json")}


@dataclass(frozen=True)
class UsedPath:
    """The NICs at both ends that a stream was seen on, and the switch between them."""

    own: str
    peer: str
    switch: str

    def __str__(self) -> str:
        return f"{SENDER}:{self.own} -> {self.switch} -> {RECEIVER}:{self.peer}"


def total_seconds(settings: FailoverSettings) -> float:
    """About how long `run_failover` takes, for the progress bar."""
    return LAB_S + len(settings.faults) * settings.repeat * 2 * (STREAM_S + 4)


def run_failover(settings: FailoverSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding a row to `report` after each pair of runs; the lab is removed also when interrupted."""
    topology = settings.topology
    for host in (SENDER, RECEIVER):
        if host not in topology.managed_hosts():
            raise BadInput(f"topology {topology.name}: has no managed host {host}")
    common = [{nic.switch for nic in topology.hosts[host].nics} for host in (SENDER, RECEIVER)]
    if len(common[0] & common[1]) < 2:
        raise BadInput(f"topology {topology.name}: {SENDER} and {RECEIVER} need two common networks")
    progress.say("building the lab")
    with Lab.create(topology) as lab:
        start_and_wait(lab, settings.strategy)
        report.describe_lab(lab)
        progress.done(LAB_S)
        for fault in settings.faults:
            for repeat in range(1, settings.repeat + 1):
                progress.say(f"{fault} {repeat}/{settings.repeat}")
                row, raw = _one_row(lab, fault)
                key = {"fault": fault, "mode": settings.mode, "repeat": repeat}
                row = {**key, **row}
                report.add(row, {**key, **raw}, summarize([*report.rows, row], ("fault", "mode"), FIGURES))
                progress.done(2 * (STREAM_S + 4))
    report.finish()


def _one_row(lab: Lab, fault: str) -> tuple[dict[str, Any], dict[str, Any]]:
    _wait_whole(lab)
    stream = Stream(lab, SENDER, RECEIVER, pps=PACKETS_PER_S, seconds=STREAM_S)
    path, fault_s = _break_path(lab, fault)
    result = stream.result()
    lab.restore_all()
    _wait_whole(lab)
    tcp, tcp_path = _tcp_stall(lab, fault)
    lab.restore_all()
    row = {
        "outage_ms": round(max(0.0, result.longest_gap_ms - 1000 / PACKETS_PER_S), 1),
        "lost": result.lost,
        "sent": result.sent,
        "duplicates": result.duplicates,
        "out_of_order": result.out_of_order,
        "tcp_stall_ms": tcp["longest_stall_ms"],
        "path": str(path),
        "tcp_path": str(tcp_path),
        "sender_late_ms": round(result.late_ms, 1),
    }
    gaps = [gap for gap in result.gaps if gap["ms"] > 20]
    return row, {"fault_s": fault_s, "start_s": result.start_s, "end_s": result.end_s, "gaps": gaps, "tcp": tcp}


def _tcp_stall(lab: Lab, fault: str) -> tuple[dict[str, Any], UsedPath]:
    module = [sys.executable, "-m", "ri2n_sdn.bench.tcp_stall"]
    port = ["--port", str(TCP_PORT)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    receiver = lab.popen(RECEIVER, [*module, "recv", *port, "--seconds", str(STREAM_S + 4)], **pipes)
    sender = None
    try:
        assert receiver.stdout is not None
        if not receiver.stdout.readline():
            raise NotAvailable(f"the TCP receiver did not start: {receiver.communicate()[1][-200:]}")
        where = ["--address", lab.address(RECEIVER), *port, "--seconds", str(STREAM_S)]
        sender = lab.popen(SENDER, [*module, "send", *where])
        path, _ = _break_path(lab, fault)
        output, errors = receiver.communicate(timeout=STREAM_S + 15)
    finally:
        for process in (sender, receiver):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
    try:
        found: dict[str, Any] = json.loads(output)
    except ValueError:
        raise NotAvailable(f"the TCP receiver failed: {' '.join(errors.split())[-200:]}") from None
    return found, path


def _break_path(lab: Lab, fault: str) -> tuple[UsedPath, float]:
    """Wait for the stream's moment, see which NICs it uses, and break those; returns when (CLOCK_MONOTONIC)."""
    time.sleep(FAULT_AT_S - LOOK_S)  # the schedule of the experiment: the stream must be under way
    path = _used_path(lab)
    fault_s = time.monotonic()
    if fault == "switch_down":
        lab.fault(fault, switch=path.switch)
    elif fault == "peer_nic_down":
        lab.fault(fault, host=RECEIVER, nic=path.peer)
    else:
        lab.fault(fault, host=SENDER, nic=path.own)
    return path, fault_s


def _used_path(lab: Lab) -> UsedPath:
    before = (_packets(lab, SENDER, "tx"), _packets(lab, RECEIVER, "rx"))
    time.sleep(LOOK_S)
    after = (_packets(lab, SENDER, "tx"), _packets(lab, RECEIVER, "rx"))
    used = []
    for host, old, new in zip((SENDER, RECEIVER), before, after, strict=True):
        busiest = max(new, key=lambda nic: new[nic] - old[nic])
        if new[busiest] - old[busiest] < LOOK_S * PACKETS_PER_S / 2:
            raise NotAvailable(f"the stream from {SENDER} to {RECEIVER} is not seen on any NIC of {host}")
        used.append(busiest)
    nics = {nic.name: nic.switch for nic in lab.topology.hosts[SENDER].nics}
    return UsedPath(used[0], used[1], nics[used[0]])


def _packets(lab: Lab, host: str, way: str) -> dict[str, int]:
    names = [nic.name for nic in lab.topology.hosts[host].nics]
    files = [f"/sys/class/net/{name}/statistics/{way}_packets" for name in names]
    counts = lab.exec(host, ["cat", *files]).stdout.split()
    return dict(zip(names, map(int, counts), strict=True))


def _wait_whole(lab: Lab, timeout_s: float = 30.0) -> None:
    """Until the controller has settled and sees every NIC up and alive."""
    deadline = time.monotonic() + timeout_s
    while True:
        status = lab.wait_ready(timeout_s)
        dead = [
            f"{host['name']}:{nic['name']}"
            for host in status["hosts"]
            for nic in host["nics"]
            if not (nic["up"] and nic["alive"])
        ]
        if not dead:
            return
        if time.monotonic() > deadline:
            raise NotAvailable(f"still dead {timeout_s:g} s after the fault was undone: {', '.join(dead)}")
        time.sleep(0.05)
