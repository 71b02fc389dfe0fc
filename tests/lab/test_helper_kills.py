# SPDX-License-Identifier: Apache-2.0
"""A thousand `kill -9` of helpers at random moments under a stream and under TCP.

The helpers' work is taken up again, no packet is duplicated, and TCP has the right bytes: with the
helpers alone, and where the fast path stripes TCP. `RI2N_ATTACK_SEED` chooses other moments,
`RI2N_ATTACK_KILLS` another number of kills for the long run.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.cluster.namespaces import processes_in
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.fabric.topology import load_topology

from .conftest import TOPOLOGIES, WAYS, WaitUntil, on_way
from .fast_flows import Talk, Talker
from .packets import reaches
from .striping import WHOLE_S, Cluster
from .test_lab import remains

SEED = int(os.environ.get("RI2N_ATTACK_SEED", "20261124"))
KILLS = [4, pytest.param(int(os.environ.get("RI2N_ATTACK_KILLS", "1000")), marks=pytest.mark.long)]
BATCH = 20  # kills under one stream, and between two checks of everything
GAP_S = 0.5
PPS = 200.0


@pytest.fixture(scope="module", params=WAYS)
def cluster(request: pytest.FixtureRequest, reorder_program: Path) -> Iterator[Cluster]:
    with (
        pytest.MonkeyPatch.context() as patch,
        Lab.create(
            load_topology(TOPOLOGIES / "fig4" / "b.yaml"), helpers=True, fast=on_way(request)
        ) as lab,
    ):
        patch.setenv("RI2N_REORDER", str(reorder_program))
        made = Cluster(lab)
        made.start_controller()
        yield made
        made.kill_controller()
    assert remains(lab.name) == []


def beside(cluster: Cluster) -> bool:
    """Whether the helpers of both ends have told their fast paths to stripe, if there are any."""
    lab = cluster.lab
    return not lab.has_fast or all(
        any(peer["beside"] for peer in lab.helpers.status(host)["peers"]) for host in ("A", "B")
    )


def rows(lab: Lab) -> dict[str, list[str]]:
    """What the hosts' bridges have, without what changes by itself.

    Which link a slot has does: on a busy machine, a link may have been left for a moment.
    """
    found = {}
    for host in lab.helpers.hosts:
        text = lab.ofctl(host, "-O", "OpenFlow15", "dump-flows", "br-ri2n", "--no-stats")
        text += lab.ofctl(host, "-O", "OpenFlow15", "dump-groups", "br-ri2n")
        found[host] = sorted(
            line.strip() if "type=select" not in line else line.strip().partition(",bucket=")[0]
            for line in text.splitlines()
            if re.search(r"cookie=0x5232|group_id=", line)
        )
    return found


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("kills", KILLS)
def test_kills_of_helpers_double_no_packet(
    cluster: Cluster, wait_until: WaitUntil, kills: int
) -> None:
    lab, generator, pause = cluster.lab, random.Random(SEED), threading.Event()
    cluster.make_whole(wait_until)
    wait_until(lambda: len(rows(lab)["A"]) > 20, lambda: str(rows(lab)))
    processes, before = len(processes_in(map(lab.namespace, lab.helpers.hosts))), rows(lab)
    began_s, done, sent, lost = time.monotonic(), 0, 0, 0
    while done < kills:
        batch = min(BATCH, kills - done)
        stream = Stream(lab, "B", "A", pps=PPS, seconds=batch * GAP_S, flows=4)
        for _ in range(batch):
            pause.wait(generator.uniform(0.0, GAP_S))  # the moment is random
            host = generator.choice(lab.helpers.hosts)
            lab.helpers.kill(host)
            lab.helpers.start(host)
            done += 1
        wait_until(cluster.usable, cluster.described, WHOLE_S)
        got = stream.result()
        said = f"seed {SEED}: after {done} kills: {got}\n{cluster.described()}"
        assert got.received and not got.duplicates, said
        sent, lost = sent + got.sent, lost + got.lost
        wait_until(cluster.controller_content, cluster.described, WHOLE_S)
        wait_until(lambda: rows(lab) == before, lambda: f"{before}\n{rows(lab)}", WHOLE_S)
        reaches(lab, "A", "B")
        reaches(lab, "B", "A")
    now = processes_in(map(lab.namespace, lab.helpers.hosts))
    assert len(now) == processes, now
    print(
        f"seed {SEED}: {done} kills in {time.monotonic() - began_s:.0f} s, {lost} of {sent} "
        "packets were lost"
    )


@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("kills", KILLS)
def test_tcp_has_the_right_bytes_whichever_helpers_are_killed(
    cluster: Cluster, wait_until: WaitUntil, kills: int
) -> None:
    lab, generator, pause = cluster.lab, random.Random(SEED), threading.Event()
    cluster.make_whole(wait_until)
    server, talk = Talker(lab, "A"), Talk(lab, "B", "A", each=2, most=60_000)
    began_s, done = time.monotonic(), 0
    try:
        while done < kills:
            wait_until(lambda: beside(cluster), cluster.described, WHOLE_S)
            talk.go_on(1)
            for _ in range(min(BATCH, kills - done)):
                pause.wait(generator.uniform(0.0, GAP_S))
                host = generator.choice(lab.helpers.hosts)
                lab.helpers.kill(host)
                lab.helpers.start(host)
                done += 1
        talk.go_on(1)
        print(f"seed {SEED}: {done} kills in {time.monotonic() - began_s:.0f} s: {talk.rounds()}")
    finally:
        talk.end()
        server.end()
