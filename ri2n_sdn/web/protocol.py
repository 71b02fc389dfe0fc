# SPDX-License-Identifier: Apache-2.0
"""HTTP connections with limits: how long they may make us wait."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

__all__ = ["LimitedProtocol", "LimitedWebSocket"]

HEAD_S = 20.0
"""A request's header must be whole after this time."""

STALLED_S = 60.0
"""A client that reads nothing of an answer for so long is cut off."""


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol, which by itself waits for a header, and for a reader, for ever."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, and give it time for a header."""
        super().connection_made(transport)
        self._limit("head", HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._unlimit("head", "stall")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come. The time for a header does not begin anew with each byte of it."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._unlimit("head")
        elif self.conn.trailing_data[0]:
            self._limit("head", HEAD_S)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection on to another protocol, which has limits of its own."""
        self._unlimit("head", "stall")
        super().handle_websocket_upgrade(event)

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        self.flow.pause_writing()
        self._limit("stall", STALLED_S)

    def resume_writing(self) -> None:
        """The client has read."""
        self._unlimit("stall")
        self.flow.resume_writing()

    def _limit(self, what: str, after_s: float) -> None:
        """Cut the connection off after so long, counted from the first call for `what`."""
        if what not in self._timers:
            self._timers[what] = self.loop.call_later(after_s, self.transport.abort)

    def _unlimit(self, *what: str) -> None:
        """Give the connection all the time it wants. To do it twice is no error."""
        for each in self._timers.keys() & what:
            self._timers.pop(each).cancel()


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's protocol of WebSockets, which by itself may wait for ever to be opened.

    A request with a body gets no answer there, and its connection would stay for nothing.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._open_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a connection, which must be open after HEAD_S."""
        super().connection_made(transport)
        self._open_timer = self.loop.call_later(HEAD_S, self._end_unless_open)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        if self._open_timer is not None:
            self._open_timer.cancel()
        super().connection_lost(exc)

    def _end_unless_open(self) -> None:
        if not self.handshake_complete:
            self.transport.abort()
