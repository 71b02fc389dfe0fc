# SPDX-License-Identifier: Apache-2.0
"""A job between hosts whose helpers run: its packets are striped over the job's links alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster import Lab
from ri2n_sdn.client import call
from tests.topology_text import parse_topology

from .conftest import PATIENCE_S, WAYS, await_true, controlled, on_way
from .test_jobs import ALICE, SERVE, THREE_NETWORKS, begin, end_all, send, serving

HOSTS = "AB"


@pytest.fixture(scope="module", params=WAYS)
def lab(reorder_program: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    topology = parse_topology(THREE_NETWORKS)
    with controlled(topology, helpers=True, fast=on_way(request)) as made:
        yield made


def channels(lab: Lab, host: str) -> list[dict[str, Any]]:
    """The channels to all peers, as the helper tells them."""
    return [
        channel
        for peer in lab.helpers.status(host)["peers"]
        for channel in peer.get("channels", ())
        if channel.get("channel", 0)
    ]


def carried(lab: Lab, host: str) -> dict[str, int]:
    """The bytes that each NIC of a host has sent."""
    return lab.nic_counters(host, "tx_bytes")


def network_of(lab: Lab, nic: str) -> str:
    """The name by which the controller knows the network of a NIC of A."""
    (host,) = [
        each for each in call(lab.controller_socket, "status")["hosts"] if each["name"] == "A"
    ]
    return next(str(each["network"]) for each in host["nics"] if each["name"] == nic)


def test_a_jobs_packets_are_striped_over_its_own_links(lab: Lab) -> None:
    names = f"{network_of(lab, 'eth0')},{network_of(lab, 'eth1')}"
    begin(lab, "two", ALICE, HOSTS, "--policy", "exclusive", "--paths", names)
    await_true(
        lambda: channels(lab, "A") and channels(lab, "B"),
        lambda: f"no channels: {lab.helpers.status('A')}",
        PATIENCE_S,
    )
    with serving(lab, "B", SERVE, "6001", user=ALICE), serving(lab, "B", SERVE, "6003"):
        before = carried(lab, "A")
        send(lab, "A", lab.address("B"), 6001, ALICE, 3_000_000)
        sent = {nic: count - before[nic] for nic, count in carried(lab, "A").items()}
        assert sent["eth0"] > 300_000 and sent["eth1"] > 300_000, sent
        assert sent["eth2"] < 100_000, sent
        (channel,) = channels(lab, "A")
        assert channel["bytes_out"] > 2_900_000, channel
        # Everybody else has the third network.
        before = carried(lab, "A")
        send(lab, "A", lab.address6("B"), 6003, 0, 2_000_000)
        sent = {nic: count - before[nic] for nic, count in carried(lab, "A").items()}
        assert sent["eth2"] > 1_900_000 and sent["eth0"] + sent["eth1"] < 200_000, sent
        # The job goes on by its slot table while no helper runs.
        lab.helpers.kill("B")
        before = carried(lab, "A")
        send(lab, "A", lab.address("B"), 6001, ALICE, 1_000_000)
        sent = {nic: count - before[nic] for nic, count in carried(lab, "A").items()}
        assert sent["eth2"] < 100_000, sent
        lab.helpers.restart("B")
    end_all(lab)
    await_true(
        lambda: not channels(lab, "A"), lambda: f"channels stay: {channels(lab, 'A')}", PATIENCE_S
    )
