"""Waiting for many hosts at once without letting one of them hold up the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["LONG_MUTE_S", "MUTE_S", "await_most"]

MUTE_S = 0.5
"""A host that leaves a request open for longer is asked nothing else, and waited for by nobody,
until it answers.
"""

LONG_MUTE_S = 5.0
"""One that leaves a request open for this long is not about to answer:

nothing that is about all hosts waits for it.
"""

_STRAGGLER_S = 0.25
_STRAGGLER_TIMES = 4.0

KeyT = TypeVar("KeyT", bound=Hashable)


def await_most(
    asked: Sequence[tuple[KeyT, Sequence[Future[Any]]]], limit_s: float, bystanders: int = 0
) -> set[KeyT]:
    """Wait until the hosts' requests have answers, and return the hosts whose requests all have.

    Late is not dead, and how late is late depends on the machine: once half of the hosts are done,
    the others have four times as long as those took, and 0.25 s at least. A single mute host so
    costs the others a quarter of a second, and a busy machine, on which all are slow, loses nobody.
    No wait is longer than `limit_s`; nor than MUTE_S where half of all hosts are `bystanders`, who
    were asked nothing and cannot go on until this is over.
    """
    done: set[KeyT] = set()
    left = {key: len(futures) for key, futures in asked}
    changed = threading.Condition()

    def one_done(key: KeyT) -> None:
        with changed:
            left[key] -= 1
            if not left[key]:
                done.add(key)
                changed.notify()

    began_s = time.monotonic()
    for key, futures in asked:
        if not futures:
            done.add(key)
        for future in futures:
            future.add_done_callback(lambda _, key=key: one_done(key))  # type: ignore[misc]
    allowed_s = limit_s
    with changed:
        while len(done) < len(left):
            now_s = time.monotonic()
            if allowed_s == limit_s and 2 * len(done) >= len(left):
                allowed_s = min(limit_s, max(_STRAGGLER_S, _STRAGGLER_TIMES * (now_s - began_s)))
            elif allowed_s == limit_s and 2 * (len(done) + bystanders) >= len(left) + bystanders:
                allowed_s = min(limit_s, MUTE_S)
            if now_s - began_s >= allowed_s:
                break
            changed.wait(began_s + allowed_s - now_s)
        return set(done)
