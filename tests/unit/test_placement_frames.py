# SPDX-License-Identifier: Apache-2.0
"""Frames of servers and replies of switches, hostile ones too: which connection they tell."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ri2n_sdn.apps.placed_rows import deciding_row, read_placed
from ri2n_sdn.pipeline.layout import COOKIE_FOLLOWED, path_register
from ri2n_sdn.pipeline.placement import Connection, PlacedRow, cookie_of, read_syn_ack
from ri2n_sdn.pipeline.priorities import Placed
from tests.unit.placed_frames import DAMAGE, FOUR, IPV6, damaged, reply, stands_in, syn_ack


@pytest.mark.parametrize(
    ("source", "target", "options"), [("10.0.0.1", "10.0.0.2", 0), ("10.0.0.1", "10.0.0.2", 8)]
)
def test_an_answer_to_a_request_is_read(source: str, target: str, options: int) -> None:
    found = read_syn_ack(syn_ack(source, target, (80, 5000), options=options))
    assert found == (Connection(source, 80, target, 5000, "02:00:00:00:00:02"), "02:00:00:00:00:01")
    six = read_syn_ack(syn_ack("fd00::1", "fd00::2", (80, 5000)))
    assert six is not None and six[0] == Connection(
        "fd00::1", 80, "fd00::2", 5000, "02:00:00:00:00:02"
    )
    assert six[0].match["ipv6_src"] == "fd00::1" and six[0].match["eth_type"] == 0x86DD


def test_an_answer_that_may_not_be_fragmented_is_read_as_any_other() -> None:
    """Linux sends all of them so."""
    frame = syn_ack("10.0.0.1", "10.0.0.2", (80, 5000))
    assert read_syn_ack(frame[:20] + b"\x40\x00" + frame[22:]) == read_syn_ack(frame) is not None


def test_other_frames_are_nobodys_connection() -> None:
    good = syn_ack("10.0.0.1", "10.0.0.2", (80, 5000))
    for flags in (0x02, 0x10, 0x18, 0x11, 0x04):
        assert read_syn_ack(syn_ack("10.0.0.1", "10.0.0.2", (80, 5000), flags=flags)) is None
    longer = (
        syn_ack("10.0.0.1", "10.0.0.2", (80, 5000), options=8),
        syn_ack("fd00::1", "fd00::2", (80, 5000)),
    )
    for frame in (good, *longer):
        assert not any(read_syn_ack(frame[:length]) for length in range(len(frame)))
    # A later fragment has no ports.
    assert read_syn_ack(good[:20] + b"\x00\x01" + good[22:]) is None
    # An IP header of four bytes.
    assert read_syn_ack(good[:14] + b"\x41" + good[15:]) is None
    assert read_syn_ack(good[:23] + b"\x11" + good[24:]) is None


@given(st.binary(max_size=120), st.sampled_from([b"", b"\x08\x00E", b"\x86\xdd`"]))
def test_garbage_is_read_without_an_error(garbage: bytes, head: bytes) -> None:
    frame = bytes(12) + head + garbage if head else garbage
    found = read_syn_ack(frame)
    assert found is None or stands_in(frame, found[0])


@given(
    st.sampled_from(
        [("10.0.0.1", "10.0.0.2", 0), ("10.0.0.1", "10.0.0.2", 8), ("fd00::1", "fd00::2", 0)]
    ),
    DAMAGE,
)
def test_a_damaged_answer_is_read_as_it_stands_or_not_at_all(
    ends: tuple[str, str, int], damage: list[tuple[int, int]]
) -> None:
    source, target, options = ends
    frame = damaged(syn_ack(source, target, (80, 5000), options=options), damage)
    found = read_syn_ack(frame)
    assert found is None or (stands_in(frame, found[0]) and found[1] == frame[6:12].hex(":"))


def test_a_reply_is_read_and_rows_of_no_connection_are_left_out() -> None:
    body = reply(FOUR) + reply(FOUR, without=14) + reply(IPV6, packets=0)
    assert read_placed(body) == [
        PlacedRow(FOUR, (2, 3, 102), 61.0, 7),
        PlacedRow(IPV6, (2, 3, 102), 61.0, 0),
    ]


@pytest.mark.parametrize(
    ("place", "wrong"),
    [(0, 31), (0, 0xFFFF), (26, 3), (26, 0xFFF0), (62, 14 << 9 | 200), (74, 3), (74, 0xFFFF)],
    ids=[
        "short",
        "long",
        "match short",
        "match long",
        "field long",
        "statistics short",
        "statistics long",
    ],
)
def test_a_length_that_cannot_be_is_a_value_error(place: int, wrong: int) -> None:
    body = reply(FOUR)
    with pytest.raises(ValueError):
        read_placed(body[:place] + struct.pack("!H", wrong) + body[place + 2 :])


@given(st.binary(max_size=200))
def test_garbage_for_a_reply_is_a_value_error_or_no_connection(garbage: bytes) -> None:
    body = struct.pack("!H", 2 + len(garbage)) + garbage
    try:
        found = read_placed(body)
    except ValueError:
        return
    assert all(stands_in(body, each.connection) for each in found)


@given(st.sampled_from([FOUR, IPV6]), DAMAGE, st.integers(0, 200))
@example(IPV6, [(459, 1)], 0)  # a port of one byte
def test_a_damaged_reply_is_read_as_it_stands_or_a_value_error(
    connection: Connection, damage: list[tuple[int, int]], length: int
) -> None:
    body = damaged(reply(connection), damage)
    for data in (body, struct.pack("!H", max(2, min(length, len(body)))) + body[2:length]):
        try:
            found = read_placed(data)
        except ValueError:
            continue
        assert all(stands_in(data, each.connection) for each in found)


@given(st.binary(max_size=200))
def test_garbage_for_the_deciding_row_is_a_value_error_at_most(garbage: bytes) -> None:
    with contextlib.suppress(ValueError):
        deciding_row(struct.pack("!H", 2 + len(garbage)) + garbage)


def described(priority: int, cookie: int, *actions: bytes) -> bytes:
    """A row in an OFPMP_FLOW_DESC reply, with an empty match and no statistics."""
    instruction = struct.pack("!HH4x", 4, 8 + sum(map(len, actions))) + b"".join(actions)
    body = struct.pack("!xxBxHHHHHQ", 13, priority, 0, 0, 0, 0, cookie)
    body += struct.pack("!HH4x", 1, 4) + struct.pack("!HH4x", 0, 4) + instruction
    return struct.pack("!H", 2 + len(body)) + body


def test_the_row_of_the_highest_priority_decides() -> None:
    path, other = (3, 4, 102), (1, 1, 0)

    def to(key: tuple[int, int, int]) -> bytes:
        return struct.pack("!HHHBBI4x", 25, 16, 1, 1 << 1, 4, path_register(*key))

    fin = struct.pack("!HHIHHH2x", 0xFFFF, 16, 0x2320, 19, 1, 0)
    placed, learned = (
        described(Placed.BY_CONTROLLER.priority, cookie_of(path), to(path), fin),
        described(Placed.FOLLOWED.priority, COOKIE_FOLLOWED, fin, to(other)),
    )
    assert deciding_row(placed + learned) == deciding_row(learned + placed) == (True, path)
    assert deciding_row(learned) == (False, other)
    assert (
        deciding_row(b"") is None
        and deciding_row(described(Placed.FOLLOWED.priority, COOKIE_FOLLOWED, fin)) is None
    )
    for length in range(3, len(placed)):
        cut = struct.pack("!H", length) + placed[2:length]
        with contextlib.suppress(ValueError):
            assert deciding_row(cut) in (None, (True, path))
