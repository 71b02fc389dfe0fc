# SPDX-License-Identifier: Apache-2.0
"""The links of a session: which are up, what happens when one joins or dies, and waiting for them.

Threads wait for all links at once. The first one that waits is the leader: it waits in epoll and
does what the sockets ask for. The others follow it: they wait until it has done so.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

from ri2n_parallel.errors import ParallelError
from ri2n_parallel.link import DOWN, SUSPECT, UP, Link
from ri2n_parallel.stream import Incoming, Outgoing

__all__ = ["CLOSED", "CONTROL", "Links"]

CONTROL = 1 << 16
"""The link number of the control connection, with which a session begins."""
CLOSED = "closed by the peer"
"""The reason why a link is down that the peer has closed."""


class Links(ABC):
    """The part of a session that has its connections; `lock` is held in every method.

    On the connecting side, `rejoin` is called with the session and the number of a link that has to
    be connected again.
    """

    def __init__(
        self, incoming: Incoming, outgoing: Outgoing, rejoin: Callable[[Any, int], None] | None
    ) -> None:
        self.lock = threading.RLock()
        self.incoming, self.outgoing = incoming, outgoing
        self.links: dict[int, Link] = {}
        self.control: Link | None = None
        # Bytes that may still go over the control connection, as long as there has been no link.
        self.early_left = 0
        # The last connection of each link that is down, by number.
        self.down: dict[int, Link] = {}
        self.up: list[Link] = []
        self.counters: Counter[str] = Counter()
        # The error with which the session has ended.
        self.broken: ParallelError | ConnectionError | None = None
        # The program has closed the connection: nobody reads any more.
        self.closing = False
        # The program has dropped the connection without closing it.
        self.abandoned = False
        # Everything has been freed.
        self.closed = False
        # Whether what is received is dropped.
        self.discards_input = False
        # Whether a thread waits for events, and how many wait for that thread.
        self._leader = False
        self._followers = 0
        self._changed = threading.Condition(self.lock)
        self._waits_for_room = False
        # How long a sender waits for a busy link; None: until a link takes more.
        self.pause_s: float | None = None
        # Readable when the leader has to look again, or the program that watches has work.
        self.nudge_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self.events, self.writable = select.epoll(), select.epoll()
        except OSError:
            os.close(self.nudge_fd)
            raise
        self.events.register(self.nudge_fd, select.EPOLLIN)
        # Whether `select` or an event loop watches the descriptor. Then `nudge_fd` stays readable
        # while the program has something to do.
        self.watched = False
        # Whether received data counts as something to do; not in an event loop that has paused
        # reading.
        self.wakes_for_data = True
        # Whether a sender that does not wait found no room, and whether that was since links take
        # no more.
        self._starved = False
        self._busy = False
        self.on_closed: Callable[[Any], None] | None = None
        # Called with the session, a link, and whether it has joined (True) or left.
        self.on_link: Callable[[Any, Link, bool], None] | None = None
        self._rejoin = rejoin
        self._by_fd: dict[int, Link] = {}
        # By descriptor: how a connection that is not a link yet goes on when its socket is ready.
        self._connecting: dict[int, Callable[[float], None]] = {}
        # The link that was used last in either direction. Short messages and acknowledgements go
        # over it.
        self._primary: Link | None = None
        # The link over which the stream's length was sent.
        self._fin_link: Link | None = None
        # Since when no link is up; None while there is one.
        self._no_link_since_s: float | None = time.monotonic()

    # ---- what the engine does

    @abstractmethod
    def send_again(self) -> None:
        """Send the chunks of links that failed over the links that are up."""

    @abstractmethod
    def send_fin(self) -> None:
        """Tell the peer the stream's length."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether both directions are complete and acknowledged."""

    @abstractmethod
    def _read(self, link: Link) -> None: ...

    @abstractmethod
    def _flush(self, link: Link) -> None: ...

    def _want_flush(self, link: Link) -> None:
        self.events.modify(link.fd, select.EPOLLIN | select.EPOLLOUT)

    # ---- links

    def add(self, link: Link) -> None:
        """Add a link, in place of one with the same number.

        What has to be sent again may go over it.
        """
        if self.closed or self.broken:
            link.close("the session is over")
            return
        if link.number == CONTROL:
            self.control = link
        else:
            old = self.links.pop(link.number, None)
            if old is not None:
                self._remove(old, "replaced")
            if self.down.pop(link.number, None) is not None or old is not None:
                self.counters["links_rejoined"] += 1
            self.links[link.number] = link
            self.up.append(link)
            self.writable.register(link.fd, select.EPOLLOUT)
            self._no_link_since_s = None
            self.early_left = 0
            if self.on_link:
                self.on_link(self, link, True)
        self._by_fd[link.fd] = link
        self.events.register(link.fd, select.EPOLLIN)
        self.send_again()
        if self.outgoing.end is not None and not self.outgoing.done and self._fin_link is None:
            self.send_fin()
        # TLS may have read more than the greeting from its socket, which epoll does not see.
        if link.is_tls and link.pending():
            self._read(link)
        self.nudge()

    def lose(self, link: Link, why: str) -> None:
        """Close a link that has failed; what it did not deliver goes over the others."""
        if link.state == DOWN:
            return
        if link is self.control:
            self._forget(link)
            link.close(why)
            self.control, self.early_left = None, 0
            self.outgoing.lost(CONTROL)
            self.send_again()
            return
        self._remove(link, why)
        self.links.pop(link.number, None)
        self.down[link.number] = link
        self.counters["links_lost"] += 1
        if not self.finished and not self.closed:
            self.send_again()
            peer_has_left = self.incoming.end is not None and why == CLOSED
            if self._rejoin and not self.broken and not peer_has_left:
                self._rejoin(self, link.number)
        self.nudge()

    def suspect(self, link: Link, why: str) -> None:
        """Stop using a link on which nothing is acknowledged, until it recovers.

        What waits on it goes over the others, and the connecting side makes a new connection that
        may take its place.
        """
        link.state, link.why = SUSPECT, why
        self.counters["links_suspected"] += 1
        self._not_up(link)
        self.send_again()
        if self._rejoin:
            self._rejoin(self, link.number)
        self.nudge()

    def recover(self, link: Link) -> None:
        """Use a suspect link again, since its bytes are acknowledged again."""
        link.state, link.why = UP, None
        self.up.append(link)
        self.writable.register(link.fd, select.EPOLLOUT)
        self._no_link_since_s = None
        self.counters["links_recovered"] += 1
        self.send_again()
        self.nudge()

    def _remove(self, link: Link, why: str) -> None:
        self._forget(link)
        if link.state == UP:
            self._not_up(link)
        link.close(why)
        if self.on_link:
            self.on_link(self, link, False)

    def _not_up(self, link: Link) -> None:
        """Choose this link no more, and have its chunks sent again."""
        self.up.remove(link)
        with contextlib.suppress(OSError):
            self.writable.unregister(link.fd)
        if self._primary is link:
            self._primary = None
        if self._fin_link is link:
            self._fin_link = None
        self.outgoing.lost(link.number)
        self._busy = False
        if not self.up:
            self._no_link_since_s = time.monotonic()

    def _forget(self, link: Link) -> None:
        """Wait for this link's socket no more."""
        self._by_fd.pop(link.fd, None)
        with contextlib.suppress(OSError):
            self.events.unregister(link.fd)

    def watch(self, fd: int, events: int, then: Callable[[float], None]) -> None:
        """Call `then` with the time when a connection that is being made has one of these events.

        `fd` is its descriptor. A second call for it changes the events.
        """
        if fd in self._connecting:
            self.events.modify(fd, events)
        else:
            self.events.register(fd, events)
        self._connecting[fd] = then

    def unwatch(self, fd: int) -> None:
        """End `watch`: the connection is a link or has failed; its socket may be closed."""
        if self._connecting.pop(fd, None) is not None:
            # ValueError: the epoll object is closed too.
            with contextlib.suppress(OSError, ValueError):
                self.events.unregister(fd)

    # ---- waiting

    def handle(self, events: list[tuple[int, int]]) -> None:
        """Do what these events of `self.events` ask for."""
        for fd, event in events:
            link = self._by_fd.get(fd)
            if link is None:
                if fd in self._connecting:
                    self._connecting[fd](time.monotonic())
                elif fd == self.nudge_fd and not (self.watched and self._has_work()):
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(fd)
                continue
            if event & select.EPOLLOUT:
                self._busy = False
                self._flush(link)
            if event & ~select.EPOLLOUT and link.state != DOWN:
                self._read(link)
        if self.watched:
            self.nudge()

    def wait(self, timeout_s: float | None, *, room: bool = False) -> None:
        """Wait until something has happened, or for `timeout_s`; the lock is free meanwhile.

        With `room` it also ends when a link takes more, unless `pause_s` says how long to wait. One
        thread waits for the sockets and does what they ask for; others wait until it has.
        """
        if self._leader:
            if room and not self._waits_for_room:
                os.eventfd_write(self.nudge_fd, 1)
            self._followers += 1
            try:
                self._changed.wait(timeout_s)
            finally:
                self._followers -= 1
        else:
            self._leader = True
            if room and self.pause_s is None:
                self._waits_for_room = True
                self.events.register(self.writable.fileno(), select.EPOLLIN)
            self.lock.release()
            events: list[tuple[int, int]] = []
            try:
                events = self.events.poll(timeout_s)
            finally:
                self.lock.acquire()
                self._leader = False
                if self._waits_for_room:
                    self._waits_for_room = False
                    self.events.unregister(self.writable.fileno())
            self.handle_polled(events)
            return
        if self.closed and not self._leader and not self._followers:
            self.release()

    def handle_polled(self, events: list[tuple[int, int]]) -> None:
        """Do what the events of the leader's wait ask for, and wake the threads that follow it."""
        if not self.closed:
            self.handle(events)
        if self._followers:
            self._changed.notify_all()
        elif self.closed:
            self.release()

    def poll(self) -> None:
        """Do what the sockets ask for now, without waiting."""
        if not self._leader:
            self.handle(self.events.poll(0))

    def nudge(self) -> None:
        """Wake all threads and event loops that wait: something has changed."""
        if self._leader or (self.watched and self._has_work()):
            os.eventfd_write(self.nudge_fd, 1)
        if self._followers:
            self._changed.notify_all()

    def starve(self) -> None:
        """Note that a sender that does not wait found no room.

        The event loop that watches is woken as soon as there is some.
        """
        self._starved = True
        if self.outgoing.room > 0 or self.outgoing.has_again:
            for link in self.up:
                if not link.load.writable:
                    self._busy = True
                    self._want_flush(link)

    def _has_work(self) -> bool:
        """Whether the program that watches the descriptor has something to do."""
        incoming, outgoing = self.incoming, self.outgoing
        if self.broken or (self.wakes_for_data and (incoming.ready or incoming.ended)):
            return True
        return bool(
            self._starved
            and not self._busy
            and self.up
            and (outgoing.room > 0 or outgoing.has_again)
        )

    def release(self) -> None:
        """Close the descriptors that threads wait on; the last thread that waited calls this."""
        if self.nudge_fd >= 0:
            self.events.close()
            self.writable.close()
            os.close(self.nudge_fd)
            self.nudge_fd = -1

    def left_to_parent(self) -> None:
        """Let go of the connection in a child process: it belongs to the parent."""
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._followers, self._leader = 0, False
        self.broken = ParallelError(
            "the connection belongs to the process that made it, this is a child"
        )
        for link in [*self.links.values(), *filter(None, [self.control])]:
            link.close(str(self.broken))
        self.links.clear()
        self.up.clear()
        self.control = None
        self.closed = True
        self.release()
