# SPDX-License-Identifier: Apache-2.0
"""Runs of a lab in a guest with virtual time: `python -m tests.baseline.virtual_runs NAME`.

Each prints what was seen. The lab's switches and hosts use Open vSwitch's netdev datapath: which
way a flow goes follows from its addresses and ports alone there, and not from a random number.
Times are rounded, since a program that reads the clock once more moves it by 256 ns.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream, StreamResult
from ri2n_sdn.client import call
from tests.baseline.openflow_trace import Recording, counted, recorded, rows_hash
from tests.topology_text import parse_topology

__all__ = ["RUNS"]

SITE = """
name: base
switches: {s0: {}, s1: {}}
hosts:
  A: {nics: [{name: eth0, switch: s0, rate_bps: 10000000},
             {name: eth1, switch: s1, rate_bps: 10000000}]}
  B: {nics: [{name: eth0, switch: s0, rate_bps: 10000000}]}
  C: {nics: [{name: eth0, switch: s0, rate_bps: 10000000},
             {name: eth1, switch: s1, rate_bps: 10000000}]}
"""
PPS, PORTS = 400.0, range(6001, 6017)
START = "until it is ready"
AT_ANY_TIME = ("echo reply", "echo request", "packet in", "packet out")
"""How many of these there are until a controller is ready depends on microseconds."""

STRATEGIES = ("round_robin", "ri2n_plus", "ri2n_plus_plus", "max_min")


class Run:
    """A lab with a controller that has settled, and what was seen of it."""

    def __init__(self, lab: Lab, recording: Recording, strategy: str) -> None:
        self.lab, self.recording = lab, recording
        self.began_s = time.time()
        lab.start_controller(strategy=strategy)
        lab.wait_ready()
        self.phases = [(START, self.began_s, time.time())]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What is done in the block has this name."""
        began_s = time.time()
        yield
        self.phases.append((name, began_s, time.time()))

    def happened(self) -> Iterator[str]:
        """A line for each event, with its time in its phase.

        The first phase begins with the first connection. When a host connects for the first time
        depends on microseconds, and so does which is the first; so it is not told of which host the
        event is.
        """
        events = call(self.lab.controller_socket, "events")["events"]
        begins = [("the first host", events[0]["time_s"])]
        begins += [(name, begin_s) for name, begin_s, _ in self.phases[1:]]
        lines = []
        for event in events:
            name, begin_s = max(
                (each for each in begins if each[1] <= event["time_s"]), key=lambda each: each[1]
            )
            code = event.get("code", "")
            of = "" if code == "host_connected" else " ".join(event.get("subject", {}).values())
            after_s = event["time_s"] - begin_s
            lines.append((begin_s, f"{after_s:.2f} s after {name}: {code} {of}".rstrip()))
        yield from (line for _, line in sorted(lines))

    def told(self) -> Iterator[str]:
        """Lines about the messages of each phase, and about the rows of each host."""
        for name, begin_s, end_s in self.phases:
            skipped = AT_ANY_TIME if name == START else ()
            yield f"{name}:"
            yield from (
                f"  {line}" for line in counted(self.recording.messages, begin_s, end_s, skipped)
            )
        for host in self.lab.hosts:
            yield f"rows of {host}: {rows_hash(self.recording.messages, host, self.phases[0][2])}"
        yield f"all frames: {self.recording.frames_hash}"


@contextmanager
def cluster(strategy: str = "max_min", *, helpers: bool = False) -> Iterator[Run]:
    """A run whose messages are printed at its end."""
    with Lab.create(parse_topology(SITE), "base", datapath="netdev", helpers=helpers) as lab:
        with recorded(lab) as recording:
            run = Run(lab, recording, strategy)
            yield run
            events = list(run.happened())
        print("\n".join([*events, *run.told()]))


def quiet() -> None:
    """Hosts connect, and then nothing is sent; the first rows are those of a new controller."""
    with cluster() as run, run.phase("idle"):
        time.sleep(4.0)


def failure() -> None:
    """C sends to A; one link first loses all, and another one then has no carrier."""
    with cluster() as run:
        lab = run.lab
        stream = Stream(lab, "C", "A", pps=PPS, seconds=6.5, source_ports=PORTS)
        with run.phase("load"):
            time.sleep(1.0)
        with run.phase("blackhole"):
            lab.fault("blackhole", host="C", nic="eth0")
            time.sleep(2.0)
        with run.phase("restored"):
            lab.restore_all()
            time.sleep(2.0)
        with run.phase("no carrier"):
            lab.fault("nic_down", host="A", nic="eth1")
            got = stream.result()
        print(_of_stream(got))


def strategies(name: str) -> None:
    """B and C load A, B more than C; which NICs C uses follows from the strategy."""
    with cluster(name) as run:
        lab = run.lab
        streams = [
            Stream(lab, "B", "A", pps=PPS, seconds=4.0, size=1000, source_ports=PORTS, port=5601),
            Stream(lab, "C", "A", pps=PPS, seconds=4.0, size=1000, source_ports=PORTS, port=5602),
        ]
        time.sleep(2.0)
        before = lab.nic_counters("C", "tx_packets")
        time.sleep(1.0)
        after = lab.nic_counters("C", "tx_packets")
        for each in streams:
            print(_of_stream(each.result()))
        print("C sends", {nic: after[nic] - before[nic] for nic in after})


def striping() -> None:
    """One stream from C to A over two links by helpers, one of which dies."""
    with cluster(helpers=True) as run:
        lab = run.lab
        time.sleep(1.0)
        before = lab.nic_counters("C", "tx_packets")
        stream = Stream(lab, "C", "A", pps=PPS, seconds=3.0, source_ports=PORTS[:1])
        time.sleep(1.5)
        both = lab.nic_counters("C", "tx_packets")
        lab.fault("blackhole", host="C", nic="eth1")
        print(_of_stream(stream.result()))
        after = lab.nic_counters("C", "tx_packets")
        print("C sends", {nic: both[nic] - before[nic] for nic in both})
        print("then", {nic: after[nic] - both[nic] for nic in both})
        for host in lab.helpers.hosts:
            counters = lab.helpers.status(host)["counters"]
            print(host, {name: number for name, number in counters.items() if number})


def _of_stream(got: StreamResult) -> str:
    gaps = ", ".join(f"{each['ms']:.0f} ms" for each in got.gaps)
    return (
        f"sent {got.sent}, lost {got.lost}, twice {got.duplicates}, out of order "
        f"{got.out_of_order}; longest time of a flow without a packet "
        f"{got.longest_flow_gap_ms:.0f} ms; gaps: {gaps or 'none'}\n"
        f"all packets: {hashlib.sha256(json.dumps(asdict(got)).encode()).hexdigest()[:16]}"
    )


RUNS: Mapping[str, Callable[[], None]] = {
    "quiet": quiet,
    "failure": failure,
    **{f"strategy {name}": lambda name=name: strategies(name) for name in STRATEGIES},  # type: ignore[misc]
    "striping": striping,
}

if __name__ == "__main__":
    RUNS[sys.argv[1]]()
