# SPDX-License-Identifier: Apache-2.0
"""One thread for all sessions of a process does what is due while no thread of the program calls.

That is: it finds links that have died, acknowledges, closes, and connects links again. The thread
exists while there is something to care for. A child process lets go of all that its parent had at
the fork.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from typing import Protocol

__all__ = ["CARE_S", "Cared", "add", "count", "own", "remove"]

CARE_S = 0.05
"""The time between two calls of `care`."""
log = logging.getLogger("ri2n.parallel")


class Cared(Protocol):
    """A session, or a link that is being connected."""

    lock: threading.RLock

    def care(self, now_s: float) -> None:
        """Do what is due; the lock is held."""


class Owned(Protocol):
    """What belongs to the process that made it and is of no use in its children."""

    def left_to_parent(self) -> None:
        """Let go of it in a child process, without any effect on the parent.

        There is no other thread. Any lock may be held for ever, by a thread that the child does not
        have.
        """


_owned: weakref.WeakSet[Owned] = weakref.WeakSet()
_lock = threading.Lock()
_wake = threading.Condition(_lock)
_cared: dict[int, Cared] = {}
_thread: threading.Thread | None = None


def add(cared: Cared) -> None:
    """Call `care` of this object from now on."""
    global _thread
    with _lock:
        _cared[id(cared)] = cared
        if _thread is None:
            _thread = threading.Thread(target=_run, name="ri2n-parallel", daemon=True)
            _thread.start()


def remove(cared: Cared) -> None:
    """Call its `care` no more; the thread ends when there is no object left."""
    with _lock:
        _cared.pop(id(cared), None)
        if not _cared:
            _wake.notify_all()


def own(owned: Owned) -> None:
    """Call its `left_to_parent` in child processes."""
    _owned.add(owned)


def count() -> int:
    """How many objects are cared for."""
    with _lock:
        return len(_cared)


def _run() -> None:
    """Call `care` of all objects every CARE_S, until there is none; the thread's function."""
    global _thread
    while True:
        with _lock:
            if not _cared:
                _thread = None
                return
            _wake.wait(CARE_S)
            all_cared = list(_cared.values())
        for cared in all_cared:
            if not cared.lock.acquire(blocking=False):
                continue  # the thread that holds the lock does what is due, or the next round does
            try:
                cared.care(time.monotonic())
            except Exception:  # an error in one session must not end the care for all others
                log.exception("a session could not be cared for")
                remove(cared)
            finally:
                cared.lock.release()


def _after_fork() -> None:
    """In a child process: let go of all that belongs to the parent, and begin anew."""
    global _lock, _wake, _thread
    _lock = threading.Lock()
    _wake = threading.Condition(_lock)
    _thread = None
    _cared.clear()
    for owned in list(_owned):
        owned.left_to_parent()
    _owned.clear()


os.register_at_fork(after_in_child=_after_fork)
