# SPDX-License-Identifier: Apache-2.0
"""What a job's hosts send together over the links between switches, whatever they send to whom.

This is the hose model (Duffield et al., "A Flexible Model for Resource Management in Virtual
Private Networks", SIGCOMM 1999): each host may send min_rate in all and receive min_rate in all, to
and from whichever other hosts of the job. A link must carry the worst of all such traffic. Across a
link of a tree that cuts k of n hosts off, it is min(k, n - k) times the min_rate.

A job with several lanes spreads the traffic of each pair of hosts over the pair's live paths in
these lanes in proportion to the paths' rates: that is how a job's slot tables are made
(pipeline.jobs.class_flows), and nothing changes them later. So the share of a pair's traffic that a
link carries is known, and a link is not relieved because another one has room. The worst case takes
exactly these shares: for one lane, and for lanes that all pairs across the link have, the bound is
reached by some traffic; elsewhere it may be a little too high, but never too low.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ri2n_sdn.jobs.held import Held
from ri2n_sdn.jobs.lanes import Lane, chosen
from ri2n_sdn.jobs.model import Job

__all__ = ["Ends", "LinkNeed", "PairShare", "link_needs", "worst_link"]

ROUNDING = 1e-9
"""What a load may be above a link's rate, of that rate: shares are floating-point numbers."""

Rates = tuple[tuple[Lane, int], ...]
"""(Lane, sum of the rates of some paths in it)."""


class PairShare(NamedTuple):
    """What of a pair's traffic crosses a link.

    * `across`: the rates of those of the pair's paths that cross the link.
    * `whole`: the rates of all of its paths in lanes.
    """

    across: Rates
    whole: Rates

    def of(self, lanes: frozenset[Lane]) -> float:
        """The share, from 0 to 1, when the job has these lanes; 0 when the pair has none of them.

        Then the pair's traffic goes by the common paths.
        """
        whole = sum(rate for lane, rate in self.whole if lane in lanes)
        return sum(rate for lane, rate in self.across if lane in lanes) / whole if whole else 0.0


Ends = frozenset[tuple[frozenset[PairShare], int]]
"""The hosts at one end of the pairs that cross a link: (the shares of a host's pairs, how many)."""


class LinkNeed(NamedTuple):
    """A link between switches, in one direction, and the pairs of a job that may cross it."""

    link: str
    rate_bps: float
    senders: Ends
    receivers: Ends

    def load_bps(self, lanes: frozenset[Lane], min_rate_bps: int) -> float:
        """What the job sends over the link at worst, in these lanes.

        No sender has more there than its min_rate, times the greatest share of any of its pairs. So
        neither has any receiver. The smaller sum is the bound.
        """
        return min_rate_bps * min(_hosts(self.senders, lanes), _hosts(self.receivers, lanes))

    def carries(self, lanes: frozenset[Lane], min_rate_bps: int) -> bool:
        """Whether the link carries that."""
        return self.load_bps(lanes, min_rate_bps) <= self.rate_bps * (1 + ROUNDING)


def worst_link(
    needs: Iterable[LinkNeed], lanes: frozenset[Lane], min_rate_bps: int
) -> LinkNeed | None:
    """The link with the greatest load of its rate, if its rate is less than that; else None."""
    over = [need for need in needs if not need.carries(lanes, min_rate_bps)]
    return min(
        over,
        key=lambda need: (-need.load_bps(lanes, min_rate_bps) / need.rate_bps, need.link),
        default=None,
    )


def link_needs(held: Held, job: Job, *, living: bool) -> tuple[LinkNeed, ...]:
    """The links between switches that a job with a min_rate may cross, the tightest first.

    Links that the same pairs cross in the same lanes are one: the slowest of them. With `living`,
    only live paths count, and where a pair has none, all. Any of the job's tables may have all of
    the traffic.
    """
    routing = held.fabric.routing
    if routing is None or job.policy.min_rate_bps is None:
        return ()
    # Many pairs have the same paths: all those between the hosts at two switches.
    kinds: dict[tuple[tuple[Lane, tuple[str, ...], int], ...], tuple[set[str], set[str]]] = {}
    tables = dict.fromkeys(held.tables(job))
    for pair in held.pairs(job):
        counted = held.map.counted(pair, living=living)
        for names in tables:
            # What matters of each path in a lane: the lane, its links and its rate.
            kind = tuple(
                (lane, path.route.links, path.rate_bps)
                for path in (chosen(counted, names) if names else counted)
                if (lane := held.map.of(path)) is not None
            )
            senders, receivers = kinds.setdefault(kind, (set(), set()))
            senders.add(pair[0])
            receivers.add(pair[1])
    ends: dict[str, tuple[dict[str, set[PairShare]], dict[str, set[PairShare]]]] = {}
    for kind, hosts in kinds.items():
        whole = _rates((lane, rate) for lane, _, rate in kind)
        for link in {link for _, links, _ in kind for link in links}:
            across = _rates((lane, rate) for lane, links, rate in kind if link in links)
            share = PairShare(across, whole)
            for end, names_there in zip(ends.setdefault(link, ({}, {})), hosts, strict=True):
                for host in names_there:
                    end.setdefault(host, set()).add(share)
    rates_bps = routing.capacities_bps()
    least: dict[tuple[Ends, Ends], tuple[float, str]] = {}
    for link, (senders_of, receivers_of) in ends.items():
        key = (_ends(senders_of), _ends(receivers_of))
        found = (rates_bps[link], link)
        least[key] = min(found, least.get(key, found))
    needs = [LinkNeed(link, rate, *key) for key, (rate, link) in least.items()]
    lanes = frozenset(lane for kind in kinds for lane, _, _ in kind)
    return tuple(
        sorted(needs, key=lambda need: (-need.load_bps(lanes, 1) / need.rate_bps, need[0]))
    )


def _rates(rates: Iterable[tuple[Lane, int]]) -> Rates:
    sums: dict[Lane, int] = {}
    for lane, rate in rates:
        sums[lane] = sums.get(lane, 0) + rate
    return tuple(sorted(sums.items()))


def _ends(shares: dict[str, set[PairShare]]) -> Ends:
    return frozenset(Counter(map(frozenset, shares.values())).items())


def _hosts(ends: Ends, lanes: frozenset[Lane]) -> float:
    """How many hosts' whole traffic it is at most."""
    return sum(count * max(share.of(lanes) for share in shares) for shares, count in ends)
