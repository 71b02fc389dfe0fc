# SPDX-License-Identifier: Apache-2.0
"""Laws of assignments, on random fabrics, jobs and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.jobs.assign import Assignment, assign
from ri2n_sdn.jobs.lanes import LaneMap
from ri2n_sdn.jobs.model import Job
from tests.unit.job_cases import RATE_BPS, broken, fat, flat, job

NETWORKS = ("net1", "net2", "net3", "net4")
FAT = {
    "2x2": fat(2, 2, 2),
    "2x4": fat(2, 4, 2),
    "3x4, two each": fat(3, 4, 2, per_pair=2),
    "2x3 and flat": fat(2, 3, 2, second=True),
}


@st.composite
def flat_fabrics(draw: st.DrawFn) -> Fabric:
    hosts = draw(st.integers(2, 5))
    networks = st.lists(st.sampled_from(NETWORKS), min_size=1, max_size=4)
    return flat(
        {name: " ".join(sorted(draw(networks))) for name in "ABCDE"[:hosts]},
        draw(st.dictionaries(st.sampled_from(NETWORKS), st.sampled_from([RATE_BPS // 2, 10**9]))),
    )


def fabrics() -> st.SearchStrategy[Fabric]:
    return flat_fabrics() | st.sampled_from(sorted(FAT)).map(FAT.__getitem__)


@st.composite
def jobs_of(draw: st.DrawFn, fabric: Fabric, most: int = 4) -> list[Job]:
    nics = [f"{host.name}:{nic.name}" for host in fabric.hosts.values() for nic in host.nics]
    names = [*fabric.networks, "leaf1/102", "vlan:0", "vlan:103", "eth1", *nics, "nowhere"]
    result = []
    for number in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(["shared", "paths", "exclusive", "exclusive", "isolated"]))
        hosts = draw(st.sets(st.sampled_from([*sorted(fabric.hosts), "gone"]), min_size=1))
        named = draw(st.sets(st.sampled_from(names), min_size=kind == "paths", max_size=2))
        tables = draw(st.dictionaries(st.just(10), st.sampled_from(names), max_size=1))
        result.append(
            job(
                f"j{number}",
                " ".join(sorted(hosts)),
                kind,
                "" if kind == "shared" else " ".join(sorted(named)),
                begin_s=float(draw(st.integers(0, 3))),
                tables={} if kind == "shared" else tables,
                min_rate_bps=draw(st.none() | st.sampled_from([1, RATE_BPS // 2, RATE_BPS * 2])),
            )
        )
    return result


@st.composite
def cases(draw: st.DrawFn) -> tuple[Fabric, list[Job]]:
    fabric = draw(fabrics())
    return broken(fabric, *draw(dead_nics(fabric))), draw(jobs_of(fabric))


def dead_nics(fabric: Fabric) -> st.SearchStrategy[set[str]]:
    nics = [f"{host.name}:{nic.name}" for host in fabric.hosts.values() for nic in host.nics]
    return st.sets(st.sampled_from(nics), max_size=3)


def said(result: Assignment) -> tuple[object, ...]:
    return result.lanes, set(result.refused), result.owners, result.notes


def check(result: Assignment, jobs: Sequence[Job]) -> None:
    """The laws that hold whatever happened."""
    fabric = result.fabric
    held: dict[tuple[str, object], str] = {}
    for name, lanes in result.lanes.items():
        for host in result.jobs[name].hosts:
            for lane in lanes:
                assert held.setdefault((host, lane), name) == name
    for host in fabric.hosts:
        on = [each for each in jobs if host in each.hosts and each.id not in result.refused]
        if result.owners.get(host) is not None:
            assert [each.id for each in on] == [result.owners.get(host)]
    for pair in ((a, b) for a in fabric.hosts for b in fabric.hosts if a != b):
        paths = fabric.paths(*pair)
        some = [result.common(*pair, paths)]
        some += [result.paths(each.id, dscp, paths) for each in jobs for dscp in (None, 10)]
        for found in some:
            assert set(found) <= set(paths) and bool(found) == bool(paths)
            assert any(path.alive for path in found) == any(path.alive for path in paths)
        for name in {*result.refused, "unknown"}:
            assert result.paths(name, None, paths) == some[0]
    for line in (*result.refused.values(), *result.notes.values()):
        assert line.isprintable()
    for name, line in result.refused.items():
        assert line.startswith(f"job {name} ({result.jobs[name].user}): ")
        assert name not in result.lanes and name not in result.owners.values()


@given(cases(), st.randoms(use_true_random=False))
def test_laws(case: tuple[Fabric, list[Job]], random: Random) -> None:
    fabric, jobs = case
    result = assign(fabric, jobs)
    check(result, jobs)
    shuffled = list(jobs)
    random.shuffle(shuffled)
    assert assign(fabric, shuffled) == result
    assert said(assign(fabric, jobs, result)) == said(result)
    accepted = [each for each in jobs if each.id not in result.refused]
    assert said(assign(fabric, accepted)) == (result.lanes, set(), result.owners, result.notes)


@given(st.data())
def test_new_jobs_and_leaving_jobs_move_nobody(data: st.DataObject) -> None:
    fabric, jobs = data.draw(cases())
    first = assign(fabric, jobs[1:])
    second = assign(fabric, jobs, first)
    check(second, jobs)
    accepted = {each.id for each in jobs[1:]} - set(first.refused)
    assert not accepted & set(second.refused)
    for name in accepted:
        assert second.lanes.get(name) == first.lanes.get(name)
    third = assign(fabric, jobs[1:], second)
    for name in accepted:
        assert third.lanes.get(name) == first.lanes.get(name)


@given(st.data())
@settings(max_examples=150)
def test_faults_refuse_no_job_that_is_there(data: st.DataObject) -> None:
    fabric, jobs = data.draw(cases())
    result = assign(fabric, jobs)
    for _ in range(2):
        accepted = set(result.jobs) - set(result.refused)
        result = assign(broken(fabric, *data.draw(dead_nics(fabric))), jobs, result)
        check(result, jobs)
        assert not accepted & set(result.refused), result.refused


@given(st.data())
def test_others_keep_away_from_the_lanes_of_a_healthy_fabric(data: st.DataObject) -> None:
    fabric = data.draw(fabrics())
    jobs = data.draw(jobs_of(fabric))
    result = assign(fabric, jobs)
    lane_map = LaneMap(fabric)
    for pair in ((a, b) for a in fabric.hosts for b in fabric.hosts if a != b):
        paths = fabric.paths(*pair)
        taken = {host: result.taken.get(host, {}) for host in pair}
        isolated = any(result.owners.get(host) for host in pair)
        for path in () if isolated else result.common(*pair, paths):
            lane = lane_map.of(path)
            assert all(lane not in lanes for lanes in taken.values())
        for each in jobs:
            for path in () if isolated else result.paths(each.id, None, paths):
                lane = lane_map.of(path)
                assert {lanes.get(lane, each.id) for lanes in taken.values() if lane} <= {each.id}


@given(st.data())
def test_lanes_carry_the_rate_that_was_asked_for(data: st.DataObject) -> None:
    fabric = data.draw(flat_fabrics())
    jobs = data.draw(jobs_of(fabric))
    result = assign(fabric, jobs)
    lane_map = LaneMap(fabric)
    for name, lanes in result.lanes.items():
        wanted = result.jobs[name].policy.min_rate_bps or 0
        members = [host for host in result.jobs[name].hosts if host in fabric.hosts]
        for host in members:
            nics = {
                path.own
                for peer in members
                if peer != host
                for path in fabric.paths(host, peer)
                if lane_map.of(path) in lanes
            }
            talks = any(fabric.paths(host, peer) for peer in members if peer != host)
            assert not talks or sum(nic.rate_bps for nic in nics) >= wanted


@given(st.data())
def test_a_job_that_asks_for_more_takes_no_more_lanes_than_it_needs(data: st.DataObject) -> None:
    """In networks of one rate, the number of lanes is the rate through a lane's, rounded up."""
    count = data.draw(st.integers(2, 4))
    networks = " ".join(NETWORKS[:count])
    fabric = flat({"A": networks, "B": networks, "C": networks})
    rate = data.draw(st.integers(1, 5 * RATE_BPS))
    result = assign(fabric, [job("a", "A B", min_rate_bps=rate)])
    needed = -(-rate // RATE_BPS)
    if needed < count:
        assert len(result.lanes["a"]) == needed
    else:
        assert "a" in result.refused


def test_a_job_that_grows_keeps_its_lanes_or_is_refused_itself() -> None:
    fabric = flat({"A": "net1 net2 net3", "B": "net1 net2 net3", "C": "net1 net2 net3"})
    jobs = [job("a", "A B", "exclusive"), job("b", "C", "exclusive", "net1", begin_s=1)]
    first = assign(fabric, jobs)
    grown = [jobs[0], replace(jobs[1], hosts=("B", "C"))]
    second = assign(fabric, grown, first)
    assert second.lanes["a"] == first.lanes["a"] and "net1 at B belongs to" in second.refused["b"]
