# SPDX-License-Identifier: Apache-2.0
"""Controllers in this process, over invented hosts, for transcripts of the local interface."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.job_book import JobBook
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.apps.measured import PathRates, Reported
from ri2n_sdn.jobs.assign import assign
from ri2n_sdn.jobs.declaration import Declaration
from ri2n_sdn.jobs.members import agree
from ri2n_sdn.jobs.model import Job, Policy, Service
from ri2n_sdn.pipeline.helper_frames import Report, ReportEntry
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT
from tests.unit.fake_hosts import FakeChannel, cluster_of, plan
from tests.unit.job_rows import FakeStore

__all__ = ["BEGIN_S", "fat", "flat", "serving", "stands_by"]

BEGIN_S = 1_500_000_000.0
_AHEAD_S = 1e9  # reports do not age while the transcripts are made
_FLAT: dict[str, Any] = {
    "hosts": {
        "A": {"nics": {"eth0": {"rate_bps": 10**9}}},
        "D": {"nics": {"eth0": {"rate_bps": 10**8}}},
    },
    "placement": [{"hosts": ["B"], "ports": [2049]}],
    "by_flows": [{"proto": "tcp", "port": 22}],
}
_ADDRESSES = {
    "A": ("10.0.0.1", "fd77::1"),
    "B": ("10.0.0.2",),
    "C": ("10.0.0.3", "10.1.0.3", "fd77::3"),
}


@contextmanager
def serving(cluster: Cluster, check: Callable[[], None] = lambda: None) -> Iterator[LocalApi]:
    """The interface of a cluster, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="ri2n-") as folder:
        cluster.socket_path = Path(folder) / "controller.sock"
        with closing(LocalApi(cluster, check)) as api:
            yield api


def flat() -> Cluster:
    """A, B, C, E and Z on three networks.

    A NIC of B is dead, Z is away, D is awaited. A and B have helpers that run. A job of alice runs
    on A and B, and an isolated one of bob on E, which waits for Z.
    """
    channels = {**{name: FakeChannel() for name in "ABCE"}, "Z": None}
    config = ClusterConfig.model_validate(_FLAT, strict=False)
    cluster = cluster_of(channels, config, dead=[("B", 2)], nics=3)
    for name, member in cluster.members.items():
        member.datapath = "netdev"
        for port in member.ports.values():
            port.tx_bps, port.rx_bps = 1000.5 * port.number, 2000.0 * port.number
            port.tx_bytes, port.rx_bytes, port.counted_s = 10**6, 10**7, 1.0
        if name in "AB":
            member.taps = {PLAIN_PORT: True, WIRE_PORT: True}
    cluster.certificate_ends_s = 4e9
    cluster.members["A"].certificate_ends_s = 4.1e9
    for name, addresses in _ADDRESSES.items():
        cluster.members[name].addresses = addresses
    _report(cluster)
    _run_jobs(cluster)
    cluster.note("takes_charge")
    first, second = (1, 1, 0), (2, 2, 0)
    cluster.measured.rates["A", "C"] = {
        first: PathRates(8e7, 7.9e7, 0.75, 9e7),
        second: PathRates(2e7, 2e7, 0.25, 3e7),
    }
    cluster.measured.fair_bps["A", "C"] = 1.25e8
    cluster.measured.sent_bytes.update({("A", "C"): 12345, ("C", "A"): 678})
    cluster.topology_changed()
    plan(cluster, {("A", "C"): (first, first, first, second) * 16})
    for name, count in (("cycles", 7), ("flow_mods", 12), ("loop_errors_telemetry", 1)):
        cluster.counters.add(name, count)
    cluster.wiring.deaths = 1
    return cluster


def fat() -> Cluster:
    """Four hosts of one NIC on VBFT(2, 2), whose switches have probes in four VLANs."""
    cable = {"rate_bps": 10**8}
    switches = {
        f"leaf{i}": {"links": [{"to": f"up{j}", "port": 100 + j, **cable} for j in (1, 2)]}
        for i in (1, 2)
    } | {
        f"up{j}": {"links": [{"to": f"leaf{i}", "port": i, **cable} for i in (1, 2)]}
        for j in (1, 2)
    }
    hosts = {
        name: {"nics": {"eth0": {"switch": f"leaf{1 + number // 2}", "port": 1 + number % 2}}}
        for number, name in enumerate("ABCD")
    }
    config = ClusterConfig.model_validate({"switches": switches, "hosts": hosts}, strict=False)
    return cluster_of({name: FakeChannel() for name in "ABCD"}, config, nics=1)


def stands_by() -> Cluster:
    """A controller that is not in charge, whose store refuses what it is asked to keep."""
    cluster = cluster_of({"A": FakeChannel(), "B": FakeChannel(), "Z": None})
    store = FakeStore()
    cluster.jobs.book = JobBook(store)
    cluster.passive = "controller-2 is in charge"
    cluster.memory.store = cast(
        Any,
        SimpleNamespace(
            **{name: getattr(store, name) for name in ("write", "state", "active")},
            epoch=3,
            problem="the store is away",
            close=lambda: None,
        ),
    )
    store.refuses = True
    return cluster


def _report(cluster: Cluster) -> None:
    """What the helpers of A and B have told of the links between them."""
    for name, peer in ("AB", "BA"):
        entries = tuple(
            ReportEntry(
                *(cluster.members[peer].mac, link, True, link < 1, False),
                *(500 + link, 400, 3, 2, 100, 250, 90_000, 80_000),
            )
            for link in range(2)
        )
        reported = cluster.measured.reports[name] = Reported()
        reported.take(Report(5000, cluster.members[name].mac, 1, entries), _AHEAD_S)


def _run_jobs(cluster: Cluster) -> None:
    """The jobs that hosts have declared, and what follows from that."""
    isolated = Policy("exclusive", min_rate_bps=10**7, max_rate_bps=10**8)
    runs = Job("j1", "alice", 20001, ("A", "B"), isolated, BEGIN_S)
    service = Service("10.0.0.9", "tcp", 2049)
    alone = Job("j2", "bob", 20002, ("E", "Z"), Policy("isolated", (), (service,)), BEGIN_S)
    declared = [Declaration("A", 3, runs), Declaration("B", 4, runs), Declaration("E", 5, alone)]
    state = cluster.jobs
    state.declared = {each.host: (each,) for each in declared}
    state.faults = {"C": ("a row of it makes no sense",)}
    state.agreement = agree(declared, {})
    state.assignment = assign(cluster.fabric(), list(state.agreement.jobs.values()))
    state.states = dict.fromkeys(state.agreement.jobs, ("installed", ""))
    state.decided = True
