# SPDX-License-Identifier: Apache-2.0
"""How much one host can take of the controller's attention and of the operators'."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.jobs.event_share import MAX_AT_ONCE, EventShare
from ri2n_sdn.jobs.nudges import MAX_PAUSE_S, Nudges

STEP_S = 1 / 64


def reads_of(nudges_s: dict[str, list[float]], until_s: float) -> dict[str, list[float]]:
    """When each host is read, if the controller looks every STEP_S and after each first nudge."""
    nudges = Nudges()
    queues = {host: sorted(times) for host, times in nudges_s.items()}
    reads: dict[str, list[float]] = {host: [] for host in queues}
    for step in range(int(until_s / STEP_S) + 1):
        now_s = step * STEP_S
        for host, times in queues.items():
            while times and times[0] <= now_s:
                nudges.nudged(host, times.pop(0))
        for host, of_host in reads.items():
            if nudges.due_in_s(host, now_s) == 0.0:
                nudges.began_read(host, now_s)
                of_host.append(now_s)
    return reads


TIMES = st.lists(st.floats(0, 20), max_size=200)


@given(TIMES, TIMES)
def test_each_nudge_is_followed_by_a_read_in_time_and_no_host_delays_another(
    one: list[float], other: list[float]
) -> None:
    reads = reads_of({"A": one, "B": other}, 22.0)
    assert reads["A"] == reads_of({"A": one}, 22.0)["A"]
    for nudge_s in one:
        assert any(nudge_s <= read_s <= nudge_s + MAX_PAUSE_S + STEP_S for read_s in reads["A"])
    assert len(reads["A"]) <= len(one), "a read without a reason"


def test_a_few_nudges_are_followed_at_once() -> None:
    times = [0.5 * n for n in range(40)]
    assert reads_of({"A": times}, 25.0) == {"A": times}
    burst = [n * STEP_S for n in range(8)]
    assert reads_of({"A": burst}, 5.0) == {"A": burst}


@pytest.mark.parametrize("per_s", [8, 64])
def test_a_host_that_nudges_without_pause_is_read_more_and_more_seldom(per_s: int) -> None:
    (reads,) = reads_of({"A": [n / per_s for n in range(60 * per_s)]}, 60.0).values()
    gaps = [later - sooner for sooner, later in itertools.pairwise(reads)]
    assert reads[0] == 0.0 and gaps[0] <= 1 / per_s
    assert all(later >= sooner - 2 / per_s for sooner, later in itertools.pairwise(gaps))
    assert all(MAX_PAUSE_S <= gap <= MAX_PAUSE_S + 1 / per_s + STEP_S for gap in gaps[-20:])
    assert len(reads) < 100


def test_a_host_that_waits_for_each_answer_keeps_a_short_pause() -> None:
    """It ends a job and begins the next one as soon as it has its answer."""
    nudges, now_s, waited_s = Nudges(), 0.0, []
    for _ in range(200):
        nudges.nudged("A", now_s)
        nudges.nudged("A", now_s)
        waited_s.append(nudges.due_in_s("A", now_s))
        now_s += waited_s[-1]
        nudges.began_read("A", now_s)
        now_s += 0.05
        assert not nudges.too_often(now_s)
    assert max(waited_s) <= 0.5


def test_who_nudges_too_often_is_told_after_some_time_and_not_for_ever() -> None:
    nudges, told_s, now_s = Nudges(), [], 0.0
    while now_s < 30.0:
        if now_s < 15.0:
            nudges.nudged("A", now_s)
        nudges.nudged("B", now_s) if now_s % 1 == 0 else None
        if nudges.too_often(now_s):
            assert nudges.too_often(now_s) == ["A"]
            told_s.append(now_s)
        now_s += STEP_S
    assert 5.0 <= told_s[0] <= 6.5 and 15.0 <= told_s[-1] <= 20.0


def test_a_host_that_is_forgotten_waits_for_nothing() -> None:
    nudges = Nudges()
    assert nudges.nudged("A", 0.0) and not nudges.nudged("A", 0.1) and nudges.nudged("B", 0.1)
    nudges.keep({"B", "C"})
    assert nudges.due_in_s("A", 9.0) == math.inf and nudges.due_in_s("B", 9.0) == 0.0
    nudges.began_read("B", 9.0)
    assert nudges.due_in_s("B", 99.0) == math.inf
    assert nudges.nudged("B", 99.0), "the first one since the read"


@given(st.lists(st.floats(0, 100), max_size=50), st.integers(1, 40))
def test_a_host_fills_no_more_than_its_share_of_the_events(times: list[float], each: int) -> None:
    share, told = EventShare(), 0
    for time_s in sorted(times):
        told += sum(share.take("A", time_s) for _ in range(each))
        assert told <= MAX_AT_ONCE + 2 * time_s, "more than its share"
        assert share.take("B", 0.0) or len(times) > MAX_AT_ONCE, "another host's share"
    assert told == each * len(times) or told >= MAX_AT_ONCE, "less than its share"


def test_the_share_of_a_host_that_is_forgotten_takes_no_room() -> None:
    share = EventShare()
    assert all(share.take("A", 0.0) for _ in range(MAX_AT_ONCE)) and not share.take("A", 0.0)
    assert share.take("A", 0.5) and not share.take("A", 0.5)
    share.keep(["B"])
    assert share.take("A", 0.5)
