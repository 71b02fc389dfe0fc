# SPDX-License-Identifier: Apache-2.0
"""A copy server over pairs of plain sockets."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ri2n_parallel.copy import Folder, Server, Session
from ri2n_parallel.copy.messages import Hello, encode
from tests.unit.parallel.worlds import PATIENCE_S
from tests.waiting import wait_until

__all__ = ["HELLO", "Connector", "Serving", "read_all", "say", "serving"]

UMASK = 0o022
HELLO = encode(Hello(2, "ri2n-copy"))


class Connector:
    """Makes connections to a server.

    `connect` returns the client's end, and `accept` returns the server's end.
    """

    def __init__(self) -> None:
        self._waiting: queue.Queue[socket.socket | None] = queue.Queue()
        self._ends: list[socket.socket] = []

    def connect(self) -> socket.socket:
        """The client's end of a new connection."""
        client_end, server_end = socket.socketpair()
        self._ends.append(client_end)
        self._waiting.put(server_end)
        return client_end

    def accept(self, timeout_s: float | None = None, /) -> socket.socket:
        """The server's end of the next connection; TimeoutError when there is none."""
        try:
            found = self._waiting.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None
        if found is None:
            raise OSError("closed")
        return found

    def close(self) -> None:
        """Accept no more."""
        self._waiting.put(None)

    def close_ends(self) -> None:
        """Close all clients' ends."""
        for end in self._ends:
            end.close()


class Serving:
    """A server that runs; `session()` is a client of it."""

    def __init__(self, server: Server, connector: Connector) -> None:
        self.server, self.connector = server, connector
        self.said: list[str] = []

    def connect(self) -> socket.socket:
        """A new connection, over which nothing has been sent."""
        return self.connector.connect()

    def session(self, wrap: Callable[[socket.socket], Any] = lambda end: end) -> Session:
        """A client that was let in; `wrap` may put something between it and the server."""
        return Session(wrap(self.connector.connect()), timeout_s=PATIENCE_S)


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@contextlib.contextmanager
def serving(directory: Path, **options: Any) -> Iterator[Serving]:
    """Serve a directory; in the end no thread, no descriptor and no bug may be left."""
    before, open_before = set(threading.enumerate()), descriptors()
    connector = Connector()
    folder = Folder(directory, UMASK)
    server = Server(connector, folder, **{"timeout_s": PATIENCE_S, **options})
    thread = threading.Thread(target=server.serve, name="ri2n-copy-test")
    running = Serving(server, connector)
    server.say = running.said.append
    thread.start()
    try:
        yield running
    finally:
        connector.close_ends()
        server.close()
        thread.join(PATIENCE_S)
        folder.close()
    assert not thread.is_alive()
    wait_until(lambda: not server.sessions, lambda: server.sessions)
    left = [
        each
        for each in threading.enumerate()
        if each.name.startswith("ri2n-copy") and each not in before
    ]
    assert not left, left
    assert descriptors() == open_before
    assert not server.counters["bugs"], running.said


def read_all(end: socket.socket) -> bytes:
    """All that a server sends, up to the end."""
    found = b""
    end.settimeout(PATIENCE_S)
    with contextlib.suppress(ConnectionError):
        while part := end.recv(1 << 16):
            found += part
    return found


def say(running: Serving, data: bytes) -> bytes:
    """Send a client's bytes, and return all that the server answers."""
    end = running.connect()
    with contextlib.suppress(ConnectionError):
        end.sendall(data)
        end.shutdown(socket.SHUT_WR)
    found = read_all(end)
    end.close()
    return found
