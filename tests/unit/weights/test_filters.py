# SPDX-License-Identifier: Apache-2.0
"""Moving averages, counter differences, hysteresis and HBSPAN."""

from __future__ import annotations

import numpy as np
import pytest

from ri2n_sdn.weights.filters import HbSpan, MovingAverage, counter_delta, hold_small_changes


def test_a_counter_that_went_back_was_reset() -> None:
    assert counter_delta(np.array([5, 3, 9]), np.array([2, 7, 9])).tolist() == [3, 3, 0]


def test_the_first_rate_is_right_at_once() -> None:
    average = MovingAverage(3.0, (1,))
    assert average.rate.tolist() == [0.0]
    average.update(np.array([25.0]), np.array([0.25]))
    assert average.rate[0] == pytest.approx(100.0)


def test_no_time_elapsed_changes_nothing() -> None:
    average = MovingAverage(0.5, (2,))
    average.update(np.array([25.0, 25.0]), np.array([0.25, 0.25]))
    average.update(np.array([1e9, 0.0]), np.array([0.0, 0.25]))
    assert average.rate[0] == pytest.approx(100.0)
    assert average.rate[1] == pytest.approx(100.0 * np.exp(-0.5) / (1.0 + np.exp(-0.5)))


def test_averages_follow_a_step_by_their_time_constant() -> None:
    fast, slow = MovingAverage(0.5, (1,)), MovingAverage(3.0, (1,))
    for average in (fast, slow):
        for _ in range(80):
            average.update(np.array([0.0]), np.array([0.25]))
        for _ in range(4):
            average.update(np.array([25.0]), np.array([0.25]))
    assert fast.rate[0] == pytest.approx(100 * (1 - np.exp(-2)), rel=1e-6)
    assert slow.rate[0] == pytest.approx(100 * (1 - np.exp(-1 / 3)), rel=2e-3)


def test_rearranging_keeps_known_elements() -> None:
    average = MovingAverage(1.0, (2,))
    average.update(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    assert average.rearranged(np.array([[1, -1], [0, 1]])).rate.tolist() == [[2.0, 0.0], [1.0, 2.0]]


def test_hysteresis_ignores_small_changes_but_follows_their_sum() -> None:
    held = np.array([[0.5, 0.5]])
    never = np.array([False])
    followed = []
    for step in range(1, 9):
        wanted = np.array([[0.5 - 0.01 * step, 0.5 + 0.01 * step]])
        held, moved = hold_small_changes(wanted, held, 0.04, never)
        followed.append(bool(moved[0]))
    assert followed == [False, False, False, True, False, False, False, True]
    assert held[0, 0] == pytest.approx(0.42)


def test_hysteresis_follows_at_once_where_told() -> None:
    wanted, held = np.array([[0.49, 0.51], [0.49, 0.51]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    result, moved = hold_small_changes(wanted, held, 0.04, np.array([True, False]))
    assert result.tolist() == [[0.49, 0.51], [0.5, 0.5]] and moved.tolist() == [True, False]


def test_hbspan_doubles_while_quiet_and_shrinks_at_once() -> None:
    span = HbSpan(0.25, 4.0, quiet_steps=2)
    assert [span.step(False) for _ in range(10)] == [
        0.25,
        0.5,
        0.5,
        1.0,
        1.0,
        2.0,
        2.0,
        4.0,
        4.0,
        4.0,
    ]
    assert span.step(True) == 0.25
    assert span.step(False) == 0.25


def test_quiet_steps_are_counted_anew_after_a_change() -> None:
    span = HbSpan(0.25, 4.0, quiet_steps=3)
    assert [span.step(changed) for changed in (False, False, True, False, False, False)] == [
        0.25
    ] * 5 + [0.5]


def test_hbspan_keeps_to_a_limit_but_not_below_the_minimum() -> None:
    span = HbSpan(0.25, 4.0, quiet_steps=1)
    assert [span.step(False, 1.0) for _ in range(4)] == [0.5, 1.0, 1.0, 1.0]
    assert span.step(False, 0.1) == 0.25
