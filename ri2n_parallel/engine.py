"""A session's engine:

both directions of the stream over its links, and what is done when a link says something.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from ri2n_parallel import caretaker
from ri2n_parallel.errors import AllLinksLost, ParallelError, ProtocolError
from ri2n_parallel.frames import (
    ABORT,
    ACK,
    DATA,
    FIN,
    FRAME,
    MAX_CHUNK,
    MAX_REASON,
    OK,
    PING,
    PONG,
    REASONS,
    UNKNOWN_SESSION,
    Reply,
    pack_ranges,
    payload_most,
    unpack_ranges,
)
from ri2n_parallel.link import DOWN, UP, Link
from ri2n_parallel.links import CLOSED, CONTROL, Links
from ri2n_parallel.schedule import FIRST_BYTES, SEGMENT_BYTES, UNKNOWN_RATE, chunk_bytes, pick
from ri2n_parallel.stream import MAX_UNACKNOWLEDGED, Incoming, Outgoing

__all__ = [
    "MAX_OUT",
    "READ_BYTES",
    "REFUSED",
    "SMALL_BYTES",
    "TAKEN_PART",
    "Engine",
    "scratch_view",
]

SMALL_BYTES = SEGMENT_BYTES  # a message up to this length is one chunk on one link
FRAME_BYTES = FRAME.size
unpack_frame = FRAME.unpack_from
READ_BYTES = 1 << 18
MAX_READS = 8  # of one link before the others have their turn
ACK_PART = 16  # acknowledge each such part of the window that came ...
TAKEN_PART = 4  # ... or that the program took
MAX_OUT = 64  # pieces that wait for a link before acknowledgements no longer join them
MAX_PAUSE_S = 0.005
ROOMLESS_S = 3600.0  # until an acknowledgement or a link comes, which wakes by itself
REFUSED = "refused"

_scratch = threading.local()


class Engine(Links):
    """The part of a session that speaks the protocol; `lock` is held in every method."""

    def __init__(
        self,
        name: bytes,
        *,
        window_bytes: int,
        peer_window_bytes: int,
        chunk_most: int = MAX_CHUNK,
        link_timeout_s: float = 60.0,
        rejoin: Callable[[Any, int], None] | None = None,
    ) -> None:
        self.name, self.chunk_most, self.link_timeout_s = name, chunk_most, link_timeout_s
        most = max(MAX_UNACKNOWLEDGED, window_bytes)
        super().__init__(Incoming(window_bytes), Outgoing(peer_window_bytes, most), rejoin)
        self._lingers: tuple[int, float | None] = (
            0,
            None,
        )  # after `closing`: bytes that were acknowledged since then
        self._ack_every = max(1, window_bytes // ACK_PART)
        self._unacknowledged = 0  # bytes that came since the last acknowledgement
        self._wanted = 0  # the peer asks to be told when all bytes below have come
        self._told = window_bytes  # the limit that the peer was told last
        self._early_end = 0  # of what went over the control connection
        self.active_s = time.monotonic()
        self._rests_until_s = 0.0
        caretaker.own(self)

    def _read(self, link: Link, count: int | None = None) -> None:
        """Read what has come over a link and take it.

        `count` bytes of it are in the scratch memory already.
        """
        view = scratch_view()
        for turn in range(MAX_READS):
            rest = link.rest
            kept = len(rest)
            if kept:
                view[:kept] = rest
            try:
                if turn or not count:
                    count = link.read_into(view[kept : kept + READ_BYTES])
            except OSError as error:
                self.lose(link, error.strerror or str(error))
                return
            if not count:
                if count == 0:
                    self.lose(link, CLOSED)
                elif turn:  # TLS is read until there is nothing more
                    break
                return
            size = kept + count
            try:
                used = self._take(link, view, size)
            except ProtocolError as error:
                self.counters["protocol_errors"] += 1
                name = "the control connection" if link is self.control else f"link {link.number}"
                self.fail(ProtocolError(f"{name} ({link.remote}): {error}"))
                return
            link.rest = bytes(view[used:size]) if used < size else b""
            if link.state == DOWN or (count < READ_BYTES and not link.is_tls):
                break
        link.read_s = self.active_s = time.monotonic()

    def _take(self, link: Link, view: memoryview, size: int) -> int:
        """Frames at the front of `view[:size]`; how many bytes they were."""
        at = 0
        if link.awaiting:
            if size < link.awaiting:
                return 0
            at = link.awaiting
            if not self._welcome(link, bytes(view[:at])):
                return size
        incoming, outgoing = self.incoming, self.outgoing
        while size - at >= FRAME_BYTES:
            kind, length, sequence, ack, limit = unpack_frame(view, at)
            start = at + FRAME_BYTES
            end = start + length
            if kind != DATA:
                if length > payload_most(kind, self.chunk_most):
                    raise ProtocolError(f"a frame of kind {kind} with {length} bytes")
                if end > size:
                    break
                at = end
                if not self._take_other(link, kind, sequence, ack, limit, bytes(view[start:end])):
                    return size
                continue
            if length > self.chunk_most:
                raise ProtocolError(f"a chunk of {length} bytes, {self.chunk_most} were agreed")
            if end > size:
                break
            at = end
            if ack > outgoing.acked or limit > outgoing.limit:
                outgoing.acknowledge(ack, limit)
            if self.closing:
                self.fail(ParallelError("the program has closed it"), tell="closed")
                return size
            if incoming.put(sequence, bytes(view[start:end])):
                if link.state == UP and link is not self.control:
                    self._primary = link
                if self.deaf:
                    self.stop_reading()
            self._unacknowledged += length
            if self._unacknowledged >= self._ack_every or 0 < self._wanted <= incoming.next:
                self.acknowledge(link)
        return at

    def _aborted(self, reason: bytes) -> None:
        """The peer says why it ends the session."""
        text = "".join(
            each if each.isprintable() else "?" for each in reason.decode("utf-8", "replace")
        )
        self.fail(ConnectionResetError(f"the peer has closed the connection: {text}"), tell=None)

    def _take_other(
        self, link: Link, kind: int, sequence: int, ack: int, limit: int, payload: bytes
    ) -> bool:
        """A frame that is no data; whether the session goes on."""
        if kind == ABORT:
            self._aborted(payload)
            return False
        self.outgoing.acknowledge(ack, limit, unpack_ranges(payload) if payload else ())
        if kind == PING:
            self._wanted = sequence if sequence > self.incoming.next else 0
            self._answer(link, PONG, sequence)
        elif kind == FIN:
            self.incoming.finish(sequence)
            self.acknowledge(link)
        return True

    def _welcome(self, link: Link, data: bytes) -> bool:
        """The server's answer to a link's greeting; whether it is welcome."""
        link.awaiting = 0
        Reply.more(data)
        status = Reply.unpack(data).status
        if status == OK:
            return True
        why = REASONS.get(status, f"status {status}")
        self.lose(link, f"{REFUSED}: {why}")
        if status == UNKNOWN_SESSION and not self.up:
            self.fail(AllLinksLost(f"{link.remote}: {why}"))
        return False

    # ---- what goes out

    def went_early(self, data: bytes) -> None:
        """The connecting side has sent the stream's first bytes with its greeting."""
        self._early_end = len(data)
        self.early_left = max(0, FIRST_BYTES - len(data))
        self.outgoing.cut(data, CONTROL)

    def send_some(self, data: memoryview) -> int:
        """Send what can go now: how many bytes of `data`. Zero:

        room or a writable link has to be waited for.
        """
        outgoing, total, done = self.outgoing, len(data), 0
        self.pause_s = None
        self._starved = self._busy = False
        if outgoing.has_again:
            self.send_again()
            if outgoing.has_again:
                self.pause_s = None if self.up else ROOMLESS_S
                return 0
        while done < total:
            remaining = min(total - done, outgoing.room)
            if remaining <= 0 or not (self.up or self.early_left):
                self.pause_s = ROOMLESS_S
                break
            link, size = self._choose(remaining)
            if link is None:
                break
            chunk = outgoing.cut(bytes(data[done : done + size]), link.number)
            done += size
            head = FRAME.pack(DATA, size, chunk.sequence, self._ack_now(), self._told)
            try:
                link.send(head, chunk.data)
            except OSError as error:
                self.lose(link, error.strerror or str(error))
                continue
            if link.out:
                self._want_flush(link)
        return done

    def _choose(self, remaining: int) -> tuple[Link | None, int]:
        up, link = self.up, self._primary
        if not up:
            size = min(remaining, self.early_left, self.chunk_most)
            self.early_left -= size
            self._early_end = self.outgoing.next + size
            return self.control, size
        now_s = time.monotonic()
        if (
            link is not None
            and link.load.writable
            and remaining <= SMALL_BYTES
            and not self.outgoing.waiting_bytes
        ):
            return link, remaining
        if len(up) == 1:
            size = min(remaining, self.chunk_most)
            if self._refresh(up):
                return up[0], size
            self.pause_s = None
            return None, 0
        loads = [link.look(now_s) for link in up]
        known = [link.load.rate for link in up if link.rated]
        rate = sum(known) / len(known) if known else UNKNOWN_RATE
        for link in up:
            if not link.rated:
                link.load.rate = rate
        size = chunk_bytes(remaining, len(up), rate, self.chunk_most)
        if not all(load.writable for load in loads) or size >= 1 << 14:
            self._refresh(up)
        place = pick(loads, size, remaining)
        if place is None:
            soonest_s = min(load.backlog_bytes / load.rate for load in loads)
            self.pause_s = (
                min(MAX_PAUSE_S, soonest_s / 2) if any(load.writable for load in loads) else None
            )
            return None, 0
        self._primary = up[place]
        return up[place], size

    def _refresh(self, up: list[Link]) -> bool:
        """Ask which links take more; whether any does."""
        ready = {fd for fd, event in self.writable.poll(0) if event & select.EPOLLOUT}
        for link in up:
            link.load.writable = link.fd in ready and not link.out
        return bool(ready)

    def send_again(self) -> None:
        """Chunks of links that failed, over those that are there."""
        outgoing = self.outgoing
        while outgoing.has_again and self.up:
            chunk = outgoing.again()
            if chunk is None:
                return
            now_s = time.monotonic()
            self._refresh(self.up)
            place = pick([link.look(now_s) for link in self.up], len(chunk.data), len(chunk.data))
            if place is None:
                outgoing.put_back(chunk)
                return
            link = self.up[place]
            chunk.link = link.number
            self.counters["resent_chunks"] += 1
            self.counters["resent_bytes"] += len(chunk.data)
            try:
                link.send(
                    FRAME.pack(DATA, len(chunk.data), chunk.sequence, self._ack_now(), self._told),
                    chunk.data,
                )
            except OSError as error:
                self.lose(link, error.strerror or str(error))
                return  # which has called this
            if link.out:
                self._want_flush(link)
        if outgoing.end is not None and self._fin_link is None and not outgoing.done and self.up:
            self.send_fin()

    def finish(self) -> None:
        """Nothing more will be sent."""
        if self.outgoing.end is None:
            self.outgoing.end = self.outgoing.next
            self.send_fin()

    def send_fin(self) -> None:
        """Tell the peer the stream's length."""
        link = self._best()
        if link is not None and self.outgoing.end is not None:
            self._fin_link = link
            self._answer(link, FIN, self.outgoing.end)

    def acknowledge(self, link: Link | None = None) -> None:
        """Tell the peer what came and how far it may send."""
        link = link if link is not None and link.state == UP else self._best() or self.control
        if self.incoming.next >= self._wanted:
            self._wanted = 0
        if link is not None and len(link.out) < MAX_OUT:
            self._answer(link, ACK, 0, pack_ranges(self.incoming.ranges()))

    def taken(self) -> None:
        """The program has taken something: tell the peer when that gives it much room."""
        incoming = self.incoming
        if (incoming.limit - self._told) * TAKEN_PART >= incoming.window:
            self.acknowledge()

    def stop_reading(self) -> None:
        """What comes from now on is taken and forgotten."""
        self.deaf = True
        while self.incoming.take(self.incoming.ready):
            pass
        self.taken()

    def ask(self) -> bool:
        """Have the peer acknowledge as soon as it has everything that was sent so far.

        Whether there is a way.
        """
        link = self._best() or self.control
        if link is None:
            return False
        self._answer(link, PING, self.outgoing.next)
        return True

    def ping(self, link: Link, now_s: float) -> None:
        """Have something on the way, so that TCP finds out whether the link is alive."""
        link.pinged_s = now_s
        if link.asked_s <= link.read_s:
            link.asked_s = now_s
        self._answer(link, PING, 0)

    def fail(self, error: ParallelError | ConnectionError, tell: str | None = "") -> None:
        """It is over; `tell` the peer why (empty: the error's text; None: it knows)."""
        if self.broken is None and not self.closed:
            self.broken = error
            if tell is not None:
                text = (tell or str(error)).encode()[:MAX_REASON]
                frame = FRAME.pack(ABORT, len(text), 0, 0, 0)
                for link in [*filter(None, [self.control]), *self.links.values()]:
                    with contextlib.suppress(OSError):
                        if not link.out:
                            link.send(frame, text)
            for link in list(self.links.values()):
                self._remove(link, str(error))
                self.gone[link.number] = link
            self.links.clear()
            if self.control is not None:
                self.lose(self.control, str(error))
            self.nudge()

    @property
    def finished(self) -> bool:
        """Both directions are complete and acknowledged."""
        return (
            self.outgoing.done
            and self.incoming.end is not None
            and self.incoming.next == self.incoming.end
        )

    # ---- small things

    def _best(self) -> Link | None:
        primary = self._primary
        if primary is not None and primary.state == UP:
            return primary
        return min(self.up, key=lambda link: link.load.backlog_bytes / link.load.rate, default=None)

    def _ack_now(self) -> int:
        """What a frame acknowledges; it tells the limit too."""
        if not self.incoming.has_early:
            self._unacknowledged = 0
        self._told = self.incoming.limit
        return self.incoming.ack

    def _answer(self, link: Link, kind: int, sequence: int, payload: bytes = b"") -> None:
        if kind in (PING, PONG) and len(link.out) >= MAX_OUT:
            return  # a peer that asks and asks and reads no answer
        if kind in (ACK, FIN):
            self._unacknowledged = 0
        self._told = self.incoming.limit
        try:
            link.send(
                FRAME.pack(kind, len(payload), sequence, self.incoming.ack, self._told), payload
            )
        except OSError as error:
            self.lose(link, error.strerror or str(error))
            return
        if link.out:
            self._want_flush(link)

    def _flush(self, link: Link) -> None:
        try:
            if link.flush():
                self.events.modify(link.fd, select.EPOLLIN)
        except OSError as error:
            self.lose(link, error.strerror or str(error))


def scratch_view() -> memoryview:
    """This thread's memory to read into."""
    try:
        view: memoryview = _scratch.view
    except AttributeError:
        view = _scratch.view = memoryview(bytearray(READ_BYTES + MAX_CHUNK + FRAME.size))
    return view
