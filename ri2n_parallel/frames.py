"""Pure: what two ends say to each other over one link: greetings first, then frames
(docs/parallel.md has the format).

Every frame carries an acknowledgement: all bytes below `ack` have come, and those below `limit` may
be sent.
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
    "pack_ranges",
    "payload_most",
    "unpack_ranges",
]

MAGIC = b"RI2P"
VERSION = 1
HELLO, JOIN, EARLY = 1, 2, 3
PROVE = 0x80
"""Added to the kind of a greeting: NONCE_BYTES follow it, and both ends prove what they know
(proof.py) before anything else is said.
"""
EARLY_BYTES = 1 << 16
"""With an EARLY greeting: bytes of each direction that may go over the control connection before
there is a link. The window is never less then.
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
"""After CHALLENGE, which is no refusal, follow the server's NONCE_BYTES and its proof."""
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

GREETING = struct.Struct(
    "!4sBBHIQ16sI"
)  # magic, version, kind, parallelism, chunk_most, window, session, link
REPLY = struct.Struct(
    "!4sBBHIQ16s"
)  # magic, version, status, count of endpoints, chunk_most, window, session
ENDPOINT = struct.Struct("!BxH16s")  # 4 or 6, port, address, filled up with zeros
MAX_ENDPOINTS = 64

FRAME = struct.Struct("!BxxxIQQQ")  # kind, length of payload, sequence, ack, limit
DATA, ACK, PING, PONG, FIN, ABORT = range(1, 7)
"""DATA: sequence is the place in the stream of the payload's first byte. ACK: payload are ranges
that came early. PING, PONG: sequence is any number, sent back. FIN: sequence is the length of the
stream. ABORT: payload says why.
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
    """The first bytes of the connecting side: HELLO or EARLY asks for a session, JOIN adds or
    replaces link `link`.

    After EARLY follow the first frames of the stream. With `proves` all that comes after the
    proofs.
    """

    kind: int
    parallelism: int
    chunk_most: int
    window: int
    session: bytes
    link: int = 0
    proves: bool = False

    def pack(self) -> bytes:
        kind = self.kind | (PROVE if self.proves else 0)
        return GREETING.pack(
            *(
                MAGIC,
                VERSION,
                kind,
                self.parallelism,
                self.chunk_most,
                self.window,
                self.session,
                self.link,
            )
        )

    @classmethod
    def unpack(cls, data: bytes) -> Greeting:
        """Of GREETING.size bytes.

        ProtocolError for what is none, with `status` for the answer as its second part.
        """
        magic, version, kind, parallelism, chunk_most, window, session, link = GREETING.unpack(data)
        if magic != MAGIC:
            raise ProtocolError(f"the peer speaks something else: it began with {data[:8]!r}")
        if version != VERSION:
            raise ProtocolError(f"the peer speaks version {version}, here is version {VERSION}")
        kind, proves = kind & ~PROVE, bool(kind & PROVE)
        if (
            kind not in (HELLO, JOIN, EARLY)
            or not 1 <= chunk_most <= MAX_CHUNK
            or not 0 < window < MAX_SEQUENCE
        ):
            raise ProtocolError("the peer's greeting makes no sense")
        return cls(kind, parallelism, chunk_most, window, session, link, proves)


@dataclass(frozen=True)
class Reply:
    """The answer to a greeting.

    `endpoints` in the order in which the server wants them used (HELLO only).
    """

    status: int
    chunk_most: int = MAX_CHUNK
    window: int = 1
    session: bytes = bytes(SESSION_BYTES)
    endpoints: tuple[Endpoint, ...] = ()

    def pack(self) -> bytes:
        numbers = (len(self.endpoints), self.chunk_most, self.window)
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
        """How many bytes follow these REPLY.size ones; ProtocolError when they are none of ours."""
        magic, version, _, count, _, _, _ = REPLY.unpack(head)
        if magic != MAGIC:
            raise ProtocolError(f"the peer speaks something else: it answered {head[:8]!r}")
        if version != VERSION:
            raise ProtocolError(f"the peer speaks version {version}, here is version {VERSION}")
        if count > MAX_ENDPOINTS:
            raise ProtocolError(f"the peer names {count} addresses, more than {MAX_ENDPOINTS}")
        return int(count) * ENDPOINT.size

    @classmethod
    def unpack(cls, data: bytes) -> Reply:
        """Of REPLY.size + more(...) bytes; ProtocolError for what makes no sense."""
        _, _, status, count, chunk_most, window, session = REPLY.unpack_from(data)
        if len(data) < REPLY.size + count * ENDPOINT.size:
            raise ProtocolError("the peer's answer is cut off")
        endpoints = []
        for place in range(count):
            version, port, packed = ENDPOINT.unpack_from(data, REPLY.size + place * ENDPOINT.size)
            if version not in (4, 6) or not port:
                raise ProtocolError("the peer names an address that is none")
            endpoints.append(
                Endpoint(str(ipaddress.ip_address(packed[: 4 if version == 4 else 16])), port)
            )
        if status == OK and (not 1 <= chunk_most <= MAX_CHUNK or not 0 < window < MAX_SEQUENCE):
            raise ProtocolError("the peer's answer makes no sense")
        return cls(status, chunk_most, window, session, tuple(endpoints))


def payload_most(kind: int, chunk_most: int) -> int:
    """The longest payload of a kind of frame, -1 for an unknown kind."""
    if kind == DATA:
        return chunk_most
    if kind == ACK:
        return MAX_RANGES * RANGE.size
    if kind == ABORT:
        return MAX_REASON
    return 0 if kind in (PING, PONG, FIN) else -1


def pack_ranges(ranges: Sequence[tuple[int, int]]) -> bytes:
    """The payload of an ACK: the first MAX_RANGES of (first, end)."""
    return b"".join(RANGE.pack(*each) for each in ranges[:MAX_RANGES])


def unpack_ranges(payload: bytes) -> list[tuple[int, int]]:
    """What `pack_ranges` packed; ProtocolError when it is not whole."""
    if len(payload) % RANGE.size:
        raise ProtocolError("an acknowledgement is cut off")
    return [(first, end) for first, end in RANGE.iter_unpack(payload)]
