"""Links that are cut: what they swallowed goes over the others, and they come back by themselves.

The relay's cuts are harder to see than a pulled cable: its kernel acknowledges what nobody will ever deliver, so TCP
has nothing to complain of, and only the peer's silence on that link tells. How fast a silent wire is found is a matter
for labs.
"""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.parallel import AllLinksLost, ParallelListener, ParallelSocket, Qos, create_connection, dial
from tests.unit.parallel.relay import PASS, RESET, SWALLOW, Relay
from tests.unit.parallel.worlds import addresses, digest, in_thread, noise, p_all, read_all, serving, wait_until

MB = 1 << 20
CUT_BYTES = 1 << 15  # of each link: on a busy machine one may carry little of the whole
CONTROL = "127.0.2.250"  # of the relay: what the session begins with goes through an address of its own


@contextmanager
def relayed(
    links: int = 3, *, server: dict[str, Any] | None = None, **client: Any
) -> Iterator[tuple[Relay, ParallelSocket, ParallelSocket, ParallelListener]]:
    """(relay, client, server, listener): all connections pass through the relay, link k by its k-th address."""
    far_names = addresses(links, "127.0.1")
    options = {"addresses": far_names, **(server or {})}
    with serving(**options) as listener:
        port = listener.address[1]
        names = dict(zip(addresses(links, "127.0.2"), far_names, strict=True))
        with Relay(port, {**names, CONTROL: far_names[0]}) as relay:
            near = create_connection((CONTROL, port), Qos(links), **client)
            far = listener.accept(10)
            try:
                wait_until("links", lambda: len(far.links) == len(near.links) == links)
                yield relay, near, far, listener
            finally:
                near.abort()
                far.abort()


def near_names(links: int) -> list[str]:
    return addresses(links, "127.0.2")


def transfer(near: ParallelSocket, far: ParallelSocket, data: bytes, timeout_s: float = 60) -> None:
    """Send it from near to far; the checksum has to be right."""
    reading = in_thread(lambda: digest(read_all(far)))
    sending = in_thread(lambda: send_all(near, data))
    sending.result(timeout_s)
    assert reading.result(timeout_s) == digest(data)


def send_all(sock: ParallelSocket, data: bytes) -> None:
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


def state(sock: ParallelSocket) -> dict[int, str]:
    return {link.number: link.state for link in sock.links}


@pytest.mark.parametrize("mode", [SWALLOW, RESET])
@pytest.mark.parametrize("dead", [1, 2])
def test_links_cut_in_mid_transfer(mode: str, dead: int) -> None:
    """One of three, and all but one."""
    data = noise(40 * MB)
    with relayed(3) as (relay, near, far, _):
        cut = near_names(3)[:dead]
        relay.after(CUT_BYTES, mode, *cut)
        began_s = time.monotonic()
        transfer(near, far, data)
        assert time.monotonic() - began_s < 30
        assert [relay.modes[each] for each in cut] == [mode] * dead
        assert near.counters["resent_bytes"] > 0
        assert near.counters["links_lost"] + near.counters.get("links_suspected", 0) >= dead


@pytest.mark.parametrize("mode", [SWALLOW, RESET])
def test_the_other_direction_too(mode: str) -> None:
    data = noise(40 * MB)
    with relayed(3) as (relay, near, far, _):
        relay.after(CUT_BYTES, mode, near_names(3)[1])
        transfer(far, near, data)
        assert relay.modes[near_names(3)[1]] == mode
        assert far.counters["resent_bytes"] > 0


@pytest.mark.parametrize(("mode", "dark_s"), [(SWALLOW, 2.5), (RESET, 0.4)])
def test_all_cut_and_one_restored(mode: str, dark_s: float) -> None:
    data = noise(40 * MB)
    with relayed(3) as (relay, near, far, _):
        relay.after(CUT_BYTES, mode, *near_names(3))
        reading = in_thread(lambda: digest(read_all(far)))
        sending = in_thread(lambda: send_all(near, data))
        wait_until("all are cut", lambda: set(relay.modes.values()) == {mode, PASS})
        cut_s = time.monotonic()
        wait_until("dark", lambda: time.monotonic() - cut_s > dark_s)
        relay.set(PASS, near_names(3)[2])
        sending.result(60)
        assert reading.result(60) == digest(data)


@pytest.mark.parametrize("mode", [SWALLOW, RESET])
def test_a_link_rejoins_once_it_is_restored(mode: str) -> None:
    with relayed(3) as (relay, near, far, listener):
        first = near_names(3)[0]
        relay.set(mode, first)
        near.sendall(noise(MB))
        assert p_all(far, MB) == noise(MB)
        wait_until("it is found", lambda: state(near)[0] != "up" and state(far).get(0) != "up")
        assert near.links[0].why
        found_s = time.monotonic()  # what connects and does not answer is not taken for a link
        wait_until("a while", lambda: time.monotonic() - found_s > 1.5 or near.counters["links_rejoined"])
        assert near.counters["links_rejoined"] == 0 and state(near)[0] != "up"
        relay.set(PASS, first)
        wait_until("it is back", lambda: set(state(near).values()) == set(state(far).values()) == {"up"})
        assert listener.connections == dict.fromkeys(addresses(3, "127.0.1"), 1)
        before = [link.sent_bytes for link in near.links]
        transfer(near, far, noise(20 * MB))
        assert all(link.sent_bytes > old for link, old in zip(near.links, before, strict=True))


def test_links_that_die_all_the_time() -> None:
    """Each link is reset and restored over and over, never all at once, until twelve have come back."""
    block, sent, enough = noise(MB), hashlib.sha256(), threading.Event()
    with relayed(3) as (relay, near, far, _):

        def send() -> None:
            while not enough.is_set():
                near.sendall(block)
                sent.update(block)
            near.shutdown(socket.SHUT_WR)

        reading, sending = in_thread(lambda: digest(read_all(far))), in_thread(send)
        for turn in range(12):
            relay.set(RESET, near_names(3)[turn % 3])
            relay.set(PASS, near_names(3)[turn % 3])
            wait_until("it is back", lambda turn=turn: near.counters["links_rejoined"] > turn)  # type: ignore[misc]
        enough.set()
        sending.result(60)
        assert reading.result(60) == sent.hexdigest()


def test_without_any_link_it_ends_in_time_and_names_each() -> None:
    with relayed(2, link_timeout_s=1.5, server={"link_timeout_s": 1.5}) as (relay, near, far, _):
        relay.set(RESET, *near_names(2), CONTROL)
        began_s = time.monotonic()
        for end in (near, far):
            with pytest.raises(AllLinksLost, match=r"link 0 .*link 1 "):
                end.recv(1)
        assert time.monotonic() - began_s < 10
        with pytest.raises(AllLinksLost):
            near.sendall(b"x")


PEER = """
import sys
from ri2n_sdn.parallel import Qos, create_connection
with create_connection(("127.0.0.1", int(sys.argv[1])), Qos(3)) as sock:
    if sys.argv[2] == "send":
        while True:
            sock.sendall(bytes(1 << 20))
    print(sock.recv(1), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("what", ["send", "recv"])
def test_a_peer_that_is_killed(what: str) -> None:
    """With nobody left to say anything the error comes soon all the same, and says what became of the links."""
    with serving(3) as listener:
        command = [sys.executable, "-c", PEER, str(listener.address[1]), what]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as peer:
            try:
                far = listener.accept(20)
                if what == "send":
                    assert far.recv(1)
                else:
                    far.setblocking(False)
                    with pytest.raises(BlockingIOError):
                        while True:
                            far.send(bytes(1 << 20))
                    far.setblocking(True)
            finally:
                peer.send_signal(signal.SIGKILL)
            began_s = time.monotonic()
            with far, pytest.raises((AllLinksLost, ConnectionResetError)):
                if what == "send":
                    read_all(far)
                else:
                    far.sendall(bytes(64 << 20))
            assert time.monotonic() - began_s < 5
        assert not listener.connections or set(listener.connections.values()) == {0}


def test_a_server_that_is_gone() -> None:
    """Its listener is closed and its end aborted: the client learns it, though it tries to come back."""
    with serving(2) as listener:
        near = create_connection(listener.address, Qos(2))
        far = listener.accept(10)
        listener.close()
        with far._session.lock:  # as if it had been killed: nobody says a word
            for link in far._session.links.values():
                link.stream.shutdown(socket.SHUT_RDWR)
            far._session.broken = ConnectionAbortedError("killed")
            far._session.closing = True
        began_s = time.monotonic()
        with pytest.raises(AllLinksLost):
            near.recv(1)
        assert time.monotonic() - began_s < 5
        near.close()
        far.abort()


def test_a_link_for_which_there_was_no_descriptor_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce = iter([OSError(errno.EMFILE, "Too many open files")])
    real = socket.socket

    def made(*args: Any) -> socket.socket:
        if (error := next(scarce, None)) is not None:
            raise error
        return real(*args)

    with serving(2) as listener:
        monkeypatch.setattr(dial, "_new_socket", made)
        with create_connection(listener.address, Qos(2)) as near, listener.accept(10) as far:
            wait_until("both links", lambda: state(near) == {0: "up", 1: "up"} == state(far))
            assert next(scarce, "used") == "used"
            near.abort()
