# SPDX-License-Identifier: Apache-2.0
"""The connecting side: greet the server, then connect to the interfaces that it chose (dial.py)."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ri2n_parallel.connection import ParallelSocket
from ri2n_parallel.dial import Client, Dialer
from ri2n_parallel.errors import HandshakeRefused, ProtocolError, TokenRefused
from ri2n_parallel.frames import (
    CHALLENGE,
    DATA,
    EARLY,
    EARLY_BYTES,
    FRAME,
    HELLO,
    MAX_CHUNK,
    NO_TOKEN,
    OK,
    REASONS,
    REPLY,
    SESSION_BYTES,
    TOKEN_WANTED,
    TOKEN_WRONG,
    Endpoint,
    Greeting,
    Reply,
)
from ri2n_parallel.interfaces import own_interfaces
from ri2n_parallel.link import Link, Stream, place_name, round_trip_s, tune
from ri2n_parallel.links import CONTROL
from ri2n_parallel.proof import (
    NONCE_BYTES,
    PROOF_BYTES,
    is_same,
    key_of,
    proof_of_answer,
    proof_of_client,
    proof_of_server,
    session_key,
)
from ri2n_parallel.reach import networks_of, sensible
from ri2n_parallel.schedule import early_bytes
from ri2n_parallel.session import Session

__all__ = ["WINDOW_BYTES", "Qos", "create_connection", "open_session"]

WINDOW_BYTES = 4 << 20
MAX_PARALLELISM = 64
NOTHING = memoryview(b"")


@dataclass(frozen=True)
class Qos:
    """What a client asks for (Paradise, section 3.2.3).

    `parallelism` is the number of data connections, 1 to MAX_PARALLELISM; ValueError for any other
    number.
    """

    parallelism: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.parallelism <= MAX_PARALLELISM:
            raise ValueError(f"parallelism: {self.parallelism} is not from 1 to {MAX_PARALLELISM}")


def create_connection(
    address: tuple[str, int],
    qos: Qos = Qos(),
    *,
    data: Any = b"",
    timeout_s: float | None = 10.0,
    sources: Sequence[str] | None = None,
    token: str | bytes | None = None,
    networks: Sequence[str] = (),
    ssl_context: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    window_bytes: int = WINDOW_BYTES,
    link_timeout_s: float = 60.0,
) -> ParallelSocket:
    """Connect to a server: a control connection first, then as many links as `qos` asks for.

    The control connection goes to `address`, the links to the addresses that the server chooses.
    `sources` are own addresses that they leave from. The call returns when every link is connected
    or has failed once; those that have failed are tried again in the background.

    `data` are the first bytes of the connection. They go with the greeting, so that a question
    arrives as soon as over a plain connection; the call then returns when the server has answered
    the greeting, and links are connected meanwhile. If the data is long, only a part goes with the
    greeting (schedule.py); the rest goes over the links, and the call returns when all is sent.

    With a `token` both ends prove on every connection that they know it, before anything else is
    sent; the token itself is never sent. That takes one round trip more, for `data` and for links.

    A link goes to `address`, or to another address that the server names and that is in a network
    of an own interface or in one of `networks`, such as "10.1.0.0/16" (reach.py). The counter
    `addresses_refused` says how many addresses were refused.

    Times are in seconds: the call takes `timeout_s` at most; later a connection that has lost all
    links ends after `link_timeout_s`. `window_bytes` bounds what is held that the program has not
    read yet.

    Errors: OSError of the control connection, TokenRefused, HandshakeRefused, ProtocolError,
    AllLinksLost when no link can be connected (if all of `data` went with the greeting, later calls
    raise it), TimeoutError, BadInput (token, networks).
    """
    client = Client(
        sources=tuple(sources or ()),
        ssl_context=ssl_context,
        server_hostname=server_hostname or address[0],
        key=key_of(token),
        networks=networks_of(networks),
    )
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    source = (client.sources[0], 0) if client.sources else None
    view = memoryview(data).cast("B")
    control = socket.create_connection(address, timeout_s, source_address=source)
    return open_session(
        control,
        qos,
        client,
        deadline_s,
        data=view,
        window_bytes=window_bytes,
        link_timeout_s=link_timeout_s,
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
    """As `create_connection`, over a connected socket `control`; it is closed when that fails.

    `deadline_s` is a time of the monotonic clock; None: no time-out.
    """
    stream: Stream = control
    early = bytes(
        data[: early_bytes(len(data), qos.parallelism, round_trip_s(control), EARLY_BYTES)]
    )
    if early:
        window_bytes = max(window_bytes, EARLY_BYTES)
    try:
        if client.ssl_context:
            stream = client.ssl_context.wrap_socket(
                control, do_handshake_on_connect=False, server_hostname=client.server_hostname
            )
        server = Endpoint(*stream.getpeername()[:2])
        reply, key = _greet(stream, qos, deadline_s, window_bytes, early, client.key)
    except BaseException:
        stream.close()
        raise
    endpoints = sensible(reply.endpoints, server, own_interfaces, client.networks)
    dialer = Dialer(endpoints, client, reply.session, key, window_bytes, qos.parallelism)
    session = Session(
        reply.session,
        window_bytes=window_bytes,
        peer_window_bytes=reply.window,
        max_chunk_bytes=min(MAX_CHUNK, reply.max_chunk_bytes),
        link_timeout_s=link_timeout_s,
        rejoin=dialer.again,
    )
    if refused := sum(endpoint not in endpoints for endpoint in reply.endpoints):
        session.counters["addresses_refused"] = refused
    connection = ParallelSocket(session)
    try:
        with session.lock:
            if early:
                session.sent_early(early)
            tune(stream)
            session.add(Link(CONTROL, stream))
            dialer.start(session)
            if len(data) > len(early) or not early:
                dialer.wait(session, deadline_s)
            dialer.carry_on()
        if len(data) > len(early):
            connection.settimeout(
                None if deadline_s is None else max(0.001, deadline_s - time.monotonic())
            )
            connection.sendall(data[len(early) :])
            connection.settimeout(None)
    except BaseException:
        with session.lock:
            connection.abort()
            dialer.stop()
        raise
    return connection


def _greet(
    stream: Stream,
    qos: Qos,
    deadline_s: float | None,
    window_bytes: int,
    early: bytes,
    key: bytes | None,
) -> tuple[Reply, bytes | None]:
    """Ask for a session, and send the stream's first bytes with that if there are any.

    Returns the server's answer and the session's key, None without a token. Errors:
    HandshakeRefused, TokenRefused, ProtocolError, TimeoutError.
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
                raise ProtocolError(
                    "the server closed the connection instead of answering: it speaks something "
                    "else"
                )
            data += part
        return data

    def read_reply() -> tuple[Reply, bytes]:
        head = read(REPLY.size)
        data = head + read(Reply.more(head))
        return Reply.unpack(data), data

    def prove(key: bytes, said: bytes) -> bytes:
        """Check the server's proof, then send ours, and only then the stream's first bytes.

        `said` is the greeting that was sent. Returns the session's key.
        """
        reply, data = read_reply()
        if reply.status != CHALLENGE:
            if reply.status == OK:
                raise TokenRefused("the server does not prove that it knows the token")
            _must_be(reply, OK)
        said += data + read(NONCE_BYTES)
        if not is_same(read(PROOF_BYTES), proof_of_server(key, said)):
            raise TokenRefused(REASONS[TOKEN_WRONG])
        stream.settimeout(left_s())
        stream.sendall(proof_of_client(key, said) + first)
        return session_key(key, said)

    remote = place_name(stream.getpeername())
    stream.settimeout(left_s())
    try:
        if isinstance(stream, ssl.SSLSocket):
            stream.do_handshake()
        kind = EARLY if early else HELLO
        greeting = Greeting(
            kind, qos.parallelism, MAX_CHUNK, window_bytes, bytes(SESSION_BYTES), proves=bool(key)
        )
        first = FRAME.pack(DATA, len(early), 0, 0, window_bytes) + early if early else b""
        if key is None:
            new_key = None
            stream.sendall(greeting.pack() + first)
        else:
            said = greeting.pack() + os.urandom(NONCE_BYTES)
            stream.sendall(said)
            new_key = prove(key, said)
        reply, data = read_reply()
        _must_be(reply, OK)
        if new_key is not None and not is_same(read(PROOF_BYTES), proof_of_answer(new_key, data)):
            raise TokenRefused("the server's answer was changed on its way")
    except ConnectionError as error:
        raise ProtocolError(
            f"{remote}: the server closed the connection instead of answering"
        ) from error
    except HandshakeRefused as error:
        raise type(error)(f"{remote}: {error}") from None
    except ProtocolError as error:
        raise ProtocolError(f"{remote}: {error}") from None
    except TimeoutError:
        raise TimeoutError(f"{remote}: the server did not answer in time") from None
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or (
            error.reason or "it ended early"
        ).lower().replace("_", " ")
        raise HandshakeRefused(f"{remote}: TLS: {why}") from error
    if not reply.endpoints:
        raise ProtocolError(f"{remote}: the server named no address")
    return reply, new_key


def _must_be(reply: Reply, status: int) -> None:
    """HandshakeRefused or TokenRefused, with the reason, when the server's status is another."""
    if reply.status != status:
        is_about_token = reply.status in (TOKEN_WANTED, NO_TOKEN, TOKEN_WRONG)
        kind = TokenRefused if is_about_token else HandshakeRefused
        raise kind(REASONS.get(reply.status, f"status {reply.status}"))
