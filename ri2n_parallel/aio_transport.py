# SPDX-License-Identifier: Apache-2.0
"""A ParallelSocket as an asyncio transport: the loop watches its descriptor and does its work.

The session makes the descriptor readable when data was received, when there is room that a sender
waits for, and when it fails. So nothing is tried again by time. A reader that is paused stops the
peer by the session's window.
"""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from typing import Any

from ri2n_parallel.connection import ParallelSocket
from ri2n_parallel.engine import SMALL_BYTES

__all__ = ["HIGH_BYTES", "LOW_BYTES", "ParallelTransport"]

HIGH_BYTES, LOW_BYTES = 1 << 20, 1 << 18
"""Bytes that wait for room: above the first writers are stopped, from the second on they go on."""
READ_BYTES = 1 << 18
MAX_READS = 8
"""Reads in a row, before other callbacks of the loop have their turn."""
JOIN_BYTES = 1 << 18
"""Small writes that wait are sent together, up to so many bytes."""


class ParallelTransport(asyncio.Transport):
    """A transport of asyncio; all of it runs in the thread of the loop.

    Errors of the connection go to the protocol's `connection_lost`.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: ParallelSocket, protocol: asyncio.BaseProtocol
    ) -> None:
        super().__init__()
        self._loop, self._sock, self._session = loop, sock, sock._session
        self._protocol: Any = protocol
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        self._high, self._low = HIGH_BYTES, LOW_BYTES
        self._paused_writing = self._paused_reading = False
        # Whether the peer's stream has ended, and whether `write_eof` has ended this end's stream.
        self._at_end = self._ends = False
        # Whether it was closed or is broken, and whether the protocol was told.
        self._closing = self._ended = False
        self._names = _names(sock)
        sock.setblocking(False)
        self._fd = sock.fileno()
        protocol.connection_made(self)
        loop.add_reader(self._fd, self._ready)

    def __repr__(self) -> str:
        return (
            "<ParallelTransport "
            f"{self._names.get('peername')}{' closing' if self._closing else ''}>"
        )

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)

    # ---- reading

    def is_reading(self) -> bool:
        """Whether received data goes to the protocol."""
        return not self._paused_reading and not self._closing

    def pause_reading(self) -> None:
        """Keep received data in the session, until the window is full."""
        self._paused_reading = True
        self._update_wakeups()

    def resume_reading(self) -> None:
        """Give received data to the protocol again."""
        self._paused_reading = False
        self._update_wakeups()

    # ---- writing

    def write(self, data: Any) -> None:
        """Send what goes now, and keep the rest until there is room.

        RuntimeError after `write_eof`.
        """
        if self._ends:
            raise RuntimeError("cannot write after write_eof")
        if self._closing:
            return
        if not self._out:
            try:
                if type(data) is bytes and len(data) <= SMALL_BYTES and self._send_small(data):
                    return
                data = self._send(memoryview(data).cast("B"))
            except OSError as error:
                self._lose(error)
                return
        if data:
            kept = memoryview(bytes(data))  # a copy: the caller may change its buffer
            self._out.append(kept)
            self._out_bytes += len(kept)
            self._pause_or_resume()

    def can_write_eof(self) -> bool:
        """True: a parallel connection can be closed in one direction."""
        return True

    def write_eof(self) -> None:
        """End this end's stream after what was written; reading goes on."""
        if not self._ends and not self._closing:
            self._ends = True
            if not self._out:
                self._finish()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set above how many waiting bytes writers are stopped, and from how many they go on.

        `low` is a quarter of `high` by default. ValueError unless high >= low >= 0.
        """
        if high is None:
            high = HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high, self._low = high, low
        self._pause_or_resume()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The limits (low, high) in bytes."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for room; those that wait for their acknowledgement do not count."""
        return self._out_bytes

    # ---- the end

    def is_closing(self) -> bool:
        """Whether it was closed or is broken."""
        return self._closing

    def close(self) -> None:
        """Take no more data; the connection is closed when everything that was written is sent."""
        if not self._closing:
            self._closing = True
            self._update_wakeups()
            if not self._out:
                self._loop.call_soon(self._end, None)

    def abort(self) -> None:
        """Close at once; what was not delivered is lost, and the peer is told."""
        if self._fd >= 0:
            self._sock.abort()
            self._lose(None)

    # ---- other methods of asyncio's transports

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol, which is told what happens."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol."""
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Information by name, `default` for an unknown name.

        "links" and "counters" are those of ParallelSocket, "peername" and "sockname" those of one
        connection, "socket" is the ParallelSocket.
        """
        if name == "links":
            return self._sock.links
        if name == "counters":
            return self._sock.counters
        return self._sock if name == "socket" else self._names.get(name, default)

    # ---- inside

    def _ready(self) -> None:
        """Do what is to be done: the descriptor is readable."""
        session = self._session
        try:
            with session.lock:
                session.poll()
            self._receive()
            if self._out:
                self._go_on()
            if session.broken and not (self.is_reading() and session.incoming.ready):
                # A peer that has ended its stream may leave: that is no error as long as nothing
                # waits to be sent to it.
                harmless = self._at_end and not self._out and not session.outgoing.waiting_bytes
                self._lose(None if harmless else session.broken)
        except OSError as error:
            self._lose(error)
        except Exception as error:
            self._loop.call_exception_handler(
                {
                    "message": "a protocol failed",
                    "exception": error,
                    "transport": self,
                    "protocol": self._protocol,
                }
            )
            self._sock.abort()
            self._lose(error)

    def _receive(self) -> None:
        """Give received data, and the end of the stream, to the protocol."""
        for _ in range(MAX_READS):
            if self._at_end or not self.is_reading():
                return
            try:
                data = self._sock.recv(READ_BYTES)
            except BlockingIOError:
                return
            if data:
                self._protocol.data_received(data)
                continue
            self._at_end = True
            self._update_wakeups()
            if not self._protocol.eof_received():
                self.close()

    def _go_on(self) -> None:
        """Send what waits: there may be room for it."""
        out = self._out
        while out:
            part = out[0]
            if len(part) < JOIN_BYTES and len(out) > 1:
                parts, total = [out.popleft()], len(part)
                while out and total < JOIN_BYTES:
                    parts.append(out.popleft())
                    total += len(parts[-1])
                part = memoryview(b"".join(parts))
                out.appendleft(part)
            rest = self._send(part)
            self._out_bytes -= len(part) - len(rest)
            if rest:
                out[0] = rest
                break
            out.popleft()
        self._pause_or_resume()
        if not out:
            if self._closing:
                self._end(None)
            elif self._ends:
                self._finish()

    def _send(self, view: memoryview) -> memoryview:
        """Send what goes now, and return the rest.

        After that the session makes the descriptor readable when there is room.
        """
        while view:
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                break
        return view

    def _send_small(self, data: bytes) -> bool:
        with self._session.lock:
            return not self._session.closed and self._session.send_small(data)

    def _finish(self) -> None:
        with self._session.lock:
            if not self._session.broken:
                self._session.finish()

    def _update_wakeups(self) -> None:
        """Let the descriptor become readable for received data, or for room and errors only."""
        session = self._session
        with session.lock:
            session.wakes_for_data = self.is_reading() and not self._at_end
            if not session.closed:
                session.nudge()

    def _pause_or_resume(self) -> None:
        if not self._paused_writing and self._out_bytes > self._high:
            self._paused_writing = True
            self._protocol.pause_writing()
        elif self._paused_writing and self._out_bytes <= self._low:
            self._paused_writing = False
            self._protocol.resume_writing()

    def _lose(self, error: BaseException | None) -> None:
        """End the transport with this error.

        The protocol is told later: it may be the caller, and is not prepared for a call now.
        """
        self._closing = True
        self._out.clear()
        self._out_bytes = 0
        self._unwatch()
        self._loop.call_soon(self._end, error)

    def _unwatch(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1

    def _end(self, error: BaseException | None) -> None:
        self._unwatch()
        if self._ended:
            return
        self._ended = True
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()


def _names(sock: ParallelSocket) -> dict[str, Any]:
    """Both addresses of the control connection, or, if that is closed, of any link."""
    session = sock._session
    with session.lock:
        for link in filter(None, [session.control, *session.links.values()]):
            try:
                return {
                    "peername": link.stream.getpeername(),
                    "sockname": link.stream.getsockname(),
                }
            except OSError:
                continue
    return {}
