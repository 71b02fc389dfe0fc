# SPDX-License-Identifier: Apache-2.0
"""How many clients may wait before they have said who they are, and who makes room."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_parallel import Qos, listener
from ri2n_parallel.crowds import Crowds, crowd_of
from tests.unit.parallel.worlds import PATIENCE_S, connect, serving, wait_until

STEPS = st.lists(
    st.tuples(st.sampled_from("abbccc"), st.sampled_from([0, 0, 0, 1]), st.integers(0, 20)),
    min_size=25,
)


@given(STEPS, st.integers(1, 8), st.integers(1, 5))
def test_as_a_slow_obvious_model(steps: list[tuple[str, int, int]], most: int, of_one: int) -> None:
    """The oldest of an address makes room.

    That address has as many as it may, or as many as any address has.
    """
    crowds: Crowds[int] = Crowds(most, of_one)
    model: list[tuple[int, str]] = []
    for number, (crowd, leaves, which) in enumerate(steps):
        if leaves:
            key = model.pop(which % len(model))[0] if model else -1
            assert crowds.discard(key) == (key >= 0)
            continue
        count = Counter(each for _, each in model)
        gone = crowds.displaced_by(crowd)
        assert (gone is None) == (count[crowd] < of_one and len(model) < most)
        if gone is not None:
            whose = dict(model)[gone]
            assert gone == next(key for key, each in model if each == whose)
            assert whose == crowd if count[crowd] >= of_one else count[whose] == max(count.values())
            assert crowds.discard(gone)
            model = [each for each in model if each[0] != gone]
        crowds.add(number, crowd)
        model.append((number, crowd))
        assert len(crowds) == len(model) <= most
        assert max(Counter(each for _, each in model).values()) <= of_one
        assert all(key in crowds for key, _ in model)


@pytest.mark.parametrize(
    ("address", "crowd"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("a socket", "a socket"),
    ],
)
def test_what_counts_as_one_address(address: str, crowd: str) -> None:
    assert crowd_of(address) == crowd


def test_silent_connections_of_one_address_take_no_places_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "MAX_PENDING", 12)
    monkeypatch.setattr(listener, "MAX_PENDING_OF_ADDRESS", 8)
    with serving(1, handshake_timeout_s=PATIENCE_S) as listening, contextlib.ExitStack() as stack:

        def come(source: str) -> socket.socket:
            before = len(listening._pending) + listening.counters["pending_dropped"]
            made = socket.create_connection(
                listening.address, PATIENCE_S, source_address=(source, 0)
            )
            wait_until(
                "accepted",
                lambda: len(listening._pending) + listening.counters["pending_dropped"] > before,
            )
            return stack.enter_context(made)

        others = [come("127.0.0.8") for _ in range(3)]
        strangers = [come("127.0.0.9") for _ in range(20)]
        assert listening.counters["pending_dropped"] == 12 and len(listening._pending) == 11
        for each in strangers[:12]:
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""
        with connect(listening.address, Qos(1)) as near, listening.accept(PATIENCE_S) as far:
            far.sendall(b"x")
            assert near.recv(1) == b"x"
        assert len(listening._pending) >= 10 and listening.counters["pending_dropped"] <= 13
        for each in others:
            each.sendall(b"no greeting")
            assert each.recv(1) == b""  # it was still heard
