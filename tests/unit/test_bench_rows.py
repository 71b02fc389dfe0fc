# SPDX-License-Identifier: Apache-2.0
"""From recorded measurements to table rows."""

from __future__ import annotations

import pytest

from ri2n_lab.bench.fair import Optimum
from ri2n_lab.bench.figure import Figure
from ri2n_lab.bench.rows import (
    fig4_row,
    lasting_text,
    link_ratio,
    missing_row,
    retransmits,
    settle_time_s,
    summarize,
)


def report(*megabits: float, retransmitted: int = 0) -> dict[str, object]:
    """As iperf3 -J prints it: one second per interval, `sum` over the streams."""
    return {
        "intervals": [
            {
                "streams": [],
                "sum": {
                    "start": float(second),
                    "end": second + 1.0,
                    "bytes": int(rate * 1e6 / 8),
                    "retransmits": retransmitted,
                    "omitted": False,
                },
            }
            for second, rate in enumerate(megabits)
        ]
    }


def test_retransmits_of_the_window() -> None:
    assert retransmits(report(1, 1, 1, 1, retransmitted=3), 1, 3) == 6


def test_a_row_has_the_shares() -> None:
    row = fig4_row(
        {"topology": "d", "strategy": "max_min", "mode": "flow", "streams": 8, "repeat": 1},
        {"B": 90e6, "C": 100e6},
        Optimum(200e6, {"B": 100e6, "C": 100e6}),
        retransmitted=7,
        weights={"C": {"eth0>eth0": 0.25, "eth1>eth1": 0.75}},
        slots_moved=5,
    )
    assert row["clients"]["B"] == {"goodput_bps": 90_000_000, "share": 0.9}
    assert (
        row["total_of_optimum"],
        row["worst_share"],
        row["retransmits"],
        row["slots_moved"],
    ) == (*(0.95, 0.9, 7, 5),)


def test_summary_is_the_median_with_its_spread() -> None:
    rows = [{"t": "d", "x": value, "y": None} for value in (0.8, 0.9, 0.95)] + [
        {"t": "h", "x": 1.0, "y": 2}
    ]
    summary = summarize(rows, ["t"], [Figure("x"), Figure("y")])
    assert summary[0] == {
        **{"t": "d", "repeats": 3, "x": 0.9, "x_spread": [0.8, 0.95], "y": None, "y_spread": None}
    }
    assert summary[1]["y"] == 2


def test_weight_of_link_1_to_link_0() -> None:
    assert link_ratio({"eth0>eth0": 0.25, "eth1>eth1": 0.75}) == pytest.approx(3)
    assert link_ratio({"eth0>eth0": 1.0}) is None
    assert link_ratio({"eth0>eth0": 0.0, "eth1>eth1": 1.0}) == float("inf")
    assert link_ratio({"eth0>eth0": 0.25, "eth0>eth1": 0.25, "eth1>eth0": 0.5}) == pytest.approx(1)


def samples(*shares: float) -> list[tuple[float, dict[str, float]]]:
    return [
        (10 + 0.1 * i, {"eth0>eth0": 1 - share, "eth1>eth1": share})
        for i, share in enumerate(shares)
    ]


def test_settling_is_the_first_moment_after_which_nothing_leaves_the_band() -> None:
    assert settle_time_s(
        samples(0.5, 0.5, 0.9, 0.5, 0.8, 0.8, 0.81, 0.8, 0.8), 10
    ) == pytest.approx(0.4)
    assert settle_time_s(samples(*[0.7] * 9), 10) == 0


def test_a_phase_that_never_settles_says_so() -> None:
    assert settle_time_s(samples(0.2, 0.8, 0.2, 0.8, 0.2, 0.8, 0.2, 0.5, 0.9), 10) is None
    assert settle_time_s(samples(0.5), 10) is None


def test_a_path_that_went_away_has_to_be_gone_from_the_weights() -> None:
    both, one = {"eth0>eth0": 0.5, "eth1>eth1": 0.5}, {"eth0>eth0": 1.0}
    phase = [(0.0, both), (0.1, both), (0.2, one), (0.3, one), (0.4, one), (0.5, one)]
    assert settle_time_s(phase, 0) == pytest.approx(0.2)


def test_what_cannot_be_measured_is_a_row_that_says_why() -> None:
    key = {"topology": "d", "strategy": "lcb", "streams": 8}
    row = missing_row(key, "links differ", ["worst_share"], ["clients"])
    assert row == {
        **key,
        "repeat": 0,
        "why_not": "links differ",
        "worst_share": None,
        "clients": {},
    }
    rows = [row, {**key, "strategy": "mptcp", "worst_share": 0.5}]
    lines = summarize(rows, ["strategy"], [Figure("worst_share")])
    assert (lines[0]["repeats"], lines[0]["why_not"], lines[0]["worst_share"]) == (
        0,
        "links differ",
        None,
    )
    assert (lines[1]["repeats"], lines[1]["worst_share"]) == (1, 0.5)
    assert "why_not" not in lines[1]


def test_repeats_of_yes_and_no_are_counted_without_those_where_nobody_looked() -> None:
    repeats: list[list[bool | None]] = [[True, True], [False, None], [True, False, False], [None]]
    assert [lasting_text(each) for each in repeats] == ["yes", "no", "1 of 3", "-"]
