# SPDX-License-Identifier: Apache-2.0
"""Admission against running jobs and reservations, now and later."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.contract.units import time_text
from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.jobs.admit import conflict
from ri2n_sdn.jobs.assign import Assignment, assign
from ri2n_sdn.jobs.model import Job, Policy, Reservation
from ri2n_sdn.jobs.reservations import at, needed, reservation_of, soon
from tests.unit.job_cases import RATE_BPS, THREE, all_use, broken, fat, flat, job, job_uses, lanes

NOW = 1000.0
FABRIC = flat(THREE)


def reserve(
    name: str,
    hosts: str,
    begin_s: float,
    end_s: float,
    policy: Policy | None = None,
    *,
    rate_bps: int | None = None,
    user: str = "bob",
) -> Reservation:
    chosen = policy or Policy("exclusive")
    return Reservation(name, user, tuple(hosts.split()), begin_s, end_s, rate_bps, chosen)


def named(kind: str, paths: str) -> Policy:
    return job("x", "A", kind, paths).policy


# ---- Now


def test_there_is_room_in_an_empty_fabric() -> None:
    for wanted in (
        job("b", "A B C D"),
        job("b", "A B", "exclusive"),
        job("b", "A B", "isolated"),
        reserve("r", "A B", NOW, NOW + 60),
        reserve("r", "A B", NOW + 60, NOW + 120, rate_bps=2 * RATE_BPS),
    ):
        assert conflict(FABRIC, [], [], wanted, NOW) is None


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        (job("b", "A X", begin_s=NOW), "job b (u_b): there is no host X"),
        (
            job("b", "A B", begin_s=1, end_s=2.0),
            "job b (u_b): its end 1970-01-01T00:00:02Z is over",
        ),
        (
            reserve("r", "A B", 1.0, NOW),
            "reservation r (bob): its end 1970-01-01T00:16:40Z is over",
        ),
        (
            job("b", "A B", min_rate_bps=4 * RATE_BPS),
            "job b (u_b): min_rate 400M is more than A can carry: its links have 300M there",
        ),
        (
            reserve("r", "A D", 2000.0, 3000.0),
            "reservation r (bob): net1 is all that is left for everybody else between A and D",
        ),
    ],
)
def test_what_can_never_be_has_no_later_time(wanted: Job | Reservation, line: str) -> None:
    running = [job("a", "B C", end_s=NOW + 60)]
    assert conflict(FABRIC, running, [], wanted, NOW) == line


def test_a_refusal_names_the_time_from_which_there_is_room() -> None:
    running = [
        job("a", "A B", "exclusive", "net2", end_s=NOW + 60),
        job("c", "A B", "exclusive", "net3", end_s=NOW + 90),
    ]
    wanted = job("b", "A B", "exclusive", "net2")
    assert conflict(FABRIC, running, [], wanted, NOW) == (
        "job b (u_b): net2 at A belongs to job a (u_a) until 1970-01-01T00:17:40Z; there is room "
        "from 1970-01-01T00:17:40Z"
    )
    both = job("b", "A B", min_rate_bps=2 * RATE_BPS)
    text = conflict(FABRIC, running, [], both, NOW)
    assert text is not None and text.endswith("there is room from 1970-01-01T00:18:10Z")
    endless = [job("a", "A B", "exclusive", "net2")]
    text = conflict(FABRIC, endless, [], wanted, NOW)
    assert text == "job b (u_b): net2 at A belongs to job a (u_a) until its end"


def test_a_job_that_is_there_after_its_end_is_still_in_the_way() -> None:
    late = [job("a", "A B", "exclusive", "net2", end_s=NOW - 1)]
    text = conflict(FABRIC, late, [], job("b", "A B", "exclusive", "net2"), NOW)
    assert text == "job b (u_b): net2 at A belongs to job a (u_a) until its end"


def test_nobody_is_in_his_own_way() -> None:
    running = [job("a", "A B", "exclusive", "net2")]
    assert conflict(FABRIC, running, [], running[0], NOW) is None
    there = reserve("r", "A B", NOW + 10, NOW + 60, named("exclusive", "net2"))
    assert conflict(FABRIC, [], [there], replace(there, end_s=NOW + 90), NOW) is None


def test_a_running_job_is_not_pushed_out() -> None:
    """b began before a, so that it would come first in an assignment without a past."""
    running = [job("a", "A B", "exclusive", "net2", begin_s=NOW - 5)]
    text = conflict(FABRIC, running, [], job("b", "A B", "exclusive", "net2", begin_s=1), NOW)
    assert text is not None and "net2 at A belongs to job a (u_a)" in text


def test_the_assignment_in_force_says_which_lanes_are_free() -> None:
    """In it, job a has net3, since net2 was dead when a came."""
    running = [job("a", "A B", "exclusive")]
    before = assign(broken(FABRIC, "A:eth2"), running)
    assert lanes(before, "a") == ["net3"]
    wanted = job("b", "A B", "exclusive", "net2")
    assert conflict(FABRIC, running, [], wanted, NOW, before) is None
    assert conflict(FABRIC, running, [], wanted, NOW) is not None


# ---- Later


def test_a_job_without_an_end_is_in_the_way_of_every_reservation() -> None:
    there = [reserve("week", "A B", 2000.0, 3000.0, named("exclusive", "net2"))]
    text = conflict(FABRIC, [], there, job("b", "A B", "exclusive", "net2"), NOW)
    assert text == (
        "job b (u_b): net2 at A belongs to reservation week (bob) from 1970-01-01T00:33:20Z until "
        "1970-01-01T00:50:00Z (from 1970-01-01T00:33:20Z on); there is room from "
        "1970-01-01T00:50:00Z"
    )
    short = job("b", "A B", "exclusive", "net2", end_s=2000.0)
    assert conflict(FABRIC, [], there, short, NOW) is None
    assert conflict(FABRIC, [], there, replace(short, end_s=2000.5), NOW) is not None


def test_a_job_takes_no_lane_that_a_reservation_names_if_another_is_free() -> None:
    there = [reserve("week", "A B", 2000.0, 3000.0, named("exclusive", "net2"))]
    wanted = job("b", "A B", "exclusive")
    assert conflict(FABRIC, [], there, wanted, NOW) is None
    assert lanes(assign(FABRIC, [wanted], soon=soon(there, NOW)), "b") == ["net3"]
    assert lanes(assign(FABRIC, [wanted]), "b") == ["net2"]


def test_reservations_share_the_time_to_come() -> None:
    there = [reserve("one", "A B", 2000.0, 3000.0), reserve("two", "B A", 2500.0, 3500.0)]
    # Both lanes are taken from 2500 to 3000 only.
    assert conflict(FABRIC, [], there, reserve("r", "A B", 2000.0, 2500.0), NOW) is None
    assert conflict(FABRIC, [], there, reserve("r", "A B", 3000.0, 9000.0), NOW) is None
    text = conflict(FABRIC, [], there, reserve("r", "A B", 2400.0, 2600.0), NOW)
    assert text is not None and text.endswith("there is room from 1970-01-01T00:50:00Z")
    assert "reservation " in text and "(bob)" in text


def test_what_is_dead_now_is_no_reason_against_a_time_to_come() -> None:
    hurt = broken(FABRIC, "A:eth2", "A:eth3")
    assert conflict(hurt, [], [], reserve("r", "A B", NOW + 60, NOW + 90), NOW) is None
    assert conflict(hurt, [], [], reserve("r", "A B", NOW, NOW + 90), NOW) is not None


def test_an_isolated_reservation_needs_its_hosts_empty_by_then() -> None:
    there = [reserve("r", "A B", 2000.0, 3000.0, Policy("isolated"))]
    text = conflict(FABRIC, [], there, job("b", "B C"), NOW)
    assert text == (
        "job b (u_b): B belongs to reservation r (bob) from 1970-01-01T00:33:20Z until "
        "1970-01-01T00:50:00Z (from 1970-01-01T00:33:20Z on); there is room from "
        "1970-01-01T00:50:00Z"
    )
    assert conflict(FABRIC, [], there, job("b", "C D"), NOW) is None
    assert conflict(FABRIC, [], there, job("b", "B C", user="bob"), NOW) is not None
    assert conflict(FABRIC, [], there, job("b", "A B", user="bob"), NOW) is None


def test_rates_add_up_over_reservations_of_a_fat_tree() -> None:
    fabric = fat(2, 4, 2)
    there = [reserve("r", "n1 n3", 2000.0, 3000.0, rate_bps=RATE_BPS * 6 // 10)]
    more = job("b", "n1 n4", begin_s=1, min_rate_bps=RATE_BPS // 2)
    text = conflict(fabric, [], there, replace(more, begin_s=2100.0, end_s=2200.0), NOW)
    assert text == (
        "job b (u_b): min_rate 50M is more than n1 has free, 40M: reservation r (bob) until "
        "1970-01-01T00:50:00Z has the rest; there is room from 1970-01-01T00:50:00Z"
    )
    less = replace(more, policy=Policy(min_rate_bps=RATE_BPS * 4 // 10))
    assert conflict(fabric, [], there, less, NOW) is None


# ---- Reservations and their jobs


def test_a_job_uses_its_users_reservation_from_its_start_to_its_end() -> None:
    there = [reserve("r", "A B C", 2000.0, 3000.0, named("exclusive", "net2"))]
    one, other = job("a", "A B", user="bob"), job("b", "A B", user="eve")

    def uses(time_s: float, before: Assignment | None) -> tuple[list[list[str]], Assignment]:
        result = assign(FABRIC, at([one, other], there, time_s), before)
        return [job_uses(result, "a", "A B"), job_uses(result, "b", "A B")], result

    common, rest = ["net1", "net2", "net3"], ["net1", "net3"]
    found, early = uses(1999.0, None)
    assert found == [common, common]
    found, within = uses(2000.0, early)
    assert found == [["net2"], rest] and not within.refused
    found, after = uses(3000.0, within)
    assert found == [common, common] and not after.lanes


def test_a_reservation_without_a_job_keeps_its_lanes() -> None:
    there = [reserve("r", "A B C", 2000.0, 3000.0, named("exclusive", "net2"))]
    alone = assign(FABRIC, at([], there, 2500.0))
    assert all_use(alone, "A B") == ["net1", "net3"]
    wanted = job("b", "A B", "exclusive", "net2", begin_s=2500.0, end_s=2600.0)
    text = conflict(FABRIC, [], there, wanted, 2500.0)
    assert text is not None and "net2 at A belongs to reservation r (bob) until" in text


def test_a_job_that_outlives_its_reservation_uses_the_common_paths() -> None:
    """Also when what it asked for is free, so that it is not in the way of the next one."""
    there = [reserve("r", "A B", 2000.0, 3000.0)]
    mine = job("a", "A B", "exclusive", begin_s=2100.0, user="bob")
    assert conflict(FABRIC, [], there, mine, 2100.0) is None
    within, after = (assign(FABRIC, at([mine], there, time_s)) for time_s in (2100.0, 3000.0))
    assert job_uses(within, "a", "A B") == ["net2"] == lanes(within, "@r")
    assert job_uses(after, "a", "A B") == ["net1", "net2", "net3"] and not after.lanes
    assert needed(there, [mine], 3000.0) == tuple(there)
    assert needed(there, [], 3000.0) == ()
    next_one = reserve("next", "A B", 3100.0, 3200.0, user="eve", rate_bps=2 * RATE_BPS)
    assert conflict(FABRIC, [mine], there, next_one, 2200.0) is None


@pytest.mark.parametrize(
    ("changed", "covered"),
    [
        ({}, True),
        ({"user": "eve"}, False),
        ({"hosts": ("A", "D")}, False),
        ({"policy": Policy("exclusive", min_rate_bps=RATE_BPS)}, True),
        ({"policy": Policy("exclusive", min_rate_bps=RATE_BPS + 1)}, False),
        ({"policy": Policy("isolated")}, False),
        ({"policy": named("paths", "net1")}, False),
        ({"policy": named("paths", "net2")}, True),
        ({"begin_s": 3000.0}, False),
        ({"begin_s": 1999.0}, False),
        ({"begin_s": 1999.0, "policy": Policy()}, True),
    ],
)
def test_which_job_is_in_a_reservation(changed: dict[str, object], covered: bool) -> None:
    there = reserve("r", "A B C", 2000.0, 3000.0, named("exclusive", "net2"), rate_bps=RATE_BPS)
    base = job("a", "A B", "exclusive", begin_s=2500.0, user="bob")
    found = reservation_of(replace(base, **changed), [there])  # type: ignore[arg-type]
    assert (found is there) == covered


# ---- Laws


PLANS = st.lists(
    st.tuples(
        st.sampled_from(["A B", "B C", "A B C", "A", "C D"]),
        st.sampled_from(["exclusive", "isolated", "paths"]),
        st.sampled_from(["", "net2", "net3"]),
        st.integers(0, 8),
        st.integers(1, 4),
        st.sampled_from(["bob", "eve"]),
    ),
    max_size=6,
)


@given(PLANS)
def test_what_is_admitted_is_not_refused_when_its_time_comes(
    plans: list[tuple[str, str, str, int, int, str]],
) -> None:
    admitted: list[Reservation] = []
    for number, (hosts, kind, paths, begin, lasts, user) in enumerate(plans):
        policy = named(kind, paths or ("net1" if kind == "paths" else ""))
        begin_s = NOW + 10.0 * begin
        wanted = reserve(f"r{number}", hosts, begin_s, begin_s + 10.0 * lasts, policy, user=user)
        line = conflict(FABRIC, [], admitted, wanted, NOW)
        if line is None:
            admitted.append(wanted)
            continue
        assert line.startswith(f"reservation r{number} ({user}): ") and line.isprintable()
        _, room, time = line.partition("; there is room from ")
        ends = [each.end_s for each in admitted if room and time == time_text(each.end_s)]
        for end_s in ends[:1]:
            moved = replace(wanted, begin_s=end_s, end_s=end_s + 10.0 * lasts)
            assert conflict(FABRIC, [], admitted, moved, NOW) is None
    before = None
    for step in range(14):
        time_s = NOW + 10.0 * step
        before = assign(FABRIC, at([], admitted, time_s), before, soon(admitted, time_s))
        assert not before.refused


def test_the_fabric_is_not_changed() -> None:
    copy = Fabric(dict(FABRIC.hosts))
    conflict(FABRIC, [], [], reserve("r", "A B", NOW + 5, NOW + 60), NOW)
    assert copy == FABRIC
