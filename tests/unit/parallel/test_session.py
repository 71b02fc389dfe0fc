# SPDX-License-Identifier: Apache-2.0
"""What a session does as time passes: the test is the caretaker and sets the clock."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ri2n_parallel import ParallelError, ParallelSocket, caretaker
from ri2n_parallel import link as link_module
from ri2n_parallel.engine import TAKEN_PART
from ri2n_parallel.frames import ABORT, ACK, DATA, FIN, MAX_CHUNK, PING
from ri2n_parallel.link import (
    BYTES_ACKED,
    DELIVERY_RATE,
    RATED_S,
    SILENT_S,
    SUSPECT,
    TCP_INFO,
    UP,
    Link,
)
from ri2n_parallel.session import ANSWER_S, PING_S
from tests.unit.parallel.raw import WINDOW, frame, hand_at
from tests.unit.parallel.worlds import Clock, p_all, pair, wait_until

STEP_S = 0.55
"""So much time passes in each step, in which there is one ping."""
assert PING_S < STEP_S and ANSWER_S < STEP_S < SILENT_S < 2 * STEP_S


@contextmanager
def uncared(
    clock: Clock, links: int = 3
) -> Iterator[tuple[ParallelSocket, ParallelSocket, Callable[[float], None]]]:
    """(near, far, step), for which no caretaker cares.

    `step(seconds)` lets time pass, and then cares for near.
    """
    with pair(links) as (near, far):
        for end in (near, far):
            caretaker.remove(end._session)
        clock.stop()
        near._session._rejoin = None

        def step(seconds: float) -> None:
            clock.let_pass(seconds)
            with near._session.lock:
                near._session.care(clock.monotonic())

        yield near, far, step


def hears(end: ParallelSocket) -> None:
    """Read what has been received, and answer it."""
    with end._session.lock:
        end._session.poll()


def states(end: ParallelSocket) -> list[str]:
    return [link.state for link in end.links]


def test_a_link_that_is_silent_while_others_answer_is_suspected_until_it_answers(
    clock: Clock,
) -> None:
    with uncared(clock) as (near, far, step):
        mute = far._session.links[0].fd
        far._session.events.unregister(mute)  # nobody reads there
        for _ in range(2):
            step(STEP_S)
            hears(far)
        assert states(near) == [UP] * 3
        # Pings are on their way until the kernel acknowledges them, which may take a while.
        for _ in range(4):
            if SUSPECT not in states(near):
                step(STEP_S)
                hears(far)
        assert states(near) == [SUSPECT, UP, UP]
        assert str(near.links[0].why).startswith("the peer has not answered for ")
        far._session.events.register(mute)
        hears(far)
        step(0.25)
        assert states(near) == [UP] * 3
        assert near.counters["links_suspected"] == near.counters["links_recovered"] == 1


def test_with_nobody_heard_nobody_is_suspected(clock: Clock) -> None:
    """The peer is busy, or its process stands still."""
    with uncared(clock) as (near, _, step):
        for _ in range(20):
            step(STEP_S)
        assert states(near) == [UP] * 3 and not near._session.counters


def test_a_suspect_link_is_given_up_when_it_stays_silent(clock: Clock) -> None:
    with uncared(clock) as (near, far, step):
        far._session.events.unregister(far._session.links[0].fd)
        with near._session.lock:
            near._session.suspect(near._session.links[0], "as if")
            near._session.links[0].asked_s = near._session.links[0].read_s + 0.001
        near._session.links[0].measure = lambda now_s: None  # type: ignore[method-assign]
        for _ in range(5):
            step(STEP_S)
            hears(far)
        assert states(near) == ["down", UP, UP] and near.counters["links_lost"] == 1


def test_suspect_links_are_kept_as_long_as_no_other_is_up(clock: Clock) -> None:
    """A network that stands still for seconds takes no link for good."""
    with uncared(clock, 2) as (near, far, step):
        links = list(near._session.links.values())
        for link in links:
            link.stuck = lambda now_s: "as if"  # type: ignore[method-assign]
        for _ in range(5):
            step(STEP_S)
        assert states(near) == [SUSPECT] * 2
        for link in links:
            del link.stuck
        hears(far)
        step(0.25)
        assert states(near) == [UP] * 2 and not near.counters["links_lost"]


def test_a_slow_link_is_not_a_silent_one(clock: Clock) -> None:
    """The ping waits behind data that the peer still takes."""
    with uncared(clock, 1) as (near, _, _step):
        link = near._session.links[0]
        now_s = clock.monotonic()
        link.read_s, link.asked_s = now_s, now_s + 0.1
        link.out.append(memoryview(b"what the kernel did not take"))
        link._acked_s = now_s + SILENT_S
        assert link.unanswered(now_s + 1.9 * SILENT_S) is None
        assert link.unanswered(now_s + 2.1 * SILENT_S) is not None
        link.out.clear()
        link.load.backlog_bytes = 0.0
        assert link.unanswered(now_s + 1.9 * SILENT_S) is not None


def test_a_rate_that_was_measured_long_ago_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that was slow once would get nothing to send, and would never be measured again."""
    info = [0] * len(TCP_INFO.unpack(bytes(TCP_INFO.size)))
    info[BYTES_ACKED], info[DELIVERY_RATE] = 1000, 50_000
    monkeypatch.setattr(link_module, "_tcp_info", lambda _: info)
    near, far = socket.socketpair()
    with near, far:
        link = Link(0, near)
        link.measure(10.0)
        assert link.rated and link.load.rate == 50_000
        link.measure(10.0 + RATED_S)
        assert link.rated
        link.measure(10.1 + RATED_S)
        assert not link.rated


def test_a_closed_connection_is_kept_as_long_as_the_peer_takes_something(clock: Clock) -> None:
    with uncared(clock, 1) as (near, _, step):
        session = near._session
        most_s = session.link_timeout_s
        near.sendall(bytes(1000))
        near.close()
        step(0.25)
        for acked in (300, 600):
            step(0.9 * most_s)
            assert not session.closed
            session.outgoing.acknowledge(acked, session.outgoing.limit)
            step(0.25)
        step(0.9 * most_s)
        assert not session.closed
        step(0.2 * most_s)
        assert session.closed and isinstance(session.broken, ParallelError)
        assert "the peer took nothing for" in str(session.broken)


def test_who_asks_is_told_as_soon_as_everything_has_come() -> None:
    """The peer does not wait for the next acknowledgement that is due."""
    with hand_at("server", 2) as (sock, hand, _):
        caretaker.remove(sock._session)
        wait_until("links", lambda: len(sock.links) == 2)
        hand.links[1].sendall(frame(PING, 11))
        hears(sock)
        hand.links[0].sendall(frame(DATA, 0, b"hello world"))
        assert p_all(sock, 11) == b"hello world"
        for kind, _, ack, _, _ in hand.frames():
            assert kind == ACK and ack == 11
            break
        else:
            pytest.fail("no word")


def test_the_end_is_told_again_when_its_link_dies() -> None:
    with hand_at("server", 2) as (sock, hand, _):
        caretaker.remove(sock._session)
        wait_until("links", lambda: len(sock.links) == 2)
        hand.links[1].sendall(frame(DATA, 0, b"x"))
        assert p_all(sock, 1) == b"x"
        sock.shutdown(socket.SHUT_WR)
        assert FIN in (kind for kind, *_ in hand.frames(1)), (
            "answers go where the last question came from"
        )
        hand.links[1].close()

        def is_lost() -> bool:
            hears(sock)
            return sock.counters["links_lost"] == 1

        wait_until("it is lost", is_lost)
        sock.abort()
        assert [kind for kind, *_ in hand.frames(0)] == [FIN, ABORT]


def test_a_sender_that_waits_hears_when_a_quarter_of_the_window_is_free() -> None:
    """When the window is full, nothing is received that would be acknowledged anyway."""
    with hand_at("server") as (sock, hand, _):
        session = sock._session
        caretaker.remove(session)
        for first in range(0, WINDOW, MAX_CHUNK):
            hand.links[0].sendall(frame(DATA, first, bytes(MAX_CHUNK)))
            hears(sock)

        def has_come() -> bool:
            hears(sock)
            return session.incoming.next == WINDOW

        wait_until("all has come", has_come)
        quarter = WINDOW // TAKEN_PART
        p_all(sock, quarter - 1)
        assert session._sent_limit == WINDOW, "too little to speak of"
        p_all(sock, 1)
        assert session._sent_limit == WINDOW + quarter
        said = next(
            (kind, ack, limit) for kind, _, ack, limit, _ in hand.frames() if limit > WINDOW
        )
        assert said == (ACK, WINDOW, WINDOW + quarter)


@pytest.mark.parametrize("messages", [1, 2])
def test_data_tell_how_far_their_receiver_may_send(messages: int) -> None:
    """They do so though they acknowledge nothing new.

    Both when a chunk comes alone, which is the fast path of dialogues, and when several come.
    """
    with hand_at("client") as (sock, hand, _):
        caretaker.remove(sock._session)
        hand.links[0].sendall(frame(DATA, 0, b"x"))
        assert p_all(sock, 1) == b"x"
        hand.links[0].sendall(
            b"".join(frame(DATA, 1 + place, b"y", limit=WINDOW + 5) for place in range(messages))
        )
        assert p_all(sock, messages) == b"y" * messages
        assert sock._session.outgoing.limit == WINDOW + 5
