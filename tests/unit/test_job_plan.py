# SPDX-License-Identifier: Apache-2.0
"""Jobs and their paths become classes, channels and walls of each host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.jobs.assign import Assignment, assign
from ri2n_sdn.jobs.declaration import UNKNOWN_CLASS, Declaration
from ri2n_sdn.jobs.members import Agreement, agree
from ri2n_sdn.jobs.model import Job, PathTable, Policy
from ri2n_sdn.pipeline.helper_texts import channels_to, links_to
from ri2n_sdn.pipeline.job_plan import Channels, job_secret, number_channels, plan_jobs
from ri2n_sdn.pipeline.jobs import NO_JOBS
from tests.unit.bridge_model import Cluster

KEY = bytes(range(32))
THREE = {name: ["n1", "n2", "n3"] for name in "ABC"}


def declared(name: str, hosts: str, policy: Policy, number: int = 1, **more: Any) -> list[Any]:
    job = Job(name, f"user-of-{name}", 20001, tuple(hosts), policy, more.pop("begin_s", 1.0))
    return [Declaration(host, number, job) for host in hosts]


def decided(fabric: Fabric, *jobs: Iterable[Declaration]) -> tuple[Fabric, Agreement, Assignment]:
    agreement = agree([each for job in jobs for each in job], {})
    assignment = assign(fabric, list(agreement.jobs.values()))
    return replace(fabric, reserved=assignment), agreement, assignment


def test_a_job_with_common_paths_needs_no_rows() -> None:
    fabric = Cluster(THREE).fabric
    assert plan_jobs(*decided(fabric, declared("a", "AB", Policy())), KEY) == {}


def test_each_host_gets_the_class_that_it_gave_the_job() -> None:
    fabric = Cluster(THREE).fabric
    job = declared("a", "AB", Policy("exclusive"))
    job[1] = replace(job[1], number=9)
    plan = plan_jobs(*decided(fabric, job), KEY)
    assert {host: [t.number for t in jobs.tables] for host, jobs in plan.items()} == {
        "A": [1],
        "B": [9],
    }
    assert set(plan["A"].tables[0].paths) == {"B"}, "C is not in the job"


def test_a_host_whose_class_is_unknown_gets_walls_alone_and_the_others_what_they_need() -> None:
    fabric = Cluster(THREE).fabric
    for kind in ("exclusive", "isolated"):
        job = declared("a", "AB", Policy(kind))
        whole = plan_jobs(*decided(fabric, job), KEY)
        job[1] = replace(job[1], number=UNKNOWN_CLASS)
        plan = plan_jobs(*decided(fabric, job), KEY)
        assert plan["A"] == whole["A"] and whole["B"] != NO_JOBS
        assert plan.get("B", NO_JOBS) == replace(whole["B"], tables=())


def test_named_paths_hold_towards_every_host() -> None:
    fabric = Cluster(THREE).fabric
    policy = Policy("paths", (PathTable(None, ("n1",)), PathTable(10, ("n2",))))
    plan = plan_jobs(*decided(fabric, declared("a", "AB", policy)), KEY)
    by_dscp = {table.dscp: table.paths for table in plan["A"].tables}
    assert set(by_dscp) == {None, 10} and set(by_dscp[10]) == {"B", "C"}
    assert {path.network for path in by_dscp[None]["C"]} == {"n1"}


def test_an_isolated_jobs_hosts_share_a_secret_that_another_job_has_not() -> None:
    fabric = Cluster(THREE).fabric
    jobs = declared("a", "AB", Policy("isolated")), declared("b", "C", Policy("isolated"), 2)
    plan = plan_jobs(*decided(fabric, *jobs), KEY)
    walls = {host: jobs.enclosure for host, jobs in plan.items()}
    assert walls["A"] == walls["B"] and walls["A"] is not None and walls["C"] is not None
    assert walls["A"].members == {"A", "B"} and walls["A"].key != walls["C"].key
    assert job_secret(KEY, "a") != job_secret(bytes(32), "a")


def test_both_ends_know_a_channel_by_the_same_number_and_tag() -> None:
    fabric = Cluster(THREE, helpers="ABC").fabric
    whole = decided(
        fabric,
        declared("a", "AB", Policy("exclusive", min_rate_bps=10**7)),
        declared("b", "ABC", Policy("paths", (PathTable(None, ("n3",)),)), 2),
    )
    channels = number_channels(*whole, KEY, {})
    assert set(channels["A", "B"]) == {"a", "b"} and set(channels["A", "C"]) == {"b"}
    for (one, other), of_pair in channels.items():
        for key, channel in of_pair.items():
            back = channels[other, one][key]
            assert (channel.number, channel.tag) == (back.number, back.tag)
    assert len({channel.number for channel in channels["A", "B"].values()}) == 2
    assert channels["A", "B"]["b"].tag == channels["A", "C"]["b"].tag
    plan = plan_jobs(*whole, KEY, channels)
    (table,) = [table for table in plan["A"].tables if table.number == 1]
    assert table.channels == {"B": channels["A", "B"]["a"].number}


def test_hosts_without_a_helper_have_no_channel() -> None:
    fabric = Cluster(THREE, helpers="AC").fabric
    whole = decided(fabric, declared("a", "ABC", Policy("exclusive")))
    assert set(number_channels(*whole, KEY, {})) == {("A", "C"), ("C", "A")}


@given(st.lists(st.sets(st.sampled_from("abcdef"), max_size=6), min_size=1, max_size=8))
def test_a_channel_keeps_its_number_while_it_is_there(steps: list[set[str]]) -> None:
    fabric = Cluster(THREE, helpers="AB").fabric
    policy = Policy("paths", (PathTable(None, ("n1",)),))
    before: Channels = {}
    for names in steps:
        jobs = [declared(name, "AB", policy, 1 + "abcdef".index(name)) for name in sorted(names)]
        channels = number_channels(*decided(fabric, *jobs), KEY, before)
        now = {key: each.number for key, each in channels.get(("A", "B"), {}).items()}
        kept = {key: each.number for key, each in before.get(("A", "B"), {}).items()}
        assert set(now) == names and len(set(now.values())) == len(names)
        assert all(now[key] == kept[key] for key in now.keys() & kept.keys())
        before = channels


def test_helpers_are_told_the_links_of_each_channel_and_those_of_everybody() -> None:
    fabric = Cluster(THREE, helpers="ABC").fabric
    decision = decided(fabric, declared("a", "AB", Policy("exclusive", min_rate_bps=10**7)))
    reserved = decision[0]
    channels = number_channels(*decision, KEY, {})
    told, common = channels_to(reserved, "A", "B", list(channels["A", "B"].values()))
    links = reserved.helper_links("A", "B")
    (channel,) = told
    own = {number for number, path in links.items() if path in channels["A", "B"]["a"].paths}
    assert channel.links == own and common == frozenset(set(links) - own)
    assert (channel.min_kbps, channel.min_in_kbps) == (10_000, 10_000)
    assert channels_to(reserved, "A", "C", ())[1] == common, "A's NIC there is the job's"
    owned = {path.key for path in channels["A", "B"]["a"].paths}
    for link in links_to(reserved, "A", "B", {}, {}, None, owned):
        assert link.rate_kbps > 0 and link.limit_kbps > 0
    for link in links_to(reserved, "A", "C", {}, {}):
        assert (link.rate_kbps > 0) == (link.number in common)
