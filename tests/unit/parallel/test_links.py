# SPDX-License-Identifier: Apache-2.0
"""Links that are cut: what was lost goes over the others, and they come back by themselves.

The relay's cuts are harder to see than a pulled cable. Its kernel acknowledges what is never
delivered, so TCP sees no fault, and only the silence of the peer on that link shows it. How fast a
silent wire is found is measured in labs.

How much a link carries before it is cut, and when a cut is seen, depends on the machine. So sending
goes on until that has happened.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ri2n_parallel import AllLinksLost, ParallelListener, ParallelSocket, Qos, dial, session
from tests.unit.parallel.relay import PASS, RESET, SWALLOW, Relay
from tests.unit.parallel.worlds import (
    PATIENCE_S,
    Clock,
    addresses,
    connect,
    noise,
    p_all,
    read_all,
    rounds,
    sending,
    serving,
    wait_until,
)

MB = 1 << 20
CUT_BYTES = 1 << 15
"""Bytes that each link carries before it is cut."""
CONTROL = "127.0.2.250"
"""The relay's address for control connections, which have an address of their own."""
NEVER_S = 10 * PATIENCE_S


@pytest.fixture(autouse=True)
def patient_dialing() -> None:
    """Not here: links are connected in vain."""


@pytest.fixture
def never_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose links have all been reset waits for them, however long that takes."""
    monkeypatch.setattr(session, "ABANDONED_S", NEVER_S)


@contextmanager
def relayed(
    links: int = 3, *, server: dict[str, Any] | None = None, **client: Any
) -> Iterator[tuple[Relay, ParallelSocket, ParallelSocket, ParallelListener]]:
    """(relay, client, server, listener).

    All connections pass through the relay, link k by the relay's k-th address.
    """
    far_names = addresses(links, "127.0.1")
    options = {"addresses": far_names, **(server or {})}
    with serving(**options) as listener:
        port = listener.address[1]
        names = dict(zip(addresses(links, "127.0.2"), far_names, strict=True))
        with Relay(port, {**names, CONTROL: far_names[0]}) as relay:
            near = connect(relay.at(CONTROL), Qos(links), **client)
            far = listener.accept(PATIENCE_S)
            try:
                wait_until("links", lambda: len(far.links) == len(near.links) == links)
                yield relay, near, far, listener
            finally:
                near.abort()
                far.abort()


def near_names(links: int) -> list[str]:
    return addresses(links, "127.0.2")


def transfer_until(
    near: ParallelSocket, far: ParallelSocket, what: str, condition: Callable[[], Any]
) -> None:
    """Send until something has happened."""
    with sending(near, far):
        wait_until(what, condition)


def state(sock: ParallelSocket) -> dict[int, str]:
    return {link.number: link.state for link in sock.links}


@pytest.mark.parametrize("mode", [SWALLOW, RESET])
@pytest.mark.parametrize("dead", [1, 2])
def test_links_cut_in_mid_transfer(mode: str, dead: int) -> None:
    """One of three links is cut, or all but one."""
    with relayed(3) as (relay, near, far, _):
        cut = near_names(3)[:dead]
        relay.after(CUT_BYTES, mode, *cut)

        def seen() -> bool:
            lost = near.counters["links_lost"] + near.counters.get("links_suspected", 0)
            return [relay.modes[each] for each in cut] == [mode] * dead and lost >= dead

        transfer_until(near, far, "all cuts are seen", seen)
        assert near.counters["resent_bytes"] > 0


@pytest.mark.parametrize("mode", [SWALLOW, RESET])
def test_the_other_direction_too(mode: str) -> None:
    with relayed(3) as (relay, near, far, _):
        cut = near_names(3)[1]
        relay.after(CUT_BYTES, mode, cut)
        transfer_until(far, near, "it is sent again", lambda: far.counters["resent_bytes"])
        assert relay.modes[cut] == mode


def test_all_reset_and_one_restored(never_abandoned: None) -> None:
    with relayed(3) as (relay, near, far, _):
        relay.after(CUT_BYTES, RESET, *near_names(3))
        with sending(near, far):
            wait_until("dark", lambda: not near._session.links and not far._session.links)
            relay.set(PASS, near_names(3)[2])
        assert near.counters["links_lost"] >= 3 and near.counters["resent_bytes"] > 0


def test_all_silent_for_seconds_and_one_restored(clock: Clock) -> None:
    """When all links are silent, the peer may just be busy.

    So the session does not end (test_session.py tests the rule).
    """
    with relayed(3) as (relay, near, far, _):
        relay.after(CUT_BYTES, SWALLOW, *near_names(3))
        with sending(near, far):
            wait_until(
                "all are cut",
                lambda: [relay.modes[each] for each in near_names(3)] == [SWALLOW] * 3,
            )
            with rounds(near._session) as wait:
                wait(5)
                passed = dict(relay.passed)
                clock.let_pass(5.0)
                wait(5)
            assert all(relay.passed[each] == passed[each] for each in near_names(3))
            assert not near._session.broken and not far._session.broken
            relay.set(PASS, near_names(3)[2])
        assert near.counters["resent_bytes"] > 0


@pytest.mark.parametrize("mode", [SWALLOW, RESET])
def test_a_link_rejoins_once_it_is_restored(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    fail = dial._Attempt.fail

    def noted(attempt: Any, why: str) -> None:
        failed.append(why)
        fail(attempt, why)

    monkeypatch.setattr(dial._Attempt, "fail", noted)
    with relayed(3) as (relay, near, far, listener):
        first = near_names(3)[0]
        relay.set(mode, first)
        near.sendall(noise(MB))
        assert p_all(far, MB) == noise(MB)
        wait_until("it is found", lambda: state(near)[0] != "up" and state(far).get(0) != "up")
        assert near.links[0].why
        # What connects and does not answer is not taken for a link.
        wait_until(
            "it was dialled", lambda: ("no answer" if mode == SWALLOW else "refused") in failed
        )
        assert near.counters["links_rejoined"] == 0 and state(near)[0] != "up"
        relay.set(PASS, first)
        wait_until(
            "it is back", lambda: set(state(near).values()) == set(state(far).values()) == {"up"}
        )
        wait_until(
            "counted", lambda: listener.connections == dict.fromkeys(addresses(3, "127.0.1"), 1)
        )
        before = [link.sent_bytes for link in near.links]

        def all_used() -> bool:
            return all(
                link.sent_bytes > old + MB for link, old in zip(near.links, before, strict=True)
            )

        transfer_until(near, far, "all carry again", all_used)


def test_links_that_die_all_the_time() -> None:
    """Links are reset and restored again and again, until twelve have come back.

    They are never all reset at once.
    """
    with relayed(3) as (relay, near, far, _), sending(near, far):
        for turn in range(12):
            relay.set(RESET, near_names(3)[turn % 3])
            relay.set(PASS, near_names(3)[turn % 3])
            wait_until("it is back", lambda turn=turn: near.counters["links_rejoined"] > turn)  # type: ignore[misc]


def test_without_any_link_it_ends_and_names_each() -> None:
    """It ends long before the time that is allowed without links.

    Every link was refused, so the peer has ended.
    """
    with relayed(2, link_timeout_s=NEVER_S, server={"link_timeout_s": NEVER_S}) as (
        relay,
        near,
        far,
        _,
    ):
        relay.set(RESET, *near_names(2), CONTROL)
        for end in (near, far):
            with pytest.raises(AllLinksLost, match=r"link 0 .*link 1 "):
                end.recv(1)
        with pytest.raises(AllLinksLost):
            near.sendall(b"x")


@pytest.mark.parametrize("why", ["No route to host", "closed by the peer"])
def test_without_any_link_it_waits_as_long_as_it_may(
    clock: Clock, why: str, never_abandoned: None
) -> None:
    """The network has cut the links, not the peer, so they may come back.

    The session does not end before the time is over.
    """
    with relayed(2, link_timeout_s=NEVER_S, server={"link_timeout_s": NEVER_S}) as (
        _,
        near,
        far,
        _,
    ):
        with near._session.lock:
            near._session._rejoin = None
            for link in list(near._session.links.values()):
                near._session.lose(link, why)
        with rounds(near._session) as wait:
            clock.let_pass(0.9 * NEVER_S)
            wait(3)
            assert not near._session.broken
            clock.let_pass(0.2 * NEVER_S)
        with pytest.raises(
            AllLinksLost, match=rf"^no link for \d+\.\d s: link 0 .*: {why}; link 1 .*: {why}$"
        ):
            near.recv(1)
        assert far  # who may have learnt it or not


PEER = """
import sys
from ri2n_parallel import Qos, create_connection
with create_connection(("127.0.0.1", int(sys.argv[1])), Qos(3)) as sock:
    if sys.argv[2] == "send":
        while True:
            sock.sendall(bytes(1 << 20))
    print(sock.recv(1), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("what", ["send", "recv"])
def test_a_peer_that_is_killed(what: str) -> None:
    """The error comes soon although no peer is left, and says why each link is down."""
    with serving(3, link_timeout_s=NEVER_S) as listener:
        command = [sys.executable, "-c", PEER, str(listener.address[1]), what]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe) as peer:
            try:
                far = listener.accept(PATIENCE_S)
                wait_until("links", lambda: len(far.links) == 3)
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
            with far, pytest.raises(AllLinksLost, match=r"link 0 .*; link 1 .*; link 2 "):
                if what == "send":
                    read_all(far)
                else:
                    far.sendall(bytes(64 << 20))
        wait_until("given back", lambda: set(listener.connections.values()) == {0})


def test_a_server_that_is_gone() -> None:
    """Its listener is closed and its end aborted.

    The client learns that, although it tries to connect links again.
    """
    with serving(2) as listener:
        near = connect(listener.address, Qos(2), link_timeout_s=NEVER_S)
        far = listener.accept(PATIENCE_S)
        wait_until("links", lambda: len(far._session.links) == 2)
        listener.close()
        with far._session.lock:  # as if it had been killed: nobody says a word
            for link in far._session.links.values():
                link.stream.shutdown(socket.SHUT_RDWR)
            far._session.broken = ConnectionAbortedError("killed")
            far._session.closing = True
        with pytest.raises(AllLinksLost, match=r"link 0 .*link 1 "):
            near.recv(1)
        near.close()
        far.abort()


def test_a_link_for_which_there_was_no_descriptor_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scarce = iter([OSError(errno.EMFILE, "Too many open files")])
    real = socket.socket

    def made(*args: Any) -> socket.socket:
        if (error := next(scarce, None)) is not None:
            raise error
        return real(*args)

    with serving(2) as listener:
        monkeypatch.setattr(dial, "_new_socket", made)
        with connect(listener.address, Qos(2)) as near, listener.accept(PATIENCE_S) as far:
            wait_until("both links", lambda: state(near) == {0: "up", 1: "up"} == state(far))
            assert next(scarce, "used") == "used"
            near.abort()
