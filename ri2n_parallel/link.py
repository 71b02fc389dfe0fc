"""One TCP connection of a session:

frames out, frames in, and what the kernel knows about how it fares.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from ri2n_parallel.schedule import UNKNOWN_RATE, LinkLoad

__all__ = [
    "DOWN",
    "SUSPECT",
    "UP",
    "Link",
    "LinkInfo",
    "Stream",
    "place_name",
    "round_trip_s",
    "tune",
]

Stream: TypeAlias = "socket.socket | ssl.SSLSocket"

UP, SUSPECT, DOWN = "up", "suspect", "down"
UNSENT_BYTES = 1 << 17
"""The kernel takes more while fewer bytes than this wait to be sent: enough that it never runs dry,
and so few that what is left of a transfer can still go over another link.
"""
TCP_INFO = struct.Struct("=5B2xB24I4Q6IQ")  # linux/tcp.h; up to tcpi_delivery_rate
APP_LIMITED, RTO_US, SEGMENT, UNACKED, RTT_US, BYTES_ACKED, UNSENT, DELIVERY_RATE = (
    5,
    6,
    8,
    10,
    21,
    32,
    36,
    40,
)
FRESH_S = 0.002
"""How old what is known about a link may be when it is chosen; what was sent since is added."""
SUSPECT_S, SUSPECT_RTOS = 0.2, 1.1
SILENT_S = 1.0  # that an answer may take
GAP_S = 0.2  # since the kernel was asked: nothing is known about what was acknowledged in between
LEAST_RATE = 1e4
RATED_S = 2.0  # a rate that was measured longer ago says nothing


@dataclass(frozen=True)
class LinkInfo:
    """A link as users see it.

    `state` is "up", "suspect" (nothing is acknowledged any more) or "down".
    """

    number: int
    local: str
    remote: str
    state: str
    sent_bytes: int
    received_bytes: int
    why: str | None


def tune(stream: Stream) -> None:
    """The options that all links need."""
    stream.setblocking(False)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def place_name(address: tuple[object, ...] | str) -> str:
    """10.0.0.1:7000 or [fd00::1]:7000."""
    if isinstance(address, str) or len(address) < 2:
        return str(address)
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def round_trip_s(stream: Stream) -> float:
    """What the kernel knows of a connection's round trip."""
    info = _tcp_info(stream)
    return info[RTT_US] * 1e-6 if info is not None else 0.0


class Link:
    """A connected, non-blocking socket; its owner's lock is held in every call.

    `awaiting` bytes come before the first frame: the server's answer to this link's greeting.
    """

    def __init__(self, number: int, stream: Stream, *, awaiting: int = 0) -> None:
        self.number, self.stream, self.awaiting = number, stream, awaiting
        self.fd = stream.fileno()
        self.is_tls = isinstance(stream, ssl.SSLSocket)
        self.state = UP
        self.why: str | None = None
        self.local, self.remote = place_name(stream.getsockname()), place_name(stream.getpeername())
        self.sent_bytes = self.received_bytes = 0
        self.rest = b""  # a frame's beginning
        self.out: deque[memoryview] = deque()  # what the kernel did not take
        self.load = LinkLoad(0.0, UNKNOWN_RATE, True)
        self.read_s = self.pinged_s = self.progress_s = time.monotonic()
        self.rated = False  # whether it had so much to do lately that its rate is known
        self._rated_s = 0.0
        self.asked_s = 0.0  # since when a ping waits for its answer, if nothing has been read since
        self._moved_s = self.read_s  # when TCP's other end acknowledged something
        self._measured_s = -1.0
        self._acked = 0

    def info(self) -> LinkInfo:
        """What users see."""
        return LinkInfo(
            *(
                self.number,
                self.local,
                self.remote,
                self.state,
                self.sent_bytes,
                self.received_bytes,
                self.why,
            )
        )

    def send(self, head: bytes, payload: bytes = b"") -> None:
        """A frame: now what the kernel takes, the rest by `flush`.

        OSError when the connection is gone.
        """
        if self.out:
            self.out.append(memoryview(head))
            if payload:
                self.out.append(memoryview(payload))
            return
        if not payload or isinstance(self.stream, ssl.SSLSocket):
            self.send_alone(head + payload)
            return
        try:
            sent = self.stream.sendmsg((head, payload))
        except BlockingIOError:
            sent = 0
        self.sent_bytes += sent
        self.load.backlog_bytes += sent
        if sent < len(head) + len(payload):
            self.out.append(memoryview(head + payload)[sent:])
            self.load.writable = False

    def send_alone(self, frame: bytes) -> None:
        """As `send`, when nothing waits."""
        try:
            sent = self.stream.send(frame)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            sent = 0
        self.sent_bytes += sent
        self.load.backlog_bytes += sent
        if sent < len(frame):
            self.out.append(memoryview(frame)[sent:])
            self.load.writable = sent > 0 and self.is_tls and self.flush()

    def flush(self) -> bool:
        """Send what the kernel did not take before; whether all of it went.

        OSError when the connection is gone.
        """
        while self.out:
            part = self.out[0]
            try:
                sent = self.stream.send(part)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
            self.sent_bytes += sent
            self.load.backlog_bytes += sent
            if sent < len(part):
                self.out[0] = part[sent:]
                if self.is_tls:  # which takes one record at a time, with room for more
                    continue
                return False
            self.out.popleft()
        return True

    def read_into(self, buffer: memoryview) -> int | None:
        """Bytes that came: 0 at the end, None when there are none now.

        OSError when the connection is gone.
        """
        try:
            count = self.stream.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        self.received_bytes += count
        return count

    def pending(self) -> int:
        """Bytes that TLS has read and nobody has taken."""
        return self.stream.pending() if isinstance(self.stream, ssl.SSLSocket) else 0

    def look(self, now_s: float) -> LinkLoad:
        """Its load, not older than FRESH_S."""
        if now_s - self._measured_s > FRESH_S:
            self.measure(now_s)
        return self.load

    def measure(self, now_s: float) -> None:
        """Ask the kernel for backlog, rate and progress."""
        info = _tcp_info(self.stream)
        if info is None:
            return
        load = self.load
        acked = info[BYTES_ACKED]
        # TLS makes more bytes of ours than we can count.
        waiting = (
            info[UNSENT] + info[UNACKED] * info[SEGMENT] if self.is_tls else self.sent_bytes - acked
        )
        load.backlog_bytes = max(0.0, float(waiting))
        if acked != self._acked:
            self._moved_s = now_s
        if acked != self._acked or not info[UNACKED] or now_s - self._measured_s > GAP_S:
            if acked != self._acked and info[DELIVERY_RATE] and not info[APP_LIMITED] & 1:
                load.rate += (max(LEAST_RATE, float(info[DELIVERY_RATE])) - load.rate) * (
                    0.5 if self.rated else 1.0
                )
                self.rated, self._rated_s = True, now_s
            self._acked, self.progress_s = acked, now_s
        if self.rated and now_s - self._rated_s > RATED_S:
            self.rated = (
                False  # one that nothing is sent over any more would be thought slow for ever
            )
        self._measured_s = now_s

    def stuck(self, now_s: float) -> str | None:
        """Why it is taken to be dead:

        for longer than TCP waits before it sends again, nothing was acknowledged.
        """
        self.measure(now_s)
        info = _tcp_info(self.stream)
        if info is None:
            return "its socket is gone"
        silent_s = now_s - self.progress_s
        # Not by what TCP says it has sent again: without a carrier it cannot even do that.
        if info[UNACKED] and silent_s > max(SUSPECT_S, SUSPECT_RTOS * info[RTO_US] * 1e-6):
            return f"nothing was acknowledged for {silent_s:.2f} s"
        return None

    def unanswered(self, now_s: float) -> str | None:
        """Why it may be dead though TCP is content: pings arrive, or nothing is taken any more, and
        no answer comes.

        As behind a relay that has failed, or with a peer whose process stands still. Call `measure`
        before.
        """
        since_s = now_s - self.asked_s
        if self.asked_s <= self.read_s or since_s < SILENT_S:
            return None
        if (self.out or self.load.backlog_bytes) and now_s - self._moved_s < SILENT_S:
            return None  # it is slow, and the ping is not there yet
        return f"the peer has not answered for {since_s:.2f} s"

    def close(self, why: str) -> None:
        """It is down for good."""
        if self.state != DOWN:
            self.state, self.why = DOWN, why
            self.out.clear()
            self.stream.close()


def _tcp_info(stream: Stream) -> tuple[int, ...] | None:
    try:
        data = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
    except OSError:
        return None
    return TCP_INFO.unpack(data) if len(data) == TCP_INFO.size else None
