# SPDX-License-Identifier: Apache-2.0
"""Checks of messages before any parser: kinds that are never read, and wrong lengths."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.apps import openflow  # it has repaired parsers of os-ken
from ri2n_sdn.apps import wellformed as w

PARSERS = openflow.PARSERS


def message(kind: int, body: bytes, version: int = 6) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), 7) + body


def multipart(kind: int, body: bytes) -> bytes:
    return message(w.MULTIPART_REPLY, struct.pack("!HH4x", kind, 0) + body)


def port(number: int = 1, properties: bytes = b"", length: int | None = None) -> bytes:
    size = 40 + len(properties) if length is None else length
    return struct.pack("!IH2x6s2x16sII", number, size, bytes(6), b"eth0", 0, 4) + properties


def port_stats(properties: bytes = b"", length: int | None = None) -> bytes:
    size = 80 + len(properties) if length is None else length
    return struct.pack("!H2xIII8Q", size, 1, 0, 0, *range(8)) + properties


def packet_in(match: bytes, said: int | None = None) -> bytes:
    length = 4 + len(match) if said is None else said
    padding = bytes(-(4 + len(match)) % 8 + 2)
    head = struct.pack("!IHBBQ", 0, 0, 0, 0, 0) + struct.pack("!HH", 1, length)
    return message(w.PACKET_IN, head + match + padding + b"frame")


IN_PORT = struct.pack("!HBBI", 0x8000, 0, 4, 3)
ETHERNET = struct.pack("!HHI", 0, 32, 0) + bytes(24)
GOOD = {
    "hello": message(w.HELLO, struct.pack("!HHI", 1, 8, 1 << 6)),
    "hello of 1.0": message(w.HELLO, b"", version=1),
    "error": message(w.ERROR, struct.pack("!HH", 1, 2)),
    "echo": message(w.ECHO_REQUEST, b"abc"),
    "features": message(w.FEATURES_REPLY, struct.pack("!QIBBxxII", 1, 0, 254, 0, 0x4F, 0)),
    "barrier": message(w.BARRIER_REPLY, b""),
    "port status": message(w.PORT_STATUS, struct.pack("!B7x", 2) + port(properties=ETHERNET)),
    "packet-in": packet_in(IN_PORT),
    "description": multipart(w.DESCRIPTION, bytes(1056)),
    "ports": multipart(w.PORT_DESCRIPTION, port(1, ETHERNET) + port(2)),
    "port statistics": multipart(w.PORT_STATS, port_stats() * 3),
    "flows": multipart(w.FLOW_DESCRIPTION, b"whatever: apps.codec looks"),
}
BAD = {
    "the twelve bytes": bytes.fromhex("0600000c0000000700010000"),
    "of OpenFlow 1.3": message(w.HELLO, struct.pack("!HH", 1, 0), version=4),
    "hello, an element of 3 bytes": message(w.HELLO, struct.pack("!HHI", 1, 3, 0)),
    "hello, an element too long": message(w.HELLO, struct.pack("!HHI", 1, 9, 0)),
    "hello, cut off": message(w.HELLO, b"\0\1"),
    "ports, length 0": multipart(w.PORT_DESCRIPTION, port(length=0)),
    "ports, a property of 0": multipart(
        w.PORT_DESCRIPTION, port(properties=struct.pack("!HHI", 0, 0, 0))
    ),
    "ports, a property too long": multipart(
        w.PORT_DESCRIPTION, port(properties=struct.pack("!HHI", 0, 9, 0))
    ),
    "ports, a property that reaches into the next port": multipart(
        w.PORT_DESCRIPTION, port(properties=struct.pack("!HHI", 0, 16, 0)) + port(2)
    ),
    "ports, cut off": multipart(w.PORT_DESCRIPTION, port()[:39]),
    "port statistics, length 0": multipart(w.PORT_STATS, port_stats(length=0)),
    "port statistics, a property of 1": multipart(
        w.PORT_STATS, port_stats(struct.pack("!HHI", 0, 1, 0))
    ),
    "port statistics, cut off": multipart(w.PORT_STATS, bytes(79)),
    "description, short": multipart(w.DESCRIPTION, bytes(1055)),
    "multipart, cut off": message(w.MULTIPART_REPLY, b"\0\0"),
    "port status, cut off": message(w.PORT_STATUS, bytes(47)),
    "port status, a property of 0": message(
        w.PORT_STATUS, struct.pack("!B7x", 2) + port(properties=struct.pack("!HHI", 0, 0, 0))
    ),
    "packet-in, cut off": message(w.PACKET_IN, bytes(23)),
    "packet-in, cut off behind its match": packet_in(IN_PORT)[: -len(b"frame") - 1],
    "packet-in, a field too long": packet_in(struct.pack("!HBB", 0x8000, 0, 5) + bytes(4)),
    "packet-in, a field cut off": packet_in(IN_PORT + b"\0\0"),
    "packet-in, a match longer than it": packet_in(IN_PORT, said=4000),
}


@pytest.mark.parametrize("data", GOOD.values(), ids=GOOD)
def test_what_open_vswitch_says_is_read(data: bytes) -> None:
    assert w.check(data[0], data[1], data)


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_lengths_that_do_not_add_up_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes|cut off|longer"):
        w.check(data[0], data[1], data)


@pytest.mark.parametrize("kind", sorted({*range(36), 255} - {0, 1, 2, 3, 6, 10, 12, 19, 21}))
def test_what_nobody_asks_for_is_not_read(kind: int) -> None:
    assert not w.check(6, kind, message(kind, bytes(64)))


@pytest.mark.parametrize("kind", sorted({*range(20), 0xFFFF} - {0, 1, 4, 6, 7, 13}))
def test_replies_that_nobody_asks_for_are_not_read(kind: int) -> None:
    assert not w.check(6, w.MULTIPART_REPLY, multipart(kind, bytes(64)))


@pytest.mark.parametrize("kind", [4, 5, 6, 10, 12, 19])
def test_of_other_versions_little_is_read(kind: int) -> None:
    assert not w.check(4, kind, message(kind, bytes(64), version=4))


@given(
    st.sampled_from(sorted(GOOD)),
    st.lists(st.tuples(st.integers(8, 1200), st.integers(0, 255)), max_size=6),
    st.integers(0, 40),
)
def test_what_is_let_through_is_parsed_or_refused_and_never_for_ever(
    name: str, changes: list[tuple[int, int]], cut: int
) -> None:
    """Messages are mutated: the check refuses them, or os-ken's parser ends.

    It may end with a message or an exception.
    """
    data = bytearray(GOOD[name])
    for position, value in changes:
        data[position % len(data)] = value
    data = data[: max(8, len(data) - cut)]
    version, kind = GOOD[name][0], GOOD[name][1]
    try:
        if not w.check(version, kind, bytes(data)):
            return
    except ValueError:
        return
    parse: Any = PARSERS[version]
    try:
        parse(SimpleNamespace(id=1, address=("", 0)), version, kind, len(data), 7, bytes(data))
    except Exception as error:
        assert not isinstance(error, (MemoryError, RecursionError))


@pytest.mark.parametrize("version", [1, 3, 4, 5, 6])
def test_a_switch_of_every_version_may_greet(version: int) -> None:
    """Greetings of 1.0 and 1.2 have no elements: what follows their header has no meaning."""
    of_1_3_and_1_5 = struct.pack("!HHI", 1, 8, 1 << 4 | 1 << 6)
    data = message(w.HELLO, of_1_3_and_1_5, version)
    greeting = PARSERS[version](SimpleNamespace(), version, w.HELLO, len(data), 7, data)
    assert (greeting.version, greeting.xid) == (version, 7)
    assert [each.versions for each in greeting.elements] == ([] if version < 4 else [[4, 6]])
    for kind in (w.ECHO_REQUEST, w.ECHO_REPLY):
        data = message(kind, b"abc", version)
        assert PARSERS[version](SimpleNamespace(), version, kind, len(data), 7, data).data == b"abc"


def test_only_versions_with_a_parser_are_known() -> None:
    """Version 1.1 is in no os-ken, and 1.6 and higher are in no switch."""
    assert sorted(PARSERS) == [1, 3, 4, 5, 6]
