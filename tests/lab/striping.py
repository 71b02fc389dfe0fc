# SPDX-License-Identifier: Apache-2.0
"""Hosts with ri2n-reorder for tests of striping: a lab with its controller, and what is sent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ri2n_lab.cluster import Lab
from ri2n_lab.traffic.streams import Stream
from ri2n_sdn.client import call
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.fabric.topology import Topology, load_topology

from .conftest import EXACT, PATIENCE_S, TOPOLOGIES, WaitUntil
from .packets import flawless

__all__ = [
    "FAULT_MS",
    "QUIET_MS",
    "RECEIVE_TCP",
    "SEND_TCP",
    "SIZE",
    "TCP_BYTES",
    "WHOLE_S",
    "Cluster",
    "cluster",
    "pps",
    "send_by_tcp",
    "sent_bytes",
    "sent_since",
    "shared",
    "stream_is_flawless",
    "stream_uses_both_networks",
    "topology_of",
    "until_sent",
]

SIZE = 200  # bytes of a UDP stream's packets
TCP_BYTES = 1_000_000
WHOLE_S = 20.0
QUIET_MS = 2.0  # how much longer than planned the longest time between two packets is
# The same when a link dies, as README.md says: 13 ms, and a part that depends on when between two
# heartbeats it dies.
FAULT_MS = 20.0
RECEIVE_TCP = """
import hashlib, socket
s = socket.create_server(("::", 5900), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
c, _ = s.accept()
d = c.makefile("rb").read()
c.sendall(hashlib.sha256(d).hexdigest().encode())
"""
SEND_TCP = """
import hashlib, random, select, socket, sys
numbers, sent, seen = random.Random(4), 0, hashlib.sha256()
s = socket.create_connection((sys.argv[1], 5900), timeout=200)
while sent < int(sys.argv[2]) or not select.select([sys.stdin], [], [], 0)[0]:
    data = numbers.randbytes(50000)
    s.sendall(data); seen.update(data); sent += len(data)
s.shutdown(socket.SHUT_WR)
assert s.makefile().read() == seen.hexdigest(), "other bytes came out than went in"
"""


class Cluster:
    """A lab with helpers, and its controller if it has one."""

    def __init__(self, lab: Lab, controller: subprocess.Popen[Any] | None = None) -> None:
        self.lab = lab
        self.controller = controller

    def start_controller(self, config: Path | None = None) -> None:
        """Start a controller, or another one in place of it."""
        self.kill_controller()
        self.controller = self.lab.start_controller(config=config)

    def kill_controller(self) -> None:
        if self.controller is not None:
            self.controller.kill()
            self.controller.wait()
            self.controller = None

    def counters(self, host: str) -> dict[str, int]:
        """The counters of a host's helper."""
        found: dict[str, int] = self.lab.helpers.status(host)["counters"]
        return found

    def peers(self) -> list[dict[str, Any]]:
        """What all helpers say about their peers."""
        return [
            peer
            for host in self.lab.helpers.hosts
            for peer in self.lab.helpers.status(host)["peers"]
        ]

    def usable(self) -> bool:
        """Whether every helper stripes to all others, over every link."""
        hosts = len(self.lab.helpers.hosts)
        try:
            peers = self.peers()
        except NotAvailable:
            return False
        whole = all(
            peer["striped"] and all(link["usable"] for link in peer["links"]) for peer in peers
        )
        return whole and len(peers) == hosts * (hosts - 1)

    def described(self) -> str:
        """What the helpers say, without the zeros: for messages."""
        said = []
        for host in self.lab.helpers.hosts:
            try:
                status = self.lab.helpers.status(host)
            except NotAvailable as error:
                said.append(f"{host}: {error}")
                continue
            counters = {name: value for name, value in status["counters"].items() if value}
            said.append(f"{host}: {json.dumps({**status, 'counters': counters})}")
        return "\n".join(said)

    def make_whole(self, wait_until: WaitUntil) -> None:
        """Wait until there is no fault and every helper runs and stripes.

        The controller, if there is one, must agree.
        """
        self.lab.restore_all()
        for host in self.lab.helpers.hosts:
            if self.lab.helpers.pid(host) is None:
                self.lab.helpers.start(host)
        if self.lab.software == "ri2n":
            if self.controller is None:
                self.start_controller()
            wait_until(self.controller_content, self.described, timeout_s=WHOLE_S)
        wait_until(self.usable, self.described, timeout_s=WHOLE_S)

    def controller_content(self) -> bool:
        """Whether the controller has settled.

        All NICs must be alive, and all pairs with helpers striped.
        """
        try:
            status = call(self.lab.controller_socket, "status")
        except NotAvailable:
            return False
        nics = [nic for host in status["hosts"] for nic in host["nics"]]
        with_helper = set(self.lab.helpers.hosts)
        striped = all(
            pair["striped"] == ({pair["src"], pair["dst"]} <= with_helper)
            for pair in status["pairs"]
        )
        return bool(
            status["settled"]
            and nics
            and striped
            and all(nic["up"] and nic["alive"] for nic in nics)
        )


def topology_of(name: str, without: str = "") -> Topology:
    """A topology in which one host has no helper."""
    topology = load_topology(TOPOLOGIES / f"{name}.yaml")
    hosts = {
        host: spec.model_copy(update={"helper": spec.helper and host != without})
        for host, spec in topology.hosts.items()
    }
    return topology.model_copy(update={"hosts": hosts})


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Lab.create(topology_of("fig4/b"), helpers=True) as lab:
        made = Cluster(lab)
        made.start_controller()
        lab.wait_ready()
        yield made


@pytest.fixture
def cluster(shared: Cluster, wait_until: WaitUntil) -> Cluster:
    """Two hosts with two networks in common, whole again, whatever was done to them before."""
    shared.make_whole(wait_until)
    return shared


def sent_bytes(lab: Lab, host: str) -> dict[str, int]:
    """The bytes that each NIC of a host has sent."""
    return lab.nic_counters(host, "tx_bytes")


def sent_since(lab: Lab, host: str, before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in sent_bytes(lab, host).items()}


@pytest.fixture
def pps(stream_pps: float) -> float:
    """The rate for which README.md has figures, where the machine has no influence."""
    return 10_000.0 if EXACT else stream_pps


def stream_is_flawless(
    cluster: Cluster,
    pps: float,
    meanwhile: Callable[[], None] = lambda: None,
    *,
    seconds: float = 0.3,
    source: str = "B",
    outage_ms: float = QUIET_MS,
) -> None:
    """`source` sends to A without a loss and in order, whatever happens `meanwhile`."""
    stream = Stream(cluster.lab, source, "A", pps=pps, seconds=seconds, size=SIZE)
    meanwhile()
    over_s = time.monotonic()
    got = stream.result()
    flawless(got, cluster.described())
    if EXACT:
        assert got.longest_gap_ms <= 1000 / pps + outage_ms, f"{got}\n{cluster.described()}"
        assert over_s < got.end_s, f"the stream ended {over_s - got.end_s:.2f} s too early"


def stream_uses_both_networks(cluster: Cluster, pps: float) -> None:
    """A short stream goes from B to A, half of it over each link."""
    before = sent_bytes(cluster.lab, "B")
    stream_is_flawless(cluster, pps)
    sent = sent_since(cluster.lab, "B", before)
    assert min(sent.values()) > 0.4 * 0.3 * pps * SIZE, f"{sent}\n{cluster.described()}"


def until_sent(
    cluster: Cluster, packets: float, wait_until: WaitUntil, *, by_all: bool, source: str = "B"
) -> str:
    """Wait until all NICs of `source`, or one, have sent the bytes of so many packets.

    Returns the name of the NIC that has sent most.
    """
    start, choose = sent_bytes(cluster.lab, source), min if by_all else max
    sent: dict[str, int] = {}

    def enough() -> bool:
        sent.update(sent_since(cluster.lab, source, start))
        return choose(sent.values()) > packets * SIZE

    wait_until(enough, cluster.described)
    return max(sent, key=lambda nic: sent[nic])


def send_by_tcp(
    cluster: Cluster, source: str, address: str, until: Callable[[], None] = lambda: None
) -> dict[str, int]:
    """Send TCP_BYTES to A, and go on until `until` returns; A gets the same bytes.

    Returns the bytes that each NIC of the source has sent.
    """
    before = sent_bytes(cluster.lab, source)
    server = cluster.lab.popen(
        "A", [sys.executable, "-c", RECEIVE_TCP], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None and server.stdout.readline() == "ready\n"
    argv = [sys.executable, "-c", SEND_TCP, address, str(TCP_BYTES)]
    client = cluster.lab.popen(
        source, argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        until()
    finally:
        said = client.communicate(timeout=PATIENCE_S)[1]
    assert client.returncode == 0, f"{said}\n{cluster.described()}"
    assert server.wait(timeout=PATIENCE_S) == 0
    server.stdout.close()
    return sent_since(cluster.lab, source, before)
