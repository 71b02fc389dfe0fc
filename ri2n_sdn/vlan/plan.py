# SPDX-License-Identifier: Apache-2.0
"""The plan of a network with VLAN trees.

It says which trees there are, how evenly they use cables, and what switches must remember.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ri2n_sdn.fabric.switches import SwitchGraph, VlanSpec
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.rates.arrays import BoolArray
from ri2n_sdn.vlan.build import build_trees, leaves_of, switch_levels
from ri2n_sdn.vlan.large import Generated
from ri2n_sdn.vlan.macs import MacCount, mac_entries
from ri2n_sdn.vlan.tables import width
from ri2n_sdn.vlan.trees import Int32Array, Trees

__all__ = ["NetworkPlan", "Plan", "longest_paths", "make_plan"]


@dataclass(frozen=True)
class NetworkPlan:
    """The plan of one connected network; `name` is its first switch."""

    name: str
    levelled: bool
    switches: tuple[int, ...]
    """Switches per level, leaves first; one number where the network has no levels."""
    hosts: int
    nics: int
    trees: int
    roots: tuple[str, ...]
    cables: int
    uses_min: int
    """The fewest trees on one cable, of the cables that are used at all."""
    uses_max: int
    """The most trees on one cable."""
    unused_cables: int
    unused_switches: int
    longest_way: int
    """Cables between switches on the longest path from leaf to leaf."""
    mac_entries: int
    """(Address, VLAN) entries of the switch that must remember most of them."""
    mac_switch: str
    """The name of that switch."""


@dataclass(frozen=True)
class Plan:
    """The whole plan; `vlans[t]` is the ID of tree t, the first one that of untagged frames."""

    name: str
    table: str
    per_pair: int
    per_pair_wanted: int
    limit: int
    mac_table: int
    mac_exact: bool
    vlans: tuple[int, ...]
    networks: tuple[NetworkPlan, ...]
    notes: tuple[str, ...]


def make_plan(source: Topology | Generated, spec: VlanSpec | None = None) -> Plan:
    """The plan of a topology or a generated network, with its own `vlans` settings or with `spec`.

    Entries of (address, VLAN) are counted for traffic between all pairs (`mac_entries`). If a
    switch would need more than `mac_table`, pairs get fewer VLANs than `per_pair`: as many as fit.

    ValueError: hosts cannot reach each other (`check_reach`), VLAN IDs are too few (`build_trees`),
    or a switch needs too many entries with one VLAN per pair, too.
    """
    spec = spec or source.vlans
    graph = source.graph
    leaf, host, managed = _plugs(source)
    leaves = np.unique(leaf).tolist()
    trees = build_trees(graph, leaves, spec)
    wanted = width(spec.table, spec.per_pair)
    per_pair, macs = _fitting(trees, leaf, host, managed, spec)
    level, levelled = switch_levels(graph, leaves)
    longest = longest_paths(trees, leaf)
    networks = []
    notes = []
    for network in np.unique(graph.component[leaf]).tolist():
        here = graph.component == network
        longest_way = int(longest[:, network].max())
        plan = _network(trees, here, leaf, host, level, bool(levelled[here][0]), macs, longest_way)
        networks.append(plan)
        notes += _notes(
            plan, spec, _top_switches(graph, here, level) if plan.levelled else sum(plan.switches)
        )
    if per_pair < wanted:
        notes.append(
            f"VLANs that a pair uses: {per_pair}, not {spec.per_pair}; with more, a switch would "
            f"need more than its {spec.mac_table} MAC table entries"
        )
    return Plan(
        name=source.name,
        table=spec.table,
        per_pair=per_pair,
        per_pair_wanted=wanted,
        limit=spec.limit,
        mac_table=spec.mac_table,
        mac_exact=macs.exact,
        vlans=trees.vlans,
        networks=tuple(networks),
        notes=tuple(notes),
    )


def longest_paths(trees: Trees, leaf: Int32Array) -> Int32Array:
    """(T, networks) the cables on the longest path between two leaves in each tree.

    0 where a network has no such tree. Networks are numbered as in `SwitchGraph.component`. The
    leaf that is farthest from any other leaf is one end of a longest path.
    """
    networks = int(trees.graph.component.max()) + 1
    result = np.zeros((trees.count, networks), dtype=np.int32)
    for network in np.unique(trees.graph.component[leaf]).tolist():
        leaves = np.unique(leaf[trees.graph.component[leaf] == network])
        count = int((trees.depth[:, leaves[0]] >= 0).sum())
        start = np.full(count, leaves[0])
        for _ in range(2):
            steps = _steps_from(trees, start)[:, leaves]
            start = leaves[np.argmax(steps, axis=1)]
        result[:count, network] = steps.max(axis=1)
    return result


def _steps_from(trees: Trees, start: Int32Array) -> Int32Array:
    """(n, S) the cables from switch start[t] to every other in tree t, for the first n trees.

    -1 where there is no path.
    """
    count = len(start)
    rows = np.arange(count)
    depth, parent = trees.depth[:count], trees.parent[:count]
    steps = np.full(depth.shape, -1, dtype=np.int32)
    at = start.copy()
    for step in range(int(depth.max()) + 1):
        climbing = at >= 0
        steps[rows[climbing], at[climbing]] = step
        at = np.where(climbing, parent[rows, np.maximum(at, 0)], -1)
    for level in range(1, int(depth.max()) + 1):
        tree, switch = np.nonzero((depth == level) & (steps < 0))
        over = steps[tree, parent[tree, switch]]
        steps[tree, switch] = np.where(over >= 0, over + 1, -1)
    return steps


def _plugs(source: Topology | Generated) -> tuple[Int32Array, Int32Array, BoolArray]:
    """(N,) the switch of each NIC, (N,) its host's number, and (N,) whether the host is managed.

    ValueError as in `check_reach`.
    """
    if isinstance(source, Generated):
        count = len(source.leaf)
        return source.leaf, np.arange(1, count + 1, dtype=np.int32), np.ones(count, dtype=bool)
    hosts = leaves_of(source)
    counts = [len(leaves) for leaves in hosts.values()]
    return (
        np.array([leaf for leaves in hosts.values() for leaf in leaves], dtype=np.int32),
        np.repeat(np.arange(1, len(hosts) + 1, dtype=np.int32), counts),
        np.repeat([spec.managed for spec in source.hosts.values()], counts),
    )


def _fitting(
    trees: Trees, leaf: Int32Array, host: Int32Array, managed: BoolArray, spec: VlanSpec
) -> tuple[int, MacCount]:
    """The most VLANs per pair with which every switch has room, and the entries with them."""
    wanted = width(spec.table, min(spec.per_pair, trees.count))
    macs = mac_entries(trees, leaf, host, spec.table, wanted, managed)
    if macs.entries.max() <= spec.mac_table:
        return width(spec.table, spec.per_pair), macs
    fits, fails = 0, wanted
    while fails - fits > 1:
        # One VLAN is tried first: if that does not fit, nothing does, and counting takes seconds in
        # large networks.
        between = 1 if fits == 0 else (fits + fails) // 2
        tried = mac_entries(trees, leaf, host, spec.table, between, managed)
        if tried.entries.max() <= spec.mac_table:
            fits, macs = between, tried
        else:
            fails, macs = between, (tried if fits == 0 else macs)
    if fits:
        return fits, macs
    worst = int(np.argmax(macs.entries))
    others = int((macs.entries > spec.mac_table).sum()) - 1
    raise ValueError(
        f"switches.{trees.graph.names[worst]}: "
        f"{'' if macs.exact else 'up to '}{macs.entries[worst]} MAC table"
        " entries when all hosts talk with one another over one VLAN a pair, the limit is "
        f"{spec.mac_table}" + (f" ({others} other switches exceed it, too)" if others else "")
    )


def _network(
    trees: Trees,
    here: BoolArray,
    leaf: Int32Array,
    host: Int32Array,
    level: Int32Array,
    levelled: bool,
    macs: MacCount,
    longest_way: int,
) -> NetworkPlan:
    graph = trees.graph
    plugged = here[leaf]
    reached = (trees.depth >= 0) & here
    roots = np.nonzero((trees.depth == 0) & here)[1]
    cables = here[graph.ends[:, 0]]
    uses = trees.uses[cables]
    used = uses[uses > 0]
    switches = np.flatnonzero(here)
    worst = int(switches[np.argmax(macs.entries[switches])])
    return NetworkPlan(
        name=graph.names[int(switches[0])],
        levelled=levelled,
        switches=tuple(np.bincount(level[here]).tolist()) if levelled else (len(switches),),
        hosts=len(np.unique(host[plugged])),
        nics=int(plugged.sum()),
        trees=len(roots),
        roots=tuple(graph.names[root] for root in roots.tolist()),
        cables=int(cables.sum()),
        uses_min=int(used.min(initial=trees.count)) if len(used) else 0,
        uses_max=int(used.max(initial=0)),
        unused_cables=int((uses == 0).sum()),
        unused_switches=int((here & ~reached.any(axis=0)).sum()),
        longest_way=longest_way,
        mac_entries=int(macs.entries[worst]),
        mac_switch=graph.names[worst],
    )


def _top_switches(graph: SwitchGraph, here: BoolArray, level: Int32Array) -> int:
    """How many switches of a levelled network have no switch above them."""
    a, b = graph.ends[:, 0], graph.ends[:, 1]
    top = here.copy()
    top[np.where(level[a] < level[b], a, b)] = False
    return int(top.sum())


def _notes(plan: NetworkPlan, spec: VlanSpec, wanted: int) -> list[str]:
    notes = []
    if plan.trees == spec.limit and plan.trees < wanted:
        kind = "top switches" if plan.levelled else "switches"
        notes.append(
            f"network {plan.name}: {kind} without a tree of their own, since VLAN IDs are too few:"
            f" {wanted - plan.trees} of {wanted}"
        )
    if plan.unused_switches:
        notes.append(f"network {plan.name}: switches in no tree: {plan.unused_switches}")
    if plan.unused_cables:
        notes.append(
            f"network {plan.name}: cables in no tree, to be shut down: {plan.unused_cables}"
        )
    return notes
