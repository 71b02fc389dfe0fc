# SPDX-License-Identifier: Apache-2.0
"""The part of what is fair, and the documents that have it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.apps.measured import PathRates, Sample
from ri2n_sdn.apps.pairs import path_documents
from ri2n_sdn.apps.watch import fair_documents
from ri2n_sdn.contract.fair import fair_entry, part_of_fair, worst_of
from tests.unit.fake_hosts import FakeChannel, cluster_of

ONE, TWO = (1, 1, 0), (2, 2, 0)


def test_a_part_is_what_is_sent_over_what_is_fair() -> None:
    assert part_of_fair(30e6, 60e6) == 0.5
    assert part_of_fair(0.0, 60e6) == 0.0
    assert part_of_fair(90e6, 60e6) == 1.5, "who gets more than is fair has more than all of it"
    assert part_of_fair(30e6, None) is None and part_of_fair(None, 60e6) is None
    assert part_of_fair(30e6, 0.0) is None


@given(
    st.lists(
        st.tuples(st.text("ABC", min_size=1), st.integers(0, 10**9), st.integers(1, 10**9)),
        min_size=1,
    )
)
def test_a_hosts_entry_has_its_sums_and_its_worst_pair(pairs: list[tuple[str, int, int]]) -> None:
    entry = fair_entry(pairs)
    assert entry is not None
    assert entry["pairs"] == len(pairs)
    assert entry["tx_bps"] == sum(tx_bps for _, tx_bps, _ in pairs)
    assert entry["fair_bps"] == sum(fair_bps for _, _, fair_bps in pairs)
    assert worst_of(entry) == min(tx_bps / fair_bps for _, tx_bps, fair_bps in pairs)
    assert (entry["worst"], entry["worst_tx_bps"], entry["worst_fair_bps"]) in pairs


def test_a_host_without_a_pair_that_a_link_limits_has_no_entry() -> None:
    rates = {
        ("B", "A"): {ONE: PathRates(20e6), TWO: PathRates(10e6)},
        ("C", "A"): {TWO: PathRates(90e6)},
        ("C", "B"): {ONE: PathRates(0.0)},
        ("A", "B"): {ONE: PathRates(1e6)},
        ("D", "A"): {ONE: PathRates(None)},
    }
    fair_bps = {("B", "A"): 60e6, ("C", "A"): 90e6, ("C", "B"): 45e6, ("D", "A"): 30e6}
    sample = Sample(1.5e9, rates, fair_bps)
    assert fair_documents(sample) == {
        "B": {
            **{"pairs": 1, "tx_bps": 30_000_000, "fair_bps": 60_000_000},
            **{"worst": "A", "worst_tx_bps": 30_000_000, "worst_fair_bps": 60_000_000},
        },
        "C": {
            **{"pairs": 2, "tx_bps": 90_000_000, "fair_bps": 135_000_000},
            **{"worst": "B", "worst_tx_bps": 0, "worst_fair_bps": 45_000_000},
        },
    }
    assert fair_entry([]) is None


@pytest.mark.parametrize(
    ("planned", "shown"),
    [
        ((90e6, 1.0), [90e6, None]),
        ((90e6, 0.0), [90e6, None]),
        ((90e6, 10e6), [90e6, 10e6]),
        ((5e3, 5e3), [5e3, 5e3]),
        ((None, None), [None, None]),
    ],
)
def test_a_path_for_which_nothing_is_planned_has_no_planned_rate(
    planned: tuple[float | None, float | None], shown: list[float | None]
) -> None:
    """A path that works is not said to have 1 bit/s; the rate of its NICs stands beside it."""
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()})
    rates = {path: PathRates(rate_bps=each) for path, each in zip((ONE, TWO), planned, strict=True)}
    sample = Sample(1.5e9, {("A", "B"): rates}, {})
    fabric = cluster.fabric()
    paths = path_documents(cluster, fabric, sample, "A", "B")
    assert [path["rate_bps"] for path in paths] == shown
    assert [path["speed_bps"] for path in paths] == [nic.rate_bps for nic in fabric.hosts["A"].nics]
