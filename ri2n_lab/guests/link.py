# SPDX-License-Identifier: Apache-2.0
"""The frames that a client, a guest's keeper and the agent in the guest send each other.

Many streams share one line, and each has a bounded number of bytes under way. A frame is
`magic kind channel length crc(of these) payload crc(of the payload)`, big-endian. Bytes that are no
frame are skipped. So a reader that begins in the middle of a frame, or that gets something else for
a while, understands the line again from the next frame on.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ri2n_sdn.errors import BadInput

__all__ = [
    "CHUNK_BYTES",
    "MAX_PAYLOAD",
    "WINDOW_BYTES",
    "Frame",
    "Kind",
    "Parser",
    "credit",
    "encode",
    "json_frame",
]

MAX_PAYLOAD = 256 << 10
"""No frame carries more bytes than this."""
CHUNK_BYTES = 16 << 10
"""How many bytes of a stream one frame carries at most."""
WINDOW_BYTES = 128 << 10
"""How many bytes of one stream may be under way.

The reader gives credit back for the bytes that it has passed on.
"""

MAGIC = b"\xf5\x52"
HEAD = struct.Struct(">2sBII")
CRC = struct.Struct(">I")
CREDIT = struct.Struct(">BI")


class Kind(IntEnum):
    """What a frame is about; the comments say who sends it, and what its payload is."""

    HELLO = 1  # agent: it listens
    ACK = 2  # agent: number of bytes that it took from the line
    PING = 3  # keeper: any bytes
    PONG = 4  # agent: the bytes of the PING
    FILE = 5  # keeper: number of a file in the shared folder that holds frames
    RUN = 10  # client: JSON {argv, module, cwd, env, tty, rows, columns}
    STDIN = 11  # client: bytes; an empty payload is the end of the stream
    STDOUT = 12  # agent: bytes
    STDERR = 13  # agent: bytes
    CREDIT = 14  # both: stream (0 stdin, 1 stdout, 2 stderr) and number of bytes
    SIGNAL = 15  # client: number of the signal, as text
    WINDOW = 16  # client: JSON {rows, columns} of its terminal
    KILL = 17  # keeper: the client went away
    EXIT = 18  # agent: JSON {code, guest_s, labs}
    START = 20  # the process that starts a keeper: JSON, see labs.start_keeper
    READY = 21  # keeper: the guest is up
    KEEP = 22  # the same process: the lab is up, the guest stays; also the answer
    END = 23  # client: end the guest; also the answer, when everything is removed
    ERROR = 24  # keeper: why the connection ends, one line


@dataclass(frozen=True)
class Frame:
    """One message; `channel` tells commands apart between keeper and agent, and is 0 elsewhere."""

    kind: Kind
    channel: int = 0
    payload: bytes = b""

    def json(self) -> dict[str, Any]:
        """The payload as a JSON object; BadInput when it holds none."""
        try:
            document = json.loads(self.payload)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise BadInput(f"a frame {self.kind.name} does not hold a JSON object")
        return document

    def number(self) -> int:
        """The payload as a decimal number; BadInput when it holds none."""
        if not self.payload.isdigit() or len(self.payload) > 10:
            raise BadInput(f"a frame {self.kind.name} does not hold a number")
        return int(self.payload)

    def credit(self) -> tuple[int, int]:
        """The stream and number of bytes of a frame CREDIT; BadInput when it is damaged."""
        if len(self.payload) != CREDIT.size or self.payload[0] > 2:
            raise BadInput("a frame CREDIT is damaged")
        stream, size = CREDIT.unpack(self.payload)
        return int(stream), int(size)


def encode(kind: Kind, channel: int = 0, payload: bytes = b"") -> bytes:
    """The bytes of a frame; BadInput when the payload is longer than MAX_PAYLOAD."""
    if len(payload) > MAX_PAYLOAD:
        raise BadInput(
            f"{len(payload)} bytes of arguments and environment: at most {MAX_PAYLOAD} go to a "
            "guest"
        )
    head = HEAD.pack(MAGIC, kind, channel, len(payload))
    return b"".join((head, CRC.pack(zlib.crc32(head)), payload, CRC.pack(zlib.crc32(payload))))


def json_frame(kind: Kind, document: dict[str, Any], channel: int = 0) -> bytes:
    """The bytes of a frame that holds JSON; BadInput as `encode`."""
    return encode(kind, channel, json.dumps(document).encode())


def credit(stream: int, size: int, channel: int = 0) -> bytes:
    """The bytes of a frame CREDIT: `size` bytes of `stream` were passed on."""
    return encode(Kind.CREDIT, channel, CREDIT.pack(stream, size))


class Parser:
    """Turns pieces of bytes, cut anywhere, into frames; it holds at most one unfinished frame."""

    def __init__(self) -> None:
        self.skipped = 0  # bytes that belonged to no valid frame
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes, and return the frames that end in them."""
        self._buffer += data
        frames: list[Frame] = []
        at, end = 0, len(self._buffer)
        while True:
            start = self._buffer.find(MAGIC, at)
            if start < 0:
                start = end - 1 if end > at and self._buffer[-1] == MAGIC[0] else end
            self.skipped += start - at
            at = start
            body = at + HEAD.size + CRC.size
            if end < body:
                break
            _, kind, channel, length = HEAD.unpack_from(self._buffer, at)
            (head_crc,) = CRC.unpack_from(self._buffer, at + HEAD.size)
            if head_crc != zlib.crc32(self._buffer[at : at + HEAD.size]) or length > MAX_PAYLOAD:
                at += 1
                self.skipped += 1
                continue
            after = body + length + CRC.size
            if end < after:
                break
            payload = bytes(self._buffer[body : body + length])
            (crc,) = CRC.unpack_from(self._buffer, body + length)
            if crc == zlib.crc32(payload) and kind in Kind._value2member_map_:
                frames.append(Frame(Kind(kind), channel, payload))
            else:
                self.skipped += after - at
            at = after
        del self._buffer[:at]
        return frames

    @property
    def held(self) -> int:
        """How many bytes of an unfinished frame it holds."""
        return len(self._buffer)
