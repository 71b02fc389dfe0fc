# SPDX-License-Identifier: Apache-2.0
"""Which NICs neither send nor receive: found within a second, and proven before they return."""

from __future__ import annotations

import pytest

from tests.unit.discovery.wired_world import TICK_S, settled, two_networks


@pytest.mark.parametrize("hosts", [2, 3, 8])
@pytest.mark.parametrize("directions", ["both", "mute", "deaf"])
def test_a_silent_drop_is_noticed_within_a_second_and_forgiven_when_it_ends(
    hosts: int, directions: str
) -> None:
    world = settled(two_networks(hosts))
    victim = ("h001", 1)
    if directions != "deaf":
        world.mute.add(victim)
    if directions != "mute":
        world.deaf.add(victim)
    world.run(0.7)
    tx_ok, rx_ok = world.wiring.alive(victim)
    assert tx_ok == (directions == "deaf")
    assert rx_ok == (directions == "mute")
    if hosts > 2:  # with two NICs nobody can tell whose fault it is
        assert set(world.dead()) == {victim}
    world.run(3.0)
    world.mute.clear()
    world.deaf.clear()
    world.run(1.0)
    assert not world.dead()
    assert world.agrees()


@pytest.mark.parametrize("direction", ["mute", "deaf"])
def test_a_nic_that_fails_again_has_to_prove_itself_anew(direction: str) -> None:
    """The probes that were heard when it came back the first time do not count any more."""
    world = settled(two_networks(4))
    victim, other = ("h001", 1), ("h002", 1)
    broken = world.mute if direction == "mute" else world.deaf
    broken.add(victim)
    world.run(1.0)
    broken.clear()
    world.run(1.0)
    assert not world.dead()
    broken.add(victim)
    while not world.dead():
        world.run(TICK_S)
    edge = (victim, other) if direction == "mute" else (other, victim)
    world.wiring.heard(*edge, False, world.now_s)
    assert set(world.dead()) == {victim}
    world.wiring.heard(*edge, False, world.now_s)
    world.wiring.heard(*edge, False, world.now_s)
    assert not world.dead()


@pytest.mark.parametrize("broken", [False, True])
def test_who_is_flooded_with_strange_probes_is_not_judged_by_silence(broken: bool) -> None:
    """A whole network, with one of its NICs dead when the flood begins or none.

    It is judged when the flood is over.
    """
    world = settled(two_networks(4))
    victim = ("h001", 1)
    if broken:
        world.mute.add(victim)
        world.deaf.add(victim)
        world.run(1.0)
        assert set(world.dead()) == {victim}
    before = world.dead(), list(world.log)
    world.flooded = {nic for nic in world.wires if nic[1] == 1}
    world.run(20.0)
    assert (world.dead(), world.log) == before and world.agrees()
    assert set(world.wiring.flooded(world.now_s)) == world.flooded
    # What fails beside the flood is noticed, with the patience that a host with a silent NIC has.
    world.deaf.add(("h002", 2))
    world.run(1.6)
    assert world.wiring.alive(("h002", 2)) == (True, False)
    world.deaf.clear()
    world.mute.clear()
    world.flooded.clear()
    world.run(3.0)
    assert not world.wiring.flooded(world.now_s) and not world.dead() and world.agrees()
    world.deaf.add(victim)
    world.run(0.8)
    assert set(world.dead()) == {victim}


def test_a_deaf_nic_is_not_taken_for_mute_because_those_that_should_hear_it_are_flooded() -> None:
    world = settled(two_networks(4))
    victim = ("h001", 1)
    world.deaf.add(victim)
    world.run(1.0)
    assert world.dead() == {victim: (True, False)}
    world.flooded = {nic for nic in world.wires if nic[1] == 1 and nic != victim}
    world.run(5.0)
    assert world.dead() == {victim: (True, False)} and world.agrees()


def test_a_few_strange_probes_hide_no_failure() -> None:
    world = settled(two_networks(3))
    victim = ("h001", 1)
    world.deaf.add(victim)
    for _ in range(32):
        for _ in range(4):  # 160 a second
            world.wiring.strange(victim, world.now_s)
        world.run(TICK_S)
    assert world.wiring.alive(victim) == (True, False)
    world.wiring.strange(("unknown", 1), world.now_s)
    assert not world.wiring.flooded(world.now_s)


def test_a_dead_switch_is_noticed_and_its_return_too() -> None:
    world = settled(two_networks(6))
    victims = {nic for nic in world.wires if nic[1] == 1}
    world.mute |= victims
    world.deaf |= victims
    world.run(1.0)
    assert set(world.dead()) == victims
    world.mute.clear()
    world.deaf.clear()
    world.run(1.5)
    assert not world.dead() and world.agrees()


def test_a_nic_that_gets_its_carrier_back_is_on_probation() -> None:
    world = settled(two_networks(3))
    nic = ("h001", 1)
    world.wiring.set_nic(nic, False, world.now_s)
    world.mute.add(nic)
    world.deaf.add(nic)
    world.run(2.0)
    world.wiring.set_nic(nic, True, world.now_s)
    world.run(1.0)  # the switch port does not forward yet, as spanning tree would have it
    assert world.wiring.alive(nic) == (False, False)
    world.mute.clear()
    world.deaf.clear()
    world.run(0.8)
    assert world.wiring.alive(nic) == (True, True)
    world.run(6.0)
    assert world.agrees() and not any("cut off" in text for text in world.log)


def test_a_nic_that_gets_its_carrier_back_neither_sends_nor_receives_until_it_was_heard() -> None:
    world = settled(two_networks(3))
    nic = ("h001", 1)
    world.wiring.set_nic(nic, False, world.now_s)
    world.wiring.set_nic(nic, True, world.now_s)
    assert world.wiring.alive(nic) == (False, False)


def test_a_nic_that_fails_while_its_host_is_late_is_found_within_two_seconds() -> None:
    world = settled(two_networks(8))
    world.deaf.add(("h001", 1))
    world.mute.add(("h001", 1))
    world.stalled["h001"] = world.now_s + 0.6
    world.run(2.0)
    assert set(world.dead()) == {("h001", 1)}


def test_a_host_that_loses_all_its_nics_at_once_is_found_within_two_seconds() -> None:
    world = settled(two_networks(4))
    victims = {("h001", 1), ("h001", 2)}
    world.mute |= victims
    world.deaf |= victims
    world.run(2.0)
    assert set(world.dead()) == victims


def test_two_nics_of_a_host_that_fail_together_are_found_within_a_second() -> None:
    """The third NIC shows that it is not the host that is late."""
    world = settled({(f"h{i:03}", port): f"net{port}" for i in range(4) for port in (1, 2, 3)})
    victims = {("h001", 1), ("h001", 2)}
    world.mute |= victims
    world.deaf |= victims
    world.run(0.7)
    assert set(world.dead()) == victims


def test_nics_that_were_taken_for_dead_are_counted() -> None:
    world = settled(two_networks(4))
    assert world.wiring.deaths == 0
    world.mute.add(("h001", 1))
    world.run(2.0)
    assert world.dead() and world.wiring.deaths == 1
