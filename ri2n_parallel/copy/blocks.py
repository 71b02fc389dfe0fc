"""Which blocks of a file are sent, in which order, and when the whole is right (pure).

The receiver names the digests of blocks that an interrupted copy left, in groups; the sender
compares them with its own file, sends what differs, then all the rest in order. At most WINDOW
blocks are unanswered, so a receiver in trouble is heard soon, and a block whose digest is wrong is
sent again.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence

from ri2n_parallel.copy.messages import DIGEST_BYTES, ProtocolViolation, Refused

__all__ = [
    "ATTEMPTS",
    "BLOCK_BYTES",
    "DIGEST_BYTES",
    "GROUP",
    "NO_DIGEST",
    "WINDOW",
    "Intake",
    "Outgoing",
    "block_bytes",
    "block_count",
    "digest",
    "left_over",
    "root",
]

BLOCK_BYTES = 4 << 20
GROUP = 16
"""Blocks whose digests go in one Have: 64 MiB, which a slow disk reads before the peer's
time-out.
"""
WINDOW = 4
"""Blocks that may be unanswered: several times what a connection keeps on its way."""
ATTEMPTS = 3
"""How often one block may come with a wrong digest before the transfer is refused."""
NO_DIGEST = bytes(DIGEST_BYTES)
"""Sent after a block that the sender could not read to its end: never right, Failed follows."""


def block_count(size_bytes: int) -> int:
    """How many blocks a file of `size_bytes` has."""
    return -(-size_bytes // BLOCK_BYTES)


def block_bytes(index: int, size_bytes: int) -> int:
    """Bytes of block `index` of a file of `size_bytes`."""
    return min(BLOCK_BYTES, size_bytes - index * BLOCK_BYTES)


def digest(data: bytes | bytearray | memoryview) -> bytes:
    """BLAKE2b with 256 bits."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def root(digests: bytes | bytearray, size_bytes: int) -> bytes:
    """The digest of a whole file:

    of its size (eight bytes, big endian) and the digests of its blocks in order.
    """
    return digest(size_bytes.to_bytes(8, "big") + digests)


def left_over(part_bytes: int, size_bytes: int) -> int:
    """How many blocks of a file of `size_bytes` may be in a part of `part_bytes` that was left
    behind.
    """
    return block_count(size_bytes) if part_bytes >= size_bytes else part_bytes // BLOCK_BYTES


class Intake:
    """The receiver's side: what may come next, and what has come.

    Invariants: `digests` holds DIGEST_BYTES for each block below `next`; below `group_first` every
    block is right; `wrong` has only blocks that came and must come again.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.digests = bytearray()
        self.next = 0  # no block from here on has come or was offered
        self.group_first = 0
        self.group_end = 0
        self.sent_of_group = -1  # the last block of the group that came
        self.wrong: dict[int, int] = {}
        self.tries: dict[int, int] = {}
        self.repeated = 0
        self.came = 0
        self.last_group = False

    def offer(self, digests: Sequence[bytes], more: bool) -> None:
        """A group of blocks that are there; they count as right unless they come."""
        if self.wrong:
            raise ProtocolViolation("a block with a wrong digest was not sent again")
        self.group_first, self.sent_of_group = self.next, -1
        for each in digests:
            self.digests += each
            self.next += 1
        self.group_end, self.last_group = self.next, not more

    def accept(self, index: int, size_bytes: int) -> None:
        """Block `index` is about to come.

        ProtocolViolation when it must not, or not with that size.
        """
        if index in self.wrong:
            pass
        elif (
            self.group_first <= index < self.group_end
            and index > self.sent_of_group
            and self._in_group()
        ):
            self.sent_of_group = index
        elif self.last_group and index == self.next and index < block_count(self.size_bytes):
            self.next += 1
            self.digests += NO_DIGEST
        else:
            raise ProtocolViolation(f"block {index} out of turn")
        if size_bytes != block_bytes(index, self.size_bytes):
            raise ProtocolViolation(f"block {index} of {size_bytes} bytes")

    def _in_group(self) -> bool:
        """Whether nothing after the group has come yet."""
        return self.next == self.group_end

    def settle(self, index: int, told: bytes, found: bytes) -> bool:
        """Block `index` came: whether its digest is what the sender told.

        Refused `checksum` when it is never right.
        """
        if found != told:
            self.repeated += 1
            tries = self.tries[index] = self.tries.get(index, 0) + 1
            if tries >= ATTEMPTS:
                raise Refused("checksum", f"block {index} came {tries} times with a wrong checksum")
            self.wrong[index] = tries
            if len(self.wrong) > WINDOW:
                raise ProtocolViolation("too many blocks with wrong digests")
            return False
        self.wrong.pop(index, None)
        self.tries.pop(index, None)
        self.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES] = found
        self.came += 1
        return True

    def finish(self, told: bytes) -> None:
        """The sender says that was all:

        ProtocolViolation when it was not, Refused `checksum` when it is not right.
        """
        if self.wrong or not self.last_group or self.next != block_count(self.size_bytes):
            raise ProtocolViolation("the sender ended before all blocks were there")
        if root(self.digests, self.size_bytes) != told:
            raise Refused("checksum", "the whole has a wrong checksum")


class Outgoing:
    """The sender's side: what the receiver has not answered yet.

    Answers come in the order of sending.
    """

    def __init__(self) -> None:
        self.open: deque[int] = deque()
        self.tries: dict[int, int] = {}
        self.repeated = 0

    @property
    def full(self) -> bool:
        """Whether an answer must be read before the next block."""
        return len(self.open) >= WINDOW

    def sent(self, index: int) -> None:
        """Block `index` has been sent."""
        self.open.append(index)

    def answered(self, index: int, right: bool) -> bool:
        """Whether block `index` must be sent again; ProtocolViolation when that is no answer."""
        if not self.open or self.open[0] != index:
            raise ProtocolViolation(f"an answer about block {index}, which was not its turn")
        self.open.popleft()
        if right:
            self.tries.pop(index, None)
            return False
        self.repeated += 1
        self.tries[index] = self.tries.get(index, 0) + 1
        if self.tries[index] >= ATTEMPTS:
            raise ProtocolViolation(f"block {index} is asked for again and again")
        return True
