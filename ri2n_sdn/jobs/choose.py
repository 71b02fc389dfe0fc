# SPDX-License-Identifier: Apache-2.0
"""Which lanes a job gets: the fewest that reach all of its hosts and carry its rate.

A choice is a set of lanes. What it must do is written as sets, so that thousands of pairs of hosts
become a few conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

from ri2n_sdn.jobs.lanes import Lane, order_of
from ri2n_sdn.jobs.links import LinkNeed

__all__ = ["LinkRates", "Need", "choose", "host_rate_bps"]

MAX_TRIED = 20000
"""How many sets of lanes are tried before the choice becomes greedy."""

Lanes = frozenset[Lane]

LinkRates = tuple[tuple[int, tuple[tuple[Lane | None, int], ...]], ...]
"""For one host and one direction, each NIC: (the rate it has left, (lane, its rate there)...).

The lane None stands for a path that is in no lane.
"""


@dataclass(frozen=True)
class Need:
    """What a job's lanes must do.

    * `candidates`: the lanes that it may have; `required`: those of them that it must have.
    * `reach`: from each of these sets it needs at least one lane. Each set is the lanes between two
      hosts of the job.
    * `keep`: of each of these sets at least one lane must stay free. Each set is the lanes that
      others have left between two hosts.
    * `rates`: the NICs of each host of the job (LinkRates), each list once.
    * `min_rate_bps`: what each host must be able to send, and to receive.
    * `links`: the links between switches that must carry what the hosts send together.
    * `kept`: the lanes that the job has now; `avoid`: those that somebody needs soon.
    * `shared_links`: how many links a lane shares with lanes of other jobs.
    * `last`: the lanes that are last in order.
    """

    candidates: Lanes
    required: Lanes = frozenset()
    reach: frozenset[Lanes] = frozenset()
    keep: frozenset[Lanes] = frozenset()
    rates: frozenset[LinkRates] = frozenset()
    min_rate_bps: int = 0
    kept: Lanes = frozenset()
    avoid: Lanes = frozenset()
    shared_links: Mapping[Lane, int] = field(default_factory=dict)
    last: Lanes = frozenset()
    links: tuple[LinkNeed, ...] = ()

    def order(self, lane: Lane) -> tuple[object, ...]:
        """The key by which lanes are in order."""
        return (lane in self.last, order_of(lane))

    def reached(self, lanes: Lanes) -> bool:
        """Whether all hosts reach each other in the lanes."""
        return all(lanes & wanted for wanted in self.reach)

    def spares(self, lanes: Lanes) -> bool:
        """Whether the lanes leave others what they need."""
        return not any(left <= lanes for left in self.keep)

    def carries(self, lanes: Lanes) -> bool:
        """Whether the lanes carry the rate, at every host and over every link between switches."""
        return self.hosts_carry(lanes) and all(
            link.carries(lanes, self.min_rate_bps) for link in self.links
        )

    def hosts_carry(self, lanes: Lanes) -> bool:
        """Whether the lanes carry the rate at every host."""
        return not self.min_rate_bps or all(
            host_rate_bps(nics, lanes) >= self.min_rate_bps for nics in self.rates
        )

    def met(self, lanes: Lanes) -> bool:
        """Whether the lanes do all that they must."""
        return (
            self.required <= lanes <= self.candidates
            and self.reached(lanes)
            and self.spares(lanes)
            and self.carries(lanes)
        )


def host_rate_bps(nics: LinkRates, lanes: Lanes) -> int:
    """What a host can send, or receive, in the lanes: the sum over its NICs.

    The lanes of one network share the NICs in it. A path that is in no lane counts only at a host
    that has no other: it leads to the hosts at the same switch alone.
    """
    outside = all(lane is None for _, rates in nics for lane, _ in rates)
    return sum(
        min(left, sum(rate for lane, rate in rates if lane in lanes or (outside and lane is None)))
        for left, rates in nics
    )


def choose(need: Need) -> Lanes | None:
    """The best choice; None when there is none.

    A smaller set is better than a larger one; then one with fewer lanes that the job does not have
    yet; then one with fewer lanes that somebody needs soon; then one that shares fewer links with
    lanes of other jobs; then the first in order. The untagged VLAN of a fat tree is the last in
    order, since it also carries what hosts flood.
    """
    free = sorted(need.candidates - need.required, key=need.order)
    # What fails with all candidates fails with fewer of them. That is not so of links between
    # switches: a further lane may cross a link that is full.
    if not need.required <= need.candidates or not need.reached(need.candidates):
        return None
    if not need.spares(need.required) or not need.hosts_carry(need.candidates):
        return None

    def rank(lanes: Lanes) -> tuple[object, ...]:
        return (
            len(lanes - need.kept),
            len(lanes & need.avoid),
            sum(need.shared_links.get(lane, 0) for lane in lanes),
            sorted(need.order(lane) for lane in lanes),
        )

    tried = 0
    for size in range(len(free) + 1):
        tried += comb(len(free), size)
        if tried > MAX_TRIED:
            return _greedy(need, free)
        sets = (need.required.union(some) for some in combinations(free, size))
        best = min(filter(need.met, sets), key=rank, default=None)
        if best is not None:
            return best
    return None


def _greedy(need: Need, free: Sequence[Lane]) -> Lanes | None:
    """A choice made lane by lane, for networks with so many lanes that not all sets can be tried.

    Each step takes the lane that helps most: the one that reaches the most pairs that are not yet
    reached, then the one that adds the most to the hosts that have least, and then the one with
    which links between switches are the least above their rates. At last it gives back every lane
    that is not needed, so that the set is small, but maybe not the smallest.
    """
    chosen = need.required
    while not (need.reached(chosen) and need.carries(chosen)):

        def gain(lane: Lane, chosen: Lanes = chosen) -> tuple[object, ...]:
            more = chosen | {lane}
            missing = sum(
                max(0, need.min_rate_bps - host_rate_bps(nics, more)) for nics in need.rates
            )
            loads = ((link.load_bps(more, need.min_rate_bps), link.rate_bps) for link in need.links)
            return (
                sum(not (more & wanted) for wanted in need.reach),
                missing,
                sum(max(0.0, load - rate) for load, rate in loads),
                lane not in need.kept,
                lane in need.avoid,
                need.shared_links.get(lane, 0),
                need.order(lane),
            )

        left = [lane for lane in free if lane not in chosen and need.spares(chosen | {lane})]
        if not left:
            return None
        chosen |= {min(left, key=gain)}
    # New lanes go before those that the job has. What one lane's going puts on other links may keep
    # another lane until a third one is gone, so this is repeated until nothing goes.
    before: Lanes | None = None
    while chosen != before and need.met(chosen):
        before = chosen
        for some in (chosen - need.required - need.kept, chosen & need.kept - need.required):
            for lane in sorted(some, key=need.order, reverse=True):
                if need.met(chosen - {lane}):
                    chosen -= {lane}
    return chosen if need.met(chosen) else None
