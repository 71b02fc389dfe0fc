# SPDX-License-Identifier: Apache-2.0
"""A state with something of everything that metrics show, made by the controller's own code."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any, cast

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.cluster import Cluster, Member, Port
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.measured import PathRates, Reported
from ri2n_sdn.apps.slot_groups import send_slots
from ri2n_sdn.apps.tokens import Tokens
from ri2n_sdn.apps.watching import Collector
from ri2n_sdn.contract.choices import FastPeer
from ri2n_sdn.contract.counters import HANDLER
from ri2n_sdn.contract.metrics import Own
from ri2n_sdn.jobs.model import Job, Policy
from ri2n_sdn.jobs.rights import Right
from ri2n_sdn.pipeline.fast_path import FastPath
from ri2n_sdn.pipeline.helper_frames import Report, ReportEntry
from ri2n_sdn.pipeline.layout import PLAIN_PORT, WIRE_PORT
from ri2n_sdn.weights.loop import PairDecision
from tests.unit.fake_hosts import FakeChannel, cluster_of

__all__ = ["NOW_S", "full_state", "own"]

NOW_S = 1_800_000_000.0
RATE_BPS = 1_000_000_000
FIRST, SECOND = (1, 1, 0), (2, 2, 0)
# OpenFlow connections do not exist here, and switches are not declared in a small state.
_MORE: Mapping[str, Any] = {
    "openflow": {
        "received": {"hello": 4, "packet_in": 900, "multipart_reply": 40},
        "sent": {"flow_mod": 12, "group_mod": 3, "packet_out": 800},
    },
    "cables": {
        f"leaf{n}/17-up1/{n}": {
            "ends": [f"leaf{n}", "up1"],
            "vlans": [1],
            "ports": [17, n],
            "rate_bps": 10 * RATE_BPS,
            "alive": n != 2,
        }
        for n in (1, 2)
    },
    "reservations": {
        name: {"id": name, "user": "alice", "hosts": ["h1"], "begin_s": NOW_S + at, "end_s": NOW_S}
        for name, at in (("r1", -5.0), ("r2", 60.0))
    },
}


def own(**changed: Any) -> Own:
    """What a web process that is connected knows of itself."""
    known: dict[str, Any] = {
        **{"now_s": NOW_S, "connected": True, "since_s": NOW_S - 60, "heard_s": NOW_S - 0.25},
        **{"version": "0.1.0", "counters": {"streams": 1, "lines_dropped": 0}},
        **{"certificate_ends_s": NOW_S + 86400},
    }
    return Own(**(known | changed))


def full_state(hosts: int = 4, nics: int = 2) -> Any:
    """A state of hosts h1, h2, ... The last one is away.

    NIC 2 of h1 is dead, h2 has a helper, h3 a fast path.
    """
    cluster = cluster_of({}, ClusterConfig(), [("h1", 2)])
    for number in range(1, hosts + 1):
        cluster.members[f"h{number}"] = _member(number, nics, number < hosts or hosts < 3)
    names = list(cluster.members)
    cluster.note("takes_charge")
    cluster.wiring.deaths = 1
    cluster.certificate_ends_s = NOW_S + 2 * 86400
    cluster.members["h1"].certificate_ends_s = NOW_S + 3 * 86400
    counts = {"cycles": 100, "flow_mods": 12, "group_mods": 3, "probes_sent": 700}
    for name, count in {**counts, "loop_errors_telemetry": 1}.items():
        cluster.counters.add(name, count)
    for length_s in (0.004, 0.02, 0.3):
        cluster.measured.tallies.cycles.add(length_s)
        cluster.measured.tallies.cycles_cpu.add(length_s / 2)
    pairs = list(permutations(names[:3], 2))
    for table in ((FIRST, SECOND) * 32, (FIRST, FIRST, FIRST, SECOND) * 16):
        send_slots(cluster, {pair: PairDecision({}, None, table, 16) for pair in pairs})
    cluster.measured.sampled_s = NOW_S - 0.5
    cluster.measured.rates = {
        ("h1", "h2"): {FIRST: PathRates(tx_bps=3e8), SECOND: PathRates(tx_bps=1e8)},
        ("h1", "h3"): {FIRST: PathRates(tx_bps=4e8)},
    }
    cluster.measured.fair_bps = {("h1", "h2"): 1e9, ("h1", "h3"): 5e8}
    collector = Collector(cluster, Tokens(None))
    for report in (1, 2):
        _hear_helper(cluster, "h2", report)
        collector.collect()
    peers: dict[str, FastPeer] = {"m1": "carried", "m2": "carried", "m3": "undecided"}
    cluster.measured.fast["h3"] = FastPath("in_force", "missing", dropped=5, peers=peers)
    _add_jobs(cluster, names)
    cluster.fabric()
    _end_outage(cluster)
    state: dict[str, Any] = {
        **collector.collect(),
        **_MORE,
    }
    state["controller"]["parameters"] = {"slots": 64}  # one stands for all
    # A handler of another test may have failed in this process.
    counted = state["counters"].items()
    state["counters"] = {name: count for name, count in counted if not name.startswith(HANDLER)}
    state["counters"][f"{HANDLER}TrunkApp.error"] = 2
    return state


def _end_outage(cluster: Cluster) -> None:
    """An outage that is over, on the second NIC of h2."""
    outages = cluster.measured.tallies.outages
    dead = cast(Any, cluster.wiring)._dead
    dead.add(("h2", 2))
    cluster.topology_changed()
    cluster.fabric()
    dead.discard(("h2", 2))
    outages.nics["h2", "eth1"].since_s = cast(float, outages.nics["h2", "eth1"].since_s) - 7.5
    cluster.topology_changed()
    cluster.fabric()


def _member(number: int, nics: int, connected: bool) -> Member:
    high, low = divmod(number, 256)
    ports = {
        port: Port(
            port,
            f"eth{port - 1}",
            f"04:00:00:{port:02x}:{high:02x}:{low:02x}",
            True,
            RATE_BPS,
            tx_bytes=1000 * number + port,
            rx_bytes=2000 * number + port,
            counted_s=1.0,
        )
        for port in range(1, nics + 1)
    }
    member = Member(f"h{number}", number, f"06:00:00:00:{high:02x}:{low:02x}", "3.1.0", ports)
    member.accepts_wire, member.datapath = True, "netdev"
    if connected:
        member.channel = cast(Channel, FakeChannel())
    return member


def _hear_helper(cluster: Cluster, name: str, report: int) -> None:
    """The helper's report of this number; in each one its links have counted the same as before."""
    cluster.members[name].taps = {PLAIN_PORT: True, WIRE_PORT: True}
    sent, received, lost, repeated = (report * count for count in (500, 400, 3, 2))
    entries = tuple(
        ReportEntry(*("m", link, True, link < 2, False), sent, received, lost, repeated, 0, 0, 0, 0)
        for link in range(3)
    )
    reported = cluster.measured.reports.setdefault(name, Reported())
    reported.take(Report(4000 + 1000 * report, "m", 1, entries), float(report))
    cluster.topology_changed()


def _add_jobs(cluster: Cluster, names: list[str]) -> None:
    book = cluster.jobs.book
    for key, user, state in (("j1", "alice", "installed"), ("j2", "bob", "waiting")):
        book.add_order(Job(key, user, 7, tuple(names[:2]), Policy(), 1.0, source="order"))
        cluster.jobs.states = {**cluster.jobs.states, key: (state, "for a reason")}
    cluster.jobs.failed["h1"] = {"j2": "no room"}
    book.put_right(Right("alice"))
