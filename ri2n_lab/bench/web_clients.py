# SPDX-License-Identifier: Apache-2.0
"""Clients of the web process, for `ri2n bench web`: event streams, and sessions of the GUI.

It runs as a program of its own: `python -m ri2n_lab.bench.web_clients URL STREAMS SESSIONS`. A
session does what a browser does with a page: it gets the page, and opens the page's websocket
(socket.io). It draws nothing. The program writes `ready` when all are connected. At the end of its
standard input it writes what came in, as one line of JSON, and ends.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
import time
import uuid
from collections import Counter
from typing import Any
from urllib.parse import urlencode

__all__ = ["PAGES", "STREAM_PATHS", "main"]

STREAM_PATHS = ("/api/v1/stream", "/api/v1/events/stream")
"""Streams are opened in turn: three of the whole state, then one of events."""
PAGES = ("/", "/traffic", "/jobs", "/events", "/settings")
"""Sessions look at these pages in turn."""

_PATIENCE_S = 120.0
_QUERY = re.compile(r"^\s*query: (\{.*\}),\s*$", flags=re.M)


class _Clients:
    """All clients, and the counts of what came in."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self.counts: Counter[str] = Counter()
        self.browsers: list[Any] = []
        self._kept: list[Any] = []

    async def stream(self, session: Any, path: str, connected: asyncio.Event) -> None:
        """One event stream, which is read until the end. Its first bytes are the state."""
        headers = {"Accept": "text/event-stream"}
        async with session.get(self._url + path, headers=headers) as answer:
            if answer.status != 200:
                raise RuntimeError(f"{path}: {answer.status} {await answer.text()}"[:300])
            connected.set()
            async for data in answer.content.iter_any():
                self.counts["stream_bytes"] += len(data)
                self.counts["stream_messages"] += data.count(b"\n\n")
        raise RuntimeError(f"{path}: the stream has ended")

    async def session(self, http: Any, path: str) -> None:
        """One page with its websocket. It goes on in the background."""
        import socketio  # type: ignore[import-untyped]

        query_text = await self._page(http, path)
        query = {
            **ast.literal_eval(query_text),
            **{"tab_id": str(uuid.uuid4()), "document_id": str(uuid.uuid4())},
            **{"next_message_id": 0, "implicit_handshake": "true"},
        }
        client = socketio.AsyncClient(http_session=http, reconnection=False)

        async def took(event: str, data: Any = None) -> None:
            self.counts["page_messages"] += 1
            self.counts[f"page_{event}"] += 1

        client.on("*", took)
        await client.connect(
            f"{self._url}/?{urlencode(query)}",
            transports=["websocket"],
            socketio_path="/_nicegui_ws/socket.io",
            wait_timeout=int(_PATIENCE_S),
        )
        self._kept.append(client)

    async def _page(self, http: Any, path: str) -> str:
        """What a page says of its websocket. On a busy machine it may take several attempts."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            async with http.get(self._url + path) as answer:
                text = await answer.text()
                found = _QUERY.search(text)
                if answer.status == 200 and found is not None:
                    return found[1]
            self.counts["page_attempts_failed"] += 1
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{path}: {answer.status} {text}"[:300])
            await asyncio.sleep(1.0)

    @property
    def n_open(self) -> int:
        """How many websockets are open."""
        return sum(bool(client.connected) for client in self._kept)

    async def close(self) -> None:
        """Close all websockets."""
        for client in self._kept:
            await client.disconnect()
        for browser in self.browsers:
            await browser.close()


async def _serve(url: str, n_streams: int, n_sessions: int) -> None:
    import aiohttp

    clients = _Clients(url)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        tasks: list[asyncio.Task[None]] = []
        events: list[asyncio.Event] = []
        for number in range(n_streams):
            events.append(asyncio.Event())
            path = STREAM_PATHS[number % 4 == 3]
            tasks.append(asyncio.create_task(clients.stream(http, path, events[-1])))
        for number in range(n_sessions):
            # Each browser has cookies of its own, and so does each session here.
            browser = aiohttp.ClientSession(timeout=timeout)
            clients.browsers.append(browser)
            await clients.session(browser, PAGES[number % len(PAGES)])
        began = asyncio.create_task(_all(events))
        done, _ = await asyncio.wait(
            [*tasks, began], timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done - {began}:
            task.result()
        if not began.done():
            raise RuntimeError("not all streams began")
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for task in tasks:
            if task.done():
                task.result()
        said = {"streams": len(tasks), "sessions": clients.n_open, **clients.counts}
        print(json.dumps(said), flush=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await clients.close()


async def _all(events: list[asyncio.Event]) -> None:
    for event in events:
        await event.wait()


def main() -> None:
    """Run it with the command line's arguments."""
    url, n_streams, n_sessions = sys.argv[1:]
    asyncio.run(_serve(url, int(n_streams), int(n_sessions)))


if __name__ == "__main__":
    main()
