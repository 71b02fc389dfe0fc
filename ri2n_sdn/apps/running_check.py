# SPDX-License-Identifier: Apache-2.0
"""What a running `ri2n vlan check` has received so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ri2n_sdn.apps.probes import Probe
from ri2n_sdn.discovery.tree_liveness import TreeProbe
from ri2n_sdn.discovery.vlan_check import LearningTest
from ri2n_sdn.fabric.model import NicId

__all__ = ["RunningCheck"]


@dataclass
class RunningCheck:
    """The probes and learning frames that arrived. The discovery app adds them during the check.

    `trees` is the tree of each VLAN ID that hosts put on frames, and `dpids` the host of each
    datapath ID. `learned` holds (number of the test, number of the step) of the frames that arrived
    where the test expects them.
    """

    trees: Mapping[int, int]
    dpids: Mapping[int, str]
    tests: Sequence[LearningTest] = ()
    probes: set[TreeProbe] = field(default_factory=set)
    learned: set[tuple[int, int]] = field(default_factory=set)

    def heard(self, sender: NicId, receiver: NicId, vlan: int) -> None:
        """Note a probe that `receiver` got in one VLAN."""
        tree = self.trees.get(vlan)
        if tree is not None:
            self.probes.add(TreeProbe(sender, receiver, tree))

    def arrived(self, dpid: int, port: int, probe: Probe) -> None:
        """Note a frame of a learning test, if it arrived at the NIC that the test expects."""
        test, place = probe.dpid, probe.port
        steps = self.tests[test].steps if test < len(self.tests) else ()
        if place < len(steps) and steps[place].expect == (self.dpids.get(dpid), port):
            self.learned.add((test, place))
