"""One switch's connection: a bounded send queue, replies as futures, and times of signs of life."""

from __future__ import annotations

import itertools
import logging
import re
import struct
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ri2n_sdn.addresses import plain_address
from ri2n_sdn.apps.openflow import handler_drops, ofp, parser
from ri2n_sdn.apps.unfinished import Unfinished

__all__ = ["ECHO", "Channel", "Refused"]

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
_unfinished: Unfinished[Channel] = Unfinished(_MAX_ALL_REPLIES_BYTES)


class Refused(Exception):
    """The switch answered a request with an error. The text has the error's type and code."""


@dataclass
class _Request:
    """An open request and the parts of its reply so far.

    `reply` is (message type, kind of multipart reply) of the message that answers it, `size` the
    bytes of all `parts`.
    """

    future: Future[list[Any]]
    reply: tuple[int, int | None]
    asked_s: float
    parts: list[Any] = field(default_factory=list)
    size: int = 0


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

    def send(self, *messages: Any) -> None:
        """Queue os-ken messages."""
        for message in messages:
            if message.xid is None:
                message.set_xid(self.next_xid())
            message.serialize()
            self.send_bytes(bytes(message.buf))

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
            self.close("does not read what it is sent")

    def request(self, message: Any) -> Future[list[Any]]:
        """Queue a request, and return a future of all parts of its reply.

        The future raises Refused when the switch answers with an error, and ConnectionError when
        the connection has ended or has too many open requests.
        """
        message.set_xid(self.next_xid())
        future: Future[list[Any]] = Future()
        with self._lock:
            if self.closed or len(self._pending) >= _MAX_PENDING:
                future.set_exception(
                    ConnectionError("closed" if self.closed else "too many open requests")
                )
                return future
            self._pending[message.xid] = _Request(future, _reply_of(message), time.monotonic())
        self.send(message)
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

    def barrier(self) -> Future[list[Any]]:
        """A future that is done when the switch has processed everything queued before."""
        return self.request(parser.OFPBarrierRequest(self.datapath))

    def answered(self, message: Any) -> None:
        """Take in one part of a reply. The last part completes its request.

        A switch whose reply is of another kind than its request is given up. So is one whose
        unfinished replies are too long, and of all switches the one with the longest when all
        together are too long.
        """
        wrong = ""
        longest: Channel | None = None
        with self._lock:
            request = self._pending.get(message.xid)
            if request is None:
                return
            more = getattr(message, "flags", 0) & ofp.OFPMPF_REPLY_MORE
            size = len(message.buf or b"")
            if (message.msg_type, getattr(message, "type", None)) != request.reply:
                wrong = "it answers something else than it was asked"
            elif more and self._reply_bytes + size > _MAX_REPLY_BYTES:
                wrong = f"its replies are longer than {_MAX_REPLY_BYTES} bytes"
            else:
                request.parts.append(message)
                if more:
                    request.size += size
                    self._reply_bytes += size
                    longest = _unfinished.add(self, size)
                else:
                    self._finish(message.xid, request)
        if wrong:
            self.close(wrong)
        elif longest is not None:
            longest.close("of all replies without an end it has the longest")
        elif not more:
            request.future.set_result(request.parts)

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

    def close(self, reason: str) -> None:
        """Give the connection up. Open requests fail with `reason`, which also names a counter."""
        with self._more:
            if self.closed:
                return
            self.closed = True
            pending, self._pending = self._pending, {}
            self._queue.clear()
            self._more.notify()
            _unfinished.release(self)
        handler_drops.add(_counter_of(reason))
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
                self.close("the connection is gone")
                return


def _counter_of(reason: str) -> str:
    """The counter of connections that were closed for a reason: its words joined by `_`.

    It ends before the first word with a digit or a colon, which is a number or an address.
    """
    words = itertools.takewhile(lambda word: not re.search(r"[\d:]", word), reason.split())
    return "_".join(("closed", *(re.sub(r"\W", "", word).lower() for word in words)))


def _reply_of(request: Any) -> tuple[int, int | None]:
    """(message type, kind of multipart reply) of the message that answers a request."""
    if request.cls_msg_type == ofp.OFPT_BARRIER_REQUEST:
        return ofp.OFPT_BARRIER_REPLY, None
    return ofp.OFPT_MULTIPART_REPLY, request.type


def _own_port(connection: Any) -> int | None:
    """The TCP port of this machine's end; None when the connection has already ended."""
    try:
        return int(connection.getsockname()[1])
    except (OSError, ValueError):
        return None
