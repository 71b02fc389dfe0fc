# SPDX-License-Identifier: Apache-2.0
"""The server: it serves one directory to many clients, each in a thread of its own.

The number of threads is bounded, and nothing that a client sends ends the server.
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
"""The time in which a client must have sent its hello."""
MAX_LOGINS, MAX_LOGINS_OF_ADDRESS = 512, 128
"""Clients that have not sent their hello, or are being refused as `busy`: of all, of one address.

They take no places of transfers. When there are too many, the one that has waited for longest makes
room (crowds.py).
"""
CLOSE_S = 5.0
"""The time that `close` waits for each thread."""
LINGER_S, LINGER_BYTES = 1.0, 1 << 20
"""After the last message to a client, as much as this is read of what the client still sends.

So the client receives the message before the connection is closed.
"""
TAKE_OVER_S, SILENT_S, LOOK_AGAIN_S = 5.0, 2.0, 0.1
"""How long a client waits for a file that another client is writing.

The other client loses the file if it was silent for SILENT_S: it may be gone, and the copy that it
has left could not go on otherwise.
"""
ACCEPT_S, ACCEPT_PAUSE_S = 1.0, 0.1
"""The time of one `accept`, and the pause after one that fails.

It fails when no descriptor is left, most likely; meanwhile other clients may end.
"""
STACK_BYTES = 512 << 10
"""The stack of each client's thread."""


class Acceptor(Protocol):
    """The methods that a listener needs: a ParallelListener, or anything else, has them."""

    def accept(self, timeout_s: float | None = None, /) -> Transport: ...
    def close(self) -> None: ...


class Server:
    """Serves `folder` to the clients that `listener` accepts, until `close`.

    At most `max_transfers` clients are served at once. Nothing here checks who may connect: the
    listener does. `say` gets a line for each refusal. `counters`: sessions, files and bytes of both
    directions, one counter per code of refusals (`refused_CODE`), `timeouts`, `logins_timed_out`,
    `logins_dropped`, `lost`, `closed_unheard`, `clients_gave_up`, `taken_over`, `accept_errors` and
    `bugs`.
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
        # Of the open connections: those that have not sent their hello, and those that have. Some
        # are neither, and about to end.
        self._guests: Crowds[Transport] = Crowds(MAX_LOGINS, MAX_LOGINS_OF_ADDRESS)
        self._clients: set[Transport] = set()
        # Notified when a client has ended to write a file; the channels are by the file's name.
        self._released = threading.Condition(self._lock)
        self._writers: dict[tuple[str, ...], Channel] = {}
        self._closing = False

    def serve(self) -> None:
        """Accept clients until another thread calls `close`, or an exception (Ctrl-C) ends it."""
        before = threading.stack_size(STACK_BYTES)
        try:
            while not self._closing:
                try:
                    transport = self.listener.accept(ACCEPT_S)
                except TimeoutError:
                    continue
                except OSError as error:
                    if self._closing:
                        return
                    self._count("accept_errors")
                    self.say(f"accept: {error}")
                    threading.Event().wait(ACCEPT_PAUSE_S)
                    continue
                self.take(transport)
        finally:
            threading.stack_size(before)

    def take(self, transport: Transport) -> None:
        """Serve one connection in a thread of its own."""
        crowd, displaced = _crowd(transport), None
        with self._lock:
            refuse = self._closing
            if not refuse:
                displaced = self._guests.displaced_by(crowd)
                if displaced is not None:
                    self._guests.discard(displaced)
                self._guests.add(transport, crowd)
                thread = threading.Thread(
                    target=self._guarded, args=(transport,), name="ri2n-copy-session", daemon=True
                )
                self._open[transport] = thread
        if displaced is not None:
            self._count("logins_dropped")
            abort(displaced)
        if refuse:
            self._count("closed_unheard")
            abort(transport)
            return
        try:
            thread.start()
        except RuntimeError:  # no more threads can be made
            self._forget(transport)
            self._count("closed_unheard")
            abort(transport)

    def close(self) -> None:
        """Accept no more clients, break off all transfers and wait for the threads.

        Unfinished copies of files stay.
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
        """Serve one client, in its thread; count and report every error."""
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
        except Exception as error:  # a bug must not end the server, but must be reported
            self._count("bugs")
            self.say(f"bug: {type(error).__name__}: {error}")
        finally:
            with contextlib.suppress(Exception):
                transport.close()
            self._forget(transport)
            self._count("received_bytes", channel.received_bytes)
            self._count("sent_bytes", channel.sent_bytes)

    def _forget(self, transport: Transport) -> None:
        with self._lock:
            self._open.pop(transport, None)
            self._guests.discard(transport)
            self._clients.discard(transport)

    def _log_in(self, channel: Channel) -> None:
        """Receive the client's hello, and nothing else.

        Refused `busy` when `max_transfers` clients are served already.
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
        """Answer one request after another, until the client closes."""
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

        When it raises Refused, the client has been told and may send the next request.
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
        """The answer to a request that needs no transfer."""
        if isinstance(request, Stat):
            return self.folder.status(request.name)
        self._must_write()
        if isinstance(request, MkDir):
            self.folder.make_directory(request.name)
        else:
            self.folder.touch_directory(request.name, request.mode, request.mtime_ns)
        return Ok()

    def _list(self, channel: Channel, request: List) -> None:
        """Send the entries of a directory, in as many messages as they need."""
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
        """Receive a file; `_writers` says meanwhile that this client writes it."""
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
        """Open the target of an upload.

        If another client has it, wait until that client ends. One that is silent is closed, so that
        an interrupted copy can go on. Refused `busy` after TAKE_OVER_S.
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
        """Send a file."""
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
    """Break a connection off at once, whether it is a ParallelSocket or another one."""
    with contextlib.suppress(Exception):
        if hasattr(transport, "abort"):
            transport.abort()
        else:
            with contextlib.suppress(OSError):
                transport.shutdown(2)
            transport.close()


def _crowd(transport: Any) -> str:
    """The crowd of the client's address; empty when that is not known."""
    try:
        return crowd_of(str(transport.getpeername()[0]))
    except (AttributeError, IndexError, OSError):
        return ""


def _quiet(_size_bytes: int) -> None:
    pass
