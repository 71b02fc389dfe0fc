"""The server:

one directory for many clients, a thread for each, bounded, and nothing that a client sends ends it.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from ri2n_parallel.copy.channel import Channel, Transport
from ri2n_parallel.copy.folder import Folder, Target
from ri2n_parallel.copy.messages import (
    VERSION,
    Get,
    Hello,
    List,
    Message,
    MkDir,
    Offer,
    Ok,
    PeerRefused,
    ProtocolViolation,
    Put,
    Refused,
    Stat,
    Touch,
    Welcome,
    pages,
)
from ri2n_parallel.copy.names import check_name
from ri2n_parallel.copy.transfer import Transferred, receive_file, refuse_file, send_file
from ri2n_parallel.crowds import Crowds, crowd_of

__all__ = ["Acceptor", "Server"]

LOGIN_S = 10.0
"""Until a client must have said hello."""
MAX_LOGINS, LOGINS_OF_ONE = 512, 128
"""So many clients that have not (or are being told `busy`) at once, in all and of one address; they
take no places of transfers. The one that has waited for longest makes room (crowds.py).
"""
CLOSE_S = 5.0
LINGER_S, LINGER_BYTES = 1.0, 1 << 20
"""After a last word the rest of what the client says is read for so long, so that it hears that
word.
"""
TAKE_OVER_S, SILENT_S, LOOK_AGAIN_S = 5.0, 2.0, 0.1
"""A file that another client is writing is waited for so long.

A client that was silent for SILENT_S must let go.
"""
STACK_BYTES = 512 << 10


class Acceptor(Protocol):
    """What is needed of a listener: a ParallelListener, or anything that gives connections."""

    def accept(self, timeout_s: float | None = None, /) -> Transport: ...
    def close(self) -> None: ...


class Server:
    """Serves `folder` to whoever `listener` accepts, at most `max_transfers` at once, until
    `close`.

    Who may connect is the listener's matter. `say` gets a line for each refusal. `counters`:
    sessions, files and bytes of both directions, one per refusal (`refused_CODE`), `timeouts`,
    `logins_timed_out`, `logins_dropped`, `lost`, `closed_unheard`, `clients_gave_up`, `taken_over`,
    `accept_errors` and `bugs`.
    """

    def __init__(
        self,
        listener: Acceptor,
        folder: Folder,
        *,
        read_only: bool = False,
        max_transfers: int = 1000,
        timeout_s: float = 60.0,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.listener, self.folder = listener, folder
        self.read_only = read_only
        self.max_transfers, self.timeout_s, self.say = max_transfers, timeout_s, say
        self.counters: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._open: dict[Transport, threading.Thread] = {}
        self._guests: Crowds[Transport] = Crowds(
            MAX_LOGINS, LOGINS_OF_ONE
        )  # of them: have not said hello
        self._clients: set[Transport] = set()  # have said it; some are neither, and about to end
        self._released = threading.Condition(self._lock)
        self._writers: dict[tuple[str, ...], Channel] = {}  # by the file that is being written
        self._closing = False

    def serve(self) -> None:
        """Accept until `close` is called by another thread, or an exception (Ctrl-C) ends it."""
        before = threading.stack_size(STACK_BYTES)
        try:
            while not self._closing:
                try:
                    transport = self.listener.accept(1.0)
                except TimeoutError:
                    continue
                except OSError as error:
                    if self._closing:
                        return
                    self._count("accept_errors")
                    self.say(f"accept: {error}")
                    threading.Event().wait(
                        0.1
                    )  # out of descriptors, most likely: others end meanwhile
                    continue
                self.take(transport)
        finally:
            threading.stack_size(before)

    def take(self, transport: Transport) -> None:
        """Serve one connection in a thread of its own."""
        crowd, in_the_way = _crowd(transport), None
        with self._lock:
            refuse = self._closing
            if not refuse:
                in_the_way = self._guests.displaced_by(crowd)
                if in_the_way is not None:
                    self._guests.discard(in_the_way)
                self._guests.add(transport, crowd)
                thread = threading.Thread(
                    target=self._guarded, args=(transport,), name="ri2n-copy-session", daemon=True
                )
                self._open[transport] = thread
        if in_the_way is not None:
            self._count("logins_dropped")
            abort(in_the_way)
        if refuse:
            self._count("closed_unheard")
            abort(transport)
            return
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._gone(transport)
            self._count("closed_unheard")
            abort(transport)

    def close(self) -> None:
        """Accept nothing more, break off what is under way (the files' parts stay) and wait for
        the threads.
        """
        with self._lock:
            self._closing = True
            under_way = dict(self._open)
        self.listener.close()
        for transport in under_way:
            abort(transport)
        for thread in under_way.values():
            if thread.ident is not None:
                thread.join(CLOSE_S)

    @property
    def sessions(self) -> int:
        """How many clients are being served now."""
        with self._lock:
            return len(self._open)

    def _guarded(self, transport: Transport) -> None:
        channel = Channel(transport, self.timeout_s)
        try:
            self._count("sessions")
            self._log_in(channel)
            self._session(channel)
        except Refused as error:
            self._refused(error)
            with contextlib.suppress(OSError, Refused):
                channel.fail(error)
                channel.linger(LINGER_S, LINGER_BYTES)
        except TimeoutError:
            self._count("logins_timed_out" if transport in self._guests else "timeouts")
            self.say("a client was silent for too long")
        except (OSError, ssl.SSLError):
            self._count("lost")
        except Exception as error:  # a bug must not end the server, nor be silent
            self._count("bugs")
            self.say(f"bug: {type(error).__name__}: {error}")
        finally:
            with contextlib.suppress(Exception):
                transport.close()
            self._gone(transport)
            self._count("received_bytes", channel.received_bytes)
            self._count("sent_bytes", channel.sent_bytes)

    def _gone(self, transport: Transport) -> None:
        with self._lock:
            self._open.pop(transport, None)
            self._guests.discard(transport)
            self._clients.discard(transport)

    def _log_in(self, channel: Channel) -> None:
        """Hear the client's hello, and nothing else.

        Refused `busy` when there is no room for another transfer.
        """
        channel.expect_first(Hello, LOGIN_S)
        with self._lock:
            if channel.transport not in self._guests:
                raise ConnectionAbortedError("it had to make room")
            if len(self._clients) >= self.max_transfers:
                raise Refused(
                    "busy",
                    f"the server has {self.max_transfers} transfers under way; try again later",
                )
            self._guests.discard(channel.transport)
            self._clients.add(channel.transport)

    def _session(self, channel: Channel) -> None:
        channel.send(Welcome(VERSION, self.read_only))
        while True:
            request = channel.receive_or_end()
            if request is None:
                return
            try:
                self._answer(channel, request)
            except ProtocolViolation:
                raise
            except Refused as error:
                self._refused(error)

    def _answer(self, channel: Channel, request: Message) -> None:
        """Do what a client asks.

        Whatever is refused, the client has been told, and may ask for more.
        """
        if isinstance(request, Put):
            self._put(channel, request)
        elif isinstance(request, Get):
            self._get(channel, request)
        elif isinstance(request, List):
            self._list(channel, request)
        elif isinstance(request, Stat | MkDir | Touch):
            try:
                answer = self._small(request)
            except Refused as error:
                channel.fail(error)
                raise
            channel.send(answer)
        else:
            raise ProtocolViolation(f"{type(request).__name__} is no request")

    def _small(self, request: Stat | MkDir | Touch) -> Message:
        if isinstance(request, Stat):
            return self.folder.status(request.name)
        self._must_write()
        if isinstance(request, MkDir):
            self.folder.make_directory(request.name)
        else:
            self.folder.touch_directory(request.name, request.mode, request.mtime_ns)
        return Ok()

    def _list(self, channel: Channel, request: List) -> None:
        found = pages(self.folder.entries(request.name))
        while True:
            try:
                page = next(found, None)
            except Refused as error:
                channel.fail(error)
                raise
            if page is None:
                return
            channel.send(page)

    def _put(self, channel: Channel, request: Put) -> None:
        try:
            self._must_write()
            target = self._open_target(request)
        except Refused as error:
            refuse_file(channel, error)
            raise
        key = check_name(request.name)
        try:
            with contextlib.closing(target):
                with self._lock:
                    self._writers[key] = channel
                done = receive_file(channel, target, request.size, _quiet)
        finally:
            with self._released:
                if self._writers.get(key) is channel:
                    del self._writers[key]
                self._released.notify_all()
        self._note("files_received", done)

    def _open_target(self, request: Put) -> Target:
        """The target.

        A client that is gone or silent and still has it must let go, so that a copy can go on.
        """
        deadline_s = time.monotonic() + TAKE_OVER_S
        while True:
            try:
                return self.folder.open_target(
                    request.name, request.size, request.mode, request.mtime_ns
                )
            except Refused as error:
                if error.code != "busy" or time.monotonic() > deadline_s:
                    raise
                with self._released:
                    holder = self._writers.get(check_name(request.name))
                    if holder is None or not holder.quiet_s(time.monotonic()) > SILENT_S:
                        self._released.wait(LOOK_AGAIN_S)
                        continue
                self._count("taken_over")
                abort(holder.transport)
                with self._released:
                    self._released.wait(LOOK_AGAIN_S)

    def _get(self, channel: Channel, request: Get) -> None:
        try:
            source = self.folder.open_source(request.name)
        except Refused as error:
            channel.fail(error)
            raise
        with contextlib.closing(source):
            channel.send(Offer(source.size_bytes, source.mode, source.mtime_ns))
            self._note("files_sent", send_file(channel, source, _quiet))

    def _must_write(self) -> None:
        if self.read_only:
            raise Refused("read_only", "the server takes no files: it was started with --read-only")

    def _note(self, counter: str, done: Transferred) -> None:
        self._count(counter)
        self._count("repeated_blocks", done.repeated_blocks)
        self._count("kept_bytes", done.kept_bytes)

    def _refused(self, error: Refused) -> None:
        if isinstance(error, PeerRefused):
            self._count("clients_gave_up")
            return
        self._count(f"refused_{error.code}")
        self.say(str(error))

    def _count(self, counter: str, by: int = 1) -> None:
        with self._lock:
            self.counters[counter] += by


def abort(transport: Any) -> None:
    """Break a connection off at once, whatever kind it is."""
    with contextlib.suppress(Exception):
        if hasattr(transport, "abort"):
            transport.abort()
        else:
            with contextlib.suppress(OSError):
                transport.shutdown(2)
            transport.close()


def _crowd(transport: Any) -> str:
    """Where a connection comes from."""
    try:
        return crowd_of(str(transport.getpeername()[0]))
    except (AttributeError, IndexError, OSError):
        return ""


def _quiet(_size_bytes: int) -> None:
    pass
