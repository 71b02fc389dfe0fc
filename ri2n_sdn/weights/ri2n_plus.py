"""RI2N+: a path's weight is the inverse of the number of peers that use the receiver's link."""

from __future__ import annotations

import numpy as np

from ri2n_sdn.rates.arrays import FloatArray, IntArray
from ri2n_sdn.weights.sample import TrafficSample, Weights, to_shares

__all__ = ["peer_counts", "weights"]


def weights(sample: TrafficSample, previous: FloatArray) -> Weights:
    """W_ijk = 1 / cnt_jk with cnt_jk from `peer_counts` (RI2N++ paper, section 3.1).

    Traffic is not looked at.
    """
    count = peer_counts(sample)
    return Weights(to_shares(1.0 / np.maximum(count, 1), sample.alive))


def peer_counts(sample: TrafficSample) -> IntArray:
    """cnt_jk (P, K): how many senders have a live path into the receiver's link k, whatever they
    send.

    The paper counts the peers' endpoints that a link has; a peer with two NICs on one switch is one
    peer. A pair that only pings counts like one that sends bulk: that is RI2N+'s weakness (the
    paper's table 8).
    """
    pair, path = np.nonzero(sample.alive)
    links = int(sample.capacity_bps.shape[0])
    used = (
        sample.receiver_link[pair, path] * (int(sample.sender.max(initial=0)) + 1)
        + sample.sender[pair]
    )
    count = np.bincount(np.unique(used) // (int(sample.sender.max(initial=0)) + 1), minlength=links)
    result = np.zeros(sample.alive.shape, dtype=np.int64)
    result[pair, path] = count[sample.receiver_link[pair, path]]
    return result
