# SPDX-License-Identifier: Apache-2.0
"""How long a fault on the path is felt by a numbered UDP stream, and by a bulk TCP stream.

Each fault is measured twice, each time on a whole fabric: once under the UDP stream (outage, lost
packets), once under TCP (longest time without a byte). The fault hits the NICs that the stream
really uses, as their counters show. `lasting`: packets were still lost when the stream ended, so
that outage and losses only say how long the stream was. Peers, the other ways to use several links,
each get a lab of their own; one that carries no UDP has TCP's figure only. In packet mode helpers
stripe ten times as many packets, and the death of a helper is a fault too (helper_faults.py). A
killed ovs-vswitchd is started again after 100 ms, and host-up after it, as their units do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from ri2n_lab.bench.context import Report
from ri2n_lab.bench.fast import FLOW_FAST, PACKET, PACKET_FAST, await_fast, parts
from ri2n_lab.bench.figure import Figure, Plot
from ri2n_lab.bench.helper_faults import DOWN_S, HELPER_FAULTS, HelperFault, traffic_again_ms
from ri2n_lab.bench.peers import Peer, await_whole
from ri2n_lab.bench.peers.base import SERVER
from ri2n_lab.bench.progress import Progress
from ri2n_lab.bench.ready import start_and_wait
from ri2n_lab.bench.rows import lasting_text, missing_row, summarize
from ri2n_lab.bench.striped import AUTONOMOUS, Autonomous, await_striped, contender
from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "FAULTS",
    "FIGURES",
    "HELPER_FAULTS",
    "OUTAGE_END_MS",
    "STALL_END_MS",
    "FailoverSettings",
    "packets_per_s",
    "run_failover",
    "summarized",
    "total_seconds",
]

SENDER, RECEIVER = "B", SERVER
SWITCH_KILLED = {"switch_killed": SENDER, "peer_switch_killed": RECEIVER}
"""{fault: the host whose ovs-vswitchd is killed}."""

FAULTS = ["nic_down", "peer_nic_down", "blackhole", "switch_down", *SWITCH_KILLED]
PACKETS_PER_S = {"flow": 1000, FLOW_FAST: 1000, PACKET: 10_000, PACKET_FAST: 10_000}
STREAM_S = 6.0
FAULT_AT_S = 2.0
LOOK_S = 0.3
# A tenth of the packets lost so near to the end: nothing has repaired the path by then.
LAST_S = 0.5
LEAST_BYTES = 60  # of a packet of the stream
TCP_PORT = 5700
GROUPS = ("fault", "strategy", "mode")
# About the longest outage and the longest stall that a run can show: the TCP receiver waits so much
# longer for a byte than the sender sends.
OUTAGE_END_MS = (STREAM_S - FAULT_AT_S) * 1000
STALL_END_MS = OUTAGE_END_MS + 4000
HELPER_FIGURES = ("traffic_again_ms", "striped_again_s")
FIGURES = (
    Figure(
        "outage_ms",
        "outage",
        "ms",
        plot=Plot(
            "outage",
            "Outage of a UDP stream",
            "ms, logarithmic",
            (OUTAGE_END_MS, "end of the run"),
            log=True,
            # A path that loses every second packet has short gaps, but no end.
            open_end=("lasting", "packets were still lost at the end of the run"),
        ),
    ),
    Figure("lost", "lost packets"),
    Figure("sent", "of", combine=None),
    Figure("duplicates", "came twice", kind=None, when_measured=True),
    Figure("out_of_order", "out of order", when_measured=True),
    Figure("lasting", "lost to the end", combine=None, show=lasting_text, kind=bool | None),
    Figure(
        "tcp_stall_ms",
        "TCP stall",
        "ms",
        plot=Plot(
            "tcp",
            "Longest stall of a TCP stream",
            "ms, logarithmic",
            (STALL_END_MS, "end of the run"),
            log=True,
        ),
    ),
    Figure("traffic_again_ms", "traffic again after", "ms", when_measured=True),
    Figure("striped_again_s", "striped again after", "s", show=".2f", when_measured=True),
)
UDP_FIGURES = (
    "outage_ms",
    "lost",
    "sent",
    "duplicates",
    "out_of_order",
    "lasting",
    "path",
    "sender_late_ms",
)
LAB_S = 10.0


@dataclass(frozen=True)
class FailoverSettings:
    """What to run; the topology must have hosts A and B with at least two common networks.

    `peers` are names of `ri2n_lab.bench.peers.PEERS`; `autonomous` are strategies that helpers
    follow without a controller. Peers have no helpers: faults of those are rows that say so.
    """

    topology: Topology
    faults: list[str]
    strategies: list[str]
    mode: str = "flow"
    repeat: int = 3
    peers: tuple[str, ...] = ()
    autonomous: tuple[str, ...] = ()

    @property
    def beside(self) -> list[str]:
        """Everything that has labs of its own: helpers without a controller, then peers."""
        return [*(f"{AUTONOMOUS}{name}" for name in self.autonomous), *self.peers]

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


@dataclass(frozen=True)
class _Bench:
    """A lab under test.

    `name` is that of a strategy or of the peer; `plain` is the topology before switches were
    stacked.
    """

    lab: Lab
    name: str
    plain: Topology
    pps: float
    peer: Peer | None = None

    def wait_whole(self) -> None:
        """Wait until nothing is left of a fault."""
        if self.peer is None:
            _wait_whole(self.lab)
            await_striped(self.lab, [SENDER], RECEIVER)
            await_fast(self.lab, [SENDER], RECEIVER, strategy=self.name)
            return
        self.peer.mend(self.lab)
        await_whole(self.peer, self.lab, [SENDER], RECEIVER)

    def address(self) -> str:
        """The address at which the sender finds the receiver."""
        return (
            self.peer.target(self.lab, SENDER, RECEIVER)
            if self.peer
            else self.lab.address(RECEIVER)
        )

    def helper_fault(self, fault: str) -> HelperFault | None:
        """The death of a helper, if the fault is one."""
        options = self.peer.options if isinstance(self.peer, Autonomous) else []
        return (
            HelperFault(self.lab, fault, SENDER, RECEIVER, options)
            if fault in HELPER_FAULTS
            else None
        )

    def break_path(self, fault: str, path: UsedPath) -> None:
        """Cause the fault of this kind that hits the path."""
        if (death := self.helper_fault(fault)) is not None:
            death.kill()
        elif fault in SWITCH_KILLED:
            self.lab.kill_switch(SWITCH_KILLED[fault])
        elif fault == "peer_nic_down":
            self.lab.fault(fault, host=RECEIVER, nic=path.peer)
        elif fault == "nic_down":
            self.lab.fault(fault, host=SENDER, nic=path.own)
        elif self.lab.topology == self.plain and fault == "switch_down":
            self.lab.fault(fault, switch=path.switch)
        elif self.lab.topology == self.plain:
            self.lab.fault(fault, host=SENDER, nic=path.own)
        else:
            # A switch with LACP answers it itself, whatever its ports may forward, so these links
            # lose every frame; and of stacked switches one fails, with the links that were plugged
            # into it.
            dead = [(SENDER, path.own)]
            if fault == "switch_down":
                dead = [(host, nic.name) for host, nic in self.plain.nics_on(path.switch)]
            for host, nic_name in dead:
                self.lab.fault("loss", host=host, nic=nic_name, loss=100.0)


def total_seconds(settings: FailoverSettings) -> float:
    """About how long `run_failover` takes, for the progress bar."""
    runs = len(settings.faults) * settings.repeat * _row_seconds()
    labs = len(settings.beside) + bool(settings.strategies)
    return LAB_S * labs + (len(settings.strategies) + len(settings.beside)) * runs


def _row_seconds() -> float:
    return 2 * (STREAM_S + 4)


def packets_per_s(mode: str) -> int:
    """How many UDP packets a second are sent."""
    return PACKETS_PER_S[mode]


def summarized(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The report's summary of these rows."""
    return summarize(rows, GROUPS, FIGURES)


def run_failover(settings: FailoverSettings, report: Report, progress: Progress) -> None:
    """Run everything, adding a row to `report` after each pair of runs.

    The lab is removed also when interrupted.
    """
    topology = settings.topology
    for host in (SENDER, RECEIVER):
        if host not in topology.managed_hosts():
            raise BadInput(f"topology {topology.name}: has no managed host {host}")
    common = [{nic.switch for nic in topology.hosts[host].nics} for host in (SENDER, RECEIVER)]
    if len(common[0] & common[1]) < 2:
        raise BadInput(
            f"topology {topology.name}: {SENDER} and {RECEIVER} need two common networks"
        )
    if settings.strategies:
        progress.say("building the lab")
        with Lab.create(topology, **parts(settings.mode)) as lab:
            start_and_wait(lab, settings.strategies[0])
            report.describe_lab(lab)
            progress.done(LAB_S)
            for strategy in settings.strategies:
                call(lab.controller_socket, "strategy", name=strategy)
                _add_rows(
                    _Bench(lab, strategy, topology, packets_per_s(settings.mode)),
                    settings,
                    report,
                    progress,
                )
    for name in settings.beside:
        _run_peer(contender(name), settings, report, progress)
    report.finish()


def _run_peer(peer: Peer, settings: FailoverSettings, report: Report, progress: Progress) -> None:
    topology = settings.topology
    why_not = peer.why_not(topology, RECEIVER, [SENDER]) or peer.lacks()
    if why_not is not None:
        progress.say(f"{peer.name}: {why_not}")
        progress.done(LAB_S + len(settings.faults) * settings.repeat * _row_seconds())
        for fault in settings.faults:
            _add_missing(peer, fault, why_not, settings, report)
        return
    progress.say(f"{peer.name}: building the lab")
    with Lab.create(peer.topology(topology), software=peer.software) as lab:
        peer.set_up(lab)
        await_whole(peer, lab, [SENDER], RECEIVER)
        report.describe_lab(lab, f"{topology.name} {peer.name}")
        progress.done(LAB_S)
        _add_rows(
            _Bench(lab, peer.name, topology, packets_per_s(settings.mode), peer),
            settings,
            report,
            progress,
        )


def _add_missing(
    peer: Peer, fault: str, why_not: str, settings: FailoverSettings, report: Report
) -> None:
    key = _key(fault, peer.name, settings, peer=_is_peer(peer))
    row = missing_row(key, why_not, (*UDP_FIGURES, "tcp_stall_ms", "tcp_path", *HELPER_FIGURES))
    report.add(row, key, summarized([*report.rows, row]))


def _is_peer(peer: Peer | None) -> bool:
    return peer is not None and not isinstance(peer, Autonomous)


def _add_rows(
    bench: _Bench, settings: FailoverSettings, report: Report, progress: Progress
) -> None:
    for fault in settings.faults:
        if bench.peer is not None and (lacks := _cannot_die(bench.peer, fault)):
            _add_missing(bench.peer, fault, lacks, settings, report)
            progress.done(settings.repeat * _row_seconds())
            continue
        for repeat in range(1, settings.repeat + 1):
            progress.say(f"{bench.name} {fault} {repeat}/{settings.repeat}")
            measured, raw = _one_row(bench, fault)
            key = _key(fault, bench.name, settings, peer=_is_peer(bench.peer))
            row = {**key, "repeat": repeat, **measured}
            report.add(row, {**key, "repeat": repeat, **raw}, summarized([*report.rows, row]))
            progress.done(_row_seconds())


def _cannot_die(peer: Peer, fault: str) -> str:
    """Why the peer lacks the process that the fault would kill; empty when it has it."""
    if fault in SWITCH_KILLED:
        return "it has no ovs-vswitchd with host-up behind it"
    return "it has no helper that could die" if fault in HELPER_FAULTS and _is_peer(peer) else ""


def _key(fault: str, name: str, settings: FailoverSettings, *, peer: bool) -> dict[str, Any]:
    return {"fault": fault, "strategy": name, "peer": peer, "mode": settings.mode}


def _one_row(bench: _Bench, fault: str) -> tuple[dict[str, Any], dict[str, Any]]:
    udp, raw = dict.fromkeys((*UDP_FIGURES, *HELPER_FIGURES)), dict[str, Any]()
    if bench.peer is None or bench.peer.udp:
        udp, raw = _udp_outage(bench, fault)
    bench.wait_whole()
    tcp, tcp_path = _tcp_stall(bench, fault)
    _undo(bench, fault)
    return {**udp, "tcp_stall_ms": tcp["longest_stall_ms"], "tcp_path": str(tcp_path)}, {
        **raw,
        "tcp": tcp,
    }


def _udp_outage(bench: _Bench, fault: str) -> tuple[dict[str, Any], dict[str, Any]]:
    bench.wait_whole()
    stream = Stream(bench.lab, SENDER, RECEIVER, pps=bench.pps, seconds=STREAM_S)
    path, fault_s = _break_path(bench, fault)
    death = bench.helper_fault(fault)
    striped_again_s = death.again(fault_s) if death else None
    result = stream.result()
    bench.lab.restore_all()
    row = {
        "outage_ms": round(max(0.0, result.longest_gap_ms - 1000 / bench.pps), 1),
        "lost": result.lost,
        "sent": result.sent,
        "duplicates": result.duplicates,
        "out_of_order": result.out_of_order,
        "lasting": result.lost_after(result.end_s - LAST_S) > LAST_S * bench.pps / 10,
        "path": str(path),
        "sender_late_ms": round(result.late_ms, 1),
        "traffic_again_ms": traffic_again_ms(result.gaps, fault_s, result.longest_gap_ms)
        if death
        else None,
        "striped_again_s": striped_again_s,
    }
    gaps = [gap for gap in result.gaps if gap["ms"] > 20]
    return row, {"fault_s": fault_s, "start_s": result.start_s, "end_s": result.end_s, "gaps": gaps}


def _undo(bench: _Bench, fault: str) -> None:
    """End the fault; start a helper that is gone."""
    bench.lab.restore_all()
    if (death := bench.helper_fault(fault)) is not None:
        death.again(time.monotonic() - DOWN_S)


def _tcp_stall(bench: _Bench, fault: str) -> tuple[dict[str, Any], UsedPath]:
    lab, prefix = bench.lab, bench.peer.prefix if bench.peer else ()
    module = [*prefix, sys.executable, "-m", "ri2n_lab.bench.tcp_stall"]
    port = ["--port", str(TCP_PORT)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    receiver = lab.popen(
        RECEIVER, [*module, "recv", *port, "--seconds", str(STREAM_S + 4)], **pipes
    )
    sender = None
    try:
        assert receiver.stdout is not None
        if not receiver.stdout.readline():
            raise NotAvailable(
                f"the TCP receiver did not start: {receiver.communicate()[1][-200:]}"
            )
        where = ["--address", bench.address(), *port, "--seconds", str(STREAM_S)]
        sender = lab.popen(SENDER, [*module, "send", *where])
        path, _ = _break_path(bench, fault)
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


def _break_path(bench: _Bench, fault: str) -> tuple[UsedPath, float]:
    """Wait for the stream's moment, see which NICs it uses, and break those.

    Returns when (CLOCK_MONOTONIC).
    """
    # The schedule of the experiment: the stream must be under way.
    time.sleep(FAULT_AT_S - LOOK_S)
    path = _used_path(bench)
    fault_s = time.monotonic()
    bench.break_path(fault, path)
    return path, fault_s


def _used_path(bench: _Bench) -> UsedPath:
    """The busiest NIC at each end; a peer may spread one stream over all."""
    lab = bench.lab
    # Not packets: one that a NIC is given to cut stands for many.
    before = (lab.nic_counters(SENDER, "tx_bytes"), lab.nic_counters(RECEIVER, "rx_bytes"))
    time.sleep(LOOK_S)
    after = (lab.nic_counters(SENDER, "tx_bytes"), lab.nic_counters(RECEIVER, "rx_bytes"))
    used = []
    for host, old, new in zip((SENDER, RECEIVER), before, after, strict=True):
        busiest = max(new, key=lambda nic: new[nic] - old[nic])
        if new[busiest] - old[busiest] < LOOK_S * bench.pps * LEAST_BYTES / 2 / len(new):
            raise NotAvailable(
                f"the stream from {SENDER} to {RECEIVER} is not seen on any NIC of {host}"
            )
        used.append(busiest)
    nics = {nic.name: nic.switch for nic in bench.plain.hosts[SENDER].nics}
    return UsedPath(used[0], used[1], nics[used[0]])


def _wait_whole(lab: Lab, timeout_s: float = 30.0) -> None:
    """Wait until the controller has settled and sees every NIC up and alive."""
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
            raise NotAvailable(
                f"still dead {timeout_s:g} s after the fault was undone: {', '.join(dead)}"
            )
        time.sleep(0.05)
