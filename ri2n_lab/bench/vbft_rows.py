# SPDX-License-Identifier: Apache-2.0
"""Pure: rows of `ri2n bench vbft`, from what was received to shares of what flat gets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ri2n_lab.bench.figure import Figure, Number
from ri2n_lab.bench.patterns import Bound
from ri2n_lab.traffic.bulk import BIN_S, PhaseResult
from ri2n_sdn.fabric.topology import Topology

__all__ = [
    "FIGURES",
    "FLAT",
    "GROUPS",
    "SMOOTH_S",
    "UDP_SMOOTH_S",
    "compared",
    "has_choice",
    "settle_s",
    "vbft_row",
]

Json = dict[str, Any]

FLAT = "flat"
GROUPS = ("topology", "pattern", "table", "mode", "engine", "streams")
FIGURES = (
    Figure("bytes_per_s", "goodput", "Mbit/s", show=".1f", scale=8e-6, kind=Number, required=True),
    Figure("of_flat", "of flat", show=".3f", required=True),
    Figure("bound_of_flat", "bound", show=".3f", required=True),
    Figure("worst_of_flat", "worst host", show=".3f", required=True),
    Figure("worst_pair_of_flat", "worst pair", show=".3f", required=True),
    Figure("fair_of_flat", "fair", show=".3f", required=True),
    Figure("retransmits", "retransmits", required=True),
    Figure("flooded", "flooded", required=True),
    Figure("switch_drops", "switch drops", required=True),
    Figure("settle_hbspan", "settled after", "HBSPANs", show=".1f", required=True),
)
SHARES = ("of_flat", "bound_of_flat", "worst_of_flat", "worst_pair_of_flat", "fair_of_flat")
SETTLED_SHARE = 0.97
SMOOTH_S, UDP_SMOOTH_S = 1.0, 0.25
"""Rates are means over so long: single bins tell more of TCP's losses than of the paths."""


def has_choice(topology: Topology) -> bool:
    """Whether its cables have a circle: only then can path tables differ, by several trees."""
    graph = topology.graph
    trees = int(graph.component.max(initial=-1)) + 1
    return len(graph.rate_bps) > len(graph.names) - trees


def vbft_row(
    results: Sequence[PhaseResult],
    bound: Bound,
    *,
    collective: bool,
    warmup_s: float,
    smooth_s: float,
    hbspan_s: float,
) -> Json:
    """One run without its key; means over the phases. Shares of flat are `compared`'s to fill in.

    `bytes_per_s` is the sum over receivers, `hosts` each one's, `pair_bytes_per_s` the mean over
    pairs that send at once. `bound_bytes_per_s` is the most that any routing could give all of them
    together; of a `collective`, where all pairs go on together, the most when all pairs are equal.
    `fair_bytes_per_s` is the most that each pair can have when all have the same. Both count whole
    frames. `settle_hbspan`: after how many HBSPAN from the first connection on the rate stayed at
    0.97 of the window's or more; None where that is not known, or never.
    """
    receivers = list(dict.fromkeys(receiver for each in results for _, receiver in each.received))
    hosts = {
        host: statistics.fmean(
            sum(count for (_, receiver), count in each.received.items() if receiver == host)
            / each.window_s
            for each in results
        )
        for host in receivers
    }
    pairs = statistics.fmean(len(each.received) for each in results)
    again = [each.retransmits for each in results if each.retransmits is not None]
    settled_s = settle_s(results[0], warmup_s, smooth_s) if len(results) == 1 else None
    return {
        "bytes_per_s": round(sum(hosts.values())),
        **dict.fromkeys(SHARES),
        "pair_bytes_per_s": round(sum(hosts.values()) / pairs),
        "worst_pair_bytes_per_s": round(
            min(count / each.window_s for each in results for count in each.received.values())
        ),
        "bound_bytes_per_s": round((bound.each_bps * pairs if collective else bound.total_bps) / 8),
        "fair_bytes_per_s": round(bound.each_bps / 8),
        "retransmits": sum(again) if again else None,
        "settle_hbspan": None if settled_s is None else round(settled_s / hbspan_s, 2),
        "hbspan_s": hbspan_s,
        "hosts": {host: round(rate) for host, rate in hosts.items()},
    }


def compared(rows: Sequence[Json]) -> list[Json]:
    """The rows with their shares of flat.

    Flat is the median of its rows with the same pattern, mode and engine. `worst_of_flat` is the
    slowest receiver's rate of the mean receiver's on flat, `worst_pair_of_flat` the slowest pair's
    of the mean pair's. None where flat was not measured.
    """
    found = []
    for row in rows:
        same = [
            other
            for other in rows
            if other["topology"] == FLAT
            and all(other[name] == row[name] for name in ("pattern", "mode", "engine", "streams"))
        ]
        shares: Json = dict.fromkeys(SHARES)
        total = statistics.median(other["bytes_per_s"] for other in same) if same else 0
        if total > 0:
            each = statistics.median(statistics.fmean(other["hosts"].values()) for other in same)
            pair = statistics.median(other["pair_bytes_per_s"] for other in same)
            shares = {
                "of_flat": round(row["bytes_per_s"] / total, 4),
                "worst_of_flat": round(min(row["hosts"].values()) / each, 4),
                "worst_pair_of_flat": round(row["worst_pair_bytes_per_s"] / pair, 4),
                "bound_of_flat": round(row["bound_bytes_per_s"] / same[0]["bound_bytes_per_s"], 4),
                "fair_of_flat": round(row["fair_bytes_per_s"] / same[0]["fair_bytes_per_s"], 4),
            }
        found.append({**row, **shares})
    return found


def settle_s(result: PhaseResult, warmup_s: float, smooth_s: float) -> float | None:
    """Seconds from the beginning of the phase from when on every `smooth_s` was good.

    Until the window's end. Good is SETTLED_SHARE of the window's mean or more. None without bins,
    or when the last of them was not good.
    """
    end = round((warmup_s + result.window_s) / BIN_S)
    width = round(smooth_s / BIN_S)
    bins = result.bins[:end]
    window = bins[round(warmup_s / BIN_S) :]
    if len(bins) < width or not window:
        return None
    wanted = SETTLED_SHARE * statistics.fmean(window) * width
    settled = None
    for place in range(len(bins) - width, -1, -1):
        if sum(bins[place : place + width]) < wanted:
            break
        settled = place
    return None if settled is None else round(settled * BIN_S, 3)
