# SPDX-License-Identifier: Apache-2.0
"""Frames survive any cut and any garbage around them.

The parser never holds more than one frame.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_lab.guests.link import MAX_PAYLOAD, Frame, Kind, Parser, credit, encode, json_frame
from ri2n_sdn.errors import BadInput

FRAMES = st.builds(Frame, st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.binary(max_size=300))
CUTS = st.lists(st.integers(1, 40), max_size=200)


def encoded(frame: Frame) -> bytes:
    return encode(frame.kind, frame.channel, frame.payload)


def fed(parser: Parser, data: bytes, cuts: list[int]) -> list[Frame]:
    frames: list[Frame] = []
    for size in cuts:
        frames += parser.feed(data[:size])
        data = data[size:]
    return frames + parser.feed(data)


@given(st.lists(FRAMES, max_size=10), CUTS)
def test_every_frame_arrives_once_and_in_order_wherever_it_is_cut(
    frames: list[Frame], cuts: list[int]
) -> None:
    parser = Parser()
    assert fed(parser, b"".join(map(encoded, frames)), cuts) == frames
    assert (parser.skipped, parser.held) == (0, 0)


@given(st.lists(st.tuples(st.binary(max_size=80), FRAMES), max_size=6), CUTS)
def test_garbage_between_frames_is_skipped(
    parts: list[tuple[bytes, Frame]], cuts: list[int]
) -> None:
    parser = Parser()
    line = b"".join(garbage + encoded(frame) for garbage, frame in parts)
    assert fed(parser, line, cuts) == [frame for _, frame in parts]
    assert parser.skipped == sum(len(garbage) for garbage, _ in parts)


@given(FRAMES, st.data())
def test_a_damaged_frame_is_dropped_and_the_next_one_is_read(
    frame: Frame, data: st.DataObject
) -> None:
    damaged = bytearray(encoded(frame))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    following = Frame(Kind.PING, 7, b"next")
    assert Parser().feed(bytes(damaged) + encoded(following)) == [following]


@given(st.lists(st.binary(max_size=2000), max_size=20))
def test_what_is_held_of_any_garbage_is_bounded(chunks: list[bytes]) -> None:
    parser = Parser()
    for chunk in chunks:
        parser.feed(chunk)
        assert parser.held <= MAX_PAYLOAD + 64


def test_a_frame_that_is_too_long_is_refused_by_both_ends() -> None:
    with pytest.raises(BadInput, match="at most"):
        encode(Kind.RUN, 0, bytes(MAX_PAYLOAD + 1))
    assert len(Parser().feed(encode(Kind.RUN, 0, bytes(MAX_PAYLOAD)))) == 1


def test_payloads_are_checked() -> None:
    (frame,) = Parser().feed(json_frame(Kind.EXIT, {"code": 3}, 9))
    assert (frame.channel, frame.json()) == (9, {"code": 3})
    (frame,) = Parser().feed(credit(2, 70000, 4))
    assert frame.credit() == (2, 70000)
    assert Frame(Kind.SIGNAL, 0, b"15").number() == 15
    for damaged in (b"", b"[]", b"{", b"\xff", b"[" * 50000):
        with pytest.raises(BadInput):
            Frame(Kind.RUN, 0, damaged).json()
    for damaged in (b"", b"-1", b"x", b"9" * 11):
        with pytest.raises(BadInput):
            Frame(Kind.SIGNAL, 0, damaged).number()
    for damaged in (b"", b"\x05\0\0\0\0", b"\0\0\0\0"):
        with pytest.raises(BadInput):
            Frame(Kind.CREDIT, 0, damaged).credit()
