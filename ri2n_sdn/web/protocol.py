"""HTTP connections with limits: how many there are, and how long they may make us wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from ri2n_sdn.addresses import crowd_of, is_loopback

__all__ = ["MAX_CONNECTIONS", "MAX_OF_ONE", "LimitedProtocol", "LimitedWebSocket"]

MAX_CONNECTIONS = 1000
"""So many connections at once; more are closed at once."""

MAX_OF_ONE = 200
"""So many of them from one address of another machine."""

HEAD_S = 20.0
"""A request's header must be whole after this time."""

STALLED_S = 60.0
"""A client that reads nothing of an answer for so long is cut off."""

_CROWDS: Counter[str] = Counter()


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol, which by itself waits for a header, and for a reader, for ever."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._crowd: str | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or close it when there are too many."""
        super().connection_made(transport)
        address = self.client[0] if self.client is not None else ""
        crowd = crowd_of(address)
        if len(self.connections) > MAX_CONNECTIONS or (
            _CROWDS[crowd] >= MAX_OF_ONE and not is_loopback(address)
        ):
            transport.abort()
            return
        self._crowd = crowd
        _CROWDS[crowd] += 1
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come. The time for a header does not begin anew with each byte of it."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._end_head()
        elif self.conn.trailing_data[0]:
            self._await_head()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection on to another protocol, which has limits of its own."""
        self._leave()
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        self.flow.pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        self._end_stall()
        self.flow.resume_writing()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _leave(self) -> None:
        """End the timers, and make room for another connection. To do it twice is no error."""
        self._end_head()
        self._end_stall()
        if self._crowd is not None:
            _one_less(self._crowd)
            self._crowd = None


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's protocol of WebSockets, which by itself may wait for ever to be opened.

    A request with a body gets no answer there, and its connection would stay for nothing. The
    connection counts as one of its address, as before.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._crowd: str | None = None
        self._open_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a connection, which must be open after HEAD_S."""
        super().connection_made(transport)
        self._crowd = crowd_of(self.client[0] if self.client is not None else "")
        _CROWDS[self._crowd] += 1
        self._open_timer = self.loop.call_later(HEAD_S, self._end_unless_open)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        if self._open_timer is not None:
            self._open_timer.cancel()
        if self._crowd is not None:
            _one_less(self._crowd)
            self._crowd = None
        super().connection_lost(exc)

    def _end_unless_open(self) -> None:
        if not self.handshake_complete:
            self.transport.abort()


def _one_less(crowd: str) -> None:
    """Count one connection less of the addresses of a crowd."""
    _CROWDS[crowd] -= 1
    if not _CROWDS[crowd]:
        del _CROWDS[crowd]
