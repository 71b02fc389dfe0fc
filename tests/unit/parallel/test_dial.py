# SPDX-License-Identifier: Apache-2.0
"""Which own address a link leaves from, and which address of the server it goes to.

It is the nearest own address, and an address of the server that can be reached.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from ri2n_parallel import Qos, dial
from ri2n_parallel.dial import Client
from tests.unit.parallel.worlds import PATIENCE_S, addresses, connect, p_all, serving, wait_until


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        ("10.0.1.9", ["10.0.1.1", "10.0.1.2", "10.0.1.1"]),
        ("10.0.2.9", ["10.0.2.1"] * 3),
        ("fd00::9", ["fd00::1"] * 3),
    ],
)
def test_a_link_leaves_from_the_nearest_address_and_the_nearest_take_turns(
    remote: str, expected: list[str]
) -> None:
    client = Client(("10.0.1.1", "10.0.2.1", "10.0.1.2", "fd00::1"))
    assert [client.source(number, remote) for number in range(3)] == expected


def test_an_address_that_is_out_of_reach_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server names an address that cannot be reached from here.

    The next try goes to the next address.
    """
    far_away = "127.0.0.2"

    class Socket(socket.socket):
        def connect_ex(self, address: Any, /) -> int:
            return errno.ENETUNREACH if address[0] == far_away else super().connect_ex(address)

    with serving(2) as listener:
        monkeypatch.setattr(dial, "_new_socket", Socket)
        with connect(listener.address, Qos(2)) as near, listener.accept(PATIENCE_S) as far:
            wait_until("both links", lambda: len(near._session.up) == len(far._session.up) == 2)
            assert {link.remote.split(":")[0] for link in near.links} == {addresses(2)[0]}
            near.sendall(b"x")
            assert p_all(far, 1) == b"x"
            near.abort()
