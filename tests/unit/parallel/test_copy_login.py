# SPDX-License-Identifier: Apache-2.0
"""Clients of a copy server that have not sent their hello.

What is taken from them, for how long, and how many there may be.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from ri2n_parallel.copy import ProtocolViolation
from ri2n_parallel.copy import channel as channel_module
from ri2n_parallel.copy import server as server_module
from ri2n_parallel.copy.channel import Channel
from ri2n_parallel.copy.messages import HEADER, Done, Message, Stat, Wait, encode
from tests.unit.parallel.copy_help import HELLO, read_all, say, serving
from tests.unit.parallel.worlds import PATIENCE_S, Clock, in_thread
from tests.waiting import wait_until


@pytest.mark.parametrize("words", [b"", b"\0\0", HELLO[:-1]])
def test_a_client_has_less_time_to_say_hello(
    served: Path, words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "LOGIN_S", 0.3)
    with serving(served, timeout_s=10 * PATIENCE_S) as running:
        end = running.connect()
        end.sendall(words)
        read_all(end)
        counters = running.server.counters
        wait_until(
            lambda: (counters["logins_timed_out"], counters["timeouts"]) == (1, 0), lambda: counters
        )


@pytest.mark.parametrize("first", [Wait(), Stat(""), Done()])
def test_nothing_but_hello_is_taken_before_hello(served: Path, first: Message) -> None:
    """A client that sent Wait could hold a place for hours."""
    with serving(served, timeout_s=10 * PATIENCE_S) as running:
        assert b'"protocol"' in say(running, encode(first) + HELLO + encode(Stat("")))
        wait_until(
            lambda: running.server.counters["refused_protocol"] == 1,
            lambda: running.server.counters,
        )


def test_a_first_message_is_short(served: Path) -> None:
    with serving(served) as running:
        assert b"a first message of 1025 bytes" in say(running, HEADER.pack(1025))


def test_clients_that_say_nothing_take_no_places_of_transfers(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor places of other addresses: the oldest of the address that has most makes room."""
    monkeypatch.setattr(server_module, "MAX_LOGINS", 6)
    monkeypatch.setattr(server_module, "MAX_LOGINS_OF_ADDRESS", 4)
    with serving(served, max_transfers=1, timeout_s=10 * PATIENCE_S) as running:
        counters = running.server.counters

        def come(address: str) -> socket.socket:
            monkeypatch.setattr(server_module, "_crowd", lambda transport: address)
            before = running.server.counters["sessions"]
            end = running.connect()
            wait_until(lambda: counters["sessions"] == before + 1, lambda: counters)
            return end

        friends = [come("friend"), come("friend")]
        strangers = [come("stranger") for _ in range(4)]
        assert counters["logins_dropped"] == 0
        strangers.append(come("stranger"))
        assert read_all(strangers.pop(0)) == b"" and counters["logins_dropped"] == 1
        session = running.session()  # from there too, by which another one of them goes
        assert read_all(strangers.pop(0)) == b"" and counters["logins_dropped"] == 2
        assert session.status("").kind == "directory"
        friends.append(come("friend"))  # in the place that is free again
        for end in friends:
            end.sendall(HELLO)
            assert b'"busy"' in read_all(end)
        assert session.status("").kind == "directory" and counters["refused_busy"] == 3
        assert counters["logins_dropped"] == 2


def test_a_peer_may_ask_to_wait_for_an_hour_in_all(clock: Clock) -> None:
    near, far = socket.socketpair()
    with near, far:
        channel = Channel(near, 10 * channel_module.MAX_WAIT_S)
        waiting = in_thread(channel.receive_answer)
        far.sendall(encode(Wait()))
        wait_until(
            lambda: channel.received_bytes >= len(encode(Wait())), lambda: channel.received_bytes
        )
        clock.let_pass(channel_module.MAX_WAIT_S + 1)
        far.sendall(encode(Wait()))
        with pytest.raises(ProtocolViolation, match="for ever"):
            waiting.result()


def test_a_message_that_comes_byte_by_byte_has_the_same_time_out(
    served: Path, clock: Clock
) -> None:
    with serving(served, timeout_s=PATIENCE_S) as running:
        end = running.connect()
        wait_until(
            lambda: running.server.counters["sessions"] == 1, lambda: running.server.counters
        )
        data, sent = HELLO, 0
        with contextlib.suppress(ConnectionError):
            for sent in range(len(data)):
                # After six bytes the time for a hello is over; the server may need a while to see
                # that.
                end.settimeout(0.05 if sent < 6 else 10.0)
                end.sendall(data[sent : sent + 1])
                with contextlib.suppress(TimeoutError):
                    assert end.recv(1) == b""
                    break
                clock.let_pass(server_module.LOGIN_S / 4)
        assert 1 < sent < len(data) - 1
        wait_until(
            lambda: running.server.counters["logins_timed_out"] == 1,
            lambda: running.server.counters,
        )
