# SPDX-License-Identifier: Apache-2.0
"""Routes of live data: server-sent events of all that changes, or of events alone."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from starlette.types import Message, Receive, Scope, Send

from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.web.auth import Denied
from ri2n_sdn.web.rest.access import Asked, Viewer
from ri2n_sdn.web.rest.hub import Client, Hub

__all__ = ["EventStream", "api"]

MAX_STREAM_S = 86_400.0
"""A stream ends after a day at the latest. A browser begins it anew by itself."""

STALLED_S = 20.0
"""A client that does not read for so long is cut off."""

LIFE_S = 5.0
"""A stream on which nothing happens has a comment so often, and its token is looked at again."""

_PARTS = frozenset(
    {
        *("controller", "hosts", "networks", "cables", "switches", "rates", "helpers", "counters"),
        *("problems", "jobs", "reservations", "rights", "policies", "events"),
    }
)
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "server-sent events, until the client ends them",
        "content": {"text/event-stream": {}},
    }
}

LastId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=64, description="what was seen last")
]
MaxS = Annotated[
    float,
    Query(ge=0, le=MAX_STREAM_S, allow_inf_nan=False, description="the stream ends after so long"),
]


api = APIRouter(tags=["live"])


@api.get("/stream", operation_id="stream", response_class=Response, responses=_STREAM)
async def everything(
    asked: Viewer,
    parts: Annotated[
        str | None,
        Query(max_length=200, description="only these parts, as `hosts,problems`"),
    ] = None,
    max_s: MaxS = MAX_STREAM_S,
    last_event_id: LastId = None,
) -> Response:
    """All that changes, as it changes, at most twice a second.

    * `state`: the whole state, by parts and names.
    * `change`: merge it map by map and key by key; `null` removes a key, and `events` are
      appended.
    * `connection`: whether the web process reaches the controller. While it does not, the state
      is the last one.

    `Last-Event-ID` continues a stream that broke off. If too much was missed, it begins with
    `state` again.
    """
    wanted = None if parts is None else frozenset(parts.split(","))
    if wanted is not None and not wanted <= _PARTS:
        raise refusal("not_of", "query.parts", choices=sorted(_PARTS))
    client = asked.access.hub.join(asked.name, wanted, last_event_id)
    return _stream(asked, client, max_s)


@api.get(
    "/events/stream",
    operation_id="stream_events",
    response_class=Response,
    responses=_STREAM,
)
async def events(
    asked: Viewer,
    max_s: MaxS = MAX_STREAM_S,
    last_event_id: LastId = None,
) -> Response:
    """What happens, as it happens: each `event` is one of `/events`, the newest 200 first."""
    client = asked.access.hub.join(asked.name, None, last_event_id, events_only=True)
    return _stream(asked, client, max_s)


def _stream(asked: Asked, client: Client, max_s: float) -> EventStream:
    header = asked.http.headers.get("authorization")
    address = asked.http.client.host if asked.http.client is not None else ""

    def still() -> bool:
        try:
            return asked.access.auth.who_of_bearer(header, address) == asked.who
        except Denied as error:
            return error.status == 503

    return EventStream(asked.access.hub, client, still, max_s)


class EventStream(Response):
    """Sends a client of a hub what waits for it, until one of them ends it."""

    media_type = "text/event-stream"

    def __init__(self, hub: Hub, client: Client, still: Callable[[], bool], max_s: float) -> None:
        """`still` is whether the one who asked may still read."""
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._hub, self._client, self._still, self._max_s = hub, client, still, max_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything. Whoever does not read is cut off, behind what was sent already."""
        gone = asyncio.create_task(self._wait_for_the_end(receive))
        try:
            start: Message = {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
            await send(start)
            await self._send(send, b"retry: 2000\n\n")
            await self._send_all(send)
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), STALLED_S)
        except (TimeoutError, asyncio.TimeoutError):
            self._hub.counters["streams_cut_off"] += 1
        finally:
            self._hub.leave(self._client)
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _send_all(self, send: Send) -> None:
        ends_s = time.monotonic() + self._max_s
        checked_s = time.monotonic()
        while True:
            left_s = ends_s - time.monotonic()
            text = await self._client.take(max(0.0, min(LIFE_S, left_s)))
            if text is None:
                return
            now_s = time.monotonic()
            if now_s - checked_s >= LIFE_S:
                checked_s = now_s
                if not self._still():
                    return
            await self._send(send, text or b": still here\n\n")
            if now_s >= ends_s:
                return

    async def _send(self, send: Send, text: bytes) -> None:
        message = {"type": "http.response.body", "body": text, "more_body": True}
        await asyncio.wait_for(send(message), STALLED_S)

    async def _wait_for_the_end(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._client.end()
