# SPDX-License-Identifier: Apache-2.0
"""Parallel connections for asyncio, with the streams of `open_connection` and `start_server`.

Below them is an asyncio transport over a ParallelSocket (aio_transport.py). Limits, back-pressure
and the methods of readers are those of asyncio. There is no thread per connection: the event loop
watches the one descriptor of the socket.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ri2n_parallel.aio_transport import ParallelTransport
from ri2n_parallel.connect import WINDOW_BYTES, Qos, create_connection
from ri2n_parallel.connection import ParallelSocket
from ri2n_parallel.listener import BACKLOG, ParallelListener, create_listener

if TYPE_CHECKING:
    from typing import Self  # of Python 3.11

__all__ = [
    "LIMIT_BYTES",
    "ParallelReader",
    "ParallelServer",
    "ParallelWriter",
    "open_parallel_connection",
    "start_parallel_server",
    "streams",
]

LIMIT_BYTES = 1 << 18
"""The default limit of a reader, which stops receiving at twice as much.

Asyncio's own limit of 64 KiB is less than what several links deliver at once.
"""
ONE_LINK = Qos()
Connected = Callable[["ParallelReader", "ParallelWriter"], Awaitable[None] | None]


async def open_parallel_connection(
    address: tuple[str, int],
    qos: Qos = ONE_LINK,
    *,
    data: bytes = b"",
    limit_bytes: int = LIMIT_BYTES,
    timeout_s: float | None = 10.0,
    sources: Sequence[str] | None = None,
    token: str | bytes | None = None,
    networks: Sequence[str] = (),
    ssl_context: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    window_bytes: int = WINDOW_BYTES,
    link_timeout_s: float = 60.0,
) -> tuple[ParallelReader, ParallelWriter]:
    """Connect as `create_connection`, with its arguments and errors.

    It connects in a thread of the loop's default executor. `limit_bytes` is the longest line that
    `readline` and `readuntil` return.
    """
    connect = functools.partial(
        create_connection,
        address,
        qos,
        data=data,
        timeout_s=timeout_s,
        sources=sources,
        token=token,
        networks=networks,
        ssl_context=ssl_context,
        server_hostname=server_hostname,
        window_bytes=window_bytes,
        link_timeout_s=link_timeout_s,
    )
    connecting = asyncio.get_running_loop().run_in_executor(None, connect)
    try:
        sock = await asyncio.shield(connecting)
    except asyncio.CancelledError:
        connecting.add_done_callback(_not_wanted)
        raise
    return streams(sock, limit_bytes=limit_bytes)


async def start_parallel_server(
    client_connected: Connected,
    address: tuple[str, int],
    *,
    limit_bytes: int = LIMIT_BYTES,
    addresses: Sequence[str] | None = None,
    placement: str = "least_connections",
    weights: Mapping[str, float] | None = None,
    token: str | bytes | None = None,
    ssl_context: ssl.SSLContext | None = None,
    window_bytes: int = WINDOW_BYTES,
    handshake_timeout_s: float = 5.0,
    backlog: int = BACKLOG,
    link_timeout_s: float = 60.0,
) -> ParallelServer:
    """Listen as `create_listener`, with its arguments and errors.

    `client_connected(reader, writer)` is called for each connection; if it is a coroutine, it runs
    as a task. When it fails, the exception goes to the exception handler of the loop, and the
    connection is aborted, so that the peer does not take a part of an answer for all of it.
    """
    listener = create_listener(
        address,
        addresses=addresses,
        placement=placement,
        weights=weights,
        token=token,
        ssl_context=ssl_context,
        window_bytes=window_bytes,
        handshake_timeout_s=handshake_timeout_s,
        backlog=backlog,
        link_timeout_s=link_timeout_s,
    )
    return ParallelServer(listener, client_connected, limit_bytes)


def streams(
    sock: ParallelSocket, *, limit_bytes: int = LIMIT_BYTES
) -> tuple[ParallelReader, ParallelWriter]:
    """A reader and a writer over a connected socket, which belongs to the running loop from now on.

    `limit_bytes` is that of `open_parallel_connection`.
    """
    loop = asyncio.get_running_loop()
    reader = ParallelReader(limit_bytes, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = ParallelTransport(loop, sock, protocol)
    return reader, ParallelWriter(transport, protocol, reader, loop)


class ParallelReader(asyncio.StreamReader):
    """What the peer sends over all links, in order.

    It has the methods of asyncio.StreamReader: read, readexactly, readuntil, readline, at_eof, and
    `async for` lines. Errors of the connection are those of ParallelSocket.
    """


class ParallelWriter(asyncio.StreamWriter):
    """What is sent to the peer.

    It has the methods of asyncio.StreamWriter: write, writelines, drain, write_eof, close,
    wait_closed. `get_extra_info` knows "links" (a list of LinkInfo), "counters", "peername" and
    "sockname" (those of one connection) and "socket" (the ParallelSocket).
    """

    def abort(self) -> None:
        """Close at once; what was not delivered is lost, and the peer is told."""
        self.transport.abort()

    async def start_tls(self, *args: Any, **options: Any) -> None:
        """Raises NotImplementedError: every link has TLS of its own, from its start.

        Give `ssl_context` to `open_parallel_connection` instead.
        """
        raise NotImplementedError("a parallel connection starts with TLS or does not have it")


class ParallelServer:
    """Accepts connections until it is closed; `start_parallel_server` makes it."""

    def __init__(
        self, listener: ParallelListener, client_connected: Connected, limit_bytes: int
    ) -> None:
        self.listener, self._limit_bytes = listener, limit_bytes
        self._client_connected = client_connected
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fd = listener.fileno()
        self._done = asyncio.Event()
        self._loop.add_reader(self._fd, self._accept)

    @property
    def address(self) -> tuple[str, int]:
        """The address and port on which it listens."""
        return self.listener.address

    @property
    def counters(self) -> dict[str, int]:
        """The counters of the ParallelListener."""
        return self.listener.counters

    def is_serving(self) -> bool:
        """Whether it accepts connections."""
        return self._fd >= 0

    def abort_clients(self) -> None:
        """Cancel the coroutines of all connections, which aborts the connections."""
        for task in self._tasks:
            task.cancel()

    def close(self) -> None:
        """Accept no more connections; those that were accepted go on."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
            self.listener.close()
            self._done.set()

    async def wait_closed(self) -> None:
        """Wait until it is closed and the coroutines of its connections have ended."""
        await self._done.wait()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def serve_forever(self) -> None:
        """Wait until this is cancelled or the server is closed; then close it."""
        try:
            await self._done.wait()
        finally:
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if kind is not None:
            self.abort_clients()
        await self.wait_closed()

    def _accept(self) -> None:
        """Give the next connection to the program: call its function, or start its task."""
        try:
            sock = self.listener.accept(timeout_s=0)
        except BlockingIOError:
            return
        reader, writer = streams(sock, limit_bytes=self._limit_bytes)
        try:
            result = self._client_connected(reader, writer)
        except Exception as error:
            self._failed(error, writer)
            return
        if result is not None:
            task = self._loop.create_task(_run(result))
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._ended, writer))

    def _ended(self, writer: ParallelWriter, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            writer.abort()
        elif (error := task.exception()) is not None:
            self._failed(error, writer)

    def _failed(self, error: BaseException, writer: ParallelWriter) -> None:
        writer.abort()
        self._loop.call_exception_handler(
            {"message": "the program's part of a connection failed", "exception": error}
        )


async def _run(client: Awaitable[None]) -> None:
    await client


def _not_wanted(connecting: asyncio.Future[ParallelSocket]) -> None:
    """Abort a connection that was made for a caller who waits no more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().abort()
