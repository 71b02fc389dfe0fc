"""The connecting side: greet the server, connect to the interfaces that it chose, and again when a link dies."""

from __future__ import annotations

import errno
import ipaddress
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ri2n_sdn.parallel import caretaker
from ri2n_sdn.parallel.connection import ParallelSocket
from ri2n_sdn.parallel.errors import AllLinksLost, HandshakeRefused, ProtocolError
from ri2n_sdn.parallel.frames import (
    CHUNK_MOST,
    HELLO,
    JOIN,
    OK,
    REASONS,
    REPLY,
    TOKEN_BYTES,
    UNKNOWN_SESSION,
    Endpoint,
    Greeting,
    Reply,
)
from ri2n_sdn.parallel.link import Link, Stream, place_name, tune
from ri2n_sdn.parallel.links import CLOSED, CONTROL
from ri2n_sdn.parallel.session import REFUSED, Session

__all__ = ["WINDOW_BYTES", "Attempt", "Qos", "create_connection", "open_session"]

WINDOW_BYTES = 4 << 20
PARALLELISM_MOST = 64
ATTEMPT_S = 1.0  # for one try to connect; a SYN that was lost is not waited for
PAUSE_S, PAUSE_MOST_S = 0.1, 2.0  # between tries


@dataclass(frozen=True)
class Qos:
    """What a client asks for (Paradise, section 3.2.3): `parallelism` is the number of data connections."""

    parallelism: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.parallelism <= PARALLELISM_MOST:
            raise ValueError(f"parallelism: {self.parallelism} is not from 1 to {PARALLELISM_MOST}")


@dataclass(frozen=True)
class Client:
    """How to connect: own addresses, TLS."""

    sources: tuple[str, ...] = ()
    ssl_context: ssl.SSLContext | None = None
    server_hostname: str | None = None

    def source(self, number: int, remote: str) -> str:
        """The own address that link `number` leaves from: of those nearest to the server's, the next in turn."""
        bits = [_common_bits(source, remote) for source in self.sources]
        near = [source for source, common in zip(self.sources, bits, strict=True) if common == max(bits)]
        return near[number % len(near)]


def create_connection(
    address: tuple[str, int],
    qos: Qos = Qos(),
    *,
    timeout_s: float | None = 10.0,
    sources: Sequence[str] | None = None,
    ssl_context: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    window_bytes: int = WINDOW_BYTES,
    link_timeout_s: float = 60.0,
) -> ParallelSocket:
    """Connect to a server: the control connection to `address`, data connections to where the server wants them.

    `sources` are own addresses. It returns once all links are there, or some and the others take longer than
    ATTEMPT_S; those go on trying. Errors: OSError of the control connection, HandshakeRefused, ProtocolError,
    AllLinksLost when no data connection can be made, TimeoutError.
    """
    client = Client(tuple(sources or ()), ssl_context, server_hostname or address[0])
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    source = (client.sources[0], 0) if client.sources else None
    control = socket.create_connection(address, timeout_s, source_address=source)
    return open_session(control, qos, client, deadline_s, window_bytes=window_bytes, link_timeout_s=link_timeout_s)


def open_session(
    control: socket.socket,
    qos: Qos,
    client: Client,
    deadline_s: float | None,
    *,
    window_bytes: int = WINDOW_BYTES,
    link_timeout_s: float = 60.0,
) -> ParallelSocket:
    """The same over a control connection that is there already; it is closed when that fails."""
    stream: Stream = control
    try:
        if client.ssl_context:
            stream = client.ssl_context.wrap_socket(
                control, do_handshake_on_connect=False, server_hostname=client.server_hostname
            )
        reply = _greet(stream, qos, deadline_s, window_bytes)
    except BaseException:
        stream.close()
        raise
    dialer = _Dialer(reply.endpoints, client, reply.token, window_bytes)
    session = Session(
        reply.token,
        window_bytes=window_bytes,
        peer_window_bytes=reply.window,
        chunk_most=min(CHUNK_MOST, reply.chunk_most),
        link_timeout_s=link_timeout_s,
        rejoin=dialer.again,
    )
    tune(stream)
    session.add(Link(CONTROL, stream))
    try:
        _first_links(dialer, session, qos.parallelism, deadline_s)
    except BaseException:
        with session.lock:
            session.close()
        raise
    return ParallelSocket(session)


class Attempt:
    """One data connection in the making, without waiting: TCP, TLS, then the greeting; `step` until there is a link.

    A `careful` one also waits for the server's answer: what died before may connect and yet be dead.
    """

    def __init__(self, number: int, endpoint: Endpoint, client: Client, greeting: bytes, careful: bool) -> None:
        self.number, self.endpoint, self.why, self.status = number, endpoint, "", OK
        self._careful, self._greeted, self._answer = careful, False, b""
        self.unreachable = False  # from here, at once: another of the server's addresses may do
        self._client, self._greeting = client, greeting
        self._deadline_s = time.monotonic() + ATTEMPT_S
        self._connected = False
        family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
        self.stream: Stream | None = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.stream.setblocking(False)
            if client.sources:
                self.stream.bind((client.source(number, endpoint.address), 0))
            error = self.stream.connect_ex((endpoint.address, endpoint.port))
            if error not in (0, errno.EINPROGRESS):
                self.unreachable = True
                self.fail(os.strerror(error))
        except OSError as failed:
            self.unreachable = True
            self.fail(failed.strerror or str(failed))

    def step(self, now_s: float) -> Link | None:
        """Go on as far as it can; the link once it is there. `stream` is None when it has failed (`why`)."""
        if self.stream is None:
            return None
        try:
            if not self._connected:
                if not _ready(self.stream, select.POLLOUT):
                    if now_s > self._deadline_s:
                        self.fail("no answer")
                    return None
                error = self.stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    self.fail(REFUSED if error == errno.ECONNREFUSED else os.strerror(error))
                    return None
                self._connected = True
                if self._client.ssl_context:
                    self.stream = self._client.ssl_context.wrap_socket(
                        self.stream, do_handshake_on_connect=False, server_hostname=self._client.server_hostname
                    )
            if isinstance(self.stream, ssl.SSLSocket):
                self.stream.do_handshake()
            if self._careful:
                if not self._greeted:
                    self._greeted = self.stream.send(self._greeting) > 0  # so few bytes go in one
                if not self._welcome(self.stream):
                    return None
                tune(self.stream)
                link = Link(self.number, self.stream)
            else:
                tune(self.stream)
                link = Link(self.number, self.stream, awaiting=REPLY.size)
                link.send(self._greeting)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if now_s > self._deadline_s:
                self.fail("no answer" if self._greeted else "no answer to the TLS handshake")
            return None
        except OSError as error:
            self.fail(error.strerror or str(error))
            return None
        self.stream = None
        return link

    def _welcome(self, stream: Stream) -> bool:
        """Read the server's answer; whether it is welcome."""
        part = stream.recv(REPLY.size - len(self._answer))
        self._answer += part
        if not part:
            self.fail(CLOSED)
        elif len(self._answer) == REPLY.size:
            Reply.more(self._answer)
            self.status = Reply.unpack(self._answer).status
            if self.status == OK:
                return True
            self.fail(f"{REFUSED}: {REASONS.get(self.status, f'status {self.status}')}")
        return False

    def fail(self, why: str) -> None:
        """It will not become anything."""
        self.why = why
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    @property
    def name(self) -> str:
        return f"link {self.number} to {place_name((self.endpoint.address, self.endpoint.port))}"


class _Dialer:
    """Connects a session's links, and again those that died."""

    def __init__(self, endpoints: Sequence[Endpoint], client: Client, token: bytes, window_bytes: int) -> None:
        self._endpoints, self._client = list(endpoints), client
        self._token, self._window_bytes = token, window_bytes
        self._again: dict[int, _Rejoin] = {}
        self._skipped: dict[int, int] = {}  # by link: how many addresses it could not reach

    def attempt(self, number: int, *, careful: bool = False) -> Attempt:
        """To the interface that the server named for this link."""
        endpoint = self._endpoints[(number + self._skipped.get(number, 0)) % len(self._endpoints)]
        greeting = Greeting(JOIN, 0, CHUNK_MOST, self._window_bytes, self._token, number)
        return Attempt(number, endpoint, self._client, greeting.pack(), careful)

    def failed(self, attempt: Attempt) -> None:
        """The next attempt of this link goes to another address when this one is out of reach."""
        if attempt.unreachable:
            self._skipped[attempt.number] = self._skipped.get(attempt.number, 0) + 1

    def again(self, session: Session, number: int) -> None:
        """Connect a link that died, until that has worked or the session is over."""
        if number not in self._again:
            self._again[number] = _Rejoin(self, session, number)
            caretaker.add(self._again[number])

    def joined(self, rejoin: _Rejoin, number: int) -> None:
        """It is there again, or not needed any more."""
        caretaker.remove(rejoin)
        self._again.pop(number, None)


class _Rejoin:
    """Tries to connect one link, over and over."""

    def __init__(self, dialer: _Dialer, session: Session, number: int) -> None:
        self._dialer, self._session, self._number = dialer, session, number
        self._attempt: Attempt | None = None
        self._next_s, self._pause_s = 0.0, PAUSE_S
        self.lock: threading.RLock = session.lock

    def care(self, now_s: float) -> None:
        session = self._session
        link = session.links.get(self._number)
        if session.closed or session.broken or session.finished or (link is not None and link.state == "up"):
            if self._attempt is not None:
                self._attempt.fail("not needed")
            self._dialer.joined(self, self._number)
            return
        if self._attempt is None:
            if now_s < self._next_s:
                return
            self._attempt = self._dialer.attempt(self._number, careful=True)
        made = self._attempt.step(now_s)
        if made is not None:
            self._attempt = None
            self._dialer.joined(self, self._number)
            session.add(made)
        elif self._attempt.stream is None:
            gone = session.gone.get(self._number)
            if gone is not None:
                gone.why = self._attempt.why
            if self._attempt.status == UNKNOWN_SESSION and not session.up:
                session.fail(AllLinksLost(f"{self._attempt.name}: {self._attempt.why}"))
            self._dialer.failed(self._attempt)
            self._attempt = None
            self._next_s, self._pause_s = now_s + self._pause_s, min(PAUSE_MOST_S, 2 * self._pause_s)


def _first_links(dialer: _Dialer, session: Session, parallelism: int, deadline_s: float | None) -> None:
    """Connect all at once. AllLinksLost when none is there after one try of each; the others go on trying."""
    attempts = [dialer.attempt(number) for number in range(parallelism)]
    failed: list[Attempt] = []
    while attempts:
        now_s = time.monotonic()
        if deadline_s is not None and now_s > deadline_s:
            for attempt in attempts:
                attempt.fail("no answer in time")
        for attempt in attempts:
            link = attempt.step(now_s)
            if link is not None:
                with session.lock:
                    session.add(link)
        failed += [attempt for attempt in attempts if attempt.why]
        attempts = [attempt for attempt in attempts if attempt.stream is not None]
        if attempts:
            _wait_for(attempts)
    with session.lock:
        if not session.links:
            raise AllLinksLost("; ".join(f"{attempt.name}: {attempt.why}" for attempt in failed) or "no link was made")
        for attempt in failed:
            dialer.failed(attempt)
            dialer.again(session, attempt.number)


def _wait_for(attempts: Sequence[Attempt]) -> None:
    """Until one of them can go on."""
    poll = select.poll()
    for attempt in attempts:
        if attempt.stream is not None:
            shaking_hands = isinstance(attempt.stream, ssl.SSLSocket)
            poll.register(attempt.stream, select.POLLIN if shaking_hands else select.POLLOUT)
    poll.poll(100)


def _ready(stream: Stream, event: int) -> bool:
    poll = select.poll()
    poll.register(stream, event)
    return bool(poll.poll(0))


def _common_bits(one: str, other: str) -> int:
    """How long two addresses are the same; -1 when they are of different kinds."""
    a, b = ipaddress.ip_address(one), ipaddress.ip_address(other)
    return a.max_prefixlen - (int(a) ^ int(b)).bit_length() if a.version == b.version else -1


def _greet(stream: Stream, qos: Qos, deadline_s: float | None, window_bytes: int) -> Reply:
    """Ask for a session: what the server answered. HandshakeRefused, ProtocolError, TimeoutError."""

    def left_s() -> float | None:
        if deadline_s is None:
            return None
        left = deadline_s - time.monotonic()
        if left <= 0:
            raise TimeoutError("the server did not answer in time")
        return left

    def read(count: int) -> bytes:
        data = b""
        while len(data) < count:
            stream.settimeout(left_s())
            part = stream.recv(count - len(data))
            if not part:
                raise ProtocolError("the server closed the connection instead of answering: it speaks something else")
            data += part
        return data

    remote = place_name(stream.getpeername())
    stream.settimeout(left_s())
    try:
        if isinstance(stream, ssl.SSLSocket):
            stream.do_handshake()
        stream.sendall(Greeting(HELLO, qos.parallelism, CHUNK_MOST, window_bytes, bytes(TOKEN_BYTES)).pack())
        head = read(REPLY.size)
        reply = Reply.unpack(head + read(Reply.more(head)))
    except ConnectionError as error:
        raise ProtocolError(f"{remote}: the server closed the connection instead of answering") from error
    except ProtocolError as error:
        raise ProtocolError(f"{remote}: {error}") from None
    except TimeoutError:
        raise TimeoutError(f"{remote}: the server did not answer in time") from None
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or (error.reason or "it ended early").lower().replace("_", " ")
        raise HandshakeRefused(f"{remote}: TLS: {why}") from error
    if reply.status != OK:
        raise HandshakeRefused(f"{remote}: {REASONS.get(reply.status, f'status {reply.status}')}")
    if not reply.endpoints:
        raise ProtocolError(f"{remote}: the server named no address")
    return reply
