# SPDX-License-Identifier: Apache-2.0
"""Max-min fair rates per pair and path; weights are their ratios. The default strategy.

The controller sees every pair, so it computes exactly what the papers' heuristics approach. It
raises the rates of all pairs together until the demand of a pair or a link is full, and reroutes
the pairs meanwhile (rates/many_paths.py). Then it takes the most even split that is near the
present one (split.py). A path may be any set of links with capacities.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ri2n_sdn.rates.arrays import BoolArray, FloatArray
from ri2n_sdn.rates.load import FULL, link_load
from ri2n_sdn.rates.many_paths import Network, max_min_rates
from ri2n_sdn.weights.sample import TrafficSample, Weights, to_shares
from ri2n_sdn.weights.split import even_split

__all__ = ["FLOOR", "demands", "fair_rates", "weights"]

# The probing share of every live path. Idle slots serve it.
FLOOR = 0.02
# A pair on a full link may grow to this multiple of its rate before the next step.
HEADROOM_LIMITED = 2.0
# A pair that no link limits sends what it wants. Its demand is a little more, for the next step.
HEADROOM_FREE = 1.3
# Capacity that nobody demands goes to the pairs in use, up to this multiple of their demand.
SPARE = 10.0
# The demand of a pair that sends nothing, as a part of the largest link's capacity.
MIN_DEMAND = 1e-5
# A path can limit a pair when it carries this part of the pair's traffic.
CARRIES = 0.05
# A pair on a full link is greedy when its rate is this part of the even part of a link on its
# paths. The even part is the capacity of a link divided by the number of paths that carry traffic
# over it.
GREEDY = 0.1
# Newton steps for the even split before an LP has to say whether the rates can be routed at all.
GUESS_STEPS = 15
# Routing attempts that a step may take (15..30 ms each with 1,000 pairs of 4 paths).
MAX_ROUNDS = 8
# A pair whose fair rate is less than its demand by more than this part of it is limited by a link.
LIMITED = 1e-6


def weights(sample: TrafficSample, previous: FloatArray) -> Weights:
    """Max-min fair rates (P, K) within `demands`, and shares in the ratio of these rates.

    Capacity that nobody demands is spread over the pairs in use. `previous` (P, K) has the shares
    in force. The shares have a floor, the rates have none.
    """
    if sample.pairs == 0:
        return Weights(np.zeros_like(previous), np.zeros_like(previous), np.zeros(0))
    network = Network(sample.path_links, sample.alive, sample.capacity_bps)
    demand = demands(sample)
    near = to_shares(previous, sample.alive)
    guesses: list[FloatArray] = []

    def guess(rate: FloatArray) -> FloatArray:
        """The even split of these rates, which often routes them."""
        guesses.append(even_split(network, rate, near, steps=GUESS_STEPS))
        return guesses[-1]

    rates, routed = max_min_rates(network, demand, demand * SPARE, rounds=MAX_ROUNDS, guess=guess)
    rate = rates[-1]
    split = guesses[-1]
    # The last guess did not route the rates, so an LP did: the even split needs all its steps.
    if not np.allclose(split * rate[:, None], routed, rtol=1e-6, atol=0.0):
        split = even_split(network, rate, near)
    return Weights(
        to_shares(split, sample.alive, FLOOR), split * rate[:, None], _limited(rates[0], demand)
    )


def fair_rates(sample: TrafficSample, pairs: BoolArray) -> FloatArray:
    """The max-min fair rates (P,) of some `pairs` (P,), whatever the strategy is.

    NaN stands for a pair that no link limits, and for those that are not asked for: other pairs
    count as silent. The rates are those of `weights` for the same traffic.
    """
    fair_bps = np.full(sample.pairs, np.nan)
    if not pairs.any():
        return fair_bps
    asked = replace(
        sample,
        sent_bytes=sample.sent_bytes[pairs],
        received_bytes=sample.received_bytes[pairs],
        alive=sample.alive[pairs],
        sender=sample.sender[pairs],
        receiver=sample.receiver[pairs],
        receiver_link=sample.receiver_link[pairs],
        path_links=sample.path_links[pairs],
        fast_bps=sample.fast_bps[pairs],
        slow_bps=sample.slow_bps[pairs],
        settled=sample.settled[pairs],
    )
    network = Network(asked.path_links, asked.alive, asked.capacity_bps)
    demand = demands(asked)
    near = to_shares(np.zeros(asked.alive.shape), asked.alive)
    rates, _ = max_min_rates(
        network,
        demand,
        rounds=MAX_ROUNDS,
        guess=lambda rate: even_split(network, rate, near, steps=GUESS_STEPS),
    )
    fair_bps[pairs] = _limited(rates[0], demand)
    return fair_bps


def _limited(rate: FloatArray, demand: FloatArray) -> FloatArray:
    """The rates (P,) of pairs that demand more than they get; NaN for the others.

    A pair without a live path gets 0, and no link limits it.
    """
    limited = (rate > 0.0) & (rate < (1.0 - LIMITED) * demand)
    return np.where(limited, rate, np.nan)


def demands(sample: TrafficSample) -> FloatArray:
    """The rate (P,) in bit/s that each pair would send if it could, from what it sent.

    A pair that crosses a full link may want more than it gets, but nobody can tell how much. If it
    has a fair amount of traffic already (GREEDY), it is taken for elastic and demands everything.
    Else it demands HEADROOM_LIMITED times its rate: an elastic pair then doubles per step until it
    has its fair share, and a pair that does not want more keeps no more than that from the others.
    A pair that crosses no full link demands HEADROOM_FREE times its rate. So a pair that only pings
    demands next to nothing (the paper's table 8).

    The rate of a pair is the larger one of its short and its long average.
    """
    alive = sample.alive
    fast = np.where(alive, sample.fast_bps, 0.0)
    rate = np.maximum(sample.fast_bps.sum(axis=1), sample.slow_bps.sum(axis=1))
    links = np.where(alive[:, :, None], sample.path_links, -1)
    load = link_load(fast, links, len(sample.capacity_bps))
    full = np.append(load >= FULL * sample.capacity_bps, False)
    carries = alive & (fast > 0.0) & (fast >= CARRIES * fast.sum(axis=1, keepdims=True))
    limited = (full[links].any(axis=2) & carries).any(axis=1)
    min_demand = MIN_DEMAND * float(sample.capacity_bps.max(initial=0.0))
    users = link_load(carries.astype(np.float64), links, len(sample.capacity_bps))
    even_part = np.append(sample.capacity_bps / np.maximum(users, 1.0), np.inf)
    lowest = np.where(carries, even_part[links].min(axis=2), np.inf).min(axis=1)
    greedy = limited & (rate >= GREEDY * lowest)
    want = rate * np.where(limited, HEADROOM_LIMITED, HEADROOM_FREE)
    return np.asarray(
        np.maximum(np.where(greedy, sample.capacity_bps.sum(), want), min_demand),
        dtype=np.float64,
    )
