# SPDX-License-Identifier: Apache-2.0
"""Laws of the two directions of a stream, against an obvious model.

Losses, duplicates, orders and deaths of links are random.
"""

from __future__ import annotations

import itertools
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_parallel import ProtocolError
from ri2n_parallel.frames import MAX_RANGES, pack_ranges, unpack_ranges
from ri2n_parallel.stream import MAX_CHUNKS, MAX_UNACKNOWLEDGED, Incoming, Outgoing
from tests.unit.parallel.worlds import noise

WINDOW = 1000
DATA = noise(5000)


class Wire:
    """A sender and a receiver with links between them.

    The links keep order, lose what is on them, and are slow at random.
    """

    def __init__(self, links: int) -> None:
        self.outgoing, self.incoming = Outgoing(WINDOW), Incoming(WINDOW)
        self.links: list[deque[tuple[int, bytes]]] = [deque() for _ in range(links)]
        # Acknowledgements, which may overtake each other.
        self.back: deque[tuple[int, int, bytes]] = deque()
        self.got = b""
        self.sent = 0

    def send(self, size: int, link: int) -> None:
        size = min(size, self.outgoing.room, len(DATA) - self.sent)
        if size > 0:
            chunk = self.outgoing.cut(DATA[self.sent : self.sent + size], link)
            self.sent += size
            self.links[link].append((chunk.sequence, chunk.data))
        assert self.outgoing.next <= self.outgoing.limit

    def arrive(self, link: int) -> None:
        if self.links[link]:
            before = self.incoming.next
            new = self.incoming.put(*self.links[link].popleft())
            assert new == (self.incoming.next > before)

    def acknowledge(self) -> None:
        self.back.append(
            (self.incoming.ack, self.incoming.limit, pack_ranges(self.incoming.ranges()))
        )

    def hear(self, place: int) -> None:
        if self.back:
            self.back.rotate(-(place % len(self.back)))
            ack, limit, ranges = self.back.popleft()
            before = self.outgoing.acked
            self.outgoing.acknowledge(ack, limit, unpack_ranges(ranges))
            assert self.outgoing.acked == max(before, ack)

    def die(self, link: int, *, swallows: bool) -> None:
        """What is on the link is lost, or arrives later all the same: the sender cannot know."""
        if swallows:
            self.links[link].clear()
        self.outgoing.lost(link)

    def again(self, link: int) -> None:
        chunk = self.outgoing.again()
        if chunk is not None:
            chunk.link = link
            self.links[link].append((chunk.sequence, chunk.data))

    def take(self, most: int, into: bool) -> None:
        if into:
            buffer = bytearray(most)
            count = self.incoming.take_into(memoryview(buffer))
            part = bytes(buffer[:count])
        else:
            part = self.incoming.take(most)
        assert len(part) <= most
        self.got += part

    def check(self) -> None:
        incoming = self.incoming
        assert DATA.startswith(self.got) and len(self.got) == incoming.taken
        assert incoming.next - incoming.taken == incoming.ready <= WINDOW
        ranges = incoming.ranges()
        assert all(first < end for first, end in ranges)
        assert all(one[1] < other[0] for one, other in itertools.pairwise(ranges))
        assert not ranges or (incoming.next < ranges[0][0] and ranges[-1][1] <= incoming.limit)
        assert incoming.has_early == bool(ranges)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "arrive", "ack", "hear", "die", "again", "take"]),
        st.integers(0, 400),
    ),
    max_size=150,
)


@given(STEPS, st.integers(1, 4))
def test_everything_arrives_once_and_in_order(steps: list[tuple[str, int]], links: int) -> None:
    wire = Wire(links)
    for what, number in steps:
        link = number % links
        if what == "send":
            wire.send(1 + number, link)
        elif what == "arrive":
            wire.arrive(link)
        elif what == "ack":
            wire.acknowledge()
        elif what == "hear":
            wire.hear(number)
        elif what == "die":
            wire.die(link, swallows=number % 3 > 0)
        elif what == "again":
            wire.again(link)
        else:
            wire.take(number, into=number % 2 > 0)
        wire.check()
    # Each link dies once more and loses what is on it; from then on nothing is lost.
    for link in range(links):
        wire.die(link, swallows=True)
    while len(wire.got) < len(DATA):
        before = len(wire.got), wire.sent, wire.incoming.next
        while wire.outgoing.has_again:
            wire.again(0)
        wire.send(300, 0)
        while wire.links[0]:
            wire.arrive(0)
        wire.take(WINDOW, into=False)
        wire.acknowledge()
        while wire.back:
            wire.hear(0)
        wire.check()
        assert (len(wire.got), wire.sent, wire.incoming.next) != before, "nothing goes on"
    assert wire.got == DATA
    assert not wire.outgoing.waiting_bytes and not wire.outgoing.done
    wire.outgoing.end = wire.outgoing.next
    wire.incoming.finish(len(DATA))
    assert wire.incoming.ended and wire.incoming.ack == len(DATA) + 1
    wire.outgoing.acknowledge(wire.incoming.ack, wire.incoming.limit)
    assert wire.outgoing.done


class Model:
    """What a receiver takes, refuses and has seen before, in the plainest way."""

    def __init__(self) -> None:
        self.next, self.early, self.duplicates = 0, set[tuple[int, int]](), 0

    def put(self, sequence: int, end: int, window: int) -> bool:
        """Take a chunk if it is legal; whether it is."""
        if end == sequence or end > window or sequence < self.next < end:
            return False
        if end <= self.next or (sequence, end) in self.early:
            self.duplicates += 1
            return True
        if any(first < end and sequence < last for first, last in self.early):
            return False
        self.early.add((sequence, end))
        while due := [each for each in self.early if each[0] == self.next]:
            self.early.remove(due[0])
            self.next = due[0][1]
        return True

    def ranges(self) -> list[tuple[int, int]]:
        runs: list[tuple[int, int]] = []
        for first, end in sorted(self.early):
            if runs and runs[-1][1] == first:
                runs[-1] = (runs[-1][0], end)
            else:
                runs.append((first, end))
        return runs


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=80))
def test_any_chunks_are_taken_or_refused_as_the_model_says(chunks: list[tuple[int, int]]) -> None:
    incoming, model = Incoming(64), Model()
    for sequence, size in chunks:
        end = sequence + size
        if model.put(sequence, end, 64):
            incoming.put(sequence, DATA[sequence:end])
        else:
            with pytest.raises(ProtocolError):
                incoming.put(sequence, DATA[sequence:end])
        assert (incoming.next, incoming.duplicates) == (model.next, model.duplicates)
        assert incoming.ranges() == model.ranges()[:MAX_RANGES]
    assert incoming.take(100) == DATA[: model.next]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=30), st.data())
def test_a_range_frees_exactly_the_chunks_it_covers(sizes: list[int], data: st.DataObject) -> None:
    outgoing = Outgoing(WINDOW)
    chunks = [outgoing.cut(bytes(size), 0) for size in sizes]
    first, end = sorted(
        data.draw(st.tuples(st.integers(0, outgoing.next), st.integers(0, outgoing.next)))
    )
    outgoing.acknowledge(0, WINDOW, [(first, end)])
    outgoing.lost(0)
    again = []
    while (chunk := outgoing.again()) is not None:
        chunk.link = 1
        again.append(chunk)
    starts = [chunk.sequence for chunk in chunks]
    kept = [
        chunk
        for chunk in chunks
        if first not in starts or not first <= chunk.sequence < chunk.end <= end
    ]
    assert again == kept


def test_what_was_put_back_goes_first() -> None:
    outgoing = Outgoing(WINDOW)
    one, two = outgoing.cut(b"one", 0), outgoing.cut(b"two", 0)
    assert outgoing.lost(0) == 6 and outgoing.lost(0) == 0
    assert outgoing.again() is one
    outgoing.put_back(one)
    assert outgoing.again() is one
    one.link = 1
    outgoing.acknowledge(3, WINDOW)
    outgoing.acknowledge(6, WINDOW)
    assert outgoing.again() is None and two.link < 0


def test_acknowledgements_that_overtook_each_other_take_nothing_back() -> None:
    outgoing = Outgoing(100)
    outgoing.cut(bytes(100), 0)
    assert outgoing.acknowledge(100, 300)
    assert not outgoing.acknowledge(50, 200)
    assert (outgoing.acked, outgoing.limit, outgoing.room) == (100, 300, 200)


@pytest.mark.parametrize(
    ("ack", "ranges"),
    [(11, []), (1 << 63, []), (0, [(5, 11)]), (0, [(0, 1 << 63)]), (10, [(10, 12)])],
)
def test_acknowledgements_of_what_was_never_sent(ack: int, ranges: list[tuple[int, int]]) -> None:
    outgoing = Outgoing(100)
    outgoing.cut(bytes(10), 0)
    with pytest.raises(ProtocolError, match="10 were sent"):
        outgoing.acknowledge(ack, 100, ranges)


def test_the_end_is_acknowledged_once_it_was_told() -> None:
    outgoing = Outgoing(100)
    outgoing.cut(bytes(10), 0)
    outgoing.end = 10
    outgoing.acknowledge(10, 100)
    assert not outgoing.done
    outgoing.acknowledge(11, 100)
    assert outgoing.done and outgoing.waiting_bytes == 0
    with pytest.raises(ProtocolError):
        outgoing.acknowledge(12, 100)


def test_what_waits_is_bounded_whatever_the_peer_allows() -> None:
    outgoing = Outgoing(1 << 60)
    assert outgoing.room == MAX_UNACKNOWLEDGED
    for _ in range(MAX_CHUNKS):
        assert outgoing.room
        outgoing.cut(b"x", 0)
    assert outgoing.room == 0
    outgoing.acknowledge(1, 1 << 60)
    assert outgoing.room == MAX_UNACKNOWLEDGED - (MAX_CHUNKS - 1)
    assert Outgoing(1 << 60, max_bytes=5).room == 5


def test_early_chunks_are_bounded_however_short() -> None:
    incoming = Incoming(1 << 20)
    for place in range(MAX_CHUNKS):
        incoming.put(1 + 2 * place, b"x")
    with pytest.raises(ProtocolError, match="before their turn"):
        incoming.put(1 + 2 * MAX_CHUNKS, b"x")


@pytest.mark.parametrize("end", [0, 4, 10, 19])
def test_an_end_before_what_came_is_refused(end: int) -> None:
    incoming = Incoming(100)
    incoming.put(0, bytes(5))
    incoming.put(10, bytes(10))
    with pytest.raises(ProtocolError, match="wrong"):
        incoming.finish(end)


def test_after_the_end_nothing_more_and_no_other_end() -> None:
    incoming = Incoming(100)
    incoming.put(0, b"abc")
    incoming.finish(5)
    incoming.finish(5)
    assert incoming.ack == 3
    with pytest.raises(ProtocolError, match="wrong"):
        incoming.finish(6)
    with pytest.raises(ProtocolError, match="5 are all"):
        incoming.put(3, b"def")
    incoming.put(3, b"de")
    assert incoming.ack == 6 and not incoming.ended
    assert incoming.take(3) == b"abc" and incoming.take(9) == b"de" and incoming.ended


def test_beyond_the_window() -> None:
    incoming = Incoming(100)
    incoming.put(0, bytes(100))
    with pytest.raises(ProtocolError, match=r"101.*100"):
        incoming.put(100, b"x")
    assert incoming.take(30) == bytes(30)
    assert incoming.limit == 130
    incoming.put(100, bytes(30))
    with pytest.raises(ProtocolError):
        incoming.put(1 << 63, b"x")
