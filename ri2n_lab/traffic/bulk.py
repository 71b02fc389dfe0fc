"""TCP or UDP from many hosts to many others at once, in phases: what each receiver got in one
window, equal for all.

`python -m ri2n_lab.traffic.bulk SCHEDULE` runs in a host's namespace, one process for all of its
connections; `BulkRun` starts one on every host of a lab. All count by CLOCK_MONOTONIC, which
namespaces share. (iperf3 needs two processes for each pair, and each of them has a clock of its
own: 240 pairs are too many.)
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
"""A receiver is woken per so many bytes, not per frame: that took most of the time in virtual
time.
"""
TAIL_S = 0.2  # sent after a window, so that nobody has stopped when it ends
PAUSE_S = 0.5  # between phases: what is on its way arrives
LEAD_S = 0.3  # from the word to start to the first connection
DATAGRAM_BYTES = 1400
DATAGRAM_FRAME_BYTES = DATAGRAM_BYTES + 42  # with its headers, as links count
MAX_AT_ONCE = 64
"""Datagrams that a late sender sends before it looks at what came."""
TCP_INFO_BYTES, TOTAL_RETRANS_AT = 104, 100
LINGER_NOT = struct.pack("ii", 1, 0)
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Schedule:
    """What one host does: in each phase it sends `streams` TCP streams to each of some hosts, for
    so many seconds.

    A phase is `warmup_s`, then the window of `window_s`. Hosts are known by their places in
    `addresses`. With `datagram_bps` it sends UDP at that rate (bits of frames per second, all
    receivers together) in place of TCP.
    """

    me: int
    addresses: list[str]
    to: list[list[int]]  # of each phase the hosts that this one sends to
    warmup_s: float
    window_s: float
    streams: int = 1
    congestion: str = "cubic"
    port: int = PORT
    datagram_bps: int = 0

    @property
    def phase_s(self) -> float:
        """From the beginning of a phase to the next one's."""
        return self.warmup_s + self.window_s + TAIL_S + PAUSE_S


@dataclass(frozen=True)
class PhaseResult:
    """One phase: bytes of payload that came in the window, by (sender, receiver), and what was sent
    again in it.

    `bins` are the bytes of all receivers together, per BIN_S from the beginning of the phase (empty
    where not known); `retransmits` None: not known.
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
        """Start it: in each phase all of its (sender, receiver) pairs of `hosts` at once.

        TCP, or UDP at the rates `datagram_bps` of each host (bits of frames per second, all its
        receivers together). Returns when all have been told to start; NotAvailable when a process
        does not.
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
        """Wait for the end; of each phase what was received. NotAvailable when a process failed."""
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
        """End it now; there will be no results."""
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
    """Do one host's part from `start_s` (CLOCK_MONOTONIC) on.

    Of each phase {"received": bytes in the window by sender, "bins": bytes per BIN_S,
    "retransmits": in the window}. OSError when a connection is refused.
    """
    host = _Host(schedule, listener, start_s)
    with contextlib.closing(host):
        for number in range(len(schedule.to)):
            host.phase(number)
        host.serve_until(start_s + len(schedule.to) * schedule.phase_s)
    return host.found


class _Host:
    """The connections of one host:

    those that it listens to for all of the time, and its own ones of a phase.
    """

    def __init__(self, schedule: Schedule, listener: socket.socket, start_s: float) -> None:
        self.selector = selectors.DefaultSelector()
        self._schedule, self._start_s = schedule, start_s
        self._bins = int(schedule.phase_s / BIN_S) + 1
        self.found: list[dict[str, Any]] = [
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
        before = sum(map(_sent_again, own))
        self.serve_until(begin_s + schedule.warmup_s + schedule.window_s)
        self.found[number]["retransmits"] = sum(map(_sent_again, own)) - before
        self.serve_until(begin_s + schedule.warmup_s + schedule.window_s + TAIL_S)
        for connection in own:
            self.selector.unregister(connection)
            # What waits to be sent must not be in the way of the next phase.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
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
        """Who it is; a stranger is sent away."""
        greeting = self._read(connection, GREETING.size)
        if not greeting:
            return
        magic, number, sender = (
            GREETING.unpack(greeting) if len(greeting) == GREETING.size else (b"", 0, 0)
        )
        if magic != MAGIC or number >= len(self.found) or sender >= len(self._schedule.addresses):
            self._close(connection)
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, WAKE_BYTES)
        self.selector.modify(
            connection, selectors.EVENT_READ, lambda one: self._count(one, number, sender)
        )

    def _send_datagrams(self, number: int, begin_s: float) -> None:
        """Each receiver in turn, evenly, until the window is over.

        One that waits in vain for room is lost.
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
                    and number < len(self.found)
                    and sender < len(self._schedule.addresses)
                ):
                    self._received(number, sender, len(data))

    def _count(self, connection: socket.socket, number: int, sender: int) -> None:
        self._received(number, sender, len(self._read(connection, len(CHUNK))))

    def _received(self, number: int, sender: int, length: int) -> None:
        schedule, found = self._schedule, self.found[number]
        after_s = time.monotonic() - self._start_s - number * schedule.phase_s
        found["bins"][max(0, min(self._bins - 1, int(after_s / BIN_S)))] += length
        if schedule.warmup_s <= after_s < schedule.warmup_s + schedule.window_s:
            found["received"][sender] += length

    def _read(self, connection: socket.socket, length: int) -> bytes:
        """What there is; empty, and the connection closed, when the sender is gone."""
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
    """The command line that `BulkRun` starts:

    says "listening", reads the time to start, prints JSON at the end.
    """
    (document,) = sys.argv[1:] if argv is None else argv
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (most, most)
    )  # all hosts with many streams are more than 1024 sockets
    schedule = Schedule(**json.loads(document))
    with socket.create_server(("", schedule.port), backlog=1024) as listener:
        print("listening", flush=True)
        start_s = float(sys.stdin.readline())
        print(json.dumps(run_schedule(schedule, listener, start_s)), flush=True)


def _send(connection: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        connection.send(CHUNK)


def _sent_again(connection: socket.socket) -> int:
    """Segments that the kernel has sent again, since the connection began (struct tcp_info,
    tcpi_total_retrans).
    """
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return int(struct.unpack_from("I", info, TOTAL_RETRANS_AT)[0])


if __name__ == "__main__":
    main()
