# SPDX-License-Identifier: Apache-2.0
"""Pictures of the page of results that are drawn of the rows of several measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ri2n_lab.bench.drawing import Bar, Mark, Series, bars
from ri2n_lab.bench.figure import Figure
from ri2n_lab.bench.report_pictures import Picture, peer_titles
from ri2n_sdn.weights.strategies import STRATEGIES

__all__ = ["Chart", "chart_picture"]


@dataclass(frozen=True)
class Chart:
    """Bars of one figure: which rows, in which group, of what, and whether that is ours.

    `file` is the name of the picture without its suffix. `figure` is asked when it is drawn.
    """

    file: str
    title: str
    axis: str
    groups: str
    figure: Callable[[], Figure]
    rows: Callable[[Any], bool]
    group: Callable[[Any], str]
    label: Callable[[Any], str]
    ours: Callable[[Any], bool]
    mark: tuple[float, str]
    kinds: tuple[str, str] = ("ours:", "peers:")


def chart_picture(chart: Chart, rows: Sequence[Any]) -> Picture | None:
    """The picture of these rows; None when none of them is for it."""
    figure = chart.figure()
    members = [row for row in rows if chart.rows(row)]
    values: dict[tuple[str, str], Bar] = {}
    series: list[Series] = []
    for row in members:
        key = (chart.group(row), chart.label(row))
        if key[1] not in [one.label for one in series]:
            ours = chart.ours(row)
            # Strategies and peers have the colours that they have in all pictures.
            usual = list(STRATEGIES) if ours else list(peer_titles())
            count = sum(one.ours is ours for one in series)
            rank = usual.index(key[1]) if key[1] in usual else count
            series.append(Series(key[1], ours, rank))
        if key not in values:
            same = [each for each in members if (chart.group(each), chart.label(each)) == key]
            values[key] = figure.bar(each.figure(figure.name) for each in same) or Bar(None)
    if not values:
        return None
    draw = partial(
        bars,
        chart.title,
        list(dict.fromkeys(group for group, _ in values)),
        sorted(series, key=lambda one: not one.ours),
        values,
        y_label=chart.axis,
        x_label=chart.groups,
        mark=Mark(*chart.mark),
        kinds=chart.kinds,
    )
    return Picture(chart.file, draw, chart.title)
