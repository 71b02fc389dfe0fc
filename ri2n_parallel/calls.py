# SPDX-License-Identifier: Apache-2.0
"""The calls of the paper (Paradise, section 3.2.5, table 1), in the order of plain sockets.

They are connect, accept, read and write. Here `fds` is one ParallelSocket. The paper has a list of
descriptors, but a ParallelSocket also knows what has to be sent again.
"""

from __future__ import annotations

import socket
import time
from typing import Any, Protocol

from ri2n_parallel.connect import Qos, open_session
from ri2n_parallel.connection import ParallelSocket
from ri2n_parallel.dial import Client
from ri2n_parallel.listener import ParallelListener
from ri2n_parallel.proof import key_of

__all__ = ["p_accept", "p_connect", "p_read", "p_write"]


class Readable(Protocol):
    """What `p_read` needs of a ParallelSocket; a plain socket has it too."""

    def recv_into(self, buffer: Any, /) -> int:
        """Read what has been received; how many bytes, 0 at the end."""


def p_connect(
    fd: socket.socket, address: tuple[str, int], qos: Qos, *, token: str | bytes | None = None
) -> ParallelSocket:
    """Connect the new socket `fd` to a server, then as many data connections as `qos` asks for.

    `fd` is the control connection; its time-out bounds the whole call. `token` and the errors are
    those of `create_connection`.
    """
    key = key_of(token)
    timeout_s = fd.gettimeout()
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    fd.connect(address)
    return open_session(fd, qos, Client(server_hostname=address[0], key=key), deadline_s)


def p_accept(listener: ParallelListener) -> tuple[ParallelSocket, int]:
    """The connection of the next client, and how many data connections it has so far."""
    fds = listener.accept()
    return fds, len(fds.links)


def p_read(fds: Readable, nbytes: int) -> bytes:
    """Read `nbytes`, or fewer when the stream ends before."""
    buffer = bytearray(nbytes)
    view, total = memoryview(buffer), 0
    while total < nbytes:
        count = fds.recv_into(view[total:])
        if not count:
            break
        total += count
    return bytes(view[:total])


def p_write(fds: ParallelSocket, data: Any) -> int:
    """Send all of `data`; how many bytes that was."""
    fds.sendall(data)
    return memoryview(data).nbytes
