# SPDX-License-Identifier: Apache-2.0
"""Live data for many clients at once: what has changed is found out and written once for all.

Each client has a queue of its own, bounded in messages and bytes. A client that does not read what
comes is cut off, and nobody waits for it. A client that comes back says what it has seen last
(`Last-Event-ID`), and gets what it has missed, or the whole state when that is too much.
"""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.contract.queue import BoundedQueue
from ri2n_sdn.contract.state import difference
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.rest.problem import ProblemError
from ri2n_sdn.web.shape import EMPTY

__all__ = ["MAX_CLIENTS_OF_ONE", "Client", "Hub"]

MAX_CLIENTS = 256
"""So many streams at once."""

MAX_CLIENTS_OF_ONE = 64
"""So many of them for one token, or for one address without a token."""

MAX_WAITING, MAX_WAITING_BYTES = 64, 4 << 20
"""A client may leave so many messages and bytes unread."""

MAX_KEPT, MAX_KEPT_BYTES = 256, 4 << 20
"""So many messages, of so many bytes, are kept for clients that come back."""

_TURN_S = 5.0


class _Message(NamedTuple):
    """One message to all clients of the state, and about how many bytes it has."""

    number: int
    event: str
    document: dict[str, Any]
    size: int


@dataclass(eq=False)
class Client:
    """One stream: what waits for it, and whether it is over.

    `parts`: what it wants of a state. `events` alone is the stream of events.
    """

    name: str
    parts: frozenset[str] | None
    events_only: bool = False
    last_event: int = 0
    ends: bool = False
    _waiting: BoundedQueue = field(
        default_factory=lambda: BoundedQueue(MAX_WAITING, MAX_WAITING_BYTES)
    )
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, text: bytes) -> bool:
        """Have a message sent, and return whether there was room for it."""
        if not self._waiting.put(text):
            return False
        self._news.set()
        return True

    def end(self) -> None:
        """Let the stream end, whatever still waits."""
        self.ends = True
        self._waiting.clear()
        self._news.set()

    async def take(self, timeout_s: float) -> bytes | None:
        """All that waits, or an empty text after `timeout_s`. None: the stream is over."""
        if not self._waiting and not self.ends:
            try:
                await asyncio.wait_for(self._news.wait(), timeout_s)
            except (TimeoutError, asyncio.TimeoutError):
                return b""
        self._news.clear()
        if self.ends:
            return None
        return self._waiting.take_all()


class Hub:
    """All streams of an application, and the task that writes for them. It runs while there are."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._boot = secrets.token_hex(4)
        self._clients: set[Client] = set()
        self._kept: deque[_Message] = deque()
        self._number = 0
        # What was seen of the feed last.
        self._seq = 0
        self._state: Documents = EMPTY
        self._connected: bool | None = None
        self._task: asyncio.Task[None] | None = None
        self.counters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._clients)

    def join(
        self,
        name: str,
        parts: frozenset[str] | None,
        last_id: str | None,
        events_only: bool = False,
    ) -> Client:
        """One more client. Raises ProblemError when there are too many (429)."""
        same = sum(client.name == name for client in self._clients)
        if len(self._clients) >= MAX_CLIENTS or same >= MAX_CLIENTS_OF_ONE:
            self.counters["streams_refused"] += 1
            detail = "there are too many streams already"
            raise ProblemError(429, "too_many_streams", detail, {"Retry-After": "5"})
        self.turn()
        client = Client(name, parts, events_only)
        if events_only:
            self._begin_events(client, last_id)
        else:
            self._begin_state(client, last_id)
        self._clients.add(client)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="streams")
        return client

    def leave(self, client: Client) -> None:
        """Forget a client. To do it twice is no error."""
        self._clients.discard(client)
        client.end()
        if not self._clients and self._task is not None:
            self._task.cancel()
            self._task = None

    def turn(self) -> None:
        """Find out what has changed, and give it to all clients."""
        feed, before = self._feed, self._state
        self._seq = feed.seq
        state = feed.state
        if feed.connected is not self._connected:
            self._connected = feed.connected
            self._tell("connection", self._connection())
        if state is before:
            return
        self._state = state
        if _begun(before) != _begun(state):
            self._kept.clear()
            self._number += 1
            for client in list(self._clients):
                client.last_event = 0
                if not client.events_only:
                    self._give(client, self._whole(client))
        elif changed := difference(before, state):
            self._tell("change", changed)
        for client in list(self._clients):
            if client.events_only:
                self._give(client, _events(client, state))

    async def _run(self) -> None:
        # In Python 3.11, what is awaited here may lose a cancellation at the moment of a change.
        while self._task is asyncio.current_task():
            await self._feed.changed(self._seq, _TURN_S)
            self.turn()

    def _tell(self, event: str, document: dict[str, Any]) -> None:
        """Give a message to all clients of the whole state, and keep it."""
        self._number += 1
        message = _Message(self._number, event, document, len(_json(document)))
        self._kept.append(message)
        while len(self._kept) > MAX_KEPT or _size(self._kept) > MAX_KEPT_BYTES:
            self._kept.popleft()
        text = functools.cache(lambda parts: self._text(message, parts))
        for client in list(self._clients):
            if not client.events_only:
                self._give(client, text(client.parts))

    def _give(self, client: Client, text: bytes) -> None:
        """Have a message sent, if there is one. Who has no room for it is cut off."""
        if text and not client.put(text):
            self.counters["streams_cut_off"] += 1
            self._clients.discard(client)
            client.end()

    def _begin_state(self, client: Client, last_id: str | None) -> None:
        """Give a new client what it has missed since `last_id`, or the whole state."""
        missed = self._missed(last_id)
        if missed is None:
            self._give(client, self._whole(client))
        else:
            # So a client knows at once that it is connected, also when nothing was missed.
            client.put(b": nothing else was missed\n\n")
            for message in missed:
                self._give(client, self._text(message, client.parts))

    def _missed(self, last_id: str | None) -> list[_Message] | None:
        boot, _, number = (last_id or "").partition("-")
        if boot != self._boot or not number.isascii() or not number.isdigit() or len(number) > 18:
            return None
        last = int(number)
        first = self._kept[0].number if self._kept else self._number + 1
        if not first - 1 <= last <= self._number:
            return None
        missed = [message for message in self._kept if message.number > last]
        few = len(missed) <= MAX_WAITING // 2
        return missed if few and _size(missed) < MAX_WAITING_BYTES // 2 else None

    def _begin_events(self, client: Client, last_id: str | None) -> None:
        if last_id is not None and last_id.isascii() and last_id.isdigit() and len(last_id) < 18:
            client.last_event = int(last_id)
            events = self._state["events"]
            if client.last_event > (events[-1]["seq"] if events else 0):
                client.last_event = 0  # those of a controller that has gone
        client.put(_events(client, self._state) or b": no event yet\n\n")

    def _whole(self, client: Client) -> bytes:
        state = {part: each for part, each in self._state.items() if _wanted(client.parts, part)}
        connection = _sse("connection", self._connection())
        return connection + _sse("state", state, f"{self._boot}-{self._number}")

    def _connection(self) -> dict[str, Any]:
        feed = self._feed
        return {"connected": feed.connected, "why": feed.why, "since_s": feed.since_s}

    def _text(self, message: _Message, parts: frozenset[str] | None) -> bytes:
        document = message.document
        if message.event == "change":
            document = {part: each for part, each in document.items() if _wanted(parts, part)}
            if not document:
                return b""
        return _sse(message.event, document, f"{self._boot}-{message.number}")


def _size(messages: Iterable[_Message]) -> int:
    return sum(message.size for message in messages)


def _wanted(parts: frozenset[str] | None, part: str) -> bool:
    return parts is None or part in parts


def _begun(state: Documents) -> object:
    """What tells one start of the controller from another."""
    known = state.get("controller", {})
    return known.get("pid"), known.get("started_s")


def _events(client: Client, state: Documents) -> bytes:
    """The events that a client has not seen yet."""
    text = b""
    for event in state.get("events", ()):
        if event["seq"] > client.last_event:
            client.last_event = event["seq"]
            text += _sse("event", event, str(event["seq"]))
    return text


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _sse(event: str, document: object, number: str | None = None) -> bytes:
    """One message of an event stream. JSON has no line ends, so the data is one line."""
    head = b"" if number is None else f"id: {number}\n".encode()
    return head + f"event: {event}\ndata: ".encode() + _json(document) + b"\n\n"
