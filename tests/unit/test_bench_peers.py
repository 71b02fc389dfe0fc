# SPDX-License-Identifier: Apache-2.0
"""What each peer can do on the shipped topologies, and the options that name peers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_lab.bench.failover import FailoverSettings
from ri2n_lab.bench.failover import total_seconds as failover_seconds
from ri2n_lab.bench.fig4 import Fig4Settings, clients_of, total_seconds
from ri2n_lab.bench.peers import PEERS
from ri2n_lab.bench.peers.base import address_on, common_networks
from ri2n_lab.bench.peers.ecmp import path_weights
from ri2n_lab.bench.peers.knock import knock
from ri2n_lab.bench.peers.stacked import stacked
from ri2n_lab.cli.bench_common import PEER_NAMES, contestants, stream_counts
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology, load_topology
from tests.topology_text import parse_topology

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
FIGURE_4 = [f"fig4/{letter}" for letter in "abcdefgh"]
ALL = [*FIGURE_4, "one-switch", "mixed"]


def topology_of(name: str) -> Topology:
    return load_topology(TOPOLOGIES / f"{name}.yaml")


def why_not(peer: str, topology: Topology) -> str | None:
    return PEERS[peer].why_not(topology, "A", clients_of(topology, "bulk"))


CANNOT = {
    ("lcb", "fig4/d"): "A has 2 and B 1",
    ("lcb", "fig4/f"): "A has 2 and B 1",
    ("lcb", "fig4/g"): "A has 2 and B 1",
    ("lcb", "fig4/h"): "A has 2 and B 1",
    ("lcb", "one-switch"): "a switch of its own for each link",
    ("lcb", "mixed"): "A has 4 and B 1",
    ("lacp_hash", "mixed"): "A has 20 and 50 and 100 Mbit/s",
    ("ovs_equal", "one-switch"): "all NICs of A are on one switch",
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("peer", PEERS)
def test_every_shipped_topology(peer: str, name: str) -> None:
    reason = why_not(peer, topology_of(name))
    expected = CANNOT.get((peer, name))
    assert (reason is None) if expected is None else (reason is not None and expected in reason), (
        reason
    )


def hosts(**nics: str) -> Topology:
    """hosts(A="s0 s1", B="s0"): a topology of 100 Mbit/s NICs on those switches."""
    lines = ["name: t", "switches: {s0: {}, s1: {}}", "hosts:"]
    for host, switches in nics.items():
        lines.append(f"  {host}:\n    nics:")
        lines += [
            f"      - {{name: eth{k}, switch: {s}, rate_bps: 100000000}}"
            for k, s in enumerate(switches.split())
        ]
    return parse_topology("\n".join(lines) + "\n")


def test_a_client_without_a_common_network_is_named() -> None:
    apart = hosts(A="s0", B="s0", C="s1")
    for peer in ("ovs_equal", "ecmp", "mptcp"):
        assert why_not(peer, apart) == "C and A share no network"
    assert why_not("lcb", apart) is not None
    for peer in ("lacp_hash", "ovs_bond"):  # its switches are one
        assert why_not(peer, apart) is None


def test_round_robin_needs_link_k_on_switch_k() -> None:
    assert why_not("lcb", hosts(A="s0 s1", B="s0 s1")) is None
    crossed = why_not("lcb", hosts(A="s0 s1", B="s1 s0"))
    assert crossed is not None and "link k of every host on one switch" in crossed


@pytest.mark.parametrize("name", ALL)
def test_stacking_keeps_hosts_rates_and_buffers(name: str) -> None:
    plain = topology_of(name)
    built = PEERS["lacp_hash"].topology(plain)
    assert built == PEERS["ovs_bond"].topology(plain) == stacked(plain)
    assert len(built.switches) == 1
    assert (len(plain.switches) == 1) == (built == plain)
    assert built == plain or "stack" in built.description
    assert built.name == plain.name
    for host, spec in plain.hosts.items():
        rates = [(nic.name, nic.rate_bps) for nic in built.hosts[host].nics]
        assert rates == [(nic.name, nic.rate_bps) for nic in spec.nics]
    smallest = min(switch.port_buffer_bytes for switch in plain.switches.values())
    assert [switch.port_buffer_bytes for switch in built.switches.values()] == [smallest]


@pytest.mark.parametrize("name", ALL)
def test_peers_that_need_no_stack_get_the_same_topology(name: str) -> None:
    plain = topology_of(name)
    for peer in ("lcb", "ovs_equal", "ecmp", "mptcp"):
        assert PEERS[peer].topology(plain) == plain


@pytest.mark.parametrize("name", ALL)
def test_addresses_are_unique_and_networks_symmetric(name: str) -> None:
    topology = topology_of(name)
    addresses = [
        address_on(topology, host, network)
        for host in topology.hosts
        for network in common_networks(topology, host, host)
    ]
    assert (
        len(addresses)
        == len(set(addresses))
        == sum(len(spec.nics) for spec in topology.hosts.values())
    )
    for one in topology.hosts:
        for other in topology.hosts:
            assert set(common_networks(topology, one, other)) == set(
                common_networks(topology, other, one)
            )


def test_several_nics_on_one_switch_are_networks_of_their_own() -> None:
    topology = topology_of("one-switch")
    assert common_networks(topology, "A", "B") == [("s0", 0), ("s0", 1)]
    assert address_on(topology, "B", ("s0", 1)) == "10.78.1.2"
    mixed = topology_of("mixed")
    assert common_networks(mixed, "D", "A") == [
        ("s0", 0),
        ("s1", 0),
        ("s2", 0),
    ]  # A's second NIC on s2 is for nobody


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([100, 100], [1, 1]),
        ([100, 50], [2, 1]),
        ([50, 20], [5, 2]),
        ([1000, 1], [255, 1]),
        ([7], [1]),
    ],
)
def test_weights_of_paths(rates: list[int], expected: list[int]) -> None:
    assert path_weights(rates) == expected


@given(st.lists(st.integers(1, 100), min_size=1, max_size=4))
def test_weights_are_possible_and_keep_the_ratio(hundreds: list[int]) -> None:
    weights = path_weights([rate * 1_000_000 for rate in hundreds])
    assert all(1 <= weight <= 255 for weight in weights)
    total, all_of_it = sum(weights), sum(hundreds)
    for weight, rate in zip(weights, hundreds, strict=True):
        assert weight / total == pytest.approx(rate / all_of_it, abs=0.01)


def test_knocking_counts_refusals_and_notices_silence() -> None:
    assert knock("127.0.0.1", 9, 3, 0.5) == 3
    with socket.create_server(
        ("127.0.0.1", 0), backlog=0
    ) as full:  # takes one or two, then answers no more
        assert knock("127.0.0.1", full.getsockname()[1], 4, 0.2) in (1, 2)


def test_the_command_line_knows_all_peers() -> None:
    assert list(PEERS) == PEER_NAMES
    assert {name: peer.name for name, peer in PEERS.items()} == {name: name for name in PEERS}


def test_strategies_and_peers_by_name() -> None:
    assert contestants("all", "") == {
        "strategies": list(STRATEGIES),
        "peers": (),
        "autonomous": (),
    }
    assert contestants("none", "all") == {"strategies": [], "peers": tuple(PEERS), "autonomous": ()}
    both = contestants("max_min", "lcb, ecmp", "ri2n_plus")
    assert both == {
        "strategies": ["max_min"],
        "peers": ("lcb", "ecmp"),
        "autonomous": ("ri2n_plus",),
    }
    assert contestants("none", "", "all")["autonomous"] == tuple(STRATEGIES)
    with pytest.raises(BadInput, match="none: name at least one of --peers"):
        contestants("none", "")
    with pytest.raises(BadInput, match="--peers: unknown 'bond'"):
        contestants("all", "bond")
    for wrong in (("fastest", ""), ("max_min", "", "fastest")):
        with pytest.raises(BadInput, match="unknown 'fastest'"):
            contestants(*wrong)


def test_numbers_of_streams() -> None:
    assert stream_counts("1,8,1") == (1, 8)
    for wrong in ("0", "129", "x", "1.5", "-1", ","):
        with pytest.raises(BadInput, match="--streams"):
            stream_counts(wrong)


def test_each_peer_and_number_of_streams_takes_its_time() -> None:
    plain = topology_of("fig4/b")
    base = total_seconds(Fig4Settings([plain], ["max_min"]))
    assert total_seconds(Fig4Settings([plain], ["max_min"], peers=("lcb",))) == pytest.approx(
        2 * base
    )
    assert total_seconds(Fig4Settings([plain], ["max_min"], streams=(1, 8))) > 1.5 * base
    assert total_seconds(Fig4Settings([plain], [], peers=("lcb",))) == pytest.approx(base)
    faults = ["nic_down"]
    only_peer = failover_seconds(FailoverSettings(plain, faults, [], peers=("lcb",)))
    assert failover_seconds(
        FailoverSettings(plain, faults, ["max_min"], peers=("lcb",))
    ) == pytest.approx(2 * only_peer)
