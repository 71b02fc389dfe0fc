# SPDX-License-Identifier: Apache-2.0
"""Pure: who sends to whom in `ri2n bench vbft`, and the most that a topology can carry of it.

Linear programs find the most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology

__all__ = ["CG_PAIRS", "PATTERNS", "Bound", "Pair", "bound", "pattern_bound", "phases"]

Pair = tuple[str, str]
"""(sender, receiver)."""

PATTERNS = ("bisection", "alltoall", "cg", "shift")
CG_PAIRS = ((1, 4), (2, 8), (3, 12), (6, 9), (7, 13), (11, 14))
"""The pairs of hosts, counted from 1, that exchange vectors in NPB's CG with 16 processes.

VFREC-Net, table 3.
"""


@dataclass(frozen=True)
class Bound:
    """Bit/s of frames: the largest total, and the largest rate that all pairs can have."""

    total_bps: float
    each_bps: float


def phases(pattern: str, hosts: Sequence[str]) -> list[list[Pair]]:
    """The pairs that send at once, phase after phase, of n hosts in their order.

    bisection: the first half of the hosts to the second, i to i + n/2, one way. alltoall: everybody
    to everybody. cg: CG_PAIRS, both ways. shift: i to i + k, wrapping round, in phase k of 1 .. n -
    1. BadInput when there are too few hosts, or an odd number to be cut in half.
    """
    count = len(hosts)
    least = max(map(max, CG_PAIRS)) if pattern == "cg" else 2
    if count < least or (pattern == "bisection" and count % 2):
        wanted = "an even number of hosts" if pattern == "bisection" else f"at least {least} hosts"
        raise BadInput(f"--pattern {pattern}: needs {wanted}, the topology has {count}")
    if pattern == "bisection":
        return [[(hosts[i], hosts[i + count // 2]) for i in range(count // 2)]]
    if pattern == "alltoall":
        return [[(one, other) for one in hosts for other in hosts if one != other]]
    if pattern == "cg":
        named = [(hosts[one - 1], hosts[other - 1]) for one, other in CG_PAIRS]
        return [[pair for one, other in named for pair in ((one, other), (other, one))]]
    return [[(hosts[i], hosts[(i + k) % count]) for i in range(count)] for k in range(1, count)]


def pattern_bound(topology: Topology, pattern: str) -> Bound:
    """`bound` of a whole pattern: the means over its phases."""
    found = [bound(topology, pairs) for pairs in phases(pattern, topology.managed_hosts())]
    return Bound(
        float(np.mean([each.total_bps for each in found])),
        float(np.mean([each.each_bps for each in found])),
    )


def bound(topology: Topology, pairs: Sequence[Pair]) -> Bound:
    """What the NICs and cables of `topology` can carry for `pairs` at once.

    Every pair may split over all paths, so that no routing can do better. A multicommodity flow,
    where all pairs with the same receiver are one commodity.
    """
    arcs, rates = _arcs(topology)
    pairs = [(_host(sender), _host(receiver)) for sender, receiver in pairs]
    hosts = set(map(_host, topology.hosts))
    receivers = list(dict.fromkeys(receiver for _, receiver in pairs))
    column = {receiver: index * len(arcs) for index, receiver in enumerate(receivers)}
    flows = len(receivers) * len(arcs)
    entries: list[tuple[int, int, float]] = []
    # (commodity, node) -> row: what leaves is what comes in and begins.
    equalities: dict[tuple[str, str], int] = {}
    limits: list[tuple[float, float | None]] = []
    for receiver in receivers:
        for arc, (tail, head) in enumerate(arcs):
            place = column[receiver] + arc
            # A host passes nothing on, and what has arrived does not leave again.
            useless = tail == receiver or (head in hosts and head != receiver)
            limits.append((0.0, 0.0 if useless else None))
            if tail != receiver:
                entries.append(
                    (equalities.setdefault((receiver, tail), len(equalities)), place, 1.0)
                )
            if head != receiver:
                entries.append(
                    (equalities.setdefault((receiver, head), len(equalities)), place, -1.0)
                )
    for index, (sender, receiver) in enumerate(pairs):
        entries.append(
            (equalities.setdefault((receiver, sender), len(equalities)), flows + index, -1.0)
        )
    # Solved in units of the fastest link: coefficients near 1 keep the solver's tolerances
    # meaningful.
    unit = max(rates)
    width = flows + len(pairs) + 1  # the last variable is a rate that every pair has at least
    balance = _matrix(entries, len(equalities), width)
    capacity = _matrix(
        [(arc, column[receiver] + arc, 1.0) for receiver in receivers for arc in range(len(arcs))],
        len(arcs),
        width,
    )
    least = [(index, flows + index, -1.0) for index in range(len(pairs))]
    least += [(index, width - 1, 1.0) for index in range(len(pairs))]
    above = np.vstack([capacity, _matrix(least, len(pairs), width)])
    right = np.concatenate([np.array(rates) / unit, np.zeros(len(pairs))])
    found = []
    for wanted in (slice(flows, width - 1), slice(width - 1, width)):
        cost = np.zeros(width)
        cost[wanted] = -1.0
        result = linprog(
            cost,
            A_ub=above,
            b_ub=right,
            A_eq=balance,
            b_eq=np.zeros(len(equalities)),
            bounds=[*limits, *[(0.0, None)] * (len(pairs) + 1)],
            method="highs",
        )
        assert result.status == 0 and result.fun is not None, result.message
        found.append(-float(result.fun) * unit)
    return Bound(*found)


def _arcs(topology: Topology) -> tuple[list[tuple[str, str]], list[float]]:
    """Every direction of every NIC and cable as (from, to), and its rate."""
    arcs: list[tuple[str, str]] = []
    rates: list[float] = []
    ends = [
        (_host(host), nic.switch, nic.rate_bps)
        for host, spec in topology.hosts.items()
        for nic in spec.nics
    ]
    ends += [(cable.a, cable.b, cable.rate_bps) for cable in topology.graph.cables()]
    for one, other, rate_bps in ends:
        arcs += [(one, other), (other, one)]
        rates += [float(rate_bps), float(rate_bps)]
    return arcs, rates


def _host(name: str) -> str:
    """A host as a node of the graph: a switch may have the same name."""
    return f"host {name}"


def _matrix(
    entries: Sequence[tuple[int, int, float]], height: int, width: int
) -> NDArray[np.float64]:
    result = np.zeros((height, width))
    for row, column, value in entries:
        result[row, column] = value
    return result
