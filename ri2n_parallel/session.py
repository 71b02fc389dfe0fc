# SPDX-License-Identifier: Apache-2.0
"""A session: its engine, a fast path for short messages, and all that depends on time.

The thread that calls a socket does its work. There is no thread per socket, since that would have
to be woken twice per round trip. What has to happen while no thread calls is done by the caretaker
(caretaker.py), which calls `Session.care`.
"""

from __future__ import annotations

import errno
import os
import select
import time

from ri2n_parallel import caretaker
from ri2n_parallel.engine import READ_BYTES, REFUSED, TAKEN_PART, Engine, scratch_view
from ri2n_parallel.errors import AllLinksLost, ParallelError
from ri2n_parallel.frames import DATA, FRAME
from ri2n_parallel.link import DOWN, SUSPECT, UP, Link
from ri2n_parallel.links import CLOSED, CONTROL

__all__ = ["Session"]

FRAME_BYTES = FRAME.size
READABLE = select.EPOLLIN
PING_S, IDLE_PING_S, ACTIVE_S = 0.5, 10.0, 3.0
"""Seconds between pings on a link that receives nothing: PING_S while the session is active.

It is active for ACTIVE_S after it received something; later the pause is IDLE_PING_S.
"""
MAX_SUSPECT_S = 1.5
"""How long a suspect link makes no progress before its connection is given up."""
CALM_S, REST_S = 1.0, 0.5
"""After CALM_S seconds without traffic a session is examined every REST_S seconds only."""
ANSWER_S = 0.5
"""Time for the peer to answer a ping: what is received later shows that it could have answered."""
ABANDONED_S = 1.0
"""Time for links to come back after the peer has closed or reset all of them."""
PEER_ENDED = (CLOSED, REFUSED, os.strerror(errno.ECONNRESET), os.strerror(errno.EPIPE))
"""Reasons for which links go down when the peer's program has ended."""
unpack_frame = FRAME.unpack_from


class Session(Engine):
    """Everything but the calls of programs (connection.py); `lock` is held in every method."""

    # ---- dialogues

    def receive_small(self, max_bytes: int, timeout_s: float | None) -> memoryview | None:
        """Wait for a message that is one whole chunk and nothing else, and take it.

        In a dialogue this is the usual case, and here it costs half as much as by `wait`, `put` and
        `take`; every other case goes that way. The bytes are valid until the next call. None when
        something else was received, nothing came in time, or another thread waits: the caller has
        to look at `incoming` and may have to wait again.
        """
        if self._leader:
            return None
        lock, incoming, outgoing = self.lock, self.incoming, self.outgoing
        self._leader = True
        lock.release()
        events: list[tuple[int, int]] = []
        try:
            events = self.events.poll(timeout_s)
        finally:
            lock.acquire()
            self._leader = False
        link = None
        if len(events) == 1 and not (self._followers or self.closed or self.watched):
            fd, event = events[0]
            if event == READABLE:
                link = self._by_fd.get(fd)
        if link is None or link.rest or link.is_tls or link.awaiting:
            self.handle_polled(events)
            return None
        view = scratch_view()
        try:
            count = link.stream.recv_into(view, READ_BYTES)
        except OSError:
            count = 0  # `_read` reads again and gets the same error
        link.received_bytes += count
        if count <= FRAME_BYTES:
            self._read(link, count)
            return None
        kind, length, sequence, ack, limit = unpack_frame(view)
        end, start = sequence + length, incoming.taken
        if (
            kind != DATA
            or length + FRAME_BYTES != count
            or length > max_bytes
            or length > self.max_chunk_bytes
            or sequence != start
            or incoming.next != start
            or incoming.end is not None
            or incoming.has_early
            or ack > outgoing.next
            or self._ack_wanted
            or self._unacknowledged + length >= self._ack_every
            or self.closing
            or self.discards_input
            or length > incoming.window
        ):
            self._read(link, count)
            return None
        if ack > outgoing.acked or limit > outgoing.limit:
            outgoing.acknowledge(ack, limit)
        incoming.next = incoming.taken = end
        self._unacknowledged += length
        if link.state == UP and link is not self.control:
            self._primary = link
        link.read_s = self.active_s = time.monotonic()
        if (end + incoming.window - self._sent_limit) * TAKEN_PART >= incoming.window:
            self.acknowledge()
        return view[FRAME_BYTES:count]

    def send_small(self, data: bytes) -> bool:
        """Send a short message as one chunk, if everything before it has been acknowledged.

        As `receive_small`, this is the usual case of a dialogue. False when it cannot be done: then
        the caller has to use `send_some`.
        """
        link, outgoing, incoming = self._primary, self.outgoing, self.incoming
        first = outgoing.next
        if (
            link is None
            or outgoing.acked != first
            or link.out
            or outgoing.end is not None
            or self.broken
        ):
            return False
        if len(data) > outgoing.limit - first:
            return False
        outgoing.cut(data, link.number)
        if not incoming.has_early:
            self._unacknowledged = 0
        self._sent_limit = incoming.taken + incoming.window
        try:
            link.send_alone(
                FRAME.pack(DATA, len(data), first, incoming.ack, self._sent_limit) + data
            )
        except OSError as error:
            self.lose(link, error.strerror or str(error))
            return True
        if link.out:
            self._want_flush(link)
        return True

    # ---- the end

    def leave(self) -> None:
        """The program has closed the connection: deliver what was sent, then close.

        If there is data that the program has not read, close at once and tell the peer.
        """
        if self.closed:
            return
        self.closing = True
        if self.broken:
            self.close()
        elif self.incoming.ready:
            self.fail(
                ConnectionAbortedError("closed with data unread"), tell="closed with data unread"
            )
            self.close()
        else:
            self.finish()
            if self.finished:
                self.close()
            else:
                self.nudge()  # threads that wait in a call learn that it is closed

    def close(self) -> None:
        """Close all links and free everything; nothing is sent any more."""
        if self.closed:
            return
        self.closed = True
        for link in [*self.links.values(), *filter(None, [self.control])]:
            self._remove(link, "closed") if link is not self.control else self.lose(link, "closed")
        self.links.clear()
        self.up.clear()
        caretaker.remove(self)
        if self._leader or self._followers:
            self.nudge()
        else:
            self.release()
        if self.on_closed:
            self.on_closed(self)

    # ---- time

    def care(self, now_s: float) -> None:
        """Do what is due while no thread calls; the caretaker calls this every CARE_S."""
        if self.closed or now_s < self._rests_until_s:
            return
        if self.abandoned and not self.closing:
            self.leave()
            if self.closed:
                return
        if not self._leader and not self.broken:
            self.poll()
            if self._followers:
                self._changed.notify_all()
        if self.broken:
            if self.closing:
                self.close()
            return
        for link in list(self.links.values()):
            self._examine(link, now_s)
        if (
            self.outgoing.acked < self._early_end
            and self.control is not None
            and self.control.stuck(now_s)
        ):
            self.outgoing.lost(CONTROL)
        if self._unacknowledged:
            self.acknowledge()
        self.send_again()
        self._check_links_left(now_s)
        calm = (
            not self.outgoing.waiting_bytes and not self.closing and self._no_link_since_s is None
        )
        if calm and now_s - self.active_s > CALM_S:
            self._rests_until_s = now_s + REST_S
        if self.closing:
            self._linger(now_s)
            if self.finished or self.broken or self.outgoing.done:
                self.close()

    def _linger(self, now_s: float) -> None:
        """Fail when the peer acknowledges nothing for `link_timeout_s` after the program's close.

        No program waits for such a session any more, so nothing else would ever end it.
        """
        acked, since_s = self._last_progress
        if since_s is None or acked != self.outgoing.acked:
            self._last_progress = self.outgoing.acked, now_s
        elif now_s - since_s > self.link_timeout_s:
            self.fail(
                ParallelError(f"closed, and the peer took nothing for {now_s - since_s:.0f} s")
            )

    def _examine(self, link: Link, now_s: float) -> None:
        """Ping a link when that is due, and change its state when it is stuck or works again.

        Nothing can be said about a link with no data on the way and no ping within ACTIVE_S, so it
        is left alone. One that is stuck becomes suspect: its bytes go over the other links, and it
        recovers as soon as it makes progress. After MAX_SUSPECT_S without progress it is given up,
        as long as another link is up.
        """
        quiet_s = now_s - max(link.read_s, link.pinged_s)
        if quiet_s > (PING_S if now_s - self.active_s < ACTIVE_S else IDLE_PING_S):
            self.ping(link, now_s)
        if link.state == DOWN:
            return
        if (
            not self.outgoing.waiting_bytes
            and now_s - link.pinged_s > ACTIVE_S
            and link.state == UP
        ):
            return
        why = link.stuck(now_s) or self._silent(link, now_s)
        if why is None:
            if link.state == SUSPECT and link.progress_s >= now_s - PING_S:
                self.recover(link)
        elif link.state == UP:
            self.suspect(link, why)
        elif now_s - link.progress_s > MAX_SUSPECT_S and self.up:
            self.lose(link, link.why or why)

    def _silent(self, link: Link, now_s: float) -> str | None:
        """Why a link is taken to be dead whose pings nobody answers.

        This counts only while other links receive something: otherwise the peer is just busy.
        """
        why = link.unanswered(now_s)
        if why and any(other.read_s > link.asked_s + ANSWER_S for other in self.links.values()):
            return why
        return None

    def _check_links_left(self, now_s: float) -> None:
        """Fail when no link has been up for `link_timeout_s`.

        If the peer itself has ended every link, its program has most likely ended: then ABANDONED_S
        is enough.
        """
        if self._no_link_since_s is None or self.finished:
            return
        linkless_s = now_s - self._no_link_since_s
        ended_by_peer = [
            link for link in self.down.values() if str(link.why).startswith(PEER_ENDED)
        ]
        peer_has_ended = (
            len(ended_by_peer) == len(self.down) > 0 and not self.links and linkless_s > ABANDONED_S
        )
        if linkless_s > self.link_timeout_s or peer_has_ended:
            links = sorted(
                [*self.links.values(), *self.down.values()], key=lambda link: link.number
            )
            reasons = [
                f"link {link.number} ({link.local} to {link.remote}): {link.why}" for link in links
            ]
            self.fail(
                AllLinksLost(
                    f"no link for {linkless_s:.1f} s: "
                    f"{'; '.join(reasons) or 'there has never been one'}"
                )
            )
