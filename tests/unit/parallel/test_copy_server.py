# SPDX-License-Identifier: Apache-2.0
"""The copy server and its clients: what is copied and what is refused.

Nobody ends the server or leaves its directory.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_parallel.copy import Folder, Refused, Session, blocks, transfer
from ri2n_parallel.copy import folder as folder_module
from ri2n_parallel.copy import server as server_module
from ri2n_parallel.copy.folder import open_source
from ri2n_parallel.copy.messages import (
    Block,
    Done,
    End,
    Failed,
    Get,
    Got,
    Have,
    Hello,
    List,
    Message,
    MkDir,
    Next,
    Put,
    Stat,
    Stop,
    Touch,
    encode,
)
from tests.unit.parallel.copy_help import HELLO, UMASK, Serving, read_all, say, serving
from tests.unit.parallel.worlds import PATIENCE_S, Clock, in_thread
from tests.waiting import wait_until

BLOCK = blocks.BLOCK_BYTES
SHORT = 1 << 16
"""The length of a block in tests that need many blocks."""


def quiet(_size_bytes: int) -> None:
    pass


def put(
    session: Session,
    path: Path,
    name: str,
    told: Callable[[int], None] = quiet,
    preserve: bool = False,
) -> dict[str, Any]:
    with contextlib.closing(open_source(str(path), path.name)) as source:
        return vars(session.put(source, name, told, preserve))


def get(
    session: Session, name: str, directory: Path, local: str, preserve: bool = False
) -> dict[str, Any]:
    with contextlib.closing(Folder(directory, UMASK)) as folder:
        return vars(session.get(name, folder, local, quiet, preserve))


def tree(directory: Path) -> dict[str, object]:
    """Everything below a directory that may not change; links are not followed."""
    return {
        str(path.relative_to(directory)): path.readlink()
        if path.is_symlink()
        else path.is_file() and path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if not path.is_fifo()
    }


# ---- what is copied


@pytest.mark.parametrize("size_bytes", [0, 1, 5000, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17])
def test_files_of_all_sizes_go_there_and_back(
    served: Path, tmp_path: Path, size_bytes: int
) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(size_bytes))
    with serving(served) as running:
        session = running.session()
        sent = put(session, source, "a")
        assert sent["moved_bytes"] == size_bytes and sent["kept_bytes"] == 0
        assert get(session, "a", tmp_path, "back")["digest"] == sent["digest"]
        counters = running.server.counters
        wait_until(
            lambda: counters["files_received"] == counters["files_sent"] == 1, lambda: counters
        )
    assert (tmp_path / "back").read_bytes() == source.read_bytes() == (served / "a").read_bytes()


def test_mode_and_mtime_are_kept_when_asked_and_as_with_cp_otherwise(
    served: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    source.chmod(0o757)
    os.utime(source, ns=(5, 1_000_000_000_123_456_789))
    (served / "there").write_bytes(b"old")
    (served / "there").chmod(0o640)
    with serving(served) as running:
        session = running.session()
        put(session, source, "kept", preserve=True)
        put(session, source, "new")
        put(session, source, "there")
        session.make_directory("d")
        session.touch_directory("d", 0o711, 42)
        get(session, "kept", tmp_path, "back", preserve=True)
        assert session.status("kept").mtime_ns == source.stat().st_mtime_ns
    for path in (served / "kept", tmp_path / "back"):
        assert (path.stat().st_mode & 0o777, path.stat().st_mtime_ns) == (
            0o757,
            source.stat().st_mtime_ns,
        )
    assert (served / "new").stat().st_mode & 0o777 == 0o757 & ~UMASK
    assert (served / "there").stat().st_mode & 0o777 == 0o640
    assert ((served / "d").stat().st_mode & 0o777, (served / "d").stat().st_mtime_ns) == (0o711, 42)


def test_who_has_the_old_file_open_keeps_it_and_a_link_is_replaced_not_followed(
    served: Path, tmp_path: Path
) -> None:
    source, outside = tmp_path / "source", tmp_path / "outside"
    source.write_bytes(b"new")
    outside.write_bytes(b"outside")
    (served / "a").write_bytes(b"old")
    (served / "link").symlink_to(outside)
    with serving(served) as running, (served / "a").open("rb") as old:
        session = running.session()
        put(session, source, "a")
        put(session, source, "link")
        assert old.read() == b"old"
    assert tree(served) == {"a": b"new", "link": b"new"} and outside.read_bytes() == b"outside"


def test_listings_have_everything_but_unfinished_copies(served: Path) -> None:
    names = [f"{number:04d}{'n' * 200}" for number in range(700)]  # several pages
    for name in names:
        (served / name).write_bytes(b"12")
    (served / ".x.ri2n-part").write_bytes(b"")
    (served / "d").mkdir()
    os.mkfifo(served / "pipe")
    with serving(served) as running:
        found = running.session().entries("")
    assert [(name, kind) for name, kind, _ in found] == [
        *((name, "file") for name in names),
        ("d", "directory"),
        ("pipe", "other"),
    ]
    assert {size for _, kind, size in found if kind == "file"} == {2}


# ---- what is refused

ESCAPES = [
    "../outside",
    "/etc/passwd",
    "a/../../outside",
    "link/secret",
    "link",
    "\0",
    "x" * 300,
    "pipe",
    ".x.ri2n-part",
]


@pytest.mark.parametrize("name", ESCAPES, ids=lambda name: repr(name[:18]))
def test_no_request_leaves_the_directory(served: Path, tmp_path: Path, name: str) -> None:
    outside, source = tmp_path / "outside", tmp_path / "source"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    source.write_bytes(b"mine")
    (served / "link").symlink_to(outside)
    os.mkfifo(served / "pipe")
    before = tree(outside)
    with serving(served) as running:
        session = running.session()
        refusals: list[Callable[[], object]] = [
            lambda: get(session, name, tmp_path, "stolen"),
            lambda: session.entries(name),
            lambda: session.make_directory(f"{name}/inner"),
            lambda: session.touch_directory(name, 0o777, 1),
            lambda: put(session, source, f"{name}/inner"),
        ]
        if name != "link":  # a link itself is replaced, see above
            refusals.append(lambda: put(session, source, name))
        for refused in refusals:
            with pytest.raises(Refused) as caught:
                refused()
            assert (
                caught.value.code in ("name", "kind", "missing")
                and len(str(caught.value).splitlines()) == 1
            )
        put(session, source, "good")  # the same session goes on
        counters = running.server.counters
        assert sum(
            count for key, count in dict(counters).items() if key.startswith("refused_")
        ) == len(refusals)
    assert tree(outside) == before and not (tmp_path / "stolen").exists()
    assert sorted(path.name for path in served.iterdir()) == ["good", "link", "pipe"]


def test_the_part_of_a_file_must_be_a_file_of_its_own(served: Path, tmp_path: Path) -> None:
    outside, source = tmp_path / "outside", tmp_path / "source"
    outside.write_bytes(b"outside")
    source.write_bytes(b"mine")
    with serving(served) as running:
        session = running.session()
        part = served / ".a.ri2n-part"
        plants: list[Callable[[Path], object]] = [
            lambda part: part.symlink_to(outside),
            lambda part: part.hardlink_to(outside),
            os.mkfifo,
        ]
        for plant in plants:
            plant(part)
            with pytest.raises(Refused) as caught:
                put(session, source, "a")
            assert caught.value.code == "kind"
            part.unlink()
    assert outside.read_bytes() == b"outside" and not (served / "a").exists()


def test_read_only_takes_nothing_and_gives(served: Path, tmp_path: Path) -> None:
    (served / "a").write_bytes(b"a")
    source = tmp_path / "source"
    source.write_bytes(os.urandom(2 * BLOCK))
    with serving(served, read_only=True) as running:
        session = running.session()
        assert session.read_only
        for refused in (
            lambda: put(session, source, "b"),
            lambda: session.make_directory("d"),
            lambda: session.touch_directory("", 0o700, 1),
        ):
            with pytest.raises(Refused, match="--read-only"):
                refused()
        get(session, "a", tmp_path, "got")
        assert running.server.counters["refused_read_only"] == 3
    assert tree(served) == {"a": b"a"} and (tmp_path / "got").read_bytes() == b"a"


def test_a_file_that_cannot_fit_is_refused_before_anything_is_written(served: Path) -> None:
    with serving(served) as running:
        session = running.session()
        session.channel.send(Put("a", 1 << 62, 0o644, None))
        with pytest.raises(Refused, match="do not fit") as caught:
            session.channel.expect(Have)
        session.channel.send(Stop())
        assert caught.value.code == "space"
        assert session.status("a").kind == "none" and not list(served.iterdir())


def test_a_thousand_transfers_are_under_way_and_one_more_is_told_busy(served: Path) -> None:
    most = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))
    data = b"some bytes"
    told = blocks.digest(data)
    with serving(served, max_transfers=most) as running:
        sessions = [running.session() for _ in range(most)]
        for number, session in enumerate(sessions):
            session.channel.send(Put(f"f{number}", len(data), 0o644, None))
        for session in sessions:
            assert session.channel.expect(Have).digests == ()
        assert running.server.sessions == most
        with pytest.raises(Refused, match="1000 transfers under way") as caught:
            running.session()
        assert caught.value.code == "busy"
        for session in sessions:
            session.channel.send(Block(0, len(data)))
            session.channel.send_raw(data + told)
            session.channel.send(End(blocks.root(told, len(data)).hex()))
        wait_until(
            lambda: running.server.counters["files_received"] == most,
            lambda: running.server.counters,
        )
        for session in sessions:
            session.close()
        wait_until(lambda: not running.server.sessions, lambda: running.server.sessions)
        assert running.session().status("f999").size == len(data)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sorted(path.name for path in served.iterdir()) == sorted(
        f"f{number}" for number in range(most)
    )


# ---- two at once, and those that are gone


def test_a_copy_takes_over_from_one_that_is_silent(
    served: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "TAKE_OVER_S", PATIENCE_S)
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 * BLOCK))
    first = source.read_bytes()[:BLOCK]
    with serving(served) as running:
        silent = running.session().channel
        silent.send(Put("a", 3 * BLOCK, 0o644, None))
        silent.expect(Have)
        silent.send(Block(0, BLOCK))
        silent.send_raw(first + blocks.digest(first))
        silent.expect(Got)
        clock.let_pass(server_module.SILENT_S)
        assert put(running.session(), source, "a")["kept_bytes"] == BLOCK
        assert running.server.counters["taken_over"] >= 1
        with pytest.raises(ConnectionError):
            silent.receive()
    assert tree(served) == {"a": source.read_bytes()}


def test_a_copy_does_not_disturb_one_that_works(
    served: Path, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits while the other copy sends something now and then.

    In the end it is refused as `busy`.
    """
    silent_s = 10 * PATIENCE_S
    monkeypatch.setattr(server_module, "TAKE_OVER_S", 3 * silent_s)
    monkeypatch.setattr(server_module, "SILENT_S", silent_s)
    source = tmp_path / "source"
    source.write_bytes(b"x" * 6000)
    with serving(served, timeout_s=100 * PATIENCE_S) as running:
        writer = running.session().channel
        writer.send(Put("a", 6000, 0o644, None))
        writer.expect(Have)
        writer.send(Block(0, 6000))
        (holder,) = running.server._writers.values()
        other = Session(running.connect(), timeout_s=100 * PATIENCE_S)
        putting = in_thread(lambda: put(other, source, "a"))
        sent = 0
        while putting.is_alive():
            heard = holder.received_bytes
            writer.send_raw(b"x")
            sent += 1
            wait_until(lambda: holder.received_bytes > heard, lambda: sent)  # noqa: B023
            clock.let_pass(silent_s / 2)
            putting.join(0.2)
        with pytest.raises(Refused, match="another copy writes it") as caught:
            putting.result()
        assert (
            caught.value.code == "busy" and not running.server.counters["taken_over"] and sent > 3
        )
        writer.send_raw(b"x" * (6000 - sent) + blocks.digest(b"x" * 6000))
        writer.expect(Got)
        writer.send(End(blocks.root(blocks.digest(b"x" * 6000), 6000).hex()))
        writer.expect(Done)
    assert tree(served) == {"a": b"x" * 6000}


# ---- on the way


class Flipping:
    """A transport that flips a bit of the raw bytes it is given, so many times."""

    def __init__(self, end: socket.socket, times: int) -> None:
        self.end, self.times = end, times

    def sendall(self, data: bytes | memoryview, /) -> None:
        if len(data) > 4000 and self.times:
            self.times -= 1
            data = bytes(data[:99]) + bytes([data[99] ^ 4]) + bytes(data[100:])
        self.end.sendall(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self.end, name)


def test_a_flipped_bit_is_noticed_and_the_block_sent_again(served: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(2 * BLOCK + 7000))
    with serving(served) as running:
        session = running.session(wrap=lambda end: Flipping(end, 1))
        assert put(session, source, "a")["repeated_blocks"] == 1
        wait_until(
            lambda: running.server.counters["repeated_blocks"] == 1, lambda: running.server.counters
        )
    assert (served / "a").read_bytes() == source.read_bytes()


def test_bits_that_flip_all_the_time_end_in_a_clear_line_and_leave_the_old_file(
    served: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(6000))
    (served / "a").write_bytes(b"old")
    with serving(served) as running:
        session = running.session(wrap=lambda end: Flipping(end, 1000))
        with pytest.raises(Refused, match="3 times with a wrong checksum") as caught:
            put(session, source, "a")
        assert caught.value.code == "checksum"
        assert session.status("a").size == 3  # the session goes on
        assert running.server.counters["refused_checksum"] == 1
    assert tree(served) == {"a": b"old"}


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def rewrite_in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")
    os.utime(path, ns=(1, 1))  # a clock tick later, as it were


@pytest.mark.parametrize(
    "change", [grow, rewrite_in_place, lambda path: os.truncate(path, SHORT + 5)]
)
def test_a_source_that_changes_is_refused_and_the_old_file_stays(
    served: Path, tmp_path: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (blocks, folder_module, transfer):  # thirty blocks, which need not be long
        monkeypatch.setattr(module, "BLOCK_BYTES", SHORT)
    source = tmp_path / "source"
    source.write_bytes(os.urandom(30 * SHORT))
    (served / "a").write_bytes(b"old")
    changed: list[bool] = []

    def meanwhile(_size_bytes: int) -> None:
        if not changed:
            changed.append(True)
            change(source)

    with serving(served) as running:
        session = running.session()
        with pytest.raises(Refused, match="changed while it was read") as caught:
            put(session, source, "a", meanwhile)
        assert caught.value.code == "changed" and (served / "a").read_bytes() == b"old"
        sent = put(session, source, "a")  # again: what had come is kept where it is still right
        assert sent["kept_bytes"] == source.stat().st_size - sent["moved_bytes"] >= SHORT
    assert (served / "a").read_bytes() == source.read_bytes()
    assert tree(served).keys() == {"a"}


# ---- hostile bytes

CONVERSATION: list[Message | bytes] = [
    Hello(2, "ri2n-copy"),
    Stat("inner"),
    MkDir("inner/new"),
    Touch("inner", 0o755, 7),
    List("inner"),
    Get("inner/file"),
    Have(0, ("00" * 32,), False),
    Failed("space", "no room here"),
    Put("inner/put", 6000, 0o644, 1),
    Block(0, 6000),
    b"x" * 6000 + blocks.digest(b"x" * 6000),
    End(blocks.root(blocks.digest(b"x" * 6000), 6000).hex()),
    Put("../outside", 10, 0o777, None),
    Stop(),
    Put("empty", 0, 0o777, None),
    End(blocks.root(b"", 0).hex()),
    Next(),
]
PUT = encode(Put("a", 6000, 0o644, 1)) + encode(Block(0, 6000)) + b"x" * 6000


def bytes_of(items: Iterable[Message | bytes]) -> bytes:
    return b"".join(item if isinstance(item, bytes) else encode(item) for item in items)


def renamed(item: Message | bytes, name: str) -> Message | bytes:
    """The same message; one that makes something in `inner/` gets this name.

    The message has its own length before it, so it is not enough to replace bytes.
    """
    if isinstance(item, MkDir | Put) and item.name.startswith("inner/"):
        return replace(item, name=name)
    return item


BYTES = bytes_of(CONVERSATION)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, Path]]:
    base = tmp_path_factory.mktemp("hostile")
    (base / "served" / "inner").mkdir(parents=True)
    (base / "served" / "inner" / "file").write_bytes(b"content")
    with serving(base / "served") as running:
        yield running, base


@settings(max_examples=150)
@given(st.data())
def test_random_and_mutated_bytes_neither_end_the_server_nor_leave_its_directory(
    hostile: tuple[Serving, Path], data: st.DataObject
) -> None:
    running, base = hostile
    text = bytearray(BYTES)
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "random", "swap", "names"]))
    if kind == "flip":
        for at in data.draw(st.lists(st.integers(0, len(text) - 1), min_size=1, max_size=8)):
            text[at] = data.draw(st.integers(0, 255))
    elif kind == "cut":
        del text[data.draw(st.integers(0, len(text) - 1)) :]
    elif kind == "insert":
        at = data.draw(st.integers(0, len(text)))
        text[at:at] = data.draw(st.binary(max_size=60))
    elif kind == "random":
        text = bytearray(data.draw(st.binary(max_size=500)))
    elif kind == "swap":
        items = data.draw(st.permutations(CONVERSATION[2:]))
        text = bytearray(bytes_of([*CONVERSATION[:2], *items]))
    else:
        names = ["../o", f"{base}/o", "inner/../../o", "a/../../o", "..", "inner//..//..//o"]
        name = data.draw(st.sampled_from(names))
        text = bytearray(bytes_of(renamed(item, name) for item in CONVERSATION))
    refused = running.server.counters["refused_name"]
    say(running, bytes(text))
    assert kind != "names" or running.server.counters["refused_name"] > refused
    assert [path.name for path in base.iterdir()] == ["served"]
    assert running.server.counters["bugs"] == 0, running.said
    session = running.session()
    assert session.status("inner/file").size == 7
    session.close()


def test_the_unchanged_conversation_does_what_it_says(hostile: tuple[Serving, Path]) -> None:
    running, base = hostile
    say(running, BYTES)
    assert (base / "served" / "inner" / "put").read_bytes() == b"x" * 6000
    assert (base / "served" / "empty").read_bytes() == b""


def test_the_one_line_for_a_peer_that_speaks_something_else(served: Path) -> None:
    with serving(served) as running:
        assert b"no copy protocol" in say(running, b"GET / HTTP/1.0\r\n\r\n")
        wait_until(
            lambda: running.server.counters["refused_protocol"] == 1,
            lambda: running.server.counters,
        )


@pytest.mark.parametrize("words", [HELLO, HELLO + PUT[:-9]])
def test_silent_clients_are_closed_after_the_time_out(served: Path, words: bytes) -> None:
    with serving(served, timeout_s=0.3) as running:
        end = running.connect()
        end.sendall(words)
        read_all(end)  # ends when the server closes
        wait_until(
            lambda: running.server.counters["timeouts"] == 1, lambda: running.server.counters
        )
