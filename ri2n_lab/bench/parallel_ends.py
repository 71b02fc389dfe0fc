# SPDX-License-Identifier: Apache-2.0
"""The two ends of `ri2n bench parallel`, programs on two hosts.

`python -m ri2n_lab.bench.parallel_ends serve|ask SETTINGS`. Both read requests from stdin, one line
of JSON each, and answer each by lines of JSON. The server listens on three ports: plain TCP, MPTCP,
`ri2n_parallel`. Nothing here knows labs. Times are seconds by CLOCK_MONOTONIC.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import resource
import selectors
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ri2n_lab.bench.parallel_wire import (
    CHECK,
    ECHO,
    HEAD,
    TAKE,
    Stream,
    pieces,
    read_exactly,
    read_line,
    serve_stream,
)
from ri2n_parallel import ParallelSocket, Qos, create_connection, create_listener

__all__ = ["EndSettings", "ask", "connect", "main", "serve"]

IPPROTO_MPTCP = 262
BACKLOG = 1024
MPTCP_PORT, PARALLEL_PORT = 1, 2  # after the port of plain TCP
CONNECT_S = 10.0
COUNTERS = ("links_lost", "links_suspected", "resent_bytes")

Json = dict[str, Any]


@dataclass(frozen=True)
class EndSettings:
    """What both ends know: the server's addresses, one per link, and its first port of three."""

    addresses: tuple[str, ...]
    port: int
    mptcp: bool = False
    placement: str = "least_connections"


# ---- the server


def serve(settings: EndSettings, requests: Iterator[Json], answer: Callable[[Json], None]) -> None:
    """Serve every connection in a thread of its own until the requests end.

    {"op": "uneven"} answers how far apart the interfaces were, in connections, seen whenever one
    more had come since the last such request: {"mean", "most"}.
    """
    server = _Server(settings)
    answer({"op": "listening"})
    for _ in requests:
        answer(server.uneven())


class _Server:
    def __init__(self, settings: EndSettings) -> None:
        self._live = dict.fromkeys(settings.addresses, 0)
        self._apart: list[int] = []
        self._lock = threading.Lock()
        self._listen(socket.IPPROTO_TCP, settings.port)
        if settings.mptcp:
            self._listen(IPPROTO_MPTCP, settings.port + MPTCP_PORT)
        listener = create_listener(
            ("", settings.port + PARALLEL_PORT),
            addresses=list(settings.addresses),
            placement=settings.placement,
            backlog=BACKLOG,
        )

        def accept() -> None:
            while True:
                stream = listener.accept()
                self._came(dict(listener.connections))
                _thread(self._answer, stream, None)

        _thread(accept)

    def uneven(self) -> Json:
        with self._lock:
            apart, self._apart = self._apart, []
        return {
            "mean": statistics.fmean(apart) if apart else None,
            "most": max(apart, default=None),
        }

    def _listen(self, protocol: int, port: int) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", port))
        listener.listen(BACKLOG)

        def accept() -> None:
            while True:
                stream, _ = listener.accept()
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                address = stream.getsockname()[0]
                with self._lock:
                    self._live[address] = self._live.get(address, 0) + 1
                    live = dict(self._live)
                self._came(live)
                _thread(self._answer, stream, address)

        _thread(accept)

    def _came(self, live: dict[str, int]) -> None:
        with self._lock:
            self._apart.append(max(live.values(), default=0) - min(live.values(), default=0))

    def _answer(self, stream: Any, address: str | None) -> None:
        with contextlib.suppress(OSError), stream:  # a client that stops in the middle is no news
            serve_stream(stream)
        if address is not None:
            with self._lock:
                self._live[address] -= 1


def _thread(work: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()


# ---- the client


def connect(
    settings: EndSettings,
    method: str,
    streams: int,
    number: int = 0,
    data: memoryview | bytes = b"",
) -> Any:
    """One stream to the server by that method; OSError when it is refused.

    `number` chooses the address of plain TCP; `data` are the first bytes of a parallel one. For
    "tcps" use `ask`, which sends over several at once.
    """
    address, port = settings.addresses[number % len(settings.addresses)], settings.port
    if method == "parallel":
        where = (settings.addresses[0], port + PARALLEL_PORT)
        return create_connection(
            where, qos=Qos(parallelism=streams), data=data, timeout_s=CONNECT_S
        )
    mptcp = method == "mptcp"
    stream = socket.socket(
        socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP if mptcp else socket.IPPROTO_TCP
    )
    try:
        stream.settimeout(CONNECT_S)
        stream.connect((address, port + MPTCP_PORT if mptcp else port))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        stream.close()
        raise
    return stream


def ask(settings: EndSettings, requests: Iterator[Json], answer: Callable[[Json], None]) -> None:
    """Do what each request says; one that fails is answered by {"error"}."""
    work = {"transfer": _transfer, "early": _early, "fault": _fault, "roundtrip": _round_trips}
    for request in requests:
        try:
            answer(work[request["op"]](settings, request, answer))
        except OSError as error:
            answer({"error": f"{type(error).__name__}: {error}"})


def _transfer(settings: EndSettings, request: Json, _: Callable[[Json], None]) -> Json:
    """Send `size` bytes and wait for the answer: {"connect_s", "fresh_s"}, in seconds.

    With `warm_bytes`, so many go before over the same connection, and then "warm_s" is the time.
    """
    size, limit_s = request["size"], request["limit_s"]
    begin_s = time.monotonic()
    with contextlib.ExitStack() as streams:
        if request["method"] == "tcps":
            several = _Several(settings, request["streams"], limit_s)
            streams.callback(several.close)
            send = several.send
        else:
            stream = streams.enter_context(connect(settings, request["method"], request["streams"]))
            stream.settimeout(limit_s)

            def send(length: int) -> float:
                return _send(stream, list(pieces(TAKE, length)))

        found = {"connect_s": time.monotonic() - begin_s, "fresh_s": send(size)}
        if request["warm_bytes"]:
            send(request["warm_bytes"])
            found["warm_s"] = send(size)
    return found


def _early(settings: EndSettings, request: Json, _: Callable[[Json], None]) -> Json:
    """{"early_s"}: seconds from the call to connect, with the first bytes, to the answer."""
    first, *rest = pieces(TAKE, request["size"])
    begin_s = time.monotonic()
    with connect(settings, request["method"], request["streams"], data=first) as stream:
        stream.settimeout(request["limit_s"])
        _send(stream, rest)
        return {"early_s": time.monotonic() - begin_s}


def _send(stream: Stream, parts: Sequence[memoryview]) -> float:
    """Seconds from the first byte to the answer."""
    begin_s = time.monotonic()
    for part in parts:
        stream.sendall(part)
    if not read_exactly(stream, 1):
        raise ConnectionError("the server closed the connection before its answer")
    return time.monotonic() - begin_s


class _Several:
    """Plain TCPs, one to each of the server's first addresses: what so many links give at most."""

    def __init__(self, settings: EndSettings, count: int, limit_s: float) -> None:
        self._limit_s = limit_s
        self._streams: list[socket.socket] = []
        try:
            with selectors.DefaultSelector() as selector:
                for address in settings.addresses[:count]:
                    stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                    self._streams.append(stream)
                    stream.setblocking(False)
                    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    stream.connect_ex((address, settings.port))
                    selector.register(stream, selectors.EVENT_WRITE)
                while selector.get_map():
                    for key, _ in _some(selector, CONNECT_S):
                        selector.unregister(key.fileobj)
            for stream in self._streams:
                if number := stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(number, "a connection failed")
        except BaseException:
            self.close()
            raise

    def send(self, length: int) -> float:
        """Seconds from the first byte to the last answer; each stream has its share of `length`."""
        count = len(self._streams)
        shares = [length // count + (index < length % count) for index in range(count)]
        left = {
            stream: list(pieces(TAKE, share))
            for stream, share in zip(self._streams, shares, strict=True)
        }
        begin_s = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream, selectors.EVENT_WRITE)
            while selector.get_map():
                for key, _ in _some(selector, self._limit_s):
                    stream = key.fileobj  # type: ignore[assignment]
                    if not left[stream]:
                        if not stream.recv(1):
                            raise ConnectionError(
                                "the server closed a connection before its answer"
                            )
                        selector.unregister(stream)
                        continue
                    with contextlib.suppress(BlockingIOError):
                        sent = stream.send(left[stream][0])
                        left[stream][0] = left[stream][0][sent:]
                    if not left[stream][0]:
                        left[stream].pop(0)
                    if not left[stream]:
                        selector.modify(stream, selectors.EVENT_READ)
        return time.monotonic() - begin_s

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


def _some(
    selector: selectors.BaseSelector, limit_s: float
) -> list[tuple[selectors.SelectorKey, int]]:
    """The sockets that are ready; TimeoutError when none is for so long."""
    if not (ready := selector.select(limit_s)):
        raise TimeoutError(f"nothing moved for {limit_s:g} s")
    return ready


def _fault(settings: EndSettings, request: Json, answer: Callable[[Json], None]) -> Json:
    """Send `size` bytes.

    {"begin_s"} first, then how it ended, whatever became of links in the meantime.
    """
    length = request["size"] - HEAD.size
    data = random.Random(request["seed"]).randbytes(length)
    wanted = hashlib.sha256(data).hexdigest()
    found: Json = {"completed": False, "intact": None, "why": None, **dict.fromkeys(COUNTERS)}
    with connect(settings, request["method"], request["streams"]) as stream:
        stream.settimeout(request["limit_s"])
        begin_s = time.monotonic()
        answer({"begin_s": begin_s})
        try:
            stream.sendall(HEAD.pack(CHECK, 0, request["size"]))
            stream.sendall(data)
            seen = read_line(stream)
            found |= {"completed": True, "intact": seen["sha256"] == wanted}
            found |= {key: seen[key] for key in ("stall_s", "stall_at_s")}
        except OSError as error:
            found["why"] = f"{type(error).__name__}: {error}"
        found["end_s"] = time.monotonic()
        if isinstance(stream, ParallelSocket):
            # What never happened is not among the counters.
            found |= {key: stream.counters.get(key, 0) for key in COUNTERS}
            if not found["completed"]:
                stream.abort()
    return found


def _round_trips(settings: EndSettings, request: Json, _: Callable[[Json], None]) -> Json:
    """Seconds of each of `count` round trips of `size` bytes, by turns over TCP and parallel.

    {"tcp": [...], "parallel": [...]}.
    """
    size, count = request["size"], request["count"]
    found: dict[str, list[float]] = {"tcp": [], "parallel": []}
    with (
        connect(settings, "tcp", 1) as plain,
        connect(settings, "parallel", request["streams"]) as parallel,
    ):
        streams = {"tcp": plain, "parallel": parallel}
        for stream in streams.values():
            stream.settimeout(None)  # a time limit costs plain sockets a system call each time
            stream.sendall(HEAD.pack(ECHO, count, size))
        data = bytes(size)
        for turn in range(count):
            # By turns also who is first, so that neither always finds a CPU that the other has
            # woken.
            for name in sorted(streams, reverse=bool(turn % 2)):
                stream = streams[name]
                begin = time.perf_counter()
                stream.sendall(data)
                answered = read_exactly(stream, size)
                found[name].append(time.perf_counter() - begin)
                if len(answered) < size:
                    raise ConnectionError(f"{name}: the server closed the connection")
    return found


# ---- the command line


def main(argv: Sequence[str] | None = None) -> None:
    """`serve` or `ask`, and the settings as JSON."""
    role, document = sys.argv[1:] if argv is None else argv
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    values = json.loads(document)
    settings = EndSettings(**{**values, "addresses": tuple(values["addresses"])})
    work = {"serve": serve, "ask": ask}[role]
    work(settings, map(json.loads, sys.stdin), lambda found: print(json.dumps(found), flush=True))


if __name__ == "__main__":
    main()
