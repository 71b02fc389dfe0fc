# SPDX-License-Identifier: Apache-2.0
"""Rates for people: what all figures of a host say of the same time, whatever its counters show."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.weights.windows import WINDOW_S, FairWindow, HostRates, Reading, Row, Window

ONE, TWO = (1, 1, 0), (2, 2, 0)
TO_B, TO_C = ("B", ONE), ("C", ONE)
REFRESH_S = 0.5
TICK_S = 0.05
MBIT = 125_000
"""Bytes in a second."""


@dataclass
class Host:
    """A host that counts: its NICs at once, its rows every 0.5 s, as Open vSwitch does.

    `sends` are the rates of its rows in Mbit/s, `others` what a NIC sends beside them.
    """

    sends: dict[Row, float]
    others: dict[int, float] = field(default_factory=dict)
    refresh_s: float = 0.0
    now_s: float = 0.0
    _nics: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    _rows: dict[Row, float] = field(default_factory=lambda: defaultdict(float))
    _shown: dict[Row, int] = field(default_factory=dict)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now_s += TICK_S
            for port, rate in self.others.items():
                self._nics[port] += rate * MBIT * TICK_S
            for row, rate in self.sends.items():
                self._rows[row] += rate * MBIT * TICK_S
                self._nics[row[1][0]] += rate * MBIT * TICK_S
            if self.now_s >= self.refresh_s:
                self.refresh_s += REFRESH_S
                self._shown = {row: int(count) for row, count in self._rows.items()}

    def reading(self) -> Reading:
        ports = {1: 0.0, 2: 0.0} | self._nics
        return Reading({port: (int(n), 0) for port, n in ports.items()}, dict(self._shown), {})


def seen(host: Host, seconds: float, every_s: float = 0.25) -> Iterator[HostRates]:
    """The rates after each poll."""
    window = Window()
    for _ in range(round(seconds / every_s)):
        window.take(host.now_s, host.reading())
        host.run(every_s)
        if (rates := window.rates()) is not None:
            yield rates


@pytest.mark.parametrize("refresh_s", [0.0, 0.1, 0.2, 0.3, 0.4])
@pytest.mark.parametrize("every_s", [0.25, 0.35, 0.5, 1.0, 4.0])
def test_a_steady_pair_and_its_nic_say_the_same(refresh_s: float, every_s: float) -> None:
    """Of two readings of rows, one shows nothing and the other one twice as much."""
    host = Host({TO_B: 48.8}, refresh_s=refresh_s)
    rates = list(seen(host, 40.0, every_s))[-8:]
    assert rates
    for each in rates:
        assert each.nics[1][0] == pytest.approx(48.8e6, rel=0.001)
        assert each.sent[TO_B] == pytest.approx(48.8e6, rel=0.001)


rates_of_rows = st.dictionaries(
    st.tuples(st.sampled_from("BCDE"), st.sampled_from([ONE, TWO])),
    st.floats(0.1, 100.0),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40)
@given(
    st.lists(rates_of_rows, min_size=1, max_size=4),
    st.sampled_from([0.25, 0.3, 0.5, 1.0]),
    st.floats(0.0, 0.5),
    st.integers(0, 2**32),
)
def test_rows_never_carry_more_than_their_nic_and_steady_ones_as_much(
    phases: list[dict[Row, float]], every_s: float, refresh_s: float, seed: int
) -> None:
    """Whatever changes meanwhile, and however late the counters of rows are."""
    late = random.Random(seed)
    host, window = Host({}, refresh_s=refresh_s), Window()
    for sends in phases:
        host.sends = sends
        steady_s = 0.0
        while steady_s < WINDOW_S + 3.0:
            step_s = every_s * late.choice([1.0, 1.0, 1.0, 2.0])
            host.run(step_s)
            steady_s += step_s
            window.take(host.now_s, host.reading())
            rates = window.rates()
            if rates is None:
                continue
            for port, (sent_bps, _) in rates.nics.items():
                of_rows = sum(bps for row, bps in rates.sent.items() if row[1][0] == port)
                assert of_rows <= sent_bps * (1 + 1e-9)
                assert min(rates.sent.values(), default=0.0) >= 0.0
        assert rates is not None
        assert rates.nics[1][0] + rates.nics[2][0] == pytest.approx(
            sum(sends.values()) * 1e6, rel=0.01
        )
        assert sum(rates.sent.values()) == pytest.approx(sum(sends.values()) * 1e6, rel=0.01)
        for row, rate in sends.items():
            assert rates.sent[row] == pytest.approx(rate * 1e6, rel=0.05)


def test_what_belongs_to_no_row_is_not_put_on_the_rows() -> None:
    host = Host({TO_B: 30.0}, others={1: 60.0})
    *_, last = seen(host, 10.0)
    assert last.nics[1][0] == pytest.approx(90e6, rel=0.01)
    assert last.sent[TO_B] == pytest.approx(30e6, rel=0.15)


def test_what_a_device_drops_is_not_sent() -> None:
    """Rows count what they hand to a NIC, and UDP hands over more than the link carries."""
    window = Window()
    for second in range(4):
        nics = {1: (second * 100 * MBIT, 0)}
        sent = {TO_B: second * 150 * MBIT, TO_C: second * 50 * MBIT}
        window.take(float(second), Reading(nics, sent, {}))
    rates = window.rates()
    assert rates is not None and rates.nics[1] == (100e6, 0.0)
    assert rates.sent == pytest.approx({TO_B: 75e6, TO_C: 25e6})


def test_a_device_that_comes_in_the_place_of_another_has_no_rate_at_first() -> None:
    window = Window()
    for second, nics in enumerate(
        ({1: (10**9, 10**9)}, {1: (2 * 10**9, 2 * 10**9)}, {}, {1: (5, 5)})
    ):
        window.take(float(second), Reading(nics, {}, {}))
    rates = window.rates()
    assert rates is not None and rates.nics == {}
    window.take(4.0, Reading({1: (1_000_005, 5)}, {}, {}))
    window.take(7.0, Reading({1: (4_000_005, 5)}, {}, {}))
    rates = window.rates()
    assert rates is not None and rates.nics == {1: (8e6, 0.0)}


def test_traffic_that_has_ended_is_gone_after_a_window() -> None:
    host = Host({TO_B: 50.0})
    window = Window()
    for _ in range(20):
        window.take(host.now_s, host.reading())
        host.run(0.25)
    host.sends = {}
    for _ in range(16):
        host.run(0.25)
        window.take(host.now_s, host.reading())
    rates = window.rates()
    assert rates is not None and rates.nics[1] == (0.0, 0.0) and not rates.sent


def test_readings_are_kept_for_a_window_alone() -> None:
    host, window = Host({TO_B: 50.0}), Window()
    for _ in range(400):
        window.take(host.now_s, host.reading())
        host.run(0.05)
    assert len(window._marks) <= WINDOW_S / REFRESH_S + 3


def test_what_is_fair_is_about_the_same_time_as_rates() -> None:
    """A host's three links of 100 become one: its part of what is fair is never above 1."""
    fair, sent = FairWindow(), Window()
    at_s, octets, worst = 0.0, 0, 0.0
    while at_s < 10.0:
        rate_bps = 300e6 if at_s <= 5.0 else 100e6
        octets += int(rate_bps * 0.25 / 8)
        sent.take(at_s, Reading({1: (octets, 0)}, {TO_B: octets}, {}))
        known = fair.take(at_s, {("A", "B"): rate_bps})
        rates = sent.rates()
        if rates is not None:
            worst = max(worst, rates.nics[1][0] / known["A", "B"])
            if at_s > 5.0 + WINDOW_S + 0.5:
                assert known["A", "B"] == pytest.approx(100e6)
        at_s += 0.25
    assert 0.9 < worst < 1.2


def test_a_pair_that_no_link_limits_any_more_has_no_fair_rate() -> None:
    fair = FairWindow()
    assert fair.take(0.0, {("A", "B"): 5.0, ("A", "C"): 7.0}) == {("A", "B"): 5.0, ("A", "C"): 7.0}
    assert fair.take(1.0, {("A", "B"): 6.0}) == {("A", "B"): 6.0}
    both = fair.take(2.0, {("A", "B"): 8.0, ("A", "C"): 9.0})
    assert both == {("A", "B"): 7.0, ("A", "C"): 9.0}, "C has the mean of what is known"
    assert fair.take(3.0, {}) == {}
    assert fair.take(3.0, {("A", "C"): 4.0}) == {("A", "C"): 9.0}, "no time is not divided by"
