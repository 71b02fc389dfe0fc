"""The connecting side: greet the server, then connect to the interfaces that it chose (dial.py)."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ri2n_sdn.parallel.connection import ParallelSocket
from ri2n_sdn.parallel.dial import Client, Dialer
from ri2n_sdn.parallel.errors import HandshakeRefused, ProtocolError
from ri2n_sdn.parallel.frames import (
    CHUNK_MOST,
    DATA,
    EARLY,
    EARLY_BYTES,
    FRAME,
    HELLO,
    OK,
    REASONS,
    REPLY,
    TOKEN_BYTES,
    Greeting,
    Reply,
)
from ri2n_sdn.parallel.link import Link, Stream, place_name, round_trip_s, tune
from ri2n_sdn.parallel.links import CONTROL
from ri2n_sdn.parallel.schedule import early_bytes
from ri2n_sdn.parallel.session import Session

__all__ = ["WINDOW_BYTES", "Qos", "create_connection", "open_session"]

WINDOW_BYTES = 4 << 20
PARALLELISM_MOST = 64
NOTHING = memoryview(b"")


@dataclass(frozen=True)
class Qos:
    """What a client asks for (Paradise, section 3.2.3): `parallelism` is the number of data connections."""

    parallelism: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.parallelism <= PARALLELISM_MOST:
            raise ValueError(f"parallelism: {self.parallelism} is not from 1 to {PARALLELISM_MOST}")


def create_connection(
    address: tuple[str, int],
    qos: Qos = Qos(),
    *,
    data: Any = b"",
    timeout_s: float | None = 10.0,
    sources: Sequence[str] | None = None,
    ssl_context: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    window_bytes: int = WINDOW_BYTES,
    link_timeout_s: float = 60.0,
) -> ParallelSocket:
    """Connect to a server: the control connection to `address`, data connections to where the server wants them.

    `sources` are own addresses. It returns once all links are there, or some and the others take longer than a second;
    those go on trying. With `data`, the connection's first bytes, a question is there as soon as over a plain
    connection: it goes with the greeting, and the call returns when the server has answered that; links come
    meanwhile. Of long ones a part does (schedule.py), and the rest goes over the links once they are there.

    Errors: OSError of the control connection, HandshakeRefused, ProtocolError, AllLinksLost when no data connection can
    be made (if all of `data` went early, later calls say so), TimeoutError.
    """
    client = Client(tuple(sources or ()), ssl_context, server_hostname or address[0])
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    source = (client.sources[0], 0) if client.sources else None
    view = memoryview(data).cast("B")
    control = socket.create_connection(address, timeout_s, source_address=source)
    return open_session(
        control, qos, client, deadline_s, data=view, window_bytes=window_bytes, link_timeout_s=link_timeout_s
    )


def open_session(
    control: socket.socket,
    qos: Qos,
    client: Client,
    deadline_s: float | None,
    *,
    data: memoryview = NOTHING,
    window_bytes: int = WINDOW_BYTES,
    link_timeout_s: float = 60.0,
) -> ParallelSocket:
    """The same over a control connection that is there already; it is closed when that fails."""
    stream: Stream = control
    early = bytes(data[: early_bytes(len(data), qos.parallelism, round_trip_s(control), EARLY_BYTES)])
    if early:
        window_bytes = max(window_bytes, EARLY_BYTES)
    try:
        if client.ssl_context:
            stream = client.ssl_context.wrap_socket(
                control, do_handshake_on_connect=False, server_hostname=client.server_hostname
            )
        reply = _greet(stream, qos, deadline_s, window_bytes, early)
    except BaseException:
        stream.close()
        raise
    dialer = Dialer(reply.endpoints, client, reply.token, window_bytes, qos.parallelism)
    session = Session(
        reply.token,
        window_bytes=window_bytes,
        peer_window_bytes=reply.window,
        chunk_most=min(CHUNK_MOST, reply.chunk_most),
        link_timeout_s=link_timeout_s,
        rejoin=dialer.again,
    )
    made = ParallelSocket(session)
    try:
        with session.lock:
            if early:
                session.went_early(early)
            tune(stream)
            session.add(Link(CONTROL, stream))
            dialer.start(session)
            if len(data) > len(early) or not early:
                dialer.wait(session, deadline_s)
            dialer.carry_on()
        if len(data) > len(early):
            made.settimeout(None if deadline_s is None else max(0.001, deadline_s - time.monotonic()))
            made.sendall(data[len(early) :])
            made.settimeout(None)
    except BaseException:
        with session.lock:
            made.abort()
            dialer.stop()
        raise
    return made


def _greet(stream: Stream, qos: Qos, deadline_s: float | None, window_bytes: int, early: bytes) -> Reply:
    """Ask for a session, with the stream's first bytes if there are any: what the server answered.

    Errors: HandshakeRefused, ProtocolError, TimeoutError.
    """

    def left_s() -> float | None:
        if deadline_s is None:
            return None
        left = deadline_s - time.monotonic()
        if left <= 0:
            raise TimeoutError("the server did not answer in time")
        return left

    def read(count: int) -> bytes:
        data = b""
        while len(data) < count:
            stream.settimeout(left_s())
            part = stream.recv(count - len(data))
            if not part:
                raise ProtocolError("the server closed the connection instead of answering: it speaks something else")
            data += part
        return data

    remote = place_name(stream.getpeername())
    stream.settimeout(left_s())
    try:
        if isinstance(stream, ssl.SSLSocket):
            stream.do_handshake()
        kind = EARLY if early else HELLO
        greeting = Greeting(kind, qos.parallelism, CHUNK_MOST, window_bytes, bytes(TOKEN_BYTES)).pack()
        stream.sendall(greeting + FRAME.pack(DATA, len(early), 0, 0, window_bytes) + early if early else greeting)
        head = read(REPLY.size)
        reply = Reply.unpack(head + read(Reply.more(head)))
    except ConnectionError as error:
        raise ProtocolError(f"{remote}: the server closed the connection instead of answering") from error
    except ProtocolError as error:
        raise ProtocolError(f"{remote}: {error}") from None
    except TimeoutError:
        raise TimeoutError(f"{remote}: the server did not answer in time") from None
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or (error.reason or "it ended early").lower().replace("_", " ")
        raise HandshakeRefused(f"{remote}: TLS: {why}") from error
    if reply.status != OK:
        raise HandshakeRefused(f"{remote}: {REASONS.get(reply.status, f'status {reply.status}')}")
    if not reply.endpoints:
        raise ProtocolError(f"{remote}: the server named no address")
    return reply
