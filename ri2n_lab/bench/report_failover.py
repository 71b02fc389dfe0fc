# SPDX-License-Identifier: Apache-2.0
"""The tables of `ri2n bench failover`: one fault under a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.failover import (
    FAULTS,
    HELPER_FAULTS,
    OUTAGE_END_MS,
    STALL_END_MS,
    packets_per_s,
)
from ri2n_lab.bench.fast import PACKET, PACKET_FAST
from ri2n_lab.bench.figure import spread
from ri2n_lab.bench.report_cells import code, prose
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import (
    Line,
    contender_matrix,
    figure_table,
    name_text,
    peer_lines,
)
from ri2n_lab.bench.report_pictures import (
    Picture,
    contenders,
    in_order,
    picture_lines,
)
from ri2n_lab.bench.report_rows import FailoverRow, Row, figures_of

__all__ = ["body", "matrix"]

# A TCP stream has no end when it stalls until less than this before the end of the run.
NEAR_END_MS = 100.0


def body(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each fault and strategy or peer."""
    rows = measurement.failover
    mode = next((row.mode for row in rows if row.mode in (PACKET, PACKET_FAST)), "flow")
    yield from prose(
        f"{packets_per_s(mode):,} UDP packets per second between two hosts, and in a run of its "
        "own a bulk TCP stream; the fault hits a NIC or switch that the stream uses. Outage: the "
        f"longest time without a packet. Values near {OUTAGE_END_MS:,.0f} ms (UDP) or "
        f"{STALL_END_MS:,.0f} ms (TCP) mean: until the run ended. Lost to the end: packets were "
        "still lost then, whatever the longest time without any."
    )
    lines = []
    for fault in in_order((row.fault for row in rows), [*FAULTS, *HELPER_FAULTS]):
        for name, peer in contenders(row for row in rows if row.fault == fault):
            members = [row for row in rows if (row.fault, row.strategy) == (fault, name)]
            for mode in sorted({row.mode for row in members}):
                title = name_text(name, peer)
                title += f" ({mode})" if mode != "flow" and not peer else ""
                of_mode = [row for row in members if row.mode == mode]
                lines.append(Line([code(fault), title], name, of_mode))
    yield from figure_table(("fault", ""), lines, figures_of("failover"))
    yield from peer_lines(rows)
    for picture in drawn:
        yield from picture_lines(picture, "")


def matrix(rows: Sequence[FailoverRow]) -> Iterator[str]:
    """Strategies and peers by faults: `outage, ms / TCP stall, ms`.

    A stream that had not recovered when the run ended has `no end`.
    """
    faults = in_order((row.fault for row in rows), [*FAULTS, *HELPER_FAULTS])
    by_fault = {fault: [row for row in rows if row.fault == fault] for fault in faults}
    yield from contender_matrix(code, by_fault, _outages)


def _outages(rows: Sequence[Row]) -> str | None:
    outage = spread(row.figure("outage_ms") for row in rows)
    stall = spread(row.figure("tcp_stall_ms") for row in rows)
    if outage is None and stall is None:
        return None
    udp = "-" if outage is None else f"{outage.value:,.0f}"
    tcp = "-" if stall is None else f"{stall.value:,.0f}"
    if any(row.figure("lasting") for row in rows):
        udp = "no end"
    if stall is not None and stall.high > STALL_END_MS - NEAR_END_MS:
        tcp = "no end"
    return f"{udp} / {tcp}"
