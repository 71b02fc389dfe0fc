# SPDX-License-Identifier: Apache-2.0
"""The trees of a network: one per top switch of a fat tree, else trees that use cables evenly."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ri2n_sdn.fabric.switches import SwitchGraph, VlanSpec
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.rates.arrays import BoolArray, IntArray
from ri2n_sdn.vlan.disjoint import even_trees
from ri2n_sdn.vlan.trees import Int32Array, Trees, trees_from_cables

__all__ = ["build_trees", "check_reach", "leaves_of", "switch_levels", "topology_trees"]

# Leaves whose paths tell how alike two trees of a fat tree are.
MAX_SAMPLES = 64
# Trees x switches that are held at a time (1 GiB).
MAX_NUMBERS = 1 << 28


def topology_trees(topology: Topology) -> Trees:
    """The trees of a topology; ValueError as in `check_reach` and `build_trees`."""
    leaves = {leaf for leaves in leaves_of(topology).values() for leaf in leaves}
    return build_trees(topology.graph, leaves, topology.vlans)


def leaves_of(topology: Topology) -> dict[str, list[int]]:
    """The switches of the NICs of each host; ValueError as in `check_reach`."""
    index = topology.graph.index
    hosts = {
        host: [index[nic.switch] for nic in spec.nics] for host, spec in topology.hosts.items()
    }
    check_reach(topology.graph, hosts)
    return hosts


def check_reach(graph: SwitchGraph, hosts: Mapping[str, Collection[int]]) -> None:
    """ValueError when two hosts have no network in common although there are cables.

    `hosts` are the switches of each host's NICs. Without any cable, switches are separate networks
    by design, and `Topology.warnings` names such hosts.
    """
    if not len(graph.ends):
        return
    # By set of networks: the first host that has it, and one of its switches.
    first_hosts: dict[frozenset[int], tuple[str, int]] = {}
    for host, switches in hosts.items():
        networks = frozenset(graph.component[list(switches)].tolist())
        first_hosts.setdefault(networks, (host, next(iter(switches))))
    distinct = list(first_hosts.items())
    for place, (networks, (host, switch)) in enumerate(distinct):
        for others, (other, far) in distinct[:place]:
            if not networks & others:
                raise ValueError(
                    f"switches.{graph.names[switch]}: is not connected with {graph.names[far]},"
                    f" so hosts {other} and {host} cannot reach each other"
                )


def build_trees(graph: SwitchGraph, leaves: Collection[int], spec: VlanSpec) -> Trees:
    """The trees over all networks with NICs; `leaves` are the switches that NICs are plugged into.

    A levelled network (fat tree, VBFT, folded Clos: all leaves at the bottom, cables only between
    neighbouring levels) has a tree for every top switch, which is its root: the paper's rule
    (VFREC-Net 3.3, 6.1). Where several switches or cables lead down from a root, the path that was
    used least so far is taken. While that leaves cables unused, top switches get further trees over
    them. Any other network has as many trees as switches (or as many as it takes to use every
    cable), which use cables as evenly as any such trees can (`even_trees`). Every tree has all
    leaves of its network. A switch of a levelled network that leads a tree to no leaf is not in
    that tree.

    If there are more trees than `spec.limit`, those are kept that use the cables of every level
    most evenly. In a levelled network, neighbouring trees are as different as possible, so that the
    paths of a leaf in a few neighbouring trees begin with different cables.

    ValueError: no leaves, or VLAN IDs are too few (`VlanSpec.numbers`).
    """
    if not leaves:
        raise ValueError("switches: no NIC is plugged into any of them")
    leaf = np.zeros(len(graph.names), dtype=bool)
    leaf[list(leaves)] = True
    networks = np.unique(graph.component[leaf])
    parts = [
        _network(graph, graph.component == network, leaf, spec.limit)
        for network in networks.tolist()
    ]
    count = max(len(above) for above, _ in parts)
    vlans = spec.numbers(count)
    above = np.full((count, len(graph.names)), -1, dtype=np.int32)
    depth = np.full_like(above, -1)
    for of_network, roots in parts:
        here = above[: len(of_network)]
        np.maximum(here, of_network, out=here)
        depth[np.arange(len(roots)), roots] = 0
    tree, switch = np.nonzero(above >= 0)
    parent = np.full_like(above, -1)
    cable = above[tree, switch]
    parent[tree, switch] = graph.ends[cable, 0] + graph.ends[cable, 1] - switch.astype(np.int32)
    while len(tree):
        depth_above = depth[tree, parent[tree, switch]]
        known = depth_above >= 0
        depth[tree[known], switch[known]] = depth_above[known] + 1
        tree, switch = tree[~known], switch[~known]
    return Trees(graph, vlans, parent, above, depth)


def switch_levels(graph: SwitchGraph, leaves: Collection[int]) -> tuple[Int32Array, BoolArray]:
    """(S,) the level of each switch, and (S,) whether its network is levelled.

    The level is the number of cables to the nearest leaf; -1 where no leaf is connected. A network
    is levelled when all its cables join neighbouring levels.
    """
    level = np.full(len(graph.names), -1, dtype=np.int32)
    level[list(leaves)] = 0
    a, b = graph.ends[:, 0], graph.ends[:, 1]
    for step in range(len(graph.names)):
        from_a, from_b = (level[a] == step) & (level[b] < 0), (level[b] == step) & (level[a] < 0)
        if not from_a.any() and not from_b.any():
            break
        level[b[from_a]] = step + 1
        level[a[from_b]] = step + 1
    flat = np.unique(graph.component[a[(level[a] == level[b]) & (level[a] >= 0)]])
    return level, ~np.isin(graph.component, flat)


def _network(
    graph: SwitchGraph, here: BoolArray, leaf: BoolArray, max_trees: int
) -> tuple[Int32Array, Int32Array]:
    """(T, S) the cable above every switch in each tree of one network, and (T,) the roots.

    `here` (S,) are the switches of the network, `leaf` (S,) those with NICs.
    """
    switches = np.flatnonzero(here)
    if len(switches) == 1:
        return np.full((1, len(here)), -1, dtype=np.int32), switches.astype(np.int32)
    leaves = np.flatnonzero(here & leaf)
    level, levelled = switch_levels(graph, leaves)
    if levelled[switches[0]]:
        levelled_trees = _levelled(graph, level, leaves)
        if levelled_trees is not None:
            above, roots = levelled_trees
            order = _differing(_paths_up(graph, above, level, leaves), min(max_trees, len(roots)))
            return above[order], roots[order]
    return _unlevelled(graph, switches, here & leaf, max_trees)


# ---- fat trees


@dataclass(frozen=True)
class _Stage:
    """The cables between one level and the next, in order of the lower switch."""

    lower: Int32Array
    """(n,) the switches below, once each."""
    starts: IntArray
    """(n,) where the cables of each switch below begin."""
    upper: Int32Array
    """(cables,) the switch above."""
    cable: Int32Array
    """(cables,)"""


def _levelled(
    graph: SwitchGraph, level: Int32Array, leaves: IntArray
) -> tuple[Int32Array, Int32Array] | None:
    """All trees of a levelled network, as `_network` returns them.

    None when fewer than half of its top switches reach all leaves by going down.
    """
    a, b = graph.ends[:, 0], graph.ends[:, 1]
    upward = level[a] < level[b]
    lower, upper = np.where(upward, a, b), np.where(upward, b, a)
    stages = []
    for step in range(int(level.max())):
        cables = np.flatnonzero(level[lower] == step)
        cables = cables[np.argsort(lower[cables], kind="stable")]
        below, starts = np.unique(lower[cables], return_index=True)
        stages.append(_Stage(below, starts, upper[cables], cables.astype(np.int32)))
    top = level > 0
    top[lower[level[lower] >= 0]] = False
    roots = np.flatnonzero(top).astype(np.int32)
    if len(roots) * len(level) > MAX_NUMBERS:
        raise ValueError(
            f"switches: {len(roots)} trees over {len(level)} switches are too many to be planned"
        )
    uses = np.zeros(len(a), dtype=np.int64)
    trees = []

    def add(root: int, *, first: bool) -> bool:
        """Add a tree under `root`, a further one only if it uses a new cable; whether it is one."""
        above = _tree_below(graph, root, stages, uses, leaves)
        if above is None or not (first or (uses[above[above >= 0]] == 0).any()):
            return False
        uses[above[above >= 0]] += 1
        trees.append((root, above))
        return True

    to_try = [root for root in roots.tolist() if add(root, first=True)]
    if 2 * len(trees) < len(roots) or not trees:
        return None
    # Cables are left unused where several lie side by side, or several paths lead down from a root.
    # Each root gets one more tree as long as that uses a new cable.
    while to_try and not uses[level[lower] >= 0].all():
        to_try = [root for root in to_try if add(root, first=False)]
    tops = np.array([root for root, _ in trees], dtype=np.int32)
    return np.stack([above for _, above in trees]), tops


def _tree_below(
    graph: SwitchGraph,
    root: int,
    stages: list[_Stage],
    uses: IntArray,
    leaves: IntArray,
) -> Int32Array | None:
    """(S,) the cable above each switch of the tree under `root`, -1 where there is none.

    Where a switch can be reached by several paths, it is the one whose cables have the fewest
    `uses` (C,) in sum, so that trees share cables as little as possible. None when the tree does
    not reach all leaves.
    """
    size = len(graph.names)
    above = np.full(size, -1, dtype=np.int32)
    reached = np.zeros(size, dtype=bool)
    reached[root] = True
    # (S,) the sum of the uses of the cables from a switch up to the root.
    used = np.zeros(size, dtype=np.int64)
    for stage in reversed(stages):
        places = len(stage.cable)
        never = np.iinfo(np.int64).max
        offer = np.where(
            reached[stage.upper],
            (uses[stage.cable] + used[stage.upper]) * places + np.arange(places),
            never,
        )
        best = np.minimum.reduceat(offer, stage.starts)
        reachable = best < never
        used[stage.lower[reachable]] = best[reachable] // places
        above[stage.lower[reachable]] = stage.cable[best[reachable] % places]
        reached[stage.lower[reachable]] = True
    if not reached[leaves].all():
        return None
    needed = np.zeros(size, dtype=bool)
    needed[leaves] = True
    for stage in stages:
        joined = stage.lower[needed[stage.lower] & (above[stage.lower] >= 0)]
        needed[graph.ends[above[joined]].sum(axis=1) - joined] = True
    above[~needed] = -1
    return above


def _paths_up(
    graph: SwitchGraph, above: Int32Array, level: Int32Array, leaves: IntArray
) -> Int32Array:
    """(T, N) the cables of the paths from some leaves up to the root, in each of T trees.

    The same leaves and levels are at the same places in every tree; -1 is beyond the end of a path.
    """
    samples = leaves[:: -(-len(leaves) // MAX_SAMPLES)]
    at = np.broadcast_to(samples, (len(above), len(samples)))
    paths = []
    for _ in range(int(level.max())):
        cable = np.take_along_axis(above, at, axis=1)
        paths.append(cable)
        at = np.where(cable >= 0, graph.ends[cable].sum(axis=2) - at, at)
    return np.concatenate(paths, axis=1)


def _differing(paths: Int32Array, count: int) -> list[int]:
    """`count` of the trees with these `paths` (T, N), in an order in which neighbours differ.

    Each tree shares as few cables as possible with all trees before it; among equals it is the one
    that shares fewest with the last few. Cables of paths are counted, not cables of the network, so
    that every level of a fat tree counts the same, however many cables it has.
    """
    shared, lately = np.zeros(len(paths)), np.zeros(len(paths))
    order = [0]
    while len(order) < count:
        alike = ((paths == paths[order[-1]]) & (paths >= 0)).sum(axis=1)
        shared += alike
        lately = lately / 2 + alike
        shared[order[-1]] = np.inf
        best = np.flatnonzero(shared == shared.min())
        order.append(int(best[np.argmin(lately[best])]))
    return order


# ---- other networks


def _unlevelled(
    graph: SwitchGraph, switches: IntArray, leaf: BoolArray, max_trees: int
) -> tuple[Int32Array, Int32Array]:
    """Trees of any network, as `_network` returns them; at most `max_trees`.

    There are as many as switches, or more if using every cable takes more.
    """
    place = np.full(len(graph.names), -1, dtype=np.int32)
    place[switches] = np.arange(len(switches))
    cables = np.flatnonzero(place[graph.ends[:, 0]] >= 0)
    size = len(switches)
    count = min(max_trees, max(size, -(-len(cables) // (size - 1))))
    roots = [step * size // count % size if count < size else step % size for step in range(count)]
    trees = even_trees(place[graph.ends[cables]], leaf[switches], roots)
    order = _differing_lately(trees, len(cables))
    of_tree = [cables[list(trees[t])].tolist() for t in order]
    tops = [int(switches[roots[t]]) for t in order]
    hung = trees_from_cables(graph, tuple(range(len(order))), of_tree, [[top] for top in tops])
    return hung.cable, np.array(tops, dtype=np.int32)


def _differing_lately(trees: list[tuple[int, ...]], cables: int) -> list[int]:
    """An order of trees (given as cables) in which each shares few with the last few before it."""
    has = np.zeros((len(trees), cables))
    for t, tree in enumerate(trees):
        has[t, list(tree)] = 1
    lately = np.zeros(len(trees))
    order = [0]
    while len(order) < len(trees):
        lately = lately / 2 + has @ has[order[-1]]
        lately[order[-1]] = np.inf
        order.append(int(np.argmin(lately)))
    return order
