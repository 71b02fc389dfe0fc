# SPDX-License-Identifier: Apache-2.0
"""Figures of README.md with real TCP, those that are cheap: a short run of each.

`ri2n bench` has the long runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ri2n_lab.bench.fair import GOODPUT_RATIO, goodput_optimum
from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.iperf import IperfRun
from ri2n_sdn.fabric.topology import load_topology

from .conftest import EXACT, TOPOLOGIES, WaitUntil, controlled
from .fat_trees import RATE_BPS, vbft
from .striping import Cluster, sent_bytes, sent_since

pytestmark = [
    pytest.mark.virtual,
    pytest.mark.skipif(not EXACT, reason="rates are exact in virtual time alone: tier kernel"),
]


@contextmanager
def striping(topology: str, wait_until: WaitUntil) -> Iterator[Lab]:
    """A lab of that topology whose hosts stripe to each other over all links."""
    with Lab.create(load_topology(TOPOLOGIES / f"{topology}.yaml"), helpers=True) as lab:
        cluster = Cluster(lab)
        cluster.start_controller()
        lab.wait_ready()
        cluster.make_whole(wait_until)
        yield lab


def rtt_ms(lab: Lab, source: str, destination: str) -> float:
    """The median of 20 pings, 20 ms apart, in ms."""
    said = lab.exec(source, ["ping", "-n", "-c20", "-i0.02", lab.address(destination)]).stdout
    found = sorted(float(text) for text in re.findall(r"time=([\d.]+) ms", said))
    assert len(found) == 20, said
    return found[10]


def test_one_tcp_stream_has_the_sum_of_the_links_and_keeps_nobody_waiting(
    reorder_program: object, wait_until: WaitUntil
) -> None:
    """0.98 of the sum of two links, some dozens of retransmits in 20 s, a ping 0.1 ms longer."""
    with striping("fig4/b", wait_until) as lab:
        idle_ms = rtt_ms(lab, "B", "A")
        before = sent_bytes(lab, "B")
        run = IperfRun(lab, "A", ["B"], streams=1, seconds=4.0)
        wait_until(
            lambda: sum(sent_since(lab, "B", before).values()) > 1.0 * 2e8 / 8,
            "the stream is not under way",
        )
        loaded_ms = rtt_ms(lab, "B", "A")
        result = run.results(skip_s=1.0)["B"]
    share = result.goodput_bps / (2e8 * GOODPUT_RATIO)
    said = f"{share:.3f}, {result.retransmits} again, {idle_ms} ms, loaded {loaded_ms} ms"
    print(said)
    assert share > 0.97, said
    assert result.retransmits < 100, said
    assert loaded_ms - idle_ms < 0.3, said


def test_clients_with_few_and_many_links_share_fairly() -> None:
    """By flows, on figure 4 d: all together get the optimum.

    The worst client has its max-min share.
    """
    with controlled("fig4/d") as lab:
        optimum = goodput_optimum(lab.topology, ["B", "C"], "A")
        found = IperfRun(lab, "A", ["B", "C"], streams=8, seconds=7.0).results(skip_s=3.0)
    share = {client: found[client].goodput_bps / optimum.fair_bps[client] for client in found}
    print(share)
    assert sum(result.goodput_bps for result in found.values()) > 0.98 * optimum.total_bps, share
    assert min(share.values()) > 0.95, share


def test_packet_by_packet_everybody_has_the_fair_share(
    reorder_program: object, wait_until: WaitUntil
) -> None:
    """On figure 4 d, with one stream from each client.

    All together get 0.98 of the optimum, and the worst client 0.98 of its max-min share.
    """
    with striping("fig4/d", wait_until) as lab:
        optimum = goodput_optimum(lab.topology, ["B", "C"], "A")
        found = IperfRun(lab, "A", ["B", "C"], streams=1, seconds=4.0).results(skip_s=1.5)
    share = {client: found[client].goodput_bps / optimum.fair_bps[client] for client in found}
    print(share)
    assert sum(result.goodput_bps for result in found.values()) > 0.97 * optimum.total_bps, share
    assert min(share.values()) > 0.95, share


def test_a_fat_tree_of_cheap_switches_carries_what_one_big_switch_does() -> None:
    """Two hosts are on each leaf, below two upper switches; each host i sends to host i + 2.

    A tree would carry half of that. Bytes that wait behind a lost segment are read 0.1 s later, up
    to .04 of 2.5 s, so the window is longer.
    """
    clients = {"n1": "n3", "n2": "n4"}
    with controlled(vbft(2, 2, 2)) as lab:
        runs = [
            IperfRun(lab, server, [client], streams=8, seconds=8.0, first_port=port)
            for port, (client, server) in enumerate(clients.items(), 5201)
        ]
        found = [run.results(skip_s=2.5)[client] for run, client in zip(runs, clients, strict=True)]
    share = [result.goodput_bps / (RATE_BPS * GOODPUT_RATIO) for result in found]
    print(share)
    assert min(share) > 0.97, share
