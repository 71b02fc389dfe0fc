# SPDX-License-Identifier: Apache-2.0
"""Peers made by hand, which send whatever a test wants, over plain sockets."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ri2n_parallel import ParallelListener, ParallelSocket, Qos
from ri2n_parallel.frames import (
    EARLY,
    FRAME,
    GREETING,
    HELLO,
    JOIN,
    MAX_CHUNK,
    OK,
    REPLY,
    SESSION_BYTES,
    Endpoint,
    Greeting,
    Reply,
)
from tests.unit.parallel.worlds import PATIENCE_S, connect, in_thread, serving

__all__ = [
    "WINDOW",
    "Hand",
    "client_by_hand",
    "early_by_hand",
    "exactly",
    "frame",
    "hand_at",
    "server_by_hand",
]

WINDOW = 1 << 20


def frame(
    kind: int, sequence: int = 0, payload: bytes = b"", *, ack: int = 0, limit: int = WINDOW
) -> bytes:
    """A frame, whose length is that of its payload."""
    return FRAME.pack(kind, len(payload), sequence, ack, limit) + payload


def exactly(stream: socket.socket, count: int) -> bytes:
    """Receive so many bytes, or fewer at the end."""
    data = b""
    while len(data) < count and (part := stream.recv(count - len(data))):
        data += part
    return data


class Hand:
    """One end of a session: its control connection and its links."""

    def __init__(self, control: socket.socket, links: list[socket.socket], session: bytes) -> None:
        self.control, self.links, self.session = control, links, session
        # What links that come back are answered; a link made by hand is dropped then.
        self.later = b""

    def frames(self, link: int = 0) -> Iterator[tuple[int, int, int, int, bytes]]:
        """(kind, sequence, ack, limit, payload) of each frame that comes over a link."""
        stream = self.links[link]
        with contextlib.suppress(ConnectionError):
            while len(head := exactly(stream, FRAME.size)) == FRAME.size:
                kind, length, sequence, ack, limit = FRAME.unpack(head)
                yield kind, sequence, ack, limit, exactly(stream, length)

    def close(self) -> None:
        for one in [self.control, *self.links]:
            one.close()


def _greet(
    address: tuple[str, int], kind: int, values: dict[str, Any], data: bytes
) -> tuple[socket.socket, Reply]:
    control = socket.create_connection(address, PATIENCE_S)
    control.sendall(Greeting(kind, session=bytes(SESSION_BYTES), **values).pack() + data)
    head = exactly(control, REPLY.size)
    reply = Reply.unpack(head + exactly(control, Reply.more(head)))
    assert reply.status == OK, reply
    return control, reply


def early_by_hand(address: tuple[str, int], data: bytes = b"", **greeting: int) -> Hand:
    """Greet a listener with these first frames, and connect no link.

    The control connection takes the place of a link.
    """
    values: dict[str, Any] = {
        "parallelism": 1,
        "max_chunk_bytes": MAX_CHUNK,
        "window": WINDOW,
        **greeting,
    }
    control, reply = _greet(address, EARLY, values, data)
    return Hand(control, [control], reply.session)


def client_by_hand(address: tuple[str, int], links: int = 1, **greeting: Any) -> Hand:
    """Greet a listener, and connect all links."""
    values = {"parallelism": links, "max_chunk_bytes": MAX_CHUNK, "window": WINDOW, **greeting}
    control, reply = _greet(address, HELLO, values, b"")
    streams = []
    for number, endpoint in enumerate(reply.endpoints):
        stream = socket.create_connection((endpoint.address, endpoint.port), PATIENCE_S)
        stream.sendall(Greeting(JOIN, session=reply.session, link=number, **values).pack())
        assert Reply.unpack(exactly(stream, REPLY.size)).status == OK
        streams.append(stream)
    return Hand(control, streams, reply.session)


@contextmanager
def server_by_hand(
    links: int = 1, *, welcome: bytes = b"", **client: Any
) -> Iterator[tuple[ParallelSocket, Hand]]:
    """A real client at a server made by hand, which answers to its links with `welcome`."""
    session = bytes(range(SESSION_BYTES))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)
        connecting = in_thread(lambda: connect(listening.getsockname(), Qos(links), **client))
        control, _ = listening.accept()
        control.settimeout(PATIENCE_S)
        Greeting.unpack(exactly(control, GREETING.size))
        endpoints = (Endpoint(*listening.getsockname()),) * links
        control.sendall(Reply(OK, MAX_CHUNK, WINDOW, session, endpoints).pack())
        streams: dict[int, socket.socket] = {}
        while len(streams) < links:
            stream, _ = listening.accept()
            stream.settimeout(PATIENCE_S)
            greeting = Greeting.unpack(exactly(stream, GREETING.size))
            assert (greeting.kind, greeting.session) == (JOIN, session)
            stream.sendall(welcome or Reply(OK).pack())
            streams[greeting.link] = stream
        hand = Hand(control, [streams[number] for number in range(links)], session)
        near = connecting.result()
        coming_back = in_thread(lambda: _answer_later(listening, hand))
        try:
            yield near, hand
        finally:
            hand.close()
            near.abort()
            listening.shutdown(socket.SHUT_RDWR)
            coming_back.result()


def _answer_later(listening: socket.socket, hand: Hand) -> None:
    """Answer to links that come back, until nobody listens any more."""
    listening.settimeout(None)
    while True:
        try:
            stream, _ = listening.accept()
        except OSError:
            return
        with stream, contextlib.suppress(OSError):
            exactly(stream, GREETING.size)
            stream.sendall(hand.later)


@contextmanager
def hand_at(
    end: str, links: int = 1
) -> Iterator[tuple[ParallelSocket, Hand, ParallelListener | None]]:
    """(socket under test, its peer made by hand, the listener).

    The socket under test is at the `end` that is named.
    """
    if end == "client":
        with server_by_hand(links) as (near, hand):
            near.settimeout(PATIENCE_S)
            yield near, hand, None
        return
    with serving(1, window_bytes=WINDOW) as listener:
        hand = client_by_hand(listener.address, links)
        far = listener.accept(PATIENCE_S)
        far.settimeout(PATIENCE_S)
        try:
            yield far, hand, listener
        finally:
            hand.close()
            far.abort()
