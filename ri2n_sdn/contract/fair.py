# SPDX-License-Identifier: Apache-2.0
"""The part that somebody has of what is fair: the figure by which this project is judged.

What is fair for a pair is its max-min fair rate. Every round computes it from what all pairs send
and want, under any strategy. A pair that no link limits has no such rate: it sends what it wants.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ri2n_sdn.contract.documents import FairEntry

__all__ = ["fair_entry", "part_of_fair", "worst_of"]


def part_of_fair(tx_bps: float | None, fair_bps: float | None) -> float | None:
    """What is sent, as a part of what is fair; None where one of them is not known.

    It is 1 when both are equal, and more when somebody gets more than is fair.
    """
    return None if tx_bps is None or not fair_bps else tx_bps / fair_bps


def fair_entry(pairs: Iterable[tuple[str, float, float]]) -> FairEntry | None:
    """The entry of a host with these pairs: (receiver, what it is sent, its fair rate) in bit/s.

    None without any pair.
    """
    known = [(receiver, int(tx_bps), int(fair_bps)) for receiver, tx_bps, fair_bps in pairs]
    if not known:
        return None
    worst, worst_tx_bps, worst_fair_bps = min(
        known, key=lambda pair: (part_of_fair(pair[1], pair[2]) or 0.0, pair[0])
    )
    return {
        "pairs": len(known),
        "tx_bps": sum(tx_bps for _, tx_bps, _ in known),
        "fair_bps": sum(fair_bps for _, _, fair_bps in known),
        "worst": worst,
        "worst_tx_bps": worst_tx_bps,
        "worst_fair_bps": worst_fair_bps,
    }


def worst_of(entry: FairEntry) -> float | None:
    """The part that the worst pair of a host has of what is fair for it."""
    return part_of_fair(entry["worst_tx_bps"], entry["worst_fair_bps"])
