# SPDX-License-Identifier: Apache-2.0
"""Messages and raw bytes over one connection, with a time-out for each piece.

So a silent peer is an error, and no end waits for ever.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ri2n_parallel.copy.messages import (
    HEADER_BYTES,
    Failed,
    Message,
    PeerRefused,
    ProtocolViolation,
    Refused,
    Wait,
    decode,
    encode,
    length_of,
)
from ri2n_parallel.copy.names import printable

__all__ = ["PIECE_BYTES", "Channel", "Transport"]

PIECE_BYTES = 1 << 18
"""Raw bytes are handled in pieces of this size.

So a transfer needs this much memory, and not as much as a block has.
"""
DEADLINE_BYTES = 1 << 16
"""At least so many raw bytes must be received within the time-out."""
LINGER_BYTES = 1 << 14
"""The buffer for bytes that are dropped."""
WAIT_EVERY_S = 5.0
"""The time between two Wait messages while the disk works."""
MAX_WAITS = 720
"""Wait messages before one answer: an hour, at one every WAIT_EVERY_S."""
MAX_WAIT_S = 3600.0
"""The longest wait for one answer, when Wait messages come less often."""
MAX_FIRST_BYTES = 1024
"""The longest first message of a peer, which has not said yet who it is."""

Result = TypeVar("Result")
Kind = TypeVar("Kind", bound=Message)


class Transport(Protocol):
    """The methods that a connection needs: a ParallelSocket, or any stream socket, has them."""

    def sendall(self, data: Any, /) -> None: ...
    def recv_into(self, buffer: Any, /) -> int: ...
    def settimeout(self, value: float | None, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class Channel:
    """One conversation with a peer; a piece that takes longer than `timeout_s` is an error.

    Its methods raise TimeoutError when the peer is silent, ConnectionError when the connection is
    lost, ProtocolViolation for what is not this protocol, and Refused for what the peer refuses.
    """

    def __init__(self, transport: Transport, timeout_s: float) -> None:
        self.transport = transport
        self.timeout_s = timeout_s
        self.sent_bytes = 0
        self.received_bytes = 0
        self._heard_s = time.monotonic()
        self._header = memoryview(bytearray(HEADER_BYTES))

    @functools.cached_property
    def buffer(self) -> memoryview:
        """PIECE_BYTES of memory for raw bytes, made when it is needed first.

        So a peer that neither sends nor receives a file costs none.
        """
        return memoryview(bytearray(PIECE_BYTES))

    def send(self, message: Message) -> None:
        """Send one message."""
        self.send_raw(encode(message))

    def send_raw(self, data: bytes | memoryview) -> None:
        """Send bytes as they are."""
        self.transport.settimeout(self.timeout_s)
        self.transport.sendall(data)
        self.sent_bytes += len(data)

    def receive(self) -> Message:
        """The next message."""
        message = self.receive_or_end()
        if message is None:
            raise ConnectionResetError("the peer closed the connection")
        return message

    def receive_or_end(self) -> Message | None:
        """The next message; None when the peer has closed instead."""
        deadline_s = time.monotonic() + self.timeout_s
        if not self._fill(self._header, deadline_s, may_end=True):
            return None
        text = memoryview(bytearray(length_of(self._header)))
        self._fill(text, deadline_s)
        return decode(text)

    def expect_first(self, kind: type[Kind], within_s: float) -> Kind:
        """The first message of a peer, which must be of this kind and short.

        The whole message must be received within `within_s`. Errors: those of the class, of which
        ConnectionResetError when the peer closes the connection before.
        """
        deadline_s = time.monotonic() + min(within_s, self.timeout_s)
        if not self._fill(self._header, deadline_s, may_end=True):
            raise ConnectionResetError("the peer closed the connection")
        size = length_of(self._header)
        if size > MAX_FIRST_BYTES:
            raise ProtocolViolation(f"a first message of {size} bytes")
        text = memoryview(bytearray(size))
        self._fill(text, deadline_s)
        message = decode(text)
        if not isinstance(message, kind):
            raise ProtocolViolation(f"{type(message).__name__} in place of {kind.__name__}")
        return message

    def receive_answer(self) -> Message:
        """The next message that is not Wait; ProtocolViolation when the peer asks to wait too long.

        A slow disk at the other end is no reason to give up, so this may take MAX_WAIT_S.
        """
        end_s = time.monotonic() + MAX_WAIT_S
        for _ in range(MAX_WAITS):
            message = self.receive()
            if not isinstance(message, Wait):
                return message
            if time.monotonic() > end_s:
                break
        raise ProtocolViolation("the peer asks to wait for ever")

    def expect(self, kind: type[Kind]) -> Kind:
        """The next message, which must be of this kind.

        PeerRefused with the peer's reason when it is Failed, ProtocolViolation when it is another.
        """
        message = self.receive_answer()
        if isinstance(message, Failed):
            raise PeerRefused(message.code, printable(message.text))
        if not isinstance(message, kind):
            raise ProtocolViolation(f"{type(message).__name__} in place of {kind.__name__}")
        return message

    def receive_raw(self, view: memoryview) -> None:
        """Fill `view` with raw bytes."""
        for at in range(0, len(view), DEADLINE_BYTES):
            self._fill(view[at : at + DEADLINE_BYTES], time.monotonic() + self.timeout_s)

    def skip_raw(self, size_bytes: int) -> None:
        """Receive so many raw bytes and drop them."""
        while size_bytes:
            view = self.buffer[: min(size_bytes, len(self.buffer))]
            self.receive_raw(view)
            size_bytes -= len(view)

    def fail(self, error: Refused) -> None:
        """Tell the peer why this end refuses."""
        self.send(Failed(error.code, printable(str(error))))

    def while_waiting(self, work: Callable[[], Result]) -> Result:
        """Do `work` and return its result; the peer is told to wait meanwhile.

        The work is that of a disk, which may take longer than the peer's time-out.
        """
        results: list[Result] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="ri2n-copy-disk")
        thread.start()
        try:
            thread.join(WAIT_EVERY_S)
            while thread.is_alive():
                self.send(Wait())
                thread.join(WAIT_EVERY_S)
        finally:
            thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def quiet_s(self, now_s: float) -> float:
        """Seconds since something was received, at `now_s` of the monotonic clock."""
        return now_s - self._heard_s

    def linger(self, seconds: float, size_bytes: int) -> None:
        """Send nothing more, and drop what the peer sends, for a while and up to `size_bytes`.

        If this end closed at once, what the peer is still sending would be answered by a reset, and
        the peer might lose the last message.
        """
        self.transport.shutdown(socket.SHUT_WR)
        deadline_s, end_bytes = time.monotonic() + seconds, self.received_bytes + size_bytes
        dropped = bytearray(LINGER_BYTES)
        with contextlib.suppress(OSError):
            while self.received_bytes < end_bytes and (left_s := deadline_s - time.monotonic()) > 0:
                self.transport.settimeout(left_s)
                count = self.transport.recv_into(dropped)
                if not count:
                    return
                self._heard(count)

    def close(self) -> None:
        """End the conversation."""
        self.transport.close()

    def _fill(self, view: memoryview, deadline_s: float, may_end: bool = False) -> bool:
        """Fill `view` before the deadline.

        With `may_end`, False when the peer has closed the connection before the first byte.
        """
        filled = 0
        while filled < len(view):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"the peer said nothing for {self.timeout_s:g} s")
            self.transport.settimeout(left_s)
            try:
                count = self.transport.recv_into(view[filled:])
            except TimeoutError:
                raise TimeoutError(f"the peer said nothing for {self.timeout_s:g} s") from None
            if not count:
                if may_end and not filled:
                    return False
                raise ConnectionResetError("the peer closed the connection in the middle")
            filled += count
            self._heard(count)
        return True

    def _heard(self, count: int) -> None:
        self.received_bytes += count
        self._heard_s = time.monotonic()
