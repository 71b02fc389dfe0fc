# SPDX-License-Identifier: Apache-2.0
"""Which pictures a measurement gets, and who stands in which order in tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ri2n_lab.bench.drawing import Bar, Mark, Series, Steps, bars, steps
from ri2n_lab.bench.failover import FAULTS, HELPER_FAULTS
from ri2n_lab.bench.figure import Figure, Plot
from ri2n_lab.bench.peers import PEERS
from ri2n_lab.bench.report_input import Measurement
from ri2n_lab.bench.report_rows import FailoverRow, Fig4Row, Phase, figures_of
from ri2n_sdn.weights.strategies import STRATEGIES

__all__ = [
    "Picture",
    "contenders",
    "in_order",
    "peer_titles",
    "picture_lines",
    "pictures",
    "streams_text",
]


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
    """(name, whether it is a peer) of all that were compared, each once.

    Our strategies come first; each kind is in its usual order, and unknown ones by name.
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


def _place(name: str, usual: Sequence[str]) -> int:
    return usual.index(name) if name in usual else len(usual)


def _fig4(measurement: Measurement) -> list[Picture]:
    drawn = []
    for streams in sorted({row.streams for row in measurement.fig4}):
        rows = [row for row in measurement.fig4 if row.streams == streams]
        topologies = sorted({row.topology for row in rows})
        of_streams = streams_text(streams)
        for figure in figures_of("fig4"):
            if figure.plot is not None:
                title = f"{figure.plot.title}, {of_streams}"
                draw = _drawn(figure, figure.plot, title, rows, topologies, "topology")
                name = f"{measurement.name}-{figure.plot.file}-{streams}"
                drawn.append(Picture(name, draw, title, streams))
    return drawn


def _failover(measurement: Measurement) -> list[Picture]:
    rows = measurement.failover
    faults = in_order((row.fault for row in rows), [*FAULTS, *HELPER_FAULTS])
    drawn = []
    for figure in figures_of("failover"):
        if figure.plot is not None and rows:
            draw = _drawn(figure, figure.plot, figure.plot.title, rows, faults, "fault")
            name = f"{measurement.name}-{figure.plot.file}"
            drawn.append(Picture(name, draw, f"{figure.plot.title}, {figure.unit}"))
    return drawn


def _drawn(
    figure: Figure,
    plot: Plot,
    title: str,
    rows: Sequence[Fig4Row] | Sequence[FailoverRow],
    groups: Sequence[str],
    group: str,
) -> Callable[[], str]:
    """What draws the bars of one figure; `group` is the key that groups them."""
    values = _bars(rows, group, figure)
    open_end = ""
    if plot.open_end is not None:
        name, open_end = plot.open_end
        ended = {(row.figure(group), row.strategy) for row in rows if row.figure(name)}
        values = {key: replace(bar, open_end=key in ended) for key, bar in values.items()}
    measured = {strategy for _, strategy in values}  # Multipath TCP carries no UDP
    return partial(
        bars,
        title,
        groups,
        [one for one in _series(rows) if one.label in measured],
        values,
        y_label=plot.axis,
        x_label=group,
        mark=Mark(*plot.mark),
        log=plot.log,
        open_end=open_end,
    )


def _series(rows: Sequence[Fig4Row | FailoverRow]) -> list[Series]:
    found = contenders(rows)
    usual = {False: list(STRATEGIES), True: list(peer_titles())}
    ranks = {
        peer: in_order([*usual[peer], *(name for name, kind in found if kind is peer)], usual[peer])
        for peer in usual
    }
    return [Series(name, not peer, ranks[peer].index(name)) for name, peer in found]


def _bars(
    rows: Sequence[Fig4Row] | Sequence[FailoverRow], group: str, figure: Figure
) -> dict[tuple[str, str], Bar]:
    values = {}
    for key in {(row.figure(group), row.strategy) for row in rows}:
        members = [row for row in rows if (row.figure(group), row.strategy) == key]
        bar = figure.bar(row.figure(figure.name) for row in members)
        if bar is not None:
            values[key] = bar
        elif any(row.why_not is not None for row in members):
            values[key] = Bar(None)
    return values


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
        {path.partition(">")[0] for sample in samples for path in sample.weights.get(host, {})}
    )
    for nic in nics:
        lines[nic] = [
            (
                float(sample.time_s),
                float(sum(share for path, share in paths.items() if path.partition(">")[0] == nic)),
            )
            for sample in samples
            if (paths := sample.weights.get(host)) is not None
        ]
    return lines
