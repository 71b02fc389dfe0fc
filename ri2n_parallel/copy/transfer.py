"""One file over a channel, from either end:

the server of an upload does what the client of a download does.
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

__all__ = ["Told", "Transferred", "receive_file", "refuse_file", "send_file"]

LONG_BYTES = 64 << 20
"""Writing so much to the disk may take longer than a peer's patience."""

Told = Callable[[int], None]
"""Called with the bytes of the file that have just become the receiver's."""


@dataclass(frozen=True)
class Transferred:
    """What it took:

    `moved_bytes` of the file came over the network, `kept_bytes` were there already.
    """

    size_bytes: int
    moved_bytes: int
    kept_bytes: int
    repeated_blocks: int
    digest: str


def send_file(channel: Channel, source: Source, told: Told) -> Transferred:
    """Send an open file after Put or Offer. Refused when either side gives up.

    The channel can go on after that.
    """
    with _both_know(channel):
        return _send(channel, source, told)


def receive_file(channel: Channel, target: Target, size_bytes: int, told: Told) -> Transferred:
    """Receive a file of `size_bytes` into an open target and give it its name.

    Raises like `send_file`.
    """
    with _both_know(channel):
        return _receive(channel, target, size_bytes, told)


def refuse_file(channel: Channel, error: Refused) -> None:
    """Say why this side ends a transfer, and take what the peer had sent before it heard of it."""
    channel.fail(error)
    for _ in range(2 * WINDOW + 2):  # what a peer sends before it must look at the answers
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
    """When one side gives a transfer up, the other is told before the error goes on."""
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
    message = channel.receive_answer()
    if isinstance(message, Failed):
        raise PeerRefused(message.code, printable(message.text))
    return message


# ---- the sender


class _Sender:
    def __init__(self, channel: Channel, source: Source, told: Told) -> None:
        self.channel, self.source, self.told = channel, source, told
        self.outgoing = Outgoing()
        self.digests = bytearray()
        self.moved_bytes = 0

    def own(self, index: int) -> bytes:
        """This side's digest of a block that the receiver says to have."""
        found = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for view in self.source.pieces(index, self.channel.buffer):
            found.update(view)
        return self.note(index, found.digest())

    def note(self, index: int, found: bytes) -> bytes:
        """Keep a block's digest; a block that is read twice must not have changed."""
        at = index * DIGEST_BYTES
        if at == len(self.digests):
            self.digests += found
        elif self.digests[at : at + DIGEST_BYTES] != found:
            raise self.source.changed()
        return found

    def send(self, index: int) -> None:
        """Send a block, when the receiver has answered enough of those before."""
        while self.outgoing.full:
            self.hear_got()
        self.send_now(index)

    def send_now(self, index: int) -> None:
        size_bytes = left = block_bytes(index, self.source.size_bytes)
        found = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.channel.send(Block(index, size_bytes))
        self.outgoing.sent(index)
        try:
            for view in self.source.pieces(index, self.channel.buffer):
                self.channel.send_raw(view)
                left -= len(view)
                found.update(view)
            told = self.note(index, found.digest())
        except Refused:
            # The peer waits for the rest of the block: fill it up, so that it can hear why.
            while left:
                filling = memoryview(bytes(min(left, len(self.channel.buffer))))
                self.channel.send_raw(filling)
                left -= len(filling)
            self.channel.send_raw(NO_DIGEST)
            raise
        self.channel.send_raw(told)

    def hear_got(self) -> None:
        message = _hear(self.channel)
        if not isinstance(message, Got):
            raise ProtocolViolation(f"{type(message).__name__} in place of Got")
        if self.outgoing.answered(message.index, message.right):
            self.send_now(message.index)
        else:
            size_bytes = block_bytes(message.index, self.source.size_bytes)
            self.moved_bytes += size_bytes
            self.told(size_bytes)

    def drain(self) -> None:
        while self.outgoing.open:
            self.hear_got()


def _send(channel: Channel, source: Source, told: Told) -> Transferred:
    size_bytes, blocks = source.size_bytes, block_count(source.size_bytes)
    sender = _Sender(channel, source, told)
    first, more = 0, True
    while more:
        have = _hear(channel)
        if not isinstance(have, Have) or have.first != first or first + len(have.digests) > blocks:
            raise ProtocolViolation("no right answer to the offer of a file")
        if have.more and not have.digests:
            raise ProtocolViolation("an empty group of blocks")
        for index, theirs in enumerate(have.digests, first):
            if sender.own(index).hex() == theirs:
                told(block_bytes(index, size_bytes))
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
    whole = root(sender.digests, size_bytes)
    channel.send(End(whole.hex()))
    done = _hear(channel)
    if not isinstance(done, Done):
        raise ProtocolViolation(f"{type(done).__name__} in place of Done")
    moved = sender.moved_bytes
    return Transferred(size_bytes, moved, size_bytes - moved, sender.outgoing.repeated, whole.hex())


# ---- the receiver


def _receive(channel: Channel, target: Target, size_bytes: int, told: Told) -> Transferred:
    intake = Intake(size_bytes)
    there = left_over(target.there_bytes, size_bytes)
    moved_bytes, kept = 0, array("Q")
    while True:
        first = intake.next
        group = [
            _part_digest(channel, target, index, size_bytes)
            for index in range(first, min(first + GROUP, there))
        ]
        more = first + len(group) < there
        intake.offer(group, more)
        channel.send(Have(first, tuple(each.hex() for each in group), more))
        came: set[int] = set()
        message = _hear(channel)
        while isinstance(message, Block):
            if _take(channel, target, intake, message):
                came.add(message.index)
                moved_bytes += message.bytes
                told(message.bytes)
            message = _hear(channel)
        still = [index for index in range(first, first + len(group)) if index not in came]
        kept.extend(still)
        told(sum(block_bytes(index, size_bytes) for index in still))
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
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for view in target.pieces(index, block_bytes(index, size_bytes), channel.buffer):
        found.update(view)
    return found.digest()


def _take(channel: Channel, target: Target, intake: Intake, block: Block) -> bool:
    """Write a block that comes, and answer it; whether it was right."""
    intake.accept(block.index, block.bytes)
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    at, end = block.index * BLOCK_BYTES, block.index * BLOCK_BYTES + block.bytes
    try:
        while at < end:
            view = channel.buffer[: min(len(channel.buffer), end - at)]
            channel.receive_raw(view)
            at += len(view)
            found.update(view)
            target.write(view, at - len(view))
        told = memoryview(bytearray(DIGEST_BYTES))
        channel.receive_raw(told)
    except Refused:
        channel.skip_raw(end - at + DIGEST_BYTES)
        raise
    right = intake.settle(block.index, bytes(told), found.digest())
    channel.send(Got(block.index, right))
    return right
