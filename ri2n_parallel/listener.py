# SPDX-License-Identifier: Apache-2.0
"""The listening side: one thread answers all greetings, so that no slow client holds up another.

The server names the addresses of a session's data connections in its answer (loads.py).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from ri2n_parallel import caretaker
from ri2n_parallel.connect import MAX_PARALLELISM, WINDOW_BYTES
from ri2n_parallel.connection import ParallelSocket
from ri2n_parallel.crowds import Crowds, crowd_of
from ri2n_parallel.errors import BadInput, ProtocolError
from ri2n_parallel.frames import (
    BAD_GREETING,
    CHALLENGE,
    EARLY,
    EARLY_BYTES,
    FULL,
    JOIN,
    MAX_CHUNK,
    NO_TOKEN,
    OK,
    OTHER_VERSION,
    SESSION_BYTES,
    TOKEN_WANTED,
    TOKEN_WRONG,
    UNKNOWN_SESSION,
    VERSION,
    Endpoint,
    Greeting,
    Reply,
)
from ri2n_parallel.interfaces import own_addresses
from ri2n_parallel.link import Link, Stream, tune
from ri2n_parallel.links import CONTROL
from ri2n_parallel.listening import WILDCARDS, listen_at
from ri2n_parallel.loads import AddressLoads
from ri2n_parallel.placement import RULES
from ri2n_parallel.proof import (
    NONCE_BYTES,
    key_of,
    proof_of_answer,
    proof_of_server,
    session_key,
)
from ri2n_parallel.schedule import FIRST_BYTES
from ri2n_parallel.session import Session
from ri2n_parallel.waiting import Pending

if TYPE_CHECKING:
    from typing import Self  # of Python 3.11

__all__ = ["BACKLOG", "ParallelListener", "create_listener"]

MAX_PENDING, MAX_PENDING_OF_ADDRESS = 1024, 256
"""Connections that have not said who they are yet: of all clients, and of one address."""
MAX_SESSIONS = 4096
MAX_ACCEPTS = 64
"""Connections that are accepted in a row, before the pending ones have their turn."""
BACKLOG = 512
"""Sessions that wait for `accept`: many clients may connect at once."""
TICK_S = 0.25
ACCEPT_PAUSE_S = 0.2
"""How long no connection is accepted after descriptors or memory have run out.

Without the pause the thread would spin: a connection that cannot be accepted stays readable.
"""
ZERO_COUNTERS = dict.fromkeys(
    (
        "sessions",
        "links",
        "greetings_refused",
        "greetings_failed",
        "greetings_timed_out",
        "pending_dropped",
        "tokens_missing",
        "tokens_wrong",
    ),
    0,
)
REFUSAL_COUNTERS = {TOKEN_WANTED: "tokens_missing", TOKEN_WRONG: "tokens_wrong"}
"""Every other status counts as `greetings_refused`."""
log = logging.getLogger("ri2n.parallel")


def create_listener(
    address: tuple[str, int],
    *,
    addresses: Sequence[str] | None = None,
    placement: str = "least_connections",
    weights: Mapping[str, float] | None = None,
    token: str | bytes | None = None,
    ssl_context: ssl.SSLContext | None = None,
    window_bytes: int = WINDOW_BYTES,
    handshake_timeout_s: float = 5.0,
    backlog: int = BACKLOG,
    link_timeout_s: float = 60.0,
) -> ParallelListener:
    """Listen for parallel connections.

    `addresses` are the own addresses that data connections may use. By default these are all
    addresses of this host, or, for a client that came to a loopback address, that one alone.
    `placement` is the name of a rule of placement.py; `weights` (by address) are for the rule
    `weights`. With a `token` both ends prove on every connection that they know it. Before a client
    has done so, the listener takes nothing else from it, and the program does not hear of it.

    Times are in seconds. A client has `handshake_timeout_s` for its greeting and its proof, and as
    long again for its first link; a session that has lost all links ends after `link_timeout_s`.
    `window_bytes` bounds what a session holds that the program has not read yet. At most `backlog`
    sessions wait for `accept`.

    Errors: BadInput for a wrong argument, OSError when the port is taken.
    """
    key = key_of(token)
    if placement not in RULES:
        raise BadInput(f"placement: {placement} is none of {', '.join(RULES)}")
    for weighted, weight in (weights or {}).items():
        if addresses is None or weighted not in addresses or weight < 0:
            raise BadInput(
                f"weights: {weighted}: needs to be one of the addresses, with a weight of 0 or more"
            )
    return ParallelListener(
        listen_at(address, addresses, backlog),
        addresses=addresses,
        placement=placement,
        weights=weights,
        key=key,
        ssl_context=ssl_context,
        window_bytes=window_bytes,
        handshake_timeout_s=handshake_timeout_s,
        backlog=backlog,
        link_timeout_s=link_timeout_s,
    )


class _Entry:
    """A session that the listener knows, until it is closed."""

    def __init__(
        self, session: Session, key: bytes | None, reserved: list[str], deadline_s: float
    ) -> None:
        self.session, self.deadline_s = session, deadline_s
        # What its links have to prove; None when clients need no token.
        self.key = key
        # An address for each data connection that was reserved and has not come yet.
        self.reserved = reserved
        # Whether `accept` returns it, or has done so.
        self.offered = False
        # Whether a first link has joined it.
        self.joined = False


class ParallelListener:
    """Accepts parallel connections until it is closed; `create_listener` makes it.

    The thread of the listener does all the work on sockets. `_lock` guards what other threads use
    too: counters, loads and entries.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        *,
        addresses: Sequence[str] | None,
        placement: str,
        weights: Mapping[str, float] | None,
        key: bytes | None,
        ssl_context: ssl.SSLContext | None,
        window_bytes: int,
        handshake_timeout_s: float,
        backlog: int,
        link_timeout_s: float,
    ) -> None:
        self._sockets = {listening.fileno(): listening for listening in sockets}
        self._addresses = list(addresses) if addresses else None
        self._ssl_context, self._key = ssl_context, key
        self._window_bytes, self._timeout_s = window_bytes, handshake_timeout_s
        self._link_timeout_s = link_timeout_s
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._loads = AddressLoads(placement, weights or {})
        self._entries: dict[bytes, _Entry] = {}
        self._pending: dict[int, Pending] = {}
        self._crowds: Crowds[int] = Crowds(MAX_PENDING, MAX_PENDING_OF_ADDRESS)
        self._ready: queue.Queue[Session | None] = queue.Queue(backlog)
        self._ready_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._stop_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        self.address: tuple[str, int] = sockets[0].getsockname()[:2]
        self._poll = select.epoll()
        self._poll.register(self._stop_fd, select.EPOLLIN)
        for listening in sockets:
            self._poll.register(listening, select.EPOLLIN)
        self._paused_until_s: float | None = None
        caretaker.own(self)
        self._thread = threading.Thread(target=self._run, name="ri2n-listener", daemon=True)
        self._thread.start()

    # ---- for programs

    def accept(self, timeout_s: float | None = None) -> ParallelSocket:
        """The next connection, which has a link or first bytes of its client.

        Errors: TimeoutError after `timeout_s` (None: no time-out), BlockingIOError at once when
        that is 0, OSError once the listener is closed.
        """
        if self._closed:
            raise OSError(errno.EBADF, "the listener is closed")
        try:
            session = (
                self._ready.get(timeout=timeout_s) if timeout_s != 0 else self._ready.get_nowait()
            )
        except queue.Empty:
            if timeout_s == 0:
                raise BlockingIOError(errno.EAGAIN, "no connection waits") from None
            raise TimeoutError("no connection came") from None
        if session is None:
            self._ready.put(None)  # for other threads that wait
            raise OSError(errno.EBADF, "the listener is closed")
        os.eventfd_read(self._ready_fd)
        return ParallelSocket(session)

    def fileno(self) -> int:
        """A descriptor that is readable while `accept` would not wait."""
        return self._ready_fd if not self._closed else -1

    @property
    def counters(self) -> dict[str, int]:
        """What happened so far, by name: all of ZERO_COUNTERS and some more, `sessions_open`."""
        with self._lock:
            return {**ZERO_COUNTERS, **self._counters, "sessions_open": len(self._entries)}

    @property
    def connections(self) -> dict[str, int]:
        """Data connections by own address; those that a client is about to make count too."""
        with self._lock:
            return self._loads.connections

    def close(self) -> None:
        """Accept no more connections.

        Those that were accepted go on, but their links that die do not come back.
        """
        if self._closed:
            return
        self._closed = True
        os.eventfd_write(self._stop_fd, 1)
        self._thread.join()
        while True:
            try:
                session = self._ready.get_nowait()
            except queue.Empty:
                break
            if session is not None:
                _end(session, "the server has closed its listener")
        self._ready.put(None)
        os.close(self._ready_fd)
        os.close(self._stop_fd)

    def left_to_parent(self) -> None:
        """Let go of the listener in a child process: it belongs to the parent."""
        if self._closed:
            return
        self._lock = threading.Lock()
        self._closed = True
        self._stop_accepting()
        self._ready = queue.Queue()
        self._ready.put(None)
        os.close(self._ready_fd)
        os.close(self._stop_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._closed:
                for fd, _ in self._poll.poll(TICK_S):
                    if fd in self._sockets:
                        self._accept(self._sockets[fd])
                    elif (pending := self._pending.get(fd)) is not None:
                        self._go_on(fd, pending)
                self._tick(time.monotonic())
        except Exception:  # without this thread nothing is accepted: the log has to say so
            log.exception("the listener has failed")
        finally:
            self._stop_accepting()
            for entry in list(self._entries.values()):
                if not entry.offered:
                    _end(entry.session, "the server has closed its listener")

    def _stop_accepting(self) -> None:
        for listening in self._sockets.values():
            listening.close()
        for pending in self._pending.values():
            pending.stream.close()
        self._pending.clear()
        self._poll.close()

    def _accept(self, listening: socket.socket) -> None:
        """Accept the connections that wait at a socket; the oldest pending ones make room."""
        for _ in range(MAX_ACCEPTS):
            try:
                stream: Stream
                stream, remote = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._count("accept_failed")
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause_accepting(True)
                return
            stream.setblocking(False)
            crowd = crowd_of(remote[0])
            if (oldest := self._crowds.displaced_by(crowd)) is not None:
                self._drop(oldest, "pending_dropped")
            if self._ssl_context:
                try:
                    stream = self._ssl_context.wrap_socket(
                        stream, server_side=True, do_handshake_on_connect=False
                    )
                except OSError:
                    stream.close()
                    continue
            self._crowds.add(stream.fileno(), crowd)
            self._pending[stream.fileno()] = Pending(stream, time.monotonic() + self._timeout_s)
            self._poll.register(stream.fileno(), select.EPOLLIN)

    def _go_on(self, fd: int, pending: Pending) -> None:
        """Take what a pending connection has sent, up to its greeting and its proof."""
        try:
            if pending.shaking_hands and isinstance(pending.stream, ssl.SSLSocket):
                pending.stream.do_handshake()
                pending.shaking_hands = False
            complete, status = pending.hear(), OK
            if complete and pending.unproven:
                status = self._challenge(pending)
                if status == CHALLENGE:
                    complete, status = pending.hear(), OK
        except (BlockingIOError, ssl.SSLWantReadError):
            if pending.shaking_hands:
                self._poll.modify(fd, select.EPOLLIN)
            return
        except ssl.SSLWantWriteError:
            self._poll.modify(fd, select.EPOLLIN | select.EPOLLOUT)
            return
        except ProtocolError:
            complete, status = True, OTHER_VERSION if pending.data[4] != VERSION else BAD_GREETING
        except OSError:
            self._drop(fd, "greetings_failed")
            return
        if not complete:
            # A client that leaves after the challenge did not accept this end's proof.
            self._drop(fd, "tokens_wrong" if pending.challenge else "greetings_refused")
            return
        self._let_go(fd)
        if status == OK and not pending.is_proven():
            status = TOKEN_WRONG
        if status != OK:
            self._refuse(pending.stream, status)
            return
        try:
            self._greeted(pending)
        except OSError:  # the connection is gone
            pending.stream.close()
            self._count("greetings_failed")

    def _challenge(self, pending: Pending) -> int:
        """Prove that this end has the key, and ask the client for its proof.

        Returns CHALLENGE, or the status of the refusal when there is no key. OSError when the
        challenge cannot be sent.
        """
        greeting, name, key = pending.greeting, os.urandom(SESSION_BYTES), self._key
        if greeting is not None and greeting.kind == JOIN:
            entry = self._open_entry(greeting.session)
            if entry is None:
                return UNKNOWN_SESSION
            name, key = greeting.session, entry.key
        if key is None:
            return NO_TOKEN
        pending.challenged(
            Reply(CHALLENGE, session=name).pack() + os.urandom(NONCE_BYTES), key, name
        )
        answer = pending.challenge + proof_of_server(key, pending.said)
        try:
            sent_bytes = pending.stream.send(answer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            sent_bytes = 0
        if sent_bytes < len(answer):
            raise ConnectionAbortedError("a fresh connection has no room for an answer")
        return CHALLENGE

    def _open_entry(self, name: bytes) -> _Entry | None:
        """The session of this name; None when there is none, or none that can take a link."""
        entry = self._entries.get(name)
        return None if entry is None or entry.session.closed or entry.session.broken else entry

    def _greeted(self, pending: Pending) -> None:
        """Answer a connection whose greeting is complete and whose proof, if any, is right."""
        stream, greeting = pending.stream, pending.greeting
        assert greeting is not None
        if greeting.kind != JOIN:
            if self._key is not None and not pending.challenge:
                self._refuse(stream, TOKEN_WANTED)
            else:
                self._hello(pending, greeting)
            return
        entry = self._open_entry(greeting.session)
        if entry is None:
            self._refuse(stream, UNKNOWN_SESSION)
        elif entry.key is not None and not pending.challenge:
            self._refuse(stream, TOKEN_WANTED)
        elif greeting.link >= MAX_PARALLELISM:
            self._refuse(stream, BAD_GREETING)
        elif not entry.offered and self._ready.full():
            self._refuse(stream, FULL)
        else:
            tune(stream)
            link = Link(greeting.link, stream)
            link.send(Reply(OK).pack())
            address = stream.getsockname()[0]
            with self._lock:
                if address in entry.reserved:
                    entry.reserved.remove(address)
                    self._loads.release([address])  # from here on it counts as a link
            session = entry.session
            with session.lock:
                session.add(link)
            entry.joined = True
            if not entry.offered:
                self._offer(entry)

    def _offer(self, entry: _Entry) -> None:
        """Let `accept` return this session."""
        entry.offered = True
        # The descriptor is written first, since `accept` reads it after it has the session.
        os.eventfd_write(self._ready_fd, 1)
        self._ready.put(entry.session)

    def _hello(self, pending: Pending, greeting: Greeting) -> None:
        """Make a new session, or refuse it."""
        stream = pending.stream
        if not 1 <= greeting.parallelism <= MAX_PARALLELISM:
            self._refuse(stream, BAD_GREETING)
            return
        if len(self._entries) >= MAX_SESSIONS or self._ready.full():
            self._refuse(stream, FULL)
            return
        own_address, port = stream.getsockname()[:2]
        name, early = pending.name or os.urandom(SESSION_BYTES), greeting.kind == EARLY
        key = session_key(pending.key, pending.said) if pending.challenge else None
        window_bytes = max(self._window_bytes, EARLY_BYTES) if early else self._window_bytes
        session = Session(
            name,
            window_bytes=window_bytes,
            peer_window_bytes=greeting.window,
            max_chunk_bytes=min(MAX_CHUNK, greeting.max_chunk_bytes),
            link_timeout_s=self._link_timeout_s,
        )
        # The addresses are reserved after all that fails when there is no descriptor left.
        chosen = self._place(own_address, greeting.parallelism)
        entry = _Entry(session, key, chosen, time.monotonic() + self._timeout_s)
        session.on_link, session.on_closed = self._link_changed, self._session_closed
        with self._lock:
            self._entries[name] = entry
            self._counters["sessions"] += 1
        tune(stream)
        control = Link(CONTROL, stream)
        endpoints = tuple(Endpoint(address, port) for address in chosen)
        answer = Reply(OK, session.max_chunk_bytes, window_bytes, name, endpoints).pack()
        control.send(answer if key is None else answer + proof_of_answer(key, answer))
        with session.lock:
            session.add(control)
            if early:
                # More than these bytes of the answer waits for the links that were chosen.
                session.early_left = FIRST_BYTES
                self._offer(entry)

    def _place(self, own_address: str, count: int) -> list[str]:
        """The addresses of the next `count` connections, which are reserved for them.

        `own_address` is where the client's control connection came in.
        """
        addresses = self._addresses
        if addresses is None:
            version = 6 if ":" in own_address else 4
            is_loopback = own_address.startswith(("127.", "::1"))
            listens_everywhere = self.address[0] in WILDCARDS and not is_loopback
            addresses = (own_addresses(version) if listens_everywhere else []) or [own_address]
        with self._lock:
            links = [
                link
                for entry in self._entries.values()
                for link in list(entry.session.links.values())
            ]
            return self._loads.reserve(addresses, count, links)

    def _link_changed(self, session: Session, link: Link, joined: bool) -> None:
        with self._lock:
            if joined:
                self._loads.link_joined(link)
                self._counters["links"] += 1
            else:
                self._loads.link_left(link)

    def _session_closed(self, session: Session) -> None:
        with self._lock:
            entry = self._entries.pop(session.name, None)
            if entry is not None:
                self._release(entry)

    def _release(self, entry: _Entry) -> None:
        """Give up the connections that were reserved and have not come; the lock is held."""
        self._loads.release(entry.reserved)
        entry.reserved = []

    def _tick(self, now_s: float) -> None:
        """Do what is due: accept again, drop slow clients, end sessions that got no link."""
        if self._paused_until_s is not None and now_s >= self._paused_until_s:
            self._pause_accepting(False)
        for fd in [fd for fd, pending in self._pending.items() if now_s > pending.deadline_s]:
            self._drop(fd, "greetings_timed_out")
        for entry in list(self._entries.values()):
            if now_s <= entry.deadline_s:
                continue
            with self._lock:
                self._release(entry)
            if not entry.joined:
                self._count("sessions_without_links")
                _end(entry.session, "no data connection came")

    def _pause_accepting(self, pause: bool) -> None:
        """Accept no new connections for ACCEPT_PAUSE_S, or accept them again."""
        self._paused_until_s = time.monotonic() + ACCEPT_PAUSE_S if pause else None
        for fd in self._sockets:
            self._poll.modify(fd, 0 if pause else select.EPOLLIN)

    def _drop(self, fd: int, counter: str) -> None:
        """Close a pending connection, and count why."""
        self._count(counter)
        self._let_go(fd).stream.close()

    def _let_go(self, fd: int) -> Pending:
        """Forget a pending connection, whose socket stays open."""
        self._poll.unregister(fd)
        self._crowds.discard(fd)
        return self._pending.pop(fd)

    def _refuse(self, stream: Stream, status: int) -> None:
        self._count(REFUSAL_COUNTERS.get(status, "greetings_refused"))
        with contextlib.suppress(OSError):
            stream.send(Reply(status).pack())
        stream.close()

    def _count(self, counter: str) -> None:
        with self._lock:
            self._counters[counter] += 1


def _end(session: Session, why: str) -> None:
    """Close a session and tell its client why."""
    with session.lock:
        session.fail(ConnectionAbortedError(why), tell=why)
        session.close()
