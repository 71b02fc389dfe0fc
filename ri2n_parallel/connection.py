# SPDX-License-Identifier: Apache-2.0
"""`ParallelSocket`, the parallel connection that programs use like a socket."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import time
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from ri2n_parallel import caretaker
from ri2n_parallel.engine import SMALL_BYTES
from ri2n_parallel.link import LinkInfo
from ri2n_parallel.session import Session

if TYPE_CHECKING:
    from typing import Self  # of Python 3.11

__all__ = ["ParallelSocket"]

FILE_BYTES = 1 << 18
ZERO_COUNTERS = dict.fromkeys(
    (
        "resent_chunks",
        "resent_bytes",
        "links_lost",
        "links_rejoined",
        "links_suspected",
        "links_recovered",
        "addresses_refused",
    ),
    0,
)


class ParallelSocket:
    """Several TCP connections as one: a stream of bytes in order, over all links that work.

    As with a socket, one thread may send while another receives. Errors: TimeoutError,
    BlockingIOError (non-blocking), ConnectionResetError when the peer has aborted, BrokenPipeError
    after `shutdown`, and `ParallelError`s, of which AllLinksLost names every link and what became
    of it.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timeout_s: float | None = None
        self._files = 0
        self._closed = False
        caretaker.add(session)

    # ---- receiving

    def recv(self, max_bytes: int) -> bytes:
        """Receive up to `max_bytes`; empty at the end of the peer's stream."""
        session = self._session
        incoming = session.incoming
        with session.lock:
            deadline_s, message = self._message(max_bytes)
            if message is not None:
                return bytes(message)
            while True:
                if incoming.ready:
                    data = incoming.take(max_bytes)
                    session.taken()
                    return data
                if self._at_end() or not max_bytes:
                    return b""
                deadline_s = self._wait(deadline_s)

    def recv_into(self, buffer: Any, nbytes: int = 0) -> int:
        """As `recv`, into a writable buffer; how many bytes, 0 at the end of the stream.

        `nbytes` are received at most; 0: as many as the buffer has room for.
        """
        view = memoryview(buffer).cast("B")
        view = view[:nbytes] if nbytes else view
        session = self._session
        incoming = session.incoming
        with session.lock:
            deadline_s, message = self._message(len(view))
            if message is not None:
                view[: len(message)] = message
                return len(message)
            while True:
                if incoming.ready:
                    count = incoming.take_into(view)
                    session.taken()
                    return count
                if self._at_end() or not len(view):
                    return 0
                deadline_s = self._wait(deadline_s)

    # ---- sending

    def send(self, data: Any) -> int:
        """Send as much as goes without waiting, at least a part; how many bytes.

        Only when nothing goes at all, it waits until something does.
        """
        view = memoryview(data).cast("B")
        deadline_s: float | None = None
        with self._session.lock:
            while True:
                self._may_send()
                count = self._session.send_some(view)
                if count or not len(view):
                    return count
                deadline_s = self._wait(deadline_s, room=True)

    def sendall(self, data: Any) -> None:
        """Send everything.

        The time-out counts anew whenever a part has gone. Data may have been sent when it raises an
        error.
        """
        session = self._session
        deadline_s: float | None = None
        with session.lock:
            if (
                type(data) is bytes
                and 0 < len(data) <= SMALL_BYTES
                and not self._closed
                and session.send_small(data)
            ):
                return
            view = memoryview(data).cast("B")
            while True:
                self._may_send()
                count = session.send_some(view)
                if count == len(view):
                    return
                if count:
                    view, deadline_s = view[count:], None
                deadline_s = self._wait(deadline_s, room=True)

    def sendfile(self, file: IO[bytes], offset: int = 0, count: int | None = None) -> int:
        """Send `count` bytes of a regular file from `offset` on, or all; how many bytes.

        Afterwards the file's position is behind them. ValueError for a file in text mode.
        """
        if "b" not in getattr(file, "mode", "b"):
            raise ValueError("the file has to be opened in binary mode")
        total = 0
        while count is None or total < count:
            size = FILE_BYTES if count is None else min(FILE_BYTES, count - total)
            data = os.pread(file.fileno(), size, offset + total)
            if not data:
                break
            self.sendall(data)
            total += len(data)
        if file.seekable():
            file.seek(offset + total)
        return total

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until the peer has acknowledged everything that was sent.

        TimeoutError after `timeout_s`.
        """
        session = self._session
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with session.lock:
            asked = False
            while session.outgoing.waiting_bytes or (
                session.outgoing.end is not None and not session.outgoing.done
            ):
                self._raise_broken()
                asked = asked or session.ask()
                self._wait_until(deadline_s)

    # ---- the end

    def shutdown(self, how: int) -> None:
        """End one direction or both.

        SHUT_WR: the peer reads the end of the stream after what was sent. SHUT_RD: what is received
        is dropped. SHUT_RDWR: both.
        """
        with self._session.lock:
            self._open()
            if how in (socket.SHUT_WR, socket.SHUT_RDWR):
                self._session.finish()
            if how in (socket.SHUT_RD, socket.SHUT_RDWR):
                self._session.stop_reading()

    def close(self) -> None:
        """End both directions. What was sent is still delivered, in the background."""
        if self._closed or self._files:
            self._closed = True
            return
        self._closed = True
        self._leave()

    def abort(self) -> None:
        """Close at once; what was not delivered is lost.

        The peer is told before everything that waits to be sent.
        """
        self._closed = True
        with self._session.lock:
            if not self._session.closed:
                self._session.fail(
                    ConnectionAbortedError("the program has aborted the connection"), tell="aborted"
                )
                self._session.close()

    def detach_file(self) -> None:
        """Note that a file of `makefile` was closed."""
        self._files -= 1
        if self._closed and not self._files:
            self._leave()

    def _leave(self) -> None:
        with self._session.lock:
            self._session.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and not self._closed:
            self.abort()  # the peer must not take a part of the data for all of it
        self.close()

    def __del__(self) -> None:
        # Nothing more may be done here: the garbage collector may run while this thread holds a
        # lock. The caretaker closes the session.
        if not getattr(self, "_closed", True):
            self._session.abandoned = True

    # ---- as other sockets

    def settimeout(self, timeout_s: float | None) -> None:
        """Set how many seconds a call may wait; None: without end; 0: non-blocking.

        ValueError for a negative number.
        """
        if timeout_s is not None and timeout_s < 0:
            raise ValueError("a time-out cannot be negative")
        self._timeout_s = timeout_s

    def gettimeout(self) -> float | None:
        """The seconds that `settimeout` has set; None: without end."""
        return self._timeout_s

    def setblocking(self, flag: bool) -> None:
        """Let calls wait without end, or (False) not at all."""
        self._timeout_s = None if flag else 0.0

    def fileno(self) -> int:
        """A descriptor that is readable when there is something to do; -1 once it is closed.

        Call `recv` then, which may find nothing. The descriptor is never writable: after a `send`
        that raised BlockingIOError it is readable when there is room again.
        """
        session = self._session
        with session.lock:
            if session.closed:
                return -1
            session.watched = True
            session.nudge()
            return session.events.fileno()

    def makefile(
        self,
        mode: str = "r",
        buffering: int | None = None,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """A file over this connection, which stays open until all of its files are closed too.

        `mode` has the letters r, w and b; the other arguments are those of `open`. ValueError for
        other letters, and for a text file without a buffer.
        """
        if not set(mode) <= {"r", "w", "b"}:
            raise ValueError(f"invalid mode {mode!r} (only r, w, b allowed)")
        raw = _Raw(self, mode)
        self._files += 1
        size = io.DEFAULT_BUFFER_SIZE if buffering is None or buffering < 0 else buffering
        if not size:
            if "b" not in mode:
                raise ValueError("unbuffered streams must be binary")
            return raw
        reads, writes = "r" in mode or "w" not in mode, "w" in mode
        buffered: Any
        if reads and writes:
            buffered = io.BufferedRWPair(raw, raw, size)
        elif reads:
            buffered = io.BufferedReader(raw, size)
        else:
            buffered = io.BufferedWriter(raw, size)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    def getpeername(self) -> tuple[Any, ...]:
        """The peer's address on the control connection, or, if that is closed, on any link.

        OSError when there is no link.
        """
        session = self._session
        with session.lock:
            for link in filter(None, [session.control, *session.links.values()]):
                with contextlib.suppress(OSError):
                    name: tuple[Any, ...] = link.stream.getpeername()
                    return name
        raise OSError(errno.ENOTCONN, "there is no link")

    @property
    def links(self) -> list[LinkInfo]:
        """All links, by number; those that are down say why."""
        session = self._session
        with session.lock:
            both = {**session.down, **session.links}
            return [both[number].info() for number in sorted(both)]

    @property
    def counters(self) -> dict[str, int]:
        """What happened so far, by name: all of ZERO_COUNTERS, `duplicates` and some more."""
        session = self._session
        with session.lock:
            return {**ZERO_COUNTERS, **session.counters, "duplicates": session.incoming.duplicates}

    def __repr__(self) -> str:
        states = ", ".join(f"{link.number}:{link.state}" for link in self.links)
        return f"<ParallelSocket {states or 'no link'}>"

    # ---- inside

    def _open(self) -> None:
        if self._closed and not self._files:
            raise OSError(errno.EBADF, "the connection is closed")

    def _raise_broken(self) -> None:
        if self._session.broken:
            raise self._session.broken.with_traceback(None)

    def _may_send(self) -> None:
        self._open()
        if self._session.outgoing.end is not None:
            raise BrokenPipeError(errno.EPIPE, "the connection was shut down for sending")
        self._raise_broken()

    def _at_end(self) -> bool:
        """Whether nothing more can be received; raises the error of a session that is broken."""
        self._open()
        if self._session.incoming.ended or self._session.discards_input:
            return True
        self._raise_broken()
        return False

    def _message(self, max_bytes: int) -> tuple[float | None, memoryview | None]:
        """The deadline of this call, and the next message if it comes alone and whole."""
        session, timeout_s = self._session, self._timeout_s
        incoming = session.incoming
        if timeout_s == 0.0 or incoming.next != incoming.taken or not max_bytes or self._at_end():
            return None, None
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        return deadline_s, session.receive_small(max_bytes, timeout_s)

    def _wait(self, deadline_s: float | None, *, room: bool = False) -> float | None:
        """Wait once, as the time-out allows.

        Returns the deadline, which the next call of the same wait gets. A non-blocking connection
        looks once at what the sockets have, then raises BlockingIOError.
        """
        session, timeout_s = self._session, self._timeout_s
        pause_s = session.pause_s if room else None
        if timeout_s is None:
            session.wait(pause_s, room=room)
            return None
        if timeout_s == 0.0:
            if deadline_s is not None:
                if room:
                    session.starve()
                raise BlockingIOError(errno.EAGAIN, "nothing can be done now")
            session.poll()
            return 0.0
        now_s = time.monotonic()
        if deadline_s is None:
            deadline_s = now_s + timeout_s
        self._wait_until(deadline_s, pause_s, room=room)
        return deadline_s

    def _wait_until(
        self, deadline_s: float | None, pause_s: float | None = None, *, room: bool = False
    ) -> None:
        """Wait once, until the deadline or for `pause_s`; TimeoutError after the deadline."""
        if deadline_s is None:
            self._session.wait(pause_s, room=room)
            return
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._session.wait(left_s if pause_s is None else min(left_s, pause_s), room=room)


class _Raw(io.RawIOBase):
    """The unbuffered file below what `makefile` returns."""

    def __init__(self, connection: ParallelSocket, mode: str) -> None:
        self._connection, self._mode = connection, mode

    def readable(self) -> bool:
        return "r" in self._mode or "w" not in self._mode

    def writable(self) -> bool:
        return "w" in self._mode

    def readinto(self, buffer: Any) -> int | None:
        try:
            return self._connection.recv_into(buffer)
        except BlockingIOError:
            return None

    def write(self, data: Any) -> int | None:
        try:
            return self._connection.send(data)
        except BlockingIOError:
            return None

    def fileno(self) -> int:
        return self._connection.fileno()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._connection.detach_file()
