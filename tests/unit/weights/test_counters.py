# SPDX-License-Identifier: Apache-2.0
"""What a row has carried: levels, refreshes that come late, and counters that were reset."""

from __future__ import annotations

import pytest

from ri2n_sdn.weights.counters import Count, RowCounts


def taken(*readings: tuple[float, int]) -> tuple[int, int]:
    """(packets, bytes) of a row with these readings: (time in s, packets of 100 bytes)."""
    row = RowCounts()
    for now_s, packets in readings:
        row.take(now_s, Count(packets, 100 * packets))
    return row.count


def test_a_row_that_was_not_read_has_carried_nothing() -> None:
    assert taken() == (0, 0)


def test_a_first_reading_is_a_level_whenever_it_comes() -> None:
    assert taken((0.0, 7)) == taken((1e6, 7)) == (0, 0)


@pytest.mark.parametrize("late", [[(0.25, 9)], [(0.25, 8), (0.5, 9)], [(0.7, 9)], [(2.0, 9)]])
def test_what_a_switch_shows_late_was_carried_before(late: list[tuple[float, int]]) -> None:
    """Nor can anybody tell when what is shown after a longer time was carried."""
    assert taken((0.0, 7), *late) == (0, 0)
    assert taken((0.0, 7), *late, (2.5, 9), (3.0, 12)) == (3, 300)


def test_a_row_counts_from_the_first_reading_that_knows_all_that_was_there_before() -> None:
    assert taken((0.0, 7), (0.25, 9), (0.75, 11), (1.0, 14), (1.25, 14), (1.5, 20)) == (9, 900)


def test_a_counter_that_was_reset_counts_from_0() -> None:
    assert taken((0.0, 7), (1.0, 7), (1.25, 8), (1.5, 3), (1.75, 4)) == (5, 500)
