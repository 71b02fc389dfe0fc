# SPDX-License-Identifier: Apache-2.0
"""What both ends of `ri2n bench parallel` say to each other, over a socket or a ParallelSocket.

A request is a head, and with `TAKE` and `CHECK` the rest of its `length` bytes. TAKE: one byte
comes back when the receiving program has the last one. CHECK: a line of JSON comes back, with what
came and when. GIVE: so many bytes come back, written in units. ECHO: `unit` messages of `length`
bytes each, every one comes back.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
from collections.abc import Iterator
from typing import Any, Protocol

from ri2n_parallel import p_read

__all__ = [
    "BUFFER_BYTES",
    "CHECK",
    "ECHO",
    "GIVE",
    "HEAD",
    "TAKE",
    "Stream",
    "pieces",
    "read_exactly",
    "read_line",
    "serve_stream",
]

HEAD = struct.Struct("!cIQ")  # kind, unit or count, length with this head
TAKE, CHECK, GIVE, ECHO = b"T", b"C", b"G", b"E"
BUFFER_BYTES = 1 << 20
DONE = b"!"
MAX_LINE_BYTES = 1 << 16
ZEROS = memoryview(bytes(BUFFER_BYTES))

Json = dict[str, Any]


class Stream(Protocol):
    """What a socket and a ParallelSocket have in common."""

    def sendall(self, data: Any, /) -> None:
        """Send all of `data`."""

    def recv_into(self, buffer: Any, /) -> int:
        """Read what has come; 0 at the end of the stream."""


def pieces(kind: bytes, length: int) -> Iterator[memoryview]:
    """What a sender hands over, one after the other: a head and zeros.

    `length` bytes together, and at least the head.
    """
    first = HEAD.pack(kind, 0, length) + bytes(ZEROS[: min(length, BUFFER_BYTES) - HEAD.size])
    yield memoryview(first)
    left = length - len(first)
    while left > 0:
        yield ZEROS[: min(left, BUFFER_BYTES)]
        left -= BUFFER_BYTES


def read_exactly(stream: Stream, length: int) -> bytes:
    """Read so many bytes; fewer, or none, only at the end of the stream."""
    return p_read(stream, length)


def read_line(stream: Stream) -> Json:
    """Read a line of JSON, which nothing follows.

    Raises ConnectionError when the stream ends before the line does.
    """
    data = b""
    part = bytearray(4096)
    while not data.endswith(b"\n"):
        count = stream.recv_into(part)
        if not count or len(data) > MAX_LINE_BYTES:
            raise ConnectionError("the other end closed the connection before its answer")
        data += part[:count]
    found: Json = json.loads(data)
    return found


def serve_stream(stream: Stream) -> None:
    """Answer requests until the stream ends; ConnectionError when that is in the middle of one."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    while head := read_exactly(stream, HEAD.size):
        if len(head) < HEAD.size:
            raise ConnectionError("the stream ended inside a head")
        kind, unit, length = HEAD.unpack(head)
        if kind == TAKE:
            for _ in _parts(stream, length - HEAD.size, buffer):
                pass
            stream.sendall(DONE)
        elif kind == CHECK:
            stream.sendall(
                json.dumps(_checked(stream, length - HEAD.size, buffer)).encode() + b"\n"
            )
        elif kind == GIVE:
            while length > 0:
                stream.sendall(ZEROS[: min(length, unit, BUFFER_BYTES)])
                length -= min(unit, BUFFER_BYTES)
        elif kind == ECHO:
            for _ in range(unit):
                stream.sendall(read_exactly(stream, length))
        else:
            raise ConnectionError(f"unknown request {kind!r}")


def _parts(stream: Stream, length: int, buffer: memoryview) -> Iterator[memoryview]:
    while length > 0:
        count = stream.recv_into(buffer[: min(length, len(buffer))])
        if not count:
            raise ConnectionError(f"the stream ended {length} bytes too early")
        length -= count
        yield buffer[:count]


def _checked(stream: Stream, length: int, buffer: memoryview) -> Json:
    """The digest of what came, and the longest wait for the next bytes.

    In seconds, and the moments by CLOCK_MONOTONIC.
    """
    digest = hashlib.sha256()
    last = None
    stall_s = stall_at_s = 0.0
    for part in _parts(stream, length, buffer):
        now = time.monotonic()
        if last is not None and now - last > stall_s:
            stall_s, stall_at_s = now - last, last
        digest.update(part)
        last = time.monotonic()
    return {
        "sha256": digest.hexdigest(),
        "stall_s": stall_s,
        "stall_at_s": stall_at_s,
        "end_s": last,
    }
