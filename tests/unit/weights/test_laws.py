# SPDX-License-Identifier: Apache-2.0
"""Laws that every weight strategy obeys, and each strategy's results for the paper's examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.errors import BadInput
from ri2n_sdn.rates.arrays import FloatArray, IntArray
from ri2n_sdn.weights import max_min, ri2n_plus, ri2n_plus_plus
from ri2n_sdn.weights.sample import TrafficSample, to_shares
from ri2n_sdn.weights.slots import assign
from ri2n_sdn.weights.strategies import STRATEGIES, strategy
from tests.unit.weights.samples import figure_4, samples

ALL = pytest.mark.parametrize("name", STRATEGIES)
FLOORS = {"ri2n_plus_plus": ri2n_plus_plus.FLOOR, "max_min": max_min.FLOOR}


@ALL
@settings(max_examples=60, deadline=None)
@given(case=samples())
def test_shares_are_shares(name: str, case: tuple[TrafficSample, FloatArray]) -> None:
    sample, previous = case
    answer = STRATEGIES[name](sample, previous)
    share = answer.share
    assert share.shape == sample.alive.shape
    assert np.isfinite(share).all() and (share >= 0.0).all()
    assert (share[~sample.alive] == 0.0).all(), "a dead path got a share"
    live = sample.alive.any(axis=1)
    np.testing.assert_allclose(share.sum(axis=1), live.astype(float), atol=1e-9)
    assert (share[~live] == 0.0).all()
    least = np.minimum(FLOORS.get(name, 0.0), 0.5 / np.maximum(sample.alive.sum(axis=1), 1))
    assert (share >= np.where(sample.alive, least[:, None], 0.0) - 1e-12).all(), "under the floor"
    if answer.rate_bps is not None:
        assert np.isfinite(answer.rate_bps).all() and (answer.rate_bps >= 0.0).all()
        assert (answer.rate_bps[~sample.alive] == 0.0).all()
        load = np.zeros(len(sample.capacity_bps))
        for pair, path in zip(*np.nonzero(sample.alive), strict=True):
            load[sample.path_links[pair, path]] += answer.rate_bps[pair, path]
        assert (load <= sample.capacity_bps * 1.001 + 1e-4 * sample.capacity_bps.max()).all(), (
            "a link is overloaded"
        )


@ALL
@settings(max_examples=40, deadline=None)
@given(case=samples(), n=st.sampled_from([16, 64, 256]))
def test_shares_fit_a_slot_table(name: str, case: tuple[TrafficSample, FloatArray], n: int) -> None:
    sample, previous = case
    for share, alive in zip(STRATEGIES[name](sample, previous).share, sample.alive, strict=True):
        table = assign(share.tolist(), alive.tolist(), None, None, n).slots
        if alive.any():
            counts = np.bincount(table, minlength=len(share))
            assert (
                np.abs(counts - share * n) < 1.0 + 2.0 * len(share) * (share.min() * n < 1.0)
            ).all()
            assert ((counts > 0) == (share > 0.0)).all()


@ALL
@settings(max_examples=40, deadline=None)
@given(case=samples(), seed=st.integers(0, 2**32 - 1))
def test_order_does_not_matter(
    name: str, case: tuple[TrafficSample, FloatArray], seed: int
) -> None:
    sample, previous = case
    random = np.random.default_rng(seed)
    rows = random.permutation(sample.pairs)
    columns = random.permutation(sample.alive.shape[1])

    def both(values: FloatArray) -> FloatArray:
        return values[rows][:, columns]

    def ids(values: IntArray) -> IntArray:
        return values[rows][:, columns]

    shuffled = replace(
        sample,
        sent_bytes=both(sample.sent_bytes),
        received_bytes=both(sample.received_bytes),
        alive=sample.alive[rows][:, columns],
        sender=sample.sender[rows],
        receiver=sample.receiver[rows],
        receiver_link=ids(sample.receiver_link),
        path_links=ids(sample.path_links),
        fast_bps=both(sample.fast_bps),
        slow_bps=both(sample.slow_bps),
        settled=sample.settled[rows],
    )
    there = STRATEGIES[name](shuffled, both(previous)).share
    np.testing.assert_allclose(there, both(STRATEGIES[name](sample, previous).share), atol=0.02)


@ALL
def test_no_pairs_at_all(name: str) -> None:
    sample, previous = figure_4({"B": [0, 1]}, {"B": [1, 1]})
    none = replace(
        sample,
        **{
            field: getattr(sample, field)[:0]
            for field in sample.__dataclass_fields__
            if field not in ("interval_s", "capacity_bps")
        },
    )
    assert STRATEGIES[name](none, previous[:0]).share.shape == (0, 2)


def test_unknown_strategy_is_named_with_the_choices() -> None:
    with pytest.raises(
        BadInput, match=r"unknown strategy 'fastest': choose one of round_robin, ri2n_plus,"
    ):
        strategy("fastest")


D = {"B": [0], "C": [0, 1]}
F = {"B": [0], "C": [0, 1], "D": [0, 1]}
H = {"B": [0], "C": [0, 1], "D": [0]}


@pytest.mark.parametrize(
    ("clients", "client", "one_to_zero"),
    [
        (D, 1, 2.0),
        (F, 1, 1.5),
        (F, 2, 1.5),
        (H, 1, 3.0),
        ({"B": [0], "C": [0, 1], "D": [1]}, 1, 1.0),
    ],
)
def test_ri2n_plus_gives_table_6(
    clients: dict[str, list[int]], client: int, one_to_zero: float
) -> None:
    sample, previous = figure_4(clients, {name: [10, 10] for name in clients})
    share = ri2n_plus.weights(sample, previous).share
    assert share[client, 1] / share[client, 0] == pytest.approx(one_to_zero)


def test_ri2n_plus_counts_a_pair_that_only_pings() -> None:
    sample, previous = figure_4(D, {"B": [0.001, 0], "C": [95, 95]})
    np.testing.assert_allclose(ri2n_plus.weights(sample, previous).share[1], [1 / 3, 2 / 3])


def test_paper_formula_by_hand() -> None:
    # Topology d, in Mbit/s: B sends 60 on link 0. C sends 30 on link 0, of which 24 arrive, and 90
    # on link 1.
    sample, _ = figure_4(D, {"B": [60, 0], "C": [24, 90]})
    sent = sample.sent_bytes.copy()
    sent[1, 0] = 30e6 / 8
    weight = ri2n_plus_plus.paper_weights(replace(sample, sent_bytes=sent))
    q = np.array([84 / 174, 90 / 174])
    np.testing.assert_allclose(weight[1] * 8 / 1e6, [24 / q[0] * (24 / 30), 90 / q[1]])
    np.testing.assert_allclose(weight[0] * 8 / 1e6, [60 / q[0], 0.0])


def test_no_path_counts_as_one_on_which_more_arrives_than_was_sent() -> None:
    """The sender's counter may have been read before the receiver's.

    Then the path counts as if all that was sent had arrived.
    """
    all_arrived, _ = figure_4(D, {"B": [60, 0], "C": [24, 90]})
    sent = all_arrived.sent_bytes.copy()
    sent[1, 0] /= 2
    weight = ri2n_plus_plus.paper_weights(replace(all_arrived, sent_bytes=sent))
    np.testing.assert_array_equal(weight, ri2n_plus_plus.paper_weights(all_arrived))


def test_ri2n_plus_plus_keeps_the_weights_of_a_silent_pair() -> None:
    sample, _ = figure_4({"B": [0, 1], "C": [0, 1]}, {"B": [0, 0], "C": [95, 95]})
    share = ri2n_plus_plus.weights(sample, np.array([[0.3, 0.7], [0.5, 0.5]])).share
    np.testing.assert_allclose(share[0], [0.3, 0.7])


def test_ri2n_plus_plus_keeps_the_weights_of_a_pair_of_which_nothing_arrived() -> None:
    sample, _ = figure_4({"B": [0, 1], "C": [0, 1]}, {"B": [50, 50], "C": [95, 95]})
    received = sample.received_bytes.copy()
    received[0] = 0.0
    share = ri2n_plus_plus.weights(
        replace(sample, received_bytes=received), np.array([[0.3, 0.7], [0.5, 0.5]])
    ).share
    np.testing.assert_allclose(share[0], [0.3, 0.7])


def test_ri2n_plus_plus_keeps_weights_until_they_were_measured() -> None:
    sample, _ = figure_4(D, {"B": [50, 0], "C": [30, 90]})
    previous = np.array([[1.0, 0.0], [0.4, 0.6]])
    held = ri2n_plus_plus.weights(replace(sample, settled=np.array([True, False])), previous).share
    np.testing.assert_allclose(held[1], [0.4, 0.6])
    assert ri2n_plus_plus.weights(sample, previous).share[1, 1] > 0.7


def test_ri2n_plus_plus_restarts_a_path_that_comes_back_with_an_equal_share() -> None:
    sample, _ = figure_4({"B": [0, 1]}, {"B": [95, 0]})
    np.testing.assert_allclose(
        ri2n_plus_plus.weights(sample, np.array([[1.0, 0.0]])).share, [[0.5, 0.5]]
    )


def test_ri2n_plus_plus_finds_a_link_that_its_user_has_left() -> None:
    """B had pushed C to link 1, and then stopped. With W = 0 on link 0, C would never go back."""
    sample, _ = figure_4(D, {"B": [0, 0], "C": [0, 95]})
    share = ri2n_plus_plus.weights(sample, np.array([[1.0, 0.0], [0.02, 0.98]])).share
    np.testing.assert_allclose(share[1], [0.5, 0.5])


def test_ri2n_plus_plus_finds_an_unused_link_though_a_lone_packet_there_was_lost() -> None:
    """A lone packet says nothing about the link.

    It may be under way, or only its sender has counted it yet.
    """
    sample, _ = figure_4(D, {"B": [0, 0], "C": [0, 95]})
    sent = sample.sent_bytes.copy()
    sent[1, 0] = 1500.0
    share = ri2n_plus_plus.weights(
        replace(sample, sent_bytes=sent), np.array([[1.0, 0.0], [0.02, 0.98]])
    ).share
    np.testing.assert_allclose(share[1], [0.5, 0.5])


@pytest.mark.parametrize(
    ("clients", "mbit", "expected"),
    [
        ({"B": [0, 1]}, {"B": [60, 90]}, {0: [0.5, 0.5]}),
        (
            {"B": [0, 1], "C": [0, 1]},
            {"B": [50, 50], "C": [45, 45]},
            {0: [0.5, 0.5], 1: [0.5, 0.5]},
        ),
        (D, {"B": [60, 0], "C": [35, 95]}, {1: [0.02, 0.98]}),
        (F, {"B": [40, 0], "C": [25, 48], "D": [30, 48]}, {1: [0.25, 0.75], 2: [0.25, 0.75]}),
        (
            {"B": [0], "C": [0, 1], "D": [1]},
            {"B": [60, 0], "C": [35, 35], "D": [0, 60]},
            {1: [0.5, 0.5]},
        ),
        (H, {"B": [33, 0], "C": [30, 95], "D": [32, 0]}, {1: [0.02, 0.98]}),
        (D, {"B": [0.0008, 0], "C": [95, 95]}, {1: [0.5, 0.5]}),  # table 8: B only pings
    ],
)
def test_max_min_on_figure_4(
    clients: dict[str, list[int]], mbit: dict[str, list[float]], expected: dict[int, list[float]]
) -> None:
    sample, previous = figure_4(clients, mbit)
    share = max_min.weights(sample, previous).share
    for row, want in expected.items():
        np.testing.assert_allclose(share[row], want, atol=0.005)


def test_max_min_leaves_room_for_what_a_slow_sender_uses_only() -> None:
    """B sends a steady 30 Mbit/s on link 0, which nothing limits. C gets nearly all the rest."""
    sample, previous = figure_4(D, {"B": [30, 0], "C": [45, 95]})
    rate = max_min.weights(sample, previous).rate_bps
    assert rate is not None
    assert rate[0, 0] >= 30e6 * 1.25
    assert rate[1].sum() >= 155e6


def test_max_min_takes_no_pair_for_held_up_by_a_link_that_it_only_probes() -> None:
    """B fills link 0, where C has next to nothing. On link 1, C sends all that it wants."""
    sample, _ = figure_4(D, {"B": [95, 0], "C": [1, 50]})
    np.testing.assert_allclose(max_min.demands(sample)[1], 1.3 * 51e6)


def test_max_min_keeps_room_for_a_pair_that_pauses() -> None:
    """B sends in bursts: its traffic of the last seconds counts, though it sends nothing now."""
    sample, previous = figure_4(D, {"B": [0, 0], "C": [95, 95]})
    often = replace(sample, slow_bps=np.array([[60e6, 0.0], [95e6, 95e6]]))
    never = max_min.weights(sample, previous).share
    share = max_min.weights(often, previous).share
    assert never[1, 0] == pytest.approx(0.5, abs=0.005)
    assert share[1, 0] < 0.25, "C leaves link 0 to B"


def test_max_min_gives_a_squeezed_pair_its_share_within_a_few_steps() -> None:
    """B's one stream gets 1/17 of link 0, which it shares with 16 streams of C.

    B must not be taken for a pair that wants no more.
    """
    b, c0, steps = 6.0, 90.0, 0
    sample, previous = figure_4(D, {"B": [b, 0], "C": [c0, 96]})
    while b < 90 and steps < 6:
        rate = max_min.weights(sample, previous).rate_bps
        assert rate is not None
        b = min(float(rate[0, 0]) / 1e6, 96.0)
        c0 = max(96.0 - b, 0.0)
        sample, previous = figure_4(D, {"B": [b, 0], "C": [c0, 96]})
        steps += 1
    assert steps <= 4


def test_floor_keeps_shares_above_it() -> None:
    alive = np.array([[True, True, True], [True, False, False]])
    share = to_shares(np.array([[0.0, 1.0, 3.0], [0.0, 0.0, 0.0]]), alive, 0.02)
    np.testing.assert_allclose(
        share[0], [0.02, 0.02 + 0.94 * 0.23 / 0.96, 0.02 + 0.94 * 0.73 / 0.96]
    )
    np.testing.assert_allclose(share[1], [1.0, 0.0, 0.0])
