# SPDX-License-Identifier: Apache-2.0
"""Frames to helpers and how often they are sent, reports of helpers, and files that forbid both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from ri2n_sdn.apps.config import load_cluster_config
from ri2n_sdn.apps.measured import STALE_S, Reported
from ri2n_sdn.apps.striping import ControlFrames
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.helper_links import number_helper_links
from ri2n_sdn.fabric.model import Fabric, PathKey
from ri2n_sdn.pipeline.helper_frames import NO_LIMIT, WHOLE_WEIGHT_PPM, Report, ReportEntry
from ri2n_sdn.pipeline.helper_texts import even_parts, links_to, nearly_equal, nics_of
from tests.unit.bridge_model import Cluster
from tests.unit.fat_model import FatCluster
from tests.unit.test_pipeline import wirings

PEER = "06:00:00:00:02:00"


def fabric_of(hosts: dict[str, list[str]]) -> Fabric:
    return Cluster(hosts, helpers=hosts).fabric


# ---- Contents of the frames


@settings(max_examples=40, deadline=None)
@given(wirings)
def test_links_without_a_decision_ask_no_more_of_a_nic_than_it_has(
    hosts: dict[str, list[str]],
) -> None:
    fabric = fabric_of(hosts)
    for a in hosts:
        for b in hosts:
            links = links_to(fabric, a, b, {}, {}) if a != b else ()
            for side, host in (("own_port", a), ("peer_port", b)):
                for nic in nics_of(fabric.hosts[host]):
                    asked = [link.rate_kbps for link in links if getattr(link, side) == nic.port]
                    assert sum(asked) <= nic.rate_kbps + len(asked)
            assert not links or abs(
                sum(link.weight_ppm for link in links) - WHOLE_WEIGHT_PPM
            ) <= len(links)
            assert all(link.limit_kbps == NO_LIMIT for link in links)


def test_a_decision_is_passed_on() -> None:
    fabric = fabric_of({"A": ["n1", "n2"], "B": ["n1", "n2"]})
    links = links_to(
        fabric, "A", "B", {(1, 1, 0): 0.25, (2, 2, 0): 0.75}, {(1, 1, 0): 10e6, (2, 2, 0): 30e6}
    )
    assert [(link.rate_kbps, link.weight_ppm) for link in links] == [
        (10_000, 250_000),
        (30_000, 750_000),
    ]


def test_what_lies_between_switches_limits_a_link() -> None:
    """Two pairs are busy on each tree.

    A third pair may have a third of a cable, or the rate of its decision.
    """
    fabric = FatCluster(2, 2, 4, helpers=[f"n{n}" for n in range(1, 9)]).fabric
    busy = {
        (f"n{n}", f"n{n + 4}"): {path.key: 40e6 for path in fabric.paths(f"n{n}", f"n{n + 4}")}
        for n in (1, 2)
    }
    parts = even_parts(fabric, {**busy, ("n1", "gone"): {(1, 1, 0): 1e6}})
    base, other = (path.key for path in fabric.paths("n3", "n7"))

    def limits(share: dict[PathKey, float], rate_bps: dict[PathKey, float]) -> list[int]:
        return [link.limit_kbps for link in links_to(fabric, "n3", "n7", share, rate_bps, parts)]

    assert limits({}, {}) == [NO_LIMIT, NO_LIMIT], "nothing was decided yet"
    assert limits({base: 0.5, other: 0.5}, {base: 1e6, other: 60e6}) == [33_333, 60_000]
    assert limits({base: 1.0, other: 0.0}, {base: 50e6, other: 0.0}) == [50_000, 0], (
        "one VLAN alone is allowed"
    )
    near = links_to(fabric, "n3", "n4", {(1, 1, 0): 1.0}, {(1, 1, 0): 1e6}, parts)
    assert [link.limit_kbps for link in near] == [NO_LIMIT], (
        "there is no cable between hosts on one switch"
    )


def test_the_cable_that_is_shared_by_the_most_limits_a_link() -> None:
    """One pair is busy on the link up from the sender's switch, two on that to the receiver's."""
    fabric = FatCluster(3, 1, 2, helpers=[f"n{n}" for n in range(1, 7)]).fabric
    (path,) = (path.key for path in fabric.paths("n2", "n4"))
    parts = even_parts(fabric, {("n1", "n3"): {path: 40e6}, ("n5", "n3"): {path: 40e6}})
    (link,) = links_to(fabric, "n2", "n4", {path: 1.0}, {path: 1e6}, parts)
    assert link.limit_kbps == 33_333


def test_a_dead_link_is_told_and_gets_nothing() -> None:
    fabric = fabric_of({"A": ["n1", "n2"], "B": ["n1", "n2"]})
    a = fabric.hosts["A"]
    down = replace(a, nics=(replace(a.nics[0], up=False), a.nics[1]))
    fabric = Fabric({**fabric.hosts, "A": down}, fabric.helper_link_numbers)
    links = links_to(fabric, "A", "B", {}, {})
    assert [(link.alive, link.rate_kbps, link.weight_ppm) for link in links] == [
        (False, 0, 0),
        (True, 100_000, WHOLE_WEIGHT_PPM),
    ]
    assert [nic.up for nic in nics_of(down)] == [False, True]


def test_a_small_change_is_not_worth_a_frame() -> None:
    fabric = fabric_of({"A": ["n1", "n2"], "B": ["n1", "n2"]})
    told = links_to(
        fabric, "A", "B", {(1, 1, 0): 0.5, (2, 2, 0): 0.5}, {(1, 1, 0): 50e6, (2, 2, 0): 50e6}
    )
    assert nearly_equal(told, told)
    for change, equal in (
        ({"rate_kbps": 52_000}, True),
        ({"rate_kbps": 53_000}, False),
        ({"weight_ppm": 515_000}, True),
        ({"weight_ppm": 530_000}, False),
        ({"alive": False}, False),
        ({"peer_port": 3}, False),
        ({"limit_kbps": 50_000}, False),
    ):
        assert nearly_equal((replace(told[0], **change), told[1]), told) == equal, change
    assert not nearly_equal(told[:1], told)


def test_a_link_that_loses_all_of_a_small_share_is_told() -> None:
    """The change is small, but without it the helper would go on using the link."""
    fabric = fabric_of({"A": ["n1", "n2"], "B": ["n1", "n2"]})
    rates = {(1, 1, 0): 10e6, (2, 2, 0): 10e6}
    small, smaller, none = (
        links_to(fabric, "A", "B", {(1, 1, 0): part, (2, 2, 0): 1 - part}, rates)
        for part in (0.02, 0.01, 0.0)
    )
    assert nearly_equal(smaller, small)
    assert not nearly_equal(none, small) and not nearly_equal(small, none)


def test_numbers_stay_when_another_nic_joins() -> None:
    before = Cluster({"A": ["n1", "n2"], "B": ["n2"]}, helpers="AB").fabric
    hosts = Cluster({"A": ["n1", "n2"], "B": ["n1", "n2"]}, helpers="AB").hosts
    b = replace(
        hosts["B"], nics=(replace(hosts["B"].nics[0], port=2), replace(hosts["B"].nics[1], port=1))
    )
    after = number_helper_links(Fabric({**hosts, "B": b}), before.helper_link_numbers)
    assert before.helper_link_numbers["A", "B"] == {(2, 1, 0): 0}
    assert after["A", "B"] == {(2, 1, 0): 0, (1, 2, 0): 1}


# ---- How often they are sent


def say(frames: ControlFrames, mac: str, text: str) -> None:
    frames.set(mac, (text, ()), text.encode)


def test_news_at_once_and_the_rest_every_two_seconds() -> None:
    frames = ControlFrames()
    say(frames, "", "host")
    say(frames, PEER, "peer")
    assert frames.due(100.0, 2.0) == [b"host", b"peer"]
    assert frames.due(101.9, 2.0) == []
    say(frames, PEER, "peer")
    assert frames.due(101.9, 2.0) == []
    say(frames, PEER, "news")
    assert frames.due(101.9, 2.0) == [b"news"]
    assert frames.due(102.1, 2.0) == [b"host"]
    frames.repeat_all()
    assert sorted(frames.due(102.2, 2.0)) == [b"host", b"news"]


def test_a_peer_that_left_is_said_to_be_gone_three_times() -> None:
    frames = ControlFrames()
    say(frames, PEER, "peer")
    frames.due(100.0, 2.0)
    times = []
    frames.set_gone(PEER, 7)
    for now_s in range(101, 120, 2):
        times += [
            (now_s, frame[20], frame[26:32].hex(":")) for frame in frames.due(float(now_s), 2.0)
        ]
    assert times == [(now_s, 3, PEER) for now_s in (101, 103, 105)]
    assert not frames.by_key


def test_a_peer_that_is_back_is_not_gone() -> None:
    frames = ControlFrames()
    frames.set_gone(PEER, 7)
    say(frames, PEER, "peer")
    assert frames.due(100.0, 2.0) == [b"peer"] and frames.due(103.0, 2.0) == [b"peer"]


def test_a_helper_is_not_flooded() -> None:
    frames = ControlFrames()
    for number in range(100):
        say(frames, f"peer {number:03}", f"{number:03}")
    say(frames, "", "host")
    batches = [frames.due(100.0 + i / 10, 20.0) for i in range(5)]
    assert batches[0][0] == b"host"
    assert [len(batch) for batch in batches] == [32, 32, 32, 5, 0]
    assert len({frame for batch in batches for frame in batch}) == 101


# ---- Reports


def entry(peer: str, link: int, sent: int = 0) -> ReportEntry:
    return ReportEntry(peer, link, True, True, True, sent, 0, 0, 0, 0, 0, 0, 0)


def test_parts_of_a_report_are_put_together_and_grow_old() -> None:
    reported = Reported()
    reported.take(Report(1000, "a", 0, (entry(PEER, 0, 5),)), 10.0)
    reported.take(Report(1000, "a", 0, (entry(PEER, 1, 6),)), 10.0)
    assert [found.sent for n in (0, 1) if (found := reported.link(PEER, n, 12.0))] == [5, 6]
    assert reported.link(PEER, 2, 12.0) is None and reported.link("x", 0, 12.0) is None
    reported.take(Report(3000, "a", 0, (entry(PEER, 1, 7),)), 10.1 + STALE_S)
    assert reported.running_s == 3.0 and reported.peers() == {PEER} and len(reported.links) == 1
    assert reported.link(PEER, 0, 10.1 + STALE_S) is None
    newest = reported.link(PEER, 1, 10.1 + STALE_S)
    assert newest is not None and newest.sent == 7
    assert reported.link(PEER, 1, 10.2 + 2 * STALE_S) is None


def test_reports_take_bounded_room() -> None:
    reported = Reported()
    for group in range(1100):
        reported.take(
            Report(0, "a", 0, tuple(entry(f"{group}", number) for number in range(64))), 1.0
        )
    assert len(reported.links) == 65_536
    # Entries of known links are renewed, new links find no place.
    reported.take(Report(0, "a", 0, (entry("0", 0, 5), entry("new", 0, 6))), 2.0)
    renewed = reported.link("0", 0, 2.0)
    assert renewed is not None and renewed.sent == 5 and reported.link("new", 0, 2.0) is None


# ---- cluster.yaml


@pytest.mark.parametrize(
    ("text", "of_a", "of_b"),
    [
        ("{}", True, True),
        ("striping: off", False, False),
        ("striping: 'off'", False, False),
        ("striping: auto\nhosts: {A: {striping: off}}", False, True),
        ("striping: off\nhosts: {A: {striping: auto}}", True, False),
    ],
)
def test_striping_can_be_forbidden(tmp_path: Path, text: str, of_a: bool, of_b: bool) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    config = load_cluster_config(path)
    assert (config.stripes("A"), config.stripes("B")) == (of_a, of_b)


@pytest.mark.parametrize("word", ["maybe", "on", "1"])
def test_other_words_are_refused(tmp_path: Path, word: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"striping: {word}")
    with pytest.raises(BadInput, match="striping"):
        load_cluster_config(path)
