# SPDX-License-Identifier: Apache-2.0
"""Placed connections: the path that is chosen, and the section `placement` of cluster.yaml."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.model import Nic, Path, Route
from ri2n_sdn.fabric.yamlfile import parse_model
from ri2n_sdn.pipeline.placement import (
    HALF_OPEN_S,
    Connection,
    Load,
    PlacedRow,
    choose,
    cookie_of,
    path_back,
    path_of_cookie,
    server_of,
)

PORTS = st.integers(1, 1023)


def nic(host: str, port: int, *, up: bool = True) -> Nic:
    return Nic(
        host,
        f"eth{port}",
        port,
        f"04:00:00:00:{ord(host):02x}:{port:02x}",
        10**8,
        up=up,
        network=f"n{port}",
    )


def paths(count: int, client: str = "B", dead: frozenset[int] = frozenset()) -> list[Path]:
    return [Path(nic("A", i, up=i not in dead), nic(client, i)) for i in range(1, count + 1)]


# ---- The decision


def test_the_first_connections_go_to_the_lowest_numbers() -> None:
    load, chosen = Load(), []
    for client in "BCDBCDB":
        path = choose(paths(6, client), load)
        assert path is not None
        load.add("A", client, path.key)
        chosen.append(path.own.port)
    assert chosen == [1, 2, 3, 4, 5, 6, 1]


@given(
    st.lists(st.tuples(st.sampled_from("BCD"), st.booleans()), max_size=120),
    st.integers(1, 6),
    st.data(),
)
def test_nics_stay_within_one_while_connections_begin(
    steps: list[tuple[str, bool]], count: int, data: st.DataObject
) -> None:
    """Connections that end may leave NICs uneven; each new one then goes where the fewest are."""
    open_now: list[tuple[str, Path]] = []
    for client, ends in steps:
        load = Load()
        for other, used in open_now:
            load.add("A", other, used.key)
        before = [load.nics["A", port] for port in range(1, count + 1)]
        if ends and open_now:
            open_now.pop(data.draw(st.integers(0, len(open_now) - 1)))
            continue
        path = choose(paths(count, client), load)
        assert path is not None
        assert path.own.port == before.index(min(before)) + 1
        open_now.append((client, path))
    if not any(ends for _, ends in steps):
        counts = Counter(path.own.port for _, path in open_now)
        assert (
            max(counts.values(), default=0)
            - min((counts[port] for port in range(1, count + 1)), default=0)
            <= 1
        )


def test_the_peers_nics_and_then_vlans_decide_between_equals() -> None:
    """Each host has two NICs on one network of several switches: four pairs of NICs, two VLANs."""
    every = [
        Path(nic("A", own), nic("B", peer), Route(vlan))
        for own in (1, 2)
        for peer in (1, 2)
        for vlan in (0, 102)
    ]
    load = Load()
    chosen = []
    for _ in range(8):
        path = choose(every, load)
        assert path is not None
        load.add("A", "B", path.key)
        chosen.append(path.key)
    assert chosen[:4] == [(1, 1, 0), (2, 2, 102), (1, 1, 0), (2, 2, 102)]
    assert Counter(key[1] for key in chosen) == {1: 4, 2: 4}
    assert Counter(key[2] for key in chosen) == {0: 4, 102: 4}


@given(st.sets(st.integers(1, 6)))
def test_no_dead_path_is_chosen(dead: set[int]) -> None:
    path = choose(paths(6, dead=frozenset(dead)), Load())
    alive = sorted(set(range(1, 7)) - dead)
    assert (path.own.port if path is not None else None) == (alive[0] if alive else None)


def test_the_path_back_is_between_the_same_nics_in_the_same_vlan_if_it_can() -> None:
    into = Path(nic("B", 2), nic("A", 1), Route(102))
    out = [
        Path(nic("A", 1), nic("B", peer), Route(vlan)) for peer in (1, 2) for vlan in (0, 101, 102)
    ]
    assert path_back(into, out) == (1, 2, 102)
    assert path_back(into, [path for path in out if path.route.vlan != 102]) == (1, 2, 0)
    assert path_back(into, [path for path in out if path.peer.port == 1]) is None


def test_the_way_back_is_in_the_same_vlan_though_it_is_dead() -> None:
    """Until that VLAN works, the pair's slot table decides.

    Then the connection uses one VLAN in both directions again.
    """
    into = Path(nic("B", 2), nic("A", 1), Route(102))
    out = [Path(nic("A", 1), nic("B", 2), Route(vlan, alive=vlan == 101)) for vlan in (0, 101, 102)]
    assert path_back(into, out) == (1, 2, 102)
    assert path_back(into, out[:2]) == (1, 2, 101), "without one of the same VLAN, a live one"


@given(PORTS, PORTS, st.integers(0, 4095))
def test_a_cookie_tells_the_path(own: int, peer: int, vlan: int) -> None:
    assert path_of_cookie(cookie_of((own, peer, vlan))) == (own, peer, vlan)


@pytest.mark.parametrize(
    ("age_s", "packets", "given_up"), [(1, 0, False), (76, 0, True), (1e6, 1, False)]
)
def test_what_the_client_never_finished_is_given_up(
    age_s: float, packets: int, given_up: bool
) -> None:
    assert HALF_OPEN_S < 76
    assert (
        PlacedRow(Connection("a", 1, "b", 2, "m"), (1, 1, 0), age_s, packets).half_open is given_up
    )


def test_a_connection_is_its_servers() -> None:
    placement = {"A": (80,), "B": ()}
    assert (
        server_of(placement, "A", 80, "C", 5000) == server_of(placement, "C", 5000, "A", 80) == "A"
    )
    assert server_of(placement, "A", 5000, "C", 80) is None
    assert server_of(placement, "C", 80, "B", 5000) == "B"
    assert server_of({}, "A", 80, "C", 5000) is None


# ---- cluster.yaml


def test_placement_in_cluster_yaml() -> None:
    config = parse_model(
        "placement: [{hosts: [A, B], ports: [80, 443, 80]}, {hosts: [C], policy: "
        "least_connections}]",
        ClusterConfig,
        "cluster.yaml",
    )
    assert config.placed_ports() == {"A": (80, 443), "B": (80, 443), "C": ()}
    assert ClusterConfig().placed_ports() == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("placement: {hosts: [A]}", "placement"),
        ("placement: [{ports: [80]}]", "hosts"),
        ("placement: [{hosts: []}]", "hosts"),
        ("placement: [{hosts: [A], ports: [0]}]", "ports"),
        ("placement: [{hosts: [A], port: 80}]", "port"),
        ("placement: [{hosts: [A], policy: most}]", "policy"),
        ("placement: [{hosts: [A]}, {hosts: [B, A]}]", "A is there twice"),
    ],
)
def test_a_wrong_placement_is_refused_with_its_key(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        parse_model(text, ClusterConfig, "cluster.yaml")
    assert "\n" not in str(caught.value)
