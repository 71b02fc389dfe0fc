# SPDX-License-Identifier: Apache-2.0
"""`Adaptive` in its loop.

Conflicts are resolved within three steps, noise moves no pair, paths die, programs have tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.fabric.model import PairKey
from ri2n_sdn.rates.arrays import FloatArray, IntArray
from ri2n_sdn.rates.many_paths import Network as FairNetwork
from ri2n_sdn.rates.many_paths import max_min_rates
from ri2n_sdn.rates.one_path import fair_rates
from ri2n_sdn.vlan.adaptive import Adaptive, AdaptiveSettings, PairPaths
from ri2n_sdn.vlan.demands import estimate_demands
from tests.unit.vlan.networks import CG_BOTH_WAYS, CG_CYCLIC, RATE, Network, key, vbft

VBFT44 = vbft(4, 4)
CG = [(a - 1, b - 1) for a, b in CG_BOTH_WAYS]
Pairs = Sequence[tuple[int, int]]


def chosen_links(network: Network, pairs: Pairs, vlan: dict[PairKey, int]) -> IntArray:
    _, links = network.paths(pairs)
    return np.array([links[row, vlan[key(a, b)] - 1] for row, (a, b) in enumerate(pairs)])


def elastic_rates(network: Network, pairs: Pairs, vlan: dict[PairKey, int]) -> FloatArray:
    """The rates of pairs that always send as fast as they can."""
    return fair_rates(
        np.full(len(pairs), np.inf), chosen_links(network, pairs, vlan), network.capacity
    )


def alone(network: Network, pairs: Pairs) -> FloatArray:
    """The rates that they would have if only their hosts' links limited them."""
    _, links = network.paths(pairs)
    ends = np.where(links[:, 0] >= 2 * len(network.trees.graph.ends), links[:, 0], -1)
    return fair_rates(np.full(len(pairs), np.inf), ends, network.capacity)


def test_cg_reaches_every_pairs_full_rate_in_three_steps_and_then_stays() -> None:
    adaptive = Adaptive()
    vlan = {key(a, b): number for (a, b), number in zip(CG, CG_CYCLIC * 2, strict=True)}
    assert elastic_rates(VBFT44, CG, vlan).min() == pytest.approx(RATE / 2)
    for step in range(3):
        given_pairs = [
            PairPaths(pair.key, pair.rate_bps, pair.candidates, vlan[pair.key])
            for pair in VBFT44.pair_ways(CG, elastic_rates(VBFT44, CG, vlan).tolist())
        ]
        vlan = adaptive.step(2.0 * step, given_pairs, VBFT44.by_name).vlan
    rates = elastic_rates(VBFT44, CG, vlan)
    assert rates == pytest.approx(alone(VBFT44, CG))
    random = np.random.default_rng(1)
    for step in range(3, 103):
        noisy = rates * random.uniform(0.9, 1.1, len(rates))
        decision = adaptive.step(2.0 * step, VBFT44.pair_ways(CG, noisy.tolist()), VBFT44.by_name)
        assert decision.moved == ()
        assert decision.vlan == vlan


@given(
    st.permutations(range(16)),
    st.lists(st.integers(1, 4), min_size=16, max_size=16),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=10, deadline=None)
def test_any_permutation_from_any_start_settles_at_full_rate(
    permutation: list[int], start: list[int], seed: int
) -> None:
    pairs = [(a, b) for a, b in enumerate(permutation) if a != b]
    if not pairs:
        return
    adaptive = Adaptive()
    vlan = {key(a, b): number for (a, b), number in zip(pairs, start, strict=False)}
    random = np.random.default_rng(seed)
    for step in range(40):
        rates = elastic_rates(VBFT44, pairs, vlan)
        assert step < 3 or rates == pytest.approx(alone(VBFT44, pairs))
        noisy = rates * random.uniform(0.9, 1.1, len(rates))
        paths = VBFT44.pair_ways(pairs, noisy.tolist())
        given_pairs = [PairPaths(p.key, p.rate_bps, p.candidates, vlan[p.key]) for p in paths]
        decision = adaptive.step(2.0 * step, given_pairs, VBFT44.by_name)
        assert step < 3 or decision.moved == ()
        vlan = decision.vlan


def test_pairs_that_send_little_stay_where_they_are() -> None:
    pairs = [(0, 4), (1, 5), (2, 6)]
    adaptive = Adaptive()
    for step in range(5):
        paths = VBFT44.pair_ways(pairs, [0.1 * RATE, 0.2 * RATE, 0.0])
        given_pairs = [PairPaths(p.key, p.rate_bps, p.candidates, 3) for p in paths]
        decision = adaptive.step(float(step), given_pairs, VBFT44.by_name)
        assert decision.vlan == {key(a, b): 3 for a, b in pairs}
        assert decision.moved == ()


def test_a_dead_upper_switch_is_left_at_once_and_by_its_own_pairs_only() -> None:
    pairs = [(0, 4), (5, 9), (10, 14)]
    adaptive = Adaptive()
    rates = [RATE] * 3
    first = adaptive.step(0.0, VBFT44.pair_ways(pairs, rates), VBFT44.by_name)
    gone = first.vlan[key(0, 4)]
    without = adaptive.step(1.0, VBFT44.pair_ways(pairs, rates, frozenset({gone})), VBFT44.by_name)
    assert set(without.moved) == {pair for pair, vlan in first.vlan.items() if vlan == gone}
    assert gone not in without.vlan.values()
    assert without.fullest_after == pytest.approx(1.0)
    nothing = adaptive.step(
        2.0, VBFT44.pair_ways(pairs, rates, frozenset({1, 2, 3, 4})), VBFT44.by_name
    )
    assert nothing.vlan == {}
    back = adaptive.step(3.0, VBFT44.pair_ways(pairs, rates), VBFT44.by_name)
    assert set(back.vlan) == set(first.vlan)


def test_the_log_says_which_link_is_fullest() -> None:
    pairs = [(0, 4), (1, 5)]
    paths = VBFT44.pair_ways(pairs, [RATE / 2] * 2)
    decision = Adaptive().step(
        0.0, [PairPaths(p.key, p.rate_bps, p.candidates, 2) for p in paths], VBFT44.by_name
    )
    assert decision.fullest_before == pytest.approx(2.0)
    assert decision.fullest_after == pytest.approx(1.0)
    assert len(decision.moved) == 1
    assert decision.fullest_link is not None and decision.fullest_link.startswith(("leaf0/", "up"))


def test_programs_tables_hold_while_they_are_set() -> None:
    pairs = [(0, 4), (1, 5), (2, 6)]
    adaptive = Adaptive(vlans=VBFT44.trees.vlans)
    paths = VBFT44.pair_ways(pairs, [RATE / 3] * 3)
    now = iter(range(100))

    def step() -> dict[PairKey, int]:
        return adaptive.step(float(next(now)), paths, VBFT44.by_name).vlan

    own = step()
    assert len(set(own.values())) == 3
    adaptive.set_table("job 1", dict.fromkeys(own, 2))
    assert set(step().values()) == {2}
    adaptive.set_table("job 2", {key(0, 4): 4})
    assert step() == {key(0, 4): 4, key(1, 5): 2, key(2, 6): 2}
    assert adaptive.table_vlan(key(0, 4)) == 4
    adaptive.set_table("job 1", {key(0, 4): 1})  # the newest now
    assert step()[key(0, 4)] == 1
    assert adaptive.tables == {"job 2": 1, "job 1": 1}
    assert adaptive.clear_table("job 1")
    assert step()[key(0, 4)] == 4
    assert adaptive.clear_table("job 2")
    assert not adaptive.clear_table("job 2")
    after = step()
    assert after[key(0, 4)] == own[key(0, 4)]
    assert len(set(after.values())) == 3
    assert step() == after


def test_a_pair_goes_back_once_when_its_table_is_cleared() -> None:
    adaptive = Adaptive(vlans=VBFT44.trees.vlans)
    paths = VBFT44.pair_ways([(0, 4)], [RATE])
    own = adaptive.step(0.0, paths, VBFT44.by_name).vlan[key(0, 4)]
    adaptive.set_table("job", {key(0, 4): own % 4 + 1})
    assert adaptive.step(1.0, paths, VBFT44.by_name).moved == (key(0, 4),)
    adaptive.clear_table("job")
    back, after = (adaptive.step(now_s, paths, VBFT44.by_name) for now_s in (2.0, 3.0))
    assert back.vlan == after.vlan == {key(0, 4): own}
    assert back.moved == (key(0, 4),) and after.moved == ()


def test_a_table_does_not_hold_at_a_dead_way() -> None:
    adaptive = Adaptive(vlans=VBFT44.trees.vlans)
    adaptive.set_table("job", {key(0, 4): 2})
    for dead, there in (
        (frozenset[int](), True),
        (frozenset({2}), False),
        (frozenset[int](), True),
    ):
        decision = adaptive.step(0.0, VBFT44.pair_ways([(0, 4)], [RATE], dead), VBFT44.by_name)
        assert (decision.vlan[key(0, 4)] == 2) is there


def test_tables_that_are_refused() -> None:
    adaptive = Adaptive(AdaptiveSettings(max_owners=1, max_table_pairs=1), vlans=[101, 102])
    with pytest.raises(ValueError, match=r"^job: pair h0 h4: there is no VLAN 103$"):
        adaptive.set_table("job", {key(0, 4): 103})
    with pytest.raises(ValueError, match="at most 1 pairs, this one 2"):
        adaptive.set_table("job", {key(0, 4): 101, key(1, 4): 101})
    assert adaptive.tables == {}
    adaptive.set_table("job", {key(0, 4): 101})
    with pytest.raises(ValueError, match="other: 1 programs have tables"):
        adaptive.set_table("other", {key(0, 4): 101})
    adaptive.set_table("job", {key(0, 4): 102})


def test_pairs_that_are_gone_are_forgotten() -> None:
    adaptive = Adaptive(AdaptiveSettings(forget_after_s=10.0, max_pairs=3))
    one = VBFT44.pair_ways([(0, 4)], [RATE])
    two = VBFT44.pair_ways([(1, 5), (2, 6)], [RATE] * 2)
    adaptive.step(0.0, one, VBFT44.by_name)
    adaptive.step(5.0, two, VBFT44.by_name)
    assert len(adaptive._known) == 3
    adaptive.step(11.0, two, VBFT44.by_name)
    assert len(adaptive._known) == 2
    adaptive.step(12.0, VBFT44.pair_ways([(3, 7), (3, 8)], [RATE] * 2), VBFT44.by_name)
    assert len(adaptive._known) == 3
    adaptive.step(100.0, [], VBFT44.by_name)
    assert len(adaptive._known) == 0


def test_pairs_with_few_or_unknown_links_and_vlans() -> None:
    pairs = [
        PairPaths(("a", "b"), 1e6, ((7, (), True),), vlan=9),
        PairPaths(("a", "c"), float("nan"), ((7, ("nobody knows",), True), (8, ("x",), True))),
        PairPaths(("a", "d"), 1e6, ()),
    ]
    decision = Adaptive().step(0.0, pairs, {"x": 1e6})
    assert decision.vlan == {("a", "b"): 7, ("a", "c"): decision.vlan["a", "c"]}
    assert decision.moved == ()


def test_an_elastic_pair_on_a_shared_uplink_is_seen_as_wanting_its_hosts_rate() -> None:
    pairs = [(0, 4), (1, 5), (2, 5)]
    vlan = {key(0, 4): 1, key(1, 5): 1, key(2, 5): 2}
    path = chosen_links(VBFT44, pairs, vlan)
    ends = np.where(path >= 2 * len(VBFT44.trees.graph.ends), path, -1)
    rate = np.array([0.5, 0.5, 0.5]) * RATE
    assert estimate_demands(rate, path, ends, VBFT44.capacity) == pytest.approx(
        np.array([1.0, 0.5, 0.5]) * RATE
    )
    calm = np.array([0.2, 0.1, 0.3]) * RATE
    assert estimate_demands(calm, path, ends, VBFT44.capacity) == pytest.approx(calm)
    beside_a_stronger_one = np.array([0.85, 0.1, 0.3]) * RATE
    assert estimate_demands(beside_a_stronger_one, path, ends, VBFT44.capacity) == pytest.approx(
        np.array([1.0, 0.2, 0.3]) * RATE
    )
    just_a_ping = np.array([0.99, 0.0001, 0.3]) * RATE
    assert estimate_demands(just_a_ping, path, ends, VBFT44.capacity)[1] == pytest.approx(
        0.0001 * RATE
    )


def test_a_pair_that_sends_more_than_its_fair_share_is_seen_as_wanting_no_less() -> None:
    """Both pairs fill the link of the host that they send to."""
    pairs = [(1, 5), (2, 5)]
    path = chosen_links(VBFT44, pairs, {key(1, 5): 1, key(2, 5): 2})
    ends = np.where(path >= 2 * len(VBFT44.trees.graph.ends), path, -1)
    rate = np.array([0.65, 0.35]) * RATE
    assert estimate_demands(rate, path, ends, VBFT44.capacity) == pytest.approx(
        np.array([0.65, 0.5]) * RATE
    )


def test_a_pair_that_is_held_down_is_seen_as_wanting_no_less_than_it_sends() -> None:
    """It shares uplink 0 with a stronger pair.

    Four other pairs, which are held up by an uplink of their own, want to fill its receiver's link.
    """
    capacity = np.array([1.0, 1.0, 1.0, 0.5]) * RATE
    path = np.array([[0, 1], [0, 2]] + [[3, 1]] * 4)
    ends = np.array([[1], [2]] + [[1]] * 4)
    rate = np.array([0.28, 0.72] + [0.12] * 4) * RATE
    want = estimate_demands(rate, path, ends, capacity)
    assert want == pytest.approx(np.array([0.28, 1.0] + [0.2] * 4) * RATE)


@given(
    st.lists(
        st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=10, unique=True
    ),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_fair_rates_are_those_of_the_exact_solver(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    vlan = {key(a, b): data.draw(st.integers(1, 4)) for a, b in pairs}
    want = (
        np.array([data.draw(st.sampled_from([0.0, 0.1, 0.4, 1.0, np.inf])) for _ in pairs]) * RATE
    )
    want = np.nan_to_num(want, nan=0.0, posinf=np.inf)
    path = chosen_links(VBFT44, pairs, vlan)
    network = FairNetwork(
        path[:, None].astype(np.int64), np.ones((len(pairs), 1), dtype=np.bool_), VBFT44.capacity
    )
    (exact,), _ = max_min_rates(network, np.minimum(want, 10 * RATE))
    assert fair_rates(want, path, VBFT44.capacity) == pytest.approx(exact, abs=1e-4 * RATE)
