# SPDX-License-Identifier: Apache-2.0
"""Greetings, answers and acknowledgements.

What was packed can be unpacked, and everything else is refused.
"""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_parallel import ProtocolError
from ri2n_parallel.frames import (
    ABORT,
    ACK,
    DATA,
    FIN,
    FRAME,
    GREETING,
    HELLO,
    JOIN,
    MAX_CHUNK,
    MAX_ENDPOINTS,
    MAX_RANGES,
    MAX_SEQUENCE,
    PING,
    PONG,
    REPLY,
    Endpoint,
    Greeting,
    Reply,
    max_payload_bytes,
    pack_ranges,
    unpack_ranges,
)

WINDOWS = st.integers(1, MAX_SEQUENCE - 1)
CHUNKS = st.integers(1, MAX_CHUNK)
TOKENS = st.binary(min_size=16, max_size=16)
ENDPOINTS = st.builds(Endpoint, st.ip_addresses().map(str), st.integers(1, 65535))
GREETINGS = st.builds(
    Greeting,
    st.sampled_from([HELLO, JOIN]),
    st.integers(0, 65535),
    CHUNKS,
    WINDOWS,
    TOKENS,
    st.integers(0, 2**32 - 1),
)
FEW = st.lists(ENDPOINTS, max_size=4)
MANY = st.tuples(FEW, st.integers(5, MAX_ENDPOINTS)).map(
    lambda of: (of[0] * MAX_ENDPOINTS)[: of[1]]
)
REPLIES = st.builds(Reply, st.integers(0, 255), CHUNKS, WINDOWS, TOKENS, (FEW | MANY).map(tuple))


def test_sizes_are_those_of_the_documentation() -> None:
    assert (GREETING.size, REPLY.size, FRAME.size) == (40, 36, 32)
    assert len(Reply(0, endpoints=(Endpoint("::1", 1),)).pack()) == 36 + 20


@given(GREETINGS)
def test_greetings(greeting: Greeting) -> None:
    data = greeting.pack()
    assert len(data) == GREETING.size and Greeting.unpack(data) == greeting


@given(REPLIES)
def test_replies(reply: Reply) -> None:
    data = reply.pack()
    assert REPLY.size + Reply.more(data[: REPLY.size]) == len(data)
    assert Reply.unpack(data) == reply


@given(st.binary(min_size=GREETING.size, max_size=GREETING.size))
def test_any_bytes_as_a_greeting(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="something else"):
        Greeting.unpack(b"X" + data[1:])


@given(GREETINGS, st.integers(0, GREETING.size - 1), st.integers(0, 255))
def test_a_changed_byte_of_a_greeting_is_refused_or_another_greeting(
    greeting: Greeting, at: int, value: int
) -> None:
    data = bytearray(greeting.pack())
    data[at] = value
    try:
        again = Greeting.unpack(bytes(data))
    except ProtocolError as error:
        assert "\n" not in str(error)
    else:
        assert again.pack() == bytes(data)


@given(REPLIES, st.data())
def test_changed_bytes_of_a_reply_are_refused_or_another_reply(
    reply: Reply, data: st.DataObject
) -> None:
    changed = bytearray(reply.pack())
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        size = REPLY.size + Reply.more(bytes(changed[: REPLY.size]))
        assert size <= REPLY.size + MAX_ENDPOINTS * 20
        changed.extend(bytes(max(0, size - len(changed))))
        again = Reply.unpack(bytes(changed[:size]))
    except ProtocolError as error:
        assert "\n" not in str(error)
    else:
        assert all(ipaddress.ip_address(each.address) and each.port for each in again.endpoints)
        assert again.status or (1 <= again.max_chunk_bytes <= MAX_CHUNK and again.window > 0)


@pytest.mark.parametrize(
    ("greeting", "why"),
    [
        (Greeting(0, 1, 1, 1, bytes(16)), "no sense"),
        (Greeting(4, 1, 1, 1, bytes(16)), "no sense"),
        (Greeting(HELLO, 1, 0, 1, bytes(16)), "no sense"),
        (Greeting(HELLO, 1, MAX_CHUNK + 1, 1, bytes(16)), "no sense"),
        (Greeting(HELLO, 1, 1, 0, bytes(16)), "no sense"),
        (Greeting(HELLO, 1, 1, MAX_SEQUENCE, bytes(16)), "no sense"),
    ],
)
def test_greetings_that_make_no_sense(greeting: Greeting, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        Greeting.unpack(greeting.pack())


def test_other_versions_are_named() -> None:
    data = bytearray(Greeting(HELLO, 1, 1, 1, bytes(16)).pack())
    data[4] = 9
    with pytest.raises(ProtocolError, match="version 9, this end speaks version 1"):
        Greeting.unpack(bytes(data))
    answer = bytearray(Reply(0).pack())
    answer[4] = 2
    with pytest.raises(ProtocolError, match="version 2, this end speaks version 1"):
        Reply.more(bytes(answer))
    with pytest.raises(ProtocolError, match=r"b'HTTP/1\.1'"):
        Reply.more(b"HTTP/1.1 400 Bad Request\r\nServer: something"[: REPLY.size])


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=50))
def test_ranges(ranges: list[tuple[int, int]]) -> None:
    payload = pack_ranges(ranges)
    assert len(payload) <= max_payload_bytes(ACK, 1)
    assert unpack_ranges(payload) == ranges[:MAX_RANGES]
    with pytest.raises(ProtocolError, match="cut off"):
        unpack_ranges(payload + b"x")


def test_how_long_payloads_may_be() -> None:
    assert max_payload_bytes(DATA, 500) == 500
    assert [max_payload_bytes(kind, 500) for kind in (PING, PONG, FIN)] == [0, 0, 0]
    assert max_payload_bytes(ACK, 500) == 512 and max_payload_bytes(ABORT, 500) == 200
    assert [max_payload_bytes(kind, 500) for kind in (0, 7, 255)] == [-1, -1, -1]
