# SPDX-License-Identifier: Apache-2.0
"""Turns of the striping app on invented hosts: what helpers are told, and what they report."""

from __future__ import annotations

import json
from typing import cast

import pytest

from ri2n_sdn.apps import codec, striping
from ri2n_sdn.apps.fast_path import take_fast_report
from ri2n_sdn.apps.measured import PathRates, Reported
from ri2n_sdn.apps.striping import StripingApp
from ri2n_sdn.pipeline.crc32c import crc32c
from ri2n_sdn.pipeline.helper_frames import Report, ReportEntry
from ri2n_sdn.pipeline.job_plan import Channel
from ri2n_sdn.pipeline.layout import HELPER_VLAN, WIRE_PORT
from tests.unit.app_turns import PACKET_OUT_HEAD, Clock, channel_of, clock
from tests.unit.commands import REPOSITORY
from tests.unit.fake_hosts import FakeChannel, cluster_of, host_mac, member_of
from tests.unit.fast_frames import state_frame

__all__ = ["clock"]

ONE, TWO = (1, 1, 0), (2, 2, 0)
STRIPE, BESIDE = 1, 2
VECTORS = json.loads((REPOSITORY / "reorder/tests/vectors.json").read_text(encoding="utf-8"))
REPORT = next(each for each in VECTORS["frames"] if each.get("report", {}).get("entries"))


@pytest.fixture
def striping_app(clock: Clock) -> StripingApp:
    app = StripingApp()
    app.cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel(), "C": FakeChannel()})
    for name in "AB":
        app.cluster.members[name].taps = {101: True, 102: True}
    app.cluster.topology_changed()
    return app


def frames_sent(app: StripingApp, name: str) -> list[bytes]:
    """The frames that a helper was sent in one turn."""
    for member in app.cluster.members.values():
        cast(FakeChannel, member.channel).sent_bytes.clear()
    app.cluster.wake.striping.set()
    app._turn()
    data, frames = b"".join(channel_of(app.cluster, name).sent_bytes), []
    while data:
        length = int.from_bytes(data[2:4], "big")
        frame, vlan = codec.untagged(data[PACKET_OUT_HEAD:length])
        assert (
            vlan == HELPER_VLAN
            and data[:4] == codec.packet_out(WIRE_PORT, codec.tagged(frame, vlan), 1)[:4]
        )
        frames.append(frame)
        data = data[length:]
    return frames


def mac_in(name: str) -> bytes:
    return bytes.fromhex(host_mac(name).replace(":", ""))


def test_a_helper_hears_of_its_host_and_of_its_peer_and_again_every_two_seconds(
    striping_app: StripingApp, clock: Clock
) -> None:
    first = frames_sent(striping_app, "A")
    assert len(first) == 2 and mac_in("A") in first[0] and mac_in("B") in first[1]
    assert striping_app.cluster.counters["helper_frames_sent"] == 4
    assert frames_sent(striping_app, "A") == []
    clock.now_s += 2.1
    assert frames_sent(striping_app, "A") == first
    assert not channel_of(striping_app.cluster, "C").sent_bytes, "it has no helper"
    striping_app.cluster.helpers_to_greet.add("A")
    assert frames_sent(striping_app, "A") == first and not striping_app.cluster.helpers_to_greet


def test_only_what_changed_is_said_anew(striping_app: StripingApp, clock: Clock) -> None:
    frames_sent(striping_app, "A")
    shares = {ONE: PathRates(share=0.8, rate_bps=8e7), TWO: PathRates(share=0.2, rate_bps=2e7)}
    striping_app.cluster.measured.rates = {("A", "B"): shares}
    (news,) = frames_sent(striping_app, "A")
    assert mac_in("B") in news and frames_sent(striping_app, "A") == []
    striping_app.cluster.measured.rates = {}
    (back,) = frames_sent(striping_app, "A")
    assert mac_in("B") in back and back != news, "a pair that is idle again"


def test_a_strategy_that_was_changed_is_told_at_once(striping_app: StripingApp) -> None:
    frames_sent(striping_app, "A")
    striping_app.cluster.loop.set_strategy("round_robin")
    news = frames_sent(striping_app, "A")
    assert len(news) == 1 and mac_in("A") in news[0]


def test_a_helper_that_is_gone_is_forgotten_and_one_that_is_back_hears_all(
    striping_app: StripingApp,
) -> None:
    first = frames_sent(striping_app, "A")
    striping_app.cluster.members["A"].taps[102] = False
    striping_app.cluster.topology_changed()
    assert frames_sent(striping_app, "A") == [] and set(striping_app._frames_of) == {"B"}
    striping_app.cluster.members["A"].taps[102] = True
    striping_app.cluster.topology_changed()
    assert frames_sent(striping_app, "A") == first


def test_nothing_is_told_before_the_controller_is_in_charge(striping_app: StripingApp) -> None:
    striping_app.cluster.started = False
    assert frames_sent(striping_app, "A") == []


def test_a_host_that_left_is_said_to_be_gone(striping_app: StripingApp, clock: Clock) -> None:
    frames_sent(striping_app, "A")
    del striping_app.cluster.members["B"]
    striping_app.cluster.topology_changed()
    frames = frames_sent(striping_app, "A")
    assert any(mac_in("B") in frame for frame in frames)
    for _ in range(3):
        clock.now_s += 2.1
        frames = frames_sent(striping_app, "A")
    assert not any(mac_in("B") in frame for frame in frames)


def test_a_report_is_kept_when_it_is_of_the_host_that_it_came_from(
    striping_app: StripingApp, clock: Clock
) -> None:
    def report(mac: str) -> bytes:
        before, after = (
            bytes.fromhex(each.replace(":", "")) for each in (REPORT["report"]["mac"], mac)
        )
        frame = bytes.fromhex("".join(REPORT["hex"])).replace(before, after)
        return frame[:16] + crc32c(frame[12:16] + frame[20:]).to_bytes(4, "big") + frame[20:]

    cluster = striping_app.cluster
    a, gone = cluster.members["A"], member_of("D")
    striping.take_report(cluster, a, report(host_mac("B")), clock.now_s)
    striping.take_report(cluster, gone, report(gone.mac), clock.now_s)
    striping.take_report(cluster, a, b"garbage", clock.now_s)
    assert not cluster.measured.reports and cluster.counters["dropped_report_of_stranger"] == 2
    assert cluster.counters["dropped_report_malformed"] == 1
    striping.take_report(cluster, a, report(host_mac("A")), clock.now_s)
    assert (
        cluster.measured.reports["A"].heard_s == clock.now_s
        and cluster.counters["helper_reports"] == 1
    )


def test_a_helper_that_reports_a_peer_of_an_earlier_controller_hears_that_it_is_gone(
    striping_app: StripingApp, clock: Clock
) -> None:
    stranger = "06:00:00:00:77:00"
    entry = ReportEntry(stranger, 0, True, True, True, 0, 0, 0, 0, 0, 0, 0, 0)
    said = striping_app.cluster.measured.reports["A"] = Reported()
    said.take(Report(0, host_mac("A"), 0, (entry,)), clock.now_s)
    assert any(
        bytes.fromhex(stranger.replace(":", "")) in frame
        for frame in frames_sent(striping_app, "A")
    )


def test_a_helper_that_was_told_by_a_later_clock_is_told_all_again_with_its_own(
    striping_app: StripingApp, clock: Clock
) -> None:
    """Otherwise the helper would refuse all frames for as long as the clock was set back.

    The other helper is not affected.
    """
    first = frames_sent(striping_app, "A")
    ahead = striping_app._generation + 86_400
    said = striping_app.cluster.measured.reports["A"] = Reported()
    said.take(Report(0, host_mac("A"), ahead, ()), clock.now_s)
    again = frames_sent(striping_app, "A")
    assert [generation_in(frame) for frame in again] == [ahead] * len(first)
    assert [without_generation(frame) for frame in again] == [
        without_generation(frame) for frame in first
    ]
    assert frames_sent(striping_app, "A") == [] and frames_sent(striping_app, "B") == [], "once"
    assert [event["text"] for event in striping_app.cluster.events][-1].startswith(
        "A: its helper was told its links by a controller whose clock was 864"
    )
    # What changes later is said with it, too; nothing older is.
    striping_app.cluster.loop.set_strategy("round_robin")
    assert [generation_in(frame) for frame in frames_sent(striping_app, "A")] == [ahead]
    striping_app.cluster.measured.reports["B"] = Reported()
    striping_app.cluster.measured.reports["B"].take(
        Report(0, host_mac("B"), striping_app._generation, ()), clock.now_s
    )
    assert frames_sent(striping_app, "B") == [], "it believes this controller"


def test_a_clock_that_is_set_back_makes_nothing_older(
    striping_app: StripingApp, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helpers refuse frames that are older than those they know."""
    before = generation_in(frames_sent(striping_app, "A")[0])
    monkeypatch.setattr(clock, "time", lambda: 1.0)
    striping_app.cluster.loop.set_strategy("round_robin")
    assert [generation_in(frame) for frame in frames_sent(striping_app, "A")] == [before]


def generation_in(frame: bytes) -> int:
    return int.from_bytes(frame[22:26], "big")


def without_generation(frame: bytes) -> bytes:
    return frame[:16] + frame[20:22] + frame[26:]


def flags_in(frame: bytes) -> int:
    return frame[32]


def says_order(app: StripingApp, name: str, order: int, now_s: float, **more: int) -> None:
    """A host's fast path reports, and the app is woken where that changes anything."""
    frame = state_frame([], mac=host_mac(name), order=order, **more)
    take_fast_report(app.cluster, app.cluster.members[name], frame, now_s)


def test_tcp_may_be_striped_beside_where_both_hosts_put_it_in_order(
    striping_app: StripingApp, clock: Clock
) -> None:
    first = frames_sent(striping_app, "A")
    assert flags_in(first[1]) == STRIPE
    says_order(striping_app, "A", 1, clock.now_s)
    assert frames_sent(striping_app, "A") == [], "B does not"
    wake = striping_app.cluster.wake.striping
    wake.clear()
    says_order(striping_app, "B", 1, clock.now_s)
    assert wake.is_set()
    for name, other in ("AB", "BA"):
        # Of the same turn: `frames_sent` shows what one host was sent.
        striping_app._frames_of.pop(name)
        news = frames_sent(striping_app, name)[1]
        assert (flags_in(news), mac_in(other) in news) == (STRIPE | BESIDE, True)
    wake.clear()
    says_order(striping_app, "B", 1, clock.now_s)
    assert not wake.is_set() and frames_sent(striping_app, "A") == []
    says_order(striping_app, "B", 0, clock.now_s)
    (back,) = frames_sent(striping_app, "A")
    assert flags_in(back) == STRIPE and back[22:26] >= news[22:26]


@pytest.mark.parametrize("pair", [("A", "B"), ("C", "B")])
def test_tcp_of_a_host_to_which_a_job_was_promised_a_rate_stays_with_the_helpers(
    striping_app: StripingApp, clock: Clock, pair: tuple[str, str]
) -> None:
    frames_sent(striping_app, "A")
    for name in "AB":
        says_order(striping_app, name, 1, clock.now_s)
    assert flags_in(frames_sent(striping_app, "A")[0]) == STRIPE | BESIDE
    jobs = striping_app.cluster.jobs
    for min_rate_bps, flags in ((0, STRIPE | BESIDE), (1_000_000, STRIPE), (0, STRIPE | BESIDE)):
        jobs.channels = {pair: {"job": Channel(1, 0x101, (), min_rate_bps)}}
        frames_sent(striping_app, "A")
        striping_app._frames_of.pop("A")
        told = [frame for frame in frames_sent(striping_app, "A") if mac_in("B") in frame]
        assert flags_in(told[0]) == flags, min_rate_bps


@pytest.mark.parametrize("end", ["silent", "programs", "helper"])
def test_what_one_of_them_lacks_ends_it_at_once(
    striping_app: StripingApp, clock: Clock, end: str
) -> None:
    frames_sent(striping_app, "A")
    for name in "AB":
        says_order(striping_app, name, 1, clock.now_s)
    assert flags_in(frames_sent(striping_app, "A")[0]) == STRIPE | BESIDE
    if end == "silent":
        told: list[int] = []
        for _ in range(5):
            clock.now_s += 0.8
            says_order(striping_app, "A", 1, clock.now_s)
            of_b = [frame for frame in frames_sent(striping_app, "A") if mac_in("B") in frame]
            told += map(flags_in, of_b)
        assert told[-1] == STRIPE and STRIPE | BESIDE in told
    elif end == "programs":
        says_order(striping_app, "B", 1, clock.now_s, programs=2)
        assert flags_in(frames_sent(striping_app, "A")[0]) == STRIPE
    else:
        striping_app.cluster.members["B"].taps[102] = False
        striping_app.cluster.topology_changed()
        assert not any(flags_in(each) & BESIDE for each in frames_sent(striping_app, "A"))


def test_a_controller_that_was_held_up_changes_nothing_before_it_has_read_reports(
    striping_app: StripingApp, clock: Clock
) -> None:
    frames_sent(striping_app, "A")
    for name in "AB":
        says_order(striping_app, name, 1, clock.now_s)
    frames_sent(striping_app, "A")
    clock.now_s += 10.0
    assert all(flags_in(each) & BESIDE for each in frames_sent(striping_app, "A")[1:])
    clock.now_s += 0.1
    assert flags_in(frames_sent(striping_app, "A")[0]) == STRIPE, "now they are late"


def test_many_helpers_are_told_again_more_rarely(
    striping_app: StripingApp, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of repeated frames a second is limited, here to four."""
    monkeypatch.setattr(striping, "_FRAMES_PER_S", 0.4)
    first = frames_sent(striping_app, "A")
    clock.now_s += 9.9
    assert frames_sent(striping_app, "A") == []
    clock.now_s += 0.2
    assert frames_sent(striping_app, "A") == first
