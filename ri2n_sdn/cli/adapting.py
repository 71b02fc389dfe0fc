# SPDX-License-Identifier: Apache-2.0
"""A table that takes the form that fits into the terminal as it is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

__all__ = ["Adapting"]

_UNLIMITED_COLUMNS = 100_000


class Adapting(Table):
    """A table that is printed as the first of its narrower forms that fits, or as the last one."""

    def __init__(self, narrower: Callable[[], Iterator[Table]], **looks: Any) -> None:
        super().__init__(**looks)
        self._narrower = narrower

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield what rich prints, in a form that fits."""
        unlimited = options.update_width(_UNLIMITED_COLUMNS)
        form: Table = self
        narrower = self._narrower()
        while Table.__rich_measure__(form, console, unlimited).maximum > options.max_width:
            if (next_form := next(narrower, None)) is None:
                break
            form = next_form
        yield from Table.__rich_console__(form, console, options)
