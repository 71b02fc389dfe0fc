# SPDX-License-Identifier: Apache-2.0
"""Which NICs are in one network: found at once, and found again when cables move."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from random import Random
from types import MappingProxyType

import pytest

from ri2n_sdn.discovery.nic_state import Direction
from ri2n_sdn.fabric.model import NicId
from tests.unit.discovery.wired_world import TICK_S, World, settled, two_networks


@pytest.mark.parametrize("hosts", [1, 2, 3, 16])
def test_networks_are_found_within_half_a_second(hosts: int) -> None:
    world = World(two_networks(hosts))
    world.run(0.5)
    assert world.wiring.settled
    assert world.agrees()


def test_two_nics_of_one_host_on_one_switch_are_found() -> None:
    settled({("A", 1): "x", ("A", 2): "x", ("B", 1): "x", ("B", 2): "y"})


def test_a_host_that_joins_later_joins_what_is_there() -> None:
    world = settled(two_networks(3))
    for port in (1, 2):
        world.wires["late", port] = f"net{port}"
        world.wiring.set_nic(("late", port), True, world.now_s)
    world.run(0.5)
    assert world.wiring.settled and world.agrees()


def test_cost_grows_with_the_hosts_and_not_with_their_square() -> None:
    costs = {}
    for hosts in (20, 80):
        world = settled(two_networks(hosts), seconds=2.0)
        world.sent = world.reports = 0
        world.run(10.0)
        costs[hosts] = (world.sent, world.reports)
    for few, many in zip(costs[20], costs[80], strict=True):
        assert many <= 4.5 * few


def test_a_controller_that_is_behind_asks_for_less() -> None:
    """Otherwise it would never catch up."""
    sent = {}
    for lag_s in (0.0, 2.0):
        world = settled(two_networks(16))
        world.delay_s = world.wiring.lag_s = lag_s
        world.run(3.0)
        world.sent = 0
        world.run(10.0)
        sent[lag_s] = world.sent
        assert not world.dead() and world.agrees()
    assert sent[0.0] > 4 * sent[2.0] > 0


def test_a_moved_cable_is_followed() -> None:
    world = settled(two_networks(4))
    world.wires["h002", 1] = "net2"
    world.run(3.0)
    assert world.agrees() and not world.dead()
    assert any("moved" in text for text in world.log)


def test_a_moved_cable_is_named_where_a_single_nic_is_left() -> None:
    world = settled(two_networks(2))
    world.wires["h001", 1] = "net2"
    world.run(8.0)
    assert world.agrees()
    assert [text for text in world.log if "moved" in text] == ["h001:1 moved from n1 to n2"]


@pytest.mark.parametrize("late", ["stalled", "frozen"])
@pytest.mark.parametrize("hosts", [2, 3, 6])
def test_a_start_under_load_is_no_cable_that_was_moved(hosts: int, late: str) -> None:
    """Hosts that are late miss the first floods, and found networks that are one in truth."""
    founded = 0
    for seed in range(40):
        random = Random(seed)
        world = World(two_networks(hosts))
        for host in world.asked:
            getattr(world, late)[host] = world.now_s + random.choice([0.0, 0.1, 0.4, 1.0, 2.0])
        most = 0
        for _ in range(300):
            world.run(TICK_S)
            most = max(most, len(world.learned().keys() - {"?"}))
        assert world.agrees() and not world.dead(), (seed, world.learned())
        assert not any("moved" in text for text in world.log), (seed, world.log)
        founded += most > 2
    assert founded, "no host was so late that it founded a network: the test shows nothing"


def test_a_nic_that_goes_back_at_once_has_not_moved() -> None:
    world = settled(two_networks(4))
    world.wires["h002", 1] = "net2"
    while world.wiring.network(("h002", 1)) != world.wiring.network(("h000", 2)):
        world.run(TICK_S)
    world.wires["h002", 1] = "net1"
    world.run(6.0)
    assert world.agrees() and not world.dead()
    assert not any("moved" in text for text in world.log), world.log


@pytest.mark.parametrize("delay_s", [0.001, 0.3, 0.8], ids=["quiet", "late", "later"])
@pytest.mark.parametrize("hosts", [3, 4, 12])
@pytest.mark.parametrize("host", ["h000", "h001"], ids=["beacons", "another"])
def test_two_cables_of_a_host_that_are_swapped_join_no_networks(
    host: str, hosts: int, delay_s: float
) -> None:
    """h000 is the beacon of both networks, and now floods each into the other one.

    Its own network no longer hears it, so the two have not become one.
    """
    for step in range(20):
        world = settled(two_networks(hosts))
        world.delay_s = world.wiring.lag_s = delay_s
        world.run(2.0 + step * 0.05)
        world.wires[host, 1], world.wires[host, 2] = "net2", "net1"
        world.run(3.0 + 6 * delay_s)
        assert world.agrees() and not world.dead(), (step, world.learned(), world.log)
        assert not any("one network" in text for text in world.log), (step, world.log)


@pytest.mark.parametrize(
    ("hosts", "host"), [(2, "h000"), (2, "h001"), (4, "h000"), (4, "h003"), (200, "h000")]
)
def test_swapped_cables_are_found_within_a_second(hosts: int, host: str) -> None:
    """Networks of many hosts are asked less often, since one round of all takes 0.4 s."""
    for step in range(40 if hosts < 100 else 2):
        world = settled(two_networks(hosts), 2.0 + step * 0.025)
        world.wires[host, 1], world.wires[host, 2] = "net2", "net1"
        world.run(1.0 if hosts < 100 else 3.0)
        assert world.agrees() and not world.dead(), (step, world.learned(), world.log)


def test_networks_that_were_joined_part_again_though_the_controller_is_late_all_the_time() -> None:
    world = settled(two_networks(4))
    original = dict(world.wires)
    world.wires = dict.fromkeys(world.wires, "joined")
    world.run(4.0)
    world.wires = original
    for _ in range(60):
        world.run(0.2)
        world.now_s += 0.25  # it was not run for so long
        world.tick()
    assert world.agrees() and not world.dead(), (world.learned(), world.dead())


def test_networks_that_are_joined_become_one_and_part_again() -> None:
    world = settled(two_networks(4))
    original = dict(world.wires)
    world.wires = dict.fromkeys(world.wires, "joined")
    world.run(4.0)
    assert world.agrees()
    assert any("one network" in text for text in world.log)
    world.wires = original
    world.run(12.0)
    assert world.agrees() and not world.dead(), (world.learned(), world.dead())


@pytest.mark.parametrize(("sender", "receiver"), [("h000", "h001"), ("h001", "h000")])
def test_floods_of_another_network_that_stray_here_now_and_then_join_no_networks(
    sender: str, receiver: str
) -> None:
    """h000 is the beacon; h001 hears its own network's floods in between."""
    world = settled(two_networks(4))
    for _ in range(4):
        world.wiring.heard((sender, 2), (receiver, 1), True, world.now_s)
        world.run(2.0)
    assert world.log == [] and world.agrees()


def test_floods_of_another_network_between_those_of_the_own_one_join_no_networks() -> None:
    """They come as often as its own network's.

    A NIC that hears those of its own network, too, is not in one network with the sender.
    """
    world = settled(two_networks(4))
    for _ in range(5):
        world.wiring.heard(("h000", 2), ("h001", 1), True, world.now_s)
        world.run(1.2)
    assert world.log == [] and world.agrees()


def test_hosts_that_leave_and_return_keep_their_networks() -> None:
    world = settled(two_networks(4))
    before = world.learned()
    world.wiring.disconnect("h001")
    world.run(10.0)
    assert world.learned() == before and not world.dead()
    for port in (1, 2):
        world.wiring.set_nic(("h001", port), True, world.now_s)
    world.run(1.0)
    assert world.learned() == before and not world.dead()


def test_strange_reports_change_nothing() -> None:
    world = settled(two_networks(2))
    nics: Iterable[NicId] = [("h000", 1), ("nobody", 1), ("h000", 9)]
    for sender in nics:
        for receiver in nics:
            if (
                "nobody" in (sender[0], receiver[0])
                or 9 in (sender[1], receiver[1])
                or sender == receiver
            ):
                world.wiring.heard(sender, receiver, True, world.now_s)
    assert world.agrees()


def test_removed_nics_are_forgotten() -> None:
    world = settled(two_networks(3))
    for nic in list(world.wires):
        del world.wires[nic]
        world.wiring.remove_nic(nic)
    world.run(0.5)
    assert world.wiring.settled
    world.sent = 0
    world.run(1.0)
    assert world.sent == 0


@pytest.mark.parametrize("delay_s", [0.5, 1.5])
def test_late_reports_of_a_flood_do_not_call_for_more_floods(delay_s: float) -> None:
    """On a busy machine each flood would bring as many reports as there are NICs.

    Each would be read later than the one before.
    """
    world = World(two_networks(40))
    world.delay_s = world.wiring.lag_s = delay_s
    world.run(8.0)
    assert world.wiring.settled and world.agrees(), world.learned()
    assert not world.log, "networks were founded that are none"
    assert world.wiring.deaths == 0


def test_a_flood_of_a_host_that_is_held_up_is_waited_for_but_not_for_ever() -> None:
    world = World({("A", 1): "x", ("B", 1): "x", ("C", 1): "x"})
    world.frozen["A"] = world.now_s + 0.6
    world.run(0.5)
    assert {world.wiring.network(nic) for nic in world.wires} == {"n1", None}, (
        "one was founded, and no other"
    )
    world.run(1.0)
    assert world.wiring.settled and world.agrees() and world.wiring.network(("B", 1)) == "n1"
    never = World({("A", 1): "x", ("B", 1): "x", ("C", 1): "x"})
    never.silent_hosts.add("A")
    never.run(3.0)
    assert never.wiring.network(("B", 1)) == never.wiring.network(("C", 1)) is not None


# ---- what an earlier controller knew


def believing(
    wires: dict[NicId, str],
    beliefs: dict[NicId, str],
    faults: Mapping[NicId, Collection[str]] = MappingProxyType({}),
) -> World:
    """A world that begins with beliefs, before any NIC is known."""
    world = World({})
    world.wiring.believe(beliefs, faults)
    world.wires = dict(wires)
    for nic in sorted(wires):
        world.wiring.set_nic(nic, True, world.now_s)
    return world


def test_networks_that_are_believed_are_known_at_once_by_their_names() -> None:
    wires = two_networks(3)
    world = believing(wires, {nic: "n7" if nic[1] == 1 else "n2" for nic in wires})
    assert world.wiring.settled and world.agrees() and set(world.learned()) == {"n2", "n7"}
    world.run(5.0)
    assert world.agrees() and not world.dead() and set(world.learned()) == {"n2", "n7"}
    assert not world.log


@pytest.mark.parametrize("direction", ["tx", "rx"])
@pytest.mark.parametrize("works", [False, True])
def test_a_direction_that_is_believed_dead_is_dead_until_it_is_heard(
    direction: Direction, works: bool
) -> None:
    """A controller that starts anew gives a dead path no traffic, not for a moment."""
    wires, nic = two_networks(3), ("h001", 1)
    world = believing(wires, {nic: f"n{nic[1]}" for nic in wires}, {nic: [direction]})
    if not works:
        (world.mute if direction == "tx" else world.deaf).add(nic)
    dead = {nic: (direction != "tx", direction != "rx")}
    assert world.dead() == dead and world.wiring.settled
    world.run(3.0)
    assert world.dead() == ({} if works else dead) and world.agrees()


def test_names_of_networks_whose_hosts_are_not_back_are_not_used() -> None:
    world = believing({("A", 1): "x", ("B", 1): "x"}, {("C", 1): "n1", ("D", 1): "n2"})
    world.run(1.0)
    assert set(world.learned()) == {"n3"}
    world.wires["C", 1] = "y"
    world.wiring.set_nic(("C", 1), True, world.now_s)
    assert world.wiring.network(("C", 1)) == "n1"
    world.wiring.remove_nic(("D", 1))
    world.wires["D", 1] = "z"
    world.wiring.set_nic(("D", 1), True, world.now_s)
    world.run(1.0)
    assert world.agrees() and world.wiring.network(("D", 1)) == "n2", "the name is free again"


@pytest.mark.parametrize(
    "wrong",
    [
        {("h000", 1): "n2", ("h000", 2): "n1"},
        {("h001", 1): "n2"},
        {(f"h{number:03}", port): "n1" for number in range(4) for port in (1, 2)},
        {(f"h{number:03}", 1): f"n{3 + number}" for number in range(4)},
    ],
    ids=["swapped", "moved", "one network", "many networks"],
)
def test_wrong_beliefs_are_found_out(wrong: dict[NicId, str]) -> None:
    wires = two_networks(4)
    world = believing(wires, {**{nic: f"n{nic[1]}" for nic in wires}, **wrong})
    world.run(8.0)
    assert world.agrees() and not world.dead() and world.wiring.settled, (
        world.learned(),
        world.log,
    )


def test_a_doubtful_belief_and_an_odd_name_are_none() -> None:
    world = World({})
    world.wiring.believe({("A", 1): "n1", ("A", 2): "fast", ("A", 3): "n", ("A", 4): "n4"}, {})
    world.wiring.doubt([("A", 1), ("B", 9)])
    for port in (1, 2, 3, 4):
        world.wiring.set_nic(("A", port), True, world.now_s)
    assert [world.wiring.network(("A", port)) for port in (1, 2, 3, 4)] == [None, None, None, "n4"]
    world.wiring.believe({("A", 1): "n1"}, {})
    assert world.wiring.network(("A", 1)) is None, "what is known is not replaced"
