"""A session's links:

which are up, what happens when one comes or dies, and how threads wait for all of them.
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

CONTROL = 1 << 16  # the number of the connection that a session began with
CLOSED = "closed by the peer"


class Links(ABC):
    """The part of a session that knows its connections; `lock` is held in every method.

    `rejoin` (the connecting side's) is called with a link's number when it should be connected
    again.
    """

    def __init__(
        self, incoming: Incoming, outgoing: Outgoing, rejoin: Callable[[Any, int], None] | None
    ) -> None:
        self.lock = threading.RLock()
        self.incoming, self.outgoing = incoming, outgoing
        self.links: dict[int, Link] = {}
        self.control: Link | None = None
        self.early_left = 0  # bytes that may go over it as long as there has been no link
        self.gone: dict[int, Link] = {}  # the last connection of each link that is down
        self.up: list[Link] = []
        self.counters: Counter[str] = Counter()
        self.broken: ParallelError | ConnectionError | None = None
        self.closing = False  # the program has closed it: nobody reads any more
        self.abandoned = False  # it did not, and has forgotten it
        self.closed = False
        self.deaf = False
        self._leader = False  # one thread waits for events ...
        self._followers = 0  # ... and others for it
        self._changed = threading.Condition(self.lock)
        self._waits_for_room = False
        self.pause_s: float | None = (
            None  # until a busy link that is worth waiting for may have room
        )
        self.nudge_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self.events, self.writable = select.epoll(), select.epoll()
        except OSError:
            os.close(self.nudge_fd)
            raise
        self.events.register(self.nudge_fd, select.EPOLLIN)
        self.watched = (
            False  # by select or an event loop: the nudge stays set while there is something to do
        )
        self.heeds_data = (
            True  # what comes is something to do; not for an event loop that has paused reading
        )
        self._starved = False  # a sender that does not wait found no room ...
        self._busy = False  # ... since links take no more
        self.on_closed: Callable[[Any], None] | None = None
        self.on_link: Callable[[Any, Link, bool], None] | None = None  # joined (True) or gone
        self._rejoin = rejoin
        self._by_fd: dict[int, Link] = {}
        self._making: dict[
            int, Callable[[float], None]
        ] = {}  # what becomes a link goes on when its socket can
        self._primary: Link | None = None
        self._fin_link: Link | None = None
        self._dark_s: float | None = time.monotonic()  # since when no link is up

    # ---- what the session does

    @abstractmethod
    def send_again(self) -> None:
        """Chunks of links that failed, over those that are there."""

    @abstractmethod
    def send_fin(self) -> None:
        """Tell the peer the stream's length."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Both directions are complete and acknowledged."""

    @abstractmethod
    def _read(self, link: Link) -> None: ...

    @abstractmethod
    def _flush(self, link: Link) -> None: ...

    def _want_flush(self, link: Link) -> None:
        self.events.modify(link.fd, select.EPOLLIN | select.EPOLLOUT)

    # ---- links

    def add(self, link: Link) -> None:
        """A link that has joined; one with its number makes way.

        What waits to go again may go over it.
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
            if self.gone.pop(link.number, None) is not None or old is not None:
                self.counters["links_rejoined"] += 1
            self.links[link.number] = link
            self.up.append(link)
            self.writable.register(link.fd, select.EPOLLOUT)
            self._dark_s = None
            self.early_left = 0
            if self.on_link:
                self.on_link(self, link, True)
        self._by_fd[link.fd] = link
        self.events.register(link.fd, select.EPOLLIN)
        self.send_again()
        if self.outgoing.end is not None and not self.outgoing.done and self._fin_link is None:
            self.send_fin()
        if (
            link.is_tls and link.pending()
        ):  # what came together with the greeting, and no epoll shows
            self._read(link)
        self.nudge()

    def lose(self, link: Link, why: str) -> None:
        """A link is gone: what it had not delivered goes over the others."""
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
        self.gone[link.number] = link
        self.counters["links_lost"] += 1
        if not self.finished and not self.closed:
            self.send_again()
            left = self.incoming.end is not None and why == CLOSED
            if self._rejoin and not self.broken and not left:
                self._rejoin(self, link.number)
        self.nudge()

    def suspect(self, link: Link, why: str) -> None:
        """Nothing is acknowledged:

        what waits on it goes over the others, and it is not chosen until it recovers.
        """
        link.state, link.why = SUSPECT, why
        self.counters["links_suspected"] += 1
        self._not_up(link)
        self.send_again()
        if self._rejoin:
            self._rejoin(self, link.number)
        self.nudge()

    def recover(self, link: Link) -> None:
        """A suspect link's bytes are acknowledged again."""
        link.state, link.why = UP, None
        self.up.append(link)
        self.writable.register(link.fd, select.EPOLLOUT)
        self._dark_s = None
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
            self._dark_s = time.monotonic()

    def _forget(self, link: Link) -> None:
        self._by_fd.pop(link.fd, None)
        with contextlib.suppress(OSError):
            self.events.unregister(link.fd)

    def watch(self, fd: int, events: int, then: Callable[[float], None]) -> None:
        """Call `then` with the time when what becomes a link has one of these events."""
        if fd in self._making:
            self.events.modify(fd, events)
        else:
            self.events.register(fd, events)
        self._making[fd] = then

    def unwatch(self, fd: int) -> None:
        """It is a link or has failed; its descriptor may be closed."""
        if self._making.pop(fd, None) is not None:
            with contextlib.suppress(OSError, ValueError):  # ValueError: so is what watches it
                self.events.unregister(fd)

    # ---- waiting

    def handle(self, events: list[tuple[int, int]]) -> None:
        """Events of `self.events`."""
        for fd, event in events:
            link = self._by_fd.get(fd)
            if link is None:
                if fd in self._making:
                    self._making[fd](time.monotonic())
                elif fd == self.nudge_fd and not (self.watched and self._something()):
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
        """Until something happened, or for `timeout_s`; with `room` also until a link takes more.
        Gives up the lock.

        One thread waits for the sockets and does what they ask for; others wait until it has.
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
            self.came(events)
            return
        if self.closed and not self._leader and not self._followers:
            self.release()

    def came(self, events: list[tuple[int, int]]) -> None:
        """What a thread has waited for: it does what is to be done, for the others too."""
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
        """Wake whoever waits: something has changed."""
        if self._leader or (self.watched and self._something()):
            os.eventfd_write(self.nudge_fd, 1)
        if self._followers:
            self._changed.notify_all()

    def starve(self) -> None:
        """A sender that does not wait found no room:

        whoever watches is woken as soon as there is some.
        """
        self._starved = True
        if self.outgoing.room > 0 or self.outgoing.has_again:
            for link in self.up:
                if not link.load.writable:
                    self._busy = True
                    self._want_flush(link)

    def _something(self) -> bool:
        """Whether a program that watches has something to do."""
        incoming, outgoing = self.incoming, self.outgoing
        if self.broken or (self.heeds_data and (incoming.ready or incoming.ended)):
            return True
        return bool(
            self._starved
            and not self._busy
            and self.up
            and (outgoing.room > 0 or outgoing.has_again)
        )

    def release(self) -> None:
        """Close what is waited on; by the last that waits."""
        if self.nudge_fd >= 0:
            self.events.close()
            self.writable.close()
            os.close(self.nudge_fd)
            self.nudge_fd = -1

    def left_to_parent(self) -> None:
        """This is a child process: the connection is its parent's."""
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
