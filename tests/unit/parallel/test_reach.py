# SPDX-License-Identifier: Apache-2.0
"""Which of the addresses that a server names a client connects to.

The others are counted.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from ri2n_parallel import Qos, connect, create_connection, dial
from ri2n_parallel.errors import BadInput
from ri2n_parallel.frames import GREETING, MAX_CHUNK, OK, SESSION_BYTES, Endpoint, Greeting, Reply
from ri2n_parallel.interfaces import own_addresses, own_interfaces
from ri2n_parallel.reach import Interface, networks_of, sensible
from tests.unit.parallel.raw import WINDOW, exactly
from tests.unit.parallel.worlds import PATIENCE_S, in_thread, wait_until
from tests.unit.parallel.worlds import connect as patient_connect

OWN: list[Interface] = [
    *map(
        ipaddress.ip_interface,
        ["127.0.0.1/8", "10.0.1.5/24", "10.0.2.5/24", "192.0.2.4/31", "169.254.3.3/16"],
    ),
    *map(ipaddress.ip_interface, ["::1/128", "fd00:1::5/64"]),
]


def own(version: int) -> list[Interface]:
    return [each for each in OWN if each.version == version]


NEAR, FAR, HERE = "10.0.1.9", "198.51.100.9", "127.0.0.1"


@pytest.mark.parametrize(
    ("asked", "named", "is_sensible"),
    [
        (NEAR, NEAR, True),
        (NEAR, "10.0.2.9", True),
        (NEAR, "fd00:1::9", True),
        (NEAR, "192.0.2.5", True),
        (NEAR, "::ffff:10.0.2.9", True),
        ("::ffff:10.0.1.9", NEAR, True),
        ("fe80::1%eth0", "fe80::1", True),
        (FAR, FAR, True),
        (FAR, NEAR, True),
        (NEAR, FAR, False),
        (NEAR, "10.0.3.9", False),
        (NEAR, "fd00:2::9", False),
        (NEAR, "fe80::9", False),
        (NEAR, "8.8.8.8", False),
        (NEAR, "169.254.169.254", True),  # this host has a NIC there
        (NEAR, "127.0.0.1", False),
        (NEAR, "127.1.2.3", False),
        (NEAR, "::1", False),
        (NEAR, "::ffff:127.0.0.1", False),
        (NEAR, "0.0.0.0", False),
        (NEAR, "::", False),
        # An own address: a program that listens there may assume that only this host can connect.
        (NEAR, "10.0.1.5", False),
        (NEAR, "fd00:1::5", False),
        (NEAR, "10.0.1.255", False),
        (NEAR, "10.0.1.0", False),
        (NEAR, "255.255.255.255", False),
        (NEAR, "224.0.0.1", False),
        (NEAR, "240.0.0.1", False),
        (NEAR, "ff02::1", False),
        (HERE, "127.0.0.9", True),
        (HERE, "::1", True),
        (HERE, "10.0.2.5", True),
        (HERE, "10.0.2.9", True),
        (HERE, "224.0.0.1", False),
        (HERE, FAR, False),
        ("10.0.1.5", "10.0.2.5", True),
        ("10.0.1.5", "127.0.0.1", False),
    ],
)
def test_where_links_may_go(asked: str, named: str, is_sensible: bool) -> None:
    door, spare = Endpoint(asked, 7000), Endpoint(asked, 1)
    found = sensible([Endpoint(named, 7), spare], door, own)
    assert found == ([Endpoint(named, 7), spare] if is_sensible else [spare])
    assert sensible([Endpoint(named, 7)], door, own) == [
        Endpoint(named, 7) if is_sensible else door
    ]


def test_networks_that_the_program_names() -> None:
    named = [
        Endpoint(each, 7)
        for each in ("10.9.1.1", "10.8.1.1", "127.0.0.1", "224.0.0.1", "fd00:9::1", "10.9.255.255")
    ]
    networks = networks_of(["10.9.1.7/16", "fd00:9::/32", "127.0.0.0/8", "224.0.0.0/4"])
    found = sensible(named, Endpoint(NEAR, 7), own, networks)
    assert [each.address for each in found] == ["10.9.1.1", "fd00:9::1"]
    for text in ("", "10.9", "10.9.0.0/33", "here"):
        with pytest.raises(BadInput, match=r"networks: .*: is no network such as"):
            create_connection((HERE, 1), networks=[text])


def test_own_interfaces_are_looked_up_only_where_that_is_needed() -> None:
    asked: list[int] = []

    def looked_up(version: int) -> list[Interface]:
        asked.append(version)
        return own(version)

    def found(door: str, *named: str) -> int:
        return len(sensible([Endpoint(each, 7) for each in named], Endpoint(door, 7), looked_up))

    assert found(NEAR, NEAR, NEAR) == 2 and found(HERE, "127.0.0.8", "127.0.0.9") == 2 and not asked
    assert found(NEAR, NEAR, "10.0.2.9", "10.0.2.8") == 3 and asked == [4]


def test_this_host_has_interfaces() -> None:
    found = [*own_interfaces(4), *own_interfaces(6)]
    assert ipaddress.ip_interface("127.0.0.1/8") in found
    names = [str(each.ip) for each in found]
    assert set(own_addresses(4)) | set(own_addresses(6)) <= set(names)


def test_a_client_does_not_knock_at_every_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server made by hand names addresses elsewhere.

    Links go to the address that was asked, and the others are counted.
    """
    knocked: list[Any] = []

    class Socket(socket.socket):
        def connect_ex(self, address: Any, /) -> int:
            knocked.append(address)
            return super().connect_ex(address)

    monkeypatch.setattr(dial, "_new_socket", Socket)
    monkeypatch.setattr(connect, "own_interfaces", own)
    others = [Endpoint(each, 22) for each in (FAR, "224.0.0.1", "fd00:2::9")]
    with socket.create_server((HERE, 0)) as listening:
        listening.settimeout(PATIENCE_S)
        connecting = in_thread(lambda: patient_connect(listening.getsockname(), Qos(3)))
        streams = [listening.accept()[0]]
        exactly(streams[0], GREETING.size)
        door = Endpoint(*listening.getsockname())
        streams[0].sendall(
            Reply(OK, MAX_CHUNK, WINDOW, bytes(SESSION_BYTES), (*others, door)).pack()
        )
        for _ in range(3):
            streams.append(listening.accept()[0])
            Greeting.unpack(exactly(streams[-1], GREETING.size))
            streams[-1].sendall(Reply(OK).pack())
        near = connecting.result()
        wait_until("links", lambda: len(near.links) == 3)
        assert knocked == [(door.address, door.port)] * 3
        assert near.counters["addresses_refused"] == 3
        near.abort()
        for each in streams:
            each.close()
