# SPDX-License-Identifier: Apache-2.0
"""Wiring that changes under a running controller, and hosts that are wired oddly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ri2n_lab.cluster.sandbox import Sandbox
from tests.problem_texts import problem_texts
from tests.waiting import wait_until

from .frames import Capture, arp, await_problems, slot_hops, udp

WIRING = {"A": ["n0", "n1"], "B": ["n0", "n1"], "C": ["n0", "n0"], "D": ["n1"], "E": ["n0"]}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(WIRING) as made:
        made.start_controller()
        made.wait_settled()
        yield made
        assert "Traceback" not in made.log()


def networks(sandbox: Sandbox) -> set[frozenset[str]]:
    return {frozenset(network["nics"]) for network in sandbox.ask("status")["networks"]}


def expected(wiring: dict[str, list[str]]) -> set[frozenset[str]]:
    found: dict[str, set[str]] = {}
    for host, nets in wiring.items():
        for index, net in enumerate(nets):
            found.setdefault(net, set()).add(f"{host}:{host}-e{index}")
    return {frozenset(nics) for nics in found.values()}


def every_pair_once(sandbox: Sandbox, wiring: dict[str, list[str]], mark: int) -> None:
    """8 flows and a broadcast of every pair with a common network arrive once.

    Nothing reaches the other hosts.
    """
    # The frames must follow the tables, not what was cached before.
    sandbox.ovs.appctl("revalidator/purge")
    capture = Capture(sandbox)
    wanted: dict[str, list[str]] = {name: [] for name in wiring}
    for source, nets in wiring.items():
        shout = udp(sandbox.mac(source), "ff:ff:ff:ff:ff:ff", (mark, 9))
        sandbox.receive(source, shout)
        for target in wiring.keys() - {source}:
            if set(nets) & set(wiring[target]):
                frames = [
                    udp(sandbox.mac(source), sandbox.mac(target), (mark, port)) for port in range(8)
                ]
                sandbox.receive(source, *frames)
                wanted[target] += [*frames, shout]
    capture.expect(wanted)


def test_unequal_wiring_is_found_and_odd_pairs_are_named(sandbox: Sandbox) -> None:
    assert networks(sandbox) == expected(WIRING)
    await_problems(sandbox, "C and D have no common network", "D and E have no common network")
    assert sandbox.ask("explain", src="C", dst="D")["kind"] == "none"
    every_pair_once(sandbox, WIRING, 1)


def test_two_nics_on_one_network_are_both_used(sandbox: Sandbox) -> None:
    own = {sandbox.nic_mac("C", 1), sandbox.nic_mac("C", 2)}
    to_c = slot_hops(sandbox, "E", "C", 64)
    assert {dict(hops[0].sets)["eth_dst"] for hops in to_c} == own
    assert all(hops[-1].bridge == "C" and hops[-1].outputs == ["LOCAL"] for hops in to_c)
    from_c = slot_hops(sandbox, "C", "E", 64)
    assert {dict(hops[0].sets)["eth_src"] for hops in from_c} == own
    assert {hops[0].outputs[0] for hops in from_c} == {"1", "2"}


@pytest.mark.parametrize("dead", [0, 1])
def test_arp_is_taken_from_either_nic_of_one_network(sandbox: Sandbox, dead: int) -> None:
    request = arp(sandbox.mac("E"), "10.77.0.5", "10.77.0.3")
    capture = Capture(sandbox)
    for setting in ("no-receive", "no-forward"):
        sandbox.ovs.ofctl("mod-port", "n0", f"n0-C-{dead}", setting)
    try:
        sandbox.ovs.appctl("revalidator/purge")
        sandbox.receive("E", request)  # the controller does not know of it yet
        wait_until(lambda: capture.new("C")[request], "ARP is lost with one dead port")
        assert capture.new("C")[request] == 1
    finally:
        for setting in ("receive", "forward"):
            sandbox.ovs.ofctl("mod-port", "n0", f"n0-C-{dead}", setting)
    wait_until(lambda: all_alive(sandbox), "the port is not taken for alive again")
    sandbox.wait_settled()


def all_alive(sandbox: Sandbox) -> bool:
    return all(nic["alive"] for host in sandbox.ask("status")["hosts"] for nic in host["nics"])


def test_a_link_that_moves_is_followed(sandbox: Sandbox) -> None:
    """B's second NIC goes to the first network and back, then a third network appears."""
    for turn, target in enumerate(("n0", "n1"), 2):
        before = {**WIRING, "B": ["n0", "n0" if target == "n1" else "n1"]}
        after = {**WIRING, "B": ["n0", target]}
        assert networks(sandbox) == expected(before)
        replug(sandbox, "B", 2, target)
        wait_until(
            lambda after=after: networks(sandbox) == expected(after),  # type: ignore[misc]
            lambda: (
                f"networks are {networks(sandbox)}, events {sandbox.ask('events')['events'][-5:]}"
            ),
        )
        sandbox.wait_settled()
        every_pair_once(sandbox, after, turn)


def replug(sandbox: Sandbox, host: str, port: int, network: str) -> None:
    """Move the cable of a NIC from its switch to another one; the NIC itself stays."""
    near = f"{host}-e{port - 1}"
    far = sandbox.ovs.vsctl("get", "interface", near, "options:peer").strip().strip('"')
    new = f"{network}-{near}"
    words = ["del-port", far, "--", "add-port", network, new]
    words += ["--", "set", "interface", new, "type=patch"]
    sandbox.ovs.vsctl(*words, f"options:peer={near}")
    # Open vSwitch finds only a peer that exists.
    sandbox.ovs.vsctl("set", "interface", near, f"options:peer={new}")


def test_a_nic_is_added_and_removed(sandbox: Sandbox) -> None:
    sandbox.ovs.vsctl(*sandbox.link_commands("E", 2, "n1")[1:])
    more = {**WIRING, "E": ["n0", "n1"]}
    wait_until(lambda: networks(sandbox) == expected(more), lambda: f"{networks(sandbox)}")
    sandbox.wait_settled()
    await_problems(sandbox, "C and D have no common network")
    every_pair_once(sandbox, more, 5)
    sandbox.ovs.vsctl("del-port", "E-e1", "--", "del-port", "n1-E-1")
    wait_until(lambda: networks(sandbox) == expected(WIRING), lambda: f"{networks(sandbox)}")
    sandbox.wait_settled()
    every_pair_once(sandbox, WIRING, 6)


def test_a_host_that_comes_later_is_reached_and_one_that_leaves_stays_reachable() -> None:
    with Sandbox(WIRING) as sandbox:
        sandbox.start_controller()
        sandbox.wait_settled()
        sandbox.hosts["F"] = ["n0", "n1"]
        sandbox.number["F"] = 6
        sandbox.ovs.vsctl(*sandbox.host_commands("F", 6, ["n0", "n1"])[1:])
        wiring = {**WIRING, "F": ["n0", "n1"]}
        wait_until(lambda: networks(sandbox) == expected(wiring), lambda: f"{networks(sandbox)}")
        sandbox.wait_settled()
        every_pair_once(sandbox, wiring, 7)
        # Nobody listens at this address.
        sandbox.ovs.vsctl("set", "controller", "F", 'target="tcp:127.0.0.1:9"')
        wait_until(
            lambda: "F is not connected" in problem_texts(sandbox.ask("status")),
            "the lost connection is not noticed",
        )
        sandbox.wait_settled(hosts=len(WIRING))
        every_pair_once(sandbox, wiring, 8)
        assert "Traceback" not in sandbox.log()
