# SPDX-License-Identifier: Apache-2.0
"""Max-min rates against an independent LP, and the split of rates over paths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.rates.arrays import BoolArray, FloatArray, IntArray
from ri2n_sdn.rates.lp import max_min_by_lp
from ri2n_sdn.rates.many_paths import Network, max_min_rates
from ri2n_sdn.weights import split as split_module
from ri2n_sdn.weights.split import even_split, project_to_shares
from tests.unit.weights.samples import work_of


def reference_rates(
    links: IntArray, alive: BoolArray, capacity: FloatArray, demand: FloatArray
) -> FloatArray:
    """Max-min fair rates from the definition.

    A demand becomes a link that all paths of its pair cross.
    """
    pairs, paths = alive.shape
    columns = [(i, k) for i in range(pairs) for k in range(paths) if alive[i, k]]
    crosses = np.zeros((len(capacity) + pairs, len(columns)))
    belongs = np.zeros((pairs, len(columns)))
    for column, (i, k) in enumerate(columns):
        crosses[[e for e in set(links[i, k].tolist()) if e >= 0], column] = 1.0
        crosses[len(capacity) + i, column] = belongs[i, column] = 1.0
    return max_min_by_lp(crosses, np.concatenate([capacity, demand]), belongs)


@st.composite
def networks(draw: st.DrawFn) -> tuple[IntArray, BoolArray, FloatArray, FloatArray]:
    """Pairs whose paths are any sets of links (as with several stages of switches), and demands.

    Some paths are dead.
    """
    links = draw(st.integers(2, 9))
    pairs, paths = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    ids = st.lists(st.integers(0, links - 1), min_size=1, max_size=3, unique=True)
    table = np.full((pairs, paths, 3), -1, dtype=np.int64)
    for i in range(pairs):
        for k in range(paths):
            chosen = draw(ids)
            table[i, k, : len(chosen)] = chosen
    alive = np.array(
        [
            [draw(st.sampled_from([True, True, True, False])) for _ in range(paths)]
            for _ in range(pairs)
        ]
    )
    capacity = np.array([draw(st.sampled_from([0.1, 0.5, 1.0, 1.0, 0.7])) for _ in range(links)])
    demand = np.array([draw(st.sampled_from([0.01, 0.2, 0.33, 5.0, 5.0])) for _ in range(pairs)])
    return table, alive, capacity, demand


@settings(max_examples=50)
@given(case=networks())
def test_rates_are_those_of_the_lp(
    case: tuple[IntArray, BoolArray, FloatArray, FloatArray],
) -> None:
    _check_against_the_lp(case)


@pytest.mark.long
@settings(max_examples=2000)
@given(case=networks())
def test_rates_are_those_of_the_lp_in_many_networks(
    case: tuple[IntArray, BoolArray, FloatArray, FloatArray],
) -> None:
    _check_against_the_lp(case)


def _check_against_the_lp(case: tuple[IntArray, BoolArray, FloatArray, FloatArray]) -> None:
    links, alive, capacity, demand = case
    network = Network(links, alive, capacity)
    (rate,), split = max_min_rates(network, demand)
    np.testing.assert_allclose(rate, reference_rates(links, alive, capacity, demand), atol=2e-5)
    np.testing.assert_allclose(split.sum(axis=1), rate, atol=1e-6)
    assert (network.load(split) <= capacity + 1e-6).all()


def cluster(nics: list[list[int]], capacity: FloatArray) -> tuple[IntArray, BoolArray]:
    """All pairs of hosts that share a network, with paths (own NIC, peer's NIC).

    NIC k of a host sends over link host * 8 + k, and receives over link host * 8 + 4 + k.
    """
    pairs = [
        (s, r)
        for s in range(len(nics))
        for r in range(len(nics))
        if s != r and set(nics[s]) & set(nics[r])
    ]
    links = np.full((len(pairs), 4, 2), -1, dtype=np.int64)
    for row, (s, r) in enumerate(pairs):
        for k in set(nics[s]) & set(nics[r]):
            links[row, k] = (s * 8 + k, r * 8 + 4 + k)
    return links, links[:, :, 0] >= 0


@settings(max_examples=25, deadline=None)
@given(
    nics=st.lists(st.sets(st.integers(0, 3), min_size=1).map(sorted), min_size=2, max_size=4),
    seed=st.integers(0, 10**6),
)
def test_rates_in_asymmetric_clusters(nics: list[list[int]], seed: int) -> None:
    random = np.random.default_rng(seed)
    capacity = random.choice([0.1, 1.0, 1.0], size=len(nics) * 8)
    links, alive = cluster(nics, capacity)
    if not len(links):
        return
    demand = random.choice([0.05, 0.4, 9.0], size=len(links))
    (rate,), _ = max_min_rates(Network(links, alive, capacity), demand)
    np.testing.assert_allclose(rate, reference_rates(links, alive, capacity, demand), atol=2e-5)


def test_rerouting_while_filling() -> None:
    """B can use link 0 only, C both links. With a fixed even split, B would get 2/3.

    Rerouting gives a link to each of them.
    """
    links = np.array([[[0, -1], [-1, -1]], [[0, -1], [1, -1]]])
    alive = np.array([[True, False], [True, True]])
    (rate,), split = max_min_rates(
        Network(links, alive, np.array([1.0, 1.0])), np.array([np.inf, np.inf])
    )
    np.testing.assert_allclose(rate, [1.0, 1.0])
    np.testing.assert_allclose(split, [[1.0, 0.0], [0.0, 1.0]], atol=1e-9)


def test_spare_capacity_comes_after_demands() -> None:
    links = np.array([[[0]], [[0]]])
    network = Network(links, np.ones((2, 1), dtype=np.bool_), np.array([1.0]))
    first, second = max_min_rates(network, np.array([0.1, 0.5]), np.array([np.inf, np.inf]))[0]
    np.testing.assert_allclose(first, [0.1, 0.5])
    np.testing.assert_allclose(second, [0.3, 0.7])


def test_a_round_limit_still_gives_rates_that_fit() -> None:
    random = np.random.default_rng(5)
    capacity = random.choice([0.1, 1.0, 0.5], size=6 * 8)
    links, alive = cluster([[0, 1, 2, 3]] * 6, capacity)
    network = Network(links, alive, capacity)
    exact = max_min_rates(network, np.full(len(links), np.inf))[0][0]
    limited, split = max_min_rates(network, np.full(len(links), np.inf), rounds=1)
    assert (network.load(split) <= capacity + 1e-9).all()
    assert limited[0].sum() >= 0.6 * exact.sum()


def test_rates_that_a_round_limit_left_unrouted_are_cut_back_to_what_their_paths_carry() -> None:
    """Any two of the pairs could have a whole link each, but all three together cannot.

    This shows only when their rates are routed.
    """
    links = np.array([[[1, 2], [0, -1]], [[0, -1], [3, -1]], [[2, 3], [2, 3]]])
    network = Network(links, np.ones((3, 2), dtype=np.bool_), np.ones(4))
    wanted = np.full(3, np.inf)
    np.testing.assert_allclose(max_min_rates(network, wanted)[0][0], [0.75] * 3)
    (rate,), split = max_min_rates(network, wanted, rounds=1)
    np.testing.assert_allclose(rate, split.sum(axis=1))
    assert (network.load(split) <= 1.0 + 1e-9).all()


def test_nobody_has_a_path() -> None:
    network = Network(np.full((2, 1, 1), -1), np.zeros((2, 1), dtype=np.bool_), np.zeros(0))
    rates, split = max_min_rates(network, np.array([1.0, 2.0]))
    assert rates[0].tolist() == [0.0, 0.0] and split.tolist() == [[0.0], [0.0]]


@settings(max_examples=60, deadline=None)
@given(case=networks(), seed=st.integers(0, 1000))
def test_split_routes_the_rates(
    case: tuple[IntArray, BoolArray, FloatArray, FloatArray], seed: int
) -> None:
    links, alive, capacity, demand = case
    network = Network(links, alive, capacity)
    (rate,), _ = max_min_rates(network, demand)
    previous = project_to_shares(np.random.default_rng(seed).random(alive.shape), alive)
    share = even_split(network, rate, previous)
    np.testing.assert_allclose(share.sum(axis=1), alive.any(axis=1).astype(float), atol=1e-9)
    assert (network.load(share * rate[:, None]) <= capacity + 1e-5).all()


@settings(max_examples=60, deadline=None)
@given(case=networks(), steps=st.sampled_from([0, 3, 15]))
def test_a_guessed_split_changes_no_rate(
    case: tuple[IntArray, BoolArray, FloatArray, FloatArray], steps: int
) -> None:
    links, alive, capacity, demand = case
    network = Network(links, alive, capacity)
    near = project_to_shares(np.ones(alive.shape), alive)
    (rate,), _ = max_min_rates(network, demand)
    (guessed,), split = max_min_rates(
        network, demand, guess=lambda r: even_split(network, r, near, steps=steps)
    )
    np.testing.assert_allclose(guessed, rate, atol=1e-5)
    assert (network.load(split) <= capacity + 1e-6).all()


@settings(max_examples=60, deadline=None)
@given(case=networks(), seed=st.integers(0, 1000))
def test_small_and_large_networks_are_solved_alike(
    case: tuple[IntArray, BoolArray, FloatArray, FloatArray], seed: int
) -> None:
    """Both ways to solve a step's equations give the same step."""
    links, alive, capacity, demand = case
    random = np.random.default_rng(seed)
    network = Network(links, alive, capacity)
    used = alive & (random.random(alive.shape) < 0.7)
    damping, gap = random.uniform(0.01, 1.0, (2, len(capacity)))
    factor = demand / split_module.NEARNESS / np.maximum(used.sum(axis=1), 1)
    dual = split_module._Dual(network, capacity, demand, np.zeros(alive.shape))
    given = (used, factor, damping, gap)
    np.testing.assert_allclose(
        dual._dense_step(*given), dual._sparse_step(*given), rtol=1e-6, atol=1e-9
    )


def test_split_is_even_and_stays_where_it_may() -> None:
    links = np.array([[[0], [1]], [[0], [1]]])
    network = Network(links, np.ones((2, 2), dtype=np.bool_), np.array([1.0, 1.0]))
    rate = np.array([1.0, 1.0])
    stays = np.array([[0.9, 0.1], [0.1, 0.9]])
    np.testing.assert_allclose(even_split(network, rate, stays), stays, atol=1e-3)
    evened = even_split(network, rate * 0.3, np.array([[0.9, 0.1], [0.9, 0.1]]))
    np.testing.assert_allclose(evened.sum(axis=0), [1.0, 1.0], atol=0.15)


@settings(max_examples=60)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=5), st.integers(0, 31))
def test_projection_is_the_nearest_point(wish: list[float], mask: int) -> None:
    alive = np.array([[bool(mask >> k & 1) for k in range(len(wish))]])
    share = project_to_shares(np.array([wish]), alive)[0]
    if not alive.any():
        assert (share == 0.0).all()
        return
    assert (
        share.sum() == pytest.approx(1.0)
        and (share >= 0.0).all()
        and (share[~alive[0]] == 0.0).all()
    )
    # Optimality: used paths lose the same amount, unused ones would lose no more.
    loss = np.array(wish) - share
    used = share > 0.0
    assert np.ptp(loss[used]) < 1e-9
    assert (loss[alive[0] & ~used] <= loss[used].max() + 1e-9).all()


def test_the_work_of_sharing_a_cluster_grows_as_its_pairs_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No linear program runs where the even split routes the rates.

    With 992 pairs each program would take 30 ms.
    """
    programs: list[int] = []
    monkeypatch.setattr("ri2n_sdn.rates.many_paths._route", lambda *args: programs.append(1))
    work = {}
    for hosts in (8, 32):
        random = np.random.default_rng(1)
        links, alive = cluster([[0, 1, 2, 3]] * hosts, np.full(hosts * 8, 1e8))
        demand = np.where(
            random.random(len(links)) < 0.5, random.uniform(1e5, 3e7, len(links)), np.inf
        )
        work[hosts] = _lines_of_sharing(
            Network(links, alive, np.full(hosts * 8, 1e8)), demand
        ) / len(links)
    assert len(links) == 992 and not programs
    assert work[32] <= 1.1 * work[8] and work[32] < 60, work


def _lines_of_sharing(network: Network, demand: FloatArray) -> int:
    near = network.alive / 4.0
    return work_of(
        lambda: max_min_rates(network, demand, guess=lambda rate: even_split(network, rate, near))
    )


def test_a_link_that_a_path_names_twice_is_used_once() -> None:
    network = Network(np.array([[[0, 0]]]), np.array([[True]]), np.array([10.0]))
    assert network.load(np.array([[4.0]])).tolist() == [4.0]
    assert network.path_prices(np.array([3.0])).tolist() == [[3.0]]
