# SPDX-License-Identifier: Apache-2.0
"""What jobs have to themselves stays theirs when a controller starts anew, and a store may lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.jobs.assign import Assignment, assign
from ri2n_sdn.jobs.earlier import Earlier, lanes_to_keep, taken_over
from ri2n_sdn.jobs.lanes import LaneMap
from ri2n_sdn.jobs.model import Job, Reservation
from tests.unit.job_cases import RATE_BPS, fat, flat, job, lanes

FOUR = dict.fromkeys("ABCD", "net1 net2 net3 net4")


def kept(assignment: Assignment) -> Earlier:
    """What the store has of an assignment."""
    accepted = {
        name: each for name, each in assignment.jobs.items() if name not in assignment.refused
    }
    return Earlier(accepted, lanes_to_keep(assignment))


def anew(fabric: Fabric, earlier: Earlier, jobs: Sequence[Job]) -> tuple[Assignment, list[str]]:
    """The first decision of a controller that starts with a store, and what it refused of it."""
    held, wrong = taken_over(earlier, LaneMap(fabric), jobs)
    return assign(fabric, jobs, held), list(wrong.values())


def test_a_job_keeps_the_lane_that_it_would_not_get_today() -> None:
    fabric = flat(FOUR)
    first, second = job("a", "A B", "exclusive"), job("b", "A B", "exclusive", begin_s=1.0)
    both = assign(fabric, [second], assign(fabric, [first, second]))
    assert lanes(both, "b") == ["net2"] and lanes(assign(fabric, [second]), "b") == ["net1"]
    again, wrong = anew(fabric, kept(both), [second])
    assert lanes(again, "b") == ["net2"] and not wrong


def test_a_job_that_was_refused_takes_nothing_from_those_that_run() -> None:
    fabric = flat({"A": "net1 net2", "B": "net1 net2"})
    late, early = job("late", "A B", "exclusive", begin_s=9.0), job("early", "A B", "exclusive")
    before = assign(fabric, [late, early], assign(fabric, [late]))
    assert before.refused.keys() == {"early"}
    again, _ = anew(fabric, kept(before), [late, early])
    assert (again.lanes, again.refused) == (before.lanes, before.refused)
    assert assign(fabric, [late, early]).refused.keys() == {"late"}, "the store makes no difference"


def test_the_lanes_of_a_reservation_are_kept_and_used_by_its_jobs() -> None:
    fabric = flat(FOUR)
    first = job("a", "A B", "exclusive")
    holder = Reservation("r", "u_b", ("A", "B"), 1.0, 99.0).as_job()
    rider = job("b", "A B", within=holder.id)
    before = assign(fabric, [holder, rider], assign(fabric, [first, holder, rider]))
    assert lanes(before, holder.id) == ["net2"]
    again, _ = anew(fabric, kept(before), [holder, rider])
    assert lanes(again, holder.id) == ["net2"] and lanes(again, "b") == []


def test_a_vlan_of_a_fat_tree_is_kept() -> None:
    fabric = fat(leaves=4, uppers=4, per_pair=8)
    first, second = job("a", "n1 n3", "exclusive"), job("b", "n1 n3", "exclusive", begin_s=1.0)
    both = assign(fabric, [second], assign(fabric, [first, second]))
    again, wrong = anew(fabric, kept(both), [second])
    assert again.lanes == both.lanes != assign(fabric, [second]).lanes and not wrong


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.sampled_from(["A B", "C D", "A B C", "B C D", "A B C D"]),
            st.sampled_from(["exclusive", "isolated", "paths", "shared"]),
            st.sampled_from([None, RATE_BPS // 2, 2 * RATE_BPS]),
            st.integers(0, 9),
        ),
        max_size=12,
    )
)
def test_a_new_start_decides_as_the_controller_before_it_would(
    events: list[tuple[str, str, str, int | None, int]],
) -> None:
    """An event begins a job, or ends it if it runs."""
    fabric, running, now = flat(FOUR), dict[str, Job](), Assignment()
    for name, hosts, kind, rate_bps, begin_s in events:
        if running.pop(name, None) is None:
            running[name] = job(
                *(name, hosts, kind, "net2" if kind == "paths" else ""),
                begin_s=float(begin_s),
                min_rate_bps=rate_bps if kind != "isolated" else None,
            )
        now = assign(fabric, list(running.values()), now)
    again, wrong = anew(fabric, kept(now), list(running.values()))
    same = assign(fabric, list(running.values()), now)
    assert (again.lanes, again.refused, again.owners) == (same.lanes, same.refused, same.owners)
    assert not wrong


A = job("a", "A B", "exclusive")
B = job("b", "B C", "exclusive", begin_s=1.0)


@pytest.mark.parametrize(
    ("stored", "line", "expected"),
    [
        (["net3/0"], "", ["net3"]),
        (["net9/0"], "net9 is no lane that it may have", ["net1"]),
        (["net3/0", "net9/0"], "net9 is no lane that it may have", ["net3"]),
        (["net3/7"], "net3/7 is no lane that it may have", ["net1"]),
        (["net3"], "'net3' is no lane", ["net1"]),
        (["net3/x", "/3", ""], "'', '/3', 'net3/x' is no lane", ["net1"]),
        (["net3/\u0663"], r"'net3/\u0663' is no lane", ["net1"]),
        (["net3/0", "\x1b[31m"], r"'\x1b[31m' is no lane", ["net3"]),
        ([f"net3/{'9' * 5000}"], "' is no lane", ["net1"]),
        (["net1/0", "net2/0", "net3/0", "net4/0"], "", ["net1"]),
        ([], "", ["net1"]),
    ],
)
def test_a_wrong_lane_of_the_store_is_refused(
    stored: list[str], line: str, expected: list[str]
) -> None:
    again, wrong = anew(flat(FOUR), Earlier({"a": A}, {"a": stored}), [A])
    assert lanes(again, "a") == expected and not again.refused
    if not line:
        assert not wrong
    else:
        (text,) = wrong
        assert text.startswith("job a (u_a): the store gives it a wrong lane: ")
        assert text.endswith(line) and len(text) < 250
        assert text.isprintable()


def test_a_lane_that_another_job_has_is_refused() -> None:
    stored = {"a": ["net3/0"], "b": ["net3/0"]}
    again, (text,) = anew(flat(FOUR), Earlier({"a": A, "b": B}, stored), [B, A])
    assert (lanes(again, "a"), lanes(again, "b")) == (["net3"], ["net1"])
    assert text == (
        "job b (u_b): the store gives it a wrong lane: net3 at B belongs to job a (u_a)"
    )


def test_a_lane_that_the_policy_does_not_name_is_refused() -> None:
    named = job("a", "A B", "exclusive", "net2")
    again, wrong = anew(flat(FOUR), Earlier({"a": named}, {"a": ["net3/0"]}), [named])
    assert lanes(again, "a") == ["net2"] and len(wrong) == 1
    moved = replace(named, policy=A.policy)
    again, wrong = anew(flat(FOUR), Earlier({"a": moved}, {"a": ["net3/0"]}), [named])
    assert lanes(again, "a") == ["net2"] and not wrong, "it was moved, and the store is not wrong"


def test_a_job_that_is_over_and_one_whose_hosts_are_away_are_not_judged() -> None:
    fabric = flat({"A": "net1 net2"})
    again, wrong = anew(fabric, Earlier({"a": A, "b": B}, {"a": ["net7/0"], "b": ["?"]}), [A])
    assert again.jobs.keys() == {"a"} and not wrong


def test_a_store_of_a_version_without_lanes_begins_as_before() -> None:
    fabric = flat(FOUR)
    again, wrong = anew(fabric, Earlier({"a": A, "b": B}, {}), [B, A])
    assert again.lanes == assign(fabric, [A, B]).lanes and not wrong
