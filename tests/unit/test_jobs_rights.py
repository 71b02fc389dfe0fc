# SPDX-License-Identifier: Apache-2.0
"""What users may ask for, and what is kept of jobs that ended."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.errors import BadInput
from ri2n_sdn.jobs.history import Record, ended, kept
from ri2n_sdn.jobs.model import Job, Policy, Reservation
from ri2n_sdn.jobs.rights import EVERYBODY, Right, allowed, check_right, parse_policies
from tests.unit.job_cases import job

ALICE = Right("alice", frozenset({"shared", "exclusive"}), 10**9, 2, True)
BOOKED = Reservation("r", "alice", ("A", "B"), 0.0, 60.0, 10**9)


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        (job("a", "A B", "exclusive", user="alice"), None),
        (job("a", "A B C D", user="alice"), None),
        (BOOKED, None),
        (
            job("a", "A B", "isolated", user="alice"),
            "job a (alice): user alice may not use policy isolated (may use: shared, exclusive)",
        ),
        (
            job("a", "A B", user="alice", min_rate_bps=10**9 + 1),
            "job a (alice): user alice may have min_rate 1G, not 1000000.001k",
        ),
        (
            job("a", "A B C", "exclusive", user="alice"),
            "job a (alice): user alice may have policy exclusive on 2 hosts, not 3",
        ),
        (
            job("a", "A B C", user="alice", min_rate_bps=1),
            "job a (alice): user alice may have policy shared on 2 hosts, not 3",
        ),
        (
            Reservation("r", "alice", ("A", "B"), 0.0, 60.0, 2 * 10**9),
            "reservation r (alice): user alice may have min_rate 1G, not 2G",
        ),
        (
            Reservation("r", "bob", ("A", "B"), 0.0, 60.0),
            "reservation r (bob): user bob may not reserve",
        ),
        (
            job("a", "A B", "paths", "net1", user="bob"),
            "job a (bob): user bob may not use policy paths (may use: shared)",
        ),
        (
            job("a", "A B", user="bob", min_rate_bps=1),
            "job a (bob): user bob may have min_rate 0, not 1",
        ),
        (job("a", "A B", user="bob"), None),
    ],
)
def test_rights(wanted: Job | Reservation, line: str | None) -> None:
    assert allowed([ALICE], wanted) == line


def test_without_rights_everybody_may_everything() -> None:
    assert allowed([], job("a", "A B", "isolated", min_rate_bps=10**12)) is None
    assert allowed([], BOOKED) is None


def test_a_name_comes_before_a_uid_and_that_before_everybody() -> None:
    named, number = Right("u_a", frozenset({"paths"})), Right("20001", frozenset({"exclusive"}))
    all_others = Right(EVERYBODY, frozenset({"isolated"}))
    wanted = {kind: job("a", "A", kind, "net1") for kind in ("paths", "exclusive", "isolated")}
    for rights, kind in (
        ([all_others, number, named], "paths"),
        ([all_others, number], "exclusive"),
        ([all_others], "isolated"),
    ):
        assert [each for each in wanted if allowed(rights, wanted[each]) is None] == [kind]


def test_wrong_rights_are_refused() -> None:
    assert parse_policies("shared, paths") == ["shared", "paths"]
    for text in ("", "all", "shared,"):
        with pytest.raises(BadInput, match=r"--policies: '.*' must be one of shared, paths"):
            parse_policies(text)
    check_right(ALICE)
    check_right(Right(EVERYBODY))
    for right in (
        Right("a b"),
        Right("a", frozenset({"all"})),  # type: ignore[arg-type]
        Right("a", max_rate_bps=-1),
        Right("a", max_hosts=10**9),
    ):
        with pytest.raises(BadInput):
            check_right(right)


def test_history() -> None:
    one = ended(job("a", "A B", "exclusive", begin_s=50.0), 60.0, "job manager\nended it")
    assert one.why == "job manager ended it" and one.policy == Policy("exclusive")
    early = ended(job("b", "B C", begin_s=50.0), 40.0, "x" * 500)
    # A host's clock that is wrong does not make a record that ends in the future.
    assert (early.begin_s, early.end_s) == (40.0, 40.0) and len(early.why) == 200
    both = kept([one], [early])
    assert both == (early, one) and kept(both, [], most=1) == (one,)


RECORDS = st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from("abc")), max_size=40)


def record(number: int, host: str, user: str) -> Record:
    return Record(f"j{number}", user, 1, (host, "Q"), Policy(), 0.0, float(number), "over")


def in_turn(pairs: Sequence[tuple[str, str]], most: int) -> tuple[Record, ...]:
    """The records that stay when each job ends after the one before."""
    records: tuple[Record, ...] = ()
    for number, (host, user) in enumerate(pairs):
        records = kept(records, [record(number, host, user)], most)
    return records


@given(RECORDS, st.randoms(use_true_random=False), st.integers(6, 20))
def test_a_hosts_records_survive_any_number_of_anothers(
    pairs: list[tuple[str, str]], random: Random, most: int
) -> None:
    share = most // 5
    honest = [("H", "h")] * share
    flood = [("Z", f"u{number % 7}") for number in range(60)]
    every = [*pairs, *honest, *flood]
    random.shuffle(every)
    assert sum(each.hosts[0] == "H" for each in in_turn(every, most)) == share


@given(st.integers(4, 20), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_users_records_survive_any_number_of_anothers_orders(
    most: int, hosts: int, random: Random
) -> None:
    share = most // hosts // 2
    every = [("A", "honest")] * share + [("ABCD"[n % hosts], "busy") for n in range(100)]
    random.shuffle(every)
    assert sum(each.user == "honest" for each in in_turn(every, most)) == share


@given(RECORDS, st.integers(1, 12))
def test_the_newest_records_of_each_user_of_a_host_are_kept(
    pairs: list[tuple[str, str]], most: int
) -> None:
    together = kept((), [record(n, *pair) for n, pair in enumerate(pairs)], most)
    for records in (together, in_turn(pairs, most)):
        assert len(records) == min(most, len(pairs))
        assert [each.end_s for each in records] == sorted(each.end_s for each in records)
        for host, user in set(pairs):
            ends = [n for n, pair in enumerate(pairs) if pair == (host, user)]
            stays = [each.end_s for each in records if (each.hosts[0], each.user) == (host, user)]
            assert stays == ends[len(ends) - len(stays) :]
