# SPDX-License-Identifier: Apache-2.0
"""RI2N++: weights from the traffic that arrived, W_ijk = (R_ijk / Q_jk) x A_ijk.

Around the formula are a floor, and a start for paths that carry nothing.
"""

from __future__ import annotations

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray
from ri2n_sdn.weights.sample import TrafficSample, Weights, to_shares

__all__ = ["FLOOR", "paper_weights", "weights"]

# The share that every live path keeps, so that there is something to measure. From W = 0 a path
# would never recover.
FLOOR = 0.02

# The pair does not use a path yet when it sent less than this part of the path's share over it.
IN_EFFECT = 0.1


def weights(sample: TrafficSample, previous: FloatArray) -> Weights:
    """The weights of the RI2N++ paper (section 3.2), in bytes, with rules for what it leaves open.

    * Every live path counts as if it had carried at least the floor. So a receiver's link that
      nobody uses gets the limit of the formula (W = R_j) and not 0/0.
    * A pair that sent nothing, or whose counters still come from other weights, keeps its previous
      shares. So does a path above the floor that has carried nothing yet.
    * A path that has just come alive starts with an equal share, as in RI2N. From then on its share
      follows what arrives.
    """
    alive = sample.alive
    previous = _with_new_paths(previous, alive)
    received = np.where(alive, sample.received_bytes, 0.0)
    sent = np.where(alive, sample.sent_bytes, 0.0)
    share = to_shares(paper_weights(sample, FLOOR), alive)
    # A path whose share is not in effect yet says nothing about that share. It keeps the share, and
    # the other paths divide the rest.
    in_effect = IN_EFFECT * previous * sent.sum(axis=1, keepdims=True)
    silent = alive & (sent <= in_effect) & (previous > 2.0 * FLOOR)
    kept = np.where(silent, previous, 0.0)
    measured = np.where(silent, 0.0, share)
    total = measured.sum(axis=1, keepdims=True)
    rest = 1.0 - kept.sum(axis=1, keepdims=True)
    share = kept + np.divide(measured * rest, total, out=np.zeros_like(measured), where=total > 0.0)
    has_news = sample.settled & (sent.sum(axis=1) > 0.0) & (received.sum(axis=1) > 0.0)
    return Weights(to_shares(np.where(has_news[:, None], share, previous), alive, FLOOR))


def paper_weights(sample: TrafficSample, least: float = 0.0) -> FloatArray:
    """W_ijk (P, K) exactly as in the RI2N++ paper (section 3.2), but over bytes.

    It is 0 where nothing arrived or the path is dead. With `least` > 0, a path counts as if at
    least that part of all that arrived from the pair had been sent over it, and had arrived.
    """
    alive = sample.alive
    received = np.where(alive, sample.received_bytes, 0.0)  # R_ijk
    sent = np.where(alive, sample.sent_bytes, 0.0)  # S_ijk
    probe = np.where(alive, least * received.sum(axis=1, keepdims=True), 0.0)
    arrival = np.divide(received, sent, out=np.ones_like(sent), where=sent > probe)  # A_ijk
    # The counters of the two hosts are not read at the same time, so R may exceed S.
    np.clip(arrival, 0.0, 1.0, out=arrival)
    received = np.maximum(received, probe)
    link = np.where(alive, sample.receiver_link, 0)
    link_total = np.bincount(link.ravel(), weights=received.ravel(), minlength=1)  # R_jk
    host_total = np.bincount(sample.receiver, weights=received.sum(axis=1), minlength=1)  # R_j
    r_jk = np.where(alive, link_total[link], 0.0)
    r_j = host_total[sample.receiver][:, None]
    # R_ijk / Q_jk = R_ijk x R_j / R_jk, since Q_jk = R_jk / R_j.
    return np.divide(received * r_j, r_jk, out=np.zeros_like(received), where=r_jk > 0.0) * arrival


def _with_new_paths(previous: FloatArray, alive: BoolArray) -> FloatArray:
    """`previous` (P, K) with an equal share for live paths that had none.

    The other paths keep their proportions.
    """
    previous = np.where(alive, previous, 0.0)
    new = alive & (previous <= 0.0)
    live = np.maximum(alive.sum(axis=1, keepdims=True), 1)
    kept = previous.sum(axis=1, keepdims=True)
    rest = 1.0 - new.sum(axis=1, keepdims=True) / live
    scaled = np.divide(previous * rest, kept, out=np.zeros_like(previous), where=kept > 0.0)
    return np.asarray(np.where(new, 1.0 / live, scaled), dtype=np.float64)
