# SPDX-License-Identifier: Apache-2.0
"""The best that a topology can carry: the largest total goodput, and max-min fair rates.

Linear programs (HiGHS) find both, independently of the strategies that are measured against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ri2n_sdn.errors import BadInput
from ri2n_sdn.fabric.topology import Topology
from ri2n_sdn.rates.lp import max_min_by_lp, most

__all__ = ["GOODPUT_RATIO", "Optimum", "goodput_optimum"]

# TCP payload of a full-sized frame with timestamps, over the frame as the shaper counts it
# (Ethernet header, no FCS).
GOODPUT_RATIO = 1448 / 1514


@dataclass(frozen=True)
class Optimum:
    """Goodput in bit/s: the largest possible total, and each client's max-min fair rate."""

    total_bps: float
    fair_bps: dict[str, float]


def goodput_optimum(topology: Topology, clients: Sequence[str], server: str) -> Optimum:
    """What `clients` can send to `server` at the same time, each over all of its paths.

    Raises BadInput for an unknown host or a client that shares no network with the server.
    """
    for name in (*clients, server):
        if name not in topology.hosts:
            raise BadInput(f"{topology.name}: no host {name!r}")
    paths: list[tuple[int, int, int]] = []  # (client, its link, the server's link)
    capacities: list[float] = [nic.rate_bps * GOODPUT_RATIO for nic in topology.hosts[server].nics]
    for index, client in enumerate(clients):
        before = len(paths)
        for nic in topology.hosts[client].nics:
            capacities.append(nic.rate_bps * GOODPUT_RATIO)
            paths += [
                (index, len(capacities) - 1, link)
                for link, other in enumerate(topology.hosts[server].nics)
                if other.switch == nic.switch
            ]
        if len(paths) == before:
            raise BadInput(f"{topology.name}: {client} and {server} share no network")
    # Solved in units of the fastest link: coefficients near 1 keep the solver's tolerances
    # meaningful.
    unit = max(capacities)
    crosses = np.zeros((len(capacities), len(paths)))
    belongs = np.zeros((len(clients), len(paths)))
    for column, (client_index, own, peer) in enumerate(paths):
        crosses[own, column] = crosses[peer, column] = 1.0
        belongs[client_index, column] = 1.0
    limits = np.array(capacities) / unit
    total = most(belongs.sum(axis=0), crosses, limits)
    fair = max_min_by_lp(crosses, limits, belongs)
    rates = {client: float(rate * unit) for client, rate in zip(clients, fair, strict=True)}
    return Optimum(total * unit, rates)
