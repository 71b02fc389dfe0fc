"""The tables of what is measured of the helper: one stream, a change of demand, what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ri2n_lab.bench.report_cells import cell, prose, spread_text, table
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_notes import Notes, name_text
from ri2n_lab.bench.report_pictures import Picture, spread
from ri2n_lab.bench.report_rows import DemandRow, HelperRow, StreamRow

__all__ = [
    "demand",
    "demand_table",
    "end_to_end_table",
    "helper",
    "stream",
    "stream_matrix",
    "stream_table",
]

BUSY = ("of one link's plain TCP x links", "links taken for dead", "NICs taken for dead")


def stream(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each set of links, strategy or peer, and kind of stream."""
    del drawn
    yield from prose(
        "Of the sum: goodput, of what full frames could carry over all links together. UDP is sent "
        "at 0.9 of that. Out of order: UDP packets, or TCP segments as the receiver's kernel "
        "counts them (TCPOFOQueue), that came before one that belongs in front of them. Switch "
        "drops: frames dropped at full switch ports."
    )
    yield from stream_table(measurement.stream)


def stream_table(all_rows: Sequence[StreamRow]) -> Iterator[str]:
    """A line for each set of links, strategy or peer, and kind of stream."""
    notes = Notes()
    groups: dict[tuple[str, str, bool, str, str], list[StreamRow]] = {}
    for row in all_rows:
        groups.setdefault(
            (row.links_mbps, row.strategy, row.peer, row.proto, row.cc or ""), []
        ).append(row)
    busy = any(row.of_links is not None for row in all_rows)
    lines = []
    for (links, name, peer, proto, congestion), rows in groups.items():
        begin = [cell(links), name_text(name, peer), cell(f"{proto} {congestion}".strip())]
        share = spread(row.of_sum for row in rows)
        if share is None:
            lines.append([*begin, notes.cell(name, rows), *[""] * (8 if busy else 5)])
            continue
        counts = [
            [row.retransmits for row in rows],
            [row.lost for row in rows],
            [row.sent for row in rows],
        ]
        counts += [[row.out_of_order for row in rows], [row.switch_drops for row in rows]]
        lines.append(
            [
                *begin,
                spread_text(share, ".3f"),
                *(spread_text(spread(each), ".0f") for each in counts),
            ]
        )
        if busy:
            deaths = [[row.link_deaths for row in rows], [row.nic_deaths for row in rows]]
            lines[-1].append(spread_text(spread(row.of_links for row in rows), ".3f"))
            lines[-1] += [spread_text(spread(each), ".0f") for each in deaths]
    head = (
        "links, Mbit/s",
        "",
        "stream",
        "of the sum",
        "retransmits",
        "lost",
        "of",
        "out of order",
        "switch drops",
    )
    yield from table((*head, *BUSY) if busy else head, lines)
    yield from notes.lines()


def stream_matrix(rows: Sequence[StreamRow]) -> Iterator[str]:
    """Strategies and peers, with their kind of stream, by links: the share of the sum."""
    notes = Notes()
    columns = list(dict.fromkeys(row.links_mbps for row in rows))
    lines = []
    for name, peer, proto, congestion in dict.fromkeys(
        (row.strategy, row.peer, row.proto, row.cc or "") for row in rows
    ):
        cells = [name_text(name, peer), cell(f"{proto} {congestion}".strip())]
        for links in columns:
            members = [
                row
                for row in rows
                if (row.strategy, row.proto, row.cc or "") == (name, proto, congestion)
                and row.links_mbps == links
            ]
            share = spread(row.of_sum for row in members)
            cells.append(notes.cell(name, members) if share is None else f"{share.value:.2f}")
        lines.append(cells)
    yield from table(("", "stream", *map(cell, columns)), lines)
    yield from notes.lines()


def demand(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """A line for each topology and strategy."""
    del drawn
    stops = cell(str(measurement.settings.get("stops", "B")))
    yield from prose(
        f"Every client sends one TCP stream; {stops} stops, and after a pause begins again. "
        "Goodput is sampled every 10 ms and judged over the 50 ms that follow; what does not hold "
        "for half a second (over 200 ms each, as a segment that TCP sends again holds up others) "
        "does not count. The shares are means over the rest of each phase: of the links, and the "
        "worst client's of its max-min fair rate."
    )
    yield from demand_table(measurement.demand, stops)


def demand_table(all_rows: Sequence[DemandRow], stops: str) -> Iterator[str]:
    """A line for each topology and strategy; `stops` is the client that stops."""
    notes = Notes()
    groups: dict[tuple[str, str, bool], list[DemandRow]] = {}
    for row in all_rows:
        groups.setdefault((row.topology, row.strategy, row.peer), []).append(row)
    lines = []
    for (topology, name, peer), rows in groups.items():
        begin = [cell(topology), name_text(name, peer)]
        if all(row.why_not is not None for row in rows):
            lines.append([*begin, notes.cell(name, rows), "", "", ""])
            continue
        times = [[row.others_have_it_ms for row in rows], [row.all_fair_ms for row in rows]]
        shares = [[row.others_after_stop for row in rows], [row.worst_after_start for row in rows]]
        cells = []
        for time, share in zip(times, shares, strict=True):
            never = sum(each is None for each in time)
            text = "never" if never == len(time) else spread_text(spread(time), ".0f")
            cells += [text + (f", {never} of {len(time)} never" if 0 < never < len(time) else "")]
            cells += [spread_text(spread(share), ".3f")]
        lines.append([*begin, *cells])
    head = (f"{stops} stops: others have 0.95 of the links after, ms", "then")
    more = (f"{stops} begins: all within 10 % of fair after, ms", "then, worst")
    yield from table(("", "", *head, *more), lines)
    yield from notes.lines()


def helper(measurement: Measurement, drawn: Sequence[Picture]) -> Iterator[str]:
    """The figures in memory, then those from end to end."""
    del drawn
    yield from prose(
        "In memory: packets a second on one core. End to end: one TCP stream between two hosts "
        "over links without a rate, beside one plain veth in the same run; CPU seconds are the "
        "whole machine's. Round trips are those of an idle ping every 20 ms; CPUs awake: idle ones "
        "poll meanwhile, so that nobody waits until a CPU has woken. Other load on the machine is "
        "in these figures."
    )
    yield from memory_table(measurement.helper)
    yield from end_to_end_table(measurement.helper)


def memory_table(all_rows: Sequence[HelperRow]) -> Iterator[str]:
    """A line for each figure in memory."""
    notes = Notes()
    groups: dict[tuple[str, str, bool | None], list[HelperRow]] = {}
    for row in all_rows:
        groups.setdefault((row.part, row.what, row.userspace_tso), []).append(row)
    memory = [
        [
            cell(what),
            _figure_or_note([row.packets_per_s for row in rows], ",.0f", what, rows, notes),
        ]
        for (part, what, _), rows in groups.items()
        if part == "memory"
    ]
    if memory:
        yield from table(("in memory", "packets/s"), memory)
    yield from notes.lines()


def end_to_end_table(all_rows: Sequence[HelperRow]) -> Iterator[str]:
    """A line for each contender end to end, with and without userspace TSO."""
    notes = Notes()
    groups: dict[tuple[str, str, bool | None], list[HelperRow]] = {}
    for row in all_rows:
        groups.setdefault((row.part, row.what, row.userspace_tso), []).append(row)
    lines = []
    for (part, what, tso), rows in groups.items():
        if part == "memory":
            continue
        goodput = [None if row.goodput_bps is None else row.goodput_bps / 1e9 for row in rows]
        figures = [spread(row.of_veth for row in rows), spread(row.cpu_s_per_gbit for row in rows)]
        trips = [spread(row.rtt_us for row in rows), spread(row.rtt_over_flow_us for row in rows)]
        trips += [
            spread(row.rtt_awake_us for row in rows),
            spread(row.rtt_awake_over_flow_us for row in rows),
        ]
        lines.append(
            [
                *(cell(what), {None: "", True: "on", False: "off"}[tso]),
                _figure_or_note(goodput, ".2f", what, rows, notes),
                *(spread_text(each, ".2f") for each in figures),
                *(spread_text(each, ".0f") for each in trips),
            ]
        )
    if lines:
        figures_head = (
            "Gbit/s",
            "of a plain veth",
            "CPU s per Gbit",
            "round trip, us",
            "over flow mode, us",
        )
        awake_head = ("CPUs awake: round trip, us", "over flow mode, us")
        yield from table(("end to end", "userspace TSO", *figures_head, *awake_head), lines)
    yield from notes.lines()


def _figure_or_note(
    values: Sequence[float | None], form: str, what: str, rows: Sequence[HelperRow], notes: Notes
) -> str:
    middle = spread(values)
    return notes.cell(what, rows) if middle is None else spread_text(middle, form)
