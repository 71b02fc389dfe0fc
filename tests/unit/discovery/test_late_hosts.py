# SPDX-License-Identifier: Apache-2.0
"""Hosts, probes and controllers that are late or silent: no NIC is blamed for it."""

from __future__ import annotations

import pytest

from tests.unit.discovery.wired_world import TICK_S, settled, two_networks


def test_silence_of_a_host_is_not_blamed_on_its_nics() -> None:
    world = settled(two_networks(4))
    world.silent_hosts.add("h001")
    world.run(2.0)
    assert not world.dead()


@pytest.mark.parametrize("lost", ["h000", "h001"])
def test_who_loses_its_control_connection_cuts_nobody_off(lost: str) -> None:
    """This holds at any moment between two beacons, and for the beacon, which is h000.

    All hosts' data still flows. The connection counts as lost after five seconds; then the host's
    NICs can no longer be asked. When it is back, the beacons that could not be reported meanwhile
    do not count.
    """
    for step in range(20):
        world = settled(two_networks(4))
        world.run(step * 2 * TICK_S)
        world.silent_hosts.add(lost)
        world.run(5.0)
        assert world.agrees() and not world.dead(), (step, world.log)
        world.wiring.disconnect(lost)
        world.run(6.0)
        assert world.agrees() and not world.dead() and not world.log, (step, world.log)
        world.silent_hosts.discard(lost)
        world.asked[lost].clear()  # a new connection
        world.echoes_s = 0.0
        for port in (1, 2):
            world.wiring.set_nic((lost, port), True, world.now_s)
        world.run(6.0)
        assert world.agrees() and not world.dead() and not world.log, (step, world.log)


def test_a_nic_half_dead_is_not_called_dead_while_its_host_cannot_be_heard() -> None:
    world = settled(two_networks(4))
    world.deaf.add(("h001", 1))
    world.run(1.5)
    assert world.dead() == {("h001", 1): (True, False)}
    world.silent_hosts.add("h001")
    world.run(3.0)
    assert world.dead() == {("h001", 1): (True, False)}


def test_without_its_beacon_host_a_network_still_finds_who_is_cut_off() -> None:
    world = settled(two_networks(6))
    world.silent_hosts.add("h000")
    world.run(3.0)
    for number in (3, 4, 5):
        world.wires[f"h{number:03}", 1] = "elsewhere"
    world.run(8.0)
    apart = {world.wiring.network((f"h{number:03}", 1)) for number in (3, 4, 5)}
    together = {world.wiring.network((f"h{number:03}", 1)) for number in (1, 2)}
    assert len(apart) == 1 and len(together) == 1 and apart != together, world.learned()


def test_a_host_that_is_late_for_a_moment_is_not_blamed_on_its_nics() -> None:
    world = settled(two_networks(8))
    for delay_s in (0.3, 0.5, 0.8):
        for step in range(8):  # at every moment of a round of probes
            world.run(step * TICK_S)
            world.stalled["h001"] = world.now_s + delay_s
            world.run(2.0)
            assert not [line for line in world.log if "nothing" in line], (delay_s, step, world.log)


def test_a_host_that_becomes_late_while_a_nic_is_looked_into_is_not_blamed_on_it() -> None:
    """Its other NIC was heard when the inquiry began, which says nothing about later probes."""
    world = settled(two_networks(8))
    world.deaf.add(("h001", 1))
    while "h001" not in world.wiring.hosts_under_test:
        world.run(TICK_S)
    world.deaf.clear()
    world.stalled["h001"] = world.now_s + 0.5
    world.run(2.0)
    assert not [line for line in world.log if "nothing" in line], world.log


@pytest.mark.parametrize("speed", [2, 8, 30])
def test_hosts_that_are_behind_with_what_they_were_asked_are_not_blamed_on_their_nics(
    speed: int,
) -> None:
    """All hosts are late at once, as on a machine that stops or with a controller that asks much.

    Other messages of the hosts come in between.
    """
    world = settled({**two_networks(8), **{(f"single{i}", 1): "net1" for i in range(4)}})
    for freeze_s in (0.3, 0.38, 0.5, 0.8):
        for step in range(4):
            world.run(step * TICK_S)
            world.frozen = dict.fromkeys(world.asked, world.now_s + freeze_s)
            world.speed = speed
            while world.now_s < world.frozen["h001"] or any(world.asked.values()):
                world.run(TICK_S)
                assert world.now_s < world.frozen["h001"] + 60
            world.run(1.0)
            world.speed = 10**9
            assert not [line for line in world.log if "nothing" in line], (
                freeze_s,
                step,
                world.log,
            )
    world.mute.add(("h001", 1))
    world.run(0.7)
    assert world.dead() == {("h001", 1): (False, True)}


def test_a_controller_that_was_stopped_blames_nobody() -> None:
    world = settled(two_networks(4))
    world.now_s += 30.0
    world.run(1.0)
    assert not world.dead() and world.agrees()


@pytest.mark.parametrize("delay_s", [0.3, 0.8])
def test_probes_that_are_read_late_kill_nobody_and_real_faults_are_still_found(
    delay_s: float,
) -> None:
    world = settled(two_networks(4))
    world.delay_s = world.wiring.lag_s = delay_s
    world.run(6.0)
    assert not world.dead() and world.agrees() and world.log == []
    world.mute.add(("h001", 1))
    world.run(3 * delay_s + 1.0)
    assert world.dead() == {("h001", 1): (False, True)}
