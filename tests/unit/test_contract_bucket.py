# SPDX-License-Identifier: Apache-2.0
"""How many messages a connection may send without being asked."""

from __future__ import annotations

import pytest

from ri2n_sdn.contract.bucket import TokenBucket


def test_a_burst_and_then_so_many_a_second() -> None:
    budget = TokenBucket(100.0, 50.0)
    assert sum(budget.take(1000.0) for _ in range(200)) == 50
    assert sum(budget.take(1000.0 + i / 1000) for i in range(1000)) == pytest.approx(100, abs=1)
    # Unused tokens are not saved for ever.
    assert sum(budget.take(5000.0) for _ in range(200)) == 50


def test_who_keeps_to_it_loses_nothing() -> None:
    budget = TokenBucket(100.0, 2.0)
    assert all(budget.take(i / 100) for i in range(10_000))


def test_what_must_not_be_lost_is_waited_for() -> None:
    budget, now_s = TokenBucket(100.0, 50.0), 0.0
    for _ in range(1000):
        now_s += budget.owe(now_s)
    assert now_s == pytest.approx(9.5)
