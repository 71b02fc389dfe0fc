# SPDX-License-Identifier: Apache-2.0
"""Pure: the two directions of a session's stream, with what is not acknowledged or not in order.

Bytes are numbered from 0 in each direction. The number of its first byte identifies a chunk
(user-level RI2N, section 3.3; here chunks have different lengths). The receiver says how far the
sender may go, so what waits is bounded on both sides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from ri2n_parallel.errors import ProtocolError
from ri2n_parallel.frames import MAX_RANGES

__all__ = ["MAX_CHUNKS", "MAX_UNACKNOWLEDGED", "Chunk", "Incoming", "Outgoing"]

MAX_CHUNKS = 1 << 16
"""Chunks that are sent and not acknowledged, or received before their turn.

Each costs memory however short it is, so their number is bounded on both sides.
"""
MAX_UNACKNOWLEDGED = 1 << 26
"""Bytes that are sent and not acknowledged.

Without this bound a peer could set a high limit, acknowledge nothing and fill this end's memory.
"""
OVERLAP = "the peer's chunks overlap"


class Chunk:
    """Bytes that were sent over link number `link`, until they are acknowledged."""

    __slots__ = ("data", "end", "link", "sequence")

    def __init__(self, sequence: int, data: bytes, link: int) -> None:
        self.sequence, self.end, self.data, self.link = sequence, sequence + len(data), data, link


class Outgoing:
    """The sending direction; `limit` is the number of the first byte that must not be sent yet.

    However much the peer allows, at most `max_bytes` and MAX_CHUNKS chunks wait for their
    acknowledgement.
    """

    def __init__(self, limit: int, max_bytes: int = MAX_UNACKNOWLEDGED) -> None:
        self.max_bytes = max_bytes
        # The number of the next byte that is sent for the first time.
        self.next = 0
        # The peer has all bytes below.
        self.acked = 0
        self.limit = limit
        # The length of the stream, once it is known. Its acknowledgement counts one byte more.
        self.end: int | None = None
        # Chunks that are sent and not acknowledged, in the order in which they were cut.
        self._waiting: dict[int, Chunk] = {}
        # Chunks that have to be sent again.
        self._again: deque[Chunk] = deque()

    @property
    def room(self) -> int:
        """Bytes that may be sent now."""
        if len(self._waiting) >= MAX_CHUNKS:
            return 0
        return min(self.limit, self.acked + self.max_bytes) - self.next

    @property
    def waiting_bytes(self) -> int:
        """Bytes from the first one that is not acknowledged to the last one sent."""
        return max(0, self.next - self.acked)

    @property
    def done(self) -> bool:
        """Whether the peer has everything, and knows that it is all."""
        return self.end is not None and self.acked > self.end

    @property
    def has_again(self) -> bool:
        """Whether chunks have to be sent again."""
        return bool(self._again)

    def cut(self, data: bytes, link: int) -> Chunk:
        """The next bytes of the stream as a chunk that goes over `link`.

        There must be room for them.
        """
        chunk = Chunk(self.next, data, link)
        self._waiting[self.next] = chunk
        self.next += len(data)
        return chunk

    def acknowledge(self, ack: int, limit: int, ranges: Sequence[tuple[int, int]] = ()) -> bool:
        """Note what the peer has received and how far this end may send; whether that was new.

        `ack` and `limit` are those of a frame, `ranges` are (first, end) of what the peer received
        before its turn. ProtocolError for bytes that were never sent.
        """
        if ack > self.next + (self.end is not None):
            raise ProtocolError(
                f"the peer acknowledges {ack} bytes, but only {self.next} were sent"
            )
        new = False
        # Frames on different links may overtake each other, so an older one may come later.
        if limit > self.limit:
            self.limit, new = limit, True
        waiting = self._waiting
        if ack > self.acked:
            self.acked, new = ack, True
            done = []
            for chunk in waiting.values():
                if chunk.end > ack:
                    break
                done.append(chunk.sequence)
            for sequence in done:
                del waiting[sequence]
        for first, end in ranges:
            if end > self.next:
                raise ProtocolError(
                    f"the peer acknowledges {end} bytes, but only {self.next} were sent"
                )
            while (early_chunk := waiting.get(first)) is not None and early_chunk.end <= end:
                del waiting[first]
                first, new = early_chunk.end, True
        return new

    def lost(self, link: int) -> int:
        """Have everything sent again that waits for its acknowledgement on `link`; its bytes."""
        total = 0
        for chunk in self._waiting.values():
            if chunk.link == link:
                chunk.link = -1
                self._again.append(chunk)
                total += len(chunk.data)
        return total

    def again(self) -> Chunk | None:
        """The next chunk to send again that is not acknowledged yet; None when there is none.

        The caller sets its link.
        """
        while self._again:
            chunk = self._again.popleft()
            if self._waiting.get(chunk.sequence) is chunk and chunk.link < 0:
                return chunk
        return None

    def put_back(self, chunk: Chunk) -> None:
        """Put a chunk that could not go before all others that have to be sent again."""
        chunk.link = -1
        self._again.appendleft(chunk)


class Incoming:
    """The receiving direction; at most `window` bytes are here that the program has not taken."""

    def __init__(self, window: int) -> None:
        self.window = window
        # All bytes below have been received.
        self.next = 0
        # The program has taken all bytes below.
        self.taken = 0
        # The length of the stream, once the peer has said it.
        self.end: int | None = None
        self.duplicates = 0
        # Chunks that the program can take, and how much of the first one it has taken.
        self._ready: deque[bytes] = deque()
        self._offset = 0
        # Chunks that were received before their turn, by the number of their first byte.
        self._early: dict[int, bytes] = {}
        # Where runs of such chunks start, in order, and where each run ends.
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}

    @property
    def limit(self) -> int:
        """The number of the first byte that the peer must not send yet."""
        return self.taken + self.window

    @property
    def ack(self) -> int:
        """What to acknowledge: `next`, and one more when the stream is complete."""
        return self.next + 1 if self.next == self.end else self.next

    @property
    def ready(self) -> int:
        """Bytes that the program can take now."""
        return self.next - self.taken

    @property
    def ended(self) -> bool:
        """Whether the program has taken all that there will ever be."""
        return self.taken == self.end

    @property
    def has_early(self) -> bool:
        """Whether a chunk was received before its turn and still waits."""
        return bool(self._early)

    def put(self, sequence: int, data: bytes) -> bool:
        """Add a chunk that was received; whether the program can take more now.

        ProtocolError for a chunk that the peer must not send.
        """
        end = sequence + len(data)
        if end > self.taken + self.window:
            raise ProtocolError(
                f"the peer sent byte {end}, but may send only {self.taken + self.window}"
            )
        if self.end is not None and end > self.end:
            raise ProtocolError(
                f"the peer sent byte {end} after it had said that {self.end} are all"
            )
        if end == sequence:
            raise ProtocolError("the peer sent a chunk without bytes")
        if sequence == self.next:
            starts = self._starts
            if starts and starts[0] < end:
                raise ProtocolError(OVERLAP)
            self._ready.append(data)
            self.next = end
            if starts and starts[0] == end:
                self._join()
            return True
        if sequence > self.next:
            self._put_early(sequence, end, data)
        elif end > self.next:
            raise ProtocolError(OVERLAP)
        else:
            self.duplicates += 1
        return False

    def _put_early(self, sequence: int, end: int, data: bytes) -> None:
        """Keep a chunk that was received before its turn.

        It begins a run of its own, or joins the runs that it touches before and behind.
        """
        starts, ends = self._starts, self._ends
        behind = bisect_right(starts, sequence)
        before = starts[behind - 1] if behind else -1
        if behind and ends[before] > sequence:
            if len(self._early.get(sequence, b"")) != len(data):
                raise ProtocolError(OVERLAP)
            self.duplicates += 1
            return
        if behind < len(starts) and starts[behind] < end:
            raise ProtocolError(OVERLAP)
        if len(self._early) >= MAX_CHUNKS:
            raise ProtocolError(f"the peer sent more than {MAX_CHUNKS} chunks before their turn")
        self._early[sequence] = data
        if behind < len(starts) and starts[behind] == end:
            end = ends.pop(end)
            del starts[behind]
        if behind and ends[before] == sequence:
            ends[before] = end
        else:
            starts.insert(behind, sequence)
            ends[sequence] = end

    def finish(self, end: int) -> None:
        """Note the length of the stream, as the peer says it.

        ProtocolError when the peer has sent more or has named another length before.
        """
        last = self._ends[self._starts[-1]] if self._starts else self.next
        if end < last or self.end not in (None, end):
            raise ProtocolError(f"the peer says that its stream has {end} bytes, which is wrong")
        self.end = end

    def ranges(self) -> list[tuple[int, int]]:
        """(first, end) of the first MAX_RANGES runs that were received before their turn."""
        return [(first, self._ends[first]) for first in self._starts[:MAX_RANGES]]

    def take(self, max_bytes: int) -> bytes:
        """Up to `max_bytes` bytes for the program, in order."""
        ready, offset = self._ready, self._offset
        if not ready or max_bytes <= 0:
            return b""
        first = ready[0]
        have = len(first) - offset
        if have <= max_bytes:
            ready.popleft()
            self._offset = 0
            if have == max_bytes or not ready:
                self.taken += have
                return first[offset:] if offset else first
            parts = [memoryview(first)[offset:]]
            missing = max_bytes - have
            while missing and ready:
                part = memoryview(ready[0])
                if len(part) > missing:
                    self._offset = missing
                    parts.append(part[:missing])
                    missing = 0
                else:
                    ready.popleft()
                    parts.append(part)
                    missing -= len(part)
            self.taken += max_bytes - missing
            return b"".join(parts)
        self._offset = offset + max_bytes
        self.taken += max_bytes
        return first[offset : offset + max_bytes]

    def take_into(self, buffer: memoryview) -> int:
        """As `take`, into a buffer; how many bytes."""
        total, ready = 0, self._ready
        while ready and total < len(buffer):
            part = memoryview(ready[0])[self._offset :]
            count = min(len(part), len(buffer) - total)
            buffer[total : total + count] = part[:count]
            total += count
            if count == len(part):
                ready.popleft()
                self._offset = 0
            else:
                self._offset += count
        self.taken += total
        return total

    def _join(self) -> None:
        """Make the first run of early chunks ready: its turn has come."""
        end = self._ends.pop(self._starts.pop(0))
        while self.next < end:
            data = self._early.pop(self.next)
            self._ready.append(data)
            self.next += len(data)
