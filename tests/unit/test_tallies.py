# SPDX-License-Identifier: Apache-2.0
"""What the controller counts for monitoring: tables by NIC, outages, lengths of rounds."""

from __future__ import annotations

import random
import struct
from collections import Counter
from dataclasses import astuple

import pytest

from ri2n_sdn.apps import openflow
from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.counts import Counts
from ri2n_sdn.apps.openflow import ofp
from ri2n_sdn.apps.slot_groups import send_slots
from ri2n_sdn.apps.tallies import HelperSums, Lengths, Outages
from ri2n_sdn.apps.tokens import Tokens
from ri2n_sdn.apps.watching import Collector
from ri2n_sdn.contract.documents import Activity
from ri2n_sdn.contract.state import difference
from ri2n_sdn.fabric.model import PairKey, PathKey
from ri2n_sdn.weights.loop import PairDecision
from tests.unit.fake_hosts import FakeChannel, cluster_of, plan

FIRST, SECOND = (1, 1, 0), (2, 2, 0)


def decided(*slots: PathKey, moved: int = 0) -> PairDecision:
    return PairDecision({}, None, slots, moved)


def described(cluster: Cluster) -> dict[str, Activity]:
    found: dict[str, Activity] = Collector(cluster, Tokens(None)).collect()["activity"]
    return found


def test_slots_by_nic_follow_the_tables_of_active_pairs() -> None:
    cluster = cluster_of({name: FakeChannel() for name in "ABC"})
    plan(cluster)
    send_slots(cluster, {("A", "B"): decided(FIRST, FIRST, SECOND, moved=3)})
    assert described(cluster)["A"] == {
        "active_pairs": 1,
        "reweights": 0,
        "slots_moved": 0,
        "slots": {"eth0": 2, "eth1": 1},
    }
    send_slots(
        cluster,
        {
            ("A", "B"): decided(FIRST, SECOND, SECOND, moved=1),
            ("A", "C"): decided(FIRST, FIRST, FIRST),
        },
    )
    found = described(cluster)["A"]
    assert found["slots"] == {"eth0": 4, "eth1": 2}
    assert (found["active_pairs"], found["reweights"], found["slots_moved"]) == (2, 1, 1)
    assert cluster.counters["slots_moved"] == 1
    send_slots(cluster, {("A", "C"): decided()})
    assert described(cluster)["A"]["slots"] == {"eth0": 3}, "an empty decision keeps the table"


def test_slots_are_those_of_all_tables_after_any_decisions() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    cluster = cluster_of({name: FakeChannel() for name in "ABC"})
    plan(cluster)
    every: list[PairKey] = [(one, other) for one in "ABC" for other in "ABC" if one != other]
    for _ in range(30):
        chosen = draw.sample(every, draw.randint(0, len(every)))
        send_slots(
            cluster,
            {
                pair: decided(*(draw.choice((FIRST, SECOND)) for _ in range(4)), moved=1)
                for pair in chosen
            },
        )
        found = cluster.measured.tallies.activity
        for name in "ABC":
            tables = [slots for pair, slots in cluster.pair_slots.items() if pair[0] == name]
            wanted = Counter(path[0] for slots in tables for path in slots)
            assert +found[name].slots == wanted if name in found else not tables
            assert found[name].pairs == len(tables) if name in found else True


def test_a_host_that_was_forgotten_leaves_nothing_and_harms_nothing() -> None:
    cluster = cluster_of({name: FakeChannel() for name in "AB"}, dead=[("A", 2)])
    plan(cluster)
    send_slots(cluster, {("A", "B"): decided(FIRST, SECOND)})
    assert cluster.measured.tallies.outages.nics
    cluster.forget(cluster.members["A"], "host_alone")
    assert not cluster.measured.tallies.outages.nics and not cluster.measured.tallies.activity
    send_slots(cluster, {})
    assert not cluster.measured.tallies.activity


def test_outages_begin_and_end_with_what_probes_say_and_wait_for_hosts_that_are_away() -> None:
    dead: list[tuple[str, int]] = [("A", 2)]
    outages = Outages()

    def look(now_s: float, away: bool = False) -> None:
        channels = {"A": None if away else FakeChannel(), "B": FakeChannel()}
        outages.look(now_s, cluster_of(channels, dead=dead).fabric())

    look(10.0)
    outage = outages.nics["A", "eth1"]
    assert astuple(outage) == (1, 0.0, 10.0)
    look(11.0)
    dead.clear()
    look(12.0, away=True)
    assert outage.since_s == 10.0, "nothing is known of a host that is away"
    look(12.5)
    assert astuple(outage) == (1, 2.5, None)
    dead.append(("A", 2))
    look(20.0)
    assert astuple(outage) == (2, 2.5, 20.0)
    assert sum(outages.lengths.counts) == 1 and outages.lengths.sum_s == 2.5
    assert list(outages.nics) == [("A", "eth1")], "a NIC that always worked costs nothing"


def test_a_host_that_renames_its_nics_all_the_time_costs_no_more_memory() -> None:
    outages = Outages()
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel()}, dead=[("A", 2)])
    port = cluster.members["A"].ports[2]
    for number in range(1000):
        port.name = f"x{number}"
        cluster.topology_changed()
        outages.look(float(number), cluster.fabric())
    assert len(outages.nics) < 30
    assert ("A", "x999") in outages.nics and ("A", "x998") in outages.nics, "the last ones are kept"
    port.name = "x998"
    cluster.topology_changed()
    outages.look(1000.0, cluster.fabric())
    assert outages.nics["A", "x998"].count == 1, "its outage goes on"


def test_an_outage_is_seen_by_watchers_and_does_not_change_as_time_goes_by() -> None:
    cluster = cluster_of({name: FakeChannel() for name in "AB"}, dead=[("A", 2)])
    collector = Collector(cluster, Tokens(None))
    state = collector.collect()
    entry = state["outages"]["A"]["eth1"]
    assert entry["count"] == 1 and entry["seconds"] == 0 and entry["since_s"] > 1.5e9
    cluster.topology_changed()
    again = collector.collect()
    assert "outages" not in difference(state, again)


def test_a_time_is_counted_at_the_first_bound_that_is_not_less() -> None:
    lengths = Lengths((0.1, 1.0))
    for length_s in (-1.0, 0.1, 0.100001, 1.0, 7.0):
        lengths.add(length_s)
    assert lengths.counts == [2, 2, 1] and lengths.sum_s == pytest.approx(8.200001)
    assert lengths.described()["bounds_s"] == [0.1, 1.0]


def test_messages_are_counted_by_type_also_when_many_go_at_once() -> None:
    messages = Counts()
    head = struct.Struct("!BBHI")
    data = head.pack(6, ofp.OFPT_FLOW_MOD, 16, 1) + b"\0" * 8
    data += head.pack(6, ofp.OFPT_BARRIER_REQUEST, 8, 2) * 2
    data += head.pack(6, 222, 0, 3)
    openflow._count_messages(messages, data)
    openflow._count_messages(messages, head.pack(6, ofp.OFPT_BARRIER_REQUEST, 8, 4))
    openflow._count_messages(messages, head.pack(6, 223, 30, 5))
    assert messages.described() == {"flow_mod": 1, "barrier_request": 3, "unknown": 2}


@pytest.mark.parametrize(
    ("running_s", "links", "sent", "grown"),
    [
        (2.0, 2, 150, 50),
        (2.0, 2, 2**33 - 20 - 2**32, 0),
        (2.0, 3, 9_000_000, 0),
        (2.0, 1, 3, 0),
        (0.5, 2, 7, 7),
    ],
    ids=["more", "nonsense", "a link comes", "a link goes", "it began anew"],
)
def test_sums_of_a_helper_only_grow(running_s: float, links: int, sent: int, grown: int) -> None:
    sums = HelperSums()

    def take(running_s: float, links: int, sent: int) -> int:
        rest = dict.fromkeys(("usable", "striping", "received", "lost", "repeated"), 0)
        sums.take(running_s, {"links": links, "sent": sent, **rest})
        assert sums.document["links"] == links
        return sums.document["sent"]

    assert take(1.0, 2, 100) == 0, "a controller that starts anew has seen none of it"
    assert take(running_s, links, sent) == grown
    assert take(running_s + 1, links, sent + 5) == grown + 5


def test_a_count_of_a_link_that_wraps_round_goes_on() -> None:
    sums = HelperSums()
    rest = dict.fromkeys(("usable", "striping", "received", "lost", "repeated"), 0)
    sums.take(1.0, {"links": 2, "sent": 2**32 - 10 + 500, **rest})
    sums.take(2.0, {"links": 2, "sent": 20 + 600, **rest})
    assert sums.document["sent"] == 30 + 100


def test_bytes_are_left_out_until_they_were_read() -> None:
    cluster = cluster_of({"A": FakeChannel(), "B": None})
    collector = Collector(cluster, Tokens(None))
    assert collector.collect()["bytes"] == {}, "0 would look like a new start"
    port = cluster.members["A"].ports[1]
    port.tx_bytes, port.rx_bytes, port.counted_s = 5, 7, 1.0
    assert collector.collect()["bytes"] == {"A": {"eth0": [5, 7]}}
