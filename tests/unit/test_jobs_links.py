# SPDX-License-Identifier: Apache-2.0
"""A min_rate in fat trees: what a job's hosts send together fits every link between switches."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ri2n_sdn.fabric.model import Fabric
from ri2n_sdn.jobs.admit import conflict
from ri2n_sdn.jobs.assign import Assignment, assign
from ri2n_sdn.jobs.model import Reservation
from ri2n_sdn.vlan.routing import DeadParts
from tests.unit.job_cases import RATE_BPS, fat, flat, job, lanes

FAT = {
    "2x2": fat(2, 2, 2),
    "2x4": fat(2, 4, 4),
    "3x4, two each": fat(3, 4, 2, per_pair=2),
    "4x4, two each": fat(4, 4, 2, per_pair=2),
    "2x3 and flat": fat(2, 3, 2, second=True),
}
HALF = RATE_BPS // 2


def names(count: int) -> str:
    return " ".join(f"n{number}" for number in range(1, count + 1))


def loads_bps(
    result: Assignment, name: str, traffic_bps: dict[tuple[str, str], float]
) -> dict[str, float]:
    """What a job's traffic puts on each link between switches, as the slot tables spread it."""
    loads: dict[str, float] = {}
    for pair, demand_bps in traffic_bps.items():
        paths = result.paths(name, None, result.fabric.paths(*pair))
        for path in paths:
            share = path.rate_bps / sum(each.rate_bps for each in paths)
            for link in path.route.links:
                loads[link] = loads.get(link, 0.0) + demand_bps * share
    return loads


def most_of_a_link(result: Assignment, name: str, orders: list[tuple[str, ...]]) -> float:
    """The greatest load of such a link, of its rate, when each host sends min_rate to another.

    Each order is such a traffic. All traffic that the hosts may send is a mixture of them.
    """
    rate_bps = result.jobs[name].policy.min_rate_bps or 0
    capacities = result.fabric.capacities_bps()
    most = 0.0
    for order in orders:
        pairs = zip(result.jobs[name].hosts, order, strict=True)
        traffic = {pair: float(rate_bps) for pair in pairs if pair[0] != pair[1]}
        loads = loads_bps(result, name, traffic)
        most = max([most, *(load / capacities[link] for link, load in loads.items())])
    return most


@pytest.mark.parametrize(
    ("uppers", "per_leaf", "most_lanes"), [(2, 2, 1), (4, 8, 3), (4, 4, 3), (4, 3, 3)]
)
def test_the_highest_rate_is_what_the_links_have_for_each_host(
    uppers: int, per_leaf: int, most_lanes: int
) -> None:
    """All hosts of a leaf may send at once; one VLAN stays free for everybody else."""
    fabric = fat(2, uppers, per_leaf)
    hosts = names(2 * per_leaf)
    for count in range(1, most_lanes + 1):
        rate = min(count * RATE_BPS // per_leaf, RATE_BPS)
        result = assign(fabric, [job("a", hosts, min_rate_bps=rate)])
        assert not result.refused and len(result.lanes["a"]) == min(count, per_leaf)
        if count * RATE_BPS // per_leaf < RATE_BPS:
            more = assign(fabric, [job("a", hosts, min_rate_bps=rate + 1)])
            assert len(more.lanes.get("a", ())) == (count + 1 if count < most_lanes else 0)
            assert bool(more.refused) == (count == most_lanes)


def test_sixteen_hosts_cannot_have_half_a_nic_each() -> None:
    fabric = fat(2, 4, 8)
    wanted = job("a", names(16), min_rate_bps=HALF)
    line = (
        "job a (u_a): min_rate 50M is more than leaf1/102> can carry: its rate is 100M, and the "
        "job would send 133.4M over it"
    )
    assert assign(fabric, [wanted]).refused == {"a": line}
    assert conflict(fabric, [], [], wanted, 0.0) == line
    reserved = Reservation(
        id="week",
        user="eve",
        hosts=wanted.hosts,
        begin_s=10.0,
        end_s=20.0,
        policy=wanted.policy,
    )
    found = conflict(fabric, [], [reserved], reserved, 0.0)
    assert found is not None and "more than leaf1/102> can carry" in found


def test_few_hosts_beyond_a_link_send_no_more_than_they_may_receive() -> None:
    """One host on the other leaf receives at most its min_rate, from however many hosts."""
    fabric = fat(2, 4, 8)
    result = assign(fabric, [job("a", f"{names(8)} n9", min_rate_bps=RATE_BPS)])
    assert not result.refused and len(result.lanes["a"]) == 1
    two = assign(fabric, [job("a", f"{names(8)} n9 n10", min_rate_bps=RATE_BPS)])
    assert len(two.lanes["a"]) == 2


def test_other_jobs_are_named_when_it_would_fit_without_them() -> None:
    fabric = fat(2, 4, 4)
    first = job("a", "n1 n5", "exclusive", end_s=60.0)
    rate = 3 * RATE_BPS // 4
    assert not assign(fabric, [job("b", names(8), min_rate_bps=rate)]).refused
    refused = assign(fabric, [first, job("b", names(8), begin_s=1, min_rate_bps=rate)]).refused
    assert refused["b"] == (
        "job b (u_b): min_rate 75M is more than leaf1/103> can carry: its rate is 100M, and the "
        "job would send 150M over it, since leaf1/102 at n1 belongs to job a (u_a) until "
        "1970-01-01T00:01:00Z"
    )
    # It may have its place as soon as the other one is gone.
    later = conflict(fabric, [first], [], job("b", names(8), begin_s=1, min_rate_bps=rate), 1.0)
    assert later is not None and later.endswith("there is room from 1970-01-01T00:01:00Z")


def test_a_fault_refuses_no_job_that_is_there() -> None:
    """Three live VLANs are too few for a job that needs three, since others keep one of them."""
    one = job("a", names(8), min_rate_bps=3 * RATE_BPS // 4)
    first = assign(fat(2, 4, 4), [one])
    assert len(first.lanes["a"]) == 3
    faulty = fat(2, 4, 4, dead=DeadParts(frozenset((1, link) for link in range(16))))
    assert "can carry: its rate is 100M" in assign(faulty, [one]).refused["a"]
    assert assign(faulty, [one], first).lanes == first.lanes


def test_networks_of_one_switch_have_no_links_between_switches() -> None:
    fabric = flat(dict.fromkeys(names(8).split(), "net1 net2"))
    result = assign(fabric, [job("a", names(8), min_rate_bps=RATE_BPS)])
    assert lanes(result, "a") == ["net1"]


@given(st.sampled_from(sorted(FAT)), st.data())
def test_no_traffic_that_is_promised_loads_a_link_above_its_rate(
    which: str, data: st.DataObject
) -> None:
    """Each host sends and receives at most min_rate: any such traffic fits the job's lanes."""
    fabric: Fabric = FAT[which]
    hosts = data.draw(st.permutations(sorted(fabric.hosts)))
    hosts = hosts[: data.draw(st.integers(2, len(hosts)))]
    rate = data.draw(st.integers(1, 2 * RATE_BPS) | st.sampled_from([HALF, RATE_BPS // 4]))
    kind = data.draw(st.sampled_from(["shared", "exclusive"]))
    result = assign(fabric, [job("a", " ".join(hosts), kind, min_rate_bps=rate)])
    assume(not result.refused)
    drawn = st.lists(st.permutations(hosts).map(tuple), min_size=1, max_size=8)
    half = len(hosts) // 2
    orders = [*data.draw(drawn), (*sorted(hosts)[half:], *sorted(hosts)[:half])]
    assert most_of_a_link(result, "a", orders) <= 1 + 1e-6


def test_the_worst_traffic_fills_the_link_of_a_job_that_has_just_room() -> None:
    """So the rule refuses no job with one lane that would have fitted."""
    fabric = fat(2, 2, 2)
    result = assign(fabric, [job("a", names(4), min_rate_bps=HALF)])
    orders = list(permutations(result.jobs["a"].hosts))
    assert most_of_a_link(result, "a", orders) == pytest.approx(1.0)
