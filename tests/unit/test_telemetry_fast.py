# SPDX-License-Identifier: Apache-2.0
"""Rows and reports of fast paths together give the sample that rows alone would give."""

from __future__ import annotations

from random import Random

import pytest

from ri2n_sdn.apps.fast_path import take_fast_report
from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.pipeline.fast_reports import FastRow, row_of
from ri2n_sdn.pipeline.plan import RECEIVED, SENT
from ri2n_sdn.weights.slots import default_slots
from tests.unit.app_turns import channel_of
from tests.unit.fake_hosts import plan
from tests.unit.fast_frames import counts_frame, slots_frame, state_frame
from tests.unit.test_telemetry import AB, ONE, TWO, World, taken, world

__all__ = ["world"]

BA = ("B", "A")


class Fast:
    """The fast paths of both hosts of a world: what they carry, and their reports."""

    def __init__(self, world: World) -> None:
        self.world, self.epoch = world, 1
        self.counted: dict[str, dict[FastRow, int]] = {name: {} for name in "AB"}
        for name in "AB":
            self.report(name)

    def row(self, name: str, direction: str, peer: str, path: PathKey) -> FastRow:
        wanted = self.world.cluster.members[name].wanted
        assert wanted is not None
        (found,) = (
            flow for flow in wanted.flows.values() if flow.counts == (direction, peer, path)
        )
        row = row_of(found)
        assert row is not None
        return row

    def carry(self, sender: str, receiver: str, path: PathKey, octets: int) -> None:
        """Let a path's sender and receiver count bytes beside their bridges."""
        ends = ((sender, SENT, receiver), (receiver, RECEIVED, sender))
        for name, direction, peer in ends:
            row = self.row(name, direction, peer, path)
            self.counted[name][row] = self.counted[name].get(row, 0) + octets

    def report(self, name: str, peers_carried: bool = True) -> None:
        world, member = self.world, self.world.cluster.members[name]
        peers = (
            []
            if not peers_carried
            else [(peer.mac, 0) for peer in world.cluster.members.values() if peer is not member]
        )
        # All rows are there from the beginning, so what they count later is traffic.
        wanted = member.wanted
        assert wanted is not None
        rows = {row: 0 for flow in wanted.flows.values() if (row := row_of(flow)) and flow.counts}
        counted = {**rows, **self.counted[name]}
        counts = [(row, octets // 1500, octets) for row, octets in counted.items()]
        for frame in (
            state_frame(peers, mac=member.mac, epoch=self.epoch),
            counts_frame(counts, mac=member.mac, epoch=self.epoch),
        ):
            take_fast_report(world.cluster, member, frame, world.now_s)
        assert world.cluster.counters["dropped_fast_report_of_stranger"] == 0

    def tell_slots(self, name: str, octets: list[int] | None) -> None:
        """Report the bytes to the other host by slot; None: those of nobody."""
        (peer,) = (each for each in self.world.cluster.members.values() if each.name != name)
        member = self.world.cluster.members[name]
        peers = [] if octets is None else [(peer.mac, octets)]
        frame = slots_frame(peers, mac=member.mac, epoch=self.epoch)
        take_fast_report(self.world.cluster, member, frame, self.world.now_s)

    def round(self, elapsed_s: float = 0.25, *late: str) -> None:
        """A round before which all hosts report and answer, but those that are `late`."""
        for name in "AB":
            if name not in late:
                self.report(name)
            channel_of(self.world.cluster, name).answered_s = self.world.now_s
        self.world.round(elapsed_s)


@pytest.fixture
def fast(world: World) -> Fast:
    return Fast(world)


def sample_of(world: World) -> object:
    measured = world.cluster.measured
    return measured.sampled_s, measured.rates, measured.fair_bps, dict(measured.sent_bytes)


@pytest.mark.parametrize("seed", range(5))
def test_rows_and_reports_give_the_sample_that_rows_alone_give(seed: int, world: World) -> None:
    """The same traffic, once all by bridges, and once by changing ways."""
    samples: list[list[object]] = []
    start_s = world.now_s
    for beside in (False, True):
        rng = Random(seed)
        one = world if not beside else World()
        if beside:
            # The fixture's clock is that of its own world.
            world.now_s = start_s
        fast = Fast(one) if beside else None
        seen: list[object] = []

        def tick(elapsed_s: float, one: World = one, fast: Fast | None = fast) -> None:
            if fast is not None:
                world.now_s = one.now_s + elapsed_s
                fast.round(elapsed_s)
            else:
                one.round(elapsed_s)

        tick(0.25)
        tick(1.0)
        for turn in range(40):
            for pair in (AB, BA):
                for path in (ONE, TWO):
                    octets = rng.randrange(0, 300_000) // 1500 * 1500
                    way = rng.random() < 0.7
                    if fast is not None and way:
                        fast.carry(*pair, path, octets)
                    else:
                        for counts in (one.sent, one.received):
                            counts[(*pair, path)] = counts.get((*pair, path), 0) + octets
            if fast is not None and turn == 20:
                # New programs: what the ones before carried was reported, and counts on.
                for name in "AB":
                    fast.report(name)
                fast.epoch += 1
                fast.counted = {name: {} for name in "AB"}
            tick(0.25)
            seen.append(sample_of(one))
        samples.append(seen)
    alone, together = samples
    assert together == alone
    rates = world.cluster.measured.rates
    assert all(path.tx_bps and path.rx_bps for pair in (AB, BA) for path in rates[pair].values())


TABLE = default_slots([ONE, TWO], [1.0, 1.0], 64)


@pytest.mark.parametrize("seed", range(5))
def test_rows_and_reports_give_the_bytes_by_slot_that_rows_alone_give(
    seed: int, world: World, fast: Fast
) -> None:
    """The same traffic, all by the bridge, and by changing ways with reports that come late."""
    rng = Random(seed)
    world.cluster.pair_slots[AB] = TABLE
    truth, beside, summed = [0] * 64, [0] * 64, [0] * 64
    world.slots[AB] = [0] * 64
    fast.tell_slots("A", beside)
    assert taken(world) == {AB: (0,) * 64}
    for turn in range(60):
        for slot in rng.sample(range(64), 8):
            octets = rng.randrange(1, 100) * 1500
            truth[slot] += octets
            (beside if rng.random() < 0.7 else world.slots[AB])[slot] += octets
        if turn == 30:
            fast.tell_slots("A", beside)
            fast.epoch, beside = fast.epoch + 1, [0] * 64
        reported = turn % 4 == 3
        if reported:
            fast.tell_slots("A", beside)
        found = taken(world)
        assert set(found) == ({AB} if reported or turn == 30 else set()), "not before both is known"
        summed = [one + more for one, more in zip(summed, found.get(AB, [0] * 64), strict=True)]
        if reported:
            assert summed == truth
    assert sum(map(bool, truth)) > 32


def test_bytes_by_slot_are_unknown_before_a_pair_has_a_level(world: World, fast: Fast) -> None:
    """A slot's counter in its group would say nothing of the flows that pass beside the bridge."""
    world.cluster.pair_slots[AB] = TABLE
    world.slots[AB] = [10] * 64
    assert taken(world) == {}
    fast.tell_slots("A", None)
    assert taken(world) == {}, "a report that does not name the peer"
    world.slots[AB] = [15] * 64
    fast.report("A", peers_carried=False)
    assert taken(world) == {AB: (15,) * 64}, "nothing passes beside any more"
    # The receiver's programs have no part in it.
    fast.report("B", peers_carried=True)
    world.slots[AB] = [16] * 64
    assert taken(world) == {AB: (1,) * 64}


def test_bytes_by_slot_of_another_table_are_not_those_of_this_one(world: World, fast: Fast) -> None:
    world.cluster.pair_slots[AB] = TABLE
    world.slots[AB] = [10] * 64
    fast.tell_slots("A", [100] * 64)
    assert taken(world) == {AB: (10,) * 64}
    world.slots[AB] = [20] * 64
    assert taken(world) == {}
    world.cluster.pair_slots[AB] = TABLE[::-1]
    world.slots[AB] = [3] * 64
    fast.tell_slots("A", [107] * 64)
    # Some of the 7 may have gone by the table before: the loop ignores the first reading.
    assert taken(world) == {AB: (10,) * 64}


def test_what_passes_beside_counts_when_the_pair_comes_back(world: World, fast: Fast) -> None:
    """The last report of what passed beside may come when nothing passes there any more."""
    world.cluster.pair_slots[AB] = TABLE
    world.slots[AB] = [0] * 64
    fast.tell_slots("A", [100] * 64)
    assert taken(world) == {AB: (0,) * 64}
    fast.report("A", peers_carried=False)
    fast.tell_slots("A", [103] * 64)
    assert taken(world) == {AB: (3,) * 64}


def test_what_a_silent_fast_path_carries_is_unknown_and_not_nothing(
    monkeypatch: pytest.MonkeyPatch, world: World, fast: Fast
) -> None:
    fast.round()
    fast.round(1.0)
    for _ in range(4):
        fast.carry("A", "B", ONE, 1_500_000)
        fast.round(0.5)
    measured = world.cluster.measured
    assert (measured.rates[AB][ONE].tx_bps, measured.rates[AB][ONE].rx_bps) == (24e6, 24e6)
    assert AB in world.cluster.pair_slots
    table = world.cluster.pair_slots[AB]
    answered: list[set[str]] = []
    monkeypatch.setattr(
        measured.losses, "step", lambda now_s, pairs, known, rates: answered.append({*known})
    )
    for _ in range(20):
        fast.carry("A", "B", ONE, 1_500_000)
        fast.round(0.5, "A")
    assert answered[0] == {"A", "B"} and answered[-1] == {"B"}, "nobody knows what is lost"
    known = {pair.key: pair.known for pair in world.app._pairs({})}
    assert known == {AB: (False, True), BA: (True, False)}
    rates = measured.rates[AB][ONE]
    assert (rates.tx_bps, rates.rx_bps) == (None, 24e6)
    assert measured.rates[BA][ONE].rx_bps is None, "what it receives is unknown, too"
    assert measured.rates[BA][ONE].tx_bps == 0.0
    assert world.cluster.pair_slots[AB] == table, "a pair that is not known keeps its table"
    assert measured.sent_bytes[AB] == 6_000_000
    rates_bps = set()
    for _ in range(8):
        fast.carry("A", "B", ONE, 1_500_000)
        fast.round(0.5)
        rates_bps.add(measured.rates[AB][ONE].tx_bps)
    assert rates_bps == {None, 24e6}, "and none of the silence is in it"
    assert measured.sent_bytes[AB] == 48_000_000, "but nothing was lost"


def test_reports_name_no_row_of_another_plan(world: World, fast: Fast) -> None:
    """A row that the host's plan does not have is nobody's traffic."""
    member = world.cluster.members["A"]
    stranger = FastRow(30, 0xFFFFFFFF, "02:00:00:00:0f:00", 0)
    for octets in (0, 3000):
        frame = counts_frame([(stranger, octets // 1500, octets)], mac=member.mac, epoch=1)
        take_fast_report(world.cluster, member, frame, world.now_s)
    fast.round()
    assert not world.app._counts.sent_beside.keys() - {
        (*pair, path) for pair in (AB, BA) for path in (ONE, TWO)
    }
    assert world.cluster.measured.sent_bytes[AB] == 0


def test_rows_are_those_of_the_present_plan(world: World, fast: Fast) -> None:
    """A NIC of the peer was replaced, so the host's rows have another address."""
    fast.round()
    cluster = world.cluster
    cluster.members["B"].ports[1].mac = "04:00:00:00:42:77"
    cluster.topology_changed()
    plan(cluster)
    fast.round()
    fast.carry("B", "A", ONE, 3000)
    fast.round()
    pairs = {pair.key: pair for pair in world.app._pairs({})}
    received = {path.path: path.received.bytes for path in pairs[BA].paths}
    assert received == {ONE: 3000, TWO: 0}
