# SPDX-License-Identifier: Apache-2.0
"""The socket on which the web process listens, with limits: how many connections whoever has.

They hold from the moment at which a connection is accepted until it is closed: during a handshake
of TLS, which may take a minute, and for a WebSocket as well. So nobody can take all places, or all
file descriptors, from one address.
"""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from typing import Any

from ri2n_sdn.addresses import crowd_of, is_loopback
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.web.settings import WebSettings

__all__ = ["MAX_CONNECTIONS", "MAX_OF_ONE", "LimitedListener", "listen"]

MAX_CONNECTIONS = 1000
"""So many connections at once; more are closed at once."""

MAX_OF_ONE = 200
"""So many of them from one address of another machine."""

_BACKLOG = 128


class LimitedListener(socket.socket):
    """A listening socket, which closes at once what would be too many connections."""

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        self.open = Counter[str]()
        """How many connections are open, by what stands for their address (`crowd_of`)."""

    def accept(self) -> tuple[socket.socket, Any]:
        """As of any socket. Raises ConnectionAbortedError when there are too many connections."""
        plain, address = super().accept()
        crowd = crowd_of(str(address[0]))
        full = self.open[crowd] >= MAX_OF_ONE and not is_loopback(str(address[0]))
        if full or self.open.total() >= MAX_CONNECTIONS:
            plain.close()
            raise ConnectionAbortedError("too many connections")
        return _Connection(plain, self.open, crowd), address


class _Connection(socket.socket):
    """A connection that is counted until it is closed."""

    def __init__(self, plain: socket.socket, counts: Counter[str], crowd: str) -> None:
        timeout_s = plain.gettimeout()
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self.settimeout(timeout_s)
        self._counts, self._crowd = counts, crowd
        self._counted = True
        counts[crowd] += 1

    def close(self) -> None:
        """Close it, and make room for another one. To do it twice is no error."""
        if self._counted:
            self._counted = False
            self._counts[self._crowd] -= 1
            if not self._counts[self._crowd]:
                del self._counts[self._crowd]
        super().close()


def listen(settings: WebSettings) -> LimitedListener:
    """The socket on which the web process listens. Raises BadInput, NotAvailable."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"--listen {settings.host}: {reason}") from None
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(LimitedListener(family, kind, protocol))
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(_BACKLOG)
            made.setblocking(False)
        except OSError as error:
            raise NotAvailable(
                f"--listen {settings.host}:{settings.port}: {error.strerror or error}"
            ) from None
        stack.pop_all()
    return made
