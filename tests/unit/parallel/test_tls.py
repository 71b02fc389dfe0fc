# SPDX-License-Identifier: Apache-2.0
"""TLS on every link: data, wrong certificates, mixed-up ends, links that die and come back."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import ExitStack

import pytest

from ri2n_parallel import HandshakeRefused, ParallelError, ParallelSocket, ProtocolError, Qos
from ri2n_parallel.frames import (
    ACK,
    FRAME,
    HELLO,
    JOIN,
    MAX_CHUNK,
    REPLY,
    SESSION_BYTES,
    Greeting,
    Reply,
)
from tests.unit.parallel.worlds import (
    PATIENCE_S,
    Clock,
    connect,
    digest,
    in_thread,
    noise,
    p_all,
    pair,
    read_all,
    sending,
    serving,
    wait_until,
)

MB = 1 << 20


def cut(sock: ParallelSocket, number: int) -> None:
    """Shut the connection below a link's TLS, as if it had been reset."""
    with sock._session.lock:
        socket.socket.shutdown(sock._session.links[number].stream, socket.SHUT_RDWR)


@pytest.mark.parametrize("way", ["up", "down", "both"])
def test_a_transfer_over_three_links(
    tls_server: ssl.SSLContext, tls_client: ssl.SSLContext, way: str
) -> None:
    with (
        pair(3, server={"ssl_context": tls_server}, ssl_context=tls_client) as (near, far),
        ExitStack() as stack,
    ):
        ways = {"up": [(near, far)], "down": [(far, near)], "both": [(near, far), (far, near)]}[way]
        for sender, reader in ways:
            stack.enter_context(sending(sender, reader))

        def enough() -> bool:
            """Whether each link has carried more than one chunk.

            How links share a transfer depends on rates, and loopback has none.
            """
            sent = [[link.sent_bytes for link in sender.links] for sender, _ in ways]
            return all(sum(each) > 20 * MB and min(each) > 2 * MAX_CHUNK for each in sent)

        wait_until("each carries its part", enough)


def test_small_messages_and_half_close(
    tls_server: ssl.SSLContext, tls_client: ssl.SSLContext
) -> None:
    with pair(2, server={"ssl_context": tls_server}, ssl_context=tls_client) as (near, far):
        began_s = time.monotonic()
        for count in (1, 1000, 1417, 20000, 70000):
            if count == 1417:  # what was read counts as a sign of life, however short
                for end in (near, far):
                    assert any(link.read_s > began_s for link in end._session.links.values())
            near.sendall(noise(count))
            assert p_all(far, count) == noise(count)
            far.sendall(noise(count)[::-1])
            assert p_all(near, count) == noise(count)[::-1]
        near.shutdown(socket.SHUT_WR)
        assert far.recv(1) == b""
        far.sendall(b"last words")
        far.close()
        assert read_all(near) == b"last words"


def test_links_that_die_come_back(tls_server: ssl.SSLContext, tls_client: ssl.SSLContext) -> None:
    data = noise(30 * MB)
    with pair(3, server={"ssl_context": tls_server}, ssl_context=tls_client) as (near, far):
        reading = in_thread(lambda: digest(read_all(far)))
        third = len(data) // 3
        for part in range(3):
            near.sendall(data[part * third : (part + 1) * third])
            cut(near, part)
        near.shutdown(socket.SHUT_WR)
        assert reading.result() == digest(data)
        wait_until("back", lambda: near.counters["links_rejoined"] == 3 == len(far._session.up))


def test_back_pressure(tls_server: ssl.SSLContext, tls_client: ssl.SSLContext) -> None:
    with pair(
        2, server={"ssl_context": tls_server, "window_bytes": 1 << 18}, ssl_context=tls_client
    ) as (near, far):
        near.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                near.send(bytes(MB))
        near.settimeout(0.1)
        with pytest.raises(TimeoutError):
            near.sendall(bytes(MB))
        assert len(p_all(far, 1 << 18)) == 1 << 18


def test_a_certificate_of_somebody_else_is_refused(tls_server: ssl.SSLContext) -> None:
    with serving(1, ssl_context=tls_server) as listener:
        with pytest.raises(
            HandshakeRefused, match=r"^127\.0\.0\.1:\d+: TLS: .*self.signed certificate[^\n]*$"
        ):
            connect(listener.address, ssl_context=ssl.create_default_context())
        wait_until("counted", lambda: listener.counters["greetings_failed"] == 1)


def test_a_certificate_for_another_name_is_refused(
    tls_server: ssl.SSLContext, tls_client: ssl.SSLContext
) -> None:
    with serving(1, ssl_context=tls_server) as listener:
        with pytest.raises(HandshakeRefused, match=r"TLS: Hostname mismatch.*'example\.org'"):
            connect(listener.address, ssl_context=tls_client, server_hostname="example.org")
        wait_until("counted", lambda: listener.counters["greetings_failed"] == 1)
        with connect(listener.address, ssl_context=tls_client, server_hostname="localhost") as near:
            listener.accept(PATIENCE_S).abort()
            with pytest.raises(ConnectionResetError):
                near.recv(1)


def test_a_client_certificate_that_is_missing(
    tls_strict_server: ssl.SSLContext, tls_client: ssl.SSLContext
) -> None:
    """With TLS 1.3 the client learns it only after its own part of the handshake."""
    with serving(1, ssl_context=tls_strict_server) as listener:
        with pytest.raises(ParallelError, match=r"^127\.0\.0\.1:\d+: [^\n]*$"):
            connect(listener.address, ssl_context=tls_client)
        assert listener.counters["sessions"] == 0


def test_tls_to_a_plain_server(tls_client: ssl.SSLContext) -> None:
    with serving(1) as listener:
        with pytest.raises((HandshakeRefused, ProtocolError), match=r"^127\.0\.0\.1:\d+: [^\n]*$"):
            connect(listener.address, ssl_context=tls_client)
        wait_until("counted", lambda: listener.counters["greetings_refused"] == 1)


def test_plain_to_a_tls_server(tls_server: ssl.SSLContext) -> None:
    with serving(1, ssl_context=tls_server) as listener:
        with pytest.raises(ProtocolError, match=r"^127\.0\.0\.1:\d+: [^\n]*$"):
            connect(listener.address)
        wait_until("counted", lambda: listener.counters["greetings_failed"] == 1)


def test_a_handshake_that_stops_half_way(
    tls_server: ssl.SSLContext, tls_client: ssl.SSLContext, clock: Clock
) -> None:
    """It is dropped in time, and others do not wait for it."""
    with serving(1, ssl_context=tls_server, handshake_timeout_s=PATIENCE_S) as listener:
        with socket.create_connection(listener.address) as silent:
            silent.sendall(b"\x16\x03\x01\x02\x00\x01")  # the head of a ClientHello
            wait_until("accepted", lambda: listener._pending)
            with connect(listener.address, ssl_context=tls_client) as near:
                near.sendall(b"x")
            with listener.accept(PATIENCE_S) as far:
                assert read_all(far) == b"x"
            assert listener.counters["greetings_timed_out"] == 0
            clock.let_pass(PATIENCE_S)
            silent.settimeout(PATIENCE_S)
            assert silent.recv(100) == b""
        assert listener.counters["greetings_timed_out"] == 1


def test_frames_that_came_in_one_record_with_the_greeting(
    tls_server: ssl.SSLContext, tls_client: ssl.SSLContext
) -> None:
    """TLS has read them from the kernel with the greeting.

    So epoll does not show them, and they must be taken all the same.
    """
    with serving(1, ssl_context=tls_server) as listener:

        def connected() -> ssl.SSLSocket:
            plain = socket.create_connection(listener.address)
            return tls_client.wrap_socket(plain, server_hostname="localhost")

        with connected() as control, connected() as link:
            control.sendall(Greeting(HELLO, 1, MAX_CHUNK, MB, bytes(SESSION_BYTES)).pack())
            session = Reply.unpack(control.recv(REPLY.size + 20)).session
            message = FRAME.pack(1, 5, 0, 0, MB) + b"hello" + FRAME.pack(ACK, 0, 0, 0, MB)
            link.sendall(Greeting(JOIN, 1, MAX_CHUNK, MB, session).pack() + message)
            far = listener.accept(PATIENCE_S)
            far.settimeout(PATIENCE_S)
            assert p_all(far, 5) == b"hello"
            far.abort()


def test_qos_of_links_that_need_the_hostname(
    tls_server: ssl.SSLContext, tls_client: ssl.SSLContext
) -> None:
    """Links go to other addresses than the one that was asked; the name is the same."""
    names = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    with serving(3, ssl_context=tls_server, addresses=names) as listener:
        address = ("127.0.0.1", listener.address[1])
        with (
            connect(address, Qos(3), ssl_context=tls_client) as near,
            listener.accept(PATIENCE_S) as far,
        ):
            wait_until("links", lambda: len(far.links) == 3)
            assert {link.local.split(":")[0] for link in far.links} == set(names)
            near.sendall(b"x")
            assert far.recv(1) == b"x"
