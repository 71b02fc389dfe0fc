# SPDX-License-Identifier: Apache-2.0
"""The two ends of a stream of `ri2n_lab.traffic.streams`, which run in hosts' namespaces.

A test starts dozens of them, and in a guest a start costs more than the stream. So this file
imports few modules: neither argparse, dataclasses, pathlib nor typing.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import struct
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LONG_GAP_MS", "analyse", "main", "receive", "send"]

# The fields are magic, run, flow, sequence number in the flow, and time of sending in ns.
HEADER = struct.Struct("!4sIIIQ")
DATA, END = b"ri2d", b"ri2e"
END_COUNTS = struct.Struct("!QQQ")  # packets sent in all, first and last time of sending in ns
END_REPEATS, END_INTERVAL_S = 25, 0.02
TAIL_S = 0.6  # how long a sender goes on that was told to finish
DRAIN_S = 0.3  # after the first end marker: time for packets that are still under way
SILENCE_S = 15.0  # after the last packet: then no end marker is expected any more
LONG_GAP_MS = 20.0
READ_BYTES, ANCILLARY_BYTES = HEADER.size + END_COUNTS.size, 64
BATCH_S, MAX_BATCH = 0.01, 4096
"""How long, in seconds, and how many packets a receiver lets arrive before it reads them."""

SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)
SO_RCVBUFFORCE = 33
TIMER_SLACK = "/proc/self/timerslack_ns"
"""The file that says how much too late a sleep may end, in ns.

The default of 50 us is the interval of packets at 20,000 per second.
"""


def send(
    address: str,
    *,
    port: int = 5600,
    pps: float = 1000.0,
    seconds: float = 5.0,
    flows: int = 1,
    size: int = 200,
    burst: int = 1,
    source_ports: Sequence[int] = (),
    finish: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Send `pps` packets per second for `seconds`, then end markers, and return what was sent.

    It ends TAIL_S seconds after `finish` was first true, if that is earlier. The flows take turns;
    `burst` packets are sent at once. The sender keeps an absolute schedule. When it is behind, it
    sends at twice the rate until it has caught up: a burst of all late packets could be more than a
    queue holds, and the sender itself would then cause the losses.

    Linux hashes what a connected socket sends by a random number of that socket. The sockets of
    `source_ports` are not connected, so their hashes depend on addresses and ports alone: a flow
    with the same ports takes the same path again.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sockets = [socket.socket(family, socket.SOCK_DGRAM) for _ in source_ports or range(flows)]
    try:
        for number, flow_socket in enumerate(sockets):
            if source_ports:
                flow_socket.bind(("", source_ports[number]))
            else:
                flow_socket.connect((address, port))
        target = (address, port) if source_ports else None
        return _send_all(sockets, target, pps, seconds, size, burst, finish)
    finally:
        for flow_socket in sockets:
            flow_socket.close()


def receive(
    *, port: int = 5600, timeout_s: float = 60.0, ready: Callable[[], object] | None = None
) -> dict[str, Any]:
    """Receive one stream, and return the counts (see `analyse`).

    It ends with the end marker, SILENCE_S seconds after the last packet, or after `timeout_s`
    seconds. `ready` is called without arguments when the socket is bound.
    """
    arrivals: list[tuple[int, int, int, int]] = []
    end: tuple[int, int, int] | None = None
    deadline_s = time.monotonic() + timeout_s
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        with suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        listener.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        listener.bind(("::", port))
        # The kernel's stamps are of CLOCK_REALTIME.
        offset_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(
            time.CLOCK_MONOTONIC
        )
        if ready is not None:
            ready()
        run: int | None = None
        # Silence is measured by the wait for the next packet, not by stamps: somebody may set the
        # clock of the stamps. The kernel's own limit is set when it changes; Python's would take
        # one more call for each packet.
        limit_s = 0.0
        while (
            left_s := min(deadline_s - time.monotonic(), math.inf if run is None else SILENCE_S)
        ) > 0:
            if left_s != limit_s:
                limit_s = left_s
                _limit_wait(listener, limit_s)
            try:
                packets = _read(listener)
            except BlockingIOError:
                break
            for data, ancillary, _, _ in packets:
                if len(data) < HEADER.size:
                    continue
                magic, packet_run, flow, sequence, sent_ns = HEADER.unpack_from(data)
                if magic not in (DATA, END) or (run is not None and packet_run != run):
                    continue
                run = packet_run
                arrived_ns = _stamp_ns(ancillary) - offset_ns
                if magic == DATA:
                    arrivals.append((flow, sequence, sent_ns, arrived_ns))
                elif end is None:
                    end = END_COUNTS.unpack_from(data, HEADER.size)
                    deadline_s = min(deadline_s, time.monotonic() + DRAIN_S)
    return analyse(arrivals, end)


def analyse(
    arrivals: list[tuple[int, int, int, int]], end: tuple[int, int, int] | None
) -> dict[str, Any]:
    """Count what became of the packets of a stream.

    `arrivals` are (flow, sequence, sent ns, arrived ns) in order of arrival. `end` is (packets sent
    in all, first and last time of sending in ns), or None when no end marker came; then only losses
    before the last arrival can be seen.
    """
    by_flow: dict[int, list[tuple[int, int]]] = {}
    for flow, sequence, _, arrived_ns in arrivals:
        by_flow.setdefault(flow, []).append((sequence, arrived_ns))
    flow_count = max(by_flow, default=-1) + 1
    flows, lost_runs = [], []
    for flow in range(flow_count):
        packets = by_flow.get(flow, [])
        highest = max((sequence for sequence, _ in packets), default=-1)
        flow_sent = highest + 1 if end is None else (end[0] - flow + flow_count - 1) // flow_count
        counts, runs = _count_flow(packets, flow_sent)
        gaps = _gaps([arrived for _, arrived in packets], end)
        counts["longest_gap_ms"] = max((gap["ms"] for gap in gaps), default=0.0)
        flows.append({"flow": flow, **counts})
        lost_runs += [[flow, *run] for run in runs]
    sent = end[0] if end else sum(entry["sent"] for entry in flows)
    received = sum(entry["received"] for entry in flows)
    gaps = _gaps([arrived for *_, arrived in arrivals], end)
    latencies = sorted((arrived - sent_ns) / 1e6 for _, _, sent_ns, arrived in arrivals)
    return {
        "sent": sent,
        "received": received,
        "lost": sent - received,
        "duplicates": sum(entry["duplicates"] for entry in flows),
        "out_of_order": sum(entry["out_of_order"] for entry in flows),
        "longest_gap_ms": max((gap["ms"] for gap in gaps), default=0.0),
        "gaps": [gap for gap in gaps if gap["ms"] > LONG_GAP_MS],
        "flows": flows,
        "lost_runs": lost_runs,
        "latency_ms": {
            "p50": _percentile(latencies, 50),
            "p99": _percentile(latencies, 99),
            "max": _percentile(latencies, 100),
        },
        "complete": end is not None,
        "last_arrival_s": arrivals[-1][3] / 1e9 if arrivals else None,
    }


def main() -> None:
    """Run the end that the first argument names, `receive` or `send`, and print its JSON.

    The second argument is a JSON object with the arguments of that function. Before that, a line
    says that a receiver's socket is bound, or that a sender may be told to finish, by SIGUSR1.
    """
    end, options = sys.argv[1], json.loads(sys.argv[2])

    def ready() -> None:
        print('{"ready": true}', flush=True)

    if end == "receive":
        result = receive(**options, ready=ready)
    else:
        told: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, _: told.append(number))
        ready()
        result = send(**options, finish=lambda: bool(told))
    print(json.dumps(result), flush=True)


def _send_all(
    sockets: list[socket.socket],
    target: tuple[str, int] | None,
    pps: float,
    seconds: float,
    size: int,
    burst: int,
    finish: Callable[[], bool],
) -> dict[str, Any]:
    """Send by these sockets to `target`; None when they are connected."""

    def send_by(flow: int, data: bytes) -> None:
        if target is None:
            sockets[flow].send(data)
        else:
            sockets[flow].sendto(data, target)

    run = int.from_bytes(os.urandom(4), "big")
    flows, total = len(sockets), int(pps * seconds)
    padding = bytes(size - HEADER.size)
    interval_ns = 1e9 / pps
    times_ns = array("q")
    errors, late_ns = 0, 0
    with suppress(OSError), os.fdopen(os.open(TIMER_SLACK, os.O_WRONLY), "wb", 0) as file:
        file.write(b"1")
    start_ns = time.monotonic_ns() + 1_000_000
    finishing = False
    for index in range(total):
        if finish() and not finishing:
            finishing, total = True, min(total, index + int(pps * TAIL_S))
        if index >= total:
            break
        due_ns = start_ns + int(index // burst * burst * interval_ns)
        now_ns = time.monotonic_ns()
        early_ns = times_ns[-1] + interval_ns / 2 if times_ns and index % burst == 0 else 0
        wait_ns = max(due_ns, early_ns) - now_ns
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
            now_ns = time.monotonic_ns()
        late_ns = max(late_ns, now_ns - due_ns)
        flow, sequence = index % flows, index // flows
        times_ns.append(now_ns)
        try:
            send_by(flow, HEADER.pack(DATA, run, flow, sequence, now_ns) + padding)
        except OSError:
            errors += 1
    end = END_COUNTS.pack(
        total, times_ns[0] if total else start_ns, times_ns[-1] if total else start_ns
    )
    for index in range(END_REPEATS):
        with suppress(OSError):
            send_by(index % flows, HEADER.pack(END, run, 0, 0, time.monotonic_ns()) + end)
        time.sleep(END_INTERVAL_S)
    first_ns = times_ns[0] if total else start_ns
    return {
        "sent": total,
        "flows": flows,
        "errors": errors,
        "late_ms": late_ns / 1e6,
        "first_ns": first_ns,
        # Entry k is of packet k, which is of flow k % flows.
        "offsets_us": [(time_ns - first_ns) // 1000 for time_ns in times_ns],
    }


def _limit_wait(listener: socket.socket, limit_s: float) -> None:
    """Let each call that receives wait at most so long; then it raises BlockingIOError."""
    micros = max(1, round(limit_s * 1e6))
    value = struct.pack("@ll", micros // 1_000_000, micros % 1_000_000)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)


def _read(listener: socket.socket) -> list[tuple[bytes, list[tuple[int, int, bytes]], int, Any]]:
    """Wait for a packet; return it with those that arrive in the next BATCH_S seconds.

    The kernel's stamps say when each of them arrived. In a guest, to be woken for each packet
    costs more than to send it. Only the beginning of a packet is read.
    """
    found = [listener.recvmsg(READ_BYTES, ANCILLARY_BYTES)]
    time.sleep(BATCH_S)
    with suppress(BlockingIOError):
        while len(found) < MAX_BATCH:
            found.append(listener.recvmsg(READ_BYTES, ANCILLARY_BYTES, socket.MSG_DONTWAIT))
    return found


def _stamp_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The kernel's time of arrival (CLOCK_REALTIME) in ns.

    How long this process waited for a CPU has no influence on it.
    """
    for _, kind, data in ancillary:
        if kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def _count_flow(
    packets: list[tuple[int, int]], sent: int
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """The counts of one flow, and its lost packets as (first, last) runs of sequence numbers."""
    seen: set[int] = set()
    highest, duplicates, out_of_order = -1, 0, 0
    for sequence, _ in packets:
        if sequence in seen:
            duplicates += 1
            continue
        seen.add(sequence)
        out_of_order += sequence < highest
        highest = max(highest, sequence)
    runs: list[tuple[int, int]] = []
    for sequence in range(sent):
        if sequence not in seen:
            if runs and runs[-1][1] == sequence - 1:
                runs[-1] = (runs[-1][0], sequence)
            else:
                runs.append((sequence, sequence))
    counts = {
        "sent": sent,
        "received": len(seen),
        "lost": sent - len(seen),
        "duplicates": duplicates,
        "out_of_order": out_of_order,
    }
    return counts, runs


def _gaps(arrived_ns: list[int], end: tuple[int, int, int] | None) -> list[dict[str, float]]:
    """The times between arrivals.

    With `end`, these begin with the first sending and end with the last sending.
    """
    edges = sorted(arrived_ns)
    if end is not None:
        edges = (
            [min(end[1], *edges[:1]), *edges, max(end[2], *edges[-1:])]
            if edges
            else [end[1], end[2]]
        )
    return [
        {"start_s": before / 1e9, "end_s": after / 1e9, "ms": (after - before) / 1e6}
        for before, after in pairwise(edges)
    ]


def _percentile(ordered: list[float], percent: float) -> float:
    if not ordered:
        return math.nan
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
