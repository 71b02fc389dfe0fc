# SPDX-License-Identifier: Apache-2.0
"""Live data: what clients of a stream get, what they miss, and who is cut off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.contract.state import difference, merge
from ri2n_sdn.web.rest import hub as hub_module
from ri2n_sdn.web.rest import streams
from ri2n_sdn.web.rest.hub import MAX_CLIENTS_OF_ONE, MAX_WAITING, Client, Hub
from ri2n_sdn.web.rest.problem import ProblemError
from ri2n_sdn.web.rest.streams import EventStream
from tests.unit.web_app import bearer, made_app, run, serving
from tests.unit.web_state import FakeFeed, cluster_state

Message = tuple[str | None, str, Any]


def messages(text: bytes) -> list[Message]:
    """(id, event, data) of each message; comments are none."""
    found = []
    for block in text.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        fields = dict(line.split(": ", 1) for line in lines)
        if "data" in fields:
            found.append((fields.get("id"), fields["event"], json.loads(fields["data"])))
    return found


class Reader:
    """A client of a hub without a network, which keeps the state that its messages add up to."""

    def __init__(self, hub: Hub, parts: frozenset[str] | None = None, last: str | None = None):
        self.client = hub.join("x", parts, last)
        self.state: Mapping[str, Any] = {}
        self.last = last
        self.events: list[str] = []

    async def read(self) -> list[Message]:
        text = await self.client.take(0.0)
        assert text is not None, "the stream is over"
        found = messages(text)
        for number, event, data in found:
            self.last = number or self.last
            self.events.append(event)
            if event == "state":
                self.state = data
            elif event == "change":
                self.state = merge(self.state, data)
        return found


def plain(state: Any) -> Any:
    return json.loads(json.dumps(state))


def test_a_client_has_the_state_whatever_changes() -> None:
    async def ask() -> None:
        feed = FakeFeed(cluster_state())
        hub = Hub(feed)
        reader = Reader(hub)
        await reader.read()
        assert reader.events == ["connection", "state"] and reader.state == plain(feed.state)
        for changed in (
            {"problems": {"x": {"severity": "bad", "text": "t", "advice": "a", "rank": 0}}},
            {"jobs": {"j1": None}, "events": [{"seq": 4, "time_s": 1.0, "text": "j1 has ended"}]},
            {"rates": {"h0001": {"eth0": [1, 2]}}},
        ):
            feed.change(changed)
            hub.turn()
            await reader.read()
            assert reader.events[-1] == "change" and reader.state == plain(feed.state)
        feed.disconnect("it has gone")
        hub.turn()
        (message,) = await reader.read()
        assert message[1] == "connection" and message[2]["why"] == "it has gone"
        hub.turn()
        assert await reader.read() == []
        # Another controller: nothing of the old one's may stay.
        state = cluster_state(hosts=2, events=1)
        state["controller"]["started_s"] += 60
        feed.connect(state)
        hub.turn()
        await reader.read()
        assert reader.events[-1] == "state" and reader.state == plain(state)
        hub.leave(reader.client)

    run(ask())


def test_who_comes_back_gets_what_was_missed_and_nothing_twice() -> None:
    async def ask() -> None:
        feed = FakeFeed(cluster_state())
        hub = Hub(feed)
        first = Reader(hub)
        await first.read()
        hub.leave(first.client)
        for number in range(3):
            feed.change({"counters": {"reweights": number}})
        again = Reader(hub, last=first.last)
        again.state = first.state
        await again.read()
        assert again.events == ["change"] and again.state == plain(feed.state)
        nothing = Reader(hub, last=again.last)
        assert await nothing.read() == []
        for last in ("x-1", f"{hub._boot}-x", f"{hub._boot}-999", f"{hub._boot}--1", "", "\xb2"):
            other = Reader(hub, last=last)
            await other.read()
            assert other.events[-1] == "state", last
        for number in range(hub_module.MAX_KEPT + 1):
            feed.change({"counters": {"reweights": 100 + number}})
            hub.turn()
        late = Reader(hub, last=again.last)
        await late.read()
        assert late.events[-1] == "state" and late.state == plain(feed.state)
        assert len(hub._kept) <= hub_module.MAX_KEPT

    run(ask())


def test_a_client_may_want_some_parts_alone() -> None:
    async def ask() -> None:
        feed = FakeFeed()
        hub = Hub(feed)
        reader = Reader(hub, frozenset({"counters"}))
        await reader.read()
        assert set(reader.state) == {"counters"}
        feed.change({"jobs": {"j1": None}})
        hub.turn()
        assert await reader.read() == []
        feed.change({"jobs": {"j2": None}, "counters": {"reweights": 9}})
        hub.turn()
        ((_, _, data),) = await reader.read()
        assert data == {"counters": {"reweights": 9}}

    run(ask())


def test_events_alone_come_once_each_and_go_on_where_they_ended() -> None:
    async def ask() -> None:
        feed = FakeFeed(cluster_state(events=3))
        hub = Hub(feed)

        async def seqs(client: Client) -> list[int]:
            text = await client.take(0.0)
            assert text is not None
            return [data["seq"] for _, _, data in messages(text)]

        first = hub.join("x", None, None, events_only=True)
        second = hub.join("x", None, "2", events_only=True)
        third = hub.join("x", None, "77", events_only=True)
        assert [await seqs(each) for each in (first, second, third)] == [[1, 2, 3], [3], [1, 2, 3]]
        feed.change({"events": [{"seq": 4, "time_s": 1.0, "text": "x"}]})
        hub.turn()
        assert [await seqs(each) for each in (first, second)] == [[4], [4]]
        feed.change({"counters": {"reweights": 9}})
        hub.turn()
        assert await seqs(first) == []

    run(ask())


def test_a_client_that_does_not_read_is_cut_off_and_nobody_else() -> None:
    async def ask() -> None:
        feed = FakeFeed()
        hub = Hub(feed)
        slow, good = Reader(hub), Reader(hub)
        for number in range(MAX_WAITING + 5):
            feed.change({"counters": {"reweights": number}})
            hub.turn()
            await good.read()
        assert await slow.client.take(0.0) is None
        assert hub.counters["streams_cut_off"] == 1 and len(hub) == 1
        assert good.state == plain(feed.state)

    run(ask())


def test_so_many_bytes_may_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_WAITING_BYTES", 100)
    client = Client("x", None)
    assert client.put(b"x" * 99) and not client.put(b"xx") and client.put(b"x")
    assert run(client.take(0.0)) == b"x" * 100
    assert client.put(b"x" * 100)


def test_streams_are_limited_for_each_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        hub = Hub(FakeFeed())
        clients = [hub.join("a", None, None) for _ in range(MAX_CLIENTS_OF_ONE)]
        with pytest.raises(ProblemError) as refused:
            hub.join("a", None, None)
        assert refused.value.status == 429
        hub.join("b", None, None)
        hub.leave(clients[0])
        hub.join("a", None, None)
        monkeypatch.setattr(hub_module, "MAX_CLIENTS", len(hub))
        with pytest.raises(ProblemError):
            hub.join("c", None, None)

    run(ask())


def test_the_task_runs_while_there_are_clients() -> None:
    async def ask() -> None:
        feed = FakeFeed()
        hub = Hub(feed)
        client = hub.join("x", None, None)
        task = hub._task
        assert task is not None
        await client.take(0.0)
        feed.change({"counters": {"reweights": 9}})
        text = await asyncio.wait_for(client.take(60.0), 60.0)
        assert text is not None and messages(text)[0][1] == "change"
        hub.leave(client)
        await asyncio.gather(task, return_exceptions=True)
        assert task.done() and hub._task is None

    run(ask())


def test_a_task_that_loses_its_cancellation_ends_all_the_same() -> None:
    async def ask() -> None:
        feed = FakeFeed()
        hub = Hub(feed)

        async def changed(after: int, timeout_s: float) -> int:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return feed.seq

        feed.changed = changed  # type: ignore[method-assign]
        client = hub.join("x", None, None)
        task = hub._task
        assert task is not None
        await asyncio.sleep(0)
        hub.leave(client)
        await asyncio.wait_for(task, 60.0)

    run(ask())


# ---- Over HTTP


def test_a_stream_over_http() -> None:
    async def ask() -> None:
        feed = FakeFeed(cluster_state())
        async with serving(feed) as client:
            answer = await client.get("/api/v1/stream?max_s=0", headers=bearer("viewer"))
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-store"
            found = messages(answer.content)
            assert [event for _, event, _ in found] == ["connection", "state"]
            assert "tokens" not in found[1][2] and answer.text.startswith("retry: ")
            last = {"Last-Event-ID": str(found[1][0])}
            feed.change({"counters": {"reweights": 9}})
            answer = await client.get("/api/v1/stream?max_s=0", headers=last)
            assert [event for _, event, _ in messages(answer.content)] == ["change"]
            answer = await client.get("/api/v1/events/stream?max_s=0")
            assert [number for number, _, _ in messages(answer.content)] == ["1", "2", "3"]
            for query in ("parts=nothing", "parts=", "max_s=-1", "max_s=nan"):
                assert (await client.get(f"/api/v1/stream?{query}")).status_code == 422

    run(ask())


def stream_of(
    hub: Hub, send: Callable[[Any], Any], still: Callable[[], bool] = lambda: True
) -> asyncio.Task[None]:
    """A stream that is sent by `send`, to a client that never ends it."""
    response = EventStream(hub, hub.join("x", None, None), still, 3600.0)

    async def receive() -> Any:
        await asyncio.Event().wait()

    return asyncio.create_task(response({"type": "http"}, receive, send))


def test_a_client_whose_connection_takes_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "STALLED_S", 0.05)

    async def ask() -> None:
        hub = Hub(FakeFeed())

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        await asyncio.wait_for(stream_of(hub, send), 60.0)
        assert hub.counters["streams_cut_off"] == 1 and len(hub) == 0

    run(ask())


def test_a_stream_ends_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LIFE_S", 0.02)

    async def ask() -> None:
        hub = Hub(FakeFeed())
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        good = [True]
        task = stream_of(hub, send, lambda: good[0])
        deadline_s = time.monotonic() + 60.0
        while not any(b"still here" in message.get("body", b"") for message in sent):
            assert time.monotonic() < deadline_s, sent
            await asyncio.sleep(0.01)
        assert not task.done()
        good[0] = False
        await asyncio.wait_for(task, 60.0)
        assert sent[-1] == {"type": "http.response.body", "body": b""} and len(hub) == 0

    run(ask())


def test_a_client_that_goes_is_forgotten() -> None:
    async def ask() -> None:
        hub = Hub(FakeFeed())
        response = EventStream(hub, hub.join("x", None, None), lambda: True, 3600.0)
        ends = asyncio.Event()

        async def receive() -> Any:
            await ends.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            ends.set()

        await asyncio.wait_for(response({"type": "http"}, receive, send), 60.0)
        assert len(hub) == 0

    run(ask())


def test_a_stream_of_a_token_that_was_removed_is_not_for_anonymous_either() -> None:
    """Otherwise it would go on as that of another one."""
    feed = FakeFeed()
    app = made_app(feed)

    async def ask() -> None:
        async with serving(app) as client:
            answer = await client.get("/api/v1/stream?max_s=0", headers=bearer("user"))
            assert answer.status_code == 200
            feed.tokens = {}
            answer = await client.get("/api/v1/stream?max_s=0", headers=bearer("user"))
            assert answer.status_code == 401

    run(ask())


entries = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2).map(lambda n: {"n": n}))
states = st.fixed_dictionaries({"hosts": entries, "jobs": entries, "rates": entries})


@given(states, states)
def test_a_difference_makes_one_state_of_another(before: Any, after: Any) -> None:
    changed = difference(before, after)
    assert merge(before, changed) == after
    assert (changed == {}) == (before == after)


def test_fifty_clients_cost_one_message_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has changed is written once, however many read it."""
    made = []
    plain_sse = hub_module._sse

    def counted(event: str, document: object, number: str | None = None) -> bytes:
        made.append(event)
        return plain_sse(event, document, number)

    monkeypatch.setattr(hub_module, "_sse", counted)

    async def ask() -> None:
        feed = FakeFeed()
        hub = Hub(feed)
        readers = [Reader(hub) for _ in range(50)]
        made.clear()
        feed.change({"counters": {"reweights": 9}})
        hub.turn()
        assert len(made) == 1
        for reader in readers:
            await reader.read()
            assert reader.state["counters"]["reweights"] == 9

    run(ask())
