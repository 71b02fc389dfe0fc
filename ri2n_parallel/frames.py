# SPDX-License-Identifier: Apache-2.0
"""Pure: the wire format of one connection: greetings first, then frames (docs/parallel.md).

Every frame carries an acknowledgement: its sender has received all bytes below `ack`, and the other
end may send those below `limit`.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ri2n_parallel.errors import ProtocolError

__all__ = [
    "ABORT",
    "ACK",
    "DATA",
    "EARLY",
    "EARLY_BYTES",
    "FIN",
    "FRAME",
    "GREETING",
    "MAX_CHUNK",
    "MAX_RANGES",
    "PING",
    "PONG",
    "REPLY",
    "Endpoint",
    "Greeting",
    "Reply",
    "max_payload_bytes",
    "pack_ranges",
    "unpack_ranges",
]

MAGIC = b"RI2P"
VERSION = 1
HELLO, JOIN, EARLY = 1, 2, 3
PROVE = 0x80
"""Added to the kind of a greeting when both ends have to prove what they know (proof.py).

NONCE_BYTES follow such a greeting, and nothing else is sent before the proofs.
"""
EARLY_BYTES = 1 << 16
"""Bytes of each direction that may go over the control connection before there is a link.

This is so after an EARLY greeting; the windows are never shorter then.
"""
(
    OK,
    OTHER_VERSION,
    UNKNOWN_SESSION,
    FULL,
    BAD_GREETING,
    TOKEN_WANTED,
    NO_TOKEN,
    TOKEN_WRONG,
    CHALLENGE,
) = range(9)
"""The status in an answer. CHALLENGE is no refusal: the server's NONCE_BYTES and proof follow."""
REASONS = {
    OTHER_VERSION: f"it does not speak version {VERSION}",
    UNKNOWN_SESSION: "it does not know this session (any more)",
    FULL: "it has as many connections as it allows",
    BAD_GREETING: "it did not understand the greeting",
    TOKEN_WANTED: "the server wants a token",
    NO_TOKEN: "the server does not prove that it knows the token: it was started without one",
    TOKEN_WRONG: "the server has another token",
}
SESSION_BYTES = 16

GREETING = struct.Struct("!4sBBHIQ16sI")
"""Magic, version, kind, parallelism, longest chunk, window, name of the session, link."""
REPLY = struct.Struct("!4sBBHIQ16s")
"""Magic, version, status, number of endpoints, longest chunk, window, name of the session."""
ENDPOINT = struct.Struct("!BxH16s")
"""4 or 6, port, address, which is filled up with zeros."""
MAX_ENDPOINTS = 64

FRAME = struct.Struct("!BxxxIQQQ")
"""Kind, length of the payload, sequence, ack, limit."""
DATA, ACK, PING, PONG, FIN, ABORT = range(1, 7)
"""The kinds of frames.

DATA: `sequence` is the place in the stream of the first byte of the payload. ACK: the payload are
ranges that were received before their turn. PING: `sequence` is a place in the stream; the peer
sends it back in its PONG and acknowledges as soon as it has all bytes below. FIN: `sequence` is the
length of the stream. ABORT: the payload is the reason.
"""
MAX_CHUNK = 1 << 16
RANGE = struct.Struct("!QQ")
MAX_RANGES = 32
MAX_REASON = 200
MAX_SEQUENCE = 1 << 62


@dataclass(frozen=True)
class Endpoint:
    """Where a server listens."""

    address: str
    port: int


@dataclass(frozen=True)
class Greeting:
    """The first bytes of the connecting side.

    HELLO and EARLY ask for a session with `parallelism` links; JOIN adds or replaces link number
    `link` of a session. After EARLY the first frames of the stream follow at once. With `proves`
    the proofs come first. `max_chunk_bytes` and `window` (bytes) are what this side takes.
    """

    kind: int
    parallelism: int
    max_chunk_bytes: int
    window: int
    session: bytes
    link: int = 0
    proves: bool = False

    def pack(self) -> bytes:
        """Its GREETING.size bytes."""
        kind = self.kind | (PROVE if self.proves else 0)
        numbers = (self.parallelism, self.max_chunk_bytes, self.window)
        return GREETING.pack(MAGIC, VERSION, kind, *numbers, self.session, self.link)

    @classmethod
    def unpack(cls, data: bytes) -> Greeting:
        """The greeting in GREETING.size bytes; ProtocolError when there is none in them."""
        magic, version, kind, parallelism, max_chunk_bytes, window, session, link = GREETING.unpack(
            data
        )
        if magic != MAGIC:
            raise ProtocolError(f"the peer speaks something else: it began with {data[:8]!r}")
        if version != VERSION:
            raise ProtocolError(
                f"the peer speaks version {version}, this end speaks version {VERSION}"
            )
        kind, proves = kind & ~PROVE, bool(kind & PROVE)
        if (
            kind not in (HELLO, JOIN, EARLY)
            or not 1 <= max_chunk_bytes <= MAX_CHUNK
            or not 0 < window < MAX_SEQUENCE
        ):
            raise ProtocolError("the peer's greeting makes no sense")
        return cls(kind, parallelism, max_chunk_bytes, window, session, link, proves)


@dataclass(frozen=True)
class Reply:
    """The answer to a greeting.

    After HELLO and EARLY, `endpoints` has one place for each link, in the order in which the server
    wants them used.
    """

    status: int
    max_chunk_bytes: int = MAX_CHUNK
    window: int = 1
    session: bytes = bytes(SESSION_BYTES)
    endpoints: tuple[Endpoint, ...] = ()

    def pack(self) -> bytes:
        """Its bytes: REPLY.size, and ENDPOINT.size for each endpoint."""
        numbers = (len(self.endpoints), self.max_chunk_bytes, self.window)
        head = REPLY.pack(MAGIC, VERSION, self.status, *numbers, self.session)
        parts = []
        for endpoint in self.endpoints:
            address = ipaddress.ip_address(endpoint.address)
            parts.append(
                ENDPOINT.pack(address.version, endpoint.port, address.packed.ljust(16, b"\0"))
            )
        return head + b"".join(parts)

    @staticmethod
    def more(head: bytes) -> int:
        """How many bytes follow these REPLY.size bytes; ProtocolError when they are no answer."""
        magic, version, _, count, _, _, _ = REPLY.unpack(head)
        if magic != MAGIC:
            raise ProtocolError(f"the peer speaks something else: it answered {head[:8]!r}")
        if version != VERSION:
            raise ProtocolError(
                f"the peer speaks version {version}, this end speaks version {VERSION}"
            )
        if count > MAX_ENDPOINTS:
            raise ProtocolError(f"the peer names {count} addresses, more than {MAX_ENDPOINTS}")
        return int(count) * ENDPOINT.size

    @classmethod
    def unpack(cls, data: bytes) -> Reply:
        """The answer in REPLY.size + more(...) bytes; ProtocolError for what makes no sense."""
        _, _, status, count, max_chunk_bytes, window, session = REPLY.unpack_from(data)
        if len(data) < REPLY.size + count * ENDPOINT.size:
            raise ProtocolError("the peer's answer is cut off")
        endpoints = []
        for place in range(count):
            version, port, packed = ENDPOINT.unpack_from(data, REPLY.size + place * ENDPOINT.size)
            if version not in (4, 6) or not port:
                raise ProtocolError("the peer names something that is no address")
            endpoints.append(
                Endpoint(str(ipaddress.ip_address(packed[: 4 if version == 4 else 16])), port)
            )
        if status == OK and (
            not 1 <= max_chunk_bytes <= MAX_CHUNK or not 0 < window < MAX_SEQUENCE
        ):
            raise ProtocolError("the peer's answer makes no sense")
        return cls(status, max_chunk_bytes, window, session, tuple(endpoints))


def max_payload_bytes(kind: int, max_chunk_bytes: int) -> int:
    """The longest payload of a kind of frame; -1 for an unknown kind."""
    if kind == DATA:
        return max_chunk_bytes
    if kind == ACK:
        return MAX_RANGES * RANGE.size
    if kind == ABORT:
        return MAX_REASON
    return 0 if kind in (PING, PONG, FIN) else -1


def pack_ranges(ranges: Sequence[tuple[int, int]]) -> bytes:
    """The payload of an ACK: the first MAX_RANGES of these (first, end)."""
    return b"".join(RANGE.pack(first, end) for first, end in ranges[:MAX_RANGES])


def unpack_ranges(payload: bytes) -> list[tuple[int, int]]:
    """The ranges (first, end) that `pack_ranges` packed; ProtocolError when one is cut off."""
    if len(payload) % RANGE.size:
        raise ProtocolError("an acknowledgement is cut off")
    return [(first, end) for first, end in RANGE.iter_unpack(payload)]
