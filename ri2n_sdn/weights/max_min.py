"""Max-min fair rates per pair and path; weights are their ratios. The default strategy.

The controller sees every pair, so it computes what the papers' heuristics approach: fill all pairs'
rates together until their demands or their links are full, rerouting while filling
(rates/many_paths.py), then pick the most even split that is near the present one (split.py). A path
may be any set of capacitated links.
"""

from __future__ import annotations

import numpy as np

from ri2n_sdn.rates.arrays import FloatArray
from ri2n_sdn.rates.load import FULL, link_load
from ri2n_sdn.rates.many_paths import Network, max_min_rates
from ri2n_sdn.weights.sample import TrafficSample, Weights, to_shares
from ri2n_sdn.weights.split import even_split

__all__ = ["FLOOR", "demands", "weights"]

FLOOR = 0.02  # probing share of every live path; idle slots serve it
HEADROOM_LIMITED = (
    2.0  # a pair on a saturated link may grow to this multiple of its rate before the next step
)
HEADROOM_FREE = (
    1.3  # a pair that nothing limits sends what it wants; a little more for the next step
)
# capacity that nobody demands is kept for pairs in use, up to this multiple of their demand
SPARE = 10.0
LEAST_OF_CAPACITY = 1e-5  # demand of a pair that sends nothing, of the largest link
CARRIES = 0.05  # a path that carries this part of a pair's traffic can limit the pair
# Newton steps for the even split before an LP is asked whether the rates can be routed at all
GUESS_STEPS = 15
ROUNDS = 8  # routing attempts a step may take (15..30 ms each with 1,000 pairs of 4 paths)


def weights(sample: TrafficSample, previous: FloatArray) -> Weights:
    """Max-min fair rates (P, K) for `demands`, the spare capacity spread over the pairs in use
    on top.
    """
    if sample.pairs == 0:
        return Weights(np.zeros_like(previous), np.zeros_like(previous))
    network = Network(sample.path_links, sample.alive, sample.capacity_bps)
    demand = demands(sample)
    near = to_shares(previous, sample.alive)
    guesses: list[FloatArray] = []

    def guess(rate: FloatArray) -> FloatArray:
        guesses.append(even_split(network, rate, near, steps=GUESS_STEPS))
        return guesses[-1]

    rates, routed = max_min_rates(network, demand, demand * SPARE, rounds=ROUNDS, guess=guess)
    rate = rates[-1]
    split = guesses[-1]
    if not np.allclose(split * rate[:, None], routed, rtol=1e-6, atol=0.0):  # the guess was not it
        split = even_split(network, rate, near)
    return Weights(to_shares(split, sample.alive, FLOOR), split * rate[:, None])


def demands(sample: TrafficSample) -> FloatArray:
    """(P,) bit/s that each pair would send if it could, from what it sent.

    A pair on a saturated link may want any amount: it is given HEADROOM_LIMITED times its rate, so
    an elastic one doubles per step until it has its fair share, and one that does not want more
    holds nobody up for more than that. A pair that only pings demands next to nothing (the paper's
    table 8).
    """
    alive = sample.alive
    fast = np.where(alive, sample.fast_bps, 0.0)
    rate = np.maximum(sample.fast_bps.sum(axis=1), sample.slow_bps.sum(axis=1))
    links = np.where(alive[:, :, None], sample.path_links, -1)
    load = link_load(fast, links, len(sample.capacity_bps))
    full = np.append(load >= FULL * sample.capacity_bps, False)
    carries = alive & (fast > 0.0) & (fast >= CARRIES * fast.sum(axis=1, keepdims=True))
    limited = (full[links].any(axis=2) & carries).any(axis=1)
    least = LEAST_OF_CAPACITY * float(sample.capacity_bps.max(initial=0.0))
    users = link_load(carries.astype(np.float64), links, len(sample.capacity_bps))
    fair = np.append(sample.capacity_bps / np.maximum(users, 1.0), np.inf)
    lowest = np.where(carries, fair[links].min(axis=2), np.inf).min(axis=1)
    greedy = limited & (rate >= 0.1 * lowest)
    want = rate * np.where(limited, HEADROOM_LIMITED, HEADROOM_FREE)
    return np.asarray(
        np.maximum(np.where(greedy, sample.capacity_bps.sum(), want), least), dtype=np.float64
    )
