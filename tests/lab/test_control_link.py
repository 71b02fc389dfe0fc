# SPDX-License-Identifier: Apache-2.0
"""A host's control link is down for eight seconds under traffic.

No packet is lost or duplicated, and no NIC is called dead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call

from .conftest import EXACT, WaitUntil, controlled
from .packets import flawless, reaches

pytestmark = pytest.mark.virtual

AWAY_S = 8.0
STREAM_S = 17.0  # at most until the host is connected again, which it tries every few seconds
# When within a second the link goes down. The controller chooses which host sends the beacons, and
# when.
PHASES_S = [
    0.0,
    *(pytest.param(phase_s, marks=pytest.mark.long) for phase_s in (0.2, 0.4, 0.6, 0.8)),
]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with controlled("fig4/c") as made:
        yield made


def judged(lab: Lab) -> tuple[set[str], set[str]]:
    """The hosts that are connected, and the NICs and paths that `status` calls down or dead.

    Of a host that is away it says nothing about NICs, but it has the paths to and from that host,
    which are used on.
    """
    status = call(lab.controller_socket, "status")
    nics = [(host, nic) for host in status["hosts"] for nic in host["nics"]]
    dead = {
        f"{host['name']}:{nic['name']}" for host, nic in nics if False in (nic["up"], nic["alive"])
    }
    paths = [
        (pair, path) for pair in status["pairs"] for path in pair["paths"] if not path["alive"]
    ]
    dead |= {f"{pair['src']}:{path['own']} -> {pair['dst']}:{path['peer']}" for pair, path in paths}
    return {host["name"] for host in status["hosts"] if host["connected"]}, dead


@pytest.mark.parametrize("phase_s", PHASES_S)
@pytest.mark.parametrize("host", ["A", "B", "C"])
def test_a_lost_control_link_costs_no_packet_and_no_nic_its_good_name(
    lab: Lab, host: str, phase_s: float, wait_until: WaitUntil
) -> None:
    """Each host's link goes down in turn, so also that of the host that sends beacons."""
    everybody, other = set(lab.topology.hosts), "A" if host != "A" else "B"
    lab.wait_ready()
    # So the link goes down at the moment in a second that the test chose.
    time.sleep(1.0 - time.monotonic() % 1.0 + phase_s)
    streams = [
        Stream(lab, *ends, seconds=STREAM_S, flows=16, port=port)
        for port, ends in enumerate(((host, other), (other, host)), 5600)
    ]
    seen: set[frozenset[str]] = set()

    def nobody_is_dead(connected: set[str]) -> bool:
        now, dead = judged(lab)
        assert not dead, f"{dead} {phase_s}: {call(lab.controller_socket, 'status')}"
        seen.add(frozenset(now))
        return now == connected

    lab.fault("control", host=host)
    try:
        down_s = time.monotonic()
        while (left_s := down_s + AWAY_S - time.monotonic()) > 0:
            nobody_is_dead(everybody)
            time.sleep(min(0.25, left_s))
    finally:
        lab.restore_all()
    wait_until(lambda: nobody_is_dead(everybody), f"{host} does not come back", timeout_s=30)
    back_s = time.monotonic()
    lab.wait_ready()
    nobody_is_dead(everybody)
    assert frozenset(everybody - {host}) in seen, seen
    log = (lab.run_dir / "controller.log").read_text()
    assert "cut off" not in log, log  # nor a verdict that was taken back at once
    for stream in streams:
        stream.finish()
    for stream in streams:
        got = stream.result()
        flawless(got, (host, phase_s))
        assert not EXACT or got.end_s > back_s + 0.5, f"back after {back_s - down_s:.1f} s: {got}"
    reaches(lab, host, other)
