# SPDX-License-Identifier: Apache-2.0
"""Streams for asyncio: calls, limits, back-pressure, errors, servers, many connections."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ri2n_parallel import AllLinksLost, HandshakeRefused, Qos, aio, aio_transport
from ri2n_parallel.aio import ParallelReader, ParallelServer, ParallelWriter, streams
from tests.unit.parallel.worlds import (
    PATIENCE_S,
    Clock,
    addresses,
    digest,
    noise,
    pair,
    rounds,
    wait_until,
)

MB = 1 << 20
open_parallel_connection = functools.partial(aio.open_parallel_connection, timeout_s=PATIENCE_S)
start_parallel_server = functools.partial(aio.start_parallel_server, handshake_timeout_s=PATIENCE_S)
Ends = tuple[ParallelReader, ParallelWriter]


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run it in a loop of its own in debug mode.

    That mode complains about what takes long or was never awaited.
    """

    async def timed() -> None:
        await asyncio.wait_for(_awaitable(test), 2 * PATIENCE_S)

    asyncio.run(timed())


async def _awaitable(test: Callable[[], Awaitable[None]]) -> None:
    await test()


@asynccontextmanager
async def connected(
    links: int = 3, *, server: dict[str, Any] | None = None, **client: Any
) -> AsyncIterator[tuple[Ends, Ends, ParallelServer]]:
    """(client's reader and writer, the server's, the server); all are closed at the end."""
    arrived: asyncio.Queue[Ends] = asyncio.Queue()
    names = addresses(links)
    async with await start_parallel_server(
        lambda *ends: arrived.put_nowait(ends), (names[0], 0), addresses=names, **(server or {})
    ) as serving:
        near = await open_parallel_connection(serving.address, Qos(links), **client)
        far = await arrived.get()
        await asyncio.to_thread(
            wait_until, "links", lambda: len(far[1].get_extra_info("links")) == links
        )
        try:
            yield near, far, serving
        finally:
            for _, writer in (near, far):
                writer.abort()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition while the loop runs."""
    while not condition():
        await asyncio.sleep(0.005)


def is_stuck(writer: ParallelWriter, peer_writer: ParallelWriter) -> bool:
    """Whether nothing more can go before the peer's program reads.

    Then the peer's window is full, and the sender knows it.
    """
    session, peer = (
        writer.get_extra_info("socket")._session,
        peer_writer.get_extra_info("socket")._session,
    )
    paused = not peer_writer.transport.is_reading()  # type: ignore[attr-defined]
    return paused and peer.incoming.ready == peer.incoming.window and session.outgoing.room == 0


async def send(writer: ParallelWriter, data: bytes, part: int = 1 << 16) -> None:
    for at in range(0, len(data), part):
        writer.write(data[at : at + part])
        await writer.drain()
    writer.write_eof()


def test_both_directions_at_once() -> None:
    async def test() -> None:
        data = noise(20 * MB, 1), noise(20 * MB, 2)
        async with connected() as (near, far, _):
            got = await asyncio.gather(
                near[0].read(), far[0].read(), send(near[1], data[0]), send(far[1], data[1], 1000)
            )
            assert [digest(each) for each in got[:2]] == [digest(data[1]), digest(data[0])]
            assert near[0].at_eof() and far[0].at_eof()
            links = near[1].get_extra_info("links")
            assert len(links) == 3 and all(link.sent_bytes for link in links)

    run(test)


def test_the_readers_calls() -> None:
    async def test() -> None:
        async with connected() as ((reader, writer), (peer_reader, peer_writer), _):
            peer_writer.writelines([b"one\n", b"two", b"|three", b"\nfour\n", b"12345", b"rest"])
            assert await reader.readline() == b"one\n"
            assert await reader.readuntil(b"|") == b"two|"
            lines = []
            async for line in reader:
                lines.append(line)
                if len(lines) == 2:
                    break
            assert lines == [b"three\n", b"four\n"]
            assert await reader.readexactly(5) == b"12345"
            assert not reader.at_eof() and peer_writer.can_write_eof()
            peer_writer.write_eof()
            peer_writer.write_eof()
            with pytest.raises(RuntimeError, match="write_eof"):
                peer_writer.write(b"x")
            with pytest.raises(asyncio.IncompleteReadError) as caught:
                await reader.readexactly(10)
            assert caught.value.partial == b"rest"
            assert await reader.read() == b"" and reader.at_eof()
            writer.write(bytearray(b"still"))
            writer.write(memoryview(b""))
            assert await peer_reader.readexactly(5) == b"still"

    run(test)


def test_a_line_longer_than_the_limit() -> None:
    async def test() -> None:
        async with connected(limit_bytes=1000) as ((reader, _), (_, other), _):
            other.write(bytes(5000) + b"\n")
            with pytest.raises(ValueError, match="limit"):
                await reader.readline()

    run(test)


def test_back_pressure_reaches_the_writer() -> None:
    """Nobody reads, so the bytes kept at both ends are bounded and `drain` waits.

    It goes on when somebody reads.
    """

    async def test() -> None:
        server = {"window_bytes": 1 << 18, "limit_bytes": 1 << 16}
        async with connected(server=server) as ((_, writer), (peer_reader, peer_writer), _):
            data, sent = noise(8 * MB), 0
            low, high = writer.transport.get_write_buffer_limits()
            assert (low, high) == (aio_transport.LOW_BYTES, aio_transport.HIGH_BYTES)
            while True:
                writer.write(data[sent : sent + (1 << 16)])
                sent += 1 << 16
                draining = asyncio.create_task(writer.drain())
                await asyncio.sleep(0)
                await until(lambda: draining.done() or is_stuck(writer, peer_writer))  # noqa: B023
                if not draining.done():
                    break
            kept = writer.transport.get_write_buffer_size()
            assert low < kept <= high + (1 << 16)
            # A reader keeps twice its limit and one read more; then come the window and what the
            # writer keeps.
            assert sent <= kept + (1 << 18) + 2 * (1 << 16) + aio_transport.READ_BYTES + (1 << 16)
            assert await peer_reader.readexactly(sent) == data[:sent]
            await draining
            assert writer.transport.get_write_buffer_size() <= low

    run(test)


def test_while_reading_is_paused_writing_goes_on() -> None:
    """One direction is stuck, since nobody reads there; the other goes on all the same."""

    async def test() -> None:
        options = {"window_bytes": 1 << 18, "limit_bytes": 1 << 16}
        async with connected(server=options, **options) as (near, far, _):
            stuck = asyncio.create_task(send(far[1], noise(4 * MB)))
            data = noise(8 * MB, 3)
            got, _ = await asyncio.gather(far[0].read(), send(near[1], data))
            assert digest(got) == digest(data)
            assert not stuck.done()
            assert digest(await near[0].read()) == digest(noise(4 * MB))
            await stuck

    run(test)


def test_nothing_runs_while_nothing_happens() -> None:
    """A writer that waits for room and a reader that is paused cost no turns of the loop."""

    async def test() -> None:
        server = {"window_bytes": 1 << 16, "limit_bytes": 1000}
        async with connected(server=server) as ((_, writer), (_, peer_writer), _):
            writer.write(bytes(4 * MB))
            await until(lambda: is_stuck(writer, peer_writer))
            loop = asyncio.get_running_loop()
            with rounds(writer.get_extra_info("socket")._session) as wait:
                # Wait until everything that came first is done.
                await loop.run_in_executor(None, wait, 3)
                turns = _count_turns(loop)
                await loop.run_in_executor(None, wait, 10)
            assert turns[0] < 15  # some are for the caretaker's pings and for the executor

    run(test)


def _count_turns(loop: asyncio.AbstractEventLoop) -> list[int]:
    """Counts how often the loop's selector returns."""
    selector, turns = loop._selector, [0]  # type: ignore[attr-defined]
    select = selector.select

    def counting(timeout: float | None = None) -> Any:
        turns[0] += 1
        return select(timeout)

    selector.select = counting
    return turns


def test_what_was_written_before_close_arrives() -> None:
    async def test() -> None:
        data = noise(6 * MB)
        async with connected() as ((_, writer), (peer_reader, _), _):
            writer.write(data)
            assert not writer.is_closing()
            writer.close()
            assert writer.is_closing()
            writer.write(b"too late")
            assert digest(await peer_reader.read()) == digest(data)
            await writer.wait_closed()

    run(test)


def test_an_abort_is_seen_by_reader_and_writer() -> None:
    async def test() -> None:
        async with connected(server={"window_bytes": 1 << 16}) as (near, far, _):
            near[1].write(bytes(4 * MB))
            draining = asyncio.create_task(near[1].drain())
            await asyncio.sleep(0)
            far[1].abort()
            with pytest.raises(ConnectionResetError, match="aborted"):
                await near[0].read()
            with pytest.raises(ConnectionResetError):
                await draining
            with pytest.raises(ConnectionResetError):
                await near[1].wait_closed()
            assert near[1].is_closing()

    run(test)


def test_an_abort_is_seen_while_reading_is_paused() -> None:
    async def test() -> None:
        async with connected(limit_bytes=1000) as (near, far, _):
            far[1].write(bytes(MB))
            assert await near[0].read(1) == b"\0"
            far[1].abort()
            with pytest.raises(ConnectionResetError, match="aborted"):
                await near[1].wait_closed()

    run(test)


def test_a_peer_that_has_sent_all_and_is_gone_is_no_error() -> None:
    """As with plain TCP: a peer that has read the end may close, however much later."""

    async def test() -> None:
        async with connected() as (near, far, _):
            far[1].write(b"all")
            far[1].close()
            assert await near[0].read() == b"all"
            # This takes a second from when its links are down.
            await asyncio.wait_for(near[1].wait_closed(), PATIENCE_S)
            with pytest.raises(ConnectionResetError):
                near[1].write(b"x")
                await near[1].drain()

    run(test)


def test_a_peer_that_has_sent_all_and_is_gone_before_it_took_all_is_one() -> None:
    async def test() -> None:
        async with connected(server={"window_bytes": 1 << 16}) as (near, far, _):
            far[1].write_eof()
            assert await near[0].read() == b""
            near[1].write(bytes(4 * MB))
            far[1].abort()
            with pytest.raises(ConnectionResetError, match="aborted"):
                await near[1].wait_closed()

    run(test)


def test_a_peer_that_has_sent_all_and_took_nothing_of_what_went_out_is_one() -> None:
    async def test() -> None:
        async with connected() as (near, far, _):
            far[1].write_eof()
            assert await near[0].read() == b""
            with far[1].get_extra_info("socket")._session.lock:  # nobody reads at the other end
                near[1].write(b"in the kernel's hands")
                assert not near[1].transport.get_write_buffer_size()
                far[1].abort()
            with pytest.raises(ConnectionResetError, match="aborted"):
                await near[1].wait_closed()

    run(test)


def test_extra_info() -> None:
    async def test() -> None:
        async with connected(2) as ((_, writer), (_, other), serving):
            assert (
                writer.get_extra_info("peername")
                == serving.address
                == other.get_extra_info("sockname")
            )
            assert other.get_extra_info("peername") == writer.get_extra_info("sockname")
            assert [link.number for link in writer.get_extra_info("links")] == [0, 1]
            assert writer.get_extra_info("counters")["duplicates"] == 0
            assert writer.get_extra_info("socket").gettimeout() == 0
            assert writer.get_extra_info("cipher", "none") == "none"
            with pytest.raises(NotImplementedError):
                await writer.start_tls(None)
            with pytest.raises(ValueError):
                writer.transport.set_write_buffer_limits(1, 2)

    run(test)


def test_with_tls(tls_server: ssl.SSLContext, tls_client: ssl.SSLContext) -> None:
    async def test() -> None:
        data = noise(8 * MB)
        async with connected(server={"ssl_context": tls_server}, ssl_context=tls_client) as (
            near,
            far,
            serving,
        ):
            got = await asyncio.gather(
                near[0].read(), far[0].read(), send(near[1], data), send(far[1], data)
            )
            assert [digest(each) for each in got[:2]] == [digest(data)] * 2
            with pytest.raises(HandshakeRefused, match=r"self.signed"):
                await open_parallel_connection(
                    serving.address, ssl_context=ssl.create_default_context()
                )

    run(test)


def test_links_that_die() -> None:
    async def test() -> None:
        data = noise(30 * MB)
        async with connected() as (near, far, _):
            reading = asyncio.create_task(far[0].read())
            for at in range(0, len(data), MB):
                near[1].write(data[at : at + MB])
                await near[1].drain()
                if at % (8 * MB) == 0:
                    session = near[1].get_extra_info("socket")._session
                    with session.lock:
                        session.links[min(session.links)].stream.shutdown(socket.SHUT_RDWR)
            near[1].write_eof()
            assert digest(await reading) == digest(data)
            assert near[1].get_extra_info("counters")["links_lost"] >= 3

    run(test)


def test_all_links_lost_while_nobody_writes(clock: Clock) -> None:
    async def test() -> None:
        async with connected(2, link_timeout_s=PATIENCE_S) as (near, _, serving):
            serving.listener.close()
            session = near[1].get_extra_info("socket")._session
            session._rejoin = None
            with session.lock:
                for link in list(session.links.values()):
                    session.lose(link, "No route to host")
            clock.let_pass(PATIENCE_S)
            with pytest.raises(AllLinksLost, match="link 0"):
                await near[0].read()

    run(test)


def test_connecting_does_not_hold_up_the_loop_and_can_be_cancelled() -> None:
    """The server accepts and says nothing."""

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            connecting = asyncio.create_task(open_parallel_connection(silent.getsockname()))
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert not connecting.done()
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            with pytest.raises(TimeoutError):
                await open_parallel_connection(silent.getsockname(), timeout_s=0.2)
        with pytest.raises(ConnectionRefusedError):
            await open_parallel_connection(("127.0.0.1", silent_port()))

    run(test)


def silent_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
    return port


def test_a_connection_that_is_there_too_late_is_aborted() -> None:
    """The caller was cancelled while the executor connected."""

    async def test() -> None:
        arrived: asyncio.Queue[Ends] = asyncio.Queue()
        async with await start_parallel_server(
            lambda *ends: arrived.put_nowait(ends), ("127.0.0.1", 0)
        ) as server:
            connecting = asyncio.create_task(open_parallel_connection(server.address))
            await asyncio.sleep(0)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            reader, writer = await asyncio.wait_for(arrived.get(), PATIENCE_S)
            with pytest.raises(ConnectionResetError, match="aborted"):
                await reader.read()
            writer.close()

    run(test)


def test_a_server_with_coroutines() -> None:
    async def test() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failures.append(context)
        )

        async def serve(reader: ParallelReader, writer: ParallelWriter) -> None:
            async for line in reader:
                if line == b"fail\n":
                    writer.write(b"half an ans")
                    raise KeyError("on purpose")
                writer.write(line.upper())
                await writer.drain()
            writer.close()

        async with await start_parallel_server(serve, ("127.0.0.1", 0)) as server:
            assert server.is_serving()
            good, bad = [await open_parallel_connection(server.address, Qos(2)) for _ in range(2)]
            good[1].write(b"hello\n")
            assert await good[0].readline() == b"HELLO\n"
            bad[1].write(b"fail\n")
            with pytest.raises(ConnectionResetError, match="aborted"):
                await bad[0].read()
            assert [str(each["exception"]) for each in failures] == ["'on purpose'"]
            bad[1].close()
            server.close()
            assert not server.is_serving()
            waiting = asyncio.create_task(server.wait_closed())
            good[1].write(b"after close\n")  # connections that are there go on, and are waited for
            assert await good[0].readline() == b"AFTER CLOSE\n"
            assert not waiting.done()
            good[1].close()
            await asyncio.wait_for(waiting, PATIENCE_S)
            with pytest.raises(OSError):
                await open_parallel_connection(server.address)

    run(test)


def test_serve_forever_until_it_is_cancelled() -> None:
    async def test() -> None:
        async def serve(reader: ParallelReader, writer: ParallelWriter) -> None:
            await reader.read()

        server = await start_parallel_server(serve, ("127.0.0.1", 0))
        forever = asyncio.create_task(server.serve_forever())
        reader, writer = await open_parallel_connection(server.address)
        forever.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forever
        assert not server.is_serving()
        server.abort_clients()
        await server.wait_closed()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()

    run(test)


def test_a_callback_that_fails() -> None:
    async def test() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failures.append(context)
        )

        def fail(reader: ParallelReader, writer: ParallelWriter) -> None:
            raise KeyError("on purpose")

        async with await start_parallel_server(fail, ("127.0.0.1", 0)) as server:
            reader, writer = await open_parallel_connection(server.address)
            with pytest.raises(ConnectionResetError, match="aborted"):
                await reader.read()
            writer.close()
            assert len(failures) == 1

    run(test)


def test_a_loop_at_one_end_and_a_thread_at_the_other() -> None:
    data = noise(10 * MB)
    with pair(3) as (near, far):
        echo = hashlib.sha256()

        def blocking() -> None:
            while part := far.recv(1 << 16):
                echo.update(part)
                far.sendall(part)
            far.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=blocking)
        thread.start()

        async def test() -> None:
            reader, writer = streams(near)
            got, _ = await asyncio.gather(reader.read(), send(writer, data))
            assert digest(got) == digest(data)
            writer.close()
            await writer.wait_closed()

        run(test)
        thread.join()
        assert echo.hexdigest() == digest(data)


def test_two_hundred_connections_need_no_threads() -> None:
    async def test() -> None:
        most = 0

        async def serve(reader: ParallelReader, writer: ParallelWriter) -> None:
            nonlocal most
            most = max(most, sum("ri2n" in one.name for one in threading.enumerate()))
            writer.write(hashlib.sha256(await reader.read()).digest())
            writer.close()

        async def client(number: int) -> None:
            data = noise(50_000 + number, number)
            reader, writer = await open_parallel_connection(server.address, Qos(2))
            await send(writer, data)
            assert await reader.readexactly(32) == hashlib.sha256(data).digest()
            writer.close()
            await writer.wait_closed()

        async with await start_parallel_server(
            serve, ("127.0.0.1", 0), addresses=addresses(2)
        ) as server:
            await asyncio.gather(*(client(number) for number in range(200)))
        assert most == 2, "one of the listener and the caretaker"

    run(test)
