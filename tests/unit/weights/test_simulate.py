# SPDX-License-Identifier: Apache-2.0
"""The simulated figures 4 and 9 and table 8: the regression test of every strategy.

With -s, pytest prints the table and the charts.
"""

from __future__ import annotations

from functools import cache

import pytest

from ri2n_sdn.weights.simulate import FIGURE_9, SimulatedRun, chart, run, table
from ri2n_sdn.weights.strategies import STRATEGIES

TOPOLOGIES = "bcdefgh"
SEED = 1

# The worst client's share of its fair rate, and the last shares of link 1 of clients with both
# links.
SNAPSHOT: dict[tuple[str, str], tuple[float, dict[str, float]]] = {
    ("b", "round_robin"): (1.00, {"B": 0.50}),
    ("b", "ri2n_plus"): (1.00, {"B": 0.50}),
    ("b", "ri2n_plus_plus"): (1.00, {"B": 0.50}),
    ("b", "max_min"): (1.00, {"B": 0.50}),
    ("c", "round_robin"): (1.00, {"B": 0.50, "C": 0.50}),
    ("c", "ri2n_plus"): (1.00, {"B": 0.50, "C": 0.50}),
    ("c", "ri2n_plus_plus"): (1.00, {"B": 0.38, "C": 0.61}),
    ("c", "max_min"): (0.99, {"B": 0.50, "C": 0.50}),
    ("d", "round_robin"): (0.67, {"C": 0.50}),
    ("d", "ri2n_plus"): (0.80, {"C": 0.67}),
    ("d", "ri2n_plus_plus"): (0.86, {"C": 0.91}),
    ("d", "max_min"): (1.00, {"C": 0.98}),
    ("e", "round_robin"): (0.98, {"B": 0.50, "C": 0.50, "D": 0.50}),
    ("e", "ri2n_plus"): (0.98, {"B": 0.50, "C": 0.50, "D": 0.50}),
    ("e", "ri2n_plus_plus"): (0.97, {"B": 0.25, "C": 0.61, "D": 0.65}),
    ("e", "max_min"): (0.98, {"B": 0.50, "C": 0.50, "D": 0.50}),
    ("f", "round_robin"): (0.75, {"C": 0.50, "D": 0.50}),
    ("f", "ri2n_plus"): (0.86, {"C": 0.60, "D": 0.60}),
    ("f", "ri2n_plus_plus"): (0.99, {"C": 0.72, "D": 0.76}),
    ("f", "max_min"): (0.94, {"C": 0.74, "D": 0.79}),
    ("g", "round_robin"): (0.98, {"C": 0.50}),
    ("g", "ri2n_plus"): (0.98, {"C": 0.50}),
    ("g", "ri2n_plus_plus"): (0.91, {"C": 0.55}),
    ("g", "max_min"): (0.98, {"C": 0.50}),
    ("h", "round_robin"): (0.79, {"C": 0.50}),
    ("h", "ri2n_plus"): (0.87, {"C": 0.75}),
    ("h", "ri2n_plus_plus"): (0.92, {"C": 0.93}),
    ("h", "max_min"): (0.99, {"C": 0.98}),
}


@cache
def simulated(topology: str, name: str) -> SimulatedRun:
    """Each once, by whoever asks first."""
    one = run(topology, name, seed=SEED)
    print("\n" + table([one]))
    return one


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("name", STRATEGIES)
def test_snapshot(topology: str, name: str) -> None:
    worst, shares = SNAPSHOT[topology, name]
    one = simulated(topology, name)
    assert one.worst_share == pytest.approx(worst, abs=0.03)
    assert {c: pytest.approx(s, abs=0.05) for c, s in shares.items()} == {
        c: one.final_share(c, 1) for c in shares
    }


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_max_min_is_near_the_optimum(topology: str) -> None:
    for seed in (1, 2, 3):
        one = run(topology, "max_min", seed=seed, seconds=11.0)
        assert one.total_of_optimum >= 0.97, table([one])
        assert one.worst_share >= 0.9, table([one])


@pytest.mark.parametrize("seed", [13, 14, 15])
def test_no_flow_stays_where_only_probes_belong(seed: int) -> None:
    """C's share of link 0 falls to its floor in steps.

    When it was held a little above the floor (seed 13), one flow stayed, and B had 0.9 of its fair
    rate.
    """
    one = run("d", "max_min", seed=seed)
    assert one.final_share("C", 1) == pytest.approx(0.98, abs=0.001)
    assert one.worst_share > 0.98, table([one])


@pytest.mark.parametrize("topology", "dfh")
def test_ri2n_plus_plus_beats_round_robin(topology: str) -> None:
    assert (
        simulated(topology, "ri2n_plus_plus").worst_share
        > simulated(topology, "round_robin").worst_share + 0.05
    )
    assert (
        simulated(topology, "ri2n_plus").worst_share
        > simulated(topology, "round_robin").worst_share
    )


@pytest.mark.parametrize("name", ["ri2n_plus", "ri2n_plus_plus", "max_min"])
def test_weights_point_where_table_6_does(name: str) -> None:
    """Link 1 to link 0: d > 1, f > 1 for C and D, h largest."""
    runs = {topology: simulated(topology, name) for topology in "dfh"}
    ratio = {
        t: one.final_share("C", 1) / max(one.final_share("C", 0), 1e-9) for t, one in runs.items()
    }
    assert ratio["d"] > 1.5 and ratio["f"] > 1.2 and ratio["h"] > 2.0
    assert runs["f"].final_share("D", 1) > 0.55
    assert ratio["h"] >= ratio["d"] * 0.99 > ratio["f"] * 0.99


def test_one_link_is_just_used() -> None:
    one = run("a", "max_min", seconds=5.0)
    assert one.total_of_optimum == pytest.approx(1.0, abs=0.01) and one.slots_moved == 0


@pytest.mark.parametrize("name", ["ri2n_plus_plus", "max_min"])
def test_table_8_a_pinging_neighbour_costs_nothing(name: str) -> None:
    one = run("d", name, seed=SEED, pings=frozenset("B"))
    assert one.goodput_bps["C"] >= 0.97 * 2 * 95.6e6
    assert one.final_share("C", 1) == pytest.approx(0.5, abs=0.1)


def test_cold_start_is_over_in_a_second_and_a_half() -> None:
    for topology, expected in (("d", 0.98), ("f", 0.75), ("h", 0.98)):
        one = run(topology, "max_min", seed=SEED, seconds=4.0)
        near = [
            abs(share["C"][2, 2, 0] - expected) <= 0.06
            for t, share in one.shares
            if t >= 1.5 and "C" in share
        ]
        assert near and all(near), f"{topology}: {one.shares}"


# Figure 9: the time of each change, and the shares of link 1 that C and D should have from then on.
PHASES = (
    (0.0, 0.5, 0.5),
    (20.0, 0.75, 0.75),
    (40.0, 0.98, 0.0),
    (60.0, 0.75, 0.75),
    (80.0, 0.5, 0.5),
)


def test_figure_9_settles_within_two_intervals_both_ways() -> None:
    one = run("e", "max_min", seed=SEED, seconds=100.0, faults=FIGURE_9)
    print("\n" + chart(one))
    hbspan = dict(one.hbspan_over_time)
    assert max(hbspan.values()) == 4.0, "HBSPAN never grew"
    ends = [at for at, _, _ in PHASES[1:]] + [100.0]
    for (start, c, d), end in zip(PHASES, ends, strict=True):
        within = [(t, s) for t, s in one.shares if start <= t < end and "C" in s]
        settled = [
            abs(s["C"].get((2, 2, 0), 0.0) - c) <= 0.1
            and abs(s["D"].get((2, 2, 0), 0.0) - d) <= 0.1
            for _, s in within
        ]
        first_steady = next(t for i, (t, _) in enumerate(within) if all(settled[i:]))
        assert first_steady - start <= (2 * 0.25 if start else 1.5), (
            f"phase at {start} s settled at {first_steady}"
        )
    last = [rates for t, rates in one.goodput_over_time if t >= 85.0]
    for client in "BCD":
        mean = sum(r[client] for r in last) / len(last)
        assert mean >= 0.9 * 2 * 95.6e6 / 3


def test_figure_9_of_ri2n_plus_plus_follows_and_recovers() -> None:
    one = run("e", "ri2n_plus_plus", seed=SEED, seconds=100.0, faults=FIGURE_9)
    print("\n" + chart(one))

    def share_at(at_s: float, client: str) -> float:
        return next(s for t, s in reversed(one.shares) if t <= at_s and client in s)[client].get(
            (2, 2, 0), 0.0
        )

    assert share_at(38.0, "C") > 0.6 and share_at(38.0, "D") > 0.6 and share_at(38.0, "B") == 0.0
    assert share_at(58.0, "C") > 0.75 and share_at(58.0, "D") == 0.0
    assert share_at(62.0, "D") >= 0.4, "the link that came back is used at once"
    assert share_at(82.0, "B") >= 0.2
