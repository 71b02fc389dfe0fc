# SPDX-License-Identifier: Apache-2.0
"""What a bench measures: each figure is declared once, in the file of its bench.

Summaries, printed tables, the rows, tables and pictures of a report follow from the declaration. A
new figure is one more `Figure` in the `FIGURES` of a bench, and the code there that measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ri2n_lab.bench.drawing import Bar

__all__ = ["Figure", "Number", "Plot", "names", "spread", "spread_text"]

Number = int | float


@dataclass(frozen=True)
class Plot:
    """The picture of a figure: its file's name, its title, the axis, and a line across it.

    `log`: the axis is logarithmic. `open_end` names a figure, true or false, and says what it means
    when it is true: the bar then has no end.
    """

    file: str
    title: str
    axis: str
    mark: tuple[float, str]
    log: bool = False
    open_end: tuple[str, str] | None = None


@dataclass(frozen=True)
class Figure:
    """One figure of a bench.

    `name` is its key in rows. `heading` and `unit` stand above its column; a figure without a
    heading is in no table. `combine` makes one value of the repeats; None: the summary lacks it.
    `show` is the format of the value times `scale`, or makes a cell of the values of all repeats.
    `kind` is its type in the files of a report, which lack it when that is None; a row there must
    have it when it is `required`. `when_measured`: a table without any value has no column for it.
    """

    name: str
    heading: str = ""
    unit: str = ""
    combine: Callable[[Sequence[float]], float] | None = median
    show: str | Callable[[Sequence[Any]], str] = ".0f"
    scale: float = 1.0
    kind: Any = Number | None
    required: bool = False
    when_measured: bool = False
    plot: Plot | None = None

    @property
    def title(self) -> str:
        """What stands above its column: heading and unit."""
        return f"{self.heading}, {self.unit}" if self.unit else self.heading

    def shown(self, values: Iterable[Any]) -> bool:
        """Whether a table has a column for it, whose rows have these values of it."""
        measured = any(value is not None for value in values)
        return bool(self.heading) and (measured or not self.when_measured)

    def cell(self, values: Sequence[Any]) -> str:
        """The repeats as one cell of a table: `median (smallest..largest)`, `-` without any."""
        if callable(self.show):
            return self.show(values)
        return spread_text(self._scaled(self.bar(values)), self.show)

    def middle(self, values: Sequence[Any]) -> str:
        """The repeats combined, without their spread; `-` without any."""
        bar = self._scaled(self.bar(values))
        form = "g" if callable(self.show) else self.show
        return "-" if bar is None else f"{bar.value:{form}}"

    def summary_cell(self, line: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str:
        """Its cell for a line that `rows.summarize` made of `rows`.

        From the line where it can be: that knows what a row alone does not.
        """
        value, ends = line.get(self.name), line.get(f"{self.name}_spread")
        if callable(self.show) or self.combine is None:
            return self.cell([row.get(self.name) for row in rows])
        if value is None or ends is None:
            return "-"
        return spread_text(self._scaled(Bar(value, *ends)), self.show)

    def bar(self, values: Iterable[Number | None]) -> Bar | None:
        """The repeats combined, with the smallest and the largest; None when nothing was measured.

        In the unit of the rows: `scale` is for tables.
        """
        return spread(values, self.combine or median)

    def _scaled(self, bar: Bar | None) -> Bar | None:
        if bar is None or bar.value is None or self.scale == 1.0:
            return bar
        return Bar(bar.value * self.scale, bar.low * self.scale, bar.high * self.scale)


def names(figures: Iterable[Figure]) -> tuple[str, ...]:
    """The keys of these figures in rows."""
    return tuple(figure.name for figure in figures)


def spread(
    values: Iterable[Number | None], combine: Callable[[Sequence[float]], float] = median
) -> Bar | None:
    """What was measured, combined, with the smallest and the largest; None when nothing was."""
    numbers = [float(value) for value in values if value is not None]
    return Bar(float(combine(numbers)), min(numbers), max(numbers)) if numbers else None


def spread_text(bar: Bar | None, form: str) -> str:
    """`median (smallest..largest)`, the brackets only when they differ.

    `-` for what was not measured.
    """
    if bar is None or bar.value is None:
        return "-"
    middle, low, high = (f"{value:{form}}" for value in (bar.value, bar.low, bar.high))
    return middle if low == high else f"{middle} ({low}..{high})"
