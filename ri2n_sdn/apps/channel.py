"""One switch connection: a bounded queue to send by, replies as futures, and the times of its signs of life."""

from __future__ import annotations

import ipaddress
import itertools
import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

from ri2n_sdn.apps.openflow import ofp, parser

__all__ = ["Channel", "Refused"]

_LOG = logging.getLogger("ri2n.channel")
_MAX_QUEUED_BYTES = 16 << 20
_MAX_PENDING = 4096


class Refused(Exception):
    """The switch answered a request with an error: (type, code)."""


class Channel:
    """Sends without ever blocking the caller: os-ken's own queue holds 16 messages and then waits for the switch."""

    def __init__(self, datapath: Any) -> None:
        self.datapath = datapath
        self.reached_at: tuple[str, int] | None = _plain_address(datapath.socket)
        """The controller's own address and port as this switch knows them."""
        self.heard_s = time.monotonic()
        self.answered_s = -1e9
        """When the newest of discovery's echo requests that were answered was sent."""
        self.closed = False
        self._xids = itertools.count(1)
        self._lock = threading.Lock()
        self._more = threading.Condition(self._lock)
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._pending: dict[int, tuple[Future[list[Any]], list[Any]]] = {}
        threading.Thread(target=self._pump, name=f"send-{datapath.id:x}", daemon=True).start()

    @property
    def address(self) -> str:
        return str(self.datapath.address[0])

    def next_xid(self) -> int:
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
        """Queue whole encoded messages; a switch that lets 16 MB wait is given up."""
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
        """Queue a request; the future gives all parts of its reply, or raises Refused or ConnectionError."""
        message.set_xid(self.next_xid())
        future: Future[list[Any]] = Future()
        with self._lock:
            if self.closed or len(self._pending) >= _MAX_PENDING:
                future.set_exception(ConnectionError("closed" if self.closed else "too many open requests"))
                return future
            self._pending[message.xid] = (future, [])
        self.send(message)
        return future

    def barrier(self) -> Future[list[Any]]:
        """A future that is done when the switch has processed everything queued before."""
        return self.request(parser.OFPBarrierRequest(self.datapath))

    def answered(self, message: Any) -> None:
        """A reply has come: complete its request when it is the last part."""
        with self._lock:
            entry = self._pending.get(message.xid)
            if entry is None:
                return
            future, parts = entry
            parts.append(message)
            if getattr(message, "flags", 0) and message.flags & ofp.OFPMPF_REPLY_MORE and len(parts) < 65536:
                return
            del self._pending[message.xid]
        future.set_result(parts)

    def failed(self, xid: int, reason: str) -> bool:
        """An error has come; true when it belonged to a request."""
        with self._lock:
            entry = self._pending.pop(xid, None)
        if entry is None:
            return False
        entry[0].set_exception(Refused(reason))
        return True

    def close(self, reason: str) -> None:
        """Give the connection up; open requests fail."""
        with self._more:
            if self.closed:
                return
            self.closed = True
            pending, self._pending = self._pending, {}
            self._queue.clear()
            self._more.notify()
        _LOG.info("%s closed: %s", self.address, reason)
        for future, _ in pending.values():
            future.set_exception(ConnectionError(reason))
        self.datapath.close()

    def _pump(self) -> None:
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


def _plain_address(connection: Any) -> tuple[str, int] | None:
    """The near end of a connection; IPv4 in its own notation, None when it cannot be had or is this machine's."""
    try:
        host, port = connection.getsockname()[:2]
        address = ipaddress.ip_address(host.partition("%")[0])
    except (OSError, ValueError):
        return None
    mapped = getattr(address, "ipv4_mapped", None) or address
    return None if mapped.is_loopback else (str(mapped), int(port))
