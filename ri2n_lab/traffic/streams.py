# SPDX-License-Identifier: Apache-2.0
"""UDP streams with sequence numbers: which packets were lost, duplicated or out of order, and when.

They also measure gaps, in which no packet arrived. `Stream` runs the two ends of
`ri2n_lab.traffic.stream_ends` on two hosts of a lab.
Times are CLOCK_MONOTONIC, which all namespaces share, so that losses and gaps can be compared with
the time of a fault.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ri2n_lab.traffic.stream_ends import LONG_GAP_MS
from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from ri2n_lab.cluster.lab import Lab

__all__ = ["Stream", "StreamResult"]

PATIENCE_S = 120.0  # for a sender that a busy machine starts late
FOLDER = Path(__file__).resolve().parents[2]  # the one that holds our packages
RUN_END = """
import sys
sys.path.append(sys.argv.pop(1))
from ri2n_lab.traffic.stream_ends import main
main()
"""
"""A Python without site-packages runs this: it starts in half the time."""


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
    """A running stream from one host of a lab to another.

    `result` waits for its end, `finish` brings it near, `stop` ends it without a result.
    """

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
        burst: int = 1,
        port: int = 5600,
        ipv6: bool = False,
        source_ports: Sequence[int] = (),
    ) -> None:
        """Start the receiver, then the sender.

        `pps` is packets per second of all flows together, `size` the UDP payload in bytes. `burst`
        packets are sent at once, which costs less where it does not matter when each is sent. With
        `source_ports`, each flow has one of these ports in place of a free one, and `flows` does
        not count. Raises NotAvailable when a side does not start.
        """
        self._seconds = seconds
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        limit_s = seconds + PATIENCE_S
        self._receiver = lab.popen(
            destination, _command("receive", port=port, timeout_s=limit_s), **pipes
        )
        _await_ready(self._receiver, f"the receiver on {destination}")
        address = lab.address6(destination) if ipv6 else lab.address(destination)
        options = {"pps": pps, "seconds": seconds, "flows": flows, "size": size, "port": port}
        command = _command(
            "send", address=address, burst=burst, source_ports=list(source_ports), **options
        )
        self._sender = lab.popen(source, command, **pipes)
        _await_ready(self._sender, f"the sender on {source}")

    @property
    def runs(self) -> bool:
        """Whether the sender and the receiver run."""
        return self._sender.poll() is None and self._receiver.poll() is None

    def finish(self) -> None:
        """Let the stream end half a second from now, unless it ends before; `result` waits for it.

        So a stream may be planned for longer than a test needs on any machine, and ends soon after
        what it is to outlast.
        """
        self._sender.send_signal(signal.SIGUSR1)

    def stop(self) -> None:
        """End the stream now; there will be no result."""
        for child in (self._sender, self._receiver):
            child.kill()
            child.communicate()

    def result(self, timeout_s: float | None = None) -> StreamResult:
        """Wait for the end and return what was counted; NotAvailable when a side fails."""
        limit_s = timeout_s if timeout_s is not None else self._seconds + 2 * PATIENCE_S
        sender = _collect(self._sender, limit_s)
        receiver = _collect(self._receiver, limit_s)
        return _merge(sender, receiver)


def _command(end: str, **options: Any) -> list[str]:
    """The command that runs an end, with the arguments of its function."""
    return [sys.executable, "-S", "-c", RUN_END, str(FOLDER), end, json.dumps(options)]


def _await_ready(child: subprocess.Popen[Any], what: str) -> None:
    """Wait for an end's first line; NotAvailable when it ends without one."""
    assert child.stdout is not None
    if not child.stdout.readline():
        raise NotAvailable(f"{what} did not start: {child.communicate()[1]}")


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
