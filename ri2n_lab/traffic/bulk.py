# SPDX-License-Identifier: Apache-2.0
"""Send TCP or UDP from many hosts to many others at once, in phases, and count what arrives.

All receivers count in the same window of a phase. `python -m ri2n_lab.traffic.bulk SCHEDULE` runs
in a host's namespace, one process for all connections of the host; `BulkRun` starts one on every
host of a lab. All processes use CLOCK_MONOTONIC, which namespaces share. (iperf3 needs two
processes for each pair, each with a clock of its own: that is too much for 240 pairs.)
"""

from __future__ import annotations

import contextlib
import json
import math
import resource
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from ri2n_lab.cluster.lab import Lab

__all__ = ["BIN_S", "BulkRun", "PhaseResult", "Schedule", "main", "run_schedule"]

BIN_S = 0.05
PORT = 5700
GREETING = struct.Struct("!4sHH")  # magic, phase, the sender's place among the hosts
MAGIC = b"ri2b"
CHUNK = bytes(1 << 16)
WAKE_BYTES = 1 << 14
"""A receiver is woken when so many bytes wait, not for every frame.

In virtual time, to be woken for every frame took most of the time of a run.
"""
TAIL_S = 0.2  # senders go on so long after a window, so that none has stopped when it ends
PAUSE_S = 0.5  # between phases, in which everything that is under way arrives
LEAD_S = 0.3  # from the order to start to the first connection
DATAGRAM_BYTES = 1400
DATAGRAM_FRAME_BYTES = DATAGRAM_BYTES + 42  # with its headers, as links count
MAX_AT_ONCE = 64
"""How many datagrams a late sender sends before it looks at what has arrived."""
TCP_INFO_BYTES, TOTAL_RETRANS_AT = 104, 100  # struct tcp_info: size, place of tcpi_total_retrans
NO_LINGER = struct.pack("ii", 1, 0)
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Schedule:
    """What one host does: in each phase it sends `streams` TCP streams to each of some hosts.

    A phase consists of `warmup_s` seconds and the window of `window_s` seconds. Hosts are named by
    their places in `addresses`; `me` is this host's. With `datagram_bps` above 0 the host sends UDP
    at that rate (bits of frames per second, to all receivers together) in place of TCP.
    """

    me: int
    addresses: list[str]
    to: list[list[int]]  # for each phase, the hosts that this one sends to
    warmup_s: float
    window_s: float
    streams: int = 1
    congestion: str = "cubic"
    port: int = PORT
    datagram_bps: int = 0

    @property
    def phase_s(self) -> float:
        """Seconds from the beginning of a phase to the beginning of the next one."""
        return self.warmup_s + self.window_s + TAIL_S + PAUSE_S


@dataclass(frozen=True)
class PhaseResult:
    """The result of one phase.

    `received` are the bytes of payload that arrived in the window, by (sender, receiver).
    `retransmits` counts the TCP segments that were sent again in the window; None: not known.
    `bins` are the bytes that arrived at all receivers together, per BIN_S seconds from the
    beginning of the phase; empty where not known.
    """

    window_s: float
    received: dict[tuple[str, str], int]
    retransmits: int | None = None
    bins: list[int] = field(default_factory=list)


class BulkRun:
    """A running schedule on a lab's hosts; `results` waits for its end, `stop` ends it early."""

    def __init__(
        self,
        lab: Lab,
        hosts: Sequence[str],
        phases: Sequence[Sequence[tuple[str, str]]],
        *,
        warmup_s: float,
        window_s: float,
        streams: int = 1,
        datagram_bps: Mapping[str, int] | None = None,
    ) -> None:
        """Start the traffic: in each phase, all of its (sender, receiver) pairs of `hosts` at once.

        It is TCP, or UDP when `datagram_bps` has the rate of each host (bits of frames per second,
        to all its receivers together). Returns when all processes have the order to start. Raises
        NotAvailable when a process does not start.
        """
        self._hosts, self._phases, self._window_s = list(hosts), phases, window_s
        self._tcp = datagram_bps is None
        self._children: list[subprocess.Popen[Any]] = []
        place = {host: index for index, host in enumerate(hosts)}
        for host in hosts:
            to = [
                [place[receiver] for sender, receiver in pairs if sender == host]
                for pairs in phases
            ]
            addresses = [lab.address(name) for name in hosts]
            rate_bps = 0 if datagram_bps is None else datagram_bps[host]
            schedule = Schedule(
                place[host], addresses, to, warmup_s, window_s, streams, datagram_bps=rate_bps
            )
            argv = [sys.executable, "-m", "ri2n_lab.traffic.bulk", json.dumps(asdict(schedule))]
            pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            self._children.append(lab.popen(host, argv, text=True, **pipes))
        self._length_s = schedule.phase_s * len(phases)
        for host, child in zip(hosts, self._children, strict=True):
            assert child.stdout is not None
            if child.stdout.readline() != "listening\n":
                self.stop()
                raise NotAvailable(
                    f"the traffic program on {host} did not start: {child.communicate()[1][-300:]}"
                )
        start_s = time.monotonic() + LEAD_S
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(f"{start_s!r}\n")
            child.stdin.flush()

    def results(self) -> list[PhaseResult]:
        """Wait for the end; the result of each phase. NotAvailable when a process failed."""
        parts = []
        for host, child in zip(self._hosts, self._children, strict=True):
            try:
                output, errors = child.communicate(timeout=self._length_s + START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.stop()
                raise NotAvailable(f"the traffic program on {host} did not end") from None
            if child.returncode:
                self.stop()
                raise NotAvailable(
                    f"the traffic program on {host} failed: {' '.join(errors.split())[-300:]}"
                )
            parts.append(json.loads(output))
        return [self._phase(number, parts) for number in range(len(self._phases))]

    def stop(self) -> None:
        """End the traffic now; there will be no results."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
            child.wait()

    def _phase(self, number: int, parts: list[list[dict[str, Any]]]) -> PhaseResult:
        place = {host: index for index, host in enumerate(self._hosts)}
        of_phase = [part[number] for part in parts]
        return PhaseResult(
            self._window_s,
            {
                (sender, receiver): of_phase[place[receiver]]["received"][place[sender]]
                for sender, receiver in self._phases[number]
            },
            sum(entry["retransmits"] for entry in of_phase) if self._tcp else None,
            [sum(column) for column in zip(*(entry["bins"] for entry in of_phase), strict=True)],
        )


def run_schedule(
    schedule: Schedule, listener: socket.socket, start_s: float
) -> list[dict[str, Any]]:
    """Do the part of one host from `start_s` (CLOCK_MONOTONIC) on, and return its results.

    The result of each phase is {"received": bytes in the window by sender, "bins": bytes per BIN_S,
    "retransmits": segments sent again in the window}. Raises OSError when a connection is refused.
    """
    host = _Host(schedule, listener, start_s)
    with contextlib.closing(host):
        for number in range(len(schedule.to)):
            host.phase(number)
        host.serve_until(start_s + len(schedule.to) * schedule.phase_s)
    return host.results


class _Host:
    """The connections of one host.

    It accepts connections all the time; those that it makes itself belong to a phase.
    """

    def __init__(self, schedule: Schedule, listener: socket.socket, start_s: float) -> None:
        self.selector = selectors.DefaultSelector()
        self._schedule, self._start_s = schedule, start_s
        self._bins = int(schedule.phase_s / BIN_S) + 1
        self.results: list[dict[str, Any]] = [
            {"received": [0] * len(schedule.addresses), "bins": [0] * self._bins, "retransmits": 0}
            for _ in schedule.to
        ]
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ, self._accept)
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.setblocking(False)
        self._datagrams.bind(listener.getsockname()[:2])
        self.selector.register(self._datagrams, selectors.EVENT_READ, self._take_datagrams)

    def phase(self, number: int) -> None:
        schedule = self._schedule
        begin_s = self._start_s + number * schedule.phase_s
        self.serve_until(begin_s)
        if schedule.datagram_bps and schedule.to[number]:
            self._send_datagrams(number, begin_s)
            return
        own = [
            self._connect(receiver, number)
            for receiver in schedule.to[number]
            for _ in range(schedule.streams)
        ]
        self.serve_until(begin_s + schedule.warmup_s)
        before = sum(map(_retransmits, own))
        self.serve_until(begin_s + schedule.warmup_s + schedule.window_s)
        self.results[number]["retransmits"] = sum(map(_retransmits, own)) - before
        self.serve_until(begin_s + schedule.warmup_s + schedule.window_s + TAIL_S)
        for connection in own:
            self.selector.unregister(connection)
            # Data that still waits to be sent must not disturb the next phase, so it is dropped.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            connection.close()

    def close(self) -> None:
        self.selector.close()
        self._datagrams.close()

    def serve_until(self, end_s: float) -> None:
        while (left_s := end_s - time.monotonic()) > 0:
            for key, _ in self.selector.select(left_s):
                key.data(key.fileobj)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection, _ = listener.accept()
            connection.setblocking(False)
            self.selector.register(connection, selectors.EVENT_READ, self._greeted)

    def _greeted(self, connection: socket.socket) -> None:
        """Read who the sender is; a connection without a valid greeting is closed."""
        greeting = self._read(connection, GREETING.size)
        if not greeting:
            return
        magic, number, sender = (
            GREETING.unpack(greeting) if len(greeting) == GREETING.size else (b"", 0, 0)
        )
        if magic != MAGIC or number >= len(self.results) or sender >= len(self._schedule.addresses):
            self._close(connection)
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, WAKE_BYTES)
        self.selector.modify(
            connection, selectors.EVENT_READ, lambda one: self._count(one, number, sender)
        )

    def _send_datagrams(self, number: int, begin_s: float) -> None:
        """Send evenly to each receiver in turn until the phase's window and tail are over.

        A datagram for which the socket has no room is dropped.
        """
        schedule = self._schedule
        data = GREETING.pack(MAGIC, number, schedule.me).ljust(DATAGRAM_BYTES, b"\0")
        interval_s = DATAGRAM_FRAME_BYTES * 8 / schedule.datagram_bps
        total = math.ceil((schedule.warmup_s + schedule.window_s + TAIL_S) / interval_s)
        to = [(schedule.addresses[receiver], schedule.port) for receiver in schedule.to[number]]
        sent = 0
        while sent < total:
            due = min(total, int((time.monotonic() - begin_s) / interval_s) + 1, sent + MAX_AT_ONCE)
            while sent < due:
                with contextlib.suppress(BlockingIOError):
                    self._datagrams.sendto(data, to[sent % len(to)])
                sent += 1
            self.serve_until(begin_s + sent * interval_s)

    def _take_datagrams(self, datagrams: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(MAX_AT_ONCE):
                data = datagrams.recv(DATAGRAM_BYTES + 1)
                magic, number, sender = GREETING.unpack_from(data.ljust(GREETING.size, b"\0"))
                if (
                    magic == MAGIC
                    and number < len(self.results)
                    and sender < len(self._schedule.addresses)
                ):
                    self._received(number, sender, len(data))

    def _count(self, connection: socket.socket, number: int, sender: int) -> None:
        self._received(number, sender, len(self._read(connection, len(CHUNK))))

    def _received(self, number: int, sender: int, length: int) -> None:
        schedule, result = self._schedule, self.results[number]
        after_s = time.monotonic() - self._start_s - number * schedule.phase_s
        result["bins"][max(0, min(self._bins - 1, int(after_s / BIN_S)))] += length
        if schedule.warmup_s <= after_s < schedule.warmup_s + schedule.window_s:
            result["received"][sender] += length

    def _read(self, connection: socket.socket, length: int) -> bytes:
        """The bytes that wait; when the sender is gone, nothing, and the connection is closed."""
        try:
            data = connection.recv(length)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self._close(connection)
        return data

    def _close(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        connection.close()

    def _connect(self, receiver: int, number: int) -> socket.socket:
        schedule = self._schedule
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        connection.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_CONGESTION, schedule.congestion.encode()
        )
        connection.connect_ex((schedule.addresses[receiver], schedule.port))
        greeting = GREETING.pack(MAGIC, number, schedule.me)
        self.selector.register(
            connection, selectors.EVENT_WRITE, lambda one: self._begin(one, greeting)
        )
        return connection

    def _begin(self, connection: socket.socket, greeting: bytes) -> None:
        error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, "a connection failed")
        connection.send(greeting)
        self.selector.modify(connection, selectors.EVENT_WRITE, _send)


def main(argv: Sequence[str] | None = None) -> None:
    """The command line that `BulkRun` starts; the argument is a Schedule in JSON.

    It prints "listening", reads the time to start from standard input, and prints JSON at the end.
    """
    (document,) = sys.argv[1:] if argv is None else argv
    # Many streams to all hosts are more than 1024 sockets.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    schedule = Schedule(**json.loads(document))
    with socket.create_server(("", schedule.port), backlog=1024) as listener:
        print("listening", flush=True)
        start_s = float(sys.stdin.readline())
        print(json.dumps(run_schedule(schedule, listener, start_s)), flush=True)


def _send(connection: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        connection.send(CHUNK)


def _retransmits(connection: socket.socket) -> int:
    """How many segments the kernel has sent again since the connection began."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return int(struct.unpack_from("I", info, TOTAL_RETRANS_AT)[0])


if __name__ == "__main__":
    main()
