# SPDX-License-Identifier: Apache-2.0
"""The transfer of one file over a channel, at either end.

The server does the same in an upload as the client in a download.
"""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ri2n_parallel.copy.blocks import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    GROUP,
    NO_DIGEST,
    WINDOW,
    Intake,
    Outgoing,
    block_bytes,
    block_count,
    left_over,
    root,
)
from ri2n_parallel.copy.channel import Channel
from ri2n_parallel.copy.folder import Source, Target
from ri2n_parallel.copy.messages import (
    Block,
    Done,
    End,
    Failed,
    Got,
    Have,
    Message,
    Next,
    PeerRefused,
    ProtocolViolation,
    Refused,
    Stop,
)
from ri2n_parallel.copy.names import printable

__all__ = ["OnArrived", "Transferred", "receive_file", "refuse_file", "send_file"]

LONG_BYTES = 64 << 20
"""Writing a file longer than this to the disk may take longer than the peer's time-out."""

OnArrived = Callable[[int], None]
"""Called with how many more bytes of the file the receiver has."""


@dataclass(frozen=True)
class Transferred:
    """What a transfer took; `digest` is that of the whole file, in hexadecimal.

    `moved_bytes` of the file came over the network, `kept_bytes` were there already.
    """

    size_bytes: int
    moved_bytes: int
    kept_bytes: int
    repeated_blocks: int
    digest: str


def send_file(channel: Channel, source: Source, on_arrived: OnArrived) -> Transferred:
    """Send an open file after Put or Offer.

    Refused when either end gives up, ProtocolViolation when the peer breaks the rules. After
    Refused the channel is ready for the next request.
    """
    with _both_know(channel):
        return _send(channel, source, on_arrived)


def receive_file(
    channel: Channel, target: Target, size_bytes: int, on_arrived: OnArrived
) -> Transferred:
    """Receive a file of `size_bytes` into an open target and give it its name.

    The errors are those of `send_file`.
    """
    with _both_know(channel):
        return _receive(channel, target, size_bytes, on_arrived)


def refuse_file(channel: Channel, error: Refused) -> None:
    """Say why this end refuses a transfer, and drop what the peer sends before it knows.

    ProtocolViolation when the peer does not end the transfer.
    """
    channel.fail(error)
    # A peer cannot send more messages than these before it has to read an answer.
    for _ in range(2 * WINDOW + 2):
        message = channel.receive_answer()
        if isinstance(message, Stop | Failed):
            return
        if isinstance(message, Block):
            channel.skip_raw(message.bytes + DIGEST_BYTES)
        elif not isinstance(message, Have | Got | Next | End | Done):
            break
    raise ProtocolViolation("no end of a transfer that was refused")


@contextlib.contextmanager
def _both_know(channel: Channel) -> Iterator[None]:
    """Tell the other end when one end gives the transfer up, before the error is raised."""
    try:
        yield
    except PeerRefused:
        channel.send(Stop())
        raise
    except ProtocolViolation:
        raise
    except Refused as error:
        refuse_file(channel, error)
        raise


def _hear(channel: Channel) -> Message:
    """The next message of the peer; PeerRefused when that is Failed."""
    message = channel.receive_answer()
    if isinstance(message, Failed):
        raise PeerRefused(message.code, printable(message.text))
    return message


# ---- the sender


class _Sender:
    """The sender of one file; it keeps the digests of all blocks that it has read."""

    def __init__(self, channel: Channel, source: Source, on_arrived: OnArrived) -> None:
        self.channel, self.source, self.on_arrived = channel, source, on_arrived
        self.outgoing = Outgoing()
        self.digests = bytearray()
        self.moved_bytes = 0

    def own_digest(self, index: int) -> bytes:
        """This end's digest of a block that the receiver says it has."""
        block_hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for view in self.source.pieces(index, self.channel.buffer):
            block_hash.update(view)
        return self.note(index, block_hash.digest())

    def note(self, index: int, digest: bytes) -> bytes:
        """Keep the digest of a block, and return it.

        A block may be read twice; Refused `changed` when it is not the same any more.
        """
        at = index * DIGEST_BYTES
        if at == len(self.digests):
            self.digests += digest
        elif self.digests[at : at + DIGEST_BYTES] != digest:
            raise self.source.changed()
        return digest

    def send(self, index: int) -> None:
        """Send a block, once the receiver has answered enough of the blocks before it."""
        while self.outgoing.full:
            self.hear_got()
        self.send_now(index)

    def send_now(self, index: int) -> None:
        """Send a block and its digest."""
        size_bytes = left = block_bytes(index, self.source.size_bytes)
        block_hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.channel.send(Block(index, size_bytes))
        self.outgoing.sent(index)
        try:
            for view in self.source.pieces(index, self.channel.buffer):
                self.channel.send_raw(view)
                left -= len(view)
                block_hash.update(view)
            digest = self.note(index, block_hash.digest())
        except Refused:
            # The peer waits for the rest of the block. So the block is filled up, and the peer can
            # read why this end gives up.
            while left:
                filling = memoryview(bytes(min(left, len(self.channel.buffer))))
                self.channel.send_raw(filling)
                left -= len(filling)
            self.channel.send_raw(NO_DIGEST)
            raise
        self.channel.send_raw(digest)

    def hear_got(self) -> None:
        """Read one answer of the receiver, and send its block again if it was wrong."""
        message = _hear(self.channel)
        if not isinstance(message, Got):
            raise ProtocolViolation(f"{type(message).__name__} in place of Got")
        if self.outgoing.answered(message.index, message.right):
            self.send_now(message.index)
        else:
            size_bytes = block_bytes(message.index, self.source.size_bytes)
            self.moved_bytes += size_bytes
            self.on_arrived(size_bytes)

    def drain(self) -> None:
        """Wait until all blocks are answered."""
        while self.outgoing.open:
            self.hear_got()


def _send(channel: Channel, source: Source, on_arrived: OnArrived) -> Transferred:
    """Send the blocks that differ of each group that the receiver offers, then all others."""
    size_bytes, blocks = source.size_bytes, block_count(source.size_bytes)
    sender = _Sender(channel, source, on_arrived)
    first, more = 0, True
    while more:
        have = _hear(channel)
        if not isinstance(have, Have) or have.first != first or first + len(have.digests) > blocks:
            raise ProtocolViolation("no right answer to the offer of a file")
        if have.more and not have.digests:
            raise ProtocolViolation("an empty group of blocks")
        for index, receiver_digest in enumerate(have.digests, first):
            if sender.own_digest(index).hex() == receiver_digest:
                on_arrived(block_bytes(index, size_bytes))
            else:
                sender.send(index)
        first, more = first + len(have.digests), have.more
        if more:
            sender.drain()
            channel.send(Next())
    for index in range(first, blocks):
        sender.send(index)
    sender.drain()
    source.check_unchanged()
    file_digest = root(sender.digests, size_bytes).hex()
    channel.send(End(file_digest))
    done = _hear(channel)
    if not isinstance(done, Done):
        raise ProtocolViolation(f"{type(done).__name__} in place of Done")
    kept_bytes = size_bytes - sender.moved_bytes
    repeated = sender.outgoing.repeated
    return Transferred(size_bytes, sender.moved_bytes, kept_bytes, repeated, file_digest)


# ---- the receiver


def _receive(
    channel: Channel, target: Target, size_bytes: int, on_arrived: OnArrived
) -> Transferred:
    """Offer what is there in groups, and write the blocks that come."""
    intake = Intake(size_bytes)
    old_blocks = left_over(target.there_bytes, size_bytes)
    moved_bytes, kept = 0, array("Q")
    while True:
        first = intake.next
        group = [
            _part_digest(channel, target, index, size_bytes)
            for index in range(first, min(first + GROUP, old_blocks))
        ]
        more = first + len(group) < old_blocks
        intake.offer(group, more)
        channel.send(Have(first, tuple(digest.hex() for digest in group), more))
        received: set[int] = set()
        message = _hear(channel)
        while isinstance(message, Block):
            if _take(channel, target, intake, message):
                received.add(message.index)
                moved_bytes += message.bytes
                on_arrived(message.bytes)
            message = _hear(channel)
        unchanged = [index for index in range(first, first + len(group)) if index not in received]
        kept.extend(unchanged)
        on_arrived(sum(block_bytes(index, size_bytes) for index in unchanged))
        if more and isinstance(message, Next):
            continue
        if more or not isinstance(message, End):
            raise ProtocolViolation(f"{type(message).__name__} in the middle of a transfer")
        break
    intake.finish(bytes.fromhex(message.digest))
    if size_bytes > LONG_BYTES:
        channel.while_waiting(lambda: target.commit(size_bytes, kept, intake.digests))
    else:
        target.commit(size_bytes, kept, intake.digests)
    channel.send(Done())
    kept_bytes = size_bytes - moved_bytes
    return Transferred(size_bytes, moved_bytes, kept_bytes, intake.repeated, message.digest)


def _part_digest(channel: Channel, target: Target, index: int, size_bytes: int) -> bytes:
    """The digest of what is there of a block."""
    block_hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for view in target.pieces(index, block_bytes(index, size_bytes), channel.buffer):
        block_hash.update(view)
    return block_hash.digest()


def _take(channel: Channel, target: Target, intake: Intake, block: Block) -> bool:
    """Receive a block, write it and answer; whether its digest was right."""
    intake.accept(block.index, block.bytes)
    block_hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
    at, end = block.index * BLOCK_BYTES, block.index * BLOCK_BYTES + block.bytes
    try:
        while at < end:
            view = channel.buffer[: min(len(channel.buffer), end - at)]
            channel.receive_raw(view)
            at += len(view)
            block_hash.update(view)
            target.write(view, at - len(view))
        sent_digest = memoryview(bytearray(DIGEST_BYTES))
        channel.receive_raw(sent_digest)
    except Refused:
        channel.skip_raw(end - at + DIGEST_BYTES)
        raise
    right = intake.settle(block.index, bytes(sent_digest), block_hash.digest())
    channel.send(Got(block.index, right))
    return right
