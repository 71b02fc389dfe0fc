# SPDX-License-Identifier: Apache-2.0
"""The progress of a copy: a bar on a terminal, elsewhere a line every few seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import PurePath

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ri2n_parallel.cli.output import note, rate_text

__all__ = ["CopyProgress", "copy_progress", "size_text"]

LINE_EVERY_S = 5.0
NAME_CHARACTERS = 30


class CopyProgress:
    """Counts the bytes of a copy; `show` is called with this object after each change."""

    def __init__(self, show: Callable[[CopyProgress], None]) -> None:
        self.done_bytes = 0
        self.total_bytes = 0
        self.name = ""
        self._show = show

    def set_total(self, total_bytes: int) -> None:
        """Set the bytes of all files together."""
        self.total_bytes = total_bytes
        self._show(self)

    def begin(self, name: str) -> None:
        """Show the name of the next file."""
        plain = "".join(
            character if character.isprintable() else "?" for character in PurePath(name).name
        )
        self.name = plain if len(plain) <= NAME_CHARACTERS else plain[: NAME_CHARACTERS - 3] + "..."
        self._show(self)

    def arrived(self, size_bytes: int) -> None:
        """Count so many more bytes that the receiver has."""
        self.done_bytes += size_bytes
        self._show(self)


def size_text(size_bytes: int) -> str:
    """A size for people, such as `12.5 MB`."""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"


@contextlib.contextmanager
def copy_progress(links: Callable[[], int]) -> Iterator[CopyProgress]:
    """Show the progress of a copy on stderr; `links` returns how many links are in use."""
    if not sys.stderr.isatty():
        yield CopyProgress(_Lines(links, time.monotonic))
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[links]} links", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, links=links())

        def show(progress: CopyProgress) -> None:
            bar.update(
                task,
                description=progress.name,
                completed=progress.done_bytes,
                total=progress.total_bytes,
                links=links(),
            )

        yield CopyProgress(show)


class _Lines:
    """Prints a line every LINE_EVERY_S; a copy that takes less time prints none."""

    def __init__(self, links: Callable[[], int], clock: Callable[[], float]) -> None:
        self._links, self._clock = links, clock
        self._last_s, self._last_bytes = clock(), 0

    def __call__(self, progress: CopyProgress) -> None:
        now_s = self._clock()
        if now_s - self._last_s < LINE_EVERY_S:
            return
        rate_bps = 8 * (progress.done_bytes - self._last_bytes) / (now_s - self._last_s)
        left_s = 8 * (progress.total_bytes - progress.done_bytes) / rate_bps if rate_bps else None
        links = self._links()
        eta = f", {left_s:.0f} s to go" if left_s is not None else ""
        note(
            f"{size_text(progress.done_bytes)} of {size_text(progress.total_bytes)}, "
            f"{rate_text(rate_bps)}"
            f"{eta}, {links} link{'s' if links != 1 else ''}: {progress.name}"
        )
        self._last_s, self._last_bytes = now_s, progress.done_bytes
