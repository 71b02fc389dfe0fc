# SPDX-License-Identifier: Apache-2.0
"""The first bytes of a connection, which go with the greeting.

They are answered before there is a link.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ri2n_parallel import AllLinksLost, ParallelSocket, ProtocolError, Qos
from ri2n_parallel.aio import open_parallel_connection, start_parallel_server
from ri2n_parallel.frames import (
    ABORT,
    ACK,
    DATA,
    EARLY,
    EARLY_BYTES,
    FRAME,
    GREETING,
    JOIN,
    MAX_CHUNK,
    OK,
    PING,
    REPLY,
    SESSION_BYTES,
    Endpoint,
    Greeting,
    Reply,
)
from ri2n_parallel.schedule import FIRST_BYTES
from tests.unit.parallel.raw import WINDOW, Hand, early_by_hand, exactly, frame
from tests.unit.parallel.worlds import (
    PATIENCE_S,
    Clock,
    addresses,
    connect,
    digest,
    in_thread,
    noise,
    p_all,
    read_all,
    serving,
    wait_until,
)

MB = 1 << 20
SESSION = bytes(range(SESSION_BYTES))


def received(stream: socket.socket) -> tuple[int, int, int, bytes]:
    """(kind, sequence, ack, payload) of the next frame."""
    kind, length, sequence, ack, _ = FRAME.unpack(exactly(stream, FRAME.size))
    return kind, sequence, ack, exactly(stream, length)


@contextmanager
def early_client(address: tuple[str, int], data: bytes) -> Iterator[Hand]:
    """A client made by hand that has greeted with its first bytes and makes no link."""
    hand = early_by_hand(address, data)
    try:
        yield hand
    finally:
        hand.close()


@contextmanager
def early_server(
    data: bytes, *, endpoints: tuple[Endpoint, ...] = (), **client: Any
) -> Iterator[tuple[ParallelSocket, socket.socket, socket.socket]]:
    """(a real client, its control connection at a server made by hand, the listening socket).

    The client has sent `data` with its greeting.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)
        connecting = in_thread(
            lambda: connect(listening.getsockname(), Qos(1), data=data, **client)
        )
        control, _ = listening.accept()
        with control:
            control.settimeout(PATIENCE_S)
            assert Greeting.unpack(exactly(control, GREETING.size)).kind == EARLY
            assert received(control) == (DATA, 0, 0, data[:EARLY_BYTES])
            where = endpoints or (Endpoint(*listening.getsockname()),)
            control.sendall(Reply(OK, MAX_CHUNK, WINDOW, SESSION, where).pack())
            near = connecting.result()
            near.settimeout(PATIENCE_S)
            try:
                yield near, control, listening
            finally:
                near.abort()


def accept_link(listening: socket.socket) -> socket.socket:
    """Accept the next link at a server made by hand."""
    stream, _ = listening.accept()
    stream.settimeout(PATIENCE_S)
    assert Greeting.unpack(exactly(stream, GREETING.size)).kind == JOIN
    stream.sendall(Reply(OK).pack())
    return stream


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("links", [1, 3])
@pytest.mark.parametrize(
    "count", [1, 2000, FIRST_BYTES, FIRST_BYTES + 1, EARLY_BYTES, EARLY_BYTES + 1, 3 * MB]
)
def test_first_bytes_and_their_answer(
    count: int, links: int, tls: bool, tls_server: ssl.SSLContext, tls_client: ssl.SSLContext
) -> None:
    data = noise(count)
    with serving(links, ssl_context=tls_server if tls else None) as listener:

        def serve() -> None:
            with listener.accept(PATIENCE_S) as far:
                asked = p_all(far, count)
                far.sendall(asked[::-1])
                assert read_all(far) == b"more"
                far.sendall(b"bye")

        serving_one = in_thread(serve)
        with connect(
            listener.address, Qos(links), data=data, ssl_context=tls_client if tls else None
        ) as near:
            assert digest(p_all(near, count)) == digest(data[::-1])
            near.sendall(b"more")
            near.shutdown(socket.SHUT_WR)
            assert read_all(near) == b"bye"
            serving_one.result()
            wait_until("links", lambda: len(near.links) == links or near._session.finished)
        assert near.counters["duplicates"] == 0


def test_a_server_answers_before_there_is_a_link() -> None:
    """It sends as much as TCP sends at once; the rest waits for the links that it chose."""
    with (
        serving(1) as listener,
        early_client(listener.address, frame(DATA, 0, b"question")) as hand,
    ):
        control = hand.control
        with listener.accept(PATIENCE_S) as far:
            assert p_all(far, 8) == b"question" and not far.links
            far.sendall(b"answer")
            assert received(control) == (DATA, 0, 8, b"answer")
            assert far.send(noise(MB)) == FIRST_BYTES - 6
            assert received(control) == (DATA, 6, 8, noise(MB)[: FIRST_BYTES - 6])
            far.settimeout(0.2)
            with pytest.raises(TimeoutError):
                far.send(b"more")
            with socket.create_connection(listener.address, PATIENCE_S) as link:
                link.sendall(Greeting(JOIN, 1, MAX_CHUNK, WINDOW, hand.session).pack())
                assert Reply.unpack(exactly(link, REPLY.size)).status == OK
                wait_until("joined", lambda: far.links)
                assert far.send(b"more") == 4
                hand.links = [link]
                assert (DATA, FIRST_BYTES, b"more") in (
                    (kind, at, part) for kind, at, _, _, part in hand.frames()
                )
                far.abort()


def test_a_client_has_its_answer_before_there_is_a_link() -> None:
    with early_server(b"question") as (near, control, _):
        control.sendall(frame(DATA, 0, b"answer", ack=8))
        assert p_all(near, 6) == b"answer"
        near.flush(PATIENCE_S)


def test_flush_asks_over_the_control_connection() -> None:
    """Links are not connected meanwhile: nobody accepts at the address that the server names."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        socket.socket() as one,
        socket.socket() as other,
    ):
        for each in (one, other):
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        with early_server(b"question", endpoints=(Endpoint(*full.getsockname()),)) as (
            near,
            control,
            _,
        ):
            flushing = in_thread(lambda: near.flush(PATIENCE_S))
            while (got := received(control))[0] != PING:
                assert got[0] == ACK
            assert got[1] == 8 and not near.links
            control.sendall(frame(ACK, 0, ack=8))
            flushing.result()


def test_what_the_control_connection_swallowed_goes_over_a_link() -> None:
    with early_server(b"question") as (near, control, listening), accept_link(listening) as link:
        wait_until("joined", lambda: near.links)
        control.close()
        while (got := received(link))[0] != DATA:
            pass
        assert got == (DATA, 0, 0, b"question")
        assert near.counters["resent_bytes"] == 8 and near.counters["links_lost"] == 0


def test_what_is_stuck_on_the_control_connection_goes_over_a_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On loopback TCP sees no fault, so the test says so; it is found as on links."""
    with early_server(b"question") as (near, _, listening), accept_link(listening) as link:
        wait_until("joined", lambda: near.links)
        with near._session.lock:
            control = near._session.control
            assert control is not None
            monkeypatch.setattr(control, "stuck", lambda now_s: "nothing was acknowledged")
        while (got := received(link))[0] != DATA:
            pass
        assert got == (DATA, 0, 0, b"question")


def test_no_link_can_be_made() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        closed = Endpoint(*other.getsockname())
    with early_server(b"question", endpoints=(closed,)) as (near, control, _):
        with pytest.raises(AllLinksLost, match=rf"^link 0 to 127\.0\.0\.1:{closed.port}: refused"):
            near.recv(1)
        kind, _, _, reason = received(control)
        assert kind == ABORT and b": refused" in reason


def test_nobody_answers_the_greeting() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    with silent as listening, pytest.raises(TimeoutError, match="did not answer in time"):
        connect(listening.getsockname(), data=noise(3 * MB), timeout_s=0.2)


def test_the_rest_finds_no_room_in_time() -> None:
    with serving(1, window_bytes=20_000) as listener:
        with pytest.raises(TimeoutError):
            connect(listener.address, data=noise(MB), timeout_s=1.0)
        listener.accept(PATIENCE_S).abort()


def test_windows_are_never_less_than_the_first_bytes() -> None:
    with serving(1, window_bytes=100) as listener:
        near = connect(listener.address, data=noise(EARLY_BYTES), window_bytes=100)
        with near, listener.accept(PATIENCE_S) as far:
            far.sendall(noise(FIRST_BYTES))
            assert p_all(far, EARLY_BYTES) == noise(EARLY_BYTES) and p_all(
                near, FIRST_BYTES
            ) == noise(FIRST_BYTES)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (frame(DATA, 0, bytes(1000)) + frame(DATA, 990, bytes(100)), "overlap"),
        (frame(DATA, WINDOW, b"x"), "may send"),
        (FRAME.pack(DATA, MAX_CHUNK + 1, 0, 0, WINDOW), "agreed"),
        (frame(200), "kind 200"),
        (frame(ACK, ack=1), "acknowledges 1 bytes, but only 0 were sent"),
    ],
)
def test_rules_hold_on_the_control_connection_too(said: bytes, why: str) -> None:
    with serving(1, window_bytes=WINDOW) as listener:
        with early_client(listener.address, said), listener.accept(PATIENCE_S) as far:
            with pytest.raises(ProtocolError, match=rf"^the control connection \(127.*{why}"):
                read_all(far)
            far.abort()
        with (
            connect(listener.address, data=b"others go on") as near,
            listener.accept(PATIENCE_S) as far,
        ):
            assert p_all(far, 12) == b"others go on"
            near.abort()


def test_a_client_that_makes_no_link_is_let_go(clock: Clock) -> None:
    with serving(1, handshake_timeout_s=PATIENCE_S, link_timeout_s=10 * PATIENCE_S) as listener:
        with (
            early_client(listener.address, frame(DATA, 0, b"question")),
            listener.accept(PATIENCE_S) as far,
        ):
            assert p_all(far, 8) == b"question"
            clock.let_pass(0.9 * PATIENCE_S)
            assert listener.counters["sessions_open"] == 1
            clock.let_pass(0.2 * PATIENCE_S)
            with pytest.raises(ConnectionAbortedError, match="no data connection came"):
                far.recv(1)
        wait_until("gone", lambda: listener.counters["sessions_open"] == 0)
        assert listener.counters["sessions_without_links"] == 1
        assert set(listener.connections.values()) == {0}


def test_they_are_counted_where_the_server_wants_them() -> None:
    """First bytes come over the address that the client asked; links are spread as always."""
    names = addresses(3)
    with serving(3) as listener:
        clients = [connect(listener.address, data=b"x") for _ in range(9)]
        servers = [listener.accept(PATIENCE_S) for _ in range(9)]
        wait_until("links", lambda: all(len(each._session.up) == 1 for each in servers))
        assert [listener.connections[name] for name in names] == [3, 3, 3]
        for each in [*clients, *servers]:
            each.abort()


def test_asyncio() -> None:
    async def run() -> bytes:
        async def serve(reader: Any, writer: Any) -> None:
            writer.write((await reader.readexactly(5))[::-1])
            await writer.drain()
            writer.close()

        async with await start_parallel_server(serve, ("127.0.0.1", 0)) as server:
            reader, writer = await open_parallel_connection(server.address, Qos(2), data=b"hello")
            answer: bytes = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(run()) == b"olleh"
