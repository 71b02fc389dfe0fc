# SPDX-License-Identifier: Apache-2.0
"""The feed against a controller that a test plays: changes, ends, hostile lines, and requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.client import web_socket_of
from ri2n_sdn.contract.operations import JOB_END, STATUS, Operation
from ri2n_sdn.contract.refusals import answer_of, refusal
from ri2n_sdn.contract.state import MAX_EVENTS
from ri2n_sdn.errors import BadInput, NotAvailable
from ri2n_sdn.web import feed as feed_module
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.who import Who
from tests.unit.refused import refused
from tests.unit.web_app import run
from tests.unit.web_state import cluster_state, token_document
from tests.waiting import LONG_S

ALICE = Who("laptop", "user", "alice")
Play = Callable[[dict[str, Any], asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def line(document: object) -> bytes:
    return json.dumps(document).encode() + b"\n"


def first(state: dict[str, Any], seq: int = 1) -> bytes:
    return line({"ok": True, "seq": seq, "state": state})


@asynccontextmanager
async def playing(play: Play) -> AsyncIterator[Feed]:
    """A feed of a controller whose connections `play` serves, each after its first request."""
    with tempfile.TemporaryDirectory(prefix="ri2n-") as folder:
        socket = Path(folder) / "controller.sock"

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await play(json.loads(await reader.readline()), reader, writer)
            writer.close()

        server = await asyncio.start_unix_server(serve, str(web_socket_of(socket)))
        feed = Feed(socket)
        try:
            yield feed
        finally:
            await feed.stop()
            server.close()


async def until(feed: Feed, condition: Callable[[], object]) -> None:
    """Wait for a condition on the feed, as its users do."""
    deadline_s = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline_s, (feed.why, feed.counters)
        await feed.changed(feed.seq, 1.0)


def test_changes_arrive_one_after_the_other_and_tokens_apart() -> None:
    state = cluster_state()
    steps: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    asked: list[dict[str, Any]] = []

    async def play(request: Any, reader: Any, writer: asyncio.StreamWriter) -> None:
        asked.append(request)
        writer.write(first({**state, "tokens": {"t": token_document("x", "admin")}}))
        while True:
            writer.write(line({"seq": 2, "changed": await steps.get()}))

    async def follow() -> None:
        async with playing(play) as feed:
            assert not feed.connected and not feed.known and feed.state["hosts"] == {}
            await feed.start()
            await until(feed, lambda: feed.connected)
            assert asked[0]["op"] == "watch" and asked[0]["as"]["role"] == "viewer"
            assert feed.known and feed.why is None and feed.state == {"fair": {}, **state}
            assert feed.tokens == {"t": token_document("x", "admin")}
            before, seq = feed.state, feed.seq
            steps.put_nowait({"hosts": {"h0001": None}, "events": [event(9)]})
            assert await feed.changed(seq, LONG_S) != seq
            assert "h0001" not in feed.state["hosts"] and "h0001" in before["hosts"]
            assert feed.state["jobs"] is before["jobs"] and before == {"fair": {}, **state}
            assert feed.state["events"][-1]["seq"] == 9
            seq = feed.seq
            steps.put_nowait({})  # a sign of life
            steps.put_nowait({"tokens": {"t": None, "u": token_document("y", "viewer")}})
            assert await feed.changed(seq, LONG_S) == seq + 1
            assert list(feed.tokens) == ["u"] and "tokens" not in feed.state
            steps.put_nowait({"events": [event(number) for number in range(10, 500)]})
            await until(feed, lambda: feed.state["events"][-1]["seq"] == 499)
            assert len(feed.state["events"]) == MAX_EVENTS
            assert await feed.changed(feed.seq, 0.01) == feed.seq
            assert not feed.counters["lines_dropped"] and not feed.counters["entries_dropped"]

    run(follow())


def event(number: int) -> dict[str, Any]:
    return {"seq": number, "time_s": 1.0, "text": "x"}


def test_it_comes_back_to_a_controller_that_has_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed_module, "_FIRST_PAUSE_S", 0.005)
    streams = 0

    async def play(
        request: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nonlocal streams
        streams += 1
        writer.write(first(cluster_state(hosts=streams)))
        if streams == 3:
            await reader.read()

    async def follow() -> None:
        async with playing(play) as feed:
            seen = []
            await feed.start()
            while len(feed.state["hosts"]) < 3 or not feed.connected:
                await feed.changed(feed.seq, LONG_S)
                seen.append((feed.connected, feed.why is None))
            assert all(connected == nothing for connected, nothing in seen)
            assert feed.counters["streams"] == 3
            await feed.stop()
            assert not feed.connected and feed.why == "the web process ends"
            await feed.stop()

    run(follow())


HOSTILE = {
    "no JSON": b"nonsense\n",
    "no UTF-8": b"\xff\xfe\n",
    "a list": b"[]\n",
    "deep": b"[" * 100_000 + b"\n",
    "a number of many digits": b'{"seq": ' + b"9" * 10_000 + b"}\n",
    "half a line": b'{"seq": 2, "changed": {"hos',
    "no change": line({"seq": 2}),
    "another form": line({"seq": 2, "changed": [1]}),
    "too long": b"x" * 70_000 + b"\n",
    "nothing": b"\n",
}


@pytest.mark.parametrize("where", ["first", "later"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_line_is_counted_and_the_stream_begins_anew(
    kind: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(feed_module, "MAX_LINE_BYTES", 60_000)
    streams = 0

    async def play(
        request: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nonlocal streams
        streams += 1
        if streams == 1:
            writer.write((first(cluster_state()) if where == "later" else b"") + HOSTILE[kind])
        else:
            writer.write(first(cluster_state(hosts=7)))
            await reader.read()

    async def follow() -> None:
        async with playing(play) as feed:
            await feed.start()
            await until(feed, lambda: feed.connected and len(feed.state["hosts"]) == 7)
            assert feed.counters["lines_dropped"] == 1

    run(follow())


def test_entries_of_another_form_leave_the_others_alone() -> None:
    bad: dict[str, Any] = {"hosts": {"evil": 5, "h0001": None}, "rates": "x", "events": [5]}
    asked = 0

    async def play(
        request: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nonlocal asked
        asked += 1
        writer.write(first(cluster_state()) + line({"seq": 2, "changed": bad}))
        await reader.read()

    async def follow() -> None:
        async with playing(play) as feed:
            await feed.start()
            await until(feed, lambda: feed.counters["changes"])
            assert set(feed.state["hosts"]) == {"h0002", "h0003", "h0004"}
            assert feed.state["rates"] == cluster_state()["rates"]
            assert feed.counters["entries_dropped"] == 3 and feed.connected and asked == 1

    run(follow())


def test_a_silent_controller_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "SILENT_S", 0.05)

    async def play(
        request: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(first(cluster_state()))
        await reader.read()

    async def follow() -> None:
        async with playing(play) as feed:
            await feed.start()
            await until(feed, lambda: feed.connected)
            await until(feed, lambda: not feed.connected)
            assert feed.why == "the controller said nothing for 0.05 s"
            await until(feed, lambda: feed.counters["streams"] >= 2)

    run(follow())


def test_nothing_is_asked_of_a_controller_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes requests, and would carry them out when whoever asked has long given up."""
    monkeypatch.setattr(feed_module, "SILENT_S", 0.05)
    asked: list[str] = []

    async def play(
        request: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        asked.append(request["op"])
        if len(asked) == 1:
            writer.write(first(cluster_state()))
        await reader.read()

    async def follow() -> None:
        async with playing(play) as feed:
            await feed.start()
            await until(feed, lambda: feed.connected)
            await until(feed, lambda: not feed.connected)
            with pytest.raises(NotAvailable, match="said nothing for"):
                await feed.request(JOB_END, ALICE, id="j1")
            assert set(asked) == {"watch"}

    run(follow())


# ---- Requests


def test_a_request_is_in_the_name_of_who_asks() -> None:
    async def play(request: Any, reader: Any, writer: asyncio.StreamWriter) -> None:
        answer: dict[str, Any] = {"ok": True, "asked": request}
        if request["op"] == "no":
            answer = {"ok": False, "error": "name: is wrong"}
        writer.write(line(answer))

    async def ask() -> None:
        async with playing(play) as feed:
            echo: Operation[dict[str, Any]] = Operation("job_end")
            answer = await feed.request(echo, ALICE, id="j1")
            assert answer == {
                "asked": {
                    "op": "job_end",
                    "id": "j1",
                    "as": {"user": "alice", "uid": None, "role": "user"},
                }
            }
            with pytest.raises(BadInput, match=r"^name: is wrong$"):
                await feed.request(Operation("no"), ALICE)
            many = await asyncio.gather(*(feed.request(echo, ALICE, n=n) for n in range(100)))
            assert [each["asked"]["n"] for each in many] == list(range(100))

    run(ask())


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "answer_wrong"),
        (b"nonsense\n", "answer_wrong"),
        (b'{"ok": true', "answer_wrong"),
        (b'{"ok": 1}\n', "answer_wrong"),
        (b"x" * 70_000 + b"\n", "answer_too_long"),
        (line(answer_of(refusal("connections_full"))), "connections_full"),
    ],
)
def test_answers_that_make_no_sense(
    answer: bytes, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MAX_LINE_BYTES", 60_000)

    async def play(request: Any, reader: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async def ask() -> None:
        async with playing(play) as feed:
            with refused(code):
                await feed.request(STATUS, ALICE)

    run(ask())


def test_nobody_listens_or_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(feed_module, "_ANSWER_S", 0.05)

    async def play(request: Any, reader: asyncio.StreamReader, writer: Any) -> None:
        await reader.read()

    async def ask() -> None:
        async with playing(play) as feed:
            with refused("answer_late", after_s=0.05):
                await feed.request(STATUS, ALICE)
        with refused("controller_absent", path=str(web_socket_of(tmp_path / "controller.sock"))):
            await Feed(tmp_path / "controller.sock").request(STATUS, ALICE)

    run(ask())


def test_a_task_that_loses_its_cancellation_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """As `wait_for` does before Python 3.12 when a line comes at that moment."""

    async def ask() -> None:
        feed = Feed(tmp_path / "controller.sock")
        lost = []

        async def stubborn() -> None:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    lost.append(1)
                    if len(lost) > 1:
                        raise

        feed._tasks = [asyncio.create_task(stubborn())]
        await asyncio.sleep(0)
        await asyncio.wait_for(feed.stop(), 60.0)
        assert len(lost) == 2

    asyncio.run(ask())
