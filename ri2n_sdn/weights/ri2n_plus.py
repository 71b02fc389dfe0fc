# SPDX-License-Identifier: Apache-2.0
"""RI2N+: the weight of a path is 1 / the number of peers that use the receiver's link."""

from __future__ import annotations

import numpy as np

from ri2n_sdn.rates.arrays import FloatArray, IntArray
from ri2n_sdn.weights.sample import TrafficSample, Weights, to_shares

__all__ = ["peer_counts", "weights"]


def weights(sample: TrafficSample, previous: FloatArray) -> Weights:
    """W_ijk = 1 / cnt_jk, where cnt_jk is from `peer_counts` (RI2N++ paper, section 3.1).

    The traffic in `sample` and `previous` have no influence.
    """
    count = peer_counts(sample)
    return Weights(to_shares(1.0 / np.maximum(count, 1), sample.alive))


def peer_counts(sample: TrafficSample) -> IntArray:
    """cnt_jk (P, K): how many senders have a live path into the link k of receiver j.

    What they send does not matter. The paper counts the endpoints of peers that a link has; here a
    peer with two NICs on one switch is one peer. A pair that only pings counts like one that sends
    bulk traffic: that is the weakness of RI2N+ (the paper's table 8).
    """
    pair, path = np.nonzero(sample.alive)
    links = int(sample.capacity_bps.shape[0])
    senders = int(sample.sender.max(initial=0)) + 1
    # One number for each (link, sender), so that each sender counts once per link.
    link_and_sender = sample.receiver_link[pair, path] * senders + sample.sender[pair]
    count = np.bincount(np.unique(link_and_sender) // senders, minlength=links)
    result = np.zeros(sample.alive.shape, dtype=np.int64)
    result[pair, path] = count[sample.receiver_link[pair, path]]
    return result
