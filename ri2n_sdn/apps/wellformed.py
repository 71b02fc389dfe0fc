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

from ri2n_sdn.apps.codec import padded, read_fields, split_entries, type_lengths

__all__ = ["MAX_PORTS", "check"]

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
# Replies that are lists: the bytes of an entry's head, and where in it the entry's length is.
_LISTS = {PORT_STATS: (_PORT_STATS_BYTES, 0), PORT_DESCRIPTION: (_PORT_BYTES, 4)}
# Other replies that apps.codec reads, which checks lengths while it reads.
_READ_BY_CODEC = (FLOW_DESCRIPTION, GROUP_DESCRIPTION, GROUP_STATS)
_PACKET_IN_BYTES = 24


def check(version: int, kind: int, message: bytes) -> bool:
    """Whether a whole message, header included, is of a kind that this controller uses.

    Raises ValueError when a length in it is wrong.
    """
    if kind == HELLO:
        _items(message[_HEADER_BYTES:])
        return True
    if version != _OF_1_5:
        return kind in (ERROR, ECHO_REQUEST, ECHO_REPLY)
    if kind == MULTIPART_REPLY:
        _need(message, _MULTIPART_BYTES)
        (part,) = struct.unpack_from("!H", message, _HEADER_BYTES)
        body = message[_MULTIPART_BYTES:]
        if part in _LISTS:
            _entries(body, *_LISTS[part])
        elif part == DESCRIPTION and len(body) != _DESCRIPTION_BYTES:
            raise ValueError(f"a description of {len(body)} bytes")
        return part in (DESCRIPTION, *_LISTS, *_READ_BY_CODEC)
    if kind == PORT_STATUS:
        _need(message, 16 + _PORT_BYTES)
        _entries(message[16:], *_LISTS[PORT_DESCRIPTION])
        return True
    if kind == PACKET_IN:
        _need(message, _PACKET_IN_BYTES + 8)
        (length,) = struct.unpack_from("!H", message, _PACKET_IN_BYTES + 2)
        _need(message, _PACKET_IN_BYTES + padded(length) + 2)
        read_fields(message[_PACKET_IN_BYTES + 4 : _PACKET_IN_BYTES + length])
        return True
    if kind in (ROLE_REPLY, ROLE_STATUS):
        # No properties are asked for. os-ken would read lists of them.
        _need(message, _ROLE_BYTES)
        return len(message) == _ROLE_BYTES
    return kind in (ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REPLY, BARRIER_REPLY)


def _entries(body: bytes, head_bytes: int, length_at: int) -> None:
    """Check the lengths of a list of entries, and of the properties behind each entry's head.

    Each entry has its 16-bit length at `length_at`. Raises ValueError.
    """
    for entry in split_entries(body, head_bytes, length_at):
        _items(entry[head_bytes:])


def _items(raw: bytes) -> None:
    """Check the lengths of a list of properties. Raises ValueError."""
    for _ in type_lengths(raw):
        pass


def _need(message: bytes, size: int) -> None:
    if len(message) < size:
        raise ValueError(f"only {len(message)} bytes")
