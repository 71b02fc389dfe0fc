# SPDX-License-Identifier: Apache-2.0
"""The connecting side's links: connected all at once, without waiting, and again when one dies.

`Dialer` has all links of a session, `_Joining` tries to connect one of them until that has worked,
`_Attempt` is one try.
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

ATTEMPT_S = 1.0
"""The time for one try to connect; a new try is made instead of waiting for a lost SYN."""
PAUSE_S, MAX_PAUSE_S = 0.1, 2.0
"""The pause after a second failure in a row and the longest one; each is twice the one before."""
TICK_S = 0.1
UNPROVEN = f"{REFUSED}: what listens there does not prove that it is the server"
_new_socket = socket.socket


@dataclass(frozen=True)
class Client:
    """How to connect.

    `sources` are own addresses, `key` is what both ends have to prove (None: nothing), and in
    `networks` other addresses of a server may be.
    """

    sources: tuple[str, ...] = ()
    ssl_context: ssl.SSLContext | None = None
    server_hostname: str | None = None
    key: bytes | None = field(default=None, repr=False)
    networks: tuple[Network, ...] = ()

    def source(self, number: int, remote: str) -> str:
        """The own address that link `number` to the server's address `remote` leaves from.

        Among those that have most leading bits in common with `remote`, the links take turns.
        """
        bits = [_common_bits(source, remote) for source in self.sources]
        nearest = [
            source for source, common in zip(self.sources, bits, strict=True) if common == max(bits)
        ]
        return nearest[number % len(nearest)]


class Dialer:
    """Connects the links of a session; the session's lock is held in every call.

    All are connected at once, and one that dies is connected again. When each was tried once and
    none could be connected, the session fails.
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
        # By link: how many addresses it could not reach.
        self._skipped: dict[int, int] = {}
        # Links whose first try has not ended.
        self._untried = set(range(parallelism))
        # Why first tries failed.
        self._failed: list[str] = []

    def start(self, session: Session) -> None:
        """Begin to connect all links; `wait` for them or leave them to `carry_on`."""
        for number in sorted(self._untried):
            self._joinings[number] = _Joining(self, session, number, careful=False)
        self._step(time.monotonic())

    def wait(self, session: Session, deadline_s: float | None) -> None:
        """Wait until each link is connected or has failed once; AllLinksLost when all have failed.

        After `deadline_s` of the monotonic clock, those that are not connected count as failed.
        """
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
        """Leave the links that are not connected yet to the caretaker."""
        for joining in self._joinings.values():
            caretaker.add(joining)

    def stop(self) -> None:
        """Give up all links that are not connected yet."""
        for joining in list(self._joinings.values()):
            joining.give_up("not needed")
            caretaker.remove(joining)
        self._joinings.clear()

    def again(self, session: Session, number: int) -> None:
        """Connect a link that died; try until that has worked or the session is over."""
        if number not in self._joinings:
            self._joinings[number] = _Joining(self, session, number, careful=True)
            caretaker.add(self._joinings[number])

    def attempt(self, number: int, *, careful: bool) -> _Attempt:
        """A new try to connect this link to the address that the server named for it."""
        endpoint = self._endpoints[(number + self._skipped.get(number, 0)) % len(self._endpoints)]
        greeting = Greeting(
            JOIN, 0, MAX_CHUNK, self._window_bytes, self._name, number, self._key is not None
        )
        return _Attempt(number, endpoint, self._client, greeting.pack(), self._key, careful)

    def failed(self, session: Session, attempt: _Attempt) -> None:
        """Note that a try has failed.

        If its address is out of reach, the next one of this link goes to another address.
        """
        if attempt.unreachable:
            self._skipped[attempt.number] = self._skipped.get(attempt.number, 0) + 1
        if attempt.number in self._untried:
            self._untried.remove(attempt.number)
            self._failed.append(f"{attempt.name}: {attempt.why}")
            if not self._untried and not session.links:
                session.fail(AllLinksLost("; ".join(self._failed)))

    def joined(self, joining: _Joining, number: int) -> None:
        """Forget a link that is connected or not needed any more."""
        self._untried.discard(number)
        caretaker.remove(joining)
        self._joinings.pop(number, None)

    def _step(self, now_s: float) -> None:
        for joining in list(self._joinings.values()):
            joining.care(now_s)


class _Joining:
    """Tries to connect one link until that has worked.

    `care` is called when its socket is ready, and by time. A `careful` first try also waits for the
    server's answer; every later try does.
    """

    def __init__(self, dialer: Dialer, session: Session, number: int, *, careful: bool) -> None:
        self._dialer, self._session, self._number, self._careful = dialer, session, number, careful
        self._attempt: _Attempt | None = None
        self._next_s, self._pause_s = 0.0, 0.0
        self.lock: threading.RLock = session.lock

    def care(self, now_s: float) -> None:
        """Go on as far as that is possible now."""
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
        new_link = attempt.step(now_s)
        if attempt.stream is not None:
            session.watch(fd, attempt.events, self.care)
            return
        session.unwatch(fd)
        if new_link is not None:
            self._attempt = None
            dialer.joined(self, self._number)
            session.add(new_link)
            return
        dead_link = session.down.get(self._number)
        if dead_link is not None:
            dead_link.why = attempt.why
        if attempt.status == UNKNOWN_SESSION and not session.up:
            session.fail(AllLinksLost(f"{attempt.name}: {attempt.why}"))
        self.give_up(attempt.why)
        self._next_s = now_s + self._pause_s
        self._pause_s = min(MAX_PAUSE_S, 2 * self._pause_s or PAUSE_S)

    def give_up(self, why: str) -> None:
        """End the current try, if there is one; another one follows when its time comes."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._session.unwatch(attempt.fileno())
            attempt.fail(attempt.why or why)
            self._dialer.failed(self._session, attempt)


class _Attempt:
    """One try to make a data connection: TCP, TLS, then the greeting, none of which waits.

    Call `step` until there is a link. With the session's `key` the server has to prove that it has
    the key too, and then this end does. A `careful` try also waits for the server's answer to the
    greeting: where a link died, a new connection may be made and yet be dead.
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
        # Whether this address cannot be reached from here, which the kernel knows at once. Another
        # address of the server may be in reach.
        self.unreachable = False
        self._client, self._greeting = client, greeting
        self._deadline_s = time.monotonic() + ATTEMPT_S
        self._connected = False
        self._events = select.POLLOUT
        family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
        self.stream: Stream | None = None
        try:
            self.stream = _new_socket(family, socket.SOCK_STREAM)
        except OSError as failed:  # no descriptor is free now
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
        """Go on as far as that is possible now; the link once it is connected.

        Afterwards `stream` is None if there is a link or the try has failed (`why`).
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
                    # So few bytes are sent whole or not at all.
                    self._greeted = self.stream.send(self._greeting) > 0
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
        """Send the greeting and check the server's proof; whether it was right.

        Then `_greeting` is this end's proof, which has to be sent next.
        """
        if not self._asked:
            # So few bytes are sent whole or not at all.
            self._asked = stream.send(self._said) > 0
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
        """Read up to `count` bytes of the server's answer; whether its status is the expected one.

        BlockingIOError when more has to be received.
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
        """End this try for this reason."""
        self.why = why
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def fileno(self) -> int:
        """The descriptor of its socket; -1 when it has failed or is a link."""
        return self.stream.fileno() if self.stream is not None else -1

    @property
    def events(self) -> int:
        """The poll events of its socket with which `step` can go on."""
        return self._events

    @property
    def name(self) -> str:
        """The link and where it goes, for messages."""
        return f"link {self.number} to {place_name((self.endpoint.address, self.endpoint.port))}"


def _ready(stream: Stream, event: int) -> bool:
    poll = select.poll()
    poll.register(stream, event)
    return bool(poll.poll(0))


def _common_bits(one: str, other: str) -> int:
    """How many leading bits two addresses have in common; -1 when their IP versions differ."""
    first, second = ipaddress.ip_address(one), ipaddress.ip_address(other)
    if first.version != second.version:
        return -1
    return first.max_prefixlen - (int(first) ^ int(second)).bit_length()
