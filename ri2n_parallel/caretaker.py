"""One thread for all sessions of a process: links that died while nobody called, acknowledgements,
closing, rejoining.

It exists while there is something to care for. A child process has no part in what was its parent's
at the fork.
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
log = logging.getLogger("ri2n.parallel")


class Cared(Protocol):
    """A session, or a link that is being connected."""

    lock: threading.RLock

    def care(self, now_s: float) -> None:
        """Do what is due; the lock is held."""


class Owned(Protocol):
    """What belongs to the process that made it."""

    def left_to_parent(self) -> None:
        """This is a child: let go of it without a trace.

        No other thread is there, and any lock may be held.
        """


_owned: weakref.WeakSet[Owned] = weakref.WeakSet()
_lock = threading.Lock()
_wake = threading.Condition(_lock)
_cared: dict[int, Cared] = {}
_thread: threading.Thread | None = None


def add(one: Cared) -> None:
    """Care for it from now on."""
    global _thread
    with _lock:
        _cared[id(one)] = one
        if _thread is None:
            _thread = threading.Thread(target=_run, name="ri2n-parallel", daemon=True)
            _thread.start()


def remove(one: Cared) -> None:
    """Care no more; the thread ends with the last one."""
    with _lock:
        _cared.pop(id(one), None)
        if not _cared:
            _wake.notify_all()


def own(one: Owned) -> None:
    """Call its `left_to_parent` in child processes."""
    _owned.add(one)


def count() -> int:
    """How many there are."""
    with _lock:
        return len(_cared)


def _run() -> None:
    global _thread
    while True:
        with _lock:
            if not _cared:
                _thread = None
                return
            _wake.wait(CARE_S)
            all_ = list(_cared.values())
        for one in all_:
            if not one.lock.acquire(blocking=False):
                continue  # whoever has it does what is due, or it is done the next time
            try:
                one.care(time.monotonic())
            except Exception:  # one that cannot be cared for must not end the others
                log.exception("a session could not be cared for")
                remove(one)
            finally:
                one.lock.release()


def _after_fork() -> None:
    global _lock, _wake, _thread
    _lock = threading.Lock()
    _wake = threading.Condition(_lock)
    _thread = None
    _cared.clear()
    for one in list(_owned):
        one.left_to_parent()
    _owned.clear()


os.register_at_fork(after_in_child=_after_fork)
