# SPDX-License-Identifier: Apache-2.0
"""What the controller makes of a fast path's reports: traffic, states, and silence."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.connection import ConnectionApp
from ri2n_sdn.apps.fast_path import judge_fast_paths, take_fast_report
from ri2n_sdn.apps.problems import problems_of
from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.pipeline.diff import Installed
from ri2n_sdn.pipeline.fast_counts import FastCounts
from ri2n_sdn.pipeline.fast_path import HOLDS_S, SILENT_S, FastPath
from ri2n_sdn.pipeline.fast_reports import (
    FastCount,
    FastRow,
    SlotsReport,
    StateReport,
    decode,
)
from ri2n_sdn.pipeline.layout import COOKIE_OURS, Table
from ri2n_sdn.weights.counters import Count
from tests.unit.fake_hosts import FakeChannel, cluster_of, host_mac
from tests.unit.fast_frames import EPOCH, counts_frame, slots_frame, state_frame

ONE, TWO = FastRow(30, 1, host_mac("B"), 0), FastRow(30, 2, host_mac("B"), 0)


def read(row: FastRow, packets: int, octets: int) -> FastCount:
    return FastCount(row, packets, octets)


# Traffic


def test_the_first_report_of_the_first_epoch_is_a_level() -> None:
    counts = FastCounts()
    assert counts.begin(7)
    counts.take([read(ONE, 5, 5000)])
    assert counts.drain() == {ONE: Count(0, 0)}
    counts.take([read(ONE, 7, 7000)])
    assert counts.drain() == {ONE: Count(2, 2000)}
    assert counts.drain() == {}


def test_a_lost_report_costs_nothing() -> None:
    counts = FastCounts()
    counts.begin(7)
    counts.take([read(ONE, 0, 0), read(TWO, 0, 0)])
    counts.take([read(TWO, 9, 900)])  # the report of ONE with 3 packets did not come
    counts.take([read(ONE, 4, 400)])
    assert counts.drain() == {ONE: Count(4, 400), TWO: Count(9, 900)}


def test_another_epoch_counts_from_0_and_a_former_one_says_nothing_more() -> None:
    counts = FastCounts()
    counts.begin(7)
    counts.take([read(ONE, 5, 5000)])
    assert counts.begin(8)
    counts.take([read(ONE, 3, 3000), read(TWO, 1, 100)])
    assert counts.drain() == {ONE: Count(3, 3000), TWO: Count(1, 100)}
    assert not counts.begin(7), "programs that were replaced do not come back"
    assert counts.begin(8)


def test_a_process_without_programs_is_no_epoch() -> None:
    """It may end and begin again, and its programs are still the first ones."""
    counts = FastCounts()
    assert counts.begin(0) and counts.begin(7) and counts.begin(0) and counts.begin(7)
    counts.take([read(ONE, 5, 5000)])
    assert counts.drain() == {ONE: Count(0, 0)}


def test_an_older_report_of_an_epoch_is_not_counted_twice() -> None:
    counts = FastCounts()
    counts.begin(7)
    for packets in (0, 10, 4, 10, 11):
        counts.take([read(ONE, packets, packets * 100)])
    assert counts.drain() == {ONE: Count(11, 1100)}


def test_rows_beyond_the_bound_are_counted_and_the_known_ones_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ri2n_sdn.pipeline.fast_counts.MAX_ROWS", 1)
    counts = FastCounts()
    counts.begin(7)
    assert counts.take([read(ONE, 1, 1), read(TWO, 1, 1)]) == 1
    assert counts.take([read(ONE, 2, 2)]) == 0
    assert counts.drain() == {ONE: Count(1, 1)}


def test_new_epochs_without_end_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ri2n_sdn.pipeline.fast_counts.MAX_ROWS", 10)
    counts, refused = FastCounts(), 0
    for epoch in range(1, 1000):
        assert counts.begin(epoch)
        refused += counts.take([read(FastRow(30, epoch, host_mac("B"), 0), 1, 1)])
    assert refused == 999 - 10
    assert len(counts.drain()) == 10


def told(*octets: int, host: str = "B", part: int = 0, parts: int = 1) -> SlotsReport:
    """A report of a peer whose first slots have these bytes, and the others none."""
    slots = [*octets, *[0] * (64 - len(octets))]
    report = decode(slots_frame([(host_mac(host), slots)], part=part, parts=parts))
    assert isinstance(report, SlotsReport)
    return report


def first(counts: FastCounts, host: str = "B") -> tuple[int, ...] | None:
    """The bytes in a peer's first two slots."""
    drained = counts.drain_slots()
    return None if drained is None else drained.get(host_mac(host), ())[:2]


def test_slots_begin_with_a_level_and_go_on_over_loads() -> None:
    counts, mac = FastCounts(), host_mac("B")
    counts.begin(7)
    assert first(counts) is None and not counts.knows_slots(mac)
    counts.take_slots(told(1000, 5))
    assert first(counts) == (0, 0) and counts.knows_slots(mac)
    assert not counts.knows_slots(host_mac("C"))
    counts.take_slots(told(1000, 9))
    counts.take_slots(told(900, 7))  # an older one
    counts.take_slots(told(1001, 12))
    assert first(counts) == (1, 7)
    assert first(counts) is None, "nothing twice"
    counts.take_slots(told(1001, 13))
    counts.begin(8)
    counts.take_slots(told(30))
    assert first(counts) == (30, 1)
    assert counts.knows_slots(host_mac("C")), "all count from 0"


def test_slots_are_told_when_the_last_part_is_there() -> None:
    counts = FastCounts()
    counts.begin(7)
    counts.take_slots(told(0, part=0, parts=2))
    assert first(counts) is None
    counts.take_slots(told(0, host="C", part=1, parts=2))
    assert first(counts) == (0, 0)
    counts.take_slots(told(5, part=0, parts=2))
    counts.take_slots(told(6, host="C", part=1, parts=2))
    drained = counts.drain_slots()
    assert drained is not None
    assert [drained[host_mac(host)][0] for host in "BC"] == [5, 6]


def test_slots_of_peers_beyond_the_bound_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ri2n_sdn.pipeline.fast_counts.MAX_PEERS", 1)
    counts = FastCounts()
    counts.begin(7)
    assert counts.take_slots(told(1)) == 0
    assert counts.take_slots(told(1, host="C")) == 1
    # New loads without end make no more of them.
    for epoch in range(8, 20):
        counts.begin(epoch)
        assert counts.take_slots(told(1, host="C")) == 1
        assert counts.take_slots(told(1)) == 0
    assert first(counts) == (12, 0)


@pytest.mark.parametrize("seed", range(20))
def test_rows_and_reports_together_are_what_rows_alone_would_be(seed: int) -> None:
    """Random traffic that changes its way, lost reports and new loads.

    What is certain is the sum once a report of each row has come. Traffic of the first epoch before
    the first report is left out, as that of a row is that was not read before.
    """
    rng = Random(seed)
    counts = FastCounts()
    truth, by_bridge, beside = Counter[FastRow](), Counter[FastRow](), Counter[FastRow]()
    in_programs, epoch = Counter[FastRow](), 1
    rows = [FastRow(30, number, host_mac("B"), 0) for number in range(4)]
    assert counts.begin(epoch)
    counts.take([read(row, 0, 0) for row in rows])

    def report(shown: list[FastRow]) -> None:
        assert counts.begin(epoch)
        counts.take([read(row, in_programs[row], in_programs[row] * 1000) for row in shown])
        for row, count in counts.drain().items():
            assert count.bytes == count.packets * 1000
            beside[row] += count.packets

    for _ in range(300):
        row, packets = rng.choice(rows), rng.randrange(1, 50)
        truth[row] += packets
        if rng.random() < 0.5:
            by_bridge[row] += packets
        else:
            in_programs[row] += packets
        if rng.random() < 0.02:
            report(rows)  # the last report of these programs
            epoch += 1
            in_programs.clear()
        elif rng.random() < 0.7:
            report(rng.sample(rows, rng.randrange(len(rows))))
    report(rows)
    assert {row: by_bridge[row] + beside[row] for row in rows} == {row: truth[row] for row in rows}


# States


def of_state(frame: bytes) -> StateReport:
    report = decode(frame)
    assert isinstance(report, StateReport)
    return report


def test_a_report_in_parts_counts_when_all_parts_are_there() -> None:
    path = FastPath()
    peers = [(f"02:00:00:00:{n >> 8:02x}:{n & 255:02x}", n % 5) for n in range(1, 301)]
    first = of_state(state_frame(peers[:160], parts=2))
    second = of_state(state_frame(peers[160:], part=1, parts=2))
    assert not path.take_state(first, 1.0) and path.state is None
    assert path.take_state(second, 1.5) and path.state == "in_force"
    assert (path.heard_s, sum(path.sums().values())) == (1.5, 300)
    assert path.sums() == dict.fromkeys(
        ("carried", "striped", "undecided", "unsupported", "too_many"), 60
    )
    # Another report begins before the last part of this one.
    path.take_state(first, 2.0)
    late = of_state(state_frame(peers[160:], part=1, parts=2, time_ns=9))
    assert not path.take_state(late, 3.0)
    assert path.heard_s == 1.5


def test_silence_is_judged_by_the_switch_and_ends_with_a_report() -> None:
    path, report = FastPath(), of_state(state_frame([(host_mac("B"), 0)]))
    assert not path.judge(1000.0)
    path.take_state(report, 100.0)
    assert path.may_carry(host_mac("B")) and not path.may_carry(host_mac("C"))
    assert not path.judge(100.0 + SILENT_S)
    assert path.judge(100.1 + SILENT_S) and path.state == "silent"
    assert path.may_carry(host_mac("B")), "programs stay attached without their process"
    assert not path.judge(500.0)
    assert path.take_state(report, 501.0) and not path.is_late(501.0)


@pytest.mark.parametrize("programs", [0, 2, 3])
def test_of_programs_that_are_not_in_force_nothing_is_left_to_be_said(programs: int) -> None:
    path = FastPath()
    path.take_state(of_state(state_frame([], programs=programs)), 100.0)
    assert path.state is not None
    assert path.judge(104.0) and path.state is None


def test_order_holds_over_a_connection_that_is_lost_and_no_longer() -> None:
    path = FastPath()
    assert not path.orders(0.0)
    path.take_state(of_state(state_frame([], time_ns=2, order=1)), 10.0)
    assert path.orders(10.0 + SILENT_S) and not path.orders(10.1 + SILENT_S)
    path.connected_anew()
    assert path.orders(12.0) and path.state is None
    # What it says then holds at once.
    path.take_state(of_state(state_frame([], time_ns=3, order=0)), 12.1)
    assert not path.orders(12.1)
    path.take_state(of_state(state_frame([], time_ns=4, order=1)), 12.2)
    path.take_state(of_state(state_frame([], time_ns=5, order=1, programs=2)), 12.3)
    assert not path.orders(12.3)


def test_a_new_connection_begins_without_knowledge_but_traffic_goes_on() -> None:
    path = FastPath()
    path.counts.begin(7)
    path.counts.take([read(ONE, 5, 500)])
    path.take_state(of_state(state_frame([(host_mac("B"), 0)])), 100.0)
    path.connected_anew()
    assert path.state is None and not path.may_carry(host_mac("B")) and path.is_late(100.1)
    assert not path.judge(1000.0)
    path.counts.take([read(ONE, 6, 600)])
    assert path.counts.drain() == {ONE: Count(1, 100)}


ROWS = 0x5232_1000_0000_00FF
CAME_S = 10.0


def obeying(digest: int) -> bytes:
    return state_frame([], obeyed=digest)


def test_rows_as_one_number() -> None:
    rows = {0x5232_0000_0000_00F0: 3, 0x5232_1000_0000_000F: Table.SEND}
    assert Installed(rows).digest == ROWS
    assert Installed({**rows, 0x5232_0000_0000_0001: Table.JOB_ANSWERS}).digest == ROWS
    assert Installed({**rows, 0x5232_0000_0000_0001: 3}).digest == ROWS ^ 1
    assert Installed().digest != 0


def test_both_programs_have_the_same_numbers() -> None:
    root = Path(__file__).parents[2] / "fast" / "src"
    mirror = (root / "openflow" / "mirror.rs").read_text("utf-8")
    watch = (root / "watch.rs").read_text("utf-8")
    assert f"const CONTROLLERS: u64 = {COOKIE_OURS:#x};" in mirror
    assert f"const ANSWERS: u8 = {Table.JOB_ANSWERS:d};" in mirror
    assert f"const HOLDS: Duration = Duration::from_secs({HOLDS_S:g});" in watch


@pytest.mark.parametrize(
    ("frame", "after_s", "obeys"),
    [
        (obeying(ROWS), 0.0, True),
        (obeying(ROWS ^ 1), 0.0, False),
        (obeying(ROWS ^ 1), HOLDS_S, False),
        (obeying(ROWS ^ 1), HOLDS_S + 0.1, True),
        (obeying(0), 0.0, False),
        # Where the programs are refused, earlier ones may still stand there.
        (state_frame([], programs=2), 0.0, False),
        (state_frame([], programs=0), 0.0, True),
    ],
)
def test_new_rows_are_obeyed_when_the_host_says_so_or_by_time(
    frame: bytes, after_s: float, obeys: bool
) -> None:
    path = FastPath()
    path.take_state(of_state(frame), 100.0)
    assert path.obeys(ROWS, 100.0, CAME_S, 100.0 + after_s) == obeys


def test_a_host_that_has_come_just_now_may_have_a_fast_path() -> None:
    path = FastPath()
    assert not path.obeys(ROWS, 100.0, 100.0, 101.0)
    assert path.obeys(ROWS, 100.0, 100.0, 103.0)
    path.take_state(of_state(obeying(ROWS)), 110.0)
    assert path.obeys(ROWS, 110.0, 100.0, 110.0)
    for _ in range(2):
        path.connected_anew()
        assert not path.obeys(ROWS, 115.0, 111.0, 114.0), "the bridge's rows may be other ones"
        assert path.obeys(ROWS, 116.0, 111.0, 116.1)


# In the cluster


@pytest.fixture
def cluster() -> Cluster:
    return cluster_of({"A": FakeChannel(), "B": FakeChannel()})


def of_fast_paths(cluster: Cluster) -> list[Problem]:
    return [problem for problem in problems_of(cluster) if problem.code.startswith("fast_")]


def codes(cluster: Cluster) -> list[str]:
    return [event["code"] for event in cluster.events]


def test_reports_are_kept_by_host_and_changes_are_told(cluster: Cluster) -> None:
    member = cluster.members["A"]
    for frame in (
        state_frame([(host_mac("B"), 0)], mac=member.mac),
        counts_frame([(ONE, 1, 100)], mac=member.mac),
        state_frame([], mac=member.mac),
        state_frame([], programs=2, errno=1, mac=member.mac),
    ):
        take_fast_report(cluster, member, frame, 50.0)
    assert cluster.counters.described() == {"fast_reports": 4}
    assert cluster.measured.fast.keys() == {"A"}
    assert codes(cluster) == ["fast_in_force", "fast_refused"]


def test_what_is_not_taken_in_costs_a_counter(cluster: Cluster) -> None:
    member = cluster.members["A"]
    good = state_frame([], mac=member.mac)
    for frame, counter in (
        (good[:-1], "dropped_fast_report_length"),
        (good[:-1] + bytes([good[-1] ^ 1]), "dropped_fast_report_checksum"),
        (state_frame([], programs=9, mac=member.mac), "dropped_fast_report_unknown"),
        (state_frame([], parts=0, mac=member.mac), "dropped_fast_report_value"),
        (state_frame([], mac=host_mac("B")), "dropped_fast_report_of_stranger"),
        (state_frame([], parts=27, mac=member.mac), "dropped_fast_report_of_too_many"),
    ):
        take_fast_report(cluster, member, frame, 50.0)
        assert cluster.counters[counter] == 1, counter
    assert all(path.state is None for path in cluster.measured.fast.values())
    take_fast_report(cluster, member, state_frame([], mac=member.mac, epoch=EPOCH + 1), 51.0)
    take_fast_report(cluster, member, good, 52.0)
    assert cluster.counters["dropped_fast_report_old"] == 1
    assert cluster.measured.fast["A"].heard_s == 51.0


@pytest.mark.parametrize(
    ("programs", "filtered", "errno", "code", "args"),
    [
        (0, 0, 0, None, {}),
        (1, 0, 0, None, {}),
        (1, 1, 0, None, {}),
        (1, 2, 0, "fast_filter", {}),
        (2, 0, 1, "fast_refused", {"errno": 1, "why": "EPERM"}),
        (2, 0, 250, "fast_refused", {"errno": 250, "why": "250"}),
        (3, 0, 0, "fast_no_device", {}),
    ],
)
def test_problems_of_a_fast_path(
    cluster: Cluster,
    programs: int,
    filtered: int,
    errno: int,
    code: str | None,
    args: dict[str, object],
) -> None:
    member = cluster.members["A"]
    frame = state_frame([], programs=programs, filtered=filtered, errno=errno, mac=member.mac)
    take_fast_report(cluster, member, frame, 50.0)
    found = [(problem.code, problem.args) for problem in of_fast_paths(cluster)]
    assert found == ([(code, args)] if code else [])


def test_a_silent_fast_path_is_said_and_its_host_named(cluster: Cluster) -> None:
    member = cluster.members["A"]
    channel = member.channel
    assert channel is not None
    take_fast_report(cluster, member, state_frame([], mac=member.mac), 50.0)
    channel.answered_s = 52.0
    assert judge_fast_paths(cluster) == frozenset()
    channel.answered_s = 54.0
    assert judge_fast_paths(cluster) == {"A"} == judge_fast_paths(cluster)
    assert codes(cluster) == ["fast_in_force", "fast_silent"]
    assert [problem.id for problem in of_fast_paths(cluster)] == ["fast_silent:A"]
    take_fast_report(cluster, member, state_frame([], mac=member.mac), 55.0)
    assert judge_fast_paths(cluster) == frozenset()


def test_of_a_host_that_is_forgotten_nothing_is_kept(cluster: Cluster) -> None:
    member = cluster.members["A"]
    take_fast_report(cluster, member, state_frame([], mac=member.mac), 50.0)
    cluster.forget(member, "host_retired", by="carol")
    assert not cluster.measured.fast
    take_fast_report(cluster, member, state_frame([], mac=member.mac), 51.0)
    assert not cluster.measured.fast, "a late report of it changes nothing"


def test_a_host_that_connects_anew_begins_without_a_state(cluster: Cluster) -> None:
    member = cluster.members["A"]
    take_fast_report(cluster, member, state_frame([], mac=member.mac), 50.0)
    app = ConnectionApp()
    app.cluster = cluster
    app._admit(replace(member))
    assert cluster.members["A"] is not member
    assert cluster.measured.fast["A"].state is None
