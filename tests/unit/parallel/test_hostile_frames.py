# SPDX-License-Identifier: Apache-2.0
"""Peers that break the rules of frames, or take nothing: their session alone ends, in bounds."""

from __future__ import annotations

import contextlib
import socket
import struct

import pytest

from ri2n_parallel import ProtocolError
from ri2n_parallel.engine import MAX_OUT
from ri2n_parallel.frames import ABORT, ACK, DATA, FIN, FRAME, MAX_CHUNK, PING, PONG
from ri2n_parallel.stream import MAX_UNACKNOWLEDGED
from tests.unit.parallel.raw import WINDOW, frame, hand_at, server_by_hand
from tests.unit.parallel.worlds import (
    PATIENCE_S,
    Clock,
    in_thread,
    noise,
    p_all,
    pair,
    resident_bytes,
    rounds,
    serves,
    wait_until,
)

MB = 1 << 20


# ---- frames


CHUNK = noise(100)
BROKEN = [
    (
        "chunk too long",
        FRAME.pack(DATA, MAX_CHUNK + 1, 0, 0, 0),
        "65537 bytes, but at most 65536 were agreed",
    ),
    ("chunk of 4 GB", FRAME.pack(DATA, (1 << 32) - 1, 0, 0, 0), "were agreed"),
    ("empty chunk", frame(DATA, 0), "without bytes"),
    ("beyond the window", frame(DATA, WINDOW + (1 << 23), CHUNK), "may send only"),
    ("far beyond it", frame(DATA, (1 << 64) - 100, CHUNK), "may send only"),
    ("overlapping the next", frame(DATA, 50, CHUNK) + frame(DATA, 0, CHUNK), "overlap"),
    ("overlapping what came", frame(DATA, 0, CHUNK) + frame(DATA, 50, CHUNK), "overlap"),
    ("overlapping early ones", frame(DATA, 200, CHUNK) + frame(DATA, 250, CHUNK), "overlap"),
    ("never sent", frame(ACK, ack=1), "acknowledges 1 bytes, but only 0 were sent"),
    (
        "never sent, by data",
        frame(DATA, 0, CHUNK, ack=5),
        "acknowledges 5 bytes, but only 0 were sent",
    ),
    (
        "never sent, in ranges",
        frame(ACK, payload=struct.pack("!QQ", 10, 20)),
        "acknowledges 20 bytes",
    ),
    ("ranges cut off", frame(ACK, payload=bytes(15)), "cut off"),
    ("too many ranges", frame(ACK, payload=bytes(33 * 16)), "kind 2 with 528 bytes"),
    ("kind 0", frame(0), "kind 0"),
    ("kind 7", frame(7), "kind 7"),
    ("kind 255", frame(255, payload=bytes(1000)), "kind 255"),
    ("ping with a payload", frame(PING, payload=b"x"), "kind 3 with 1 bytes"),
    ("pong with a payload", frame(PONG, payload=b"x"), "kind 4 with 1 bytes"),
    ("end with a payload", frame(FIN, payload=b"x"), "kind 5 with 1 bytes"),
    ("long abort", frame(ABORT, payload=bytes(201)), "kind 6 with 201 bytes"),
    (
        "end before what came",
        frame(DATA, 0, CHUNK) + frame(FIN, 99),
        "stream has 99 bytes, which is wrong",
    ),
    ("end before early data", frame(DATA, 100, CHUNK) + frame(FIN, 199), "wrong"),
    ("two ends", frame(FIN, 5) + frame(FIN, 6), "stream has 6 bytes, which is wrong"),
    ("data after the end", frame(FIN, 10) + frame(DATA, 0, CHUNK), "10 are all"),
]


@pytest.mark.parametrize("end", ["server", "client"])
@pytest.mark.parametrize(
    ("data", "why"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN]
)
def test_a_broken_rule_ends_this_session_only(end: str, data: bytes, why: str) -> None:
    with hand_at(end) as (sock, hand, listening), pair(1) as (near, far):
        hand.links[0].sendall(data)
        with pytest.raises(ProtocolError, match=why) as caught:
            while sock.recv(1000):
                pass
        assert str(caught.value).startswith("link 0 (127.0.0.1:") and "\n" not in str(caught.value)
        with pytest.raises(ProtocolError):
            sock.sendall(b"x")
        told = [payload for kind, *_, payload in hand.frames() if kind == ABORT]
        assert len(told) == 1 and len(told[0]) <= 200
        near.sendall(b"others go on")
        assert p_all(far, 12) == b"others go on"
        if listening is not None:
            serves(listening)


@pytest.mark.parametrize("end", ["server", "client"])
@pytest.mark.parametrize(
    "said", [frame(0), frame(200), frame(DATA, 1 << 40, b"x"), frame(FIN, payload=b"x")]
)
def test_the_control_connection_has_the_rules_of_links(end: str, said: bytes) -> None:
    with hand_at(end) as (sock, hand, _):
        hand.control.sendall(said)
        with pytest.raises(ProtocolError, match=r"^the control connection \(127\.0\.0\.1:\d+\): "):
            sock.recv(1)


@pytest.mark.parametrize("end", ["server", "client"])
def test_an_abort_says_why_and_cannot_write_to_the_terminal(end: str) -> None:
    with hand_at(end) as (sock, hand, _):
        hand.control.sendall(frame(ABORT, payload=b"out of \x1b[2Jmemory\n\xff")[:40])
        hand.control.sendall(frame(ABORT, payload=b"out of \x1b[2Jmemory\n\xff")[40:])
        with pytest.raises(ConnectionResetError, match=r"out of \?\[2Jmemory\?.$"):
            sock.recv(1)


@pytest.mark.parametrize("end", ["server", "client"])
def test_frames_byte_by_byte(end: str) -> None:
    with hand_at(end) as (sock, hand, _):
        data = (
            frame(DATA, 0, b"hello") + frame(PING, 7) + frame(DATA, 5, b" world") + frame(FIN, 11)
        )
        hand.links[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(data)):
            hand.links[0].sendall(data[place : place + 1])
        assert p_all(sock, 11) == b"hello world" and sock.recv(1) == b""
        answers = {}
        for kind, sequence, ack, _, _ in hand.frames():
            answers[kind] = sequence, ack
            if answers.get(ACK, (0, 0))[1] == 12 and PONG in answers:
                break
        assert answers[PONG][0] == 7


def test_duplicates_are_counted_and_harmless() -> None:
    with hand_at("server", 2) as (sock, hand, _):
        chunks = [frame(DATA, place * 100, noise(100, place)) for place in range(20)]
        for place in (0, 2, 1, 5, 4, 3, *range(6, 20)):
            hand.links[place % 2].sendall(chunks[place])
            hand.links[1 - place % 2].sendall(chunks[place])
        assert p_all(sock, 2000) == b"".join(noise(100, place) for place in range(20))
        wait_until("all came", lambda: sock.counters["duplicates"] == 20)


# ---- peers that take nothing


def test_a_peer_that_takes_everything_and_acknowledges_nothing() -> None:
    """Its limit is endless; what waits for its acknowledgement is bounded all the same."""
    with server_by_hand(2) as (near, hand):
        hand.links[0].sendall(frame(ACK, limit=1 << 62))
        taking = [in_thread(lambda link=link: _drain(hand.links[link])) for link in range(2)]  # type: ignore[misc]
        near.settimeout(PATIENCE_S)
        block, sent, before = bytes(MB), 0, resident_bytes()
        while sent < MAX_UNACKNOWLEDGED:
            sent += near.send(block)
        assert sent == MAX_UNACKNOWLEDGED
        assert near._session.outgoing.room == 0 and near._session.outgoing.limit == 1 << 62
        near.settimeout(0.1)
        with pytest.raises(TimeoutError):
            near.send(block)
        assert resident_bytes() - before < 2 * MAX_UNACKNOWLEDGED
        near.abort()
        assert sum(one.result() for one in taking) >= MAX_UNACKNOWLEDGED


def _drain(stream: socket.socket) -> int:
    total = 0
    with contextlib.suppress(OSError):
        while part := stream.recv(MB):
            total += len(part)
    return total


def test_a_peer_that_does_not_read() -> None:
    """What the kernel does not take stays with the program, except for chunks that were begun."""
    with server_by_hand(2) as (near, hand):
        hand.links[0].sendall(frame(ACK, limit=1 << 62))
        near.setblocking(False)
        wait_until("allowed", lambda: near._session.outgoing.limit == 1 << 62)
        block, sent = bytes(MB), 0
        with pytest.raises(BlockingIOError):
            while sent < MAX_UNACKNOWLEDGED:
                sent += near.send(block)
        kept = [sum(map(len, link.out)) for link in near._session.links.values()]
        assert all(each <= 2 * (MAX_CHUNK + FRAME.size) for each in kept)
        assert sent < MAX_UNACKNOWLEDGED


@pytest.mark.parametrize("question", [frame(PING, 0), frame(FIN, 11)], ids=["ping", "fin"])
@pytest.mark.parametrize("end", ["server", "client"])
def test_a_peer_that_asks_and_asks_and_reads_no_answer(end: str, question: bytes) -> None:
    with hand_at(end) as (sock, hand, _):
        link = sock._session.links[0]
        link.stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        sock.setblocking(False)
        questions = question * 4096

        def ask() -> bool:
            # This never blocks for ever: the session reads whatever happens.
            hand.links[0].sendall(questions)
            with contextlib.suppress(BlockingIOError):
                sock.recv(1)
            return len(link.out) >= MAX_OUT

        wait_until("the kernel takes no more answers", ask)
        before = resident_bytes()
        for _ in range(30):
            ask()  # what the kernel has taken since may leave some room
            assert len(link.out) <= MAX_OUT + 2
        assert resident_bytes() - before < 2 * MB
        hand.links[0].sendall(frame(DATA, 0, b"still there"))
        sock.setblocking(True)
        assert p_all(sock, 11) == b"still there"


def test_a_closed_connection_does_not_wait_for_ever(clock: Clock) -> None:
    """No program holds it, and the peer neither takes what was sent nor goes away."""
    with server_by_hand(1, link_timeout_s=PATIENCE_S) as (near, hand):
        near.sendall(b"never acknowledged")
        near.close()
        session = near._session
        with rounds(session) as wait:
            wait(2)
            clock.let_pass(0.9 * PATIENCE_S)
            wait(2)
            assert not session.broken and near.fileno() != -1
            clock.let_pass(0.2 * PATIENCE_S)
            wait_until("given up", lambda: near.fileno() == -1)
        told = next(payload for kind, *_, payload in hand.frames() if kind == ABORT)
        assert told.startswith(b"closed, and the peer")
