"""What a running `ri2n vlan check` has heard so far."""

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
    """Filled by the discovery app while the check waits.

    `trees` are the trees by the tag of their frames.
    """

    trees: Mapping[int, int]
    dpids: Mapping[int, str]
    tests: Sequence[LearningTest] = ()
    probes: set[TreeProbe] = field(default_factory=set)
    learned: set[tuple[int, int]] = field(default_factory=set)

    def heard(self, sender: NicId, receiver: NicId, vlan: int) -> None:
        """A probe of one VLAN came in."""
        tree = self.trees.get(vlan)
        if tree is not None:
            self.probes.add(TreeProbe(sender, receiver, tree))

    def arrived(self, dpid: int, port: int, probe: Probe) -> None:
        """A frame of a learning test came in; it counts where it was expected."""
        test, place = probe.dpid, probe.port
        steps = self.tests[test].steps if test < len(self.tests) else ()
        if place < len(steps) and steps[place].expect == (self.dpids.get(dpid), port):
            self.learned.add((test, place))
