# SPDX-License-Identifier: Apache-2.0
"""Which interfaces connections get, by the paper's rule and by the others.

The rules are tested as data and with a listener.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_parallel import ParallelSocket, Qos, create_listener
from ri2n_parallel.errors import BadInput
from ri2n_parallel.frames import HELLO, MAX_CHUNK, REPLY, SESSION_BYTES, Greeting
from ri2n_parallel.placement import (
    RULES,
    InterfaceLoad,
    least_bytes,
    least_connections,
    order,
    weights,
)
from tests.unit.parallel.raw import exactly
from tests.unit.parallel.worlds import (
    PATIENCE_S,
    Clock,
    addresses,
    connect,
    noise,
    p_all,
    serving,
    wait_until,
)

LOADS = st.lists(
    st.builds(InterfaceLoad, st.integers(0, 50), st.integers(0, 1 << 40), st.floats(0, 10)),
    min_size=1,
    max_size=10,
)


def test_the_lowest_number_on_a_tie() -> None:
    loads = [InterfaceLoad(2), InterfaceLoad(1), InterfaceLoad(1)]
    assert least_connections(loads) == 1
    assert order(least_connections, [InterfaceLoad() for _ in range(6)], 6) == [0, 1, 2, 3, 4, 5]
    assert order(least_connections, loads, 6) == [1, 2, 0, 1, 2, 0]


def test_bytes_and_weights() -> None:
    assert least_bytes([InterfaceLoad(0, 10), InterfaceLoad(9, 9)]) == 1
    assert least_bytes([InterfaceLoad(5, 9), InterfaceLoad(4, 9), InterfaceLoad(4, 9)]) == 1
    loads = [InterfaceLoad(weight=3), InterfaceLoad(weight=1), InterfaceLoad(weight=0)]
    counts = [0, 0, 0]
    for _ in range(40):
        place = weights(loads)
        loads[place].connections += 1
        counts[place] += 1
    assert counts == [30, 10, 0]
    assert weights([InterfaceLoad(weight=0), InterfaceLoad(weight=0)]) == 0
    assert weights([InterfaceLoad(weight=1), InterfaceLoad(weight=3)]) == 1, (
        "the first one of all counts, too"
    )


@given(LOADS, st.sampled_from(sorted(RULES)), st.integers(1, 64))
def test_one_client_uses_every_interface_before_any_twice(
    loads: list[InterfaceLoad], rule: str, count: int
) -> None:
    before = [(load.connections, load.bytes, load.weight) for load in loads]
    found = order(RULES[rule], loads, count)
    times = Counter(found)
    assert len(found) == count
    assert (
        max(times[place] for place in range(len(loads)))
        - min(times[place] for place in range(len(loads)))
        <= 1
    )
    assert [(load.connections, load.bytes, load.weight) for load in loads] == before


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(1, 8), st.booleans()), max_size=60))
def test_interfaces_stay_within_one_connection_of_each_other(
    count: int, clients: list[tuple[int, bool]]
) -> None:
    """This holds while clients come.

    Those that leave make a difference, and the next ones fill it up.
    """
    loads = [InterfaceLoad() for _ in range(count)]
    for links, _ in clients:
        for place in order(least_connections, loads, links):
            loads[place].connections += 1
        found = [load.connections for load in loads]
        assert max(found) - min(found) <= 1


def test_72_connections_on_six_interfaces_are_within_one() -> None:
    """3 hosts with 24 clients each, as in figure 9 of the paper, with one link each.

    Some of the clients go, and others come.
    """
    names = addresses(6)
    with serving(6) as listener:
        clients: list[ParallelSocket] = []
        servers: list[ParallelSocket] = []

        def come(count: int) -> None:
            for _ in range(count):
                clients.append(connect(listener.address, Qos(1)))
                servers.append(listener.accept(PATIENCE_S))

        def spread() -> int:
            found = listener.connections
            return max(found[name] for name in names) - min(found[name] for name in names)

        come(72)
        assert listener.connections == dict.fromkeys(names, 12)
        for number in (5, 17, 18, 40, 41, 71):
            clients[number].close()
            servers[number].close()
        wait_until("they are gone", lambda: sum(listener.connections.values()) == 66)
        come(6)
        assert listener.connections == dict.fromkeys(names, 12)
        come(1)
        assert spread() == 1
        for one in clients + servers:
            one.abort()
        wait_until("all are gone", lambda: set(listener.connections.values()) == {0})


def test_clients_that_ask_and_never_come_hold_no_place_for_long(clock: Clock) -> None:
    """The places that were reserved for them are released."""
    with serving(4, handshake_timeout_s=PATIENCE_S) as listener:
        with socket.create_connection(listener.address) as asks:
            asks.sendall(Greeting(HELLO, 6, MAX_CHUNK, 1 << 20, bytes(SESSION_BYTES)).pack())
            assert len(exactly(asks, REPLY.size + 6 * 20)) == REPLY.size + 6 * 20
            clock.let_pass(0.9 * PATIENCE_S)
            assert list(listener.connections.values()) == [2, 2, 1, 1]
            assert listener.counters["sessions_open"] == 1
            clock.let_pass(0.2 * PATIENCE_S)
            wait_until("given back", lambda: set(listener.connections.values()) == {0})
        assert listener.counters["sessions_without_links"] == 1
        wait_until("ended", lambda: not listener.counters["sessions_open"])


def test_least_bytes_avoids_the_interface_that_carries_much() -> None:
    with serving(2, placement="least_bytes") as listener:
        near = connect(listener.address, Qos(1))
        far = listener.accept(PATIENCE_S)
        near.sendall(noise(1 << 20))
        assert p_all(far, 1 << 20)
        others = [connect(listener.address, Qos(1)) for _ in range(3)]
        found = [one.links[0].remote.split(":")[0] for one in [near, *others]]
        assert found == ["127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.2"]
        for one in [near, far, *others]:
            one.abort()


def test_weights_by_address() -> None:
    given_weights = {"127.0.0.1": 1.0, "127.0.0.2": 2.0}
    with serving(2, placement="weights", weights=given_weights) as listener:
        near = [connect(listener.address, Qos(1)) for _ in range(6)]
        assert list(listener.connections.values()) == [2, 4]
        for one in near:
            one.abort()


@pytest.mark.parametrize("port", ["any", "named"])
def test_a_port_that_is_taken_at_another_address(
    port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When no port is named, it takes a port that is free at all addresses."""
    names, tried = addresses(3), list[int]()
    real = socket.create_server

    def create(address: tuple[str, int], **options: Any) -> socket.socket:
        if address[0] == names[2] and len(tried) < 2:
            tried.append(address[1])
            raise OSError(errno.EADDRINUSE, "Address already in use")
        return real(address, **options)

    monkeypatch.setattr(socket, "create_server", create)
    if port == "any":
        with create_listener((names[0], 0), addresses=names) as listener:
            assert len(tried) == 2 and listener.address[1] not in tried
        return
    with real((names[0], 0)) as free:
        number = free.getsockname()[1]
    with pytest.raises(OSError, match="in use"):
        create_listener((names[0], number), addresses=names)
    assert tried == [number]


def test_bad_placements() -> None:
    with pytest.raises(BadInput, match=r"placement: fastest is none of least_connections"):
        create_listener(("127.0.0.1", 0), placement="fastest")
    with pytest.raises(BadInput, match=r"weights: 10\.0\.0\.9"):
        create_listener(("127.0.0.1", 0), addresses=["127.0.0.1"], weights={"10.0.0.9": 1})
    with pytest.raises(BadInput, match=r"weights: 127\.0\.0\.1"):
        create_listener(("127.0.0.1", 0), addresses=["127.0.0.1"], weights={"127.0.0.1": -1})
