# SPDX-License-Identifier: Apache-2.0
"""Tokens: both ends prove that they know the token, on every connection.

Nothing else is sent or done before.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ri2n_parallel import (
    AllLinksLost,
    HandshakeRefused,
    ParallelListener,
    Qos,
    TokenRefused,
    create_connection,
    create_listener,
    p_connect,
    proof,
)
from ri2n_parallel.aio import open_parallel_connection, start_parallel_server
from ri2n_parallel.errors import BadInput
from ri2n_parallel.frames import (
    BAD_GREETING,
    CHALLENGE,
    DATA,
    EARLY,
    FRAME,
    GREETING,
    HELLO,
    JOIN,
    MAX_CHUNK,
    OK,
    PROVE,
    REPLY,
    SESSION_BYTES,
    TOKEN_WANTED,
    TOKEN_WRONG,
    UNKNOWN_SESSION,
    Endpoint,
    Greeting,
    Reply,
)
from ri2n_parallel.proof import NONCE_BYTES, PROOF_BYTES
from tests.unit.parallel.raw import WINDOW, exactly, frame
from tests.unit.parallel.worlds import (
    PATIENCE_S,
    connect,
    digest,
    in_thread,
    noise,
    p_all,
    pair,
    serving,
    wait_until,
)

TOKEN = "a long word that nobody guesses"
KEY = TOKEN.encode()
NONCE = bytes(range(NONCE_BYTES))
ASKED = GREETING.size + NONCE_BYTES
CHALLENGED = REPLY.size + NONCE_BYTES + PROOF_BYTES


def greeting(
    kind: int, session: bytes = bytes(SESSION_BYTES), link: int = 0, *, proves: bool = True
) -> bytes:
    made = Greeting(kind, 1, MAX_CHUNK, WINDOW, session, link, proves).pack()
    return made + NONCE if proves else made


def served(listening: ParallelListener) -> None:
    """A client with the token is served."""
    with (
        connect(listening.address, Qos(2), token=TOKEN) as near,
        listening.accept(PATIENCE_S) as far,
    ):
        near.sendall(b"ping")
        assert p_all(far, 4) == b"ping"


def nobody(listening: ParallelListener) -> None:
    """No client was let in."""
    with pytest.raises(BlockingIOError):
        listening.accept(0)
    assert listening.counters["sessions"] == 0 and not any(listening.connections.values())


class Asking:
    """A client made by hand, up to the server's challenge."""

    def __init__(self, address: tuple[str, int], said: bytes) -> None:
        self.stream = socket.create_connection(address, PATIENCE_S)
        self.stream.sendall(said)
        self.answer = exactly(self.stream, CHALLENGED)
        self.said = said + self.answer[:-PROOF_BYTES]
        self.status = Reply.unpack(self.answer).status
        self.name = Reply.unpack(self.answer).session

    def status_after(self, said: bytes) -> int:
        self.stream.sendall(said)
        return int(REPLY.unpack(exactly(self.stream, REPLY.size))[2])

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()


# ---- those who have the same


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("count", [0, 1, 200_000])
def test_ends_with_the_same_token(
    count: int, tls: bool, tls_server: ssl.SSLContext, tls_client: ssl.SSLContext
) -> None:
    """With and without first bytes, which go with the proof."""
    data, more = noise(count), noise(300_000, 2)
    with serving(3, token=TOKEN, ssl_context=tls_server if tls else None) as listening:
        context = tls_client if tls else None
        connecting = in_thread(
            lambda: connect(listening.address, Qos(3), data=data, token=KEY, ssl_context=context)
        )
        with listening.accept(PATIENCE_S) as far, connecting.result() as near:
            near.sendall(more)
            assert digest(p_all(far, count + len(more))) == digest(data + more)
            far.sendall(more)
            assert digest(p_all(near, len(more))) == digest(more)
            wait_until("links", lambda: len(near.links) == len(far.links) == 3)
            near.abort()
        counters = listening.counters
        assert (
            counters["tokens_missing"],
            counters["tokens_wrong"],
            counters["greetings_refused"],
        ) == (0, 0, 0)


def test_links_that_die_come_back() -> None:
    with pair(2, server={"token": TOKEN}, token=TOKEN) as (near, far):
        for number in range(2):
            with near._session.lock:
                near._session.links[number].stream.shutdown(socket.SHUT_RDWR)
        wait_until("back", lambda: near.counters["links_rejoined"] == 2 == len(far._session.up))
        near.sendall(b"x")
        assert p_all(far, 1) == b"x"


def test_asyncio_and_the_papers_calls() -> None:
    async def run() -> bytes:
        async def serve(reader: Any, writer: Any) -> None:
            writer.write((await reader.readexactly(5))[::-1])
            await writer.drain()
            writer.close()

        async with await start_parallel_server(serve, ("127.0.0.1", 0), token=TOKEN) as server:
            with pytest.raises(TokenRefused):
                await open_parallel_connection(server.address)
            reader, writer = await open_parallel_connection(
                server.address, Qos(2), data=b"hello", token=TOKEN
            )
            answer: bytes = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(run()) == b"olleh"
    with serving(1, token=TOKEN) as listening:
        for token in (None, TOKEN):
            with socket.socket() as fd, contextlib.ExitStack() as stack:
                fd.settimeout(PATIENCE_S)
                if token is None:
                    stack.enter_context(pytest.raises(TokenRefused))
                p_connect(fd, listening.address, Qos(1), token=token).abort()


@pytest.mark.parametrize("token", ["", b""])
def test_an_empty_token_is_none(token: Any) -> None:
    with pytest.raises(BadInput, match="token: is empty"):
        create_connection(("127.0.0.1", 1), token=token)
    with pytest.raises(BadInput, match="token: is empty"):
        create_listener(("127.0.0.1", 0), token=token)


# ---- a server and clients that it does not let in


@pytest.mark.parametrize("data", [b"", b"first bytes"])
def test_a_client_without_a_token_is_refused(data: bytes) -> None:
    with serving(1, token=TOKEN) as listening:
        with pytest.raises(TokenRefused, match=r"^127\.0\.0\.1:\d+: the server wants a token$"):
            connect(listening.address, data=data)
        nobody(listening)
        assert listening.counters["tokens_missing"] == 1
        served(listening)


@pytest.mark.parametrize("data", [b"", b"first bytes"])
@pytest.mark.parametrize("token", ["A long word that nobody guesses", TOKEN + " ", "x"])
def test_a_client_with_another_token_is_refused(token: str, data: bytes) -> None:
    with serving(1, token=TOKEN) as listening:
        with pytest.raises(TokenRefused, match=r"^127\.0\.0\.1:\d+: the server has another token$"):
            connect(listening.address, data=data, token=token)
        wait_until("counted", lambda: listening.counters["tokens_wrong"] == 1)
        nobody(listening)
        served(listening)


@pytest.mark.parametrize("kind", [HELLO, EARLY])
@pytest.mark.parametrize("how", ["noise", "server's", "of another connection", "early data"])
def test_a_proof_that_is_none(kind: int, how: str) -> None:
    """A proof that is made up, the server's own one sent back, or one of another connection.

    Also the frames that should follow after the proof, in its place.
    """
    with serving(1, token=TOKEN) as listening:
        with (
            Asking(listening.address, greeting(kind)) as asking,
            Asking(listening.address, greeting(kind)) as other,
        ):
            assert asking.status == CHALLENGE and asking.name != other.name
            nobody(listening)
            said = {
                "noise": noise(PROOF_BYTES),
                "server's": asking.answer[-PROOF_BYTES:],
                "of another connection": proof.proof_of_client(KEY, other.said),
                "early data": frame(DATA, 0, b"do this at once"),
            }[how]
            assert asking.status_after(said) == TOKEN_WRONG
            assert listening.counters["tokens_wrong"] == 1
            nobody(listening)
            assert other.status_after(proof.proof_of_client(KEY, other.said)) == OK
            if kind == EARLY:
                listening.accept(PATIENCE_S).abort()
        served(listening)


def test_a_proof_is_bound_to_all_that_was_said_and_to_who_says_it() -> None:
    with serving(1, token=TOKEN) as listening, Asking(listening.address, greeting(HELLO)) as asking:
        assert asking.answer[-PROOF_BYTES:] == proof.proof_of_server(KEY, asking.said)
        for place in range(len(asking.said)):
            changed = bytearray(asking.said)
            changed[place] ^= 1
            assert asking.answer[-PROOF_BYTES:] != proof.proof_of_server(KEY, bytes(changed))
    made = [proof.proof_of_server, proof.proof_of_client, proof.session_key, proof.proof_of_answer]
    assert len({one(KEY, asking.said) for one in made}) == len(made)
    assert (
        len({proof.proof_of_client(key, asking.said) for key in (KEY, KEY + b"x", KEY[:-1])}) == 3
    )


# ---- a client and servers that it does not believe


@contextmanager
def pretender(*said: bytes) -> Iterator[tuple[tuple[str, int], list[bytes]]]:
    """A server that knows no token; after each message of a client it sends one of these.

    It also gives all that the client has sent.
    """
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)

        def serve() -> None:
            stream, _ = listening.accept()
            with stream, contextlib.suppress(ConnectionError):
                stream.settimeout(PATIENCE_S)
                for word in said:
                    heard.append(exactly(stream, ASKED) if not heard else stream.recv(1 << 16))
                    stream.sendall(word)
                while part := stream.recv(1 << 16):
                    heard.append(part)

        serving_one = in_thread(serve)
        yield listening.getsockname(), heard
        serving_one.result()


HERE = Reply(OK, MAX_CHUNK, WINDOW, bytes(SESSION_BYTES), (Endpoint("127.0.0.1", 1),)).pack()
ASKS = Reply(CHALLENGE).pack() + NONCE


@pytest.mark.parametrize(
    ("word", "why"),
    [
        (HERE, "the server does not prove that it knows the token"),
        (ASKS + bytes(PROOF_BYTES), "the server has another token"),
        (
            ASKS + proof.proof_of_server(b"x", greeting(HELLO) + ASKS),
            "the server has another token",
        ),
        (Reply(BAD_GREETING).pack(), "it did not understand the greeting"),
    ],
    ids=["lets anybody in", "noise", "another token", "older"],
)
def test_a_server_that_does_not_know_the_token_gets_nothing(word: bytes, why: str) -> None:
    """It gets neither the token, nor a proof, nor first bytes."""
    where = r"^127\.0\.0\.1:\d+: "
    with (
        pretender(word) as (address, heard),
        pytest.raises(HandshakeRefused, match=f"{where}{why}$"),
    ):
        connect(address, data=b"first bytes", token=TOKEN)
    (said,) = heard
    assert said[5] == EARLY | PROVE and len(said) == ASKED
    assert KEY not in said and b"first bytes" not in said


def test_a_server_without_a_token_is_refused() -> None:
    why = "the server does not prove that it knows the token: it was started without one"
    with serving(1) as listening:
        with pytest.raises(TokenRefused, match=rf"^127\.0\.0\.1:\d+: {why}$"):
            connect(listening.address, data=b"first bytes", token=TOKEN)
        nobody(listening)


def test_a_proof_that_is_sent_back_is_none() -> None:
    """An attacker in between lets the client itself make the server's proof.

    The attacker knows no token; this fails since the two ends' proofs differ.
    """
    with serving(1, token=TOKEN) as listening, Asking(listening.address, greeting(HELLO)) as asking:
        said = asking.said
    with (
        pretender(ASKS + proof.proof_of_client(KEY, said)) as (address, heard),
        pytest.raises(TokenRefused),
    ):
        connect(address, token=TOKEN)
    assert len(heard) == 1


@pytest.mark.parametrize(
    "place", [5, REPLY.size + 4, -PROOF_BYTES - 1, -1], ids=["status", "address", "end", "proof"]
)
def test_an_answer_that_was_changed_on_its_way(place: int) -> None:
    """An attacker in between passes the proofs on and names other addresses."""
    with serving(1, token=TOKEN) as listening, socket.create_server(("127.0.0.1", 0)) as between:
        between.settimeout(PATIENCE_S)

        def pass_on() -> None:
            client, _ = between.accept()
            with client, socket.create_connection(listening.address, PATIENCE_S) as server:
                client.settimeout(PATIENCE_S)
                server.sendall(exactly(client, ASKED))
                client.sendall(exactly(server, CHALLENGED))
                server.sendall(exactly(client, PROOF_BYTES))
                answer = bytearray(exactly(server, REPLY.size + 20 + PROOF_BYTES))
                answer[place] ^= 2
                client.sendall(answer)
                with contextlib.suppress(ConnectionError):
                    exactly(client, 1)

        passing = in_thread(pass_on)
        with pytest.raises(HandshakeRefused):
            connect(between.getsockname(), token=TOKEN)
        passing.result()


# ---- links


@contextmanager
def session_by_hand(listening: ParallelListener) -> Iterator[tuple[bytes, bytes]]:
    """The name and the key of a session without links, whose control connection was read."""
    with Asking(listening.address, greeting(EARLY)) as asking:
        assert asking.status_after(proof.proof_of_client(KEY, asking.said)) == OK
        yield asking.name, proof.session_key(KEY, asking.said)


def test_who_reads_the_network_cannot_join() -> None:
    """An attacker uses what is sent openly.

    That is the name of the session, and all that was sent when a link joined, sent again.
    """
    with serving(1, token=TOKEN) as listening, session_by_hand(listening) as (name, key):
        with listening.accept(PATIENCE_S) as far:
            with socket.create_connection(listening.address, PATIENCE_S) as stream:
                stream.sendall(greeting(JOIN, name, proves=False) + frame(DATA, 0, b"forged"))
                assert Reply.unpack(exactly(stream, REPLY.size)).status == TOKEN_WANTED
            with Asking(listening.address, greeting(JOIN, name)) as link:
                assert link.answer[-PROOF_BYTES:] == proof.proof_of_server(key, link.said)
                spoken = proof.proof_of_client(key, link.said)
                assert link.status_after(spoken) == OK
                with Asking(listening.address, greeting(JOIN, name)) as again:
                    assert again.status_after(spoken + frame(DATA, 0, b"forged")) == TOKEN_WRONG
                # The token alone is not enough either.
                with Asking(listening.address, greeting(JOIN, name)) as again:
                    assert again.status_after(proof.proof_of_client(KEY, again.said)) == TOKEN_WRONG
                # A proof for link 0 is none for link 1.
                with Asking(listening.address, greeting(JOIN, name, 1)) as again:
                    assert again.status_after(proof.proof_of_client(key, link.said)) == TOKEN_WRONG
                link.stream.sendall(frame(DATA, 0, b"from its client"))
                assert p_all(far, 15) == b"from its client" and len(far.links) == 1
                far.abort()
        counters = listening.counters
        assert (counters["tokens_missing"], counters["tokens_wrong"], counters["links"]) == (
            1,
            3,
            1,
        )


def test_a_link_to_no_session() -> None:
    with (
        serving(1, token=TOKEN) as listening,
        socket.create_connection(listening.address, PATIENCE_S) as stream,
    ):
        stream.sendall(greeting(JOIN, noise(SESSION_BYTES)))
        assert Reply.unpack(exactly(stream, REPLY.size)).status == UNKNOWN_SESSION


@pytest.mark.parametrize(
    "word", [Reply(OK).pack(), ASKS + bytes(PROOF_BYTES)], ids=["without", "wrong"]
)
def test_nothing_goes_over_a_link_to_somebody_else(word: bytes) -> None:
    """An attacker has taken the address of one of the server's NICs, for example."""
    with pretender(word) as (elsewhere, heard), socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)

        def serve() -> None:
            control, _ = listening.accept()
            with control:
                control.settimeout(PATIENCE_S)
                said = exactly(control, ASKED) + ASKS
                control.sendall(ASKS + proof.proof_of_server(KEY, said))
                assert exactly(control, PROOF_BYTES) == proof.proof_of_client(KEY, said)
                answer = Reply(
                    OK, MAX_CHUNK, WINDOW, bytes(SESSION_BYTES), (Endpoint(*elsewhere),)
                ).pack()
                control.sendall(
                    answer + proof.proof_of_answer(proof.session_key(KEY, said), answer)
                )
                exactly(control, FRAME.size)

        serving_one = in_thread(serve)
        with pytest.raises(
            AllLinksLost, match=r"refused: what listens there does not prove that it is the server$"
        ):
            connect(listening.getsockname(), token=TOKEN)
        serving_one.result()
    assert [len(said) for said in heard] == [ASKED]
