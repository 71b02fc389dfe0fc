# SPDX-License-Identifier: Apache-2.0
"""The engine of a session: it cuts the stream into frames, reads frames, and acknowledges them.

Which link a chunk goes over is decided by schedule.py, what is sent again by stream.py; links.py
has the links themselves.
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
    max_payload_bytes,
    pack_ranges,
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

SMALL_BYTES = SEGMENT_BYTES
"""A message of up to this length is one chunk on one link."""
FRAME_BYTES = FRAME.size
unpack_frame = FRAME.unpack_from
READ_BYTES = 1 << 18
"""Bytes that one call reads from a link at most."""
MAX_READS = 8
"""Reads of one link in a row, before the other links have their turn."""
ACK_PART = 16
"""An acknowledgement is sent for each such part of the window that has been received."""
TAKEN_PART = 4
"""The new limit is sent when the program has taken such a part of the window."""
MAX_OUT = 64
"""Pieces that wait for room on a link before acknowledgements and pings are no longer added.

Otherwise a peer that asks for answers and reads none of them would fill the memory.
"""
MAX_PAUSE_S = 0.005
"""The longest wait for a link that is busy now and still better than one that is free."""
NO_ROOM_PAUSE_S = 3600.0
"""The wait of a sender that has no room or no link.

An acknowledgement or a new link wakes it, so this time is never used up.
"""
REFUSED = "refused"
"""The beginning of the reason why a link is down that the server has refused."""
LONG_CHUNK_BYTES = 1 << 14
"""Before a chunk of this length the kernel is asked again which links take more."""

_scratch = threading.local()


class Engine(Links):
    """The part of a session that speaks the protocol; `lock` is held in every method.

    `window_bytes` is how much this end takes before it acknowledges any; `peer_window_bytes` is the
    same of the peer. `link_timeout_s` is how long the session lives without a link.
    """

    def __init__(
        self,
        name: bytes,
        *,
        window_bytes: int,
        peer_window_bytes: int,
        max_chunk_bytes: int = MAX_CHUNK,
        link_timeout_s: float = 60.0,
        rejoin: Callable[[Any, int], None] | None = None,
    ) -> None:
        self.name, self.max_chunk_bytes, self.link_timeout_s = name, max_chunk_bytes, link_timeout_s
        max_unacknowledged = max(MAX_UNACKNOWLEDGED, window_bytes)
        super().__init__(
            Incoming(window_bytes), Outgoing(peer_window_bytes, max_unacknowledged), rejoin
        )
        # After `leave`: how many bytes the peer has acknowledged, and since when no more.
        self._last_progress: tuple[int, float | None] = (0, None)
        self._ack_every = max(1, window_bytes // ACK_PART)
        # Bytes that were received since the last acknowledgement.
        self._unacknowledged = 0
        # The peer wants an acknowledgement when all bytes below have been received; 0: it does not.
        self._ack_wanted = 0
        # The limit that was sent to the peer last.
        self._sent_limit = window_bytes
        # The end of what was sent over the control connection.
        self._early_end = 0
        self.active_s = time.monotonic()
        self._rests_until_s = 0.0
        caretaker.own(self)

    def _read(self, link: Link, count: int | None = None) -> None:
        """Read what a link has received, and process it.

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
                elif turn:  # TLS, which is read until there is nothing more
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
        """Process the complete frames at the front of `view[:size]`.

        Returns how many bytes they have. ProtocolError when the peer breaks a rule.
        """
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
                if length > max_payload_bytes(kind, self.max_chunk_bytes):
                    raise ProtocolError(f"a frame of kind {kind} with {length} bytes")
                if end > size:
                    break
                at = end
                if not self._take_other(link, kind, sequence, ack, limit, bytes(view[start:end])):
                    return size
                continue
            if length > self.max_chunk_bytes:
                raise ProtocolError(
                    f"a chunk of {length} bytes, but at most {self.max_chunk_bytes} were agreed"
                )
            if end > size:
                break
            at = end
            if ack > outgoing.acked or limit > outgoing.limit:
                outgoing.acknowledge(ack, limit)
            if self.closing:
                self.fail(ParallelError("the program has closed the connection"), tell="closed")
                return size
            if incoming.put(sequence, bytes(view[start:end])):
                if link.state == UP and link is not self.control:
                    self._primary = link
                if self.discards_input:
                    self.stop_reading()
            self._unacknowledged += length
            if self._unacknowledged >= self._ack_every or 0 < self._ack_wanted <= incoming.next:
                self.acknowledge(link)
        return at

    def _aborted(self, reason: bytes) -> None:
        """End the session for the reason that the peer gives."""
        text = "".join(
            character if character.isprintable() else "?"
            for character in reason.decode("utf-8", "replace")
        )
        self.fail(ConnectionResetError(f"the peer has closed the connection: {text}"), tell=None)

    def _take_other(
        self, link: Link, kind: int, sequence: int, ack: int, limit: int, payload: bytes
    ) -> bool:
        """Process a frame that carries no data; whether the session goes on."""
        if kind == ABORT:
            self._aborted(payload)
            return False
        self.outgoing.acknowledge(ack, limit, unpack_ranges(payload) if payload else ())
        if kind == PING:
            self._ack_wanted = sequence if sequence > self.incoming.next else 0
            self._answer(link, PONG, sequence)
        elif kind == FIN:
            self.incoming.finish(sequence)
            self.acknowledge(link)
        return True

    def _welcome(self, link: Link, data: bytes) -> bool:
        """Process the server's answer to a link's greeting; whether the link is welcome."""
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

    # ---- sending

    def sent_early(self, data: bytes) -> None:
        """Count the stream's first bytes, which the connecting side has sent with its greeting."""
        self._early_end = len(data)
        self.early_left = max(0, FIRST_BYTES - len(data))
        self.outgoing.cut(data, CONTROL)

    def send_some(self, data: memoryview) -> int:
        """Send as much of `data` as can go now, and return how many bytes that is.

        With 0 the caller has to wait: for `pause_s`, or, if that is None, for a link that takes
        more.
        """
        outgoing, total, done = self.outgoing, len(data), 0
        self.pause_s = None
        self._starved = self._busy = False
        if outgoing.has_again:
            self.send_again()
            if outgoing.has_again:
                self.pause_s = None if self.up else NO_ROOM_PAUSE_S
                return 0
        while done < total:
            remaining = min(total - done, outgoing.room)
            if remaining <= 0 or not (self.up or self.early_left):
                self.pause_s = NO_ROOM_PAUSE_S
                break
            link, size = self._choose(remaining)
            if link is None:
                break
            chunk = outgoing.cut(bytes(data[done : done + size]), link.number)
            done += size
            head = FRAME.pack(DATA, size, chunk.sequence, self._ack_now(), self._sent_limit)
            try:
                link.send(head, chunk.data)
            except OSError as error:
                self.lose(link, error.strerror or str(error))
                continue
            if link.out:
                self._want_flush(link)
        return done

    def _choose(self, remaining: int) -> tuple[Link | None, int]:
        """The link of the next chunk and how many of the `remaining` bytes are in it.

        None: no link takes one now, or it is better to wait for one that is busy. Without any link
        it is the control connection. A short message goes over the link that was used last, so that
        a dialogue need not ask the kernel about all links; anything else goes where schedule.py
        says.
        """
        up, link = self.up, self._primary
        if not up:
            size = min(remaining, self.early_left, self.max_chunk_bytes)
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
            size = min(remaining, self.max_chunk_bytes)
            if self._refresh(up):
                return up[0], size
            self.pause_s = None
            return None, 0
        loads = [link.look(now_s) for link in up]
        # A link whose rate is not known counts as one of average rate.
        measured_rates = [link.load.rate for link in up if link.rated]
        rate = sum(measured_rates) / len(measured_rates) if measured_rates else UNKNOWN_RATE
        for link in up:
            if not link.rated:
                link.load.rate = rate
        size = chunk_bytes(remaining, len(up), rate, self.max_chunk_bytes)
        if not all(load.writable for load in loads) or size >= LONG_CHUNK_BYTES:
            self._refresh(up)
        place = pick(loads, size, remaining)
        if place is None:
            # If a link takes more but a busy one is better, epoll would not wait. So the sender
            # waits by time: half of the time in which the shortest backlog is gone.
            soonest_s = min(load.backlog_bytes / load.rate for load in loads)
            self.pause_s = (
                min(MAX_PAUSE_S, soonest_s / 2) if any(load.writable for load in loads) else None
            )
            return None, 0
        self._primary = up[place]
        return up[place], size

    def _refresh(self, up: list[Link]) -> bool:
        """Ask the kernel which links take more; whether any does."""
        ready = {fd for fd, event in self.writable.poll(0) if event & select.EPOLLOUT}
        for link in up:
            link.load.writable = link.fd in ready and not link.out
        return bool(ready)

    def send_again(self) -> None:
        """Send the chunks of links that failed over the links that are up."""
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
                    FRAME.pack(
                        DATA, len(chunk.data), chunk.sequence, self._ack_now(), self._sent_limit
                    ),
                    chunk.data,
                )
            except OSError as error:
                self.lose(link, error.strerror or str(error))
                return  # `lose` has called this method for the rest
            if link.out:
                self._want_flush(link)
        if outgoing.end is not None and self._fin_link is None and not outgoing.done and self.up:
            self.send_fin()

    def finish(self) -> None:
        """End the stream: nothing more will be sent."""
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
        """Tell the peer what was received and how far it may send."""
        link = link if link is not None and link.state == UP else self._best() or self.control
        if self.incoming.next >= self._ack_wanted:
            self._ack_wanted = 0
        if link is not None and len(link.out) < MAX_OUT:
            self._answer(link, ACK, 0, pack_ranges(self.incoming.ranges()))

    def taken(self) -> None:
        """The program has taken something: tell the peer its new limit when it gains much room."""
        incoming = self.incoming
        if (incoming.limit - self._sent_limit) * TAKEN_PART >= incoming.window:
            self.acknowledge()

    def stop_reading(self) -> None:
        """Receive and discard everything from now on."""
        self.discards_input = True
        while self.incoming.take(self.incoming.ready):
            pass
        self.taken()

    def ask(self) -> bool:
        """Ask for an acknowledgement as soon as the peer has everything that was sent so far.

        Whether there was a connection to ask on.
        """
        link = self._best() or self.control
        if link is None:
            return False
        self._answer(link, PING, self.outgoing.next)
        return True

    def ping(self, link: Link, now_s: float) -> None:
        """Send a ping.

        TCP then has something to deliver and finds out whether the link is alive; the peer's answer
        shows that it still reads.
        """
        link.pinged_s = now_s
        if link.asked_s <= link.read_s:
            link.asked_s = now_s
        self._answer(link, PING, 0)

    def fail(self, error: ParallelError | ConnectionError, tell: str | None = "") -> None:
        """End the session with this error and tell the peer why.

        `tell` is the text for the peer; empty: the error's text; None: the peer knows already.
        """
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
                self.down[link.number] = link
            self.links.clear()
            if self.control is not None:
                self.lose(self.control, str(error))
            self.nudge()

    @property
    def finished(self) -> bool:
        """Whether both directions are complete and acknowledged."""
        return (
            self.outgoing.done
            and self.incoming.end is not None
            and self.incoming.next == self.incoming.end
        )

    # ---- helpers

    def _best(self) -> Link | None:
        """The link for a frame that does not belong to the stream; None when no link is up."""
        primary = self._primary
        if primary is not None and primary.state == UP:
            return primary
        return min(self.up, key=lambda link: link.load.backlog_bytes / link.load.rate, default=None)

    def _ack_now(self) -> int:
        """The acknowledgement for a frame that is sent now, together with the limit."""
        if not self.incoming.has_early:
            self._unacknowledged = 0
        self._sent_limit = self.incoming.limit
        return self.incoming.ack

    def _answer(self, link: Link, kind: int, sequence: int, payload: bytes = b"") -> None:
        """Send a frame that carries no data."""
        if kind in (PING, PONG) and len(link.out) >= MAX_OUT:
            return
        if kind in (ACK, FIN):
            self._unacknowledged = 0
        self._sent_limit = self.incoming.limit
        try:
            link.send(
                FRAME.pack(kind, len(payload), sequence, self.incoming.ack, self._sent_limit),
                payload,
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
    """This thread's memory to read into, valid until its next read."""
    try:
        view: memoryview = _scratch.view
    except AttributeError:
        view = _scratch.view = memoryview(bytearray(READ_BYTES + MAX_CHUNK + FRAME.size))
    return view
