# SPDX-License-Identifier: Apache-2.0
"""The one stream of changes from the controller, and single requests to it; with asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from ri2n_sdn.client import refusal_of, web_socket_of
from ri2n_sdn.contract.documents import Documents, TokenEntry
from ri2n_sdn.contract.operations import WATCH, Answer, Operation
from ri2n_sdn.contract.protocol import MAX_LINE_BYTES, SILENT_S, answer_in, object_in, request_line
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.sample import sample_age_s
from ri2n_sdn.contract.state import merge
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.web.history import EVERY_S, History
from ri2n_sdn.web.shape import EMPTY, checked
from ri2n_sdn.web.who import Who

__all__ = ["Feed"]

MAX_REQUESTS = 16
"""So many requests are under way at once; others wait."""

_ANSWER_S = 30.0
_CANCEL_S = 0.5
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.1, 2.0
# So many rounds are kept, and so long one is waited for.
_SAMPLES, _SAMPLE_S = 16, 1.0
_LATE = (TimeoutError, asyncio.TimeoutError)  # two of them before Python 3.11
_WATCHER = {"user": "web", "uid": None, "role": "viewer"}


class _Broken(Exception):
    """The stream cannot go on; the text says why."""


class _Strange(_Broken):
    """A line of the stream is not one of a controller."""


class Feed:
    """What the web process knows of the controller. All of it belongs to one event loop.

    * `state`: the newest state, as of the controller's operation `watch`, but without tokens. It is
      another object after each change, and no map in it is ever changed. While the controller is
      away, it is the last one; before it was reached, all its maps are empty.
    * `seq`: grows with each change of `state`, `tokens` or `connected`.
    * `connected`, `why`: whether the controller is there, and if not, why: one sentence.
    * `since_s`: the Unix time of the last change of `connected`.
    * `heard_s`: the Unix time of the controller's last line; None before there was one.
    * `known`: whether the controller was ever reached.
    * `samples`: the newest states, one of each round of the controller that was told, oldest first.
    * `tokens`: by name, as of the operation `watch`; never to be shown.
    * `counters`: what was dropped, and how often the stream began.
    """

    def __init__(self, socket: Path, *, clock: Callable[[], float] = time.time) -> None:
        """`socket` is the controller's own; the one for the web process is beside it."""
        self._path = web_socket_of(socket)
        self._clock = clock
        self.state: Documents = EMPTY
        self.tokens: Mapping[str, TokenEntry] = {}
        self.seq = 0
        self.connected = False
        self.known = False
        self.why: str | None = "the controller has not been asked yet"
        self.since_s = clock()
        self.heard_s: float | None = None
        self.history = History()
        self.samples: deque[Documents] = deque(maxlen=_SAMPLES)
        self.counters: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._places = asyncio.Semaphore(MAX_REQUESTS)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def age_s(self) -> float | None:
        """How old the state is: the time since the controller read rates and counters last.

        Of a controller that has read none, it is the time since its last line. None before that.
        """
        now_s = self._clock()
        age_s = sample_age_s(self.state, now_s)
        if age_s is None and self.heard_s is not None:
            age_s = max(0.0, now_s - self.heard_s)
        return age_s

    async def start(self) -> None:
        """Begin to watch the controller, whether it is there or not."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._watch(), name="feed"),
                asyncio.create_task(self._sample(), name="history"),
            ]

    async def stop(self) -> None:
        """End the stream. To do it twice is no error."""
        tasks, self._tasks = self._tasks, []
        # Until Python 3.12, `wait_for` loses a cancellation that comes together with a line.
        while waiting := [task for task in tasks if not task.done()]:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting, timeout=_CANCEL_S)
        await asyncio.gather(*tasks, return_exceptions=True)
        self._away("the web process ends")

    async def changed(self, after: int, timeout_s: float) -> int:
        """Wait until `seq` is another number than `after`, and return it; or after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        while self.seq == after and (left_s := deadline_s - time.monotonic()) > 0:
            with contextlib.suppress(*_LATE):
                await asyncio.wait_for(self._news.wait(), left_s)
        return self.seq

    async def request(self, op: Operation[Answer], who: Who, **arguments: object) -> Answer:
        """Send one request in the name of `who`, and return the answer without its `ok`.

        Raises the controller's own error when it refuses, and NotAvailable when it cannot be
        reached, does not answer in time, or answers what makes no sense.
        """
        if self.known and not self.connected:
            # One that hangs takes requests, and would carry them out when nobody expects it.
            raise refusal("controller_away", why=self.why or "the controller does not answer")
        text = request_line(op.name, arguments, who.said())
        try:
            line = await asyncio.wait_for(self._ask(text), _ANSWER_S)
        except _LATE:
            self.counters["requests_late"] += 1
            raise refusal("answer_late", after_s=_ANSWER_S) from None
        except OSError as error:
            raise refusal_of(self._path, error) from None
        except ValueError:
            self.counters["answers_dropped"] += 1
            raise refusal("answer_too_long") from None
        try:
            answer = answer_in(line)
        except NotAvailable as error:
            self.counters["answers_dropped"] += error.code == "answer_wrong"
            raise
        del answer["ok"]
        return cast(Answer, answer)

    # ---- the stream

    async def _watch(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            before = self.counters["streams"]
            try:
                await self._stream()
                why = "the controller has ended the stream"
            except _LATE:
                why = f"the controller said nothing for {SILENT_S:g} s"
            except _Broken as error:
                if isinstance(error, _Strange):
                    self.counters["lines_dropped"] += 1
                why = str(error)
            except OSError as error:
                why = str(refusal_of(self._path, error))
            except ValueError:
                self.counters["lines_dropped"] += 1
                why = "a line of the controller was too long"
            self._away(why)
            # A stream that came about is a reason to try again at once.
            if self.counters["streams"] > before:
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    async def _stream(self) -> None:
        async with self._connection(SILENT_S) as (reader, writer):
            writer.write(request_line(WATCH.name, {}, _WATCHER))
            first = await self._line(reader)
            if first is None:
                return
            if first.get("ok") is False:
                raise _Broken(f"the controller refuses: {first.get('error')}"[:300])
            if first.get("ok") is not True or not isinstance(first.get("state"), dict):
                raise _Strange("what listens there is not a controller")
            self._begins(first["state"])
            while (line := await self._line(reader)) is not None:
                if not isinstance(line.get("changed"), dict):
                    raise _Strange("a line of the controller made no sense")
                if line["changed"]:
                    self._take(line["changed"])

    async def _line(self, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        """The next line; None at the end of the stream."""
        line = await asyncio.wait_for(reader.readline(), SILENT_S)
        if not line:
            return None
        document = object_in(line)
        if document is None:
            raise _Strange("a line of the controller made no sense")
        self.heard_s = self._clock()
        return document

    def _begins(self, document: dict[str, Any]) -> None:
        state, dropped = checked(document)
        self.counters["entries_dropped"] += dropped
        self.counters["streams"] += 1
        self.tokens = _without_none(state.pop("tokens", {}))
        # Of the first state, None is no entry either.
        self.state = cast(Documents, merge(EMPTY, state))
        self.known = True
        self.connected, self.why, self.since_s = True, None, self._clock()
        self.history.add(self._clock(), self.state)
        self._tell()

    async def sample_at(self, sampled_s: float | None) -> Documents:
        """The state of the round at this time, so that its figures are those of an answer.

        An answer may be there before the state: the state is waited for a little. Where there is
        none of that round, it is the nearest one.
        """
        if sampled_s is None:
            return self.state
        deadline_s = time.monotonic() + _SAMPLE_S
        while _sampled_s(self.state) < sampled_s and time.monotonic() < deadline_s:
            await self.changed(self.seq, deadline_s - time.monotonic())
        nearest = min(
            self.samples, key=lambda each: abs(_sampled_s(each) - sampled_s), default=self.state
        )
        return self.state if _sampled_s(self.state) == _sampled_s(nearest) else nearest

    def _take(self, document: dict[str, Any]) -> None:
        changed, dropped = checked(document)
        self.counters["entries_dropped"] += dropped
        self.counters["changes"] += 1
        tokens = changed.pop("tokens", None)
        if tokens is not None:
            self.tokens = _without_none({**self.tokens, **tokens})
        if changed:
            self.state = cast(Documents, merge(self.state, changed))
        if changed or tokens is not None:
            self._tell()

    def _away(self, why: str) -> None:
        if self.connected:
            self.since_s = self._clock()
        if self.connected or self.why != why:
            self.connected, self.why = False, why
            self._tell()

    def _tell(self) -> None:
        if not self.samples or _sampled_s(self.samples[-1]) != _sampled_s(self.state):
            self.samples.append(self.state)
        self.seq += 1
        self._news.set()
        self._news = asyncio.Event()

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            if self.connected:
                self.history.add(self._clock(), self.state)

    # ---- the socket

    @contextlib.asynccontextmanager
    async def _connection(
        self, timeout_s: float | None = None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        opening = asyncio.open_unix_connection(str(self._path), limit=MAX_LINE_BYTES)
        reader, writer = await asyncio.wait_for(opening, timeout_s)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _ask(self, text: bytes) -> bytes:
        async with self._places, self._connection() as (reader, writer):
            writer.write(text)
            await writer.drain()
            return await reader.readline()


def _sampled_s(state: Documents) -> float:
    """When the figures of a state were read; 0 where it is not known."""
    return state["controller"].get("sampled_s", 0.0)


def _without_none(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if value is not None}
