# SPDX-License-Identifier: Apache-2.0
"""What the tests of parallel connections share.

Pairs of ends, checksums, waits for conditions, and checks that nothing is left over.
"""

from __future__ import annotations

import hashlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ri2n_parallel import (
    ParallelListener,
    ParallelSocket,
    Qos,
    caretaker,
    create_connection,
    create_listener,
    p_read,
)
from ri2n_parallel.session import Session

__all__ = [
    "PATIENCE_S",
    "Clock",
    "addresses",
    "connect",
    "descriptors",
    "digest",
    "in_thread",
    "noise",
    "pair",
    "read_all",
    "rounds",
    "sending",
    "serves",
    "serving",
    "wait_until",
]

ONE_LINK = Qos()
PATIENCE_S = 120.0
"""Until a test gives up: a net against hanging, and never a bound on how long anything may take."""


class Clock:
    """Stands for the module `time` in the library: real time, and what a test adds to it.

    Once it stands still, only what a test lets pass passes.
    """

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._still_s: float | None = None

    def monotonic(self) -> float:
        return (time.monotonic() if self._still_s is None else self._still_s) + self._ahead_s

    def stop(self) -> None:
        """Let real time pass no more."""
        self._still_s = time.monotonic()

    def let_pass(self, seconds: float) -> None:
        """Let so much time pass at once, for everybody."""
        self._ahead_s += seconds


def wait_until(what: str, condition: Callable[[], Any], timeout_s: float = PATIENCE_S) -> Any:
    """Wait until the condition is true, and return its value.

    It fails with `what` and the last value.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s} s: {value!r}"
        time.sleep(0.005)
    return value


def addresses(count: int, net: str = "127.0.0") -> list[str]:
    """Loopback addresses, which stand for interfaces."""
    return [f"{net}.{number + 1}" for number in range(count)]


def noise(count: int, seed: int = 1) -> bytes:
    """Bytes in which an exchange of two parts would be noticed."""
    return random.Random(seed).randbytes(count)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def descriptors() -> dict[int, str]:
    """Open descriptors of this process, without the one that lists them."""
    found = {}
    for one in Path("/proc/self/fd").iterdir():
        try:
            found[int(one.name)] = str(one.readlink())
        except FileNotFoundError:
            continue
    return found


@contextmanager
def no_leaks() -> Iterator[None]:
    """Fail when threads, descriptors or sessions that are cared for are left over.

    They have some time to end.
    """
    before, threads = set(descriptors()), set(threading.enumerate())
    yield
    wait_until("sessions left", lambda: not caretaker.count())
    wait_until(
        "threads left",
        lambda: not [one for one in threading.enumerate() if one not in threads] or None,
    )
    wait_until(
        "descriptors left",
        lambda: not {k: v for k, v in descriptors().items() if k not in before} or None,
    )


@contextmanager
def serving(links: int = 1, **options: Any) -> Iterator[ParallelListener]:
    """A listener on so many loopback addresses."""
    options.setdefault("addresses", addresses(links))
    options.setdefault("handshake_timeout_s", PATIENCE_S)
    with create_listener((options["addresses"][0], 0), **options) as listener:
        yield listener


def connect(address: tuple[str, int], qos: Qos = ONE_LINK, **options: Any) -> ParallelSocket:
    """A client that waits long enough."""
    return create_connection(address, qos, **{"timeout_s": PATIENCE_S, **options})


@contextmanager
def pair(
    links: int = 3, *, server: dict[str, Any] | None = None, **client: Any
) -> Iterator[tuple[ParallelSocket, ParallelSocket]]:
    """(client, server) with all links connected.

    Both are aborted at the end, unless the test has closed them.
    """
    with serving(links, **(server or {})) as listener:
        near = connect(listener.address, Qos(links), **client)
        far = listener.accept(PATIENCE_S)
        try:
            wait_until("links", lambda: len(far.links) == len(near.links) == links)
            yield near, far
        finally:
            near.abort()
            far.abort()


@contextmanager
def rounds(session: Session) -> Iterator[Callable[[int], None]]:
    """Counts how often the caretaker looks after a session.

    What is yielded waits until it has done so so many times more. What must not happen "for a
    while" must not happen in so many rounds, however long they take.
    """
    done, care = [0], session.care

    def counted(now_s: float) -> None:
        care(now_s)
        done[0] += 1

    def wait(count: int) -> None:
        end = done[0] + count
        wait_until("rounds", lambda: done[0] >= end)

    session.care = counted  # type: ignore[method-assign]
    try:
        yield wait
    finally:
        session.care = care  # type: ignore[method-assign]


def read_all(sock: ParallelSocket, most: int = 1 << 18) -> bytes:
    """All bytes up to the end of the stream."""
    parts = []
    while part := sock.recv(most):
        parts.append(part)
    return b"".join(parts)


class Running(threading.Thread):
    """A thread; `result` returns its result or raises its error."""

    def __init__(self, run: Callable[[], Any]) -> None:
        super().__init__(name="test")
        self._what, self._value = run, None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._what()
        except BaseException as error:
            self._error = error

    def result(self, timeout_s: float = PATIENCE_S) -> Any:
        self.join(timeout_s)
        assert not self.is_alive(), f"{self._what} has not ended within {timeout_s} s"
        if self._error is not None:
            raise self._error
        return self._value


def in_thread(run: Callable[[], Any]) -> Running:
    """Run it in a thread; `result()` waits for it."""
    return Running(run)


def resident_bytes() -> int:
    """The memory of this process that is in use."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf(
        "SC_PAGESIZE"
    )


def p_all(sock: ParallelSocket, count: int) -> bytes:
    """Receive exactly so many bytes."""
    data = p_read(sock, count)
    assert len(data) == count, f"the stream ended after {len(data)} of {count} bytes"
    return data


def serves(listening: ParallelListener) -> None:
    """A client that keeps the rules is served."""
    with connect(listening.address, Qos(2)) as near, listening.accept(PATIENCE_S) as far:
        near.sendall(b"ping")
        assert p_all(far, 4) == b"ping"
        far.sendall(b"pong")
        assert p_all(near, 4) == b"pong"


@contextmanager
def sending(near: ParallelSocket, far: ParallelSocket) -> Iterator[None]:
    """Send from near to far all the while; in the end all must have arrived, and be right."""
    block, sent, enough = noise(1 << 20), hashlib.sha256(), threading.Event()

    def send() -> None:
        while not enough.is_set():
            near.sendall(block)
            sent.update(block)
        near.shutdown(socket.SHUT_WR)

    reading, writing = in_thread(lambda: digest(read_all(far))), in_thread(send)
    try:
        yield
    finally:
        enough.set()
    writing.result()
    assert reading.result() == sent.hexdigest()
