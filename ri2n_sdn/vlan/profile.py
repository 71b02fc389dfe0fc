# SPDX-License-Identifier: Apache-2.0
"""The path table `profile`: trees for the pairs of a recorded run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ri2n_sdn.vlan.assign import assign
from ri2n_sdn.vlan.matrix import TrafficMatrix
from ri2n_sdn.vlan.tables import candidates
from ri2n_sdn.vlan.trees import Trees

__all__ = ["profile_trees"]


def profile_trees(
    trees: Trees,
    matrix: TrafficMatrix,
    leaf_of: Mapping[str, int],
    numbers: Mapping[str, int],
    per_pair: int,
) -> dict[tuple[str, str], int]:
    """The tree of each recorded pair, one of the at most `per_pair` that it may use.

    `leaf_of` are hosts' switches, `numbers` their numbers, from 1. Pairs with a host that has no
    switch are left out.

    The link with the most bytes for its rate has as few bytes as possible. Bytes count and not
    rates: what a run sends is the same however fast it runs.
    """
    placed = [k for k, pair in enumerate(matrix.pairs) if set(pair) <= leaf_of.keys()]
    if not placed:
        return {}
    pairs = [matrix.pairs[k] for k in placed]
    number_a, number_b = (
        np.array([numbers[pair[side]] for pair in pairs], dtype=np.int64) for side in (0, 1)
    )
    a, b = (np.array([leaf_of[pair[side]] for pair in pairs], dtype=np.int64) for side in (0, 1))
    allowed = candidates(trees, number_a, number_b, a, b, "profile", per_pair).astype(np.int64)
    row, column = np.nonzero(allowed >= 0)
    paths = trees.links(
        allowed[row, column].astype(np.int32), a[row].astype(np.int32), b[row].astype(np.int32)
    )
    links = np.full((*allowed.shape, paths.shape[1]), -1, dtype=np.int64)
    links[row, column] = paths
    capacity_bps = np.repeat(trees.graph.rate_bps, 2).astype(np.float64)
    chosen = assign(matrix.sent_bits[placed], allowed, links, capacity_bps).choice
    return {
        pair: int(allowed[k, c])
        for k, (pair, c) in enumerate(zip(pairs, chosen.tolist(), strict=True))
        if c >= 0
    }
