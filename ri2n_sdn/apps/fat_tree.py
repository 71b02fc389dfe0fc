# SPDX-License-Identifier: Apache-2.0
"""Networks of several switches: their trees, their dead parts, and which pairs use which VLAN."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.probes import Probe
from ri2n_sdn.discovery.tree_liveness import TreeLiveness, TreeProbe
from ri2n_sdn.discovery.vlan_check import LearningTest
from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.model import Fabric, Host, NicId, PairKey, Path, PathKey
from ri2n_sdn.fabric.switches import SwitchGraph, switch_graph
from ri2n_sdn.vlan.adaptive import Adaptive, AdaptiveStep, PairPaths
from ri2n_sdn.vlan.build import build_trees, check_reach
from ri2n_sdn.vlan.matrix import read_matrix
from ri2n_sdn.vlan.priming import Priming, PrimingSettings, Use
from ri2n_sdn.vlan.profile import profile_trees
from ri2n_sdn.vlan.routing import DeadParts, VlanRouting, networks_of, tag_of
from ri2n_sdn.vlan.tables import pair_candidates
from ri2n_sdn.vlan.trees import Trees

if TYPE_CHECKING:
    from typing import Self  # of Python 3.11

__all__ = ["FatTree", "RunningCheck"]

_NicPair = tuple[NicId, NicId]
_NAME: Callable[[NicId], str] = "{0[1]}".format


class FatTree:
    """The declared switches and what is known about them. It is used under the cluster's lock.

    `dead` are the dead parts, as the probes last showed them. `network_of` has the network of each
    switch, where a network has several switches. `check` is the one that runs now, if any.

    The path table decides which VLANs a pair of NICs may use. With `adaptive` it is one VLAN at a
    time, which may change. With `spread` it is all candidates. With `cyclic` it is one fixed VLAN.
    With `profile` it is the VLAN that suits the recorded traffic, and for pairs without recorded
    traffic that of `cyclic`.
    """

    def __init__(
        self, trees: Trees, config: ClusterConfig, nic_name: Callable[[NicId], str] = _NAME
    ) -> None:
        self.trees = trees
        self.spec = config.vlans
        self.networks = networks_of(trees, config.switches)
        self.dead = DeadParts()
        self.liveness = TreeLiveness(trees, name=nic_name)
        self.priming = Priming(PrimingSettings(ageing_s=self.spec.ageing_s))
        self.adaptive = Adaptive(vlans=trees.vlans, hosts_of=_hosts_of)
        self.check: RunningCheck | None = None
        # Which connection of the local interface holds a table, by the table's owner.
        self.leased: dict[str, object] = {}
        self._tree_of = {tag_of(trees, tree): tree for tree in range(trees.count)}
        self.network_of = {
            switch: name for name, members in self.networks.items() for switch in members
        }
        self._numbers = {name: number for number, name in enumerate(config.hosts, 1)}
        self._routing: tuple[DeadParts, tuple[str, ...], VlanRouting] | None = None
        self._chosen: dict[_NicPair, int] = {}
        self._profile = (
            _profile(trees, config, self._numbers) if self.spec.table == "profile" else {}
        )

    @classmethod
    def of(cls, config: ClusterConfig, nic_name: Callable[[NicId], str] = _NAME) -> Self | None:
        """Make the trees of a configuration; None when it has no links between switches.

        `nic_name` is a NIC's name at its host. Raises ValueError when no trees can be made, and
        BadInput for a bad profile.
        """
        graph = switch_graph(config.switches)
        if not len(graph.rate_bps):
            return None
        placed = _places(config, graph)
        check_reach(graph, placed)
        leaves = sorted({leaf for switches in placed.values() for leaf in switches})
        return cls(build_trees(graph, leaves, config.vlans), config, nic_name)

    @classmethod
    def read(cls, config: ClusterConfig, source: object) -> Self | None:
        """Do the same as `of`, and raise BadInput that names `source`, the file, for any error."""
        try:
            return cls.of(config)
        except ValueError as error:
            raise BadInput(f"{source}: {error}") from None

    # Switches, trees and paths

    def leaf_of(self, fabric: Fabric) -> dict[NicId, int]:
        """The number of each NIC's switch, for the NICs whose switch is declared."""
        index = self.trees.graph.index
        return {
            nic.id: index[nic.switch]
            for host in fabric.hosts.values()
            for nic in host.nics
            if nic.switch is not None
        }

    def trees_at(self, switch: str) -> int:
        """How many trees reach a switch. They are the first ones."""
        return int((self.trees.depth[:, self.trees.graph.index[switch]] >= 0).sum())

    def tag(self, tree: int) -> int:
        """The VLAN ID that hosts put on frames of a tree; UNTAGGED for the first tree."""
        return tag_of(self.trees, tree)

    def number(self, host: str) -> int:
        """A host's number, by the order in cluster.yaml; other hosts get the next free one."""
        return self._numbers.setdefault(host, len(self._numbers) + 1)

    def routing(self, hosts: Mapping[str, Host]) -> VlanRouting:
        """The paths as they are now. It is the same object while nothing has changed."""
        names = tuple(sorted(hosts))
        if self._routing is None or self._routing[0] != self.dead or self._routing[1] != names:
            for name in names:
                self.number(name)
            made = VlanRouting(self.trees, self._candidates, self.networks, self.dead)
            self._routing = (self.dead, names, made)
        return self._routing[2]

    # What probes show

    def heard(self, sender: NicId, receiver: NicId, vlan: int, now_s: float) -> None:
        """Note that `receiver` got a probe of `sender` with that VLAN ID."""
        tree = self._tree_of.get(vlan)
        if tree is not None:
            self.liveness.heard(sender, receiver, tree, now_s)
            if self.check is not None:
                self.check.probes.add(TreeProbe(sender, receiver, tree))

    def found_dead(self) -> bool:
        """Take over the dead parts that the probes show, and return whether they have changed."""
        ports = self.liveness.dead_ports
        dead = DeadParts(
            self.liveness.dead,
            frozenset((nic, tree) for nic, tree, direction in ports if direction == "tx"),
            frozenset((nic, tree) for nic, tree, direction in ports if direction == "rx"),
        )
        changed, self.dead = dead != self.dead, dead
        return changed

    # Which pairs use which VLAN

    def in_use(self, pair_slots: Mapping[PairKey, tuple[PathKey, ...]]) -> set[Use]:
        """The pairs of NICs that send to each other, with the tree that they use."""
        uses: set[Use] = set()
        for (sender, receiver), slots in pair_slots.items():
            for own, peer, vlan in set(slots):
                tree = self._tree_of.get(vlan)
                if tree is not None:
                    uses.add(((sender, own), (receiver, peer), tree))
        return uses

    def set_table(self, owner: str, table: Mapping[PairKey, int]) -> None:
        """Give pairs of hosts the VLANs of a program's table. Raises ValueError (vlan.adaptive)."""
        self.adaptive.set_table(owner, table)
        self._routing = None

    def clear_table(self, owner: str) -> bool:
        """End a program's table; its pairs get back their VLANs. Returns whether there was one."""
        self._routing = None
        return self.adaptive.clear_table(owner)

    def choose(
        self,
        now_s: float,
        fabric: Fabric,
        pair_slots: Mapping[PairKey, tuple[PathKey, ...]],
        sent_bps: Mapping[PairKey, Mapping[PathKey, float]],
    ) -> AdaptiveStep | None:
        """Give each active pair of NICs a VLAN, by the pair's traffic.

        `pair_slots` are the tables of the pairs of hosts, and `sent_bps` what each sends by each
        path. A pair that has one VLAN from an earlier controller stays there. Returns None when
        neither the configuration nor a program's table asks for it.
        """
        adapts = self.spec.table == "adaptive"
        if not adapts and not self.adaptive.tables:
            self._chosen.clear()
            return None
        nics_of_key: dict[tuple[str, str], _NicPair] = {}
        pairs: list[PairPaths] = []
        for (sender, receiver), slots in pair_slots.items():
            if not adapts and self.adaptive.table_vlan((sender, receiver)) is None:
                continue
            paths_of: dict[_NicPair, list[Path]] = {}
            for path in fabric.paths(sender, receiver):
                paths_of.setdefault((path.own.id, path.peer.id), []).append(path)
            rates = sent_bps.get((sender, receiver), {})
            for nics, paths in paths_of.items():
                if len(paths) < 2:
                    continue
                key = _key(*nics)
                nics_of_key[key] = nics
                used = self._chosen.get(nics)
                if used is None:
                    tags = {path.route.vlan for path in paths if path.key in slots}
                    used = tags.pop() if len(tags) == 1 else None
                candidates = tuple(
                    (self._vlan(path.route.vlan), path.links, self._usable(path, used, now_s))
                    for path in paths
                )
                vlan = self._vlan(used) if used is not None else None
                rate_bps = sum(rates.get(path.key, 0.0) for path in paths)
                pairs.append(PairPaths(key, rate_bps, candidates, vlan))
        step = self.adaptive.step(now_s, pairs, fabric.capacities_bps())
        self._chosen = {
            nics_of_key[key]: self.tag(self.trees.vlans.index(vlan))
            for key, vlan in step.vlan.items()
        }
        return step

    def allows(self, path: Path) -> bool:
        """Whether an active pair may use this path now."""
        chosen = self._chosen.get((path.own.id, path.peer.id))
        return chosen is None or chosen == path.route.vlan

    def _usable(self, path: Path, used: int | None, now_s: float) -> bool:
        """Whether a pair of NICs that uses the tag `used` may be moved to a path, or stay there.

        The switches must know both ends in a VLAN before a pair is moved to it; otherwise they
        flood its frames. A pair that already uses the VLAN stays.
        """
        tree = self._tree_of[path.route.vlan]
        learned = used == path.route.vlan or all(
            self.priming.ready(nic, tree, now_s) for nic in (path.own.id, path.peer.id)
        )
        return path.alive and learned

    def _vlan(self, tag: int) -> int:
        return self.trees.vlans[self._tree_of[tag]]

    def _candidates(self, sender: str, receiver: str, a: int, b: int) -> tuple[int, ...]:
        """The trees that a pair of hosts may use between the switches `a` and `b`."""
        numbers = self.number(sender), self.number(receiver)
        recorded = self._profile.get((sender, receiver))
        rule = "cyclic" if self.spec.table == "profile" else self.spec.table
        trees = (
            (recorded,)
            if recorded is not None
            else pair_candidates(self.trees, *numbers, a, b, rule, self.spec.per_pair)
        )
        wanted = self.adaptive.table_vlan((sender, receiver))
        tree = self.trees.vlans.index(wanted) if wanted is not None and a != b else None
        return trees if tree is None or tree in trees else (*trees, tree)


@dataclass
class RunningCheck:
    """The probes and learning frames that arrived during the check.

    `learned` holds (number of the test, number of the step) of the frames that arrived where the
    test expects them.
    """

    tests: Sequence[LearningTest] = ()
    probes: set[TreeProbe] = field(default_factory=set)
    learned: set[tuple[int, int]] = field(default_factory=set)

    def arrived(self, nic: NicId, probe: Probe) -> None:
        """Note a frame of a learning test, if it arrived at the NIC that the test expects."""
        test, place = probe.dpid, probe.port
        steps = self.tests[test].steps if test < len(self.tests) else ()
        if place < len(steps) and steps[place].expect == nic:
            self.learned.add((test, place))


def _profile(trees: Trees, config: ClusterConfig, numbers: Mapping[str, int]) -> dict[PairKey, int]:
    """The tree of each pair of hosts for the recorded traffic. Raises ValueError or BadInput."""
    if config.vlans.profile is None:
        raise ValueError(
            "vlans.profile: the table profile needs a recorded matrix (ri2n vlan record)"
        )
    matrix = read_matrix(FilePath(config.vlans.profile), config.hosts)
    first = {name: leaves[0] for name, leaves in _places(config, trees.graph).items()}
    return profile_trees(trees, matrix, first, numbers, config.vlans.per_pair)


def _places(config: ClusterConfig, graph: SwitchGraph) -> dict[str, list[int]]:
    """The numbers of the switches at which each host's NICs are declared, if any are."""
    hosts = {
        name: [graph.index[nic.switch] for nic in host.nics.values() if nic.switch is not None]
        for name, host in config.hosts.items()
    }
    return {name: switches for name, switches in hosts.items() if switches}


def _key(own: NicId, peer: NicId) -> PairKey:
    return f"{own[0]}:{own[1]}", f"{peer[0]}:{peer[1]}"


def _hosts_of(key: PairKey) -> PairKey:
    """The hosts in a key of two NICs (as `_key` writes it) or of two hosts."""
    return key[0].partition(":")[0], key[1].partition(":")[0]
