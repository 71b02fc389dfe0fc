# SPDX-License-Identifier: Apache-2.0
"""From raw measurements to rows: pure functions over iperf3's JSON and status samples."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ri2n_lab.bench.fair import Optimum
from ri2n_lab.bench.figure import Figure

__all__ = [
    "fig4_row",
    "lasting_text",
    "link_ratio",
    "missing_row",
    "ratios_text",
    "retransmits",
    "settle_time_s",
    "summarize",
]

Json = dict[str, Any]


def retransmits(report: Json, start_s: float, end_s: float) -> int:
    """Segments that an iperf3 **client** sent again in the intervals that begin in the window."""
    return sum(
        int(interval["sum"].get("retransmits", 0))
        for interval in report.get("intervals", [])
        if start_s <= interval["sum"]["start"] < end_s
    )


def fig4_row(
    key: Mapping[str, object],
    goodput_bps: Mapping[str, float],
    optimum: Optimum,
    *,
    retransmitted: int,
    weights: Json,
    slots_moved: int | None,
) -> Json:
    """One run as a row; `key` is {topology, strategy, peer, mode, streams, repeat}.

    A peer has no slots to move.
    """
    shares = {client: goodput_bps[client] / optimum.fair_bps[client] for client in goodput_bps}
    return {
        **key,
        "clients": {
            client: {"goodput_bps": round(rate), "share": round(shares[client], 4)}
            for client, rate in goodput_bps.items()
        },
        "total_of_optimum": round(sum(goodput_bps.values()) / optimum.total_bps, 4),
        "worst_share": round(min(shares.values()), 4),
        "retransmits": retransmitted,
        "weights": weights,
        "slots_moved": slots_moved,
    }


def missing_row(
    key: Mapping[str, object], why_not: str, figures: Sequence[str], empty: Sequence[str] = ()
) -> Json:
    """The one row of what cannot be measured: no run, and `why_not`.

    `figures` are None in it, and the mappings that `empty` names are empty.
    """
    blanks: Json = {**dict.fromkeys(figures), **{name: {} for name in empty}}
    return {**key, "repeat": 0, "why_not": why_not, **blanks}


def summarize(
    rows: Sequence[Json], group_by: Sequence[str], figures: Sequence[Figure]
) -> list[Json]:
    """Rows that agree in `group_by` as one line: each figure combined, and how many repeats.

    `NAME_spread` has the smallest and the largest of a figure. A row that has None for a figure
    did not measure it and does not count; the figure is None when no row did. A group that cannot
    be measured has 0 repeats, and `why_not`.
    """
    groups: dict[tuple[Any, ...], list[Json]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in group_by), []).append(row)
    lines = []
    for key, members in groups.items():
        reasons = [member["why_not"] for member in members if member.get("why_not")]
        line: Json = {
            **dict(zip(group_by, key, strict=True)),
            "repeats": len(members) - len(reasons),
        }
        if reasons:
            line["why_not"] = reasons[0]
        for figure in figures:
            if figure.combine is None:
                continue
            name = figure.name
            values = [member[name] for member in members if member[name] is not None]
            line[name] = round(figure.combine(values), 4) if values else None
            line[f"{name}_spread"] = [min(values), max(values)] if values else None
        lines.append(line)
    return lines


def link_ratio(weights: Mapping[str, float]) -> float | None:
    """The weight of the last own NIC to that of the first, as table 6 of the paper prints it.

    `weights` is share by `own>peer`. None for a host with one NIC; infinite when the first NIC has
    no share.
    """
    by_nic: dict[str, float] = {}
    for path, share in weights.items():
        nic = path.partition(">")[0]
        by_nic[nic] = by_nic.get(nic, 0.0) + share
    if len(by_nic) < 2:
        return None
    names = sorted(by_nic)
    first, last = by_nic[names[0]], by_nic[names[-1]]
    return last / first if first > 0 else float("inf")


def ratios_text(weights: Sequence[Mapping[str, Mapping[str, float]]]) -> str:
    """`C 7.5`: of each client with several NICs, the median over the repeats of its `link_ratio`.

    `inf` when its first NIC has no share; `-` when no client has several.
    """
    texts = []
    for host in sorted({host for each in weights for host in each}):
        ratios = [
            ratio
            for each in weights
            if host in each and (ratio := link_ratio(each[host])) is not None
        ]
        if ratios:
            texts.append(f"{host} {statistics.median(ratios):.1f}")
    return ", ".join(texts) or "-"


def lasting_text(repeats: Sequence[bool | None]) -> str:
    """In how many of the repeats it was so: `yes`, `no`, `1 of 3`, or `-` where nobody looked."""
    seen = [each for each in repeats if each is not None]
    if not seen:
        return "-"
    return {0: "no", len(seen): "yes"}.get(sum(seen), f"{sum(seen)} of {len(seen)}")


def settle_time_s(
    samples: Sequence[tuple[float, Mapping[str, float]]], start_s: float, tolerance: float = 0.1
) -> float | None:
    """How long after `start_s` the shares took to stay where they ended up.

    `samples` are (time, share by path) of one phase in time order; where they ended up is each
    path's median over the last third. The answer is the time of the first sample from which on
    every share stays within `tolerance` (absolute) of that; None when the phase ends before they
    do.
    """
    if len(samples) < 3:
        return None
    last_third = [shares for _, shares in samples[-max(1, len(samples) // 3) :]]
    paths = sorted({path for shares in last_third for path in shares})
    final = {
        path: statistics.median(shares.get(path, 0.0) for shares in last_third) for path in paths
    }
    settled: float | None = None
    for time_s, shares in samples:
        every_path = {*paths, *shares}
        close = all(
            abs(shares.get(path, 0.0) - final.get(path, 0.0)) <= tolerance for path in every_path
        )
        if not close:
            settled = None
        elif settled is None:
            settled = time_s
    return None if settled is None else max(0.0, settled - start_s)
