# SPDX-License-Identifier: Apache-2.0
"""The controller goes on after a handler that raises, a loop that fails, and a garbage request."""

from __future__ import annotations

import itertools
import json
import logging
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ri2n_sdn.apps import openflow
from ri2n_sdn.apps.audit import Audit
from ri2n_sdn.apps.cluster import Cluster, guarded_loop
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.counts import Counts
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.openflow import OSKenApp, event, handler, handler_errors, ofp
from ri2n_sdn.apps.tokens import Tokens
from ri2n_sdn.apps.watching import Collector, Watching
from ri2n_sdn.errors import NotAvailable
from tests.waiting import wait_until


class _Event(event.EventBase):  # type: ignore[misc]
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class _App(OSKenApp):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.register_handler(_Event, self.take)

    @handler(_Event)
    def take(self, ev: Any) -> None:
        if ev.text == "boom":
            raise ValueError("a bug in a handler")
        self.seen.append(ev.text)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(ClusterConfig(), "max_min", tmp_path / "api.sock")
    yield made
    made.wake.stop.set()


class _Slow(str):
    """A name whose hash takes Python code, in which another thread may have its turn."""

    def __hash__(self) -> int:
        return sum(range(50)) + len(self)


def in_threads(work: Callable[[], None], count: int = 8) -> None:
    """Run the same in several threads that take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)


def test_counts_are_exact_with_many_threads() -> None:
    counts = Counts()
    name = _Slow("it")

    def work() -> None:
        for _ in range(500):
            counts.add(name)

    in_threads(work)
    assert list(counts.described().values()) == [4000]
    assert counts[name] == 4000 and counts["other"] == 0


def test_counts_can_be_read_while_names_are_added() -> None:
    counts, numbers, wrong = Counts(), itertools.count(), list[int]()

    def work() -> None:
        for _ in range(100):
            counts.add(str(next(numbers)))
            wrong.extend(count for count in counts.described().values() if count != 1)

    in_threads(work)
    assert len(counts.described()) == 800 and not wrong


def test_exceptions_in_several_threads_are_all_counted(caplog: pytest.LogCaptureFixture) -> None:
    app = _App()
    before = handler_errors["_App.take"]
    caplog.set_level(logging.CRITICAL, "ri2n.openflow")

    def work() -> None:
        for _ in range(100):
            app.take(_Event("boom"))

    in_threads(work)
    assert handler_errors["_App.take"] == before + 800


def test_an_app_survives_a_handler_that_raises() -> None:
    app = _App()
    app.start()
    before = handler_errors["_App.take"]
    for text in ("a", "boom", "b"):
        app._send_event(_Event(text), None)
    wait_until(lambda: app.seen == ["a", "b"], lambda: app.seen)
    assert handler_errors["_App.take"] == before + 1
    app.stop()


@pytest.mark.parametrize("known", [False, True])
def test_what_a_switch_says_is_bounded_until_it_is_known_who_it_is(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that runs for days sends much more."""
    monkeypatch.setattr(openflow, "_STRANGERS_BYTES", 1000)
    echo = struct.pack("!BBHI", ofp.OFP_VERSION, ofp.OFPT_ECHO_REPLY, 600, 1) + bytes(592)
    chunks = [echo] * 5
    line = SimpleNamespace(
        setsockopt=lambda *_: None,
        settimeout=lambda _: None,
        recv=lambda _: chunks.pop(0) if chunks else b"",
    )
    switch = openflow._Datapath(line, ("192.0.2.1", 40000))
    switch._admitted = lambda: None
    if known:
        switch.ri2n_admitted()
        switch._read()
        assert not chunks
    else:
        with pytest.raises(
            openflow._Malformed, match="more than 1000 bytes before its host was known"
        ):
            switch._read()
        assert len(chunks) == 3


def test_a_loop_survives_failures_and_counts_them(cluster: Cluster) -> None:
    turns: list[int] = []

    def turn() -> None:
        turns.append(len(turns))
        if len(turns) < 3:
            raise RuntimeError("a bug in a loop")
        cluster.wake.stop.wait(0.01)

    guarded_loop(cluster, "sample", turn)
    wait_until(lambda: len(turns) > 5, lambda: turns)
    assert cluster.counters["loop_errors_sample"] == 2
    assert not cluster.wake.stop.is_set()


def test_a_loop_that_fails_at_every_turn_ends_the_controller(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.wake.stop, "wait", lambda timeout=None: cluster.wake.stop.is_set())

    turns: list[int] = []

    def turn() -> None:
        turns.append(len(turns))
        if len(turns) != 20:
            raise RuntimeError("nearly always")

    guarded_loop(cluster, "sample", turn).join(timeout=120)
    assert cluster.wake.stop.is_set() and cluster.failed
    assert len(turns) == 40, "19 failures, one turn that works, 20 failures in a row"
    assert cluster.counters["loop_errors_sample"] == 39


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.binary(max_size=100),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=9), inner, max_size=3)
            ),
            max_leaves=5,
        ).map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries(
            {"op": st.sampled_from(["status", "explain", "strategy", "events"])},
            optional={
                key: st.none() | st.integers() | st.text(max_size=9)
                for key in ("src", "dst", "name", "since", "flow")
            },
        ).map(lambda value: json.dumps(value).encode()),
    )
)
@example(b'{"op": "explain", "src": "\\n\\u2028\\u001b"}')
def test_every_request_gets_one_answer(cluster: Cluster, line: bytes) -> None:
    api = LocalApi.__new__(LocalApi)
    api._cluster, api._tokens, api._audit = cluster, Tokens(None), Audit()
    with closing(Watching(Collector(cluster, Tokens(None)), cluster)) as api._watching:
        answer = api.answer(line)
    assert isinstance(answer["ok"], bool)
    if not answer["ok"]:
        assert answer["error"].isprintable() and "internal error" not in answer["error"]
    json.dumps(answer)


def test_a_dead_controllers_socket_is_taken_over_and_a_live_ones_is_not(cluster: Cluster) -> None:
    first = LocalApi(cluster)
    with pytest.raises(NotAvailable, match="another controller listens there"):
        LocalApi(cluster)
    for server in first._servers:
        server.shutdown()
        server.server_close()
    assert cluster.socket_path.exists()  # as after kill -9
    second = LocalApi(cluster)
    assert cluster.socket_path.stat().st_mode & 0o077 == 0
    second.close()
    assert not cluster.socket_path.exists()
