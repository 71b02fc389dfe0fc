# SPDX-License-Identifier: Apache-2.0
"""The telemetry app: what it makes of counters, and of answers that are missing or malformed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from ri2n_sdn.apps import cluster as cluster_module
from ri2n_sdn.apps import codec, problems, telemetry
from ri2n_sdn.apps.channel import Refused
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.telemetry import TelemetryApp
from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.pipeline.layout import Table
from ri2n_sdn.pipeline.plan import RECEIVED, SENT, pair_group_id, plan_probes_only
from ri2n_sdn.weights.counters import Count
from ri2n_sdn.weights.slots import default_slots
from tests.problem_texts import problem_texts
from tests.unit.fake_hosts import FakeChannel, cluster_of, plan
from tests.unit.test_codec import flow_entry

ONE, TWO = (1, 1, 0), (2, 2, 0)
AB, AB_ONE = ("A", "B"), ("A", "B", ONE)
BUCKET_PACKETS = 1


def group_entry(number: int, octets: Iterable[int]) -> bytes:
    """An OFPMP_GROUP entry."""
    raw = b"".join(struct.pack("!QQ", BUCKET_PACKETS, count) for count in octets)
    return struct.pack("!HxxII4xQQII", 40 + len(raw), number, 1, 0, 0, 0, 0) + raw


class World:
    """Two hosts with two NICs each, the counters that their switches would show, and a clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.channels = {name: FakeChannel(partial(self.answer, name)) for name in "AB"}
        self.cluster: Cluster = cluster_of(self.channels)
        self.sent: dict[tuple[str, str, PathKey], int] = {}
        self.received: dict[tuple[str, str, PathKey], int] = {}
        self.nics: dict[tuple[str, int], tuple[int, int]] = {}
        self.slots: dict[tuple[str, str], list[int]] = {}
        self.canary = {"A": True, "B": True}
        self.silent: set[tuple[str, int]] = set()
        self.refusing: set[tuple[str, int]] = set()
        self.garbled: set[str] = set()
        self.app = TelemetryApp()
        self.app.cluster = self.cluster
        plan(self.cluster)

    def answer(self, name: str, question: codec.Question | None) -> Any:
        if question is None:
            return b""
        if (name, question.kind) in self.silent:
            return None
        if (name, question.kind) in self.refusing:
            return Refused("error type 1 code 1")
        if question == codec.PORT_COUNTERS:
            return b"".join(
                struct.pack("!H2xI24xQQ32x", 80, port, rx, tx)
                for (host, port), (tx, rx) in self.nics.items()
                if host == name
            )
        if question == codec.GROUP_COUNTERS:
            entries = [
                group_entry(pair_group_id(peer), octets)
                for (host, peer), octets in self.slots.items()
                if host == name
            ]
            return b"".join(entries)
        return b"".join(self.flows(name, question.body[0]))

    def flows(self, name: str, table: int) -> Iterator[bytes]:
        if name in self.garbled:
            yield b"\0\1\0"
        wanted = self.cluster.members[name].wanted
        assert wanted is not None
        for cookie, flow in wanted.flows.items():
            if flow.table != table or (table == Table.CANARY and not self.canary[name]):
                continue
            count = 0
            if flow.counts is not None:
                what, peer, path = flow.counts
                if what == SENT:
                    count = self.sent.get((name, peer, path), 0)
                elif what == RECEIVED:
                    count = self.received.get((peer, name, path), 0)
            yield flow_entry(table, cookie, count // 1500, count)

    def round(self, elapsed_s: float = 0.25) -> None:
        """Let time pass, then run one round."""
        self.now_s += elapsed_s
        self.app._cycle(self.now_s)

    def take_levels(self) -> None:
        """Run rounds until what counters show from now on is traffic."""
        self.round()
        self.round(1.0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    clock = {"monotonic": lambda: world.now_s, "time": lambda: 5e8 + world.now_s}
    monkeypatch.setattr(telemetry, "time", SimpleNamespace(**clock, thread_time=lambda: 0.0))
    for module in (cluster_module, problems):
        monkeypatch.setattr(
            module, "time", SimpleNamespace(monotonic=lambda: world.now_s, time=lambda: 0.0)
        )
    monkeypatch.setattr(telemetry, "_ANSWER_S", 0.0)  # all answers are there at once
    return world


def test_a_paths_rates_are_what_its_sender_sent_and_its_receiver_got(world: World) -> None:
    world.sent[AB_ONE], world.received[AB_ONE] = 5_000_000, 4_000_000
    world.take_levels()
    world.sent[AB_ONE] += 1_000_000
    world.received[AB_ONE] += 600_000  # the rest was lost
    world.round(0.5)
    first, second = world.cluster.measured.rates[AB][ONE], world.cluster.measured.rates[AB][TWO]
    assert (first.tx_bps, first.rx_bps) == (16e6, 9.6e6)
    assert (second.tx_bps, second.rx_bps) == (0, 0)
    assert world.cluster.measured.rates["B", "A"][ONE].tx_bps == 0
    assert world.cluster.measured.sent_bytes == {AB: 1_000_000, ("B", "A"): 0}, (
        "not what it had sent before this controller"
    )


@pytest.mark.parametrize("unread", ["no answer", "not planned yet"])
def test_what_a_row_had_carried_before_it_was_read_is_no_traffic(world: World, unread: str) -> None:
    """A first reading is a level, though an earlier round could not read the row.

    A controller that starts anew would take a silent pair for active, and change its rows.
    """
    world.sent[AB_ONE] = world.received[AB_ONE] = 10**9
    member = world.cluster.members["A"]
    planned, silent = member.wanted, ("A", codec.flows().kind)
    if unread == "no answer":
        world.silent.add(silent)
    else:
        member.wanted = plan_probes_only(world.cluster.fabric().hosts["A"])
    world.round()
    world.silent.clear()
    member.wanted = planned
    for _ in range(8):
        world.round()
        assert not world.cluster.pair_slots and not world.cluster.loop.sent_bps()
        assert world.cluster.measured.rates[AB][ONE].tx_bps in (None, 0)
    assert not any(world.cluster.measured.sent_bytes.values())
    world.sent[AB_ONE] += 1_000_000
    world.round()
    assert AB in world.cluster.pair_slots, "a pair that begins to send is active at once"


@pytest.mark.parametrize("refreshed", [(0.25,), (0.5,), (0.25, 0.5)])
def test_what_a_switch_shows_late_of_the_time_before_the_start_is_no_traffic(
    world: World, refreshed: tuple[float, ...]
) -> None:
    """The counters of a switch are half a second old at most, so a first reading is that old."""
    world.sent[AB_ONE] = 10**9
    began_s = world.now_s
    world.round(0.0)
    for _ in range(8):
        if world.now_s + 0.25 - began_s in refreshed:
            world.sent[AB_ONE] += 10**6
        world.round()
        assert not world.cluster.pair_slots
        assert world.cluster.measured.rates[AB][ONE].tx_bps in (None, 0)


def test_a_pair_that_sends_when_the_controller_starts_is_active_a_second_later(
    world: World,
) -> None:
    world.sent[AB_ONE] = 10**9
    for _ in range(5):
        assert not world.cluster.pair_slots
        world.round()
        world.sent[AB_ONE] += 10**6
    assert set(world.cluster.pair_slots) == {AB}
    assert world.cluster.measured.rates[AB][ONE].tx_bps == 32e6


def test_a_pair_that_was_taken_over_gets_no_rate_before_its_traffic_is_known(world: World) -> None:
    table = default_slots([ONE, TWO], [1.0, 1.0], 64)
    world.cluster.pair_slots[AB] = table
    world.cluster.loop.adopt(world.now_s, AB, table, [ONE, TWO])
    rates = []
    for _ in range(6):
        world.sent[AB_ONE] = world.sent.get(AB_ONE, 10**9) + 10**6
        world.round()
        rates.append(world.cluster.measured.rates[AB][ONE].rate_bps)
    assert rates[:4] == [None] * 4 and all(rates[4:]), rates


def test_a_path_that_loses_packets_is_named_in_status(world: World) -> None:
    def pass_time(part: float) -> list[str]:
        for _ in range(9):
            world.sent[AB_ONE] = world.sent.get(AB_ONE, 0) + 1_500_000
            world.received[AB_ONE] = world.received.get(AB_ONE, 0) + round(1_500_000 * (1 - part))
            world.round(5.0)
        return [text for text in problem_texts(world.cluster) if "are lost" in text]

    assert pass_time(0.0) == []
    assert pass_time(0.1) == [
        "10% of packets are lost in one of: what B:eth0 receives, what A:eth0 sends"
    ]
    # B's counters stay as they were. That says nothing about the cable.
    world.silent.add(("B", codec.flows().kind))
    assert pass_time(0.0) == [
        "10% of packets are lost in one of: what B:eth0 receives, what A:eth0 sends"
    ]
    world.silent.clear()
    assert pass_time(0.0) == []


def test_a_nics_rates_are_its_own_counters_over_the_time_between_them(world: World) -> None:
    world.nics = {("A", 1): (100, 7_000), ("A", 9): (1, 1)}  # port 9 is none of its NICs
    world.take_levels()
    nic = world.cluster.members["A"].ports[1]
    assert (nic.tx_bps, nic.rx_bps) == (None, None), "one reading says nothing"
    world.nics["A", 1] = (1_100, 9_000)
    world.round(1.0)
    assert (nic.tx_bps, nic.rx_bps) == (8_000, 16_000)
    world.nics["A", 1] = (0, 0)  # Open vSwitch began anew
    world.round(1.0)
    assert (nic.tx_bps, nic.rx_bps) == (None, None)
    world.nics["A", 1] = (500, 250)
    world.silent.add(("A", codec.PORT_COUNTERS.kind))
    world.round(1.0)
    world.silent.clear()
    world.round(1.0)
    assert (nic.tx_bps, nic.rx_bps) == (2_000, 1_000), "over both rounds"


def test_a_host_whose_tables_were_emptied_is_sent_no_more_frames_with_nic_addresses(
    world: World,
) -> None:
    world.round()
    emptied, other = world.cluster.members["A"], world.cluster.members["B"]
    world.cluster.wake.trunk.clear()
    world.canary["A"] = False
    world.round()
    assert emptied.installed is None and emptied.dirty and not emptied.accepts_wire
    assert (
        not world.cluster.fabric().hosts["A"].accepts_wire
        and world.cluster.fabric().hosts["B"].accepts_wire
    )
    assert other.installed is not None and other.dirty, "its rows for A are others now"
    assert world.cluster.wake.trunk.is_set()
    assert [event["text"] for event in world.cluster.events] == ["A: its tables were emptied"]
    world.round()
    assert len(world.cluster.events) == 1, "said once, until it has been filled again"


@pytest.mark.parametrize("how", ["silent", "refusing", "garbled"])
def test_a_host_that_does_not_answer_properly_was_not_emptied(world: World, how: str) -> None:
    world.sent[AB_ONE] = 1_000_000
    world.take_levels()
    world.sent[AB_ONE] = 2_000_000
    world.canary["A"] = False
    for kind in (
        codec.flows().kind,
        codec.GROUP_COUNTERS.kind,
        codec.PORT_COUNTERS.kind,
    ):
        if how == "garbled":
            world.garbled.add("A")
        else:
            getattr(world, how).add(("A", kind))
    world.round()
    assert world.cluster.members["A"].accepts_wire and not world.cluster.events
    assert world.cluster.measured.rates[AB][ONE].tx_bps is None, "one reading says nothing"
    world.canary["A"] = True
    for trouble in (world.silent, world.refusing, world.garbled):
        trouble.clear()
    world.round()
    assert world.cluster.measured.rates[AB][ONE].tx_bps == 16e6, "over both rounds"
    assert world.cluster.counters["cycles"] == 4


def test_a_host_that_is_being_filled_was_not_emptied(world: World) -> None:
    world.canary["A"] = False
    world.cluster.members["A"].dirty = True
    world.round()
    world.cluster.members["A"].dirty, world.cluster.members["A"].busy = False, True
    world.round()
    world.cluster.members["A"].busy, world.cluster.members["A"].installed = False, None
    world.round()
    assert not world.cluster.events and world.cluster.members["A"].accepts_wire


def test_hosts_that_are_away_or_not_planned_yet_are_not_asked(world: World) -> None:
    world.cluster.members["A"].channel = None
    world.cluster.members["B"].wanted = None
    world.round()
    assert not world.channels["A"].asked and not world.channels["B"].asked


def taken(world: World) -> dict[tuple[str, str], tuple[int, ...]]:
    """The bytes in each slot that this round would hand to the loop."""
    return world.app._take_slots(world.app._ask(world.cluster.members["A"]))


def test_bytes_per_slot_are_those_since_the_last_round_with_this_table(world: World) -> None:
    assert not any(question == codec.GROUP_COUNTERS for question in world.channels["A"].asked)
    table = default_slots([ONE, TWO], [1.0, 1.0], 64)
    world.cluster.pair_slots[AB] = table
    world.slots[AB] = [10] * 64
    assert taken(world) == {AB: (10,) * 64}
    world.slots[AB] = [15] * 63 + [10]
    assert taken(world) == {AB: (5,) * 63 + (0,)}
    world.cluster.pair_slots[AB] = table[::-1]  # which sets the group's counters to 0
    world.slots[AB] = [16] * 64
    assert taken(world) == {AB: (16,) * 64}
    world.slots[AB] = [17] * 63 + [3]  # as does a switch that began anew
    assert taken(world) == {AB: (17,) * 63 + (3,)}
    world.slots[AB] = [20] * 16  # the table before, of another size
    assert taken(world) == {}
    world.silent.add(("A", codec.GROUP_COUNTERS.kind))
    assert taken(world) == {}


def test_group_counters_are_asked_for_where_a_pair_has_a_table_of_its_own(world: World) -> None:
    world.cluster.pair_slots[AB] = default_slots([ONE, TWO], [1.0, 1.0], 64)
    for name, channel in world.channels.items():
        world.app._ask(world.cluster.members[name])
        assert any(question == codec.GROUP_COUNTERS for question in channel.asked) == (name == "A")


def test_what_the_loop_is_told_of_a_pair(world: World) -> None:
    world.cluster.wiring._dead.add(("B", 2))  # type: ignore[attr-defined]
    world.cluster.topology_changed()
    world.take_levels()
    world.sent[AB_ONE], world.received[AB_ONE] = 3_000, 1_500
    world.app._take(world.app._ask(world.cluster.members["A"]))
    world.app._take(world.app._ask(world.cluster.members["B"]))
    pairs = {pair.key: pair for pair in world.app._pairs({AB: (7,) * 64})}
    assert set(pairs) == {AB, ("B", "A")}
    one, two = pairs[AB].paths
    assert (one.path, one.alive, one.links) == (ONE, True, ("A:1>", ">B:1"))
    assert (one.sent, one.received) == (
        Count(packets=2, bytes=3_000),
        Count(packets=1, bytes=1_500),
    )
    assert (two.path, two.alive, two.sent.bytes) == (TWO, False, 0)
    assert pairs[AB].slot_bytes == (7,) * 64 and pairs["B", "A"].slot_bytes is None
    assert pairs[AB].slots == (ONE,) * 64


def test_pairs_in_use_get_tables_and_their_shares_are_shown(world: World) -> None:
    for path in (ONE, TWO):
        world.sent["A", "B", path] = world.received["A", "B", path] = 0
    world.take_levels()
    for _ in range(6):
        for path, step in ((ONE, 2_000_000), (TWO, 500_000)):
            world.sent["A", "B", path] += step
            world.received["A", "B", path] += step
        world.round()
    shown = world.cluster.measured.rates[AB]
    assert set(world.cluster.pair_slots) == {AB}
    assert sum(path.share or 0 for path in shown.values()) == pytest.approx(1.0)
    assert shown[ONE].rate_bps is not None
    assert world.cluster.measured.rates["B", "A"][ONE].share is None, "an idle pair has none"
    assert world.cluster.members["A"].dirty, "its group is not there yet"
    assert world.cluster.measured.hbspan_s > 0.25, "nothing changes"


def test_what_is_gone_is_forgotten(world: World) -> None:
    world.cluster.pair_slots[AB] = default_slots([ONE, TWO], [1.0, 1.0], 64)
    world.slots[AB] = [1] * 64
    world.sent[AB_ONE] = world.received[AB_ONE] = 10
    world.round()
    assert world.app._counts.sent and world.app._counts.received and world.app._counts.slots
    world.cluster.pair_slots.clear()
    del world.cluster.members["B"]
    world.cluster.topology_changed()
    world.round()
    assert world.app._counts == type(world.app._counts)() and not world.cluster.measured.rates


UNKNOWN = 2**64 - 1


def test_a_counter_that_a_switch_does_not_know_is_no_traffic(world: World) -> None:
    """OpenFlow writes 2^64 - 1 for it. The values before stay, and nothing overflows."""
    world.sent[AB_ONE] = world.received[AB_ONE] = 1_000_000
    world.nics = {("A", 1): (1000, 1000)}
    table = default_slots([ONE, TWO], [1.0, 1.0], 64)
    world.cluster.pair_slots[AB] = table
    world.slots[AB] = [10] * 64
    world.round()
    world.sent[AB_ONE] = world.received[AB_ONE] = UNKNOWN
    world.nics = {("A", 1): (UNKNOWN, 1000)}
    world.cluster.pair_slots[AB] = table  # it has no traffic of note
    world.slots[AB] = [UNKNOWN] * 64
    world.round()
    assert world.cluster.measured.rates[AB][ONE].tx_bps is None
    assert world.cluster.measured.rates[AB][ONE].rx_bps is None
    assert world.cluster.members["A"].ports[1].tx_bytes == 1000
    assert world.cluster.counters["dropped_counter_unknown"] == 4
    assert not any(member.faults for member in world.cluster.members.values())


def test_figures_are_of_the_last_round_in_which_a_host_was_read(world: World) -> None:
    assert world.cluster.measured.sampled_s is None
    world.round()
    read_s = world.cluster.measured.sampled_s
    assert read_s == 5e8 + world.now_s
    world.silent = {(name, codec.flows().kind) for name in "AB"}
    world.round()
    assert world.cluster.measured.sampled_s == read_s, "no host has answered"
    world.silent.pop()
    world.round()
    assert world.cluster.measured.sampled_s == read_s + 0.5


def test_a_mute_host_is_not_asked_again_and_keeps_its_values(world: World) -> None:
    world.sent[AB_ONE] = world.received[AB_ONE] = 1_000_000
    world.round()
    asked = {name: len(channel.asked) for name, channel in world.channels.items()}
    world.channels["A"].mute_for_s = 0.6
    world.round()
    assert (
        len(world.channels["A"].asked) == asked["A"] and len(world.channels["B"].asked) > asked["B"]
    )
    assert ("A", "B") in world.cluster.measured.rates and world.cluster.counters["cycles"] == 2
    world.channels["A"].mute_for_s = 0.0
    world.round()
    assert len(world.channels["A"].asked) > asked["A"]


def test_a_host_whose_counters_make_no_sense_is_named_and_the_others_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = world.app._take

    def odd(poll: Any) -> Any:
        if poll.member.name == "A":
            raise TypeError("odd")
        return take(poll)

    monkeypatch.setattr(world.app, "_take", odd)
    world.received[AB_ONE] = 1000
    world.take_levels()
    world.received[AB_ONE] = 2_000_000
    world.round()
    assert world.cluster.measured.rates[AB][ONE].rx_bps, "what B counted"
    assert world.cluster.members["A"].faults == {"counters_not_read": "TypeError: odd"}
    assert world.cluster.counters["host_faults"] == 3 and not world.cluster.members["B"].faults
    monkeypatch.setattr(world.app, "_take", take)
    world.round()
    assert not world.cluster.members["A"].faults


def test_what_a_forgotten_host_sent_is_forgotten(world: World) -> None:
    world.round()
    assert AB in world.cluster.measured.sent_bytes
    world.cluster.forget(world.cluster.members["B"], "host_alone")
    world.round()
    assert not world.cluster.measured.sent_bytes


def test_tables_that_are_emptied_again_and_again_are_made_ever_later(world: World) -> None:
    """Otherwise one bridge would have every host planned anew in every round."""
    member, waits = world.cluster.members["A"], []
    world.canary["A"] = False
    for _ in range(9):
        plan(world.cluster)
        member.accepts_wire = True
        world.round()
        assert member.installed is None and member.dirty and not member.accepts_wire
        waits.append(member.retry_s - world.now_s)
    assert waits == [0, 1, 2, 4, 8, 16, 30, 30, 30]
    texts = [event["text"] for event in world.cluster.events if "emptied" in event["text"]]
    assert (
        len(texts) == 6
        and texts[1] == "A: its tables were emptied again, and are made again in 1 s"
    )
    assert any(
        "A: its tables are emptied again and again" in warning
        for warning in problem_texts(world.cluster)
    )
    world.now_s += 61.0
    assert not any("again and again" in warning for warning in problem_texts(world.cluster))
    world.now_s -= 61.0
    plan(world.cluster)
    world.round(61.0)
    assert member.retry_s == world.now_s


def test_rounds_begin_when_the_hosts_have_their_rows_or_have_had_the_time_for_it(
    world: World,
) -> None:
    def may_count(after_s: float) -> bool:
        return world.app._may_count(1000.0 + after_s)

    for member in world.cluster.members.values():
        member.accepts_wire = False
    assert not may_count(0.0) and not may_count(29.0)
    world.cluster.members["A"].accepts_wire = True
    assert not may_count(29.5)
    world.channels["B"].mute_for_s = 10.0
    assert may_count(29.6), "nobody waits for a host that does not answer"
    world.channels["B"].mute_for_s = 0.0
    assert may_count(29.7), "and once begun, they go on"
    late = World()
    late.cluster.members["A"].accepts_wire = False
    assert [late.app._may_count(now_s) for now_s in (1.0, 30.0, 32.0)] == [False, False, True]


def test_pairs_of_a_host_that_cannot_be_counted_are_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs_of = world.app._pairs_of

    def odd(sender: str, *rest: Any) -> Any:
        if sender == "A":
            raise TypeError("odd\x1b[31m")
        return pairs_of(sender, *rest)

    monkeypatch.setattr(world.app, "_pairs_of", odd)
    world.round()
    assert {sender for sender, _ in world.cluster.measured.rates} == {"B"}
    assert world.cluster.members["A"].faults == {"sent_not_counted": "TypeError: odd\\x1b[31m"}


@pytest.mark.parametrize("where", ["step", "capacities"])
def test_weights_that_cannot_be_decided_end_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """One host's counters may be the cause, and would be there again after a restart."""
    world.round()
    slots = dict(world.cluster.pair_slots)

    def odd(*args: Any) -> Any:
        raise ZeroDivisionError("division by zero")

    with monkeypatch.context() as patch:
        if where == "step":
            patch.setattr(world.cluster.loop, "step", odd)
        else:
            patch.setattr("ri2n_sdn.fabric.model.Fabric.capacities_bps", odd)
        for _ in range(30):
            world.round()
        problem = (
            "no slot tables could be decided, so they stay as they are: ZeroDivisionError: "
            "division by zero"
        )
        assert problem in problem_texts(world.cluster) and world.cluster.pair_slots == slots
    world.round()
    assert (
        problem not in problem_texts(world.cluster)
        and world.cluster.counters["cluster_faults"] == 30
    )


def test_a_host_that_makes_no_sense_is_no_part_of_the_fabric(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_host = world.cluster._host

    def odd(member: Any, declared: Any) -> Any:
        if member.name == "A":
            raise KeyError("odd")
        return of_host(member, declared)

    monkeypatch.setattr(world.cluster, "_host", odd)
    world.cluster.topology_changed()
    world.round()
    assert set(world.cluster.fabric().hosts) == {"B"}
    assert any(
        line.startswith("A: its description of itself makes no sense: KeyError")
        for line in problem_texts(world.cluster)
    )


def test_the_log_says_whose_counters_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    reply: Future[bytes] = Future()
    reply.set_result(b"\0" * 7)
    assert telemetry._entries("node7", reply, codec.read_flow_counters) is None
    (record,) = caplog.records
    assert record.getMessage().startswith("node7: its counters cannot be read")
    assert record.__dict__["fields"] == {"host": "node7"}
