# SPDX-License-Identifier: Apache-2.0
"""One switch's connection: a bounded send queue, replies as futures, and times of signs of life."""

from __future__ import annotations

import itertools
import logging
import struct
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from ri2n_sdn.addresses import plain_address
from ri2n_sdn.apps import codec
from ri2n_sdn.apps.openflow import handler_drops, ofp

__all__ = ["ECHO", "Channel", "Close", "Refused", "Unfinished"]

OwnerT = TypeVar("OwnerT")

ECHO = struct.Struct("!d")
"""The data of an echo request: when it was sent, in seconds on the monotonic clock."""

_LOG = logging.getLogger("ri2n.channel")
_MAX_QUEUED_BYTES = 16 << 20
_MAX_PENDING = 4096
# The bytes of unfinished replies that one connection may hold. 4,096 rows of 200 bytes are less
# than 1 MB.
_MAX_REPLY_BYTES = 64 << 20
# The bytes of unfinished replies that all connections together may hold.
_MAX_ALL_REPLIES_BYTES = 256 << 20


class Close(Enum):
    """Why a connection is given up: the counter of such connections, and the text for the log."""

    NOT_READING = "closed_not_reading", "does not read what it is sent"
    WRONG_REPLY = "closed_wrong_reply", "it answers something else than it was asked"
    REPLY_TOO_LONG = "closed_reply_too_long", "its replies are longer than {max_bytes} bytes"
    REPLIES_EVICTED = (
        "closed_replies_evicted",
        "of all replies without an end it has the longest",
    )
    SEND_FAILED = "closed_send_failed", "the connection is gone"
    ENDED = "closed_ended", "the connection ended"
    SILENT = "closed_silent", "silent for {seconds:.0f} s"
    UNANSWERED = "closed_unanswered", "answers no request for {seconds:.0f} s"
    REPLACED = "closed_replaced", "replaced by a new connection of the same host"
    NO_LOCAL_PORT = "closed_no_local_port", "it has no LOCAL port"
    BAD_NAME = "closed_bad_name", "bad name"
    NOT_ITS_CERTIFICATE = "closed_not_its_certificate", "not its certificate"
    BAD_ADDRESS = "closed_bad_address", "its addresses cannot be a host's"
    FOREIGN_ADDRESS = "closed_foreign_address", "its addresses are not its own"
    ADDRESS_TAKEN = "closed_address_taken", "another host has its address"
    DUPLICATE_NAME = "closed_duplicate_name", "another host has the same name"
    DUPLICATE_DATAPATH_ID = (
        "closed_duplicate_datapath_id",
        "another host has the same datapath ID",
    )
    DUPLICATE_MAC = "closed_duplicate_mac", "another host has the same MAC address"

    def __init__(self, counter: str, text: str) -> None:
        self.counter, self.text = counter, text


class Refused(Exception):
    """The switch answered a request with an error. The text has the error's type and code."""


@dataclass
class _Request:
    """An open request and the parts of its reply so far.

    `kind` is that of the multipart reply which answers it, or None for a barrier. `parts` are the
    bodies so far, and `size` the bytes of their messages.
    """

    future: Future[bytes]
    kind: int | None
    asked_s: float
    parts: list[bytes] = field(default_factory=list)
    size: int = 0


class Unfinished(Generic[OwnerT]):
    """The bytes of unfinished replies that each owner holds.

    When all together hold more than `max_bytes`, the owner with most bytes must give up its own,
    not the one that asked last. Threads may share an object.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.total_bytes = 0
        self._lock = threading.Lock()
        self._bytes_of: dict[OwnerT, int] = {}

    def add(self, owner: OwnerT, size: int) -> OwnerT | None:
        """Count `size` bytes more for `owner`. Returns the owner that must give up all, or None."""
        with self._lock:
            self.total_bytes += size
            self._bytes_of[owner] = self._bytes_of.get(owner, 0) + size
            return (
                max(self._bytes_of, key=lambda key: self._bytes_of[key])
                if self.total_bytes > self.max_bytes
                else None
            )

    def release(self, owner: OwnerT, size: int | None = None) -> None:
        """Count `size` bytes less for `owner`; None stands for all that it holds."""
        with self._lock:
            held = self._bytes_of.get(owner, 0)
            freed = held if size is None else min(size, held)
            self.total_bytes -= freed
            self._bytes_of[owner] = held - freed
            if not self._bytes_of[owner]:
                del self._bytes_of[owner]


_unfinished: Unfinished[Channel] = Unfinished(_MAX_ALL_REPLIES_BYTES)


class Channel:
    """One switch's connection, which never blocks a caller that sends.

    os-ken's own queue holds 16 messages and then waits for the switch. This one is not bounded in
    messages; a switch that lets 16 MB wait is given up.
    """

    def __init__(self, datapath: Any) -> None:
        self.datapath = datapath
        self.reached_at_port: int | None = _own_port(datapath.socket)
        self.heard_s = time.monotonic()
        self.answered_s = -1e9
        """When the newest answered echo request of discovery was sent, on the monotonic clock."""
        self.closed = False
        self._xids = itertools.count(1)
        self._lock = threading.Lock()
        self._more = threading.Condition(self._lock)
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._pending: dict[int, _Request] = {}
        self._reply_bytes = 0
        threading.Thread(target=self._pump, name=f"send-{datapath.id:x}", daemon=True).start()

    @property
    def address(self) -> str:
        """The switch's IP address, as `plain_address` writes it."""
        return plain_address(str(self.datapath.address[0]))

    def next_xid(self) -> int:
        """A new transaction ID for a message."""
        with self._lock:
            return next(self._xids) & 0x7FFFFFFF

    def send(self, kind: int, body: bytes = b"") -> None:
        """Queue a message of this kind (OFPT_...)."""
        self.send_bytes(codec.message(kind, body, self.next_xid()))

    def send_frame(self, port: int, frame: bytes) -> None:
        """Queue a frame that the switch sends out of a port."""
        self.send_bytes(codec.packet_out(port, frame, self.next_xid()))

    def send_bytes(self, data: bytes) -> None:
        """Queue whole encoded messages. A switch that lets 16 MB wait is given up."""
        with self._more:
            if self.closed:
                return
            self._queue.append(data)
            self._queued_bytes += len(data)
            overflow = self._queued_bytes > _MAX_QUEUED_BYTES
            self._more.notify()
        if overflow:
            self.close(Close.NOT_READING)

    def request(self, question: codec.Question | None) -> Future[bytes]:
        """Queue a request, None for a barrier; return a future of the bodies of its reply.

        The future raises Refused when the switch answers with an error, and ConnectionError when
        the connection has ended or has too many open requests.
        """
        if question is None:
            message_kind, kind, body = ofp.OFPT_BARRIER_REQUEST, None, b""
        else:
            message_kind, kind = ofp.OFPT_MULTIPART_REQUEST, question.kind
            body = struct.pack("!H6x", kind) + question.body
        xid = self.next_xid()
        future: Future[bytes] = Future()
        with self._lock:
            if self.closed or len(self._pending) >= _MAX_PENDING:
                future.set_exception(
                    ConnectionError("closed" if self.closed else "too many open requests")
                )
                return future
            self._pending[xid] = _Request(future, kind, time.monotonic())
        self.send_bytes(codec.message(message_kind, body, xid))
        return future

    def mute_s(self, now_s: float) -> float:
        """For how many seconds the oldest open request has waited; 0 when none is open.

        Switches answer requests in order.
        """
        with self._lock:
            oldest = next(iter(self._pending.values()), None)
        return 0.0 if oldest is None else max(0.0, now_s - oldest.asked_s)

    def admitted(self) -> None:
        """Note that it is known which host this is."""
        self.datapath.ri2n_admitted()

    def barrier(self) -> Future[bytes]:
        """A future that is done when the switch has processed everything queued before."""
        return self.request(None)

    def answered(self, message: Any) -> None:
        """Take in one part of a reply. The last part completes its request.

        A switch whose reply is of another kind than its request is given up. So is one whose
        unfinished replies are too long, and of all switches the one with the longest when all
        together are too long.
        """
        wrong: Close | None = None
        longest: Channel | None = None
        with self._lock:
            request = self._pending.get(message.xid)
            if request is None:
                return
            more = getattr(message, "flags", 0) & ofp.OFPMPF_REPLY_MORE
            size = len(message.buf or b"")
            if getattr(message, "type", None) != request.kind:
                wrong = Close.WRONG_REPLY
            elif more and self._reply_bytes + size > _MAX_REPLY_BYTES:
                wrong = Close.REPLY_TOO_LONG
            else:
                request.parts.append(bytes(message.buf[ofp.OFP_MULTIPART_REPLY_SIZE :]))
                if more:
                    request.size += size
                    self._reply_bytes += size
                    longest = _unfinished.add(self, size)
                else:
                    self._finish(message.xid, request)
        if wrong is not None:
            self.close(wrong, max_bytes=_MAX_REPLY_BYTES)
        elif longest is not None:
            longest.close(Close.REPLIES_EVICTED)
        elif not more:
            request.future.set_result(b"".join(request.parts))

    def _finish(self, xid: int, request: _Request) -> None:
        """Remove an open request (the lock is held)."""
        del self._pending[xid]
        self._reply_bytes -= request.size
        _unfinished.release(self, request.size)

    def failed(self, xid: int, reason: str) -> bool:
        """Take in an error message, and return whether it belongs to an open request."""
        with self._lock:
            request = self._pending.get(xid)
            if request is None:
                return False
            self._finish(xid, request)
        request.future.set_exception(Refused(reason))
        return True

    def close(self, why: Close, **args: object) -> None:
        """Give the connection up. Open requests fail with the text of `why`, filled with `args`."""
        reason = why.text.format(**args)
        with self._more:
            if self.closed:
                return
            self.closed = True
            pending, self._pending = self._pending, {}
            self._queue.clear()
            self._more.notify()
            _unfinished.release(self)
        handler_drops.add(why.counter)
        _LOG.info("%s closed: %s", self.address, reason)
        for request in pending.values():
            request.future.set_exception(ConnectionError(reason))
        self.datapath.ri2n_end()

    def _pump(self) -> None:
        """Hand the queue to os-ken, up to some 64 KB at once, until the connection is closed."""
        while True:
            with self._more:
                while not self._queue and not self.closed:
                    self._more.wait()
                if self.closed:
                    return
                batch = []
                size = 0
                while self._queue and size < 65536:
                    data = self._queue.popleft()
                    batch.append(data)
                    size += len(data)
                self._queued_bytes -= size
            if not self.datapath.send(b"".join(batch)):
                self.close(Close.SEND_FAILED)
                return


def _own_port(connection: Any) -> int | None:
    """The TCP port of this machine's end; None when the connection has already ended."""
    try:
        return int(connection.getsockname()[1])
    except (OSError, ValueError):
        return None
