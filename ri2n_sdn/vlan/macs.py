# SPDX-License-Identifier: Apache-2.0
"""How many (address, VLAN) entries each switch must remember when all hosts talk with all others.

Announcements are flooded in the base tree, so its switches know every address of the network there.
In any other VLAN a switch knows an address when it lies on the path between the address's leaf and
a leaf with a partner that uses this VLAN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, IntArray
from ri2n_sdn.vlan.tables import first_trees, width
from ri2n_sdn.vlan.trees import Int32Array, Trees

__all__ = ["MacCount", "mac_entries"]

MAX_EXACT = 1024
"""Addresses of a network up to which each is counted for itself."""


@dataclass(frozen=True, eq=False)
class MacCount:
    """The entries of each of S switches."""

    entries: IntArray
    """(S,)"""
    exact: bool
    """If not, the entries are upper bounds."""


def mac_entries(
    trees: Trees,
    leaf: Int32Array,
    host: Int32Array,
    table: str,
    per_pair: int,
    managed: BoolArray | None = None,
) -> MacCount:
    """The entries per switch when all pairs of hosts talk.

    NIC n is on switch leaf[n] and of the host with number host[n]; both are (N,). A pair uses all
    its candidates of `table` (tables.py), one after another or at once: `adaptive` may come to use
    each. Hosts that are not `managed` (N,) use the base tree only.

    In networks of more than MAX_EXACT NICs, hosts whose numbers are equal mod twice the number of
    trees are counted together, since counting each pair would take too long. That changes nothing
    for `spread`, `adaptive` and `profile`. With `cyclic` it is then not known which of two hosts
    has the lower number, so the pair is counted in both hosts' VLANs: the figures are upper bounds.
    They are so, too, where a host has several NICs in such a network.
    """
    own = np.ones(len(leaf), dtype=bool) if managed is None else managed
    network_of = trees.graph.component[leaf]
    entries = np.zeros(len(trees.graph.names), dtype=np.int64)
    exact = True
    for network in np.unique(network_of).tolist():
        here = network_of == network
        count = int((trees.depth[:, leaf[here][0]] >= 0).sum())
        entries[(trees.depth[0] >= 0) & (trees.graph.component == network)] += int(here.sum())
        plugged, host_of = (side[here & own].astype(np.int64) for side in (leaf, host))
        if count < 2 or len(np.unique(plugged)) < 2:
            continue
        if len(plugged) <= MAX_EXACT:
            relation = _each_for_itself(plugged, host_of, count, table)
        else:
            relation = _by_residue(plugged, host_of, count, table)
            exact = exact and table != "cyclic" and len(np.unique(host_of)) == len(host_of)
        for tree in range(1, count):
            entries += _in_tree(trees, tree, relation, width(table, per_pair))
    return MacCount(entries, exact)


@dataclass(frozen=True, eq=False)
class _Relation:
    """NICs in R kinds and L leaves in J kinds: NICs of one kind on leaves of one kind are alike.

    They use the same trees, so each combination is looked at once.
    """

    leaves: IntArray
    """(L,) the switches."""
    kind: IntArray
    """(L,) the kind of each leaf, 0..J-1."""
    nics: IntArray
    """(J, R) the number of NICs of each kind on a leaf."""
    starts: IntArray
    """(J, P, R) the first tree that a NIC of kind r uses with each of P partners on a leaf.

    -1 beyond the last partner, and for the NIC's own host.
    """
    count: int
    """The trees of the network."""

    def uses(self, tree: int, width: int) -> BoolArray:
        """(J, R) whether a NIC of kind r uses `tree` with a partner on another leaf, of kind j."""
        ahead = (tree - self.starts) % self.count
        return np.asarray(((ahead < width) & (self.starts >= 0)).any(axis=1), dtype=np.bool_)


def _each_for_itself(leaf: IntArray, host: IntArray, count: int, table: str) -> _Relation:
    """Every NIC and every leaf is a kind of its own."""
    leaves, kind = np.unique(leaf, return_inverse=True)
    members = _members(kind, len(leaves))
    partner = np.maximum(members, 0)
    number = host[partner][:, :, None]
    starts = first_trees(table, number, host, np.array(count))
    none = (members < 0)[:, :, None] | (number == host)
    nics = (kind == np.arange(len(leaves))[:, None]).astype(np.int64)
    return _Relation(leaves, np.arange(len(leaves)), nics, np.where(none, -1, starts), count)


def _by_residue(leaf: IntArray, host: IntArray, count: int, table: str) -> _Relation:
    """A kind of NIC for each residue of hosts' numbers mod twice the number of trees.

    Leaves with equally many NICs of each kind are of one kind.
    """
    circle = 2 * count
    residue = (host - 1) % circle
    leaves, place = np.unique(leaf, return_inverse=True)
    on_leaf = np.zeros((len(leaves), circle), dtype=np.int32)
    np.add.at(on_leaf, (place, residue), 1)
    nics, kind = np.unique(on_leaf, axis=0, return_inverse=True)
    of_kind, partner = np.nonzero(nics)
    members = _members(of_kind, len(nics))
    number = np.where(members >= 0, partner[np.maximum(members, 0)] + 1, 1)[:, :, None]
    others = np.arange(1, circle + 1)
    starts = first_trees(table, number, others, np.array(count))
    none = (members < 0)[:, :, None]
    if table == "cyclic":
        # Either host may have the lower number.
        pairs = np.broadcast_arrays((number - 1) % count, (others - 1) % count)
        starts, none = np.concatenate(pairs, axis=1), np.concatenate([none, none], axis=1)
    return _Relation(
        leaves, kind.reshape(-1), nics.astype(np.int64), np.where(none, -1, starts), count
    )


def _members(kind: IntArray, kinds: int) -> IntArray:
    """(kinds, P) the places of each kind's members, -1 beyond the last."""
    order = np.argsort(kind, kind="stable")
    sizes = np.bincount(kind, minlength=kinds)
    result = np.full((kinds, int(sizes.max())), -1, dtype=np.int64)
    result[np.arange(result.shape[1]) < sizes[:, None]] = order
    return result


def _in_tree(trees: Trees, tree: int, relation: _Relation, width: int) -> IntArray:
    """(S,) the entries in one VLAN.

    A switch s knows a NIC in three cases: the NIC is not below s, and a leaf below s has a partner
    of it; the NIC is below a child c of s, and a leaf that is not below c has one; the NIC is
    plugged into s itself, and another leaf has one.
    """
    uses = relation.uses(tree, width)
    result = np.zeros(len(trees.graph.names), dtype=np.int64)
    if not uses.any():
        return result
    nics, (kinds, _) = relation.nics, uses.shape
    sizes = np.bincount(relation.kind, minlength=kinds)
    # (R,) the leaves with partners, and the NICs, of each kind of NIC.
    users, all_nics = sizes @ uses, sizes @ nics

    # Leaves without switches below them are counted once for each kind, since there are many.
    uses = uses.astype(np.int64)
    outside = ((uses > 0) * (all_nics - nics)).sum(axis=1)
    own = ((users - uses > 0) * nics).sum(axis=1)
    depth, parent = trees.depth[tree], trees.parent[tree]
    inner = np.zeros(len(depth), dtype=bool)
    network = trees.graph.component == trees.graph.component[relation.leaves[0]]
    inner[parent[(depth > 0) & network]] = True
    bare = ~inner[relation.leaves]
    result[relation.leaves[bare]] = (outside + own)[relation.kind[bare]]
    # Their NICs are below a child of the switch above.
    above = parent[relation.leaves[bare]]
    np.add.at(result, above, own[relation.kind[bare]])

    # For all other switches: how many leaves of each kind are below each.
    switches = np.flatnonzero(inner)
    place = np.full(len(depth), -1, dtype=np.int64)
    place[switches] = np.arange(len(switches))
    flat = np.bincount(place[above] * kinds + relation.kind[bare], minlength=len(switches) * kinds)
    below = flat.reshape(len(switches), kinds)
    kind_of = np.full(len(depth), -1, dtype=np.int64)
    kind_of[relation.leaves] = relation.kind
    hosting = kind_of[switches] >= 0
    below[hosting, kind_of[switches][hosting]] += 1
    for level in range(int(depth[switches].max(initial=0)), 0, -1):
        at = depth[switches] == level
        np.add.at(below, place[parent[switches[at]]], below[at])
    with_partner, with_nic = below @ uses, below @ nics  # (switches, R)
    result[switches] += ((with_partner > 0) * (all_nics - with_nic)).sum(axis=1)
    result[switches[hosting]] += own[kind_of[switches][hosting]]
    passing = ((users - with_partner > 0) * with_nic).sum(axis=1)
    child = depth[switches] > 0
    np.add.at(result, parent[switches[child]], passing[child])
    return result
