# SPDX-License-Identifier: Apache-2.0
"""Both ends of `ri2n bench parallel`, and the processes of its mix, in this process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ri2n_lab.bench import parallel_ends, parallel_mix_ends
from ri2n_lab.bench.parallel_ends import PARALLEL_PORT, EndSettings, ask
from ri2n_lab.bench.parallel_mix_ends import MixSettings, run
from ri2n_lab.bench.parallel_wire import (
    CHECK,
    ECHO,
    GIVE,
    HEAD,
    TAKE,
    pieces,
    read_exactly,
    read_line,
    serve_stream,
)
from ri2n_parallel import create_listener

Json = dict[str, Any]


@pytest.fixture
def served() -> Iterator[socket.socket]:
    """A socket at whose other end requests are answered."""
    near, far = socket.socketpair()
    thread = threading.Thread(target=serve_stream, args=(far,))
    thread.start()
    near.settimeout(20)
    yield near
    near.close()
    thread.join(20)
    far.close()
    assert not thread.is_alive()


@pytest.mark.parametrize("length", [HEAD.size, 1000, (1 << 20) - 1, (1 << 20) + 1, (3 << 20) + 5])
def test_a_transfer_is_as_long_as_it_says(served: socket.socket, length: int) -> None:
    for _ in range(2):  # a warm one too
        sent = 0
        for piece in pieces(TAKE, length):
            served.sendall(piece)
            sent += len(piece)
        assert sent == length
        assert read_exactly(served, 1) == b"!"


def test_the_other_requests(served: socket.socket) -> None:
    data = bytes(range(256)) * 40
    served.sendall(HEAD.pack(CHECK, 0, HEAD.size + len(data)) + data)
    seen = read_line(served)
    assert seen["sha256"] == hashlib.sha256(data).hexdigest()
    served.sendall(HEAD.pack(GIVE, 1000, 2500))
    assert read_exactly(served, 2500) == bytes(2500)
    served.sendall(HEAD.pack(ECHO, 2, 3) + b"abcdef")
    assert read_exactly(served, 6) == b"abcdef"


class Halting:
    """A stream whose parts come after waits, by a clock of its own; `said` has what is answered."""

    def __init__(self, parts: list[tuple[float, bytes]], now_s: float) -> None:
        self.parts, self.now_s, self.said = parts, now_s, b""

    def monotonic(self) -> float:
        return self.now_s

    def recv_into(self, buffer: memoryview, /) -> int:
        if not self.parts:
            return 0
        wait_s, part = self.parts.pop(0)
        self.now_s += wait_s
        buffer[: len(part)] = part
        return len(part)

    def sendall(self, data: bytes, /) -> None:
        self.said += data


def test_the_longest_wait_inside_a_transfer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [b"a" * 100, b"b" * 2000, b"c" * 7, b"d" * 500]
    head = HEAD.pack(CHECK, 0, HEAD.size + sum(map(len, parts)))
    # The wait for the first part is none of the transfer's.
    stream = Halting(
        [(0.0, head[:3]), (0.0, head[3:]), *zip((8.0, 0.25, 2.0, 0.5), parts, strict=True)], 100.0
    )
    monkeypatch.setattr("ri2n_lab.bench.parallel_wire.time", stream)
    serve_stream(stream)
    seen = json.loads(stream.said)
    assert seen == {
        "sha256": hashlib.sha256(b"".join(parts)).hexdigest(),
        "stall_s": 2.0,
        "stall_at_s": 108.25,
        "end_s": 110.75,
    }


def test_a_stream_that_ends_in_the_middle_is_an_error() -> None:
    cases = [
        (b"T", "inside a head"),
        (HEAD.pack(TAKE, 0, 100), "too early"),
        (HEAD.pack(b"?", 0, 0), "unknown"),
    ]
    for data, why in cases:
        near, far = socket.socketpair()
        with far:
            with near:
                near.sendall(data)
            with pytest.raises(ConnectionError, match=why):
                serve_stream(far)


@pytest.fixture
def server() -> Iterator[EndSettings]:
    """Plain TCP on two addresses of this machine, served as on a host.

    Connections by address in `SEEN`.
    """
    listener = socket.create_server(("", 0))
    ends: list[threading.Thread] = []
    SEEN.clear()

    def accept() -> None:
        while True:
            try:
                stream, _ = listener.accept()
            except OSError:
                return
            address = stream.getsockname()[0]
            SEEN[address] = SEEN.get(address, 0) + 1
            ends.append(threading.Thread(target=answer, args=(stream,)))
            ends[-1].start()

    def answer(stream: socket.socket) -> None:
        with stream, contextlib.suppress(OSError):
            serve_stream(stream)

    thread = threading.Thread(target=accept)
    thread.start()
    yield EndSettings(("127.0.0.1", "127.0.0.2"), listener.getsockname()[1])
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for each in (thread, *ends):
        each.join(20)
        assert not each.is_alive()


SEEN: dict[str, int] = {}


@pytest.mark.parametrize(("method", "streams", "seen"), [("tcp", 1, 1), ("tcps", 2, 2)])
def test_a_client_measures_fresh_and_warm(
    server: EndSettings, method: str, streams: int, seen: int
) -> None:
    found: list[Json] = []
    request = {
        "op": "transfer",
        "method": method,
        "streams": streams,
        "size": 3_000_001,
        "limit_s": 20,
    }
    requests = [{**request, "warm_bytes": 1 << 20}, {**request, "warm_bytes": 0}]
    ask(server, iter(requests), found.append)
    assert set(found[0]) == {"connect_s", "fresh_s", "warm_s"} and set(found[1]) == {
        "connect_s",
        "fresh_s",
    }
    assert all(0 < value < 20 for each in found for value in each.values())
    assert len(SEEN) == seen and sum(SEEN.values()) == 2 * seen


def test_a_client_hands_its_first_bytes_to_connect() -> None:
    found: list[Json] = []
    requests = [
        {"op": "early", "method": "parallel", "streams": 2, "size": size, "limit_s": 20}
        for size in (2048, 3_000_001)
    ]
    with create_listener(("127.0.0.1", 0)) as listener:
        settings = EndSettings(("127.0.0.1",), listener.address[1] - PARALLEL_PORT)
        asking = threading.Thread(target=ask, args=(settings, iter(requests), found.append))
        asking.start()
        for _ in requests:
            with listener.accept(20) as stream:
                serve_stream(stream)
        asking.join(20)
    assert [set(each) for each in found] == [{"early_s"}] * 2 and all(
        each["early_s"] > 0 for each in found
    )


def test_a_transfer_with_checked_contents(server: EndSettings) -> None:
    found: list[Json] = []
    request = {
        "op": "fault",
        "method": "tcp",
        "streams": 1,
        "size": 1 << 20,
        "seed": 3,
        "limit_s": 20,
    }
    ask(server, iter([request]), found.append)
    began, ended = found
    assert ended["completed"] and ended["intact"] and began["begin_s"] < ended["end_s"]
    assert 0 <= ended["stall_s"] < ended["end_s"] - began["begin_s"]


def test_a_refused_connection_is_an_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found: list[Json] = []
    request = {"op": "transfer", "streams": 2, "size": 2048, "limit_s": 5, "warm_bytes": 0}
    requests = [{**request, "method": method} for method in ("tcp", "tcps", "parallel")]
    ask(EndSettings(("127.0.0.1", "127.0.0.1"), port), iter(requests), found.append)
    assert [list(each) for each in found] == [["error"]] * 3 and "refused" in found[0]["error"]


class CountedTime:
    """A clock that goes on by a millisecond at each look, so that a window is so many looks."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


@pytest.fixture
def counted_time(monkeypatch: pytest.MonkeyPatch) -> CountedTime:
    """The client's time; the sockets' own limits are then no measure."""

    def connect(*how: Any) -> socket.socket:
        return Patient(parallel_ends.connect(*how))

    clock = CountedTime()
    monkeypatch.setattr(parallel_mix_ends, "time", clock)
    monkeypatch.setattr(parallel_mix_ends, "connect", connect)
    return clock


class Patient(socket.socket):
    """A connection without a time limit."""

    def __init__(self, made: socket.socket) -> None:
        super().__init__(fileno=made.detach())
        super().settimeout(None)

    def settimeout(self, limit_s: float | None) -> None:
        assert limit_s is not None and limit_s > 0


def test_a_process_of_the_mix_counts_its_window(
    server: EndSettings, counted_time: CountedTime
) -> None:
    settings = MixSettings(server, "dns", 1, unit_bytes=1000, times=2, warmup_s=0.05, window_s=0.2)
    found = run(settings, counted_time.now_s + 1)
    assert found["failed"] == 0 and found["bytes"] > 0
    assert found["served"] == found["bytes"] / 2000
    assert (
        set(SEEN) == {"127.0.0.1", "127.0.0.2"} and abs(SEEN["127.0.0.1"] - SEEN["127.0.0.2"]) <= 1
    )
    assert sum(SEEN.values()) * 2000 > found["bytes"], "what came before the window does not count"
    SEEN.clear()
    found = run(replace(settings, warmup_s=0.2, window_s=0.0), counted_time.now_s + 1)
    assert found == {"bytes": 0, "served": 0, "failed": 0, "errors": []} and SEEN, (
        "what comes before the window does not count"
    )


def test_a_process_of_the_mix_counts_what_fails(counted_time: CountedTime) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = MixSettings(
        EndSettings(("127.0.0.1",), port), "tcp", 0, 1000, 1, warmup_s=0.0, window_s=0.1
    )
    found = run(settings, counted_time.now_s + 1)
    assert found["bytes"] == found["served"] == 0
    assert found["failed"] == 9, "each of them pauses 10 ms, and is looked at twice"
    assert len(found["errors"]) == 5 and "ConnectionRefusedError" in found["errors"][0]
    found = run(replace(settings, warmup_s=0.1, window_s=0.0), counted_time.now_s + 1)
    assert found == {"bytes": 0, "served": 0, "failed": 0, "errors": []}, (
        "what fails before the window does not count"
    )
