# SPDX-License-Identifier: Apache-2.0
"""The options of charts over time, and the same in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ri2n_sdn.contract.units import page_rate, page_time

__all__ = ["Lines", "chart_summary", "rate_chart", "share_chart", "thinned"]

CHART_POINTS = 150
"""A chart has so many points per line at most: no screen shows more, and all are sent each time."""

Lines = Mapping[str, Sequence[float | None]]
"""Values by the name of their line, one for each time; None where a value is not known."""

# Colours that people with any colour vision tell apart (Okabe and Ito). The blue and the green are
# a little lighter than in the source, for contrast on light and on dark ground.
_COLOURS = ("#2f7fc1", "#d55e00", "#0b9e73", "#cc79a7", "#b58900", "#56b4e9", "#7a6ff0", "#8a8a8a")
# The page's style gives texts the colour of its theme (listing.py), since nobody here knows it.
_INK, _GRID = "#6b7681", "#8a96a2"


def rate_chart(
    title: str,
    times: Sequence[float],
    series: Lines,
) -> dict[str, Any]:
    """The options of an ECharts chart of rates over time, in Mbit/s, high ones in Gbit/s."""
    known = [value for values in series.values() for value in values if value is not None]
    factor, unit = (1e9, "Gbit/s") if max(known, default=0.0) >= 1e10 else (1e6, "Mbit/s")
    lines = {
        name: [None if value is None else value / factor for value in values]
        for name, values in series.items()
    }
    return _chart(title, times, lines, unit=unit, stacked=False)


def share_chart(
    title: str,
    times: Sequence[float],
    series: Lines,
) -> dict[str, Any]:
    """The options of a chart of what part each series has of their sum over time, in percent.

    At a time at which all are zero there is no point.
    """
    shares: dict[str, list[float | None]] = {name: [] for name in series}
    for at in range(len(times)):
        total = sum(values[at] or 0.0 for values in series.values())
        for name, values in series.items():
            value = values[at]
            shares[name].append(None if not total or value is None else 100 * value / total)
    options = _chart(title, times, shares, unit="%", stacked=True)
    options["yAxis"]["max"] = 100
    return options


def thinned(
    times: Sequence[float], lines: Lines, points: int = CHART_POINTS
) -> tuple[list[float], dict[str, list[float | None]]]:
    """Not more than so many points, each with the average of those that it stands for."""
    each = -(-len(times) // points) or 1
    # Groups end at the newest point, so that it is there at once.
    first = len(times) % each
    starts = ([0] if first else []) + list(range(first, len(times), each))
    groups = list(zip(starts, [*starts[1:], len(times)], strict=False))
    return [times[end - 1] for _, end in groups], {
        name: [_average(values[start:end]) for start, end in groups]
        for name, values in lines.items()
    }


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def chart_summary(
    what: str,
    times: Sequence[float],
    series: Lines,
    newest: Mapping[str, float | None],
    *,
    old: bool = False,
) -> str:
    """A chart in words, for those who do not see it.

    `newest` are the rates of the state that the page shows, so that they are those of its rows. A
    chart is drawn less often. What is `old` is last, and not now.
    """
    if not times:
        return f"{what}: nothing is known yet."
    parts = []
    for name, values in series.items():
        last_bps = newest.get(name)
        known = [value for value in (*values, last_bps) if value is not None]
        if known:
            parts.append(
                f"{name} {page_rate(last_bps)} {'last' if old else 'now'}, "
                f"{page_rate(sum(known) / len(known))} on average, {page_rate(max(known))} at most"
            )
    return f"{what} since {page_time(times[0])}: {'; '.join(parts) or 'nothing'}."


def _chart(
    title: str,
    times: Sequence[float],
    lines: Lines,
    *,
    unit: str,
    stacked: bool,
) -> dict[str, Any]:
    axis = {"axisLabel": {"color": _INK}, "splitLine": {"lineStyle": {"color": _GRID}}}
    return {
        "animation": False,
        "useUTC": True,
        "color": list(_COLOURS),
        "textStyle": {"color": _INK},
        "title": {"text": title, "textStyle": {"color": _INK, "fontSize": 14}},
        "legend": {"type": "scroll", "bottom": 0, "textStyle": {"color": _INK}},
        "tooltip": {"trigger": "axis", "confine": True},
        "grid": {"left": 8, "right": 16, "top": 48, "bottom": 58, "containLabel": True},
        "xAxis": {
            "type": "time",
            "name": "time (UTC)",
            "nameLocation": "middle",
            "nameGap": 26,
            "nameTextStyle": {"color": _INK},
            "axisLabel": {"color": _INK, "hideOverlap": True},
            "splitLine": {"show": False},
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "name": unit,
            "nameTextStyle": {"color": _INK},
            **axis,
        },
        "series": [
            {
                "name": name,
                "type": "line",
                "showSymbol": False,
                # Not by its colour alone: lines beside each other have different dashes.
                "lineStyle": {"type": ("solid", "dashed", "dotted")[number % 3]},
                **({"stack": "all", "areaStyle": {"opacity": 0.6}} if stacked else {}),
                "data": [
                    [round(time_s * 1000), None if value is None else round(value, 3)]
                    for time_s, value in zip(times, values, strict=True)
                ],
            }
            for number, (name, values) in enumerate(lines.items())
        ],
    }
