"""What the tests of parallel connections share: pairs of ends, checksums, waiting for conditions, counting leaks."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ri2n_sdn.parallel import (
    ParallelListener,
    ParallelSocket,
    Qos,
    caretaker,
    create_connection,
    create_listener,
    p_read,
)

__all__ = ["addresses", "descriptors", "digest", "in_thread", "noise", "pair", "read_all", "serving", "wait_until"]


def wait_until(what: str, condition: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """The condition's value once that is true; fails with `what` and the last value."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s} s: {value!r}"
        time.sleep(0.005)
    return value


def addresses(count: int, net: str = "127.0.0") -> list[str]:
    """Loopback addresses, which stand for interfaces."""
    return [f"{net}.{number + 1}" for number in range(count)]


def noise(count: int, seed: int = 1) -> bytes:
    """Bytes in which an exchange of two parts is seen."""
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
    """Fails when threads, descriptors or sessions that are cared for are left over, after a while to end."""
    before, threads = set(descriptors()), set(threading.enumerate())
    yield
    wait_until("sessions left", lambda: not caretaker.count())
    wait_until("threads left", lambda: not [one for one in threading.enumerate() if one not in threads] or None)
    wait_until("descriptors left", lambda: not {k: v for k, v in descriptors().items() if k not in before} or None)


@contextmanager
def serving(links: int = 1, **options: Any) -> Iterator[ParallelListener]:
    """A listener on as many loopback addresses."""
    options.setdefault("addresses", addresses(links))
    with create_listener((options["addresses"][0], 0), **options) as listener:
        yield listener


@contextmanager
def pair(
    links: int = 3, *, server: dict[str, Any] | None = None, **client: Any
) -> Iterator[tuple[ParallelSocket, ParallelSocket]]:
    """(client, server), all links there; aborted at the end when the test has not closed them."""
    with serving(links, **(server or {})) as listener:
        near = create_connection(listener.address, Qos(links), **client)
        far = listener.accept(timeout_s=10)
        try:
            wait_until("links", lambda: len(far.links) == len(near.links) == links)
            yield near, far
        finally:
            near.abort()
            far.abort()


def read_all(sock: ParallelSocket, most: int = 1 << 18) -> bytes:
    """All up to the end of the stream."""
    parts = []
    while part := sock.recv(most):
        parts.append(part)
    return b"".join(parts)


class Running(threading.Thread):
    """A thread whose result, or error, `result` gives."""

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

    def result(self, timeout_s: float = 60.0) -> Any:
        self.join(timeout_s)
        assert not self.is_alive(), f"{self._what} has not ended within {timeout_s} s"
        if self._error is not None:
            raise self._error
        return self._value


def in_thread(run: Callable[[], Any]) -> Running:
    """Run it; `result()` waits for it."""
    return Running(run)


def resident_bytes() -> int:
    """Memory of this process that is there."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def p_all(sock: ParallelSocket, count: int) -> bytes:
    """Exactly so many bytes."""
    data = p_read(sock, count)
    assert len(data) == count, f"the stream ended after {len(data)} of {count} bytes"
    return data
