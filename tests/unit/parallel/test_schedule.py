# SPDX-License-Identifier: Apache-2.0
"""Laws of the choice of links and of the lengths of chunks, on simulated links of any rates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_parallel.frames import MAX_CHUNK
from ri2n_parallel.schedule import (
    FIRST_BYTES,
    SEGMENT_BYTES,
    LinkLoad,
    chunk_bytes,
    early_bytes,
    pick,
)

BUFFER_BYTES = 1 << 17
"""Bytes that a link takes before it is busy."""
RATES = st.lists(st.floats(1e5, 1e9), min_size=1, max_size=8)
LOADS = st.lists(
    st.builds(LinkLoad, st.floats(0, 1e7), st.floats(1e4, 1e10), st.booleans()),
    min_size=1,
    max_size=8,
)


@given(st.integers(1, 1 << 30), st.integers(1, 64), st.floats(1e4, 1e10), st.integers(1, MAX_CHUNK))
def test_a_chunk_is_never_empty_nor_longer_than_allowed(
    remaining: int, links: int, rate: float, most: int
) -> None:
    size = chunk_bytes(remaining, links, rate, most)
    assert 1 <= size <= min(remaining, most)


@given(st.integers(1, SEGMENT_BYTES), st.integers(1, 64), st.floats(1e4, 1e10))
def test_what_fits_a_segment_is_one_chunk(remaining: int, links: int, rate: float) -> None:
    assert chunk_bytes(remaining, links, rate, MAX_CHUNK) == remaining


@given(st.integers(1, 1 << 24), st.integers(2, 64), st.floats(1e4, 1e10))
def test_a_chunk_fills_its_segments_unless_it_is_the_longest_or_the_last(
    remaining: int, links: int, rate: float
) -> None:
    size = chunk_bytes(remaining, links, rate, MAX_CHUNK)
    assert size in (remaining, MAX_CHUNK) or size % SEGMENT_BYTES == 0


@given(st.integers(1, 1 << 24), st.integers(2, 64))
def test_as_long_as_it_fills_a_segment_a_chunk_is_half_of_an_even_share(
    remaining: int, links: int
) -> None:
    """The other half is for the end, when it is known which links are faster."""
    half = remaining / (2 * links)
    size = chunk_bytes(remaining, links, 0.0, MAX_CHUNK)
    if half >= MAX_CHUNK:
        assert size == MAX_CHUNK
    elif half >= SEGMENT_BYTES:
        assert half - SEGMENT_BYTES < size <= half


@given(st.integers(1, 1 << 24), st.integers(1, 8), st.floats(1e6, 1e9))
def test_chunks_make_up_the_whole(total: int, links: int, rate: float) -> None:
    remaining, chunks = total, 0
    while remaining:
        remaining -= chunk_bytes(remaining, links, rate, MAX_CHUNK)
        chunks += 1
    assert chunks <= 2 + total / SEGMENT_BYTES


@given(LOADS, st.integers(1, MAX_CHUNK), st.integers(0, 1 << 24))
def test_only_links_that_take_more_are_chosen(links: list[LinkLoad], size: int, more: int) -> None:
    place = pick(links, size, size + more)
    if place is None:
        assert not all(link.writable for link in links)
    else:
        assert links[place].writable
        done_s = (links[place].backlog_bytes + size) / links[place].rate
        assert all(done_s <= (one.backlog_bytes + size) / one.rate for one in links if one.writable)


@given(LOADS, st.integers(1, MAX_CHUNK))
def test_with_endless_data_no_link_that_takes_more_is_left_idle(
    links: list[LinkLoad], size: int
) -> None:
    if any(link.writable for link in links):
        assert pick(links, size, 1 << 60) is not None


def simulate(rates: list[float], total: int) -> tuple[list[float], list[int]]:
    """Send `total` bytes at once, as a session does.

    When each link has ended, and what each has carried.
    """
    links = [LinkLoad(0.0, rate, True) for rate in rates]
    now_s, remaining, carried, ended = 0.0, total, [0] * len(rates), [0.0] * len(rates)
    mean = sum(rates) / len(rates)
    while remaining:
        size = chunk_bytes(remaining, len(links), mean, MAX_CHUNK)
        place = pick(links, size, remaining)
        if place is None:
            step_s = min(
                max(link.backlog_bytes - BUFFER_BYTES, 1.0) / link.rate
                for link in links
                if not link.writable
            )
            now_s += step_s
            for link in links:
                link.backlog_bytes = max(0.0, link.backlog_bytes - step_s * link.rate)
                link.writable = link.backlog_bytes <= BUFFER_BYTES
            continue
        links[place].backlog_bytes += size
        links[place].writable = links[place].backlog_bytes <= BUFFER_BYTES
        carried[place] += size
        remaining -= size
        ended[place] = now_s + links[place].backlog_bytes / links[place].rate
    return ended, carried


@given(RATES, st.integers(1, 1 << 25))
def test_every_byte_is_sent_once_and_links_end_together(rates: list[float], total: int) -> None:
    """It takes no longer than the ideal, and two chunks on the slowest link.

    The ideal is over the links that were worth using.
    """
    ended, carried = simulate(rates, total)
    assert sum(carried) == total
    used = [rate for rate, count in zip(rates, carried, strict=True) if count]
    mean = sum(rates) / len(rates)
    longest = max(
        2 * SEGMENT_BYTES, mean * 1e-4, SEGMENT_BYTES + MAX_CHUNK if total > MAX_CHUNK else 0
    )
    assert max(ended) <= total / sum(used) + 2 * longest / min(used)
    # It is never slower than the fastest link alone.
    fastest_alone_s = (total + longest) / max(rates)
    assert max(ended) <= fastest_alone_s + longest / min(used)


def test_a_slow_link_beside_several_fast_ones_does_not_hold_up_the_end() -> None:
    """What is left is compared with all faster links together, not with one of them."""
    total = 11_728_317
    ended, _ = simulate([9.8e6, 5.8e8, 5.8e8, 4.5e8, 2.0e8], total)
    assert max(ended) <= 1.1 * total / 1.82e9


@pytest.mark.parametrize("count", [2, 4, 6])
def test_equal_links_carry_equal_parts(count: int) -> None:
    ended, carried = simulate([1.25e7] * count, 8 << 20)
    assert max(ended) <= 1.02 * (8 << 20) / (count * 1.25e7)
    assert max(carried) - min(carried) <= MAX_CHUNK


def test_a_slow_link_does_not_hold_up_the_end() -> None:
    """100 Mbit/s beside 10 Gbit/s.

    The paper's even split takes fifty times as long there as the fast link alone.
    """
    total = 8 << 20
    ended, carried = simulate([1.25e7, 1.25e9], total)
    assert max(ended) <= 1.05 * total / 1.25e9
    assert carried[0] < carried[1] / 20


def test_a_small_message_takes_the_shorter_queue() -> None:
    links = [LinkLoad(5000, 1e6, True), LinkLoad(0, 1e6, True), LinkLoad(0, 1e6, False)]
    assert pick(links, 100, 100) == 1
    links[1].writable = False
    # After a short wait it arrives sooner than behind 5000 bytes.
    assert pick(links, 100, 100) is None
    assert pick(links, 100, 100_000) == 0
    assert pick([LinkLoad(0, 1e6, False)], 1, 1) is None


@given(st.integers(1, 1 << 22), st.integers(1, 64), st.floats(0, 1))
def test_what_goes_before_there_is_a_link(count: int, links: int, round_trip_s: float) -> None:
    """All that TCP sends at once; never more than there is or is allowed.

    More goes when the round trip is longer.
    """
    found = early_bytes(count, links, round_trip_s, MAX_CHUNK)
    assert 1 <= found <= min(count, MAX_CHUNK)
    assert found == count or count > FIRST_BYTES
    assert links > 1 or found == min(count, MAX_CHUNK)
    assert found <= early_bytes(count, links, 2 * round_trip_s, MAX_CHUNK)


def test_on_short_ways_most_waits_for_the_links() -> None:
    assert early_bytes(1 << 20, 6, 1e-4, MAX_CHUNK) == 5000
    assert early_bytes(1 << 20, 6, 1e-2, MAX_CHUNK) == MAX_CHUNK
    assert early_bytes(1 << 20, 6, 0.0, MAX_CHUNK) == 2 * SEGMENT_BYTES
