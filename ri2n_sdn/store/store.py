# SPDX-License-Identifier: Apache-2.0
"""`Store`: the cluster's memory, read and written by any thread, with one thread of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field

from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.errors import Ri2nError
from ri2n_sdn.store.idl import POLLIN, Poller, Transaction
from ri2n_sdn.store.link import Encoded, Link, RowKey, TlsFiles, encode
from ri2n_sdn.store.rows import Change, ClusterRow, State

__all__ = ["Store"]

_LOCK = "ri2n_controller"
"""The name of the lock that the active controller has."""

_LOG = logging.getLogger("ri2n.store")
_WRITE_S = 5.0
# The thread looks after itself at least this often.
_IDLE_MS = 500
# Who is not active asks for the lock this long after it is connected again: the lock belongs to one
# server, and the active controller has to come first at another one. On quiet machines the
# active one is at most half a second later than a standby; the rest is for a busy one.
_COURTESY_S = 4.0
# A transaction that was refused is tried again after this time.
_AGAIN_S = 0.02
# A server that leaves a transaction open for this time does not answer.
_SLOW_S = 2.0
_MAX_QUEUED = 10_000
_MAX_BATCH = 1000


@dataclass(frozen=True)
class _Write:
    changes: tuple[Encoded, ...]
    done: Future[None]
    until_s: float


@dataclass(frozen=True)
class _Flight:
    """A transaction that the server has not answered. `claim` is the row of a take-over."""

    txn: object
    writes: tuple[_Write, ...]
    claim: ClusterRow | None = None
    since_s: float = field(default_factory=time.monotonic)


class Store:
    """The rows of the store's servers, and who may write them.

    Of all that compete, the one with the lock is active. It writes the next epoch first, and each
    of its writes is refused as soon as there is a later epoch. A connection that is lost does not
    make it inactive: only another's take-over does (`deposed`).

    `run` is this run of the controller, `epoch` the number of this one's take-over (0 before it).
    """

    def __init__(
        self,
        targets: Sequence[str],
        *,
        name: str,
        tls: TlsFiles | None = None,
        compete: bool = True,
    ) -> None:
        """Start the store's thread, which connects by itself, and again whenever that is needed.

        `targets` are as `check_targets` returns them; of a RAFT cluster, the leader is followed.
        `name` is this controller for people. Without `compete` it only reads.
        """
        self._where = f"the store at {', '.join(targets)}"
        self.run = f"{os.getpid()}-{time.time_ns():x}"
        self._name = name
        self._compete = compete
        self._link = Link(targets, tls)
        self._state = self._link.state
        self._lock = threading.Lock()
        self._queue: deque[_Write] = deque()
        self._flight: _Flight | None = None
        self._watchers: list[Callable[[State], None]] = []
        # So many of the next writes have a transaction of their own.
        self._single = 0
        self.epoch = 0
        self.deposed = False
        self._has_read = threading.Event()
        self._is_active = threading.Event()
        self._ready = False
        self._problem: str | None = "it has not answered yet"
        # When a new connection may ask for the lock, and when a transaction may be tried
        # again that was refused.
        self._courtesy_s = self._again_s = 0.0
        self._stop = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._loop, name="store", daemon=True)
        self._thread.start()

    # ---- what is known

    @property
    def active(self) -> bool:
        """Whether this one has taken over, and no other one since, as far as is known."""
        return self._is_active.is_set()

    @property
    def problem(self) -> str | None:
        """Why the servers cannot be asked, in one line; None when they can."""
        problem = self._problem
        return None if problem is None else f"{self._where}: {problem}"

    def state(self) -> State:
        """All rows, as they were last read: empty at first, and old while the servers are away."""
        return self._state

    def watch(self, callback: Callable[[State], None]) -> None:
        """Call `callback` with every new state, in the store's thread: it must be quick."""
        with self._lock:
            self._watchers.append(callback)

    def wait_active(self, timeout_s: float) -> bool:
        """Wait until this one is active, and return whether it is."""
        return self._is_active.wait(timeout_s)

    # ---- writing

    def write(self, *changes: Change, timeout_s: float = _WRITE_S) -> None:
        """Make all of these changes or none, and return when that has been acknowledged.

        It is then on the disk, of most servers where there are several. Raises BadInput when a row
        cannot be stored. Raises NotAvailable when this one is not active, or when there is no
        answer in time. In the latter case the changes may still be made.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("a watcher must not write")
        if any(isinstance(change.row, ClusterRow) for change in changes):
            raise refusal("row_of_store")
        encoded = tuple(encode(change) for change in changes)
        write = _Write(encoded, Future(), time.monotonic() + timeout_s)
        with self._lock:
            if self._stop:
                raise refusal("store_closed")
            if len(self._queue) >= _MAX_QUEUED:
                raise refusal("store_queue_full", store=self._where)
            self._queue.append(write)
        self._wake()
        try:
            write.done.result(timeout_s + 1.0)
        except FutureTimeoutError:
            raise self._unanswered() from None

    def close(self) -> None:
        """End the connection. Another one may take over at once. To call it twice is no error."""
        with self._lock:
            self._stop = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()

    def _unanswered(self) -> Ri2nError:
        if self.problem is not None:
            return refusal("store_away", problem=self.problem)
        return refusal("store_not_acknowledged", store=self._where)

    def _wake(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            os.write(self._wake_write, b"x")

    # ---- the thread

    def _loop(self) -> None:
        failures = 0
        try:
            while not self._stop:
                try:
                    self._turn()
                    failures = 0
                    self._block()
                except Exception:
                    # One that fails for good shows as a store that does not answer.
                    failures += 1
                    if failures <= 3:
                        _LOG.exception("the store's thread failed; it goes on")
                    self._problem = "its answers cannot be used; the controller's log says more"
                    time.sleep(min(1.0, 0.1 * failures))
        finally:
            self._link.close()
            with self._lock:
                left = [*self._queue, *(self._flight.writes if self._flight else ())]
                self._queue.clear()
            for write in left:
                write.done.set_exception(refusal("store_closed"))
            os.close(self._wake_read)
            with self._lock:
                os.close(self._wake_write)
                self._wake_write = -1

    def _turn(self) -> None:
        link = self._link
        changed = link.run()
        ready, now_s = link.ready, time.monotonic()
        if ready and not self._ready and self._has_read.is_set():
            self._courtesy_s = now_s + _COURTESY_S
        self._ready = ready
        if changed:
            self._state = link.state
        self._problem = (
            None
            if ready and (self._flight is None or now_s - self._flight.since_s < _SLOW_S)
            else "it has no database ri2n of this version: see docs/operations.md"
            if link.has_odd_server
            else "it does not answer"
        )
        self._judge(now_s)
        self._land()
        if ready:
            self._has_read.set()
        self._expire(now_s)
        if ready and self._flight is None and now_s >= self._again_s:
            self._take_off()
        if changed:
            for watcher in tuple(self._watchers):
                watcher(self._state)

    def _judge(self, now_s: float) -> None:
        """Find out whether another one has taken over, and whether to ask for the lock."""
        cluster = self._state.cluster
        if self.epoch and cluster is not None and cluster.epoch > self.epoch:
            if not self.deposed:
                _LOG.warning("%s has taken over", cluster.active)
            self.deposed = True
            self._is_active.clear()
        if self._flight is None:
            wants = self._compete and not self.deposed
            polite = self.active or (self._ready and now_s >= self._courtesy_s)
            self._link.ask_for_lock(_LOCK if wants and polite else None)

    def _land(self) -> None:
        """Take in the server's answer to the transaction that is under way."""
        flight = self._flight
        if flight is None:
            return
        status = flight.txn.commit()  # type: ignore[attr-defined]
        if status == Transaction.INCOMPLETE:
            return
        self._flight = None
        done = status in (Transaction.SUCCESS, Transaction.UNCHANGED)
        if not done:
            self._again_s = time.monotonic() + _AGAIN_S
        if flight.claim is not None:
            if done:
                self.epoch = flight.claim.epoch
                self._is_active.set()
                _LOG.debug("in charge of the store, epoch %d", self.epoch)
            elif status == Transaction.ERROR:
                error = flight.txn.get_error()  # type: ignore[attr-defined]
                _LOG.warning("the store refuses a take-over: %s", error)
        elif done:
            for write in flight.writes:
                write.done.set_result(None)
        elif status == Transaction.ERROR and len(flight.writes) > 1:
            # One of several writes is wrong: each is made by itself. The next turns find it.
            self._single = len(flight.writes)
            self._requeue(flight.writes)
        elif status == Transaction.ERROR:
            error = flight.txn.get_error()  # type: ignore[attr-defined]
            for write in flight.writes:
                refused = refusal("store_refuses", store=self._where, why=str(error))
                write.done.set_exception(refused)
        else:
            self._requeue(flight.writes)

    def _requeue(self, writes: Iterable[_Write]) -> None:
        with self._lock:
            self._queue.extendleft(reversed(tuple(writes)))

    def _expire(self, now_s: float) -> None:
        """Refuse the writes that can no longer be made."""
        with self._lock:
            if self.deposed or not self._compete or (not self.active and self._link.lacks_lock):
                late, self._queue = list(self._queue), deque()
                reason = self._not_in_charge
            else:
                late = [write for write in self._queue if now_s >= write.until_s]
                for write in late:
                    self._queue.remove(write)
                reason = self._unanswered
        for write in late:
            write.done.set_exception(reason())

    def _not_in_charge(self) -> Ri2nError:
        cluster = self._state.cluster
        other = cluster.active if cluster is not None else "no controller"
        return refusal("not_in_charge", other=other)

    def _take_off(self) -> None:
        """Start the next transaction: a take-over, or what waits to be written."""
        link = self._link
        if not link.has_lock or self.deposed:
            return
        if not self.active:
            cluster = self._state.cluster or ClusterRow()
            # A store that was made anew must not begin with an epoch that switches have seen.
            epoch = max(cluster.epoch + 1, int(time.time()))
            claim = ClusterRow(epoch, cluster.name, self._name, self.run, time.time())
            self._flight = _Flight(link.begin_claim(claim), (), claim)
            return
        with self._lock:
            count = 1 if self._single else min(len(self._queue), _MAX_BATCH)
            writes = tuple(self._queue.popleft() for _ in range(min(count, len(self._queue))))
        if not writes:
            self._single = 0
            return
        self._single = max(0, self._single - 1)
        changes: dict[RowKey, Encoded] = {}
        for write in writes:
            changes.update((change.key, change) for change in write.changes)
        txn = link.begin(changes.values(), self.epoch)
        if txn is None:
            for write in writes:
                write.done.set_result(None)
            self._wake()
        else:
            self._flight = _Flight(txn, writes)

    def _block(self) -> None:
        """Wait until there is something to do."""
        poller = Poller()
        self._link.wait(poller)
        poller.fd_wait(self._wake_read, POLLIN)
        soon_ms = int(1000 * (self._again_s - time.monotonic())) + 1
        poller.timer_wait(soon_ms if 0 < soon_ms < _IDLE_MS else _IDLE_MS)
        poller.block()
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 4096):
                pass
