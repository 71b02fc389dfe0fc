# SPDX-License-Identifier: Apache-2.0
"""One link of a session: a TCP connection, and what the kernel knows about its state."""

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
"""The kernel takes more while fewer bytes than this wait to be sent.

They are so many that it always has something to send, and so few that what is left of a transfer
can still go over another link.
"""
TCP_INFO = struct.Struct("=5B2xB24I4Q6IQ")
"""`struct tcp_info` of linux/tcp.h, up to `tcpi_delivery_rate`; then the places of its fields."""
APP_LIMITED, RTO_US, SEGMENT, UNACKED = 5, 6, 8, 10
RTT_US, BYTES_ACKED, UNSENT, DELIVERY_RATE = 21, 32, 36, 40
FRESH_S = 0.002
"""How old a measurement may be when a link is chosen; the bytes sent since then are added to it."""
SUSPECT_S, SUSPECT_RTOS = 0.2, 1.1
"""A link is suspect when nothing is acknowledged for longer than both.

The first is in seconds, the second in TCP's retransmission time-outs.
"""
SILENT_S = 1.0
"""The time that the answer to a ping may take."""
GAP_S = 0.2
"""After such a time without a measurement, progress may have been made and not been seen."""
MIN_RATE = 1e4
"""The lowest rate, in bytes/s, that is believed of a measurement."""
RATED_S = 2.0
"""A rate that was measured longer ago than this counts as unknown."""


@dataclass(frozen=True)
class LinkInfo:
    """A link as users see it.

    `state` is "up", "suspect" (nothing is acknowledged any more) or "down"; `why` says why it is
    not up. `local` and `remote` are the two ends, such as 10.0.0.1:7000.
    """

    number: int
    local: str
    remote: str
    state: str
    sent_bytes: int
    received_bytes: int
    why: str | None


def tune(stream: Stream) -> None:
    """Set the socket options that all links need."""
    stream.setblocking(False)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def place_name(address: tuple[object, ...] | str) -> str:
    """A socket's address for people: 10.0.0.1:7000 or [fd00::1]:7000."""
    if isinstance(address, str) or len(address) < 2:
        return str(address)
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def round_trip_s(stream: Stream) -> float:
    """The round trip that the kernel has measured on a connection; 0 when it knows none."""
    info = _tcp_info(stream)
    return info[RTT_US] * 1e-6 if info is not None else 0.0


class Link:
    """A connected, non-blocking socket; the session's lock is held in every call.

    `awaiting` bytes are received before the first frame: the server's answer to the greeting.
    """

    def __init__(self, number: int, stream: Stream, *, awaiting: int = 0) -> None:
        self.number, self.stream, self.awaiting = number, stream, awaiting
        self.fd = stream.fileno()
        self.is_tls = isinstance(stream, ssl.SSLSocket)
        self.state = UP
        self.why: str | None = None
        self.local, self.remote = place_name(stream.getsockname()), place_name(stream.getpeername())
        self.sent_bytes = self.received_bytes = 0
        # The beginning of a frame whose end has not been received.
        self.rest = b""
        # What the kernel did not take yet.
        self.out: deque[memoryview] = deque()
        self.load = LinkLoad(0.0, UNKNOWN_RATE, True)
        # Times of the last read, of the last ping, and when nothing was overdue last.
        self.read_s = self.pinged_s = self.progress_s = time.monotonic()
        # Whether it had so much to send lately that its rate is known.
        self.rated = False
        self._rated_s = 0.0
        # When the oldest ping without an answer was sent; before `read_s` when there is none.
        self.asked_s = 0.0
        # When the peer's TCP acknowledged something last.
        self._acked_s = self.read_s
        self._measured_s = -1.0
        self._acked = 0

    def info(self) -> LinkInfo:
        """The link as users see it."""
        return LinkInfo(
            number=self.number,
            local=self.local,
            remote=self.remote,
            state=self.state,
            sent_bytes=self.sent_bytes,
            received_bytes=self.received_bytes,
            why=self.why,
        )

    def send(self, head: bytes, payload: bytes = b"") -> None:
        """Send a frame: what the kernel takes now, the rest by `flush`.

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
        """As `send`, for one piece, when nothing waits in `out`."""
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
        """Send what the kernel did not take before; whether it has taken all of it.

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
                if self.is_tls:  # TLS takes one record at a time and may have room for more
                    continue
                return False
            self.out.popleft()
        return True

    def read_into(self, buffer: memoryview) -> int | None:
        """Receive into `buffer`, and return how many bytes: 0 at the end, None when there are none.

        OSError when the connection is gone.
        """
        try:
            count = self.stream.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        self.received_bytes += count
        return count

    def pending(self) -> int:
        """Bytes that TLS has read from the socket and nobody has taken; 0 without TLS."""
        return self.stream.pending() if isinstance(self.stream, ssl.SSLSocket) else 0

    def look(self, now_s: float) -> LinkLoad:
        """The load of this link, measured at most FRESH_S ago."""
        if now_s - self._measured_s > FRESH_S:
            self.measure(now_s)
        return self.load

    def measure(self, now_s: float) -> None:
        """Ask the kernel for backlog, rate and progress.

        TCP reports the rate at which it delivers. While the program is slower than the link, that
        is the rate of the program, so it is not used (APP_LIMITED). The first rate is taken as it
        is, later ones are averaged with what is known. An old rate is forgotten: a link that is
        thought to be slow gets nothing to send, and would never be measured again.
        """
        info = _tcp_info(self.stream)
        if info is None:
            return
        load = self.load
        acked = info[BYTES_ACKED]
        # TLS sends more bytes than it is given, so that acknowledged bytes do not count ours.
        waiting = (
            info[UNSENT] + info[UNACKED] * info[SEGMENT] if self.is_tls else self.sent_bytes - acked
        )
        load.backlog_bytes = max(0.0, float(waiting))
        if acked != self._acked:
            self._acked_s = now_s
        if acked != self._acked or not info[UNACKED] or now_s - self._measured_s > GAP_S:
            if acked != self._acked and info[DELIVERY_RATE] and not info[APP_LIMITED] & 1:
                load.rate += (max(MIN_RATE, float(info[DELIVERY_RATE])) - load.rate) * (
                    0.5 if self.rated else 1.0
                )
                self.rated, self._rated_s = True, now_s
            self._acked, self.progress_s = acked, now_s
        if self.rated and now_s - self._rated_s > RATED_S:
            self.rated = False
        self._measured_s = now_s

    def stuck(self, now_s: float) -> str | None:
        """Why the link is taken to be dead; None when it is not.

        It is when nothing was acknowledged for longer than TCP waits before it sends again. What
        TCP says that it has sent again does not count: without a carrier it cannot even do that.
        """
        self.measure(now_s)
        info = _tcp_info(self.stream)
        if info is None:
            return "its socket is gone"
        silent_s = now_s - self.progress_s
        if info[UNACKED] and silent_s > max(SUSPECT_S, SUSPECT_RTOS * info[RTO_US] * 1e-6):
            return f"nothing was acknowledged for {silent_s:.2f} s"
        return None

    def unanswered(self, now_s: float) -> str | None:
        """Why the link may be dead although TCP acknowledges: a ping has no answer; None if it has.

        So it is behind a relay that has failed, or when the peer's process stands still. A link
        that is slow and has not delivered the ping yet is not meant: its TCP still acknowledges.
        Call `measure` before.
        """
        since_s = now_s - self.asked_s
        if self.asked_s <= self.read_s or since_s < SILENT_S:
            return None
        if (self.out or self.load.backlog_bytes) and now_s - self._acked_s < SILENT_S:
            return None
        return f"the peer has not answered for {since_s:.2f} s"

    def close(self, why: str) -> None:
        """Close the socket; the link is down for good, for this reason."""
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
