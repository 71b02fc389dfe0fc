"""The connecting side's data connections:

made without waiting, all at once, and again when one dies.
"""

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
from dataclasses import dataclass, field

from ri2n_parallel import caretaker
from ri2n_parallel.engine import REFUSED
from ri2n_parallel.errors import AllLinksLost
from ri2n_parallel.frames import (
    CHALLENGE,
    JOIN,
    MAX_CHUNK,
    OK,
    REASONS,
    REPLY,
    UNKNOWN_SESSION,
    Endpoint,
    Greeting,
    Reply,
)
from ri2n_parallel.link import Link, Stream, place_name, tune
from ri2n_parallel.links import CLOSED
from ri2n_parallel.proof import NONCE_BYTES, PROOF_BYTES, is_same, proof_of_client, proof_of_server
from ri2n_parallel.reach import Network
from ri2n_parallel.session import Session

__all__ = ["Client", "Dialer"]

ATTEMPT_S = 1.0  # for one try to connect; a SYN that was lost is not waited for
PAUSE_S, MAX_PAUSE_S = 0.1, 2.0  # between tries
TICK_S = 0.1
UNPROVEN = f"{REFUSED}: what listens there does not prove that it is the server"
_new_socket = socket.socket


@dataclass(frozen=True)
class Client:
    """How to connect:

    own addresses, TLS, what both ends prove to know, where else a server's addresses may be.
    """

    sources: tuple[str, ...] = ()
    ssl_context: ssl.SSLContext | None = None
    server_hostname: str | None = None
    key: bytes | None = field(default=None, repr=False)
    networks: tuple[Network, ...] = ()

    def source(self, number: int, remote: str) -> str:
        """The own address that link `number` leaves from:

        of those nearest to the server's, the next in turn.
        """
        bits = [_common_bits(source, remote) for source in self.sources]
        near = [
            source for source, common in zip(self.sources, bits, strict=True) if common == max(bits)
        ]
        return near[number % len(near)]


class Dialer:
    """Connects a session's links, all at once, and again those that died; the session's lock is
    held in every call.

    When none of them could be connected and each was tried once, the session is over.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        client: Client,
        name: bytes,
        key: bytes | None,
        window_bytes: int,
        parallelism: int,
    ) -> None:
        self._endpoints, self._client = list(endpoints), client
        self._name, self._key, self._window_bytes = name, key, window_bytes
        self._joinings: dict[int, _Joining] = {}
        self._skipped: dict[int, int] = {}  # by link: how many addresses it could not reach
        self._untried = set(range(parallelism))
        self._failed: list[str] = []  # what became of the first tries that failed

    def start(self, session: Session) -> None:
        """Begin to connect all links; `wait` for them or leave them to `carry_on`."""
        for number in sorted(self._untried):
            self._joinings[number] = _Joining(self, session, number, careful=False)
        self._step(time.monotonic())

    def wait(self, session: Session, deadline_s: float | None) -> None:
        """Until each is there or has failed once. AllLinksLost when none is there."""
        while self._untried and not session.broken:
            session.wait(TICK_S)
            now_s = time.monotonic()
            self._step(now_s)
            if deadline_s is not None and now_s > deadline_s:
                for joining in list(self._joinings.values()):
                    joining.give_up("no answer in time")
        if session.broken:
            raise session.broken

    def carry_on(self) -> None:
        """Those that are not there yet are the caretaker's."""
        for joining in self._joinings.values():
            caretaker.add(joining)

    def stop(self) -> None:
        """Nothing of it will be."""
        for joining in list(self._joinings.values()):
            joining.give_up("not needed")
            caretaker.remove(joining)
        self._joinings.clear()

    def again(self, session: Session, number: int) -> None:
        """Connect a link that died, until that has worked or the session is over."""
        if number not in self._joinings:
            self._joinings[number] = _Joining(self, session, number, careful=True)
            caretaker.add(self._joinings[number])

    def attempt(self, number: int, *, careful: bool) -> _Attempt:
        """To the interface that the server named for this link."""
        endpoint = self._endpoints[(number + self._skipped.get(number, 0)) % len(self._endpoints)]
        greeting = Greeting(
            JOIN, 0, MAX_CHUNK, self._window_bytes, self._name, number, self._key is not None
        )
        return _Attempt(number, endpoint, self._client, greeting.pack(), self._key, careful)

    def failed(self, session: Session, attempt: _Attempt) -> None:
        """The next attempt of this link goes to another address when this one is out of reach."""
        if attempt.unreachable:
            self._skipped[attempt.number] = self._skipped.get(attempt.number, 0) + 1
        if attempt.number in self._untried:
            self._untried.remove(attempt.number)
            self._failed.append(f"{attempt.name}: {attempt.why}")
            if not self._untried and not session.links:
                session.fail(AllLinksLost("; ".join(self._failed)))

    def joined(self, joining: _Joining, number: int) -> None:
        """It is there, or not needed any more."""
        self._untried.discard(number)
        caretaker.remove(joining)
        self._joinings.pop(number, None)

    def _step(self, now_s: float) -> None:
        for joining in list(self._joinings.values()):
            joining.care(now_s)


class _Joining:
    """Tries to connect one link, over and over:

    whenever its socket says something, and when it has waited enough.
    """

    def __init__(self, dialer: Dialer, session: Session, number: int, *, careful: bool) -> None:
        self._dialer, self._session, self._number, self._careful = dialer, session, number, careful
        self._attempt: _Attempt | None = None
        self._next_s, self._pause_s = 0.0, 0.0
        self.lock: threading.RLock = session.lock

    def care(self, now_s: float) -> None:
        session, dialer = self._session, self._dialer
        link = session.links.get(self._number)
        if (
            session.closed
            or session.broken
            or session.finished
            or (link is not None and link.state == "up")
        ):
            dialer.joined(self, self._number)
            self.give_up("not needed")
            return
        if self._attempt is None:
            if now_s < self._next_s:
                return
            self._attempt = dialer.attempt(self._number, careful=self._careful)
            self._careful = True
        attempt, fd = self._attempt, self._attempt.fileno()
        made = attempt.step(now_s)
        if attempt.stream is not None:
            session.watch(fd, attempt.events, self.care)
            return
        session.unwatch(fd)
        if made is not None:
            self._attempt = None
            dialer.joined(self, self._number)
            session.add(made)
            return
        gone = session.gone.get(self._number)
        if gone is not None:
            gone.why = attempt.why
        if attempt.status == UNKNOWN_SESSION and not session.up:
            session.fail(AllLinksLost(f"{attempt.name}: {attempt.why}"))
        self.give_up(attempt.why)
        self._next_s, self._pause_s = (
            now_s + self._pause_s,
            min(MAX_PAUSE_S, 2 * self._pause_s or PAUSE_S),
        )

    def give_up(self, why: str) -> None:
        """The attempt that there may be; another one follows when its time comes."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._session.unwatch(attempt.fileno())
            attempt.fail(attempt.why or why)
            self._dialer.failed(self._session, attempt)


class _Attempt:
    """One data connection in the making, without waiting: TCP, TLS, then the greeting; `step` until
    there is a link.

    With the session's `key` the server has to prove that it has it too, and then this end does. A
    `careful` one also waits for the server's answer: what died before may connect and yet be dead.
    """

    def __init__(
        self,
        number: int,
        endpoint: Endpoint,
        client: Client,
        greeting: bytes,
        key: bytes | None,
        careful: bool,
    ) -> None:
        self.number, self.endpoint, self.why, self.status = number, endpoint, "", OK
        self._careful, self._greeted, self._answer = careful, False, b""
        self._key, self._said, self._asked = key, greeting + os.urandom(NONCE_BYTES), False
        self.unreachable = False  # from here, at once: another of the server's addresses may do
        self._client, self._greeting = client, greeting
        self._deadline_s = time.monotonic() + ATTEMPT_S
        self._connected = False
        self._events = select.POLLOUT
        family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
        self.stream: Stream | None = None
        try:
            self.stream = _new_socket(family, socket.SOCK_STREAM)
        except OSError as failed:  # no descriptor, for now
            self.fail(failed.strerror or str(failed))
            return
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
        """Go on as far as it can; the link once it is there.

        `stream` is None when it has failed (`why`).
        """
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
                        self.stream,
                        do_handshake_on_connect=False,
                        server_hostname=self._client.server_hostname,
                    )
            if isinstance(self.stream, ssl.SSLSocket):
                self.stream.do_handshake()
            if self._key is not None and not self._challenged(self.stream, self._key):
                return None
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
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError) as wants:
            self._events = (
                select.POLLOUT if isinstance(wants, ssl.SSLWantWriteError) else select.POLLIN
            )
            if now_s > self._deadline_s:
                self.fail(
                    "no answer"
                    if self._greeted or self._asked
                    else "no answer to the TLS handshake"
                )
            return None
        except OSError as error:
            self.fail(error.strerror or str(error))
            return None
        self.stream = None
        return link

    def _challenged(self, stream: Stream, key: bytes) -> bool:
        """Greet and hear the server's proof.

        Whether it was right, and ours is what is to be said next.
        """
        if not self._asked:
            self._asked = stream.send(self._said) > 0  # so few bytes go in one
        if not self._hears(stream, REPLY.size, CHALLENGE):
            return False
        if not self._hears(stream, REPLY.size + NONCE_BYTES + PROOF_BYTES, CHALLENGE):
            return False
        said = self._said + self._answer[:-PROOF_BYTES]
        if not is_same(self._answer[-PROOF_BYTES:], proof_of_server(key, said)):
            self.fail(UNPROVEN)
            return False
        self._greeting, self._answer, self._key = proof_of_client(key, said), b"", None
        return True

    def _welcome(self, stream: Stream) -> bool:
        """Read the server's answer; whether it is welcome."""
        return self._hears(stream, REPLY.size, OK)

    def _hears(self, stream: Stream, count: int, status: int) -> bool:
        """Read so many bytes of the server's answer; whether they are there and its status is
        that.
        """
        while len(self._answer) < count:
            part = stream.recv(count - len(self._answer))
            self._answer += part
            if not part:
                self.fail(CLOSED)
                return False
        if len(self._answer) == REPLY.size:
            Reply.more(self._answer)
            self.status = Reply.unpack(self._answer).status
            if self.status != status:
                why = REASONS.get(self.status, f"status {self.status}")
                self.fail(UNPROVEN if self.status == OK else f"{REFUSED}: {why}")
                return False
        return True

    def fail(self, why: str) -> None:
        """It will not become anything."""
        self.why = why
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def fileno(self) -> int:
        """-1 when it has failed or is a link."""
        return self.stream.fileno() if self.stream is not None else -1

    @property
    def events(self) -> int:
        """What its socket has to say before `step` can go on."""
        return self._events

    @property
    def name(self) -> str:
        return f"link {self.number} to {place_name((self.endpoint.address, self.endpoint.port))}"


def _ready(stream: Stream, event: int) -> bool:
    poll = select.poll()
    poll.register(stream, event)
    return bool(poll.poll(0))


def _common_bits(one: str, other: str) -> int:
    """How long two addresses are the same; -1 when they are of different kinds."""
    a, b = ipaddress.ip_address(one), ipaddress.ip_address(other)
    return a.max_prefixlen - (int(a) ^ int(b)).bit_length() if a.version == b.version else -1
