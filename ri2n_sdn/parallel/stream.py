"""Pure: the two directions of a session: what was sent and may have to go again, what came and waits for its turn.

Bytes are numbered from 0 in each direction; a chunk is known by its first byte's number (user-level RI2N, section 3.3,
with the fixed length given up). The receiver tells how far the sender may go, so what waits is bounded on both sides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ri2n_sdn.parallel.errors import ProtocolError

__all__ = ["Chunk", "Incoming", "Outgoing"]


class Chunk:
    """Bytes that were sent over link number `link`, until they are acknowledged."""

    __slots__ = ("data", "end", "link", "sequence")

    def __init__(self, sequence: int, data: bytes, link: int) -> None:
        self.sequence, self.end, self.data, self.link = sequence, sequence + len(data), data, link


class Outgoing:
    """The sending direction; `limit` is the number of the first byte that must not be sent yet."""

    def __init__(self, limit: int) -> None:
        self.next = 0  # of the next byte that is sent for the first time
        self.acked = 0  # all bytes below have come
        self.limit = limit
        self.end: int | None = None  # the stream's length, once it is known; acknowledged as if it were a byte more
        self._waiting: dict[int, Chunk] = {}  # sent and not acknowledged, in order of first sending
        self._again: deque[Chunk] = deque()

    @property
    def room(self) -> int:
        """Bytes that may be sent now."""
        return self.limit - self.next

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
        """The next bytes of the stream as a chunk that goes over `link`; there must be room for them."""
        chunk = Chunk(self.next, data, link)
        self._waiting[self.next] = chunk
        self.next += len(data)
        return chunk

    def acknowledge(self, ack: int, limit: int, ranges: Sequence[tuple[int, int]] = ()) -> bool:
        """What the peer says has come; whether that was new. ProtocolError for bytes that were never sent."""
        if ack > self.next + (self.end is not None):
            raise ProtocolError(f"the peer acknowledges {ack} bytes, {self.next} were sent")
        new = False
        if limit > self.limit:  # words that went over different links may overtake each other
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
                raise ProtocolError(f"the peer acknowledges {end} bytes, {self.next} were sent")
            while (early := waiting.get(first)) is not None and early.end <= end:
                del waiting[first]
                first, new = early.end, True
        return new

    def lost(self, link: int) -> int:
        """Everything that waits for its acknowledgement on `link` has to go again; how many bytes."""
        total = 0
        for chunk in self._waiting.values():
            if chunk.link == link:
                chunk.link = -1
                self._again.append(chunk)
                total += len(chunk.data)
        return total

    def again(self) -> Chunk | None:
        """The next chunk that has to go again and still waits; the caller gives it a link."""
        while self._again:
            chunk = self._again.popleft()
            if self._waiting.get(chunk.sequence) is chunk and chunk.link < 0:
                return chunk
        return None

    def put_back(self, chunk: Chunk) -> None:
        """It could not go now; it is the first of those that go again."""
        chunk.link = -1
        self._again.appendleft(chunk)


class Incoming:
    """The receiving direction; at most `window` bytes are here that the program has not taken."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.next = 0  # all bytes below have come
        self.taken = 0  # by the program
        self.end: int | None = None
        self.duplicates = 0
        self._ready: deque[bytes] = deque()
        self._offset = 0  # of the first of them, what was taken already
        self._early: dict[int, bytes] = {}
        self._early_bytes = 0
        self._first: dict[int, int] = {}  # of each run of early bytes: its first byte by its end ...
        self._ends: dict[int, int] = {}  # ... and its end by its first byte

    @property
    def limit(self) -> int:
        """How far the peer may send."""
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
        """Whether something came before its turn."""
        return bool(self._early)

    def put(self, sequence: int, data: bytes) -> bool:
        """A chunk came; whether the program can take more now. ProtocolError for what must not have been sent."""
        end = sequence + len(data)
        if end > self.taken + self.window:
            raise ProtocolError(f"the peer sent byte {end}, it may send {self.taken + self.window}")
        if self.end is not None and end > self.end:
            raise ProtocolError(f"the peer sent byte {end} after it had said that {self.end} are all")
        if sequence == self.next:
            self._ready.append(data)
            self.next = end
            if self._early:
                self._join()
            return True
        if sequence < self.next or sequence in self._early:
            self.duplicates += 1
            return False
        if self._early_bytes + len(data) > self.window:
            raise ProtocolError("the peer's chunks overlap")
        self._early[sequence] = data
        self._early_bytes += len(data)
        first, last = self._first.pop(sequence, sequence), self._ends.pop(end, end)
        self._first[last], self._ends[first] = first, last
        return False

    def finish(self, end: int) -> None:
        """The peer says how long its stream is; ProtocolError when it had sent more or said otherwise."""
        if end < self.next or self.end not in (None, end) or any(place >= end for place in self._early):
            raise ProtocolError(f"the peer says that {end} bytes are all, which is wrong")
        self.end = end

    def ranges(self) -> list[tuple[int, int]]:
        """(first, end) of what came early, in order."""
        return sorted(self._ends.items())

    def take(self, most: int) -> bytes:
        """Up to `most` bytes for the program, in order."""
        ready, offset = self._ready, self._offset
        if not ready or most <= 0:
            return b""
        first = ready[0]
        have = len(first) - offset
        if have <= most:
            ready.popleft()
            self._offset = 0
            if have == most or not ready:
                self.taken += have
                return first[offset:] if offset else first
            parts = [memoryview(first)[offset:]]
            missing = most - have
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
            self.taken += most - missing
            return b"".join(parts)
        self._offset = offset + most
        self.taken += most
        return first[offset : offset + most]

    def take_into(self, buffer: memoryview) -> int:
        """As `take`, into a buffer of bytes; how many."""
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
        """Early chunks whose turn has come."""
        run = self._ends.pop(self.next, None)
        if run is None:
            return
        del self._first[run]
        while (data := self._early.pop(self.next, None)) is not None:
            self._early_bytes -= len(data)
            self._ready.append(data)
            self.next += len(data)
        if self.next != run:
            raise ProtocolError("the peer's chunks overlap")
