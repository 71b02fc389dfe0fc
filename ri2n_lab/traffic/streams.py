"""UDP streams with sequence numbers: which packets were lost, duplicated or out of order, and when.

They also measure gaps, in which no packet arrived. `python -m ri2n_lab.traffic.streams receive ...`
and `... send ...` run inside namespaces and print JSON; `Stream` runs both on two hosts of a lab.
Times are CLOCK_MONOTONIC, which all namespaces share, so that losses and gaps can be compared with
the time of a fault.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import struct
import subprocess
import sys
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from ri2n_lab.cluster.lab import Lab

__all__ = ["Stream", "StreamResult", "analyse", "main", "receive", "send"]

# The fields are magic, run, flow, sequence number in the flow, and time of sending in ns.
HEADER = struct.Struct("!4sIIIQ")
DATA, END = b"ri2d", b"ri2e"
END_COUNTS = struct.Struct("!QQQ")  # packets sent in all, first and last time of sending in ns
MIN_SIZE = HEADER.size + END_COUNTS.size
END_REPEATS, END_INTERVAL_S = 25, 0.02
DRAIN_S = 0.3  # after the first end marker: time for packets that are still under way
SILENCE_S = 15.0  # after the last packet: then no end marker is expected any more
PATIENCE_S = 120.0  # for a sender that a busy machine starts late
LONG_GAP_MS = 20.0
SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)
SO_RCVBUFFORCE = 33
TIMER_SLACK = Path("/proc/self/timerslack_ns")
"""The file that says how much too late a sleep may end, in ns.

The default of 50 us is the interval of packets at 20,000 per second.
"""


@dataclass(frozen=True)
class StreamResult:
    """What became of a stream. Counts are packets; times are CLOCK_MONOTONIC in seconds."""

    sent: int
    received: int
    lost: int
    duplicates: int
    out_of_order: int
    # The longest time without any packet, between the first and the last sending.
    longest_gap_ms: float
    longest_flow_gap_ms: float  # the same for the flow that had the longest gap
    gaps: list[dict[str, float]]  # those longer than 20 ms: start_s, end_s, ms
    flows: list[dict[str, Any]]  # the counts of each flow
    latency_ms: dict[str, float]  # p50, p99, max
    lost_at_s: list[float]  # when each lost packet was sent, ascending
    start_s: float
    end_s: float
    errors: int  # packets that the sender's kernel refused; they count as sent and lost
    # How far the sender was behind its schedule at most: how much the machine disturbs the figures.
    late_ms: float

    def lost_after(self, time_s: float) -> int:
        """How many of the lost packets were sent at `time_s` or later."""
        return sum(sent_s >= time_s for sent_s in self.lost_at_s)


class Stream:
    """A running stream from one host of a lab to another; `result` waits for its end."""

    def __init__(
        self,
        lab: Lab,
        source: str,
        destination: str,
        *,
        pps: float = 1000.0,
        seconds: float = 5.0,
        flows: int = 1,
        size: int = 200,
        port: int = 5600,
        ipv6: bool = False,
        source_ports: Sequence[int] = (),
    ) -> None:
        """Start the receiver, then the sender.

        `pps` is packets per second of all flows together, `size` the UDP payload in bytes. With
        `source_ports`, each flow has one of these ports in place of a free one, and `flows` does
        not count. Raises NotAvailable when the receiver does not start.
        """
        module = [sys.executable, "-m", "ri2n_lab.traffic.streams"]
        self._seconds = seconds
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        limit_s = seconds + PATIENCE_S
        self._receiver = lab.popen(
            destination,
            [*module, "receive", "--port", str(port), "--timeout", str(limit_s)],
            **pipes,
        )
        assert self._receiver.stdout is not None
        if not self._receiver.stdout.readline():
            raise NotAvailable(
                f"the receiver on {destination} did not start: {self._receiver.communicate()[1]}"
            )
        address = lab.address6(destination) if ipv6 else lab.address(destination)
        options = {"pps": pps, "seconds": seconds, "flows": flows, "size": size, "port": port}
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        words += ["--source-ports", *map(str, source_ports)] if source_ports else []
        self._sender = lab.popen(source, [*module, "send", address, *words], **pipes)

    def result(self, timeout_s: float | None = None) -> StreamResult:
        """Wait for the end and return what was counted; NotAvailable when a side fails."""
        limit_s = timeout_s if timeout_s is not None else self._seconds + 2 * PATIENCE_S
        sender = _collect(self._sender, limit_s)
        receiver = _collect(self._receiver, limit_s)
        return _merge(sender, receiver)


def send(
    address: str,
    *,
    port: int = 5600,
    pps: float = 1000.0,
    seconds: float = 5.0,
    flows: int = 1,
    size: int = 200,
    source_ports: Sequence[int] = (),
) -> dict[str, Any]:
    """Send `pps` packets per second for `seconds`, then end markers, and return what was sent.

    The flows take turns. The sender keeps an absolute schedule. When it is behind, it sends at
    twice the rate until it has caught up: a burst of all late packets could be more than a queue
    holds, and the sender itself would then cause the losses.

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
        return _send_all(sockets, target, pps, seconds, size)
    finally:
        for flow_socket in sockets:
            flow_socket.close()


def receive(*, port: int = 5600, timeout_s: float = 60.0, ready: Any = None) -> dict[str, Any]:
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
        # clock of the stamps.
        while (
            left_s := min(deadline_s - time.monotonic(), math.inf if run is None else SILENCE_S)
        ) > 0:
            listener.settimeout(left_s)
            try:
                data, ancillary, _, _ = listener.recvmsg(65535, 64)
            except TimeoutError:
                break
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


def main(argv: list[str] | None = None) -> int:
    """The command line: `receive` or `send ADDRESS`; prints JSON."""
    parser = argparse.ArgumentParser(
        prog="ri2n_lab.traffic.streams", description="UDP streams with sequence numbers"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    receiver = commands.add_parser("receive", help="count one stream")
    receiver.add_argument("--port", type=int, default=5600)
    receiver.add_argument("--timeout", type=float, default=60.0, help="seconds")
    sender = commands.add_parser("send", help="send one stream")
    sender.add_argument("address")
    sender.add_argument("--port", type=int, default=5600)
    sender.add_argument(
        "--pps", type=float, default=1000.0, help="packets per second over all flows"
    )
    sender.add_argument("--seconds", type=float, default=5.0)
    sender.add_argument("--flows", type=int, default=1)
    sender.add_argument(
        "--source-ports", type=int, nargs="+", default=[], help="one per flow, in place of --flows"
    )
    sender.add_argument(
        "--size", type=int, default=200, help=f"UDP payload in bytes, at least {MIN_SIZE}"
    )
    options = parser.parse_args(argv)
    if options.command == "receive":
        result = receive(
            port=options.port,
            timeout_s=options.timeout,
            ready=lambda: print('{"ready": true}', flush=True),
        )
    else:
        if options.pps <= 0 or options.flows < 1 or options.size < MIN_SIZE:
            parser.error(f"--pps must be above 0, --flows at least 1, --size at least {MIN_SIZE}")
        result = send(
            options.address,
            port=options.port,
            pps=options.pps,
            seconds=options.seconds,
            flows=options.flows,
            size=options.size,
            source_ports=options.source_ports,
        )
    print(json.dumps(result), flush=True)
    return 0


def _send_all(
    sockets: list[socket.socket],
    target: tuple[str, int] | None,
    pps: float,
    seconds: float,
    size: int,
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
    with suppress(OSError):
        TIMER_SLACK.write_text("1")
    start_ns = time.monotonic_ns() + 1_000_000
    for index in range(total):
        due_ns = start_ns + int(index * interval_ns)
        now_ns = time.monotonic_ns()
        wait_ns = max(due_ns, times_ns[-1] + interval_ns / 2 if times_ns else 0) - now_ns
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


def _collect(child: subprocess.Popen[Any], timeout_s: float) -> dict[str, Any]:
    """The JSON line that the sender or the receiver printed last."""
    try:
        output, errors = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise NotAvailable(f"a side of the stream did not end within {timeout_s:g} s") from None
    if child.returncode or not output.strip():
        raise NotAvailable(f"a side of the stream failed: {' '.join(errors.split())[-300:]}")
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def _merge(sender: dict[str, Any], receiver: dict[str, Any]) -> StreamResult:
    """One result from what the sender and the receiver report.

    A receiver that saw no end marker, or no packet of a flow, does not know how much was sent; then
    the sender's numbers count.
    """
    flow_count, sent, offsets_us = sender["flows"], sender["sent"], sender["offsets_us"]
    first_s = sender["first_ns"] / 1e9
    last_s = first_s + (offsets_us[-1] / 1e6 if offsets_us else 0.0)
    missing: set[tuple[int, int]] = set()
    flows = []
    seen = {entry["flow"]: entry for entry in receiver["flows"]}
    for flow in range(flow_count):
        flow_sent = (sent - flow + flow_count - 1) // flow_count
        entry = seen.get(flow)
        if entry is None:
            entry = {
                "flow": flow,
                "received": 0,
                "duplicates": 0,
                "out_of_order": 0,
                "longest_gap_ms": (last_s - first_s) * 1e3,
            }
            missing |= {(flow, sequence) for sequence in range(flow_sent)}
        else:
            missing |= {(flow, sequence) for sequence in range(entry["sent"], flow_sent)}
        flows.append({**entry, "sent": flow_sent, "lost": flow_sent - entry["received"]})
    for flow, first, last in receiver["lost_runs"]:
        count = (sent - flow + flow_count - 1) // flow_count
        missing |= {(flow, sequence) for sequence in range(first, min(last, count - 1) + 1)}
    longest_gap_ms, gaps = receiver["longest_gap_ms"], list(receiver["gaps"])
    if not receiver["received"]:
        longest_gap_ms = (last_s - first_s) * 1e3
    elif not receiver["complete"]:
        # Nothing arrived any more, not even an end marker: the last gap ends when the last packet
        # was sent.
        tail_ms = (last_s - receiver["last_arrival_s"]) * 1e3
        longest_gap_ms = max(longest_gap_ms, tail_ms)
        if tail_ms > LONG_GAP_MS:
            gaps.append({"start_s": receiver["last_arrival_s"], "end_s": last_s, "ms": tail_ms})
    lost_at_s = sorted(
        first_s + offsets_us[sequence * flow_count + flow] / 1e6 for flow, sequence in missing
    )
    return StreamResult(
        sent=sent,
        received=receiver["received"],
        lost=sent - receiver["received"],
        duplicates=receiver["duplicates"],
        out_of_order=receiver["out_of_order"],
        longest_gap_ms=longest_gap_ms,
        longest_flow_gap_ms=max((longest_gap_ms, *(flow["longest_gap_ms"] for flow in flows))),
        gaps=gaps,
        flows=flows,
        latency_ms=receiver["latency_ms"],
        lost_at_s=lost_at_s,
        start_s=first_s,
        end_s=last_s,
        errors=sender["errors"],
        late_ms=sender["late_ms"],
    )


if __name__ == "__main__":
    raise SystemExit(main())
