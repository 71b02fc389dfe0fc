"""Which pictures a measurement gets, and who stands in which order in tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from ri2n_lab.bench.drawing import Bar, Mark, Series, Steps, bars, steps
from ri2n_lab.bench.failover import FAULT_AT_S, FAULTS, HELPER_FAULTS, STREAM_S
from ri2n_lab.bench.peers import PEERS
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_rows import FailoverRow, Fig4Row, Number, Phase
from ri2n_sdn.weights.strategies import STRATEGIES

__all__ = [
    "OUTAGE_END_MS",
    "STALL_END_MS",
    "Picture",
    "contenders",
    "in_order",
    "peer_titles",
    "picture_lines",
    "pictures",
    "spread",
    "streams_text",
]

OUTAGE_END_MS = (STREAM_S - FAULT_AT_S) * 1000
"""About the longest outage that a run can show."""
# The TCP receiver waits so much longer for a byte than the sender sends.
STALL_END_MS = OUTAGE_END_MS + 4000
"""About the longest stall that a run can show."""


@dataclass(frozen=True)
class Picture:
    """An SVG file's name without its suffix, what draws it, and what it shows.

    `streams` is the number of streams that it belongs to, if there are several.
    """

    name: str
    draw: Callable[[], str]
    alt: str
    streams: int | None = None


def pictures(measurement: Measurement) -> list[Picture]:
    """All pictures of a measurement, in the order of the page."""
    if measurement.kind == "fig4":
        return _fig4(measurement)
    if measurement.kind == "failover":
        return _failover(measurement)
    if measurement.kind == "fig9" and measurement.phases:
        return [_fig9(measurement)]
    return []


def contenders(rows: Iterable[Fig4Row | FailoverRow]) -> list[tuple[str, bool]]:
    """(name, whether it is a peer):

    our strategies first, each kind in its usual order, unknown ones by name.
    """
    found = {(row.strategy, row.peer) for row in rows}
    usual = [*STRATEGIES, *peer_titles()]
    return sorted(found, key=lambda each: (each[1], _place(each[0], usual), each[0]))


def peer_titles() -> dict[str, str]:
    """{peer: what it is, in a few words}, in their usual order."""
    return {name: peer.title for name, peer in PEERS.items()}


def in_order(names: Iterable[str], usual: Sequence[str]) -> list[str]:
    """Each name once: those of `usual` in its order, then the others by name."""
    return sorted(set(names), key=lambda name: (_place(name, usual), name))


def streams_text(streams: int) -> str:
    """`8 TCP streams per client`."""
    return "one TCP stream per client" if streams == 1 else f"{streams} TCP streams per client"


def picture_lines(picture: Picture, folder: str) -> Iterator[str]:
    """A picture that lies in `folder`, seen from the page, and the empty line after it."""
    yield from (f"![{picture.alt}]({folder}{picture.name}.svg)", "")


def spread(values: Iterable[Number | None]) -> Bar | None:
    """Median, smallest and largest of what was measured; None when nothing was."""
    numbers = [float(value) for value in values if value is not None]
    return Bar(float(median(numbers)), min(numbers), max(numbers)) if numbers else None


def _place(name: str, usual: Sequence[str]) -> int:
    return usual.index(name) if name in usual else len(usual)


def _fig4(measurement: Measurement) -> list[Picture]:
    found = []
    for streams in sorted({row.streams for row in measurement.fig4}):
        rows = [row for row in measurement.fig4 if row.streams == streams]
        each = streams_text(streams)
        figures: list[tuple[str, str, str, Callable[[Fig4Row], Number | None], str]] = [
            (
                "total",
                "All clients together",
                "share of the optimum",
                lambda row: row.total_of_optimum,
                "optimum",
            ),
            (
                "worst",
                "The worst client",
                "share of its fair rate",
                lambda row: row.worst_share,
                "fair",
            ),
        ]
        for short, title, label, value, best in figures:
            draw = partial(
                bars,
                f"{title}, {each}",
                sorted({row.topology for row in rows}),
                _series(rows),
                _bars(rows, lambda row: row.topology, value),
                y_label=label,
                x_label="topology",
                mark=Mark(1.0, best),
            )
            name = f"{measurement.name}-{short}-{streams}"
            found.append(Picture(name, draw, f"{title}, {each}", streams))
    return found


def _failover(measurement: Measurement) -> list[Picture]:
    rows = measurement.failover
    if not rows:
        return []
    figures: list[tuple[str, str, float, Callable[[FailoverRow], Number | None]]] = [
        ("outage", "Outage of a UDP stream", OUTAGE_END_MS, lambda row: row.outage_ms),
        ("tcp", "Longest stall of a TCP stream", STALL_END_MS, lambda row: row.tcp_stall_ms),
    ]
    found = []
    for short, title, end_ms, value in figures:
        values = _bars(rows, lambda row: row.fault, value)
        if short == "outage":  # a path that loses every second packet has short gaps, but no end
            lasting = {(row.fault, row.strategy) for row in rows if row.lasting}
            values = {key: replace(bar, open_end=key in lasting) for key, bar in values.items()}
        measured = {name for _, name in values}  # Multipath TCP carries no UDP
        draw = partial(
            bars,
            title,
            in_order((row.fault for row in rows), [*FAULTS, *HELPER_FAULTS]),
            [one for one in _series(rows) if one.label in measured],
            values,
            y_label="ms, logarithmic",
            x_label="fault",
            mark=Mark(end_ms, "end of the run"),
            log=True,
            open_end="packets were still lost at the end of the run",
        )
        found.append(Picture(f"{measurement.name}-{short}", draw, f"{title}, ms"))
    return found


def _series(rows: Sequence[Fig4Row | FailoverRow]) -> list[Series]:
    found = contenders(rows)
    usual = {False: list(STRATEGIES), True: list(peer_titles())}
    ranks = {
        peer: in_order([*usual[peer], *(name for name, kind in found if kind is peer)], usual[peer])
        for peer in usual
    }
    return [Series(name, not peer, ranks[peer].index(name)) for name, peer in found]


def _bars(
    rows: Sequence[Fig4Row] | Sequence[FailoverRow],
    group: Callable[..., str],
    value: Callable[..., Number | None],
) -> dict[tuple[str, str], Bar]:
    found = {}
    for key in {(group(row), row.strategy) for row in rows}:
        members = [row for row in rows if (group(row), row.strategy) == key]
        bar = spread(value(row) for row in members)
        if bar is not None:
            found[key] = bar
        elif any(row.why_not is not None for row in members):
            found[key] = Bar(None)
    return found


def _fig9(measurement: Measurement) -> Picture:
    phases = measurement.phases
    hosts = sorted(
        {host for phase in phases for sample in phase.samples for host in sample.weights}
    )
    panels = [Steps(f"client {host}", _by_nic(phases, host)) for host in hosts]
    lasts = [sample.time_s for phase in phases for sample in phase.samples]
    draw = partial(
        steps,
        "Weights while links are cut and given back, "
        f"{measurement.settings.get('strategy', 'max_min')}",
        panels,
        [Mark(float(phase.began_s), phase.phase) for phase in phases],
        max(lasts, default=1.0),
        y_label="share of what the client sends over each NIC",
    )
    return Picture(f"{measurement.name}-weights", draw, "Weights of each client's NICs over time")


def _by_nic(phases: Sequence[Phase], host: str) -> dict[str, list[tuple[float, float]]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    samples = [sample for phase in phases for sample in phase.samples]
    nics = sorted(
        {way.partition(">")[0] for sample in samples for way in sample.weights.get(host, {})}
    )
    for nic in nics:
        lines[nic] = [
            (
                float(sample.time_s),
                float(sum(share for way, share in paths.items() if way.partition(">")[0] == nic)),
            )
            for sample in samples
            if (paths := sample.weights.get(host)) is not None
        ]
    return lines
