"""Which messages from a switch are read at all, and whether the lengths inside them add up: asked
before any parser.

os-ken 4.2.2 follows lengths that a message states about itself. A length of 0 keeps some of its
parsers in a loop that nothing ends (twelve bytes are enough: a HELLO with an element of length 0),
and a kind of message that nobody here asks for is parsed all the same. So a message is let through
only if it is one of the few that are used, and every item of every list in it lies within the list.
Layouts are those of the OpenFlow 1.5.1 specification, section 7.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

__all__ = ["MAX_PORTS", "check", "multipart_type"]

MAX_PORTS = 4096
"""Ports that are read of one switch; one that says more of itself is given up."""

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REPLY, PACKET_IN, PORT_STATUS = (
    0,
    1,
    2,
    3,
    6,
    10,
    12,
)
MULTIPART_REPLY, BARRIER_REPLY = 19, 21
DESCRIPTION, PORT_STATS, GROUP_STATS, GROUP_DESCRIPTION, PORT_DESCRIPTION, FLOW_DESCRIPTION = (
    0,
    4,
    6,
    7,
    13,
    1,
)
_OF_1_5 = 6
_HEADER_BYTES, _MULTIPART_BYTES = 8, 16
_PORT_BYTES, _PORT_STATS_BYTES, _DESCRIPTION_BYTES = 40, 80, 1056
_PACKET_IN_BYTES, _OXM_HEADER_BYTES = 24, 4


def check(version: int, kind: int, message: bytes) -> bool:
    """Whether a whole message, header included, is to be read; False for one that nobody here asks
    for.

    Raises ValueError when a length in it does not add up.
    """
    if kind == HELLO:
        for _ in _items(message, _HEADER_BYTES, len(message)):
            pass
        return True
    if version != _OF_1_5:
        return kind in (ERROR, ECHO_REQUEST, ECHO_REPLY)
    if kind == MULTIPART_REPLY:
        what = multipart_type(message)
        look = _BODIES.get(what)
        if look is None:
            return False
        look(message[_MULTIPART_BYTES:])
        return True
    if kind == PORT_STATUS:
        _need(message, 16 + _PORT_BYTES)
        _entries(message[16:], _PORT_BYTES, 4)
        return True
    if kind == PACKET_IN:
        _need(message, _PACKET_IN_BYTES + 8)
        (length,) = struct.unpack_from("!H", message, _PACKET_IN_BYTES + 2)
        end = _PACKET_IN_BYTES + length
        _need(message, _PACKET_IN_BYTES + _padded(length) + 2)
        offset = _PACKET_IN_BYTES + 4
        while offset < end:
            if offset + _OXM_HEADER_BYTES > end:
                raise ValueError("a match field is cut off")
            offset += _OXM_HEADER_BYTES + message[offset + 3]
        if offset != end:
            raise ValueError("a match field is longer than its match")
        return True
    return kind in (ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REPLY, BARRIER_REPLY)


def multipart_type(message: bytes) -> int:
    """What kind of multipart reply it is. Raises ValueError when it is cut off."""
    _need(message, _MULTIPART_BYTES)
    return int(struct.unpack_from("!H", message, _HEADER_BYTES)[0])


def _raw(body: bytes) -> None:
    """apps.codec reads these, and checks as it reads."""


def _description(body: bytes) -> None:
    if len(body) != _DESCRIPTION_BYTES:
        raise ValueError(f"a description of {len(body)} bytes")


def _ports(body: bytes) -> None:
    _entries(body, _PORT_BYTES, 4)


def _port_stats(body: bytes) -> None:
    _entries(body, _PORT_STATS_BYTES, 0)


_BODIES: dict[int, Callable[[bytes], None]] = {
    DESCRIPTION: _description,
    FLOW_DESCRIPTION: _raw,
    GROUP_DESCRIPTION: _raw,
    GROUP_STATS: _raw,
    PORT_STATS: _port_stats,
    PORT_DESCRIPTION: _ports,
}


def _entries(body: bytes, head_bytes: int, length_at: int) -> None:
    """Check a list of entries, each with a 16-bit length at `length_at`, and the properties
    behind their heads.
    """
    offset = 0
    while offset < len(body):
        if offset + head_bytes > len(body):
            raise ValueError("an entry is cut off")
        (length,) = struct.unpack_from("!H", body, offset + length_at)
        if length < head_bytes or offset + length > len(body):
            raise ValueError(f"an entry of {length} bytes")
        for _ in _items(body, offset + head_bytes, offset + length):
            pass
        offset += length


def _items(message: bytes, offset: int, end: int) -> Iterator[int]:
    """The lengths of a list of (16-bit type, 16-bit length, ...) items, each padded to 8 bytes."""
    while offset < end:
        if offset + 4 > end:
            raise ValueError("an item is cut off")
        (length,) = struct.unpack_from("!H", message, offset + 2)
        if length < 4 or offset + length > end:
            raise ValueError(f"an item of {length} bytes")
        yield length
        offset += _padded(length)


def _need(message: bytes, size: int) -> None:
    if len(message) < size:
        raise ValueError(f"only {len(message)} bytes")


def _padded(length: int) -> int:
    return (length + 7) // 8 * 8
