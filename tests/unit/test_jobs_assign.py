# SPDX-License-Identifier: Apache-2.0
"""Who gets which lanes: policies, refusals, faults, hosts with different NICs, fat trees."""

from __future__ import annotations

import pytest

from ri2n_sdn.jobs.assign import assign
from ri2n_sdn.jobs.model import Job
from tests.unit.job_cases import RATE_BPS, THREE, all_use, broken, fat, flat, job, job_uses, lanes

# ---- Policies


def test_without_jobs_all_paths_are_common() -> None:
    nobody = assign(flat(THREE), [])
    assert all_use(nobody, "A B") == ["net1", "net2", "net3"]
    assert job_uses(nobody, "unknown", "A B") == ["net1", "net2", "net3"]
    assert nobody.owners.get("A") is None


def test_shared_jobs_use_the_common_paths() -> None:
    both = assign(flat(THREE), [job("a", "A B"), job("b", "A B", "exclusive", "net3")])
    assert job_uses(both, "a", "A B") == ["net1", "net2"]
    assert both.why("a", None, both.fabric.paths("A", "B")) is None


def test_paths_are_only_the_named_ones_for_every_destination() -> None:
    one = assign(flat(THREE), [job("a", "A B", "paths", "net2 net3")])
    assert job_uses(one, "a", "A B") == ["net2", "net3"]
    assert job_uses(one, "a", "A C") == ["net2"]
    assert all_use(one, "A B") == ["net1", "net2", "net3"]


def test_an_exclusive_job_has_one_lane_that_nobody_else_uses_at_its_hosts() -> None:
    one = assign(flat(THREE), [job("a", "A B", "exclusive")])
    # D is only on net1, so net1 stays for all at A and B.
    assert lanes(one, "a") == ["net2"]
    assert job_uses(one, "a", "A B") == ["net2"]
    assert all_use(one, "A B") == ["net1", "net3"]
    assert all_use(one, "A C") == all_use(one, "C B") == ["net1"]
    assert all_use(assign(flat(THREE), []), "C A") == ["net1", "net2"]


def test_two_exclusive_jobs_share_no_lane_and_others_may_have_it_elsewhere() -> None:
    fabric = flat({**THREE, "E": "net1 net2", "F": "net1 net2"})
    jobs = [job("a", "A B", "exclusive"), job("b", "A B", "exclusive", begin_s=1)]
    three = assign(fabric, [*jobs, job("c", "E F", "exclusive", begin_s=2)])
    assert [lanes(three, name) for name in "abc"] == [["net2"], ["net3"], ["net2"]]
    assert all_use(three, "A B") == all_use(three, "A E") == ["net1"]


def test_a_job_with_a_rate_has_as_few_lanes_as_carry_it() -> None:
    fabric = flat({"A": "net1 net2 net3 net4", "B": "net1 net2 net3 net4"}, {"net4": 3 * RATE_BPS})
    for rate, expected in (
        (1, ["net1"]),
        (2, ["net4"]),
        (4, ["net1", "net4"]),
        (5, ["net1", "net2", "net4"]),
    ):
        one = assign(fabric, [job("a", "A B", min_rate_bps=rate * RATE_BPS)])
        assert lanes(one, "a") == expected, rate
        assert job_uses(one, "a", "A B") == expected


def test_the_host_with_the_slowest_links_decides_over_a_rate() -> None:
    fabric = flat({"A": "net1 net2 net3", "B": "net1 net2 net3"}, {"net2": RATE_BPS // 2})
    slow = broken(fabric, "B:eth3")
    half = [job("a", "A B", min_rate_bps=RATE_BPS * 3 // 2)]
    assert lanes(assign(fabric, half), "a") == ["net1", "net2"]
    refused = assign(slow, [job("a", "A B", min_rate_bps=RATE_BPS * 2)]).refused["a"]
    assert "its links have 150M there" in refused


def test_tables_choose_by_dscp() -> None:
    one = assign(flat(THREE), [job("a", "A B", "paths", "net1", tables={10: "net2 net3"})])
    assert job_uses(one, "a", "A B") == job_uses(one, "a", "A B", 46) == ["net1"]
    assert job_uses(one, "a", "A B", 10) == ["net2", "net3"]
    own = assign(flat(THREE), [job("a", "A B", "exclusive", tables={10: "net2", 12: "net3"})])
    assert lanes(own, "a") == ["net2", "net3"]
    assert job_uses(own, "a", "A B") == ["net2", "net3"]
    assert job_uses(own, "a", "A B", 12) == ["net3"]


def test_an_isolated_job_has_its_hosts_for_itself() -> None:
    jobs = [job("a", "A B", "isolated"), job("b", "B C", begin_s=1), job("c", "C D", begin_s=2)]
    three = assign(flat(THREE), jobs)
    assert [three.owners.get(host) for host in "ABCD"] == ["a", "a", None, None]
    assert three.refused == {"b": "job b (u_b): B belongs to isolated job a (u_a) until its end"}
    late = assign(flat(THREE), [job("x", "A"), job("a", "A B", "isolated", begin_s=5)])
    assert late.refused == {
        "a": "job a (u_a): A cannot be isolated: it also runs job x (u_x) until its end"
    }
    assert late.owners.get("B") is None


# ---- Refusals


@pytest.mark.parametrize(
    ("jobs", "line"),
    [
        (
            [
                job("a", "A B", "exclusive", "net2", end_s=1790000000.0),
                job("b", "B C", "exclusive", "net2", begin_s=1),
            ],
            "net2 at B belongs to job a (u_a) until 2026-09-21T14:13:20Z",
        ),
        ([job("b", "A B", "exclusive", "net9")], "there is no path net9 between its hosts"),
        ([job("b", "A", "paths", "net9")], "there is no path net9 at A"),
        ([job("b", "A C", "paths", "net3")], "there is no path net3 between its hosts"),
        ([job("b", "A B C", "paths", "net3")], "A and C have no path net3 in common"),
        ([job("b", "A B C", "exclusive", "net3")], "A and C have no path net3 in common"),
        (
            [job("b", "A D", "exclusive")],
            "net1 is all that is left for everybody else between A and D",
        ),
        (
            [job("a", "A B", "exclusive"), job("b", "A C", "exclusive", begin_s=1)],
            "net1 is all that is left for everybody else between A and C, since net2 at A belongs "
            "to job a (u_a) until its end",
        ),
        (
            [job("a", "A B", "paths", "net2"), job("b", "A C", "exclusive", "net2", begin_s=1)],
            "net2 is all that is left for job a (u_a) until its end between A and B",
        ),
        (
            [job("b", "A B", min_rate_bps=4 * RATE_BPS)],
            "min_rate 400M is more than A can carry: its links have 300M there",
        ),
        (
            [job("b", "A B", "exclusive", "net1", min_rate_bps=2 * RATE_BPS)],
            "min_rate 200M is more than A can carry in net1: its links have 100M there",
        ),
        (
            [
                job("a", "A B", "exclusive", "net2", end_s=60.0),
                job("b", "A B", min_rate_bps=3 * RATE_BPS, begin_s=1),
            ],
            "min_rate 300M is more than A has free, 200M: net2 at A belongs to job a (u_a) until "
            "1970-01-01T00:01:00Z",
        ),
    ],
)
def test_a_refusal_says_what_is_in_the_way(jobs: list[Job], line: str) -> None:
    result = assign(flat(THREE), jobs)
    assert result.refused == {"b": f"job b (u_b): {line}"}
    assert "b" not in result.lanes
    # A refused job changes nothing for others, and it uses the common paths.
    without = assign(flat(THREE), [each for each in jobs if each.id != "b"])
    for pair in ("A B", "A C", "C A", "B D"):
        assert all_use(result, pair) == all_use(without, pair) == job_uses(result, "b", pair)


# ---- Changes


def test_a_new_job_moves_nobody_even_if_it_began_earlier() -> None:
    fabric = flat(THREE)
    first = assign(fabric, [job("b", "A B", "exclusive", begin_s=10)])
    assert lanes(first, "b") == ["net2"]
    both = assign(
        fabric,
        [job("a", "A B", "exclusive", begin_s=1), job("b", "A B", "exclusive", begin_s=10)],
        first,
    )
    assert lanes(both, "b") == ["net2"] and lanes(both, "a") == ["net3"]
    alone = assign(fabric, [job("a", "A B", "exclusive", begin_s=1)], both)
    assert lanes(alone, "a") == ["net3"]


def test_a_job_leaves_a_dead_lane_for_a_free_one_and_stays_there() -> None:
    fabric = flat(THREE)
    jobs = [job("a", "A B", "exclusive")]
    first = assign(fabric, jobs)
    second = assign(broken(fabric, "A:eth2"), jobs, first)
    assert (lanes(first, "a"), lanes(second, "a")) == (["net2"], ["net3"])
    assert lanes(assign(fabric, jobs, second), "a") == ["net3"]


def test_a_job_whose_lanes_are_all_dead_uses_the_common_paths_and_says_why() -> None:
    fabric = flat({"A": "net1 net2", "B": "net1 net2"})
    jobs = [job("a", "A B", "exclusive", "net2")]
    first = assign(fabric, jobs)
    hurt = assign(broken(fabric, "B:eth2"), jobs, first)
    assert lanes(hurt, "a") == ["net2"] and not hurt.refused
    assert job_uses(hurt, "a", "A B") == ["net1"]
    assert hurt.why("a", None, hurt.fabric.paths("A", "B")) == (
        "job a (u_a) has no live path of its own from A to B (net2): it uses the common paths"
    )
    new = assign(broken(fabric, "B:eth2"), jobs)
    assert new.refused["a"] == "job a (u_a): net2 is dead between A and B"


def test_faults_never_cut_off_everybody_else() -> None:
    fabric = flat({"A": "net1 net2", "B": "net1 net2"})
    jobs = [job("a", "A B", "exclusive", "net2")]
    hurt = assign(broken(fabric, "A:eth1"), jobs, assign(fabric, jobs))
    assert lanes(hurt, "a") == ["net2"]
    assert "net2" in all_use(hurt, "A B") and job_uses(hurt, "a", "A B") == ["net2"]


def test_a_job_whose_links_became_slower_keeps_its_lanes_and_says_so() -> None:
    fabric = flat({"A": "net1 net2", "B": "net1 net2"})
    jobs = [job("a", "A B", min_rate_bps=RATE_BPS)]
    slow = flat({"A": "net1 net2", "B": "net1 net2"}, {"net1": RATE_BPS // 10, "net2": 10**6})
    first = assign(fabric, jobs)
    second = assign(slow, jobs, first)
    assert lanes(second, "a") == lanes(first, "a") == ["net1"]
    assert second.notes["a"] == (
        "job a (u_a): its links changed, and no longer do what it asks for"
    )
    # A host that comes, and that has only net1, needs it for itself.
    late = flat({"A": "net1 net2", "B": "net1 net2", "C": "net1"}, {"net1": 10**7, "net2": 10**6})
    third = assign(late, jobs, first)
    assert third.refused["a"] == (
        "job a (u_a): min_rate 100M is more than A can carry: its links have 11M there"
    )
    assert all_use(third, "A C") == ["net1"]


def test_a_host_that_is_down_does_not_make_a_job_easier_to_accept() -> None:
    fabric = broken(flat(THREE), "D:eth1", "C:eth1", "C:eth2")
    refused = assign(fabric, [job("a", "A B", "exclusive", "net1")]).refused
    assert "net1 is all that is left for everybody else between A and D" in refused["a"]
    refused = assign(fabric, [job("a", "A C", min_rate_bps=3 * RATE_BPS)]).refused
    assert "min_rate 300M is more than A can carry: its links have 200M there" in refused["a"]


def test_a_job_that_uses_its_reservations_paths_has_them_and_needs_none() -> None:
    fabric = flat(THREE)
    holder = job("reservation", "A B C", "exclusive", "net2")
    rider = job("a", "A B", begin_s=5, within="reservation")
    both = assign(fabric, [holder, rider])
    assert not both.refused and job_uses(both, "a", "A B") == ["net2"]
    assert all_use(both, "A B") == ["net1", "net3"]
    after = assign(fabric, [rider], both)
    assert job_uses(after, "a", "A B") == ["net1", "net2", "net3"]


# ---- Fat trees


def test_exclusive_lanes_of_a_fat_tree_share_no_link_and_others_leave_their_links() -> None:
    fabric = fat(2, 4, 2)
    jobs = [job("a", "n1 n3", "exclusive"), job("b", "n2 n4", "exclusive", begin_s=1)]
    first = assign(fabric, jobs[:1])
    assert lanes(first, "a") == ["leaf1/102"]
    # n2 and n4 are not in the job, but they leave the links of its lane to it.
    assert all_use(first, "n2 n4") == ["leaf1/0", "leaf1/103", "leaf1/104"]
    both = assign(fabric, jobs, first)
    assert lanes(both, "a") == ["leaf1/102"] and lanes(both, "b") == ["leaf1/103"]
    links = {
        name: {
            link
            for path in both.paths(name, None, fabric.paths(*pair))
            for link in path.links[1:-1]
        }
        for name, pair in (("a", ("n1", "n3")), ("b", ("n2", "n4")))
    }
    assert links["a"] and links["b"] and not links["a"] & links["b"]
    for pair in ("n1 n4", "n2 n3", "n2 n4", "n1 n3"):
        assert all_use(both, pair) == ["leaf1/0", "leaf1/104"]


def test_two_vlans_are_too_few_for_two_separate_jobs() -> None:
    """n2 and n3 need a VLAN which is neither job's, so both jobs get the same VLAN."""
    fabric = fat(2, 2, 2)
    jobs = [job("a", "n1 n3", "exclusive"), job("b", "n2 n4", "exclusive", begin_s=1)]
    both = assign(fabric, jobs)
    assert lanes(both, "a") == lanes(both, "b") == ["leaf1/102"]
    assert both.notes["b"] == (
        "job b (u_b): shares leaf1/102>, leaf2/102>, up2/1> and 1 more with job a (u_a); its NICs "
        "also carry others' frames, since all VLANs share them"
    )
    # Where a rate is at stake, that is no lane of its own.
    rate = RATE_BPS // 2
    free = assign(fabric, [jobs[0], job("b", "n2 n4", begin_s=1, min_rate_bps=rate)])
    assert free.refused["b"] == (
        "job b (u_b): leaf1/0 is all that is left for everybody else between n2 and n3, since "
        "leaf1/102 at n3 belongs to job a (u_a) until its end"
    )
    named = job("b", "n2 n4", "paths", "leaf1/102", begin_s=1, min_rate_bps=rate)
    assert assign(fabric, [jobs[0], named]).refused["b"] == (
        "job b (u_b): leaf1/102 crosses leaf1/102>, which job a (u_a) until its end also needs"
    )


def test_hosts_of_one_switch_share_their_only_path() -> None:
    fabric = fat(2, 2, 2)
    one = assign(fabric, [job("a", "n1 n2", "exclusive")])
    assert one.lanes["a"] == frozenset() and not one.refused
    assert "no lane" in one.notes["a"]
    assert job_uses(one, "a", "n1 n2") == all_use(one, "n1 n2") == ["-"]


def test_a_rate_in_a_fat_tree_is_limited_by_the_nic_that_all_vlans_share() -> None:
    fabric = fat(2, 4, 2)
    one = assign(fabric, [job("a", "n1 n3", min_rate_bps=RATE_BPS)])
    assert len(one.lanes["a"]) == 1
    assert "since all VLANs share them" in one.notes["a"]
    two = assign(
        fabric,
        [
            job("a", "n1 n3", min_rate_bps=RATE_BPS * 6 // 10, end_s=60.0),
            job("b", "n1 n4", min_rate_bps=RATE_BPS // 2, begin_s=1),
        ],
    )
    assert two.refused["b"] == (
        "job b (u_b): min_rate 50M is more than n1 has free, 40M: job a (u_a) until "
        "1970-01-01T00:01:00Z has the rest"
    )
