"""Discovery and liveness in a simulated network.

There are cuts, silent drops, moved cables, and networks that merge and split.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pytest

from ri2n_sdn.discovery.wiring import Probe, Wiring
from ri2n_sdn.fabric.model import NicId

TICK_S = 0.025


class World:
    """NICs on networks; probes take 1 ms. `mute` NICs cannot send, `deaf` ones cannot receive.

    `stalled` and `frozen` say until when a host is so. The probes of a stalled host are late,
    although it answers echo requests. A frozen one does nothing at all until then; afterwards it
    does `speed` things a tick, in the order in which it was asked. NICs that are `flooded` get so
    many probes of strangers that they report no others.
    """

    def __init__(self, wires: dict[NicId, str]) -> None:
        self.now_s = 100.0
        self.wires = dict(wires)
        self.wiring = Wiring()
        self.mute: set[NicId] = set()
        self.deaf: set[NicId] = set()
        self.silent_hosts: set[str] = set()
        self.log: list[str] = []
        self.sent = 0
        self.reports = 0
        self.delay_s = 0.001
        self.stalled: dict[str, float] = {}
        self.frozen: dict[str, float] = {}
        self.speed = 10**9
        self.asked: dict[str, deque[Probe | float]] = {host: deque() for host, _ in wires}
        self.answered: dict[str, float] = {}
        self.echoes_s = 0.0  # when all hosts are sent the next echo request
        self.delayed: list[tuple[float, NicId, NicId, bool]] = []
        self.flooded: set[NicId] = set()
        for nic in sorted(wires):
            self.wiring.set_nic(nic, True, self.now_s)

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += TICK_S
            self.tick()

    def tick(self) -> None:
        for probe in self.wiring.tick(self.now_s, lambda host: self.answered.get(host, -1e9)):
            self.sent += 1
            self.asked.setdefault(probe.sender[0], deque()).append(probe)
        echoed = set(self.wiring.hosts_under_test)
        if self.now_s >= self.echoes_s:
            self.echoes_s = self.now_s + 0.5
            echoed |= {host for host, _ in self.wires}
        for host in sorted(echoed):
            self.asked.setdefault(host, deque()).append(self.now_s)
        for host, asked in self.asked.items():
            if host in self.silent_hosts or self.now_s < self.frozen.get(host, 0.0):
                continue
            for _ in range(min(self.speed, len(asked))):
                thing = asked.popleft()
                if isinstance(thing, Probe):
                    self._send(thing)
                else:
                    self.answered[host] = thing
        due = [report for report in self.delayed if report[0] <= self.now_s + 0.001]
        self.delayed = [report for report in self.delayed if report[0] > self.now_s + 0.001]
        for _, sender, receiver, flooded in due:
            if receiver not in self.flooded:
                self.wiring.heard(sender, receiver, flooded, self.now_s + 0.001)
        for nic in self.flooded:
            for _ in range(25):
                self.wiring.strange(nic, self.now_s)
        self.log += self.wiring.events
        self.wiring.events.clear()

    def _send(self, probe: Probe) -> None:
        if probe.sender in self.mute or probe.sender not in self.wires:
            return
        for nic, network in sorted(self.wires.items()):
            if nic == probe.sender or network != self.wires[probe.sender] or nic in self.deaf:
                continue
            if nic[0] in self.silent_hosts or probe.target not in (None, nic):
                continue
            self.reports += 1
            late_s = [
                late.get(host, 0.0)
                for late in (self.stalled, self.frozen)
                for host in (nic[0], probe.sender[0])
            ]
            self.delayed.append(
                (max(self.now_s, *late_s) + self.delay_s, probe.sender, nic, probe.target is None)
            )

    def learned(self) -> dict[str, set[NicId]]:
        found: dict[str, set[NicId]] = {}
        for nic in self.wires:
            found.setdefault(self.wiring.network(nic) or "?", set()).add(nic)
        return found

    def agrees(self) -> bool:
        actual: dict[str, set[NicId]] = {}
        for nic, network in self.wires.items():
            actual.setdefault(network, set()).add(nic)
        return sorted(map(sorted, actual.values())) == sorted(map(sorted, self.learned().values()))

    def dead(self) -> dict[NicId, tuple[bool, bool]]:
        return {
            nic: self.wiring.alive(nic)
            for nic in self.wires
            if self.wiring.alive(nic) != (True, True)
        }


def two_networks(hosts: int) -> dict[NicId, str]:
    return {(f"h{i:03}", port): f"net{port}" for i in range(hosts) for port in (1, 2)}


def settled(wires: dict[NicId, str], seconds: float = 1.5) -> World:
    world = World(wires)
    world.run(seconds)
    assert world.wiring.settled and world.agrees(), world.learned()
    assert not world.dead()
    return world


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


def test_a_moved_cable_is_followed() -> None:
    world = settled(two_networks(4))
    world.wires["h002", 1] = "net2"
    world.run(3.0)
    assert world.agrees() and not world.dead()
    assert any("moved" in text for text in world.log)


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


def test_a_controller_that_was_stopped_blames_nobody() -> None:
    world = settled(two_networks(4))
    world.now_s += 30.0
    world.run(1.0)
    assert not world.dead() and world.agrees()


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


def test_nics_that_were_taken_for_dead_are_counted() -> None:
    world = settled(two_networks(4))
    assert world.wiring.deaths == 0
    world.mute.add(("h001", 1))
    world.run(2.0)
    assert world.dead() and world.wiring.deaths == 1


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


def believing(wires: dict[NicId, str], beliefs: dict[NicId, str]) -> World:
    """A world that begins with beliefs, before any NIC is known."""
    world = World({})
    world.wiring.believe(beliefs)
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
    world.wiring.believe({("A", 1): "n1", ("A", 2): "fast", ("A", 3): "n", ("A", 4): "n4"})
    world.wiring.doubt([("A", 1), ("B", 9)])
    for port in (1, 2, 3, 4):
        world.wiring.set_nic(("A", port), True, world.now_s)
    assert [world.wiring.network(("A", port)) for port in (1, 2, 3, 4)] == [None, None, None, "n4"]
    world.wiring.believe({("A", 1): "n1"})
    assert world.wiring.network(("A", 1)) is None, "what is known is not replaced"
