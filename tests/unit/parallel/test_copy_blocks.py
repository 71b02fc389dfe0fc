# SPDX-License-Identifier: Apache-2.0
"""Copies that go on: whatever was left, the result is the source.

Only the blocks that differ are sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_parallel.copy import blocks, folder, transfer
from ri2n_parallel.copy.blocks import ATTEMPTS, GROUP, WINDOW, Intake, Outgoing
from ri2n_parallel.copy.channel import Channel
from ri2n_parallel.copy.folder import Folder, open_source
from ri2n_parallel.copy.messages import Done, ProtocolViolation, Refused
from ri2n_parallel.copy.transfer import Transferred, receive_file, send_file
from tests.unit.parallel.worlds import PATIENCE_S

SMALL = 8
"""Bytes of a block in these tests."""


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (blocks, folder, transfer):
            patch.setattr(module, "BLOCK_BYTES", SMALL)
        yield


def copied(
    source: bytes, part: bytes | None, old: bytes | None = None
) -> tuple[bytes, Transferred, Transferred, list[int]]:
    """Send a file to where `part` was left.

    What arrived, what both ends return, and the bytes that `on_arrived` got.
    """
    with TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        base = Path(scratch)
        (base / "source").write_bytes(source)
        if part is not None:
            (base / ".target.ri2n-part").write_bytes(part)
        if old is not None:
            (base / "target").write_bytes(old)
        ends = [stack.enter_context(end) for end in socket.socketpair()]
        place = stack.enter_context(contextlib.closing(Folder(base, 0o022)))
        file = stack.enter_context(contextlib.closing(open_source(str(base / "source"), "source")))
        target = stack.enter_context(
            contextlib.closing(place.open_target("target", len(source), 0o644, None))
        )
        told: list[int] = []
        sent: list[Transferred] = []
        thread = threading.Thread(
            target=lambda: sent.append(send_file(Channel(ends[0], PATIENCE_S), file, told.append))
        )
        thread.start()
        received = receive_file(
            Channel(ends[1], PATIENCE_S), target, len(source), lambda size_bytes: None
        )
        thread.join()
        assert sorted(os.listdir(base)) == ["source", "target"]  # noqa: PTH208
        return (base / "target").read_bytes(), sent[0], received, told


@settings(max_examples=60)
@given(st.binary(max_size=SMALL * (2 * GROUP + 5)), st.data())
def test_a_resumed_copy_is_the_source_and_moves_only_blocks_that_differ(
    source: bytes, data: st.DataObject
) -> None:
    part = bytearray(source[: data.draw(st.integers(0, len(source)))])
    for at in (
        data.draw(st.lists(st.integers(0, max(0, len(part) - 1)), max_size=6)) if part else []
    ):
        part[at] ^= 1
    part += data.draw(st.binary(max_size=3 * SMALL))
    found, sent, received, told = copied(source, bytes(part))
    assert found == source
    count = blocks.block_count(len(source))
    places = [slice(index * SMALL, min((index + 1) * SMALL, len(source))) for index in range(count)]
    kept = sum(len(source[place]) for place in places if part[place] == source[place])
    assert (
        received == sent
        and received.kept_bytes == kept
        and received.moved_bytes == len(source) - kept
    )
    assert sum(told) == len(source)
    own = b"".join(blocks.digest(source[place]) for place in places)
    assert received.digest == blocks.root(own, len(source)).hex()


@settings(max_examples=40)
@given(st.binary(min_size=1, max_size=SMALL * (GROUP + 9)), st.data())
def test_an_old_file_of_the_same_size_is_compared_first(source: bytes, data: st.DataObject) -> None:
    old = bytearray(source)
    for at in data.draw(st.lists(st.integers(0, len(old) - 1), max_size=6)):
        old[at] ^= 1
    found, sent, received, told = copied(source, None, bytes(old))
    places = [slice(at, at + SMALL) for at in range(0, len(source), SMALL)]
    assert found == source and received == sent and sum(told) == len(source)
    assert received.moved_bytes == sum(
        len(source[place]) for place in places if source[place] != old[place]
    )


def test_an_old_file_that_somebody_changes_meanwhile_is_not_taken_for_the_new_one(
    tmp_path: Path,
) -> None:
    data = os.urandom(4 * SMALL)
    (tmp_path / "target").write_bytes(data)
    with contextlib.closing(Folder(tmp_path, 0o022)) as place:
        target = place.open_target("target", len(data), 0o644, None)
        with contextlib.closing(target):
            assert target.there_bytes == len(data)
            target.write(memoryview(data[:SMALL]), 0)
            (tmp_path / "target").write_bytes(os.urandom(len(data)))
            digests = b"".join(
                blocks.digest(data[at : at + SMALL]) for at in range(0, len(data), SMALL)
            )
            with pytest.raises(Refused, match="changed by somebody else"):
                target.commit(len(data), [1, 2, 3], digests)
    assert (tmp_path / "target").stat().st_size == len(data) and (
        tmp_path / "target"
    ).read_bytes() != data


def test_a_peer_that_breaks_the_rules_is_not_talked_to_any_more(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x")
    one, other = socket.socketpair()
    with other, contextlib.closing(open_source(str(tmp_path / "source"), "source")) as file:
        with one:
            Channel(other, PATIENCE_S).send(Done())  # in place of Have
            with pytest.raises(ProtocolViolation):
                send_file(Channel(one, PATIENCE_S), file, lambda size_bytes: None)
        assert other.recv(1000) == b""


def test_a_copy_from_scratch_moves_all_once() -> None:
    source = os.urandom(SMALL * (WINDOW * 3) + 3)
    found, sent, _, told = copied(source, None)
    assert found == source and sent.moved_bytes == len(source) == sum(told) and not sent.kept_bytes


@given(st.integers(0, 10 * SMALL), st.integers(0, 12 * SMALL))
def test_blocks_cover_a_file_exactly(size_bytes: int, part_bytes: int) -> None:
    sizes = [
        blocks.block_bytes(index, size_bytes) for index in range(blocks.block_count(size_bytes))
    ]
    assert sum(sizes) == size_bytes and all(1 <= size <= SMALL for size in sizes)
    left = blocks.left_over(part_bytes, size_bytes)
    assert 0 <= left <= len(sizes) and sum(sizes[:left]) <= part_bytes
    assert left == len(sizes) or sum(sizes[: left + 1]) > part_bytes


def test_the_digest_of_the_whole_depends_on_order_and_size() -> None:
    one, other = blocks.digest(b"1"), blocks.digest(b"2")
    assert (
        len(
            {blocks.root(one + other, 9), blocks.root(other + one, 9), blocks.root(one + other, 10)}
        )
        == 3
    )


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("block"), st.integers(0, 9), st.booleans()),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(st.integers(0, 6 * SMALL), EVENTS)
def test_no_order_of_blocks_makes_an_incomplete_file_whole(
    size_bytes: int, events: list[tuple[str, int, bool]]
) -> None:
    """A hostile sender may send what it likes.

    `finish` accepts only a file of which every block is right.
    """
    intake = Intake(size_bytes)
    count = blocks.block_count(size_bytes)
    right: dict[int, bytes] = {}
    offered = 0
    for kind, number, flag in events:
        try:
            if kind == "offer":
                if intake.last_group or offered + number > count:
                    continue
                group = [bytes([offered + place]) * 32 for place in range(number)]
                intake.offer(group, flag)
                right.update(enumerate(group, offered))
                offered += number
            else:
                intake.accept(number, blocks.block_bytes(number, size_bytes))
                found = bytes([100 + number]) * 32
                right.pop(number, None)
                if intake.settle(number, found if flag else bytes(32), found):
                    right[number] = found
        except Refused:
            continue
        assert len(intake.wrong) <= WINDOW
    try:
        intake.finish(blocks.root(bytes(intake.digests), size_bytes))
    except Refused:
        return
    assert sorted(right) == list(range(count))
    assert bytes(intake.digests) == b"".join(right[index] for index in range(count))


def test_a_block_that_is_never_right_is_refused() -> None:
    intake = Intake(3 * SMALL)
    intake.offer([], False)
    for _ in range(ATTEMPTS - 1):
        intake.accept(0, SMALL)
        assert not intake.settle(0, b"a" * 32, b"b" * 32)
    intake.accept(0, SMALL)
    with pytest.raises(Refused, match="wrong checksum") as caught:
        intake.settle(0, b"a" * 32, b"b" * 32)
    assert caught.value.code == "checksum"


@pytest.mark.parametrize("index", [1, 5, 2**62])
def test_blocks_out_of_turn_are_refused(index: int) -> None:
    intake = Intake(3 * SMALL)
    intake.offer([], False)
    with pytest.raises(ProtocolViolation):
        intake.accept(index, SMALL)
    with pytest.raises(ProtocolViolation):
        intake.accept(0, SMALL + 1)


def test_answers_out_of_turn_and_without_end_are_refused() -> None:
    outgoing = Outgoing()
    with pytest.raises(ProtocolViolation):
        outgoing.answered(0, True)
    for index in (0, 1):
        outgoing.sent(index)
    with pytest.raises(ProtocolViolation):
        outgoing.answered(1, True)
    assert outgoing.answered(0, True) is False
    for _ in range(ATTEMPTS - 1):
        assert outgoing.answered(1, False) is True
        outgoing.sent(1)
    with pytest.raises(ProtocolViolation):
        outgoing.answered(1, False)
