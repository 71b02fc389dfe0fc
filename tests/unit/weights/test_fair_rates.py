# SPDX-License-Identifier: Apache-2.0
"""What the loop takes for fair: the same under every strategy, and what a linear program says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_lab.bench.fair import GOODPUT_RATIO, goodput_optimum
from ri2n_sdn.fabric.topology import load_topology
from ri2n_sdn.rates.arrays import FloatArray
from ri2n_sdn.weights import max_min
from ri2n_sdn.weights.max_min import demands, fair_rates
from ri2n_sdn.weights.sample import TrafficSample
from ri2n_sdn.weights.simulate import run
from ri2n_sdn.weights.strategies import STRATEGIES
from tests.unit.weights.samples import samples

TOPOLOGIES = Path(__file__).parents[3] / "topologies"


@settings(max_examples=60)
@given(samples())
def test_other_strategies_see_what_max_min_would(case: tuple[TrafficSample, FloatArray]) -> None:
    sample, previous = case
    known = max_min.weights(sample, previous).fair_bps
    assert known is not None
    every = fair_rates(sample, np.ones(sample.pairs, dtype=np.bool_))
    assert every == pytest.approx(known, rel=1e-4, nan_ok=True)
    limited = ~np.isnan(every)
    assert (every[limited] < demands(sample)[limited]).all()
    assert (every[limited] > 0).all()


@settings(max_examples=60)
@given(samples(), st.data())
def test_pairs_that_are_not_asked_for_have_no_rate_and_take_none(
    case: tuple[TrafficSample, FloatArray], data: st.DataObject
) -> None:
    sample, _ = case
    drawn = [data.draw(st.booleans()) for _ in range(sample.pairs)]
    asked = np.array(drawn, dtype=np.bool_)
    fair = fair_rates(sample, asked)
    assert np.isnan(fair[~asked]).all()
    # Those of a sample in which the others do not exist.
    alone = [row for row in range(sample.pairs) if asked[row]]
    for row in alone[:1]:
        only = np.zeros(sample.pairs, dtype=np.bool_)
        only[row] = True
        one = fair_rates(sample, only)
        assert np.isnan(one[~only]).all()
        capacity_bps = sample.capacity_bps[sample.path_links[row, :, 0]]
        assert np.isnan(one[row]) or one[row] <= capacity_bps[sample.alive[row]].sum() * 1.001


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("topology", "bdfgh")
def test_in_the_demos_lab_it_is_the_optimum_under_every_strategy(
    topology: str, strategy: str
) -> None:
    """The loop sees counters alone, and the optimum is a linear program over the topology."""
    shipped = load_topology(TOPOLOGIES / "fig4" / f"{topology}.yaml")
    clients = [name for name in shipped.managed_hosts() if name != "A"]
    optimum = goodput_optimum(shipped, clients, "A")
    fair_over_time = run(topology, strategy, seconds=8.0).fair_over_time
    settled = [fair for time_s, fair in fair_over_time if time_s >= 3.0]
    assert settled
    for fair in settled:
        goodput_bps = {client: bps * GOODPUT_RATIO for client, bps in fair.items()}
        assert goodput_bps == pytest.approx(optimum.fair_bps, rel=0.01)


def test_who_only_pings_is_limited_by_no_link() -> None:
    """It crosses a link that another pair has filled, and wants next to nothing of it."""
    fair_over_time = run("d", "round_robin", seconds=6.0, pings=frozenset("B")).fair_over_time
    assert {frozenset(fair) for time_s, fair in fair_over_time if time_s >= 3.0} == {frozenset("C")}
