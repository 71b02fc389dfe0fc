"""The server's side: greetings are answered by one thread, so that no slow client holds up another.

The server chooses the interface of every data connection (Paradise, section 3.2.2; placement.py has
the rules).
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
from ri2n_parallel.placement import RULES, InterfaceLoad, order
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

WILDCARDS = ("", "0.0.0.0", "::")
MAX_PENDING, PENDING_OF_ONE = (
    1024,
    256,
)  # connections that have not said who they are yet; of one address
MAX_SESSIONS = 4096
BACKLOG = 512  # connections that wait for `accept`: a crowd may come at once
MAX_PORTS = 16  # that are tried when any will do
TICK_S = 0.25
BREATH_S = 0.2  # no connection is accepted for so long after descriptors have run out
NOTHING_YET = dict.fromkeys(
    (
        *(
            "sessions",
            "links",
            "greetings_refused",
            "greetings_failed",
            "greetings_timed_out",
            "pending_dropped",
        ),
        *("tokens_missing", "tokens_wrong"),
    ),
    0,
)
REFUSALS = {
    TOKEN_WANTED: "tokens_missing",
    TOKEN_WRONG: "tokens_wrong",
}  # others are greetings_refused
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

    `addresses` are the own ones that data connections may use; by default all of this host's, or,
    for a client that came to a loopback address, that one. `placement` is a rule of placement.py,
    `weights` (by address) are for the rule of that name. With a `token` both ends prove that they
    know it, on every connection; nothing else that a client says is taken before it has, and a
    program hears of no other clients. BadInput for what is none of all that; OSError when the port
    is taken.
    """
    key = key_of(token)
    if placement not in RULES:
        raise BadInput(f"placement: {placement} is none of {', '.join(RULES)}")
    for one, weight in (weights or {}).items():
        if addresses is None or one not in addresses or weight < 0:
            raise BadInput(
                f"weights: {one}: needs to be one of the addresses, with a weight of 0 or more"
            )
    host, port = address
    hosts = (
        [host]
        if host in WILDCARDS or not addresses
        else [host, *(one for one in addresses if one != host)]
    )
    for left in reversed(range(1 if port else MAX_PORTS)):
        try:
            sockets = _listen_at(hosts, port, backlog)
            break
        except OSError as error:  # a port that is free at the first address may be taken at another
            if error.errno != errno.EADDRINUSE or not left:
                raise
    return ParallelListener(
        sockets,
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


def _listen_at(hosts: Sequence[str], port: int, backlog: int) -> list[socket.socket]:
    """Sockets at all of these addresses, at one port; 0: any that is free at the first of them."""
    sockets: list[socket.socket] = []
    try:
        for one in hosts:
            family = socket.AF_INET6 if ":" in one else socket.AF_INET
            made = socket.create_server((one, port), family=family, backlog=backlog)
            sockets.append(made)
            made.setblocking(False)
            port = made.getsockname()[1]
    except OSError:
        for made in sockets:
            made.close()
        raise
    return sockets


class _Entry:
    """A session that the listener knows, until it is closed."""

    def __init__(
        self, session: Session, key: bytes | None, reserved: list[str], deadline_s: float
    ) -> None:
        self.session, self.deadline_s = session, deadline_s
        self.key = key  # that its links have to prove, if clients have to know a token
        self.reserved = reserved  # addresses whose connections were promised and have not come
        self.offered = False  # to the program
        self.joined = False  # by a first link


class ParallelListener:
    """Accepts parallel connections until it is closed; made by `create_listener`.

    `counters`: greetings_refused, greetings_timed_out, pending_dropped, tokens_missing,
    tokens_wrong, sessions, ...
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
        self._sockets = {one.fileno(): one for one in sockets}
        self._addresses = list(addresses) if addresses else None
        self._rule, self._weights = RULES[placement], dict(weights or {})
        self._ssl_context, self._window_bytes, self._timeout_s = (
            ssl_context,
            window_bytes,
            handshake_timeout_s,
        )
        self._link_timeout_s, self._key = link_timeout_s, key
        self._lock = threading.Lock()
        self._counters: Counter[str] = Counter()
        self._loads: dict[str, InterfaceLoad] = {}
        self._entries: dict[bytes, _Entry] = {}
        self._pending: dict[int, Pending] = {}
        self._crowds: Crowds[int] = Crowds(MAX_PENDING, PENDING_OF_ONE)
        self._ready: queue.Queue[Session | None] = queue.Queue(backlog)
        self._ready_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._stop_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        self.address: tuple[str, int] = sockets[0].getsockname()[:2]
        self._poll = select.epoll()
        self._poll.register(self._stop_fd, select.EPOLLIN)
        for one in sockets:
            self._poll.register(one, select.EPOLLIN)
        self._deaf_until_s: float | None = None
        caretaker.own(self)
        self._thread = threading.Thread(target=self._run, name="ri2n-listener", daemon=True)
        self._thread.start()

    # ---- for programs

    def accept(self, timeout_s: float | None = None) -> ParallelSocket:
        """The next connection; TimeoutError, OSError once the listener is closed."""
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
            self._ready.put(None)  # for others who wait
            raise OSError(errno.EBADF, "the listener is closed")
        os.eventfd_read(self._ready_fd)
        return ParallelSocket(session)

    def fileno(self) -> int:
        """A descriptor that is readable while `accept` would not wait."""
        return self._ready_fd if not self._closed else -1

    @property
    def counters(self) -> dict[str, int]:
        """What happened so far."""
        with self._lock:
            return {**NOTHING_YET, **self._counters, "sessions_open": len(self._entries)}

    @property
    def connections(self) -> dict[str, int]:
        """Established data connections by own address."""
        with self._lock:
            return {address: load.connections for address, load in self._loads.items()}

    def close(self) -> None:
        """Accept no more.

        Connections that were accepted go on, but links of theirs that die do not come back.
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
        """This is a child process: the listener is its parent's."""
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
        except Exception:  # nobody would accept any more: that has to be seen
            log.exception("the listener has failed")
        finally:
            self._stop_accepting()
            for entry in list(self._entries.values()):
                if not entry.offered:
                    _end(entry.session, "the server has closed its listener")

    def _stop_accepting(self) -> None:
        for one in self._sockets.values():
            one.close()
        for pending in self._pending.values():
            pending.stream.close()
        self._pending.clear()
        self._poll.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(64):
            try:
                stream: Stream
                stream, remote = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._count("accept_failed")
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._listen(False)
                return
            stream.setblocking(False)
            crowd = crowd_of(remote[0])
            if (gone := self._crowds.in_the_way(crowd)) is not None:
                self._drop(gone, "pending_dropped")
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
        try:
            if pending.shaking_hands and isinstance(pending.stream, ssl.SSLSocket):
                pending.stream.do_handshake()
                pending.shaking_hands = False
            heard, status = pending.hear(), OK
            if heard and pending.unproven:
                status = self._challenge(pending)
                if status == CHALLENGE:
                    heard, status = pending.hear(), OK
        except (BlockingIOError, ssl.SSLWantReadError):
            if pending.shaking_hands:
                self._poll.modify(fd, select.EPOLLIN)
            return
        except ssl.SSLWantWriteError:
            self._poll.modify(fd, select.EPOLLIN | select.EPOLLOUT)
            return
        except ProtocolError:
            heard, status = True, OTHER_VERSION if pending.data[4] != VERSION else BAD_GREETING
        except OSError:
            self._drop(fd, "greetings_failed")
            return
        if not heard:  # who leaves after the challenge does not believe this end's proof
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
        except OSError:  # it is gone
            pending.stream.close()
            self._count("greetings_failed")

    def _challenge(self, pending: Pending) -> int:
        """Prove that this end has the key, and ask for the same.

        CHALLENGE, or the status when that cannot be.
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
        said = pending.challenge + proof_of_server(key, pending.said)
        try:
            sent = pending.stream.send(said)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            sent = 0
        if sent < len(said):
            raise ConnectionAbortedError("a fresh connection has no room for an answer")
        return CHALLENGE

    def _open_entry(self, name: bytes) -> _Entry | None:
        entry = self._entries.get(name)
        return None if entry is None or entry.session.closed or entry.session.broken else entry

    def _greeted(self, pending: Pending) -> None:
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
                    self._load(address).connections -= 1  # it is counted as a link from here on
            session = entry.session
            with session.lock:
                session.add(link)
            entry.joined = True
            if not entry.offered:
                self._offer(entry)

    def _offer(self, entry: _Entry) -> None:
        entry.offered = True
        os.eventfd_write(
            self._ready_fd, 1
        )  # first, since `accept` reads it after it has the session
        self._ready.put(entry.session)

    def _hello(self, pending: Pending, greeting: Greeting) -> None:
        stream = pending.stream
        if not 1 <= greeting.parallelism <= MAX_PARALLELISM:
            self._refuse(stream, BAD_GREETING)
            return
        if len(self._entries) >= MAX_SESSIONS or self._ready.full():
            self._refuse(stream, FULL)
            return
        mine, port = stream.getsockname()[:2]
        name, early = pending.name or os.urandom(SESSION_BYTES), greeting.kind == EARLY
        key = session_key(pending.key, pending.said) if pending.challenge else None
        window_bytes = max(self._window_bytes, EARLY_BYTES) if early else self._window_bytes
        session = Session(
            name,
            window_bytes=window_bytes,
            peer_window_bytes=greeting.window,
            chunk_most=min(MAX_CHUNK, greeting.chunk_most),
            link_timeout_s=self._link_timeout_s,
        )
        chosen = self._place(
            mine, greeting.parallelism
        )  # after what may fail for want of descriptors
        entry = _Entry(session, key, chosen, time.monotonic() + self._timeout_s)
        session.on_link, session.on_closed = self._link_changed, self._closed_one
        with self._lock:
            self._entries[name] = entry
            self._counters["sessions"] += 1
        tune(stream)
        control = Link(CONTROL, stream)
        endpoints = tuple(Endpoint(address, port) for address in chosen)
        answer = Reply(OK, session.chunk_most, window_bytes, name, endpoints).pack()
        control.send(answer if key is None else answer + proof_of_answer(key, answer))
        with session.lock:
            session.add(control)
            if early:
                session.early_left = FIRST_BYTES  # more goes by the links that were chosen
                self._offer(entry)

    def _place(self, mine: str, count: int) -> list[str]:
        """The addresses of the next `count` connections, which are reserved for them."""
        addresses = self._addresses
        if addresses is None:
            version = 6 if ":" in mine else 4
            everywhere = self.address[0] in WILDCARDS and not mine.startswith(("127.", "::1"))
            addresses = (own_addresses(version) if everywhere else []) or [mine]
        with self._lock:
            loads = [self._load(address) for address in addresses]
            alive = Counter[str]()
            for entry in self._entries.values():
                for link in list(entry.session.links.values()):
                    alive[_host(link.local)] += link.sent_bytes + link.received_bytes
            loads = [
                InterfaceLoad(load.connections, load.bytes + alive[address], load.weight)
                for address, load in zip(addresses, loads, strict=True)
            ]
            chosen = [addresses[place] for place in order(self._rule, loads, count)]
            for address in chosen:
                self._load(address).connections += 1
        return list(chosen)

    def _load(self, address: str) -> InterfaceLoad:
        return self._loads.setdefault(
            address, InterfaceLoad(weight=self._weights.get(address, 1.0))
        )

    def _link_changed(self, session: Session, link: Link, joined: bool) -> None:
        address = _host(link.local)
        with self._lock:
            load = self._load(address)
            load.connections += 1 if joined else -1
            if joined:
                self._counters["links"] += 1
            else:
                load.bytes += link.sent_bytes + link.received_bytes

    def _closed_one(self, session: Session) -> None:
        with self._lock:
            entry = self._entries.pop(session.name, None)
            if entry is not None:
                self._give_back(entry)

    def _give_back(self, entry: _Entry) -> None:
        for address in entry.reserved:
            self._load(address).connections -= 1
        entry.reserved = []

    def _tick(self, now_s: float) -> None:
        if self._deaf_until_s is not None and now_s >= self._deaf_until_s:
            self._listen(True)
        for fd in [fd for fd, pending in self._pending.items() if now_s > pending.deadline_s]:
            self._drop(fd, "greetings_timed_out")
        for entry in [each for each in list(self._entries.values()) if now_s > each.deadline_s]:
            with self._lock:
                self._give_back(entry)
            if not entry.joined:
                self._count("sessions_without_links")
                _end(entry.session, "no data connection came")

    def _listen(self, flag: bool) -> None:
        """Take new connections, or none for a moment."""
        self._deaf_until_s = None if flag else time.monotonic() + BREATH_S
        for fd in self._sockets:
            self._poll.modify(fd, select.EPOLLIN if flag else 0)

    def _drop(self, fd: int, counter: str) -> None:
        self._count(counter)
        self._let_go(fd).stream.close()

    def _let_go(self, fd: int) -> Pending:
        self._poll.unregister(fd)
        self._crowds.discard(fd)
        return self._pending.pop(fd)

    def _refuse(self, stream: Stream, status: int) -> None:
        self._count(REFUSALS.get(status, "greetings_refused"))
        with contextlib.suppress(OSError):
            stream.send(Reply(status).pack())
        stream.close()

    def _count(self, counter: str) -> None:
        with self._lock:
            self._counters[counter] += 1


def _end(session: Session, why: str) -> None:
    with session.lock:
        session.fail(ConnectionAbortedError(why), tell=why)
        session.close()


def _host(name: str) -> str:
    """The address in what `place_name` made."""
    return name.rsplit(":", 1)[0].strip("[]")
