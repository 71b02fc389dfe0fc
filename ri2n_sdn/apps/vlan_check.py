# SPDX-License-Identifier: Apache-2.0
"""`ri2n vlan check`: sends the probes of discovery.vlan_check through the switches."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ri2n_sdn.apps.cluster import Cluster
from ri2n_sdn.apps.fat_tree import FatTree, RunningCheck
from ri2n_sdn.apps.probes import ProbeKind
from ri2n_sdn.contract.documents import VlanCheck
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.discovery.tree_liveness import TreeProbe
from ri2n_sdn.discovery.vlan_check import (
    LearningTest,
    findings,
    learning_findings,
    learning_tests,
    sweep,
)
from ri2n_sdn.fabric.model import NicId

__all__ = ["check_vlans"]

# How often each probe is sent.
_TIMES = 4
_PER_S = 2000.0
_BATCH = 50
# The check waits so long for the last frames.
_SETTLE_S = 0.5
# The time from one step of the learning tests to the next.
_STEP_S = 0.1


def check_vlans(cluster: Cluster) -> VlanCheck:
    """Check switches, cables and VLANs, and return what is wrong.

    Each finding names the part that is wrong. It takes a second or more: each probe is sent four
    times, 2,000 a second. Raises BadInput when no links between switches are declared, and while
    another check runs.
    """
    with cluster.lock:
        tree = cluster.fat_tree
        if tree is None:
            raise refusal("no_switch_links", "switches")
        if tree.check is not None:
            raise refusal("check_runs")
        leaf_of = tree.leaf_of(cluster.fabric())
        reachable = {
            nic.id
            for host in cluster.fabric().hosts.values()
            if host.connected and host.accepts_wire
            for nic in host.nics
            if nic.up
        }
        leaf_of = {nic: leaf for nic, leaf in leaf_of.items() if nic in reachable}
        check = tree.check = RunningCheck()
    try:
        probes = sweep(tree.trees, leaf_of)
        _send_probes(cluster, tree, probes)
        cluster.wake.stop.wait(_SETTLE_S)
        labels = {nic: _label(cluster, nic) for nic in leaf_of}
        texts = findings(
            tree.trees, leaf_of, probes, frozenset(check.probes), lambda nic: labels[nic]
        )
        if not texts:
            check.tests = learning_tests(tree.trees, leaf_of)
            _learn(cluster, tree, check.tests)
            texts = learning_findings(check.tests, frozenset(check.learned))
    finally:
        with cluster.lock:
            tree.check = None
    return {"findings": texts, "probes": len(probes) * _TIMES}


def _send_probes(cluster: Cluster, tree: FatTree, probes: Sequence[TreeProbe]) -> None:
    for _ in range(_TIMES):
        for start in range(0, len(probes), _BATCH):
            with cluster.lock:
                for probe in probes[start : start + _BATCH]:
                    target = cluster.port_of(probe.target)[1]
                    if target is not None:
                        now_s, tag = time.monotonic(), tree.tag(probe.tree)
                        cluster.send_probe(ProbeKind.TREE, probe.sender, target.mac, now_s, tag)
            cluster.wake.stop.wait(_BATCH / _PER_S)


def _learn(cluster: Cluster, tree: FatTree, tests: Sequence[LearningTest]) -> None:
    """Send the frames of all tests at once, one step after the other.

    Each frame is sent twice, because a frame that is lost by chance would accuse a switch.
    """
    for place in range(max((len(test.steps) for test in tests), default=0)):
        for _ in range(2):
            with cluster.lock:
                for number, test in enumerate(tests):
                    if place < len(test.steps):
                        step = test.steps[place]
                        cluster.send_probe(
                            ProbeKind.LEARNING,
                            step.sender,
                            step.target,
                            time.monotonic(),
                            tree.tag(step.tree),
                            step.source,
                            (number, place),
                        )
            cluster.wake.stop.wait(_STEP_S)
    cluster.wake.stop.wait(_SETTLE_S)


def _label(cluster: Cluster, nic: NicId) -> str:
    """A NIC and where it is plugged in: `leaf1 port 3 (n3:nic0)`."""
    member = cluster.members[nic[0]]
    name = member.ports[nic[1]].name
    about = cluster.config.nic(member.name, name)
    port = about.port if about.port is not None else "?"
    return f"{about.switch} port {port} ({member.name}:{name})"
