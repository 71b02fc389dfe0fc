# SPDX-License-Identifier: Apache-2.0
"""Checks of a switch's messages before os-ken parses them: their kinds and the lengths in them.

os-ken 4.2.2 trusts the lengths inside a message. A length of 0 keeps some of its parsers in an
endless loop: a HELLO of twelve bytes, with an element of length 0, is enough. It also parses kinds
of messages that this controller never asks for. So a message is let through only if the controller
uses its kind, and if every item of every list in it lies within the list. Layouts are those of the
OpenFlow 1.5.1 specification, section 7.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

__all__ = ["MAX_PORTS", "check", "multipart_type"]

MAX_PORTS = 4096
"""The number of ports that a switch may have. One that describes more is disconnected."""

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REPLY = 0, 1, 2, 3, 6
PACKET_IN, PORT_STATUS, MULTIPART_REPLY, BARRIER_REPLY = 10, 12, 19, 21
ROLE_REPLY, ROLE_STATUS = 25, 30
DESCRIPTION, FLOW_DESCRIPTION, PORT_STATS, GROUP_STATS = 0, 1, 4, 6
GROUP_DESCRIPTION, PORT_DESCRIPTION = 7, 13
_OF_1_5 = 6
_HEADER_BYTES, _MULTIPART_BYTES = 8, 16
_PORT_BYTES, _PORT_STATS_BYTES, _DESCRIPTION_BYTES = 40, 80, 1056
_ROLE_BYTES = 24
_PACKET_IN_BYTES, _OXM_HEADER_BYTES = 24, 4


def check(version: int, kind: int, message: bytes) -> bool:
    """Whether a whole message, header included, is of a kind that this controller uses.

    Raises ValueError when a length in it is wrong.
    """
    if kind == HELLO:
        for _ in _items(message, _HEADER_BYTES, len(message)):
            pass
        return True
    if version != _OF_1_5:
        return kind in (ERROR, ECHO_REQUEST, ECHO_REPLY)
    if kind == MULTIPART_REPLY:
        check_body = _BODIES.get(multipart_type(message))
        if check_body is None:
            return False
        check_body(message[_MULTIPART_BYTES:])
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
    if kind in (ROLE_REPLY, ROLE_STATUS):
        # No properties are asked for. os-ken would read lists of them.
        _need(message, _ROLE_BYTES)
        return len(message) == _ROLE_BYTES
    return kind in (ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REPLY, BARRIER_REPLY)


def multipart_type(message: bytes) -> int:
    """The kind of a multipart reply. Raises ValueError when the message is cut off."""
    _need(message, _MULTIPART_BYTES)
    return int(struct.unpack_from("!H", message, _HEADER_BYTES)[0])


def _raw(body: bytes) -> None:
    """Check nothing: apps.codec reads these bodies, and checks lengths while it reads."""


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
    """Check the lengths of a list of entries, and of the properties behind each entry's head.

    Each entry has its 16-bit length at `length_at`. Raises ValueError.
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
    """The lengths of the items in a list of (16-bit type, 16-bit length, ...), padded to 8 bytes.

    Raises ValueError for an item that is longer than the list.
    """
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
