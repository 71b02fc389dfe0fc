# SPDX-License-Identifier: Apache-2.0
"""What hosts run that a controller which has just started has not heard yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.jobs.believed import believed
from ri2n_sdn.jobs.declaration import UNKNOWN_CLASS, Declaration
from ri2n_sdn.jobs.members import Agreement, agree
from ri2n_sdn.jobs.model import Job, PathTable, Policy
from ri2n_sdn.jobs.moves import Move, moved
from tests.unit.job_cases import job

HOSTS = "ABCD"
POLICIES = (Policy(), Policy("exclusive"), Policy("exclusive", max_rate_bps=10**6))
PATHS = Policy("paths", (PathTable(None, ("net1",)),))
ORDER = replace(job("o", "A B", "exclusive"), source="order")


def guess(
    remembered: Mapping[str, Job],
    unheard: str,
    *heard: Declaration,
    orders: Mapping[str, Job] | None = None,
    moves: Mapping[str, Move] | None = None,
) -> list[Declaration]:
    return believed(remembered, set(unheard), heard, orders or {}, moves or {})


def test_a_host_is_taken_to_run_what_it_ran_until_it_answers() -> None:
    one = job("a", "A B", "exclusive")
    at_a = Declaration("A", 3, one)
    assert guess({"a": one}, "B", at_a) == [Declaration("B", UNKNOWN_CLASS, one)]
    assert guess({"a": one}, "AB") == [Declaration(host, UNKNOWN_CLASS, one) for host in "AB"]
    assert guess({"a": one}, "", at_a) == [], "who has answered runs what it says"
    assert guess({"a": one}, "C", at_a) == [], "who was in no job is in none"


def test_a_host_is_not_taken_into_a_job_of_another_policy_user_or_host() -> None:
    one = job("a", "A B", "exclusive")
    for other in (
        replace(one, policy=Policy("isolated")),
        replace(one, uid=1),
        replace(one, hosts=("A",)),
    ):
        liar = Declaration("A", 3, other)
        found = agree([liar, *guess({"a": one}, "B", liar)], {}, Agreement({"a": one}))
        assert {key: each.hosts for key, each in found.jobs.items()} == {
            "a": ("A",),
            "a@B": ("B",),
        }
        assert found.jobs["a@B"].policy == one.policy


def test_an_order_is_carried_out_as_long_as_there_is_one() -> None:
    at_a = Declaration("A", 3, ORDER)
    found = guess({"o": ORDER}, "B", at_a, orders={"o": ORDER})
    assert found == [Declaration("B", UNKNOWN_CLASS, ORDER)]
    assert guess({"o": ORDER}, "B", at_a) == []


def test_a_host_of_a_moved_job_declares_what_the_others_do() -> None:
    one = job("a", "A B", "exclusive")
    move = Move("a", one.uid, PATHS, "root", one.begin_s + 1)
    remembered = moved(Agreement({"a": one}), {"a": move}).jobs
    assert remembered["a"].policy == PATHS
    assert guess(remembered, "B", Declaration("A", 3, one), moves={"a": move}) == [
        Declaration("B", UNKNOWN_CLASS, one)
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(HOSTS),
            st.sampled_from("ab"),
            st.sets(st.sampled_from(HOSTS), min_size=1),
            st.integers(1, 3),
            st.integers(0, 1),
            st.sampled_from(POLICIES),
            st.sampled_from((10.0, 20.0)),
            st.sampled_from((None, 90.0, 99.0)),
        ),
        max_size=12,
    ),
    st.booleans(),
    st.sets(st.sampled_from("ab"), max_size=2),
    st.sets(st.sampled_from(HOSTS)),
)
def test_whoever_answers_late_changes_no_job(
    rows: list[tuple[str, str, set[str], int, int, Policy, float, float | None]],
    ordered: bool,
    names_moved: set[str],
    unheard: set[str],
) -> None:
    """All jobs are as if every host had answered; only classes of late hosts are not known."""

    def named(host: str, hosts: set[str]) -> tuple[str, ...]:
        return tuple(sorted({host, *hosts}))

    declarations = [
        Declaration(host, number, Job(name, "u", uid, named(host, hosts), policy, begin_s, end_s))
        for host, name, hosts, number, uid, policy, begin_s, end_s in rows
    ]
    orders = {"o": ORDER} if ordered else {}
    declarations += [Declaration(host, 4, ORDER) for host in ORDER.hosts if ordered]
    moves = {name: Move(name, 0, PATHS, "root", 15.0) for name in names_moved}
    whole = moved(agree(declarations, orders), moves)
    heard = [each for each in declarations if each.host not in unheard]
    late = believed(whole.jobs, unheard, heard, orders, moves)
    assert {each.host for each in late} <= unheard
    found = moved(agree([*heard, *late], orders, Agreement(whole.jobs)), moves)
    assert found.jobs == whole.jobs
    assert found.classes == {
        key: {host: number for host, number in numbers.items() if host not in unheard}
        for key, numbers in whole.classes.items()
    }
