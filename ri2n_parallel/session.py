"""A session: its engine, short cuts for dialogues, and what has to happen as time goes by.

Whoever calls a socket does its work; there is no thread per socket. (A thread would have to be
woken twice per round trip.) What has to happen while nobody calls is the caretaker's
(caretaker.py).
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
MAX_SUSPECT_S = 1.5  # until a suspect connection is given up
CALM_S, REST_S = 1.0, 0.5  # after a second without traffic it is looked at twice a second
ANSWER_S = 0.5  # after a ping: what was heard later shows that the peer had time to answer it
ABANDONED_S = 1.0  # for links to come back after the peer has closed or reset all of them
LEFT = (
    CLOSED,
    REFUSED,
    os.strerror(errno.ECONNRESET),
    os.strerror(errno.EPIPE),
)  # why links die with their peer
unpack_frame = FRAME.unpack_from


class Session(Engine):
    """Everything but the calls that users make (connection.py); `lock` is held in every method."""

    # ---- dialogues

    def receive_small(self, most: int, timeout_s: float | None) -> memoryview | None:
        """Wait for a message that is one chunk and all that there is, and take it at once; valid
        until the next call.

        None when something else has come, or nothing in time, or another thread waits: look again.
        (What is usual in a dialogue costs half as much here as by `wait`, `put` and `take`;
        whatever is unusual goes that way.)
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
            self.came(events)
            return None
        view = scratch_view()
        try:
            count = link.stream.recv_into(view, READ_BYTES)
        except OSError:
            count = 0  # which is seen again when it is read again
        link.received_bytes += count
        if count <= FRAME_BYTES:
            self._read(link, count)
            return None
        kind, length, sequence, ack, limit = unpack_frame(view)
        end, start = sequence + length, incoming.taken
        if (
            kind != DATA
            or length + FRAME_BYTES != count
            or length > most
            or length > self.chunk_most
            or sequence != start
            or incoming.next != start
            or incoming.end is not None
            or incoming.has_early
            or ack > outgoing.next
            or self._wanted
            or self._unacknowledged + length >= self._ack_every
            or self.closing
            or self.deaf
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
        if (end + incoming.window - self._told) * TAKEN_PART >= incoming.window:
            self.acknowledge()
        return view[FRAME_BYTES:count]

    def send_small(self, data: bytes) -> bool:
        """A message that nothing else waits before, in one go; False when that cannot be:

        use `send_some`.
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
        self._told = incoming.taken + incoming.window
        try:
            link.send_alone(FRAME.pack(DATA, len(data), first, incoming.ack, self._told) + data)
        except OSError as error:
            self.lose(link, error.strerror or str(error))
            return True
        if link.out:
            self._want_flush(link)
        return True

    # ---- the end

    def leave(self) -> None:
        """The program has closed it: what was sent is still delivered."""
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
                self.nudge()  # threads that wait in a call: it is closed

    def close(self) -> None:
        """Give everything back; nothing is sent any more."""
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
        """What has to happen without anybody's call, every CARE_S."""
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
        self._in_the_dark(now_s)
        calm = not self.outgoing.waiting_bytes and not self.closing and self._dark_s is None
        if calm and now_s - self.active_s > CALM_S:
            self._rests_until_s = now_s + REST_S
        if self.closing:
            self._linger(now_s)
            if self.finished or self.broken or self.outgoing.done:
                self.close()

    def _linger(self, now_s: float) -> None:
        """Nobody holds it any more: a peer that takes nothing must not keep it for ever."""
        acked, since_s = self._lingers
        if since_s is None or acked != self.outgoing.acked:
            self._lingers = self.outgoing.acked, now_s
        elif now_s - since_s > self.link_timeout_s:
            self.fail(
                ParallelError(f"closed, and the peer took nothing for {now_s - since_s:.0f} s")
            )

    def _examine(self, link: Link, now_s: float) -> None:
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
            return  # nothing is on the way
        why = link.stuck(now_s) or self._silent(link, now_s)
        if why is None:
            if link.state == SUSPECT and link.progress_s >= now_s - PING_S:
                self.recover(link)
        elif link.state == UP:
            self.suspect(link, why)
        elif now_s - link.progress_s > MAX_SUSPECT_S and self.up:
            self.lose(link, link.why or why)

    def _silent(self, link: Link, now_s: float) -> str | None:
        """Why a link is dead whose pings nobody answers. Only while others are heard:

        else the peer is just busy.
        """
        why = link.unanswered(now_s)
        if why and any(other.read_s > link.asked_s + ANSWER_S for other in self.links.values()):
            return why
        return None

    def _in_the_dark(self, now_s: float) -> None:
        if self._dark_s is None or self.finished:
            return
        dark_s = now_s - self._dark_s
        over = [link for link in self.gone.values() if str(link.why).startswith(LEFT)]
        peer_is_gone = len(over) == len(self.gone) > 0 and not self.links and dark_s > ABANDONED_S
        if dark_s > self.link_timeout_s or peer_is_gone:
            last = sorted([*self.links.values(), *self.gone.values()], key=lambda link: link.number)
            each = [
                f"link {link.number} ({link.local} to {link.remote}): {link.why}" for link in last
            ]
            self.fail(
                AllLinksLost(
                    f"no link for {dark_s:.1f} s: {'; '.join(each) or 'none was ever there'}"
                )
            )
