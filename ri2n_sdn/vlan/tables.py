# SPDX-License-Identifier: Apache-2.0
"""Path tables that need no measurement: which trees a pair of hosts may use.

That follows from the hosts' numbers alone. Hosts are numbered from 1, as `Topology.number` does;
trees are indices into `Trees.vlans`.

Both hosts of a pair get the same answer, so that switches learn an address in those VLANs in which
frames to it come. Hosts on one switch use the base tree, 0: no cable lies between them, their
frames need no tag, and switches know every address in the base tree anyway. Hosts with `managed:
false` know the base tree only; callers see to that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ri2n_sdn.rates.arrays import IntArray
from ri2n_sdn.vlan.trees import Int32Array, Trees

__all__ = ["candidates", "first_trees", "pair_candidates", "width"]


def candidates(
    trees: Trees,
    a: ArrayLike,
    b: ArrayLike,
    leaf_a: ArrayLike,
    leaf_b: ArrayLike,
    table: str = "spread",
    per_pair: int = 4,
) -> Int32Array:
    """(N, K) the trees that each of N pairs may use, the first one first, -1 beyond the last.

    `a`, `b` (N,) are hosts' numbers, `leaf_a`, `leaf_b` (N,) their NICs' switches. Hosts in
    different networks have no tree. With the table `cyclic` a pair has one tree: that of the host
    with the lower number, which has the higher priority (VFREC-Net 3.2). With `spread`, `adaptive`
    and `profile` it has `per_pair` of them, or all of a network that has fewer. These are
    neighbours in the order of trees, so that they leave the leaves of a fat tree over different
    cables (`build_trees`). Over all pairs every tree is used equally often, and also over all pairs
    (i, i + d), for any d.
    """
    host_a, host_b, switch_a, switch_b = (
        np.atleast_1d(np.asarray(side, dtype=np.int64)) for side in (a, b, leaf_a, leaf_b)
    )
    of_switch = (trees.depth >= 0).sum(axis=0, dtype=np.int64)
    # All trees of a network have all its leaves, so both ends count the same number of trees.
    count = np.maximum(of_switch[switch_a], 1)
    step = np.arange(min(width(table, per_pair), max(trees.count, 1)), dtype=np.int64)
    result = np.where(
        step < count[:, None],
        (first_trees(table, host_a, host_b, count)[:, None] + step) % count[:, None],
        -1,
    )
    result[switch_a == switch_b] = np.where(step == 0, 0, -1)
    result[trees.graph.component[switch_a] != trees.graph.component[switch_b]] = -1
    return result.astype(np.int32)


def pair_candidates(
    trees: Trees, a: int, b: int, leaf_a: int, leaf_b: int, table: str = "spread", per_pair: int = 4
) -> tuple[int, ...]:
    """`candidates` for one pair of hosts, as a tuple; empty for hosts in different networks."""
    row = candidates(trees, [a], [b], [leaf_a], [leaf_b], table, per_pair)[0]
    return tuple(row[row >= 0].tolist())


def width(table: str, per_pair: int) -> int:
    """How many trees a pair may use at most."""
    return 1 if table == "cyclic" else per_pair


def first_trees(table: str, a: IntArray, b: IntArray, count: IntArray) -> IntArray:
    """The first tree of each pair of hosts with the numbers `a` and `b`, in a network of `count`.

    With `cyclic` it is the own tree of the host with the lower number. Otherwise trees are used
    evenly over all pairs, and over all pairs (i, i + d):

    Hosts have places on a circle of `count` trees. Of the two hosts of a pair, the one counts from
    which the distance up to the other is the shorter. The pair's first tree is that host's place,
    plus twice the distance. Without that sum, a host with many partners would use its own place for
    most of them. Where the distances are equal (half a circle), the hosts count in turn, by how
    many full circles lie before each of them. The result depends on (a, b) mod 2 `count`.
    """
    if table == "cyclic":
        return (np.minimum(a, b) - 1) % count
    place_a, place_b = (a - 1) % count, (b - 1) % count
    up = (place_b - place_a) % count
    down = (count - up) % count
    turn = ((a - 1) // count + (b - 1) // count) % 2
    lower, higher = np.minimum(place_a, place_b), np.maximum(place_a, place_b)
    from_a = np.where(up == down, np.where(turn == 0, lower, higher) == place_a, up < down)
    return np.where(from_a, place_a + 2 * up, place_b + 2 * down) % count
