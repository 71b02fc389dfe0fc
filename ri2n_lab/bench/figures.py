"""The report's pictures as SVG: grouped bars with their spread, and shares over time.

Written here and not by a plotting library, whose output changes with its version and the fonts it
finds: a page that is made again must come out the same byte for byte, everywhere. Texts stay texts,
in whatever sans-serif font is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax import saxutils

__all__ = ["Bar", "Mark", "Series", "Steps", "bars", "steps"]

INK, MUTED, GRID = "#1a1a1a", "#595959", "#dddddd"
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
SIZE = 13
# No font is wider on average; only what is placed after a text depends on it.
CHAR = 7.4
# Ours from light to dark, with a controller in one hue and without in another, so that those of one
# kind are told apart in grey as well; peers in other colours with hatching. All from palettes that
# were made for colour-blind readers (ColorBrewer; Okabe and Ito).
OURS = ("#c6dbef", "#6baed6", "#2171b5", "#08306b", "#c7e9c0", "#74c476", "#238b45", "#00441b")
PEERS = ("#e69f00", "#d55e00", "#cc79a7", "#f0e442", "#999999", "#009e73")
HATCHES = (
    "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4",
    "M4,0 v8",
    "M0,4 h8",
    "M-2,6 l4,4 M0,0 l8,8 M6,-2 l4,4",
)
LINES = ("#2171b5", "#d55e00", "#009e73", "#cc79a7")
DASHES = ("", "7 4", "2 3", "9 3 2 3")


@dataclass(frozen=True)
class Series:
    """One strategy (`ours`) or peer, in every group.

    Its `rank` gives it the same colour in all figures.
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
    """A moment or a value that gets a line through the figure, with a text."""

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
) -> str:
    """Bars of `values` by (group, series label); a pair that is not there was not measured and
    stays empty.

    `open_end` says what the arrows of bars with an open end mean. The scale begins at 0, or with
    `log` at 1 (less is drawn as a stub of that height) and then ends at a power of ten.
    """
    most = max(
        [bar.high for bar in values.values() if bar.value is not None]
        + ([mark.at] if mark else []),
        default=1.0,
    )
    scale = _LogScale(most) if log else _LinearScale(most)
    between = 6.0 if _both(series) else 0.0  # ours and peers stand a little apart
    width = min(26.0, max(9.0, 620.0 / max(1, len(groups) * len(series))))
    group_width = len(series) * width + between
    gap = max(18.0, 1.6 * width)
    gap = max(gap, 10.0 + CHAR * max(map(len, groups), default=0) - group_width)
    plot = max(460.0, len(groups) * (group_width + gap) + gap)
    gap = (plot - len(groups) * group_width) / (len(groups) + 1)
    legend = _Legend(series, plot)
    left, height = 72.0, 270.0
    top = 44.0 + legend.height
    page = _Page(title, left + plot + 24.0, top + height + 62.0)
    page.add(*legend.at(left, 40.0))
    page.add(*_patterns(series))

    def y(value: float) -> float:
        return top + height * (1.0 - scale.place(value))

    for value, text in scale.ticks():
        page.line(left, y(value), left + plot, y(value), GRID)
        page.text(left - 8, y(value) + 4.5, text, anchor="end")
    if mark:
        page.line(left, y(mark.at), left + plot, y(mark.at), MUTED, dash="5 4")
        below = y(mark.at) - top < 16  # beside the axis' end
        page.text(
            left + plot - 4,
            y(mark.at) + (13 if below else -5),
            mark.text,
            anchor="end",
            colour=MUTED,
            size=11,
        )
    for number, group in enumerate(groups):
        start = left + gap + number * (group_width + gap)
        page.text(start + group_width / 2, top + height + 20, group, anchor="middle")
        for place, one in enumerate(series):
            bar = values.get((group, one.label))
            if bar is None:
                continue
            x = start + place * width + (0.0 if one.ours else between)
            if bar.value is None:
                page.text(
                    x + width / 2 + 4, y(scale.least) - 4, "no", colour=MUTED, size=11, turned=True
                )
                continue
            words = f"{group}, {one.label}: {bar.value:g}"
            page.bar(
                x + 0.75,
                y(bar.value),
                width - 1.5,
                y(scale.least) - y(bar.value),
                _fill(one),
                words,
                stub=log,
            )
            if bar.high > bar.low:
                page.whisker(x + width / 2, y(bar.low), y(bar.high), min(3.0, width / 4))
            if bar.open_end:
                page.arrow(x + width / 2, y(max(bar.high, bar.value)) - 5)
    page.line(left, top + height, left + plot, top + height, INK)
    page.line(left, top, left, top + height, INK)
    page.text(left + plot / 2, top + height + 46, x_label, anchor="middle")
    if open_end and any(bar.open_end for bar in values.values()):
        page.arrow(left + 4, top + height + 47)
        page.text(left + 12, top + height + 46, open_end, colour=MUTED, size=11)
    page.text(20, top + height / 2, y_label, anchor="middle", turned=True)
    return page.svg()


def steps(
    title: str, panels: Sequence[Steps], marks: Sequence[Mark], end_s: float, *, y_label: str
) -> str:
    """Panels above each other with one time axis from 0 to `end_s`; `marks` divide it into
    phases.
    """
    left, plot, height, space = 72.0, 760.0, 112.0, 34.0
    names = sorted({name for panel in panels for name in panel.lines})
    top = 104.0
    page = _Page(title, left + plot + 24.0, top + len(panels) * (height + space) + 34.0)
    unit = plot / max(end_s, 1e-9)
    at = left
    for index, name in enumerate(names):
        colour, dash = LINES[index % len(LINES)], DASHES[index % len(DASHES)]
        page.line(at, 47, at + 30, 47, colour, dash=dash, width=2.2)
        page.text(at + 36, 51.5, name)
        at += 36 + len(name) * CHAR + 26
    bottom = top + len(panels) * (height + space) - space
    for number, mark in enumerate(marks):
        x = left + mark.at * unit
        # Beside each other two texts may be wider than their phases: every other one stands higher.
        page.line(x, top - (24 if number % 2 else 8), x, bottom, MUTED, dash="5 4")
        page.text(x + 3, top - (16 if number % 2 else 2) - 2, mark.text, colour=MUTED, size=11)
    for number, panel in enumerate(panels):
        above = top + number * (height + space) + 4
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            level = above + height * (1.0 - share)
            page.line(left, level, left + plot, level, GRID)
            if share in (0.0, 0.5, 1.0):
                page.text(left - 8, level + 4.5, f"{share:g}", anchor="end")
        for name in names:
            points = panel.lines.get(name)
            if points:
                index = names.index(name)
                page.path(
                    _stairs(points, left, unit, above, height, end_s),
                    LINES[index % len(LINES)],
                    DASHES[index % len(DASHES)],
                )
        page.line(left, above + height, left + plot, above + height, INK)
        page.line(left, above, left, above + height, INK)
        page.text(left + plot + 14, above + height / 2, panel.title, anchor="middle", turned=True)
    for tick in _seconds(end_s):
        page.text(left + tick * unit, bottom + 22, f"{tick:g}", anchor="middle")
    page.text(left + plot / 2, bottom + 44, "time, s", anchor="middle")
    page.text(20, (top + bottom) / 2, y_label, anchor="middle", turned=True)
    return page.svg()


# ---- scales


@dataclass(frozen=True)
class _LinearScale:
    most: float
    least: float = 0.0

    @property
    def _end(self) -> float:
        return max(0.2, math.ceil(self.most * 10 + 0.2) / 10)

    def place(self, value: float) -> float:
        return min(1.0, max(0.0, value / self._end))

    def ticks(self) -> list[tuple[float, str]]:
        step = next(step for step in (0.2, 0.5, 1, 2, 5, 10, 10**9) if self._end / step <= 8)
        return [
            (index * step, f"{index * step:.1f}")
            for index in range(int(self._end / step + 1e-6) + 1)
        ]


@dataclass(frozen=True)
class _LogScale:
    most: float
    least: float = 1.0

    @property
    def _decades(self) -> int:
        return max(1, math.ceil(math.log10(max(self.most, 1.0)) - 1e-9))

    def place(self, value: float) -> float:
        return min(1.0, math.log10(max(value, 1.0)) / self._decades)

    def ticks(self) -> list[tuple[float, str]]:
        texts = ["\u2264 1", *(f"{10**power:,}" for power in range(1, self._decades + 1))]
        return [(float(10**power), text) for power, text in enumerate(texts)]


def _seconds(end_s: float) -> list[float]:
    step = next((step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300) if end_s / step <= 16), 600)
    return [float(index * step) for index in range(int(end_s / step + 1e-6) + 1)]


# ---- colours and legend


def _both(series: Sequence[Series]) -> bool:
    return len({one.ours for one in series}) > 1


def _fill(one: Series) -> str:
    return OURS[one.rank % len(OURS)] if one.ours else f"url(#peer{one.rank})"


def _patterns(series: Sequence[Series]) -> Iterator[str]:
    peers = [one for one in series if not one.ours]
    if not peers:
        return
    yield "<defs>"
    for one in peers:
        yield (
            f'<pattern id="peer{one.rank}" width="8" height="8" patternUnits="userSpaceOnUse">'
            f'<rect width="8" height="8" fill="{PEERS[one.rank % len(PEERS)]}"/>'
            f'<path d="{HATCHES[one.rank % len(HATCHES)]}" fill="none" stroke="#ffffff" '
            'stroke-width="1.6"/></pattern>'
        )
    yield "</defs>"


class _Legend:
    """Rows of swatches: ours first, peers on a row of their own; as many rows as the width
    needs.
    """

    ROW = 21.0

    def __init__(self, series: Sequence[Series], width: float) -> None:
        self._placed: list[tuple[float, int, str, str | None]] = []
        row = 0
        for heading, ours in (("ours:", True), ("peers:", False)):
            members = [one for one in series if one.ours is ours]
            if not members:
                continue
            start = 0.0
            if _both(series):
                self._placed.append((0.0, row, heading, None))
                start = 54.0
            at = start
            for one in members:
                needed = 20 + len(one.label) * CHAR + 20
                if at > start and at + needed > width:
                    at, row = start, row + 1
                self._placed.append((at, row, one.label, _fill(one)))
                at += needed
            row += 1
        self.height = row * self.ROW

    def at(self, left: float, top: float) -> Iterator[str]:
        for x, row, label, fill in self._placed:
            y = top + row * self.ROW
            if fill is None:
                yield _text(left + x, y + 11, label, colour=MUTED)
                continue
            yield _rect(left + x, y, 13, 13, fill)
            yield _text(left + x + 19, y + 11, label)


# ---- SVG


def _escape(text: str) -> str:
    return saxutils.escape("".join(letter for letter in text if letter.isprintable()))


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "",
    colour: str = "",
    size: int = 0,
    turned: bool = False,
) -> str:
    extra = f' text-anchor="{anchor}"' if anchor else ""
    extra += f' fill="{colour}"' if colour else ""
    extra += f' font-size="{size}"' if size else ""
    extra += f' transform="rotate(-90 {_n(x)} {_n(y)})"' if turned else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{extra}>{_escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, fill: str, inside: str = "") -> str:
    head = f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" fill="{fill}"'
    head += f' stroke="{INK}" stroke-width="0.6"'
    return f"{head}>{inside}</rect>" if inside else f"{head}/>"


class _Page:
    """Elements in the order they are drawn in, on white: readable on a dark page, too."""

    def __init__(self, title: str, width: float, height: float) -> None:
        self._title, self._width, self._height = title, width, height
        self._parts: list[str] = []

    def add(self, *parts: str) -> None:
        self._parts += parts

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        colour: str,
        *,
        dash: str = "",
        width: float = 1.0,
    ) -> None:
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        extra += f' stroke-width="{_n(width)}"' if width != 1.0 else ""
        self.add(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" '
            f'stroke="{colour}"{extra}/>'
        )

    def path(self, points: Sequence[tuple[float, float]], colour: str, dash: str) -> None:
        way = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        extra = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(
            f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2.2"{extra}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "",
        colour: str = "",
        size: int = 0,
        turned: bool = False,
    ) -> None:
        self.add(_text(x, y, text, anchor=anchor, colour=colour, size=size, turned=turned))

    def bar(
        self, x: float, y: float, width: float, height: float, fill: str, words: str, *, stub: bool
    ) -> None:
        if stub and height < 2.0:
            y, height = y - (2.0 - height), 2.0
        self.add(_rect(x, y, width, height, fill, f"<title>{_escape(words)}</title>"))

    def whisker(self, x: float, low: float, high: float, half: float) -> None:
        ends = "".join(f"M{_n(x - half)},{_n(y)}H{_n(x + half)}" for y in (low, high))
        way = f"M{_n(x)},{_n(low)}V{_n(high)}{ends}"
        # White below black: seen on the darkest bar as well.
        self.add(f'<path d="{way}" fill="none" stroke="#ffffff" stroke-width="2.8"/>')
        self.add(f'<path d="{way}" fill="none" stroke="{INK}" stroke-width="1.1"/>')

    def arrow(self, x: float, y: float) -> None:
        """Upwards, its foot at (x, y)."""
        way = f"M{_n(x)},{_n(y)}V{_n(y - 11)}M{_n(x - 3.5)},{_n(y - 7)}L{_n(x)},{_n(y - 11.5)}L{_n(x + 3.5)},{_n(y - 7)}"
        self.add(
            f'<path class="open-end" d="{way}" fill="none" stroke="{INK}" stroke-width="1.4"/>'
        )

    def svg(self) -> str:
        width, height = _n(self._width), _n(self._height)
        title = _escape(self._title)
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" font-family="{FONT}" font-size="{SIZE}" '
            f'fill="{INK}">',
            f"<title>{title}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<text x="16" y="24" font-size="15" font-weight="bold">{title}</text>',
        ]
        return "\n".join([*head, *self._parts, "</svg>"]) + "\n"


def _stairs(
    points: Sequence[tuple[float, float]],
    left: float,
    unit: float,
    above: float,
    height: float,
    end_s: float,
) -> list[tuple[float, float]]:
    way: list[tuple[float, float]] = []
    for time_s, share in points:
        x, y = left + time_s * unit, above + height * (1.0 - share)
        if way:
            way.append((x, way[-1][1]))
        way.append((x, y))
    return [*way, (left + end_s * unit, way[-1][1])]
