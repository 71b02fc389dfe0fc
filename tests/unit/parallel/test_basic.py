# SPDX-License-Identifier: Apache-2.0
"""ParallelSocket as a socket: calls, directions, half-close, time-outs, files, threads, forks."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import select
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ri2n_parallel import (
    ParallelError,
    ParallelListener,
    ParallelSocket,
    Qos,
    p_accept,
    p_connect,
    p_read,
    p_write,
)
from tests.unit.parallel.worlds import (
    PATIENCE_S,
    connect,
    digest,
    in_thread,
    noise,
    pair,
    read_all,
    serving,
    wait_until,
)

MB = 1 << 20


@pytest.mark.parametrize("links", [1, 2, 6])
def test_a_large_transfer_arrives(links: int) -> None:
    data = noise(20 * MB)
    with pair(links) as (near, far):
        got = in_thread(lambda: read_all(far))
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)
        assert digest(got.result()) == digest(data)
        used = [link.sent_bytes for link in near.links]
        assert len(used) == links and all(used)


@pytest.mark.parametrize("megabytes", [32, pytest.param(200, marks=pytest.mark.long)])
def test_both_directions_at_once_with_a_thread_for_each(megabytes: int) -> None:
    """Eight windows of bytes, or fifty, in each direction.

    Each direction waits for room that only the reader of the other one gives.
    """
    data = {0: noise(megabytes * MB, 1), 1: noise(megabytes * MB, 2)}
    with pair(3) as ends:
        reading = [in_thread(lambda end=end: digest(read_all(end))) for end in ends]  # type: ignore[misc]

        def send(number: int) -> None:
            ends[number].sendall(data[number])
            ends[number].shutdown(socket.SHUT_WR)

        sending = [in_thread(lambda number=number: send(number)) for number in (0, 1)]  # type: ignore[misc]
        for one in sending:
            one.result()
        assert [one.result() for one in reading] == [digest(data[1]), digest(data[0])]


def test_small_messages_go_to_and_fro() -> None:
    with pair(3) as (near, far):

        def echo() -> None:
            while part := far.recv(4096):
                far.sendall(part)
            far.shutdown(socket.SHUT_WR)

        echoing = in_thread(echo)
        for count in (1, 2, 100, 1000, 1415, 1416, 1417, 3000):
            message = noise(count)
            near.sendall(message)
            assert p_read(near, count) == message
        near.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b"" == near.recv(1)
        echoing.result()


def test_the_papers_calls_in_their_order() -> None:
    with serving(4) as listener:
        fd = socket.socket()
        connecting = in_thread(lambda: p_connect(fd, listener.address, Qos(parallelism=4)))
        far, count = p_accept(listener)
        near = connecting.result()
        with near, far:
            assert 1 <= count <= 4
            data = noise(3 * MB)
            reading = in_thread(lambda: p_read(far, len(data)))
            assert p_write(near, data) == len(data)
            assert reading.result() == data
            assert p_write(near, memoryview(b"end")) == 3
            near.shutdown(socket.SHUT_WR)
            assert p_read(far, 10) == b"end"  # fewer: the stream ends before


def test_half_close_both_ways() -> None:
    with pair(3) as (near, far):
        near.shutdown(socket.SHUT_WR)
        assert far.recv(1) == b""
        far.sendall(b"still" * 1000)
        with pytest.raises(BrokenPipeError):
            near.sendall(b"no more")
        assert p_read(near, 5000) == b"still" * 1000
        far.shutdown(socket.SHUT_WR)
        assert near.recv(1) == b""
        near.close()
        far.close()
        wait_until("both ended", lambda: near.fileno() == far.fileno() == -1)


def test_what_was_sent_before_close_arrives_after_it() -> None:
    data = noise(3 * MB)
    with pair(3) as (near, far):
        near.sendall(data)
        near.close()
        assert digest(read_all(far)) == digest(data)


def test_close_with_unread_data_is_a_reset_for_the_peer() -> None:
    with pair(3) as (near, far):
        near.sendall(b"nobody reads this")
        wait_until("it came", lambda: sum(link.received_bytes for link in far.links) > 60)
        assert far.recv(1) == b"n"
        far.close()
        with pytest.raises(ConnectionResetError, match="unread"):
            near.recv(1)


def test_abort_is_seen_past_back_pressure() -> None:
    """The peer's window is full and nobody reads there; the abort arrives all the same."""
    with pair(3, server={"window_bytes": 1 << 16}) as (near, far):
        near.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                near.send(bytes(1 << 16))
        wait_until("full", lambda: far._session.incoming.ready == 1 << 16)
        near.abort()
        wait_until("told", lambda: far._session.broken)
        with pytest.raises(ConnectionResetError, match="aborted"):
            read_all(far)


def test_a_context_that_ends_with_an_error_aborts() -> None:
    with pair(2) as (near, far):
        with pytest.raises(KeyError), near:
            near.sendall(b"half of it")
            raise KeyError
        with pytest.raises(ConnectionResetError, match="aborted"):
            read_all(far)


def test_a_context_that_ends_well_closes() -> None:
    with pair(2) as (near, far):
        with near:
            near.sendall(b"all of it")
        assert read_all(far) == b"all of it"
        with pytest.raises(OSError, match="closed") as caught:
            near.recv(1)
        assert caught.value.errno == errno.EBADF


def test_timeouts() -> None:
    with pair(2, server={"window_bytes": 1 << 16}) as (near, far):
        assert fill(near) == 1 << 16
        near.settimeout(0.2)
        assert near.gettimeout() == 0.2
        began_s = time.monotonic()
        with pytest.raises(TimeoutError):
            near.recv(1)
        assert time.monotonic() - began_s >= 0.2
        with pytest.raises(TimeoutError):
            near.sendall(bytes(1 << 20))  # the window is full, and nobody reads
        with pytest.raises(TimeoutError):
            near.recv_into(bytearray(1))
        with pytest.raises(ValueError):
            near.settimeout(-1)
        assert len(p_read(far, 1 << 16)) == 1 << 16  # it goes on


def test_flush_waits_for_the_peers_acknowledgement() -> None:
    with pair(2, server={"window_bytes": 1 << 16}) as (near, far):
        near.sendall(bytes(1000))
        near.flush(PATIENCE_S)
        reading = in_thread(lambda: len(p_read(far, 1000 + (1 << 20))))
        near.sendall(bytes(1 << 20))
        near.flush(PATIENCE_S)
        assert reading.result() == 1000 + (1 << 20)
        with pytest.raises(TimeoutError):
            stop(far, near)


def stop(far: ParallelSocket, near: ParallelSocket) -> None:
    """Send a byte while the peer's lock is held, so that nothing is acknowledged."""
    with far._session.lock:
        near.sendall(b"x")
        near.flush(0.2)


@pytest.mark.parametrize("method", ["select", "poll", "epoll"])
def test_non_blocking_with_select(method: str) -> None:
    """One thread moves 8 MB each way over both ends, by the readiness of descriptors alone."""
    data = noise(8 * MB)
    with pair(3, server={"window_bytes": 1 << 18}, window_bytes=1 << 18) as ends:
        for end in ends:
            end.setblocking(False)
            with pytest.raises(BlockingIOError):
                end.recv(1)
        fds = [end.fileno() for end in ends]
        left, got = [memoryview(data), memoryview(data)], [bytearray(), bytearray()]
        ended = [False, False]
        deadline_s = time.monotonic() + PATIENCE_S
        while not all(ended):
            assert time.monotonic() < deadline_s, (list(map(len, left)), list(map(len, got)))
            for number, end in enumerate(ends):
                with contextlib.suppress(BlockingIOError):
                    while len(left[number]):
                        left[number] = left[number][end.send(left[number]) :]
                        if not left[number]:
                            end.shutdown(socket.SHUT_WR)
                with contextlib.suppress(BlockingIOError):
                    while part := end.recv(1 << 16):
                        got[number] += part
                    ended[number] = True
            if not all(ended):
                assert _wait_readable(method, fds, PATIENCE_S), "nothing to do"
        assert [digest(bytes(each)) for each in got] == [digest(data)] * 2


def _wait_readable(method: str, fds: list[int], timeout_s: float) -> list[Any]:
    if method == "select":
        return select.select(fds, [], [], timeout_s)[0]
    if method == "poll":
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        return poll.poll(timeout_s * 1000)
    with select.epoll() as epoll:
        for fd in fds:
            epoll.register(fd, select.EPOLLIN)
        return epoll.poll(timeout_s)


def test_the_descriptor_is_readable_while_there_is_something_to_take_and_only_then() -> None:
    with pair(2) as (near, far):
        fd = far.fileno()
        assert fd == far.fileno() >= 0
        far.setblocking(False)
        wait_until("quiet", lambda: _quiet(far, fd))
        near.sendall(b"abc")
        assert select.select([fd], [], [], PATIENCE_S)[0]
        assert far.recv(1) == b"a"
        # The descriptor is readable also when the rest came together with the first byte.
        assert select.select([fd], [], [], PATIENCE_S)[0]
        assert far.recv(9) == b"bc"
        wait_until("quiet", lambda: _quiet(far, fd))
        near.abort()
        assert select.select([fd], [], [], PATIENCE_S)[0]


def _quiet(sock: ParallelSocket, fd: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        sock.recv(1)
    return not select.select([fd], [], [], 0.05)[0]


def fill(sock: ParallelSocket) -> int:
    """Send until there is no room; how many bytes that was."""
    sock.setblocking(False)
    total = 0
    with pytest.raises(BlockingIOError):
        while True:
            total += sock.send(bytes(1 << 16))
    return total


def test_the_descriptor_tells_of_room_that_somebody_else_has_seen_first() -> None:
    """The caretaker may take acknowledgements before the thread that waits is woken."""
    with pair(2, server={"window_bytes": 1 << 16}) as (near, far):
        fd = near.fileno()
        assert fill(near) == 1 << 16
        wait_until("quiet", lambda: _quiet(near, fd))
        assert len(p_read(far, 1 << 16)) == 1 << 16
        session = near._session

        def seen() -> bool:
            with session.lock:
                session.poll()
                return session.outgoing.room > 0

        wait_until("acknowledged", seen)
        assert select.select([fd], [], [], 0)[0]
        assert near.send(b"x") == 1
        wait_until("quiet", lambda: _quiet(near, fd))


def test_the_descriptor_tells_when_busy_links_take_more() -> None:
    """The links are full before the window is, and the peer sends nothing.

    So only the kernel knows when there is room.
    """
    with pair(2, server={"window_bytes": 1 << 28}) as (near, far):
        fd = near.fileno()
        with far._session.lock:  # so that nobody reads there but this test

            def full() -> bool:
                """Whether the links are full.

                The kernel passes on what it took, and then takes more.
                """
                fill(near)
                return not select.select([fd], [], [], 0.1)[0]

            wait_until("links are full", full)
            assert near._session.outgoing.room > 0
            links = [link.stream for link in far._session.links.values()]

            def told_and_sent() -> int:
                for stream in links:
                    with contextlib.suppress(BlockingIOError):
                        stream.recv(1 << 16)
                if not select.select([fd], [], [], 0)[0]:
                    return 0
                # A link that is better may still be full; then nothing is sent.
                with contextlib.suppress(BlockingIOError):
                    return near.send(bytes(1000))
                return 0

            assert wait_until("told", told_and_sent) == 1000


def test_recv_into_a_part_of_a_buffer() -> None:
    with pair(2) as (near, far):
        near.sendall(b"abcdef")
        buffer = bytearray(b"......")
        assert p_read(far, 1) == b"a"
        assert far.recv_into(memoryview(buffer)[1:3]) == 2
        assert far.recv_into(buffer, 1) == 1
        assert bytes(buffer) == b"dbc..."
        assert far.recv(0) == b"" and far.recv_into(bytearray()) == 0
        assert p_read(far, 2) == b"ef"


def test_sendfile(tmp_path: Path) -> None:
    data = noise(3 * MB)
    path = tmp_path / "file"
    path.write_bytes(data)
    with pair(3) as (near, far):
        reading = in_thread(lambda: read_all(far))
        with path.open("rb") as file:
            assert near.sendfile(file) == len(data) == file.tell()
            assert near.sendfile(file, 1000, 5000) == 5000
            assert file.tell() == 6000
            assert near.sendfile(file, len(data) - 10, 100) == 10
            assert near.sendfile(file, len(data) + 10) == 0
        with path.open("r", encoding="latin-1") as text, pytest.raises(ValueError, match="binary"):
            near.sendfile(text)  # type: ignore[arg-type]
        near.shutdown(socket.SHUT_WR)
        assert reading.result() == data + data[1000:6000] + data[-10:]


def test_makefile_in_all_modes() -> None:
    with pair(2) as (near, far):
        with near.makefile("w", encoding="utf-8", newline="\n") as text:
            text.write("grüß\nGott\n")
        with near.makefile("wb") as binary:
            binary.write(b"\x00\x01")
        with near.makefile("wb", 0) as raw:
            assert isinstance(raw, io.RawIOBase) and raw.write(b"raw") == 3
        both = near.makefile("rwb")
        both.write(b"both\n")
        both.flush()
        with far.makefile("r", encoding="utf-8") as text, pytest.raises(ValueError):
            text.write("not for writing")
        with far.makefile("rb", 0) as raw:
            line = b""
            while not line.endswith(b"\n"):
                line += raw.read(1)
        assert line == "grüß\n".encode()
        with far.makefile("rb") as binary:
            assert binary.readline() == b"Gott\n"
            assert binary.read(5) == b"\x00\x01raw"
            assert binary.readline() == b"both\n"
            far.sendall(b"answer\n")
            assert both.readline() == b"answer\n"
        both.close()
        for mode in ("a", "x", "rt"):
            with pytest.raises(ValueError, match="invalid mode"):
                near.makefile(mode)
        with pytest.raises(ValueError, match="binary"):
            near.makefile("r", 0)


def test_a_file_keeps_the_connection_open() -> None:
    with pair(2) as (near, far):
        file = near.makefile("wb")
        near.close()
        file.write(b"later")
        file.flush()
        assert p_read(far, 5) == b"later"
        file.close()
        assert far.recv(1) == b""


@pytest.mark.parametrize("how", ["close", "abort"])
def test_closing_wakes_a_thread_that_waits_in_recv(how: str) -> None:
    with pair(2) as (near, far), far._session.lock:  # so that no word from there wakes it
        began = threading.Event()

        def read() -> bytes:
            began.set()
            return near.recv(1)

        waiting = in_thread(read)
        began.wait()
        wait_until("it waits", lambda: near._session._leader)
        getattr(near, how)()
        with pytest.raises(OSError) as caught:
            waiting.result()
        assert caught.value.errno == errno.EBADF or isinstance(caught.value, ConnectionAbortedError)


def test_closing_wakes_a_thread_that_waits_for_room() -> None:
    with pair(2, server={"window_bytes": 1 << 16}) as (near, _):
        waiting = in_thread(lambda: near.sendall(bytes(1 << 20)))
        wait_until("it waits", lambda: near._session._leader and not near._session.outgoing.room)
        near.close()
        with pytest.raises(OSError):
            waiting.result()


def test_a_connection_that_was_forgotten_is_closed() -> None:
    """What was sent is delivered.

    Nothing is done where the connection is collected, since a lock may be held there.
    """
    with serving(2) as listener:
        near = connect(listener.address, Qos(2))
        with listener.accept(PATIENCE_S) as far:
            near.sendall(b"last words")
            with near._session.lock:
                session = near._session
                del near
                gc.collect()
                assert session.abandoned and not session.closing
            assert read_all(far) == b"last words"
        wait_until("closed", lambda: session.closed)


def test_after_abort_every_call_says_that_it_is_closed() -> None:
    with pair(2) as (near, _):
        near.abort()
        near.abort()
        near.close()
        for call in (
            lambda: near.recv(1),
            lambda: near.sendall(b"x"),
            lambda: near.send(b"x"),
            lambda: near.shutdown(1),
        ):
            with pytest.raises(OSError, match="closed") as caught:
                call()
            assert caught.value.errno == errno.EBADF
        assert near.fileno() == -1
        assert "down" in repr(near)


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_fork_leaves_the_connection_to_the_parent() -> None:
    """In the child its use is an error and closes nothing; new connections work there."""
    with (
        serving(2) as listener,
        connect(listener.address, Qos(2)) as near,
        listener.accept(PATIENCE_S) as far,
    ):
        near.sendall(b"before")
        assert p_read(far, 6) == b"before"
        pid = os.fork()
        if not pid:
            code = 1
            with contextlib.suppress(BaseException):
                code = _child(near, far, listener)
            os._exit(code)
        own = listener.accept(PATIENCE_S)
        assert p_read(own, 5) == b"child"
        own.sendall(b"yes")
        assert own.recv(1) == b""
        own.close()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        data = noise(MB)
        reading = in_thread(lambda: p_read(far, len(data)))
        near.sendall(data)
        assert reading.result() == data
        assert not near.counters.get("links_lost")


def _child(near: ParallelSocket, far: ParallelSocket, listener: ParallelListener) -> int:
    signal.alarm(int(PATIENCE_S))
    with pytest.raises(OSError, match="closed"):
        listener.accept(0)
    listener.close()
    for call in (lambda: near.recv(1), lambda: far.sendall(b"x")):
        try:
            call()
        except ParallelError as error:
            assert "process" in str(error)
        else:
            return 2
    near.close()
    far.abort()
    with connect(listener.address, Qos(2)) as own:
        own.sendall(b"child")
        if p_read(own, 3) != b"yes":
            return 3
    wait_until("delivered", lambda: own.fileno() == -1)
    return 0


def test_qos_is_checked() -> None:
    for wrong in (0, -1, 65, 70):
        with pytest.raises(ValueError, match="parallelism"):
            Qos(wrong)
