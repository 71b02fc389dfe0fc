# SPDX-License-Identifier: Apache-2.0
"""The path table `profile`: trees for the pairs of a recorded run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ri2n_sdn.vlan.matrix import TrafficMatrix, profile_choice
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
    """
    has_leaves = np.array([set(pair) <= leaf_of.keys() for pair in matrix.pairs], dtype=np.bool_)
    pairs = [pair for pair, has in zip(matrix.pairs, has_leaves.tolist(), strict=True) if has]
    if not pairs:
        return {}
    recorded = TrafficMatrix(tuple(pairs), matrix.sent_bytes[has_leaves], matrix.interval_s)
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
    chosen = profile_choice(
        recorded, allowed, links, np.repeat(trees.graph.rate_bps, 2).astype(np.float64)
    )
    return {
        pair: int(allowed[k, c])
        for k, (pair, c) in enumerate(zip(pairs, chosen.tolist(), strict=True))
        if c >= 0
    }
