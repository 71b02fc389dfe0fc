# SPDX-License-Identifier: Apache-2.0
"""The listening socket: how many connections there may be, and how many of them of one address."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from ri2n_sdn.web import listening
from ri2n_sdn.web.listening import LimitedListener, listen
from ri2n_sdn.web.settings import WebSettings
from tests.unit.web_app import run
from tests.waiting import LONG_S


@pytest.fixture
def listener() -> Iterator[LimitedListener]:
    with listen(WebSettings(port=0)) as made:
        made.settimeout(LONG_S)
        yield made


def test_an_address_has_so_many_connections_until_they_are_closed(
    listener: LimitedListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MAX_OF_ONE", 2)
    monkeypatch.setattr(listening, "is_loopback", lambda address: False)
    with contextlib.ExitStack() as stack:

        def connected() -> socket.socket:
            return stack.enter_context(
                socket.create_connection(listener.getsockname(), timeout=LONG_S)
            )

        clients = [connected() for _ in range(3)]
        held = [stack.enter_context(listener.accept()[0]) for _ in range(2)]
        with pytest.raises(ConnectionAbortedError):
            listener.accept()
        with contextlib.suppress(ConnectionError):
            assert clients[2].recv(1) == b""
        held[0].sendall(b"x")
        assert clients[0].recv(1) == b"x" and listener.open == {"127.0.0.1": 2}
        for _ in range(2):
            held[0].close()
        clients.append(connected())
        held.append(stack.enter_context(listener.accept()[0]))
        assert listener.open == {"127.0.0.1": 2}
        for each in held:
            each.close()
        assert not listener.open


def test_this_machine_is_limited_as_all_together_are(
    listener: LimitedListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy, everybody seems to be on this machine."""
    monkeypatch.setattr(listening, "MAX_OF_ONE", 1)
    monkeypatch.setattr(listening, "MAX_CONNECTIONS", 2)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(socket.create_connection(listener.getsockname(), timeout=LONG_S))
        held = [stack.enter_context(listener.accept()[0]) for _ in range(2)]
        with pytest.raises(ConnectionAbortedError):
            listener.accept()
        assert len(held) == 2


def test_an_event_loop_goes_on_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it makes room when connections end, whoever ends them."""
    monkeypatch.setattr(listening, "MAX_CONNECTIONS", 3)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.read()
        writer.close()

    async def play() -> None:
        listener = listen(WebSettings(port=0))
        server = await asyncio.start_server(greet, sock=listener)
        host, port = listener.getsockname()

        async def visit() -> bytes:
            reader, writer = await asyncio.open_connection(host, port)
            try:
                return await reader.read(5)
            except ConnectionError:
                return b""
            finally:
                writers.append(writer)

        async def emptied() -> None:
            deadline_s = time.monotonic() + LONG_S
            for writer in writers:
                writer.close()
            while listener.open:
                assert time.monotonic() < deadline_s, listener.open
                await asyncio.sleep(0.001)

        for _ in range(2):
            writers: list[asyncio.StreamWriter] = []
            found = [await visit() for _ in range(6)]
            assert found == [b"hello"] * 3 + [b""] * 3
            await emptied()
        server.close()

    run(play())
