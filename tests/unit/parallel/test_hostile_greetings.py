# SPDX-License-Identifier: Apache-2.0
"""Peers that greet or answer with something else, or not at all: one clear error for each."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from ri2n_parallel import (
    AllLinksLost,
    HandshakeRefused,
    ProtocolError,
    listener,
)
from ri2n_parallel.frames import (
    BAD_GREETING,
    FULL,
    GREETING,
    HELLO,
    JOIN,
    MAX_CHUNK,
    OTHER_VERSION,
    REPLY,
    SESSION_BYTES,
    UNKNOWN_SESSION,
    Endpoint,
    Greeting,
    Reply,
)
from tests.unit.parallel.raw import WINDOW, client_by_hand, exactly, server_by_hand
from tests.unit.parallel.worlds import (
    PATIENCE_S,
    Clock,
    connect,
    in_thread,
    noise,
    serves,
    serving,
    wait_until,
)

HELLO_BYTES = Greeting(HELLO, 1, MAX_CHUNK, WINDOW, bytes(SESSION_BYTES)).pack()


def answer(address: tuple[str, int], data: bytes) -> bytes:
    """What a listener answers to these bytes, up to the end."""
    with socket.create_connection(address, PATIENCE_S) as stream:
        stream.sendall(data)
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while part := stream.recv(4096):
                parts.append(part)
    return b"".join(parts)


# ---- greetings


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
        b"RI2X" + HELLO_BYTES[4:],
        b"R\n",
        bytes(1000),
        noise(5000),
    ],
    ids=["http", "tls", "ssh", "magic", "short", "zeros", "noise"],
)
def test_something_else_is_dropped_at_once_without_a_word(data: bytes) -> None:
    with serving(1) as listening:
        assert answer(listening.address, data) == b""
        counters = listening.counters
        assert (counters["greetings_refused"], counters["greetings_timed_out"]) == (1, 0)
        serves(listening)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (HELLO_BYTES[:4] + b"\x09" + HELLO_BYTES[5:], OTHER_VERSION),
        (Greeting(7, 1, MAX_CHUNK, WINDOW, bytes(16)).pack(), BAD_GREETING),
        (Greeting(HELLO, 0, MAX_CHUNK, WINDOW, bytes(16)).pack(), BAD_GREETING),
        (Greeting(HELLO, 70, MAX_CHUNK, WINDOW, bytes(16)).pack(), BAD_GREETING),
        (Greeting(HELLO, 1, 0, WINDOW, bytes(16)).pack(), BAD_GREETING),
        (Greeting(HELLO, 1, MAX_CHUNK + 1, WINDOW, bytes(16)).pack(), BAD_GREETING),
        (Greeting(HELLO, 1, MAX_CHUNK, 0, bytes(16)).pack(), BAD_GREETING),
        (Greeting(JOIN, 1, MAX_CHUNK, WINDOW, bytes(16)).pack(), UNKNOWN_SESSION),
        (Greeting(JOIN, 1, MAX_CHUNK, WINDOW, noise(16), 3).pack(), UNKNOWN_SESSION),
    ],
    ids=[
        "version",
        "kind",
        "no links",
        "70 links",
        "no chunk",
        "long chunk",
        "no window",
        "zeros",
        "unknown",
    ],
)
def test_greetings_that_are_refused_are_told_why(data: bytes, status: int) -> None:
    with serving(1) as listening:
        said = answer(listening.address, data)
        assert len(said) == REPLY.size and Reply.unpack(said).status == status
        assert listening.counters["greetings_refused"] == 1 and not listening.counters["sessions"]
        serves(listening)


def test_links_with_numbers_that_nobody_asked_for() -> None:
    with serving(1) as listening:
        hand = client_by_hand(listening.address, 1)
        for number in (64, 70, 1 << 31, (1 << 32) - 1):
            said = answer(
                listening.address, Greeting(JOIN, 1, MAX_CHUNK, WINDOW, hand.session, number).pack()
            )
            assert Reply.unpack(said).status == BAD_GREETING
        with listening.accept(PATIENCE_S) as far:
            assert len(far.links) == 1
        hand.close()


def test_three_hundred_silent_connections(clock: Clock) -> None:
    """There are more than may wait.

    The oldest make room, the others end in time, and clients are served meanwhile.
    """
    with serving(1, backlog=512, handshake_timeout_s=PATIENCE_S) as listening:
        silent = [socket.create_connection(listening.address, PATIENCE_S) for _ in range(300)]
        try:
            serves(listening)
            assert listening.counters["pending_dropped"] >= 44
            for number, one in enumerate(silent):
                with contextlib.suppress(ConnectionError):  # of those that had to make room
                    one.sendall(b"RI2P"[: number % 5])
            serves(listening)
            assert listening.counters["greetings_timed_out"] == 0
            clock.let_pass(PATIENCE_S)
            for one in silent:
                with contextlib.suppress(ConnectionResetError):
                    assert one.recv(1) == b""
        finally:
            for one in silent:
                one.close()
        counters = listening.counters
        assert counters["greetings_timed_out"] > 200
        assert (
            counters["pending_dropped"]
            + counters["greetings_timed_out"]
            + counters["greetings_failed"]
            == 300
        )
        serves(listening)


def test_a_greeting_byte_by_byte(clock: Clock) -> None:
    """It is answered if it is complete in time; single bytes give a client no more time."""
    with serving(1, handshake_timeout_s=PATIENCE_S) as listening:
        with socket.create_connection(listening.address, PATIENCE_S) as slow:
            slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for place in range(GREETING.size):
                slow.sendall(HELLO_BYTES[place : place + 1])
                clock.let_pass(PATIENCE_S / GREETING.size / 4)
            assert Reply.unpack(exactly(slow, REPLY.size + 20)).status == 0
        with socket.create_connection(listening.address, PATIENCE_S) as dribbles:
            wait_until("accepted", lambda: listening._pending)
            for part in range(2):
                assert listening.counters["greetings_timed_out"] == 0
                dribbles.sendall(HELLO_BYTES[part : part + 1])
                heard = [part + 1]
                wait_until(
                    "heard",
                    lambda heard=heard: (  # type: ignore[misc]
                        [len(one.data) for one in listening._pending.values()] == heard
                    ),
                )
                clock.let_pass(0.6 * PATIENCE_S)
            with contextlib.suppress(ConnectionResetError):
                assert dribbles.recv(1) == b""
            assert listening.counters["greetings_timed_out"] == 1


def test_a_server_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_SESSIONS", 3)
    with serving(1) as listening:
        hands = [client_by_hand(listening.address) for _ in range(3)]
        with pytest.raises(HandshakeRefused, match="as many connections as it allows"):
            connect(listening.address)
        hands.pop().close()
        for _ in range(3):
            listening.accept(PATIENCE_S).abort()
        serves(listening)
        for hand in hands:
            hand.close()


def test_connections_that_nobody_accepts_are_bounded() -> None:
    with serving(1, backlog=2) as listening:
        hands = [client_by_hand(listening.address) for _ in range(2)]
        said = answer(listening.address, HELLO_BYTES)
        assert Reply.unpack(said).status == FULL
        for _ in hands:
            listening.accept(PATIENCE_S).abort()
        serves(listening)
        for hand in hands:
            hand.close()


FEW = """
import resource, socket, sys, time
from ri2n_parallel import Qos, create_connection, create_listener
from ri2n_parallel.frames import MAX_CHUNK, HELLO, Greeting
PATIENCE_S = float(sys.argv[1])
listener = create_listener(("127.0.0.1", 0), handshake_timeout_s=1.0)
hello = Greeting(HELLO, 1, MAX_CHUNK, 1 << 20, bytes(16)).pack()
soft = 64
late = socket.socket()  # it needs no descriptor any more when there are none
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft))
crowd = []
try:
    while len(crowd) < 100:
        crowd.append(socket.create_connection(listener.address, PATIENCE_S))
        crowd[-1].sendall(hello)
except OSError:
    pass
late.settimeout(PATIENCE_S)
late.connect(listener.address)
crowd.append(late)
deadline = time.monotonic() + PATIENCE_S
while not listener.counters.get("accept_failed") and not listener.counters["greetings_failed"]:
    assert time.monotonic() < deadline, listener.counters
    time.sleep(0.01)
for one in crowd:
    one.close()
near = far = None
# Who comes before enough of the crowd is gone may be sent away, or not be let in for a second.
while far is None:
    try:
        near = create_connection(listener.address, Qos(2), timeout_s=PATIENCE_S)
        near.sendall(b"served")
        far = listener.accept(2.0)
        assert far.recv(6) == b"served"
    except OSError as error:
        assert time.monotonic() < deadline, error
        for one in (near, far):
            if one is not None:
                one.abort()
        near = far = None
while listener.counters["sessions_open"] > 1 or sum(listener.connections.values()) > 2:
    assert time.monotonic() < deadline, (listener.counters, listener.connections)
    time.sleep(0.01)
print("crowd", len(crowd), listener.counters)
near.abort(); far.abort(); listener.close()
"""


def test_a_server_without_descriptors_serves_again_when_there_are_some() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", FEW, str(PATIENCE_S)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("crowd") and not done.stderr


# ---- servers that answer something else


@pytest.mark.parametrize(
    ("said", "error", "why"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
            ProtocolError,
            "something else: it answered b'HTTP",
        ),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", ProtocolError, "closed the connection instead of answering"),
        (b"", ProtocolError, "closed the connection instead of answering"),
        (b"RI2P\x02" + Reply(0).pack()[5:], ProtocolError, "version 2, this end speaks version 1"),
        (Reply(FULL).pack(), HandshakeRefused, "as many connections as it allows"),
        (Reply(99).pack(), HandshakeRefused, "status 99"),
        (Reply(0).pack(), ProtocolError, "named no address"),
        (
            Reply(0, endpoints=(Endpoint("127.0.0.1", 1),)).pack()[:-1],
            ProtocolError,
            "closed the connection",
        ),
        (
            Reply(0, endpoints=(Endpoint("127.0.0.1", 0),)).pack(),
            ProtocolError,
            "something that is no address",
        ),
        (
            Reply(0).pack()[:6] + struct.pack("!H", 65) + bytes(2000),
            ProtocolError,
            "65 addresses, more than 64",
        ),
        (Reply(0, window=0, endpoints=(Endpoint("::1", 1),)).pack(), ProtocolError, "no sense"),
        (
            Reply(0, endpoints=(Endpoint("127.0.0.1", 1),)).pack(),
            AllLinksLost,
            r"link 0 to 127\.0\.0\.1:1: refused",
        ),
    ],
    ids=[
        "http",
        "ssh",
        "nothing",
        "version",
        "full",
        "99",
        "none",
        "cut",
        "port 0",
        "65",
        "no window",
        "closed port",
    ],
)
def test_servers_that_answer_something_else(said: bytes, error: type[OSError], why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            stream, _ = listening.accept()
            with stream:
                exactly(stream, GREETING.size)
                stream.sendall(said)
                with contextlib.suppress(OSError):  # the client may have seen enough, and be gone
                    stream.shutdown(socket.SHUT_WR)
                    exactly(stream, 1)

        serving_ = in_thread(serve)
        with pytest.raises(error, match=why) as caught:
            connect(listening.getsockname())
        assert "\n" not in str(caught.value)
        serving_.result()


def test_a_server_that_says_nothing() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    with silent as listening, pytest.raises(TimeoutError, match="did not answer in time"):
        connect(listening.getsockname(), timeout_s=0.2)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0", "it answered b'HTTP"),
        (Reply(0).pack()[:6] + struct.pack("!H", 3) + Reply(0).pack()[8:], "cut off"),
        (Reply(0).pack()[:6] + struct.pack("!H", 300) + Reply(0).pack()[8:], "300 addresses"),
        (Reply(0, window=0).pack(), "no sense"),
    ],
    ids=["http", "three addresses", "300 addresses", "no window"],
)
def test_servers_that_answer_a_link_with_something_else(said: bytes, why: str) -> None:
    with server_by_hand(1, welcome=said) as (near, _):
        near.settimeout(PATIENCE_S)
        with pytest.raises(ProtocolError, match=why):
            near.recv(1)


@pytest.mark.parametrize("end", ["first", "again"])
def test_a_server_that_does_not_know_the_session_any_more(end: str) -> None:
    """As after a restart of the server.

    The client waits neither for the time without links nor for links to come back.
    """
    unknown = Reply(UNKNOWN_SESSION).pack()
    welcome = {"welcome": unknown} if end == "first" else {}
    with server_by_hand(1, link_timeout_s=10 * PATIENCE_S, **welcome) as (near, hand):
        near.settimeout(PATIENCE_S)
        if end == "again":
            hand.later = unknown
            hand.links[0].close()
        with pytest.raises(
            AllLinksLost, match=r"^(link 0 to )?127\.0\.0\.1:\d+: .*does not know this session"
        ):
            near.recv(1)
