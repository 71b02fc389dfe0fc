# SPDX-License-Identifier: Apache-2.0
"""Pure: which blocks of a file are sent, in which order, and when the whole file is right.

The receiver names the digests of the blocks that an interrupted copy has left, in groups. The
sender compares them with its own file and sends the blocks that differ, then all the rest in order.
A block whose digest is wrong is sent again. At most WINDOW blocks are unanswered, so the sender
hears soon of a receiver that cannot go on.
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
"""Blocks whose digests go in one Have.

They are 64 MiB: this end has to read them before the peer's time-out, also from a slow disk.
"""
WINDOW = 4
"""Blocks that may be unanswered: several times what a connection has on its way."""
ATTEMPTS = 3
"""How often one block may come with a wrong digest before the transfer is refused."""
NO_DIGEST = bytes(DIGEST_BYTES)
"""Sent after a block that the sender could not read to its end.

It is never the right digest, and Failed follows.
"""


def block_count(size_bytes: int) -> int:
    """The number of blocks of a file of `size_bytes`."""
    return -(-size_bytes // BLOCK_BYTES)


def block_bytes(index: int, size_bytes: int) -> int:
    """The length in bytes of block `index` of a file of `size_bytes`."""
    return min(BLOCK_BYTES, size_bytes - index * BLOCK_BYTES)


def digest(data: bytes | bytearray | memoryview) -> bytes:
    """The BLAKE2b digest of the data: DIGEST_BYTES."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def root(digests: bytes | bytearray, size_bytes: int) -> bytes:
    """The digest of a whole file.

    It is the digest of the file's size (eight bytes, big endian) and the digests of its blocks in
    order.
    """
    return digest(size_bytes.to_bytes(8, "big") + digests)


def left_over(part_bytes: int, size_bytes: int) -> int:
    """How many blocks of a file of `size_bytes` may be in an unfinished copy of `part_bytes`."""
    return block_count(size_bytes) if part_bytes >= size_bytes else part_bytes // BLOCK_BYTES


class Intake:
    """The receiver's side: which blocks may be received next, and which have been received.

    Invariants: `digests` holds DIGEST_BYTES for each block below `next`; below `group_first` every
    block is right; `wrong` has only blocks that were received and must be received again.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.digests = bytearray()
        # No block from here on has been received or was offered.
        self.next = 0
        # The group that was offered last is from `group_first` to before `group_end`.
        self.group_first = 0
        self.group_end = 0
        # The last block of the group that was received; -1: none.
        self.last_of_group = -1
        # By block: how often it was received with a wrong digest.
        self.wrong: dict[int, int] = {}
        self.tries: dict[int, int] = {}
        self.repeated = 0
        # Whether no other group follows.
        self.last_group = False

    def offer(self, digests: Sequence[bytes], more: bool) -> None:
        """Offer the digests of the next group of blocks; `more` groups follow after it.

        A block of the group counts as right unless the sender sends it. ProtocolViolation when a
        block with a wrong digest has not been sent again.
        """
        if self.wrong:
            raise ProtocolViolation("a block with a wrong digest was not sent again")
        self.group_first, self.last_of_group = self.next, -1
        for offered in digests:
            self.digests += offered
            self.next += 1
        self.group_end, self.last_group = self.next, not more

    def accept(self, index: int, size_bytes: int) -> None:
        """Expect block `index`, which the sender announces with this size.

        ProtocolViolation when it must not be sent now, or has another size.
        """
        if index in self.wrong:
            pass
        elif (
            self.group_first <= index < self.group_end
            and index > self.last_of_group
            and self._in_group()
        ):
            self.last_of_group = index
        elif self.last_group and index == self.next and index < block_count(self.size_bytes):
            self.next += 1
            self.digests += NO_DIGEST
        else:
            raise ProtocolViolation(f"block {index} out of turn")
        if size_bytes != block_bytes(index, self.size_bytes):
            raise ProtocolViolation(f"block {index} of {size_bytes} bytes")

    def _in_group(self) -> bool:
        """Whether no block after the group has been received yet."""
        return self.next == self.group_end

    def settle(self, index: int, sent_digest: bytes, own_digest: bytes) -> bool:
        """Note that block `index` was received; whether its digest is the one that was sent.

        Refused `checksum` when it was wrong ATTEMPTS times, ProtocolViolation when too many blocks
        are wrong.
        """
        if own_digest != sent_digest:
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
        self.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES] = own_digest
        return True

    def finish(self, sent_root: bytes) -> None:
        """Check the whole file: the sender says that it has sent everything.

        ProtocolViolation when blocks are missing, Refused `checksum` when `root` gives another
        digest than `sent_root`.
        """
        if self.wrong or not self.last_group or self.next != block_count(self.size_bytes):
            raise ProtocolViolation("the sender ended before all blocks were there")
        if root(self.digests, self.size_bytes) != sent_root:
            raise Refused("checksum", "the whole has a wrong checksum")


class Outgoing:
    """The sender's side: the blocks that the receiver has not answered yet.

    Answers come in the order in which blocks were sent.
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
        """Note that block `index` has been sent."""
        self.open.append(index)

    def answered(self, index: int, right: bool) -> bool:
        """Note the answer for block `index`; whether the block must be sent again.

        ProtocolViolation when it is not this block's turn, or when the receiver asks for one block
        more often than ATTEMPTS allows.
        """
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
