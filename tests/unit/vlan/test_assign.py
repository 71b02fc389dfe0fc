# SPDX-License-Identifier: Apache-2.0
"""The assignment of pairs to VLANs: near the optimum, few moves, and always the same answer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ri2n_sdn.rates.arrays import FloatArray, IntArray
from ri2n_sdn.vlan.assign import assign
from tests.unit.vlan.networks import (
    CG_BOTH_WAYS,
    CG_CYCLIC,
    RATE,
    Network,
    lp_bound,
    three_stages,
    vbft,
)

VBFT44 = vbft(4, 4)
VBFT = {
    (2, 2): vbft(2, 2),
    (2, 4): vbft(2, 4),
    (4, 2): vbft(4, 2),
    (4, 4): VBFT44,
    (8, 4): vbft(8, 4, 32),
}
FT32 = three_stages()


def crossing(network: Network, permutation: list[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in enumerate(permutation) if network.leaf[a] != network.leaf[b]]


def equal(pairs: list[tuple[int, int]]) -> FloatArray:
    return np.full(len(pairs), RATE)


@st.composite
def demands_on(
    draw: st.DrawFn, network: Network, most: int
) -> tuple[list[tuple[int, int]], FloatArray]:
    host = st.integers(0, len(network.leaf) - 1)
    pairs = draw(
        st.lists(
            st.tuples(host, host).filter(lambda p: p[0] != p[1]),
            min_size=1,
            max_size=most,
            unique=True,
        )
    )
    rate = st.sampled_from([1.0, 1.0, 0.5, 0.3, 0.1, 0.0]) | st.floats(0.01, 1.0)
    demand = draw(st.lists(rate, min_size=len(pairs), max_size=len(pairs)))
    return pairs, np.array(demand) * RATE


def test_bisection_has_one_pair_per_uplink() -> None:
    pairs = [(host, (host + 8) % 16) for host in range(16)]
    answer = assign(equal(pairs), *VBFT44.paths(pairs), VBFT44.capacity)
    assert answer.fullest_choosable == pytest.approx(1.0)
    assert answer.utilisation[answer.choosable] == pytest.approx(1.0)


def test_cg_pairs_leave_the_papers_table_for_one_without_conflicts() -> None:
    pairs = [(a - 1, b - 1) for a, b in CG_BOTH_WAYS]
    cyclic = np.array(CG_CYCLIC * 2) - 1
    answer = assign(equal(pairs), *VBFT44.paths(pairs), VBFT44.capacity, cyclic, hysteresis=0.15)
    _, links = VBFT44.paths(pairs)
    before = loads(VBFT44, equal(pairs), links, cyclic) / VBFT44.capacity
    assert before[answer.choosable].max() == pytest.approx(2.0)
    assert answer.fullest_choosable == pytest.approx(1.0)
    moved = answer.choice != cyclic
    assert not moved[[0, 6]].any()  # hosts 1 and 4 are on one switch
    assert 1 <= moved.sum() <= 4


@given(st.sampled_from(sorted(VBFT)), st.data(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_permutations_reach_the_least_load_there_is(
    shape: tuple[int, int], data: st.DataObject, fresh: bool
) -> None:
    network = VBFT[shape]
    hosts = len(network.leaf)
    pairs = crossing(network, data.draw(st.permutations(range(hosts))))
    if not pairs:
        return
    start = (
        None
        if fresh
        else np.array(
            data.draw(st.lists(st.integers(0, shape[1] - 1), min_size=hosts, max_size=hosts))
        )
    )
    current = None if start is None else start[: len(pairs)]
    answer = assign(equal(pairs), *network.paths(pairs), network.capacity, current)
    sent = np.bincount([network.leaf[a] for a, _ in pairs])
    received = np.bincount([network.leaf[b] for _, b in pairs])
    assert answer.fullest_choosable == pytest.approx(
        -(-max(sent.max(), received.max()) // shape[1])
    )


@given(demands_on(VBFT44, 6))
@settings(max_examples=40, deadline=None)
def test_small_cases_are_as_good_as_trying_everything(
    case: tuple[list[tuple[int, int]], FloatArray],
) -> None:
    pairs, demand = case
    candidates, links = VBFT44.paths(pairs)
    answer = assign(demand, candidates, links, VBFT44.capacity)
    every = np.array(list(itertools.product(range(4), repeat=len(pairs))))
    load = np.zeros((len(every), len(VBFT44.capacity) + 1))
    for pair in range(len(pairs)):
        for place in range(links.shape[2]):
            np.add.at(
                load, (np.arange(len(every)), links[pair, every[:, pair], place]), demand[pair]
            )
    load[:, -1] = 0.0
    best = (load[:, :-1] / VBFT44.capacity)[:, answer.choosable].max(axis=1, initial=0.0).min()
    assert answer.fullest_choosable <= 1.01 * best + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_hundred_pairs_are_near_what_split_pairs_could_reach(seed: int) -> None:
    random = np.random.default_rng(seed)
    for network, bound in ((VBFT44, 1.05), (FT32, 1.15)):
        every = list(itertools.permutations(range(len(network.leaf)), 2))
        pairs = [every[k] for k in random.choice(len(every), 100, replace=False)]
        demand = random.uniform(0.1, 1.0, len(pairs)) * RATE
        candidates, links = network.paths(pairs)
        answer = assign(demand, candidates, links, network.capacity)
        lp = lp_bound(demand, candidates, links, network.capacity, answer.choosable)
        assert lp - 1e-9 <= answer.fullest_choosable <= bound * lp


DEAD_END = (
    *(21, 9, 13, 23, 22, 17, 19, 18, 29, 30, 7, 31, 0, 3, 20, 16),
    *(11, 14, 12, 10, 8, 24, 4, 5, 1, 25, 28, 15, 26, 6, 27, 2),
)
"""A permutation for which the first order of placing ends in a dead end."""


@given(st.permutations(range(32)))
@example(list(DEAD_END))
@settings(max_examples=15, deadline=None)
def test_three_stages_reach_the_bound_in_whole_pairs(permutation: list[int]) -> None:
    pairs = crossing(FT32, permutation)
    if not pairs:
        return
    candidates, links = FT32.paths(pairs)
    answer = assign(equal(pairs), candidates, links, FT32.capacity)
    lp = lp_bound(equal(pairs), candidates, links, FT32.capacity, answer.choosable)
    assert answer.fullest_choosable <= np.ceil(lp - 1e-6) + 1e-9


@given(demands_on(FT32, 40), st.data())
@settings(max_examples=40, deadline=None)
def test_laws(case: tuple[list[tuple[int, int]], FloatArray], data: st.DataObject) -> None:
    pairs, demand = case
    candidates, links = FT32.paths(pairs)
    size = len(pairs)
    allowed = np.array(data.draw(st.lists(st.integers(0, 15), min_size=size, max_size=size)))
    candidates = np.where(allowed[:, None] >> np.arange(4) & 1, candidates, -1)
    current = np.array(data.draw(st.lists(st.integers(-1, 4), min_size=size, max_size=size)))
    hysteresis = data.draw(st.sampled_from([0.0, 0.1, 0.5]))
    answer = assign(demand, candidates, links, FT32.capacity, current, hysteresis=hysteresis)
    has_one = (candidates >= 0).any(axis=1)
    assert (answer.choice[has_one] >= 0).all()
    assert (answer.choice[~has_one] == -1).all()
    assert (candidates[has_one, answer.choice[has_one]] >= 0).all()
    assert answer.utilisation == pytest.approx(
        loads(FT32, demand, links, answer.choice) / FT32.capacity, abs=1e-9
    )
    stays = has_one & (current >= 0) & (current < 4)
    stays[stays] &= candidates[stays, current[stays]] >= 0
    if stays[has_one].all():  # nobody had to move: then no move made anything worse
        before = loads(FT32, demand, links, np.where(has_one, current, -1)) / FT32.capacity
        assert answer.fullest_choosable <= before[answer.choosable].max(initial=0.0) + 1e-9
        once_more = assign(
            demand, candidates, links, FT32.capacity, answer.choice, hysteresis=hysteresis
        )
        assert once_more.fullest_choosable <= answer.fullest_choosable + 1e-9
    same = assign(demand, candidates, links, FT32.capacity, current, hysteresis=hysteresis)
    assert (same.choice == answer.choice).all()


def loads(network: Network, demand: FloatArray, links: IntArray, choice: IntArray) -> FloatArray:
    load = np.zeros(len(network.capacity))
    for pair, column in enumerate(choice):
        for link in links[pair, column] if column >= 0 else []:
            if link >= 0:
                load[link] += demand[pair]
    return load


def test_a_settled_assignment_moves_nobody_and_a_dead_way_only_its_own_pairs() -> None:
    pairs = [(host, (host + 4) % 16) for host in range(0, 16, 2)]  # two per leaf: room is left
    candidates, links = VBFT44.paths(pairs)
    first = assign(equal(pairs), candidates, links, VBFT44.capacity)
    again = assign(equal(pairs), candidates, links, VBFT44.capacity, first.choice, hysteresis=0.1)
    assert (again.choice == first.choice).all()
    dead = np.where(candidates == first.choice[0], -1, candidates)
    after = assign(equal(pairs), dead, links, VBFT44.capacity, first.choice, hysteresis=0.1)
    assert after.fullest_choosable == pytest.approx(1.0)
    moved, on_the_dead_way = after.choice != first.choice, first.choice == first.choice[0]
    assert moved[on_the_dead_way].all()
    assert moved.sum() <= 2 * on_the_dead_way.sum()


def test_gains_below_the_hysteresis_and_links_that_are_empty_enough_move_nobody() -> None:
    pairs = [(0, 4), (1, 5)]
    demand = np.array([0.3, 0.2]) * RATE
    paths = VBFT44.paths(pairs)
    together = np.zeros(2, dtype=np.int64)
    for hysteresis, enough, moves in (
        (0.0, 0.0, 1),
        (0.25, 0.0, 1),
        (0.35, 0.0, 0),
        (0.0, 0.45, 1),
        (0.0, 0.55, 0),
    ):
        answer = assign(
            demand, *paths, VBFT44.capacity, together, hysteresis=hysteresis, enough=enough
        )
        assert (answer.choice != together).sum() == moves


def test_pairs_without_a_choice_count_for_the_others() -> None:
    pairs = [(0, 4), (1, 5)]
    candidates, links = VBFT44.paths(pairs)
    for fixed in range(4):
        only = candidates.copy()
        only[0] = np.where(np.arange(4) == fixed, only[0], -1)
        answer = assign(equal(pairs), only, links, VBFT44.capacity, np.array([fixed, fixed]))
        assert answer.choice[0] == fixed
        assert answer.choice[1] != fixed


def test_a_slower_uplink_carries_less() -> None:
    pairs = [(host, 4 + host % 4) for host in range(4)] * 1 + [(0, 8), (1, 9), (2, 10), (3, 11)]
    network = VBFT[4, 2]
    candidates, links = network.paths(pairs)
    capacity = network.capacity.copy()
    slow = {
        int(e) for row in links[:, 0] for e in row if 0 <= e < 2 * len(network.trees.graph.ends)
    }
    capacity[list(slow)] /= 3.0
    answer = assign(equal(pairs) / 8, candidates, links, capacity)
    assert (answer.choice == 0).sum() == 2
    assert answer.fullest_choosable == pytest.approx(0.75)


@pytest.mark.parametrize("shape", [(0, 4, 3), (3, 0, 2), (3, 2, 0)])
def test_nothing_to_choose(shape: tuple[int, int, int]) -> None:
    pairs, width, _ = shape
    answer = assign(
        np.ones(pairs),
        np.zeros((pairs, width), np.int64),
        np.zeros(shape, np.int64),
        np.ones(2),
        None,
    )
    assert answer.choice.tolist() == [0 if width else -1] * pairs
    assert answer.fullest_choosable == 0.0
