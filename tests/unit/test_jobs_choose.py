# SPDX-License-Identifier: Apache-2.0
"""The choice of lanes: the smallest set that will do, also where not all sets can be tried."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.jobs import choose as module
from ri2n_sdn.jobs.choose import Need, choose
from ri2n_sdn.jobs.lanes import Lane
from ri2n_sdn.jobs.links import LinkNeed, PairShare

LANES = [Lane(f"net{number}", 0) for number in range(1, 6)]
SOME = st.frozensets(st.sampled_from(LANES), max_size=5)
RATES = st.frozensets(
    st.lists(
        st.tuples(
            st.integers(1, 9),
            st.dictionaries(st.sampled_from([*LANES, None]), st.integers(1, 9), max_size=3).map(
                lambda rates: tuple(rates.items())
            ),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    max_size=3,
)
SHARES = st.tuples(SOME, SOME).map(
    lambda some: PairShare(
        tuple((lane, 1) for lane in sorted(some[0] & some[1])),
        tuple((lane, 1) for lane in sorted(some[1])),
    )
)
ENDS = st.dictionaries(
    st.frozensets(SHARES, min_size=1, max_size=2), st.integers(1, 3), min_size=1, max_size=2
).map(lambda counts: frozenset(counts.items()))
LINKS = st.lists(
    st.builds(LinkNeed, st.just("up1/1>"), st.integers(1, 20).map(float), ENDS, ENDS), max_size=2
).map(tuple)
NEEDS = st.builds(
    Need,
    candidates=SOME,
    required=st.just(frozenset()) | SOME,
    reach=st.frozensets(SOME, max_size=3),
    keep=st.frozensets(SOME.filter(bool), max_size=3),
    rates=RATES,
    min_rate_bps=st.integers(0, 12),
    kept=SOME,
    avoid=SOME,
    links=st.just(()) | LINKS,
)


def smallest(need: Need) -> int | None:
    """The size of the smallest set that will do, by trying all of them."""
    for size in range(len(need.candidates) + 1):
        for lanes in combinations(sorted(need.candidates), size):
            if need.met(frozenset(lanes)):
                return size
    return None


@given(NEEDS)
def test_the_choice_is_a_smallest_set_that_will_do(need: Need) -> None:
    lanes = choose(need)
    assert (None if lanes is None else len(lanes)) == smallest(need)
    assert lanes is None or need.met(lanes)


@given(NEEDS)
def test_a_choice_made_lane_by_lane_does_all_it_must(need: Need) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_TRIED", 0)
        lanes = choose(need)
    if lanes is not None:
        assert need.met(lanes)
        # Nothing is in it that could be left out.
        assert not any(need.met(lanes - {lane}) for lane in lanes)


def test_a_network_with_many_lanes_takes_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = [Lane("leaf1", vlan) for vlan in range(1, 65)]
    tried = 0
    real = Need.carries

    def counted(self: Need, lanes: frozenset[Lane]) -> bool:
        nonlocal tried
        tried += 1
        return real(self, lanes)

    monkeypatch.setattr(Need, "carries", counted)
    host = ((10**9, tuple((lane, 10**7) for lane in lanes)),)
    need = Need(frozenset(lanes), rates=frozenset({host}), min_rate_bps=30 * 10**7)
    found = choose(need)
    assert found is not None and len(found) == 30
    assert tried < 2 * module.MAX_TRIED
