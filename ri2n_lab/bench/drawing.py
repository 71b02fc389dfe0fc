# SPDX-License-Identifier: Apache-2.0
"""The report's pictures as SVG: grouped bars with their spread, and shares over time.

Matplotlib draws them. It is imported by the functions that draw, so that the command line starts
quickly and the benches work without it. Texts stay texts. Sizes follow the font that comes with
matplotlib, so that the same version writes the same bytes on every machine; a reader whose browser
lacks that font sees another one.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ri2n_sdn.errors import NotAvailable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["OPEN_END", "Bar", "Mark", "Series", "Steps", "bars", "steps"]

INK, MUTED, GRID = "#1a1a1a", "#595959", "#dddddd"
# Any: the types of matplotlib want a literal of their own for each key.
STYLE: Any = {
    # Texts stay texts, and ids do not change from run to run.
    "svg.fonttype": "none",
    "svg.hashsalt": "ri2n",
    # A name with a dollar is no formula.
    "text.parse_math": False,
    # The first one comes with matplotlib, and no other is wider on average.
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "Liberation Sans"],
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "hatch.linewidth": 1.6,
}
# Our strategies go from light to dark, with a controller in one hue and without in another, so that
# those of one kind are told apart in grey as well. Peers have other colours, and hatching. All are
# from palettes that were made for colour-blind readers (ColorBrewer; Okabe and Ito).
OURS = ("#c6dbef", "#6baed6", "#2171b5", "#08306b", "#c7e9c0", "#74c476", "#238b45", "#00441b")
PEERS = ("#e69f00", "#d55e00", "#cc79a7", "#f0e442", "#999999", "#009e73")
HATCHES = ("///", "||", "--", "\\\\\\")
LINES = ("#2171b5", "#d55e00", "#009e73", "#cc79a7")
DASHES = ("-", "--", ":", "-.")
OPEN_END = "\u2191"
"""Stands above a bar that did not end there: the measurement did."""
# A logarithmic scale has no 0: a bar of 1 or less is drawn this high, as a share of the axis.
STUB = 0.008
# Widths in units of one bar.
KINDS_GAP, GROUPS_GAP, MIN_UNITS = 0.4, 2.0, 15.0
# Inches of a bar, of a character of a group's name, of the legend, and of all bars at least.
BAR_IN, CHARACTER_IN, LEGEND_IN, MIN_WIDTH_IN = 0.15, 0.08, 2.2, 4.5


@dataclass(frozen=True)
class Series:
    """One strategy (`ours`) or peer, in every group.

    Its `rank` gives it the same colour in all pictures.
    """

    label: str
    ours: bool
    rank: int


@dataclass(frozen=True)
class Bar:
    """A value with the smallest and largest of its repeats; `value` None stands for "cannot do it".

    `open_end`: it did not end there, the measurement did; shown as an arrow upwards.
    """

    value: float | None
    low: float = 0.0
    high: float = 0.0
    open_end: bool = False


@dataclass(frozen=True)
class Mark:
    """A moment or a value that gets a line through the picture, with a text."""

    at: float
    text: str


@dataclass(frozen=True)
class Steps:
    """One panel: {line: [(seconds, share)]}, each share until the next."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)


def bars(
    title: str,
    groups: Sequence[str],
    series: Sequence[Series],
    values: Mapping[tuple[str, str], Bar],
    *,
    y_label: str,
    x_label: str,
    mark: Mark | None = None,
    log: bool = False,
    open_end: str = "",
    kinds: tuple[str, str] = ("ours:", "peers:"),
) -> str:
    """Bars of `values` by (group, series label), as SVG.

    A pair that is not there was not measured and stays empty. `kinds` stand in the legend above
    series that are ours and above the others. `open_end` says what the arrows of
    bars with an open end mean. The scale begins at 0, or with `log` at 1 (less is drawn as a stub)
    and then ends at a power of ten. The id of a bar is `bar:GROUP:LABEL:VALUE`, that of a spread
    `spread:GROUP:LABEL:LOW..HIGH`.
    """
    matplotlib = _matplotlib()
    from matplotlib.figure import Figure as Canvas

    between = KINDS_GAP if len({one.ours for one in series}) > 1 else 0.0
    group_width = len(series) + between
    names_in = (max(map(len, groups), default=0) + 1) * CHARACTER_IN
    step = max(group_width + GROUPS_GAP, names_in / BAR_IN)
    # Few bars are no wider than others: they stand in the middle.
    units = max(len(groups) * step, MIN_UNITS)
    first = (units - len(groups) * step + step - group_width) / 2 + 0.5
    width_in = max(MIN_WIDTH_IN, units * BAR_IN)
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(width_in + LEGEND_IN, 3.8), layout="constrained")
        axes = canvas.add_subplot()
        least, most = _value_axis(axes, values.values(), mark, log=log)
        for number, group in enumerate(groups):
            for place, one in enumerate(series):
                if bar := values.get((group, one.label)):
                    x = first + number * step + place + (0.0 if one.ours else between)
                    _bar(axes, x, bar, one, group, least, most, log=log)
        axes.set_xlim(0.0, units)
        middles = [first + n * step + (group_width - 1) / 2 for n in range(len(groups))]
        axes.set_xticks(middles, [_printable(group) for group in groups])
        axes.tick_params(axis="x", length=0)
        axes.set_title(_printable(title), fontweight="bold", loc="left")
        axes.set_ylabel(_printable(y_label))
        if open_end and any(bar.open_end for bar in values.values()):
            x_label += f"        {OPEN_END} {open_end}"
        axes.set_xlabel(_printable(x_label))
        if mark:
            axes.axhline(mark.at, color=MUTED, linestyle="--", linewidth=0.9)
            axes.text(0.0, mark.at, f" {_printable(mark.text)}", color=MUTED, size=8, va="bottom")
        _legend(canvas, series, kinds)
        return _svg(canvas, title)


def _matplotlib() -> ModuleType:
    """Matplotlib, which only pictures need, and which the demo therefore does not install."""
    try:
        import matplotlib
    except ImportError as error:
        raise NotAvailable("pictures need matplotlib: ./dev setup, or ri2n-lab[plots]") from error
    return matplotlib


def steps(
    title: str, panels: Sequence[Steps], marks: Sequence[Mark], end_s: float, *, y_label: str
) -> str:
    """Panels above each other with one time axis from 0 to `end_s`, as SVG.

    `marks` divide it into phases. The id of a line is `line:PANEL:LINE`.
    """
    matplotlib = _matplotlib()
    from matplotlib.figure import Figure as Canvas

    names = sorted({name for panel in panels for name in panel.lines})
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(9.0, 1.2 + 1.35 * len(panels)), layout="constrained")
        columns = canvas.subplots(max(1, len(panels)), 1, sharex=True, squeeze=False)
        for row, panel in zip(columns, panels, strict=False):
            axes: Axes = row[0]
            for index, name in enumerate(names):
                points = panel.lines.get(name)
                if not points:
                    continue
                times, shares = zip(*points, (end_s, points[-1][1]), strict=True)
                axes.step(
                    times,
                    shares,
                    where="post",
                    color=LINES[index % len(LINES)],
                    linestyle=DASHES[index % len(DASHES)],
                    label=_printable(name),
                    gid=_id("line", panel.title, name),
                )
            axes.set_ylim(-0.03, 1.03)
            axes.set_yticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
            axes.grid(axis="y")
            for mark in marks:
                axes.axvline(mark.at, color=MUTED, linestyle="--", linewidth=0.9)
            axes.text(
                1.02,
                0.5,
                _printable(panel.title),
                transform=axes.transAxes,
                rotation=90,
                va="center",
            )
        top, bottom = columns[0][0], columns[-1][0]
        for number, mark in enumerate(marks):
            # Beside each other two texts may be wider than their phases: every other one is higher.
            place = (mark.at, 1.0)
            top.annotate(
                _printable(mark.text),
                place,
                xytext=(3, 14 if number % 2 else 3),
                xycoords=top.get_xaxis_transform(),
                textcoords="offset points",
                color=MUTED,
                size=8,
            )
        bottom.set_xlim(0.0, max(end_s, 1e-9))
        bottom.set_xlabel("time, s")
        canvas.supylabel(_printable(y_label), size=9)
        canvas.suptitle(_printable(title), fontweight="bold", size=10)
        handles, labels = top.get_legend_handles_labels()
        if handles:
            canvas.legend(handles, labels, loc="outside right upper", frameon=False)
        return _svg(canvas, title)


def _value_axis(
    axes: Axes, values: Iterable[Bar], mark: Mark | None, *, log: bool
) -> tuple[float, float]:
    """Give the axis its scale and ticks; its smallest and largest value."""
    shown = [bar.high for bar in values if bar.value is not None]
    largest = max([*shown, *([mark.at] if mark else [])], default=1.0)
    least, most = 0.0, max(0.2, math.ceil(largest * 10 + 0.2) / 10)
    if log:
        decades = max(1, math.ceil(math.log10(max(largest, 1.0)) - 1e-9))
        least, most = 1.0, 10.0**decades
        axes.set_yscale("log")
        powers = [10**power for power in range(1, decades + 1)]
        axes.set_yticks([1, *powers], ["\u2264 1", *(f"{power:,}" for power in powers)])
        axes.minorticks_off()
    axes.set_ylim(least, most)
    axes.grid(axis="y")
    return least, most


def _bar(
    axes: Axes,
    x: float,
    bar: Bar,
    one: Series,
    group: str,
    least: float,
    most: float,
    *,
    log: bool,
) -> None:
    """One bar with its spread and its arrow, or the word that it cannot be measured."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    if bar.value is None:
        axes.text(x, least, " no", color=MUTED, size=8, rotation=90, ha="center", va="bottom")
        return
    top = max(bar.value, most**STUB) if log else bar.value
    corner, height = (x - 0.47, least), top - least
    name = _id("bar", group, one.label, f"{bar.value:g}")
    axes.add_patch(Rectangle(corner, 0.94, height, gid=name, **_paint(one)))
    axes.add_patch(Rectangle(corner, 0.94, height, fill=False, edgecolor=INK, linewidth=0.6))
    if bar.high > bar.low:
        axes.plot(
            [x, x],
            [max(bar.low, least), max(bar.high, least)],
            color=INK,
            linewidth=1.1,
            marker="_",
            markersize=5,
            # White around black: seen on the darkest bar as well.
            path_effects=[withStroke(linewidth=2.8, foreground="white")],
            gid=_id("spread", group, one.label, f"{bar.low:g}..{bar.high:g}"),
        )
    if bar.open_end:
        axes.annotate(
            OPEN_END,
            (x, max(bar.high, top)),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            size=11,
        )


def _paint(one: Series) -> dict[str, Any]:
    """How a bar is filled: colour alone, or colour and white hatching."""
    if one.ours:
        return {"facecolor": OURS[one.rank % len(OURS)], "edgecolor": "none"}
    return {
        "facecolor": PEERS[one.rank % len(PEERS)],
        "edgecolor": "white",
        "linewidth": 0,
        "hatch": HATCHES[one.rank % len(HATCHES)],
    }


def _legend(canvas: Canvas, series: Sequence[Series], kinds: tuple[str, str]) -> None:
    """A column beside the bars: ours first, then the others, with headings where both are."""
    from matplotlib.patches import Patch

    handles = []
    both = len({one.ours for one in series}) > 1
    for heading, ours in zip(kinds, (True, False), strict=True):
        members = [one for one in series if one.ours is ours]
        if both:
            handles.append(Patch(facecolor="none", label=heading))
        handles += [Patch(label=_printable(one.label), **_paint(one)) for one in members]
    if handles:
        canvas.legend(handles=handles, loc="outside right upper", frameon=False)


def _svg(canvas: Canvas, title: str) -> str:
    text = io.StringIO()
    kept = {"Title": _printable(title), "Date": None, "Creator": None}
    canvas.savefig(text, format="svg", facecolor="white", metadata=kept)
    # Lines have no blanks at their ends, as in all files of this repository.
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _id(*parts: str) -> str:
    return ":".join("_".join(_printable(part).split()) for part in parts)


def _printable(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())
