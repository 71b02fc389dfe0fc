# SPDX-License-Identifier: Apache-2.0
"""Waiting for many hosts at once, so that one slow host does not delay the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["LONG_MUTE_S", "MUTE_S", "RETRY_S", "await_most"]

MUTE_S = 0.5
"""A host that leaves a request open for longer is mute.

It is asked nothing else until it answers, and no thread waits for it.
"""

LONG_MUTE_S = 5.0
"""A host that leaves a request open for this long is not expected to answer soon.

Decisions about all hosts are made without it.
"""

RETRY_S = 1.0
"""A host that could not be read, planned or changed is tried again after this time."""

_STRAGGLER_S = 0.25
_STRAGGLER_TIMES = 4.0

KeyT = TypeVar("KeyT", bound=Hashable)


def await_most(
    asked: Sequence[tuple[KeyT, Sequence[Future[Any]]]], limit_s: float, bystanders: int = 0
) -> set[KeyT]:
    """Wait for the hosts' answers, and return the hosts whose requests are all answered.

    A late host is not a dead one, and what is late depends on the machine. So once half of the
    hosts are done, the others get four times as long as those took, and 0.25 s at least. A single
    mute host thus costs the others a quarter of a second, and on a busy machine, where all hosts
    are slow, none is missed.

    No wait is longer than `limit_s`. `bystanders` are hosts that were asked nothing and cannot go
    on until the wait is over: if they and the hosts that are done make half of all, the wait is not
    longer than MUTE_S.
    """
    done: set[KeyT] = set()
    n_open = {key: len(futures) for key, futures in asked}
    changed = threading.Condition()

    def one_answered(key: KeyT) -> None:
        with changed:
            n_open[key] -= 1
            if not n_open[key]:
                done.add(key)
                changed.notify()

    began_s = time.monotonic()
    for key, futures in asked:
        if not futures:
            done.add(key)
        for future in futures:
            future.add_done_callback(lambda _, key=key: one_answered(key))  # type: ignore[misc]
    allowed_s = limit_s
    with changed:
        while len(done) < len(n_open):
            now_s = time.monotonic()
            if allowed_s == limit_s and 2 * len(done) >= len(n_open):
                allowed_s = min(limit_s, max(_STRAGGLER_S, _STRAGGLER_TIMES * (now_s - began_s)))
            elif allowed_s == limit_s and 2 * (len(done) + bystanders) >= len(n_open) + bystanders:
                allowed_s = min(limit_s, MUTE_S)
            if now_s - began_s >= allowed_s:
                break
            changed.wait(began_s + allowed_s - now_s)
        return set(done)
