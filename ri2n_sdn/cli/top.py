# SPDX-License-Identifier: Apache-2.0
"""`ri2n top`: what the cluster does, live, fed by the controller's stream of changes."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live

from ri2n_sdn.cli.common import JsonOption, console, number_option, print_json
from ri2n_sdn.cli.labs import Where
from ri2n_sdn.cli.top_view import TABLES, Looks, View, check_view, document, press, screen
from ri2n_sdn.client import Watch, call
from ri2n_sdn.contract import operations as ops
from ri2n_sdn.errors import BadInput, NotAvailable, Ri2nError

if TYPE_CHECKING:
    from ri2n_sdn.contract.documents import Documents

__all__ = ["Feed", "keys_of", "top"]

MAX_PAIRS = 500
"""So many pairs are asked for, the busiest."""

_MAX_PAUSE_S = 2.0
_PAIRS_S = 2.0
_NAMES = {
    **{"\x1b[A": "up", "\x1b[B": "down", "\x1b[5~": "page up", "\x1b[6~": "page down"},
    **{"\x1bOA": "up", "\x1bOB": "down", "\x1b": "escape"},
    **{"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace"},
}
# A key, or a sequence up to its letter. Of those that mean something, some end without one.
_KEY = re.compile(r"\x1b\[[56]~|\x1b.[\W\d_]*[^\W\d_]?|.", re.DOTALL)


def top(
    table: Annotated[
        str, typer.Argument(metavar="[TABLE]", help=f"What to show: {', '.join(TABLES)}.")
    ] = "hosts",
    *,
    at: Where,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help="Default: what is worst first, then the busiest.")
    ] = "",
    reverse: Annotated[bool, typer.Option("--reverse", help="Turn the order.")] = False,
    wanted: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Only rows in which this text is.")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Print all rows once and end.")] = False,
    interval: Annotated[
        float, number_option("Seconds between two screens at least.", 0.1, None)
    ] = 1.0,
    count: Annotated[
        int, typer.Option(min=0, help="Stop after so many screens; 0: until Ctrl-C.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show hosts, NICs, pairs or jobs live, what is wrong first. `?` shows the keys, `q` quits.

    With `--once` or `--json` it prints once and ends. It goes on when the controller starts again.
    """
    view = View(table, sort, reverse, wanted)
    check_view(view)
    feed = Feed(at.path, watches=not (once or as_json))
    if table == "pairs":
        feed.ask_pairs()
    if as_json:
        print_json(document(feed.looks(), view))
        return
    if not once and sys.stdin.isatty() and sys.stdout.isatty():
        with _keys() as fd:
            _show(feed, view, fd, interval, count)
        return
    out, screens = console(), 1 if once else count or sys.maxsize
    for number in range(1, screens + 1):
        out.print(screen(feed.looks(), view, out.width, None))
        if number < screens:
            time.sleep(interval)
            if table == "pairs":
                feed.want_pairs()


def _show(feed: Feed, view: View, fd: int, interval_s: float, count: int) -> None:
    """Show a screen whenever there is something new, or a key was pressed, until `q`."""
    out = console()
    kept: Looks | None = None
    shown, due_s = 0, 0.0
    with Live(console=out, auto_refresh=False, screen=True) as live:
        while True:
            if time.monotonic() >= due_s:
                if view.table == "pairs":
                    feed.want_pairs()
                shown, due_s = shown + 1, time.monotonic() + interval_s
            # A view that is stopped can still be sorted and scrolled.
            kept = kept if view.paused and kept is not None else feed.looks()
            size = shutil.get_terminal_size()
            live.update(screen(kept, view, size.columns, size.lines), refresh=True)
            if count and shown >= count:
                return
            ready, _, _ = select.select([fd], [], [], max(0.05, due_s - time.monotonic()))
            if not ready:
                continue
            data = os.read(fd, 256)
            if not data:
                return
            for key in keys_of(data.decode(errors="ignore")):
                pressed = press(view, key)
                if pressed is None:
                    return
                view = pressed


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Let each key arrive at once and unseen, and give the terminal back as it was."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def keys_of(text: str) -> list[str]:
    """The keys that a terminal has sent, as `press` takes them. Unknown sequences are no key."""
    keys = (_NAMES.get(each, each) for each in _KEY.findall(text))
    return [key for key in keys if key.isprintable()]


class Feed:
    """The controller's newest state, which a thread keeps. It connects again by itself."""

    def __init__(self, path: Path, *, watches: bool = True) -> None:
        """Read the state once, and go on in a thread if `watches`.

        Raises NotAvailable when no controller answers now, BadInput when it refuses.
        """
        self._path = path
        self._lock = threading.Condition()
        watch = Watch(path)
        self._known, self._since_s = Looks(watch.state), time.monotonic()
        self._pairs_s = -_PAIRS_S
        self._asking = False
        if watches:
            threading.Thread(target=self._follow, args=(watch,), name="watch", daemon=True).start()
        else:
            watch.close()

    def looks(self) -> Looks:
        """What is known now."""
        with self._lock:
            away_s = time.monotonic() - self._since_s
            return replace(self._known, away_s=away_s, now_s=time.time())

    def ask_pairs(self) -> None:
        """Ask for the busiest pairs, which are not in the stream. Raises what `call` raises."""
        page = call(self._path, ops.PAIRS, active=True, sort="rate", limit=MAX_PAIRS)
        with self._lock:
            self._known = replace(
                self._known,
                pairs=page["pairs"],
                pairs_total=int(page["total"]),
                pairs_sampled_s=page.get("sampled_s"),
            )

    def want_pairs(self) -> None:
        """Have a thread ask for the pairs, if nobody has asked lately; nobody waits for it."""
        with self._lock:
            if self._asking or time.monotonic() - self._pairs_s < _PAIRS_S:
                return
            self._asking, self._pairs_s = True, time.monotonic()

        def ask() -> None:
            try:
                # The stream says what is wrong; old pairs are better than none.
                with contextlib.suppress(Ri2nError, KeyError, TypeError, ValueError):
                    self.ask_pairs()
            finally:
                with self._lock:
                    self._asking = False

        threading.Thread(target=ask, name="pairs", daemon=True).start()

    def _follow(self, watch: Watch | None) -> None:
        """Keep the state, as long as the process runs."""
        pause_s = 0.1
        while True:
            try:
                with watch or Watch(self._path) as watching:
                    for state in watching:
                        pause_s = 0.1
                        self._note(state, None)
                why = "it has ended or starts anew"
            except (NotAvailable, BadInput) as error:
                why = str(error)
            watch = None
            self._note(None, why)
            time.sleep(pause_s)
            pause_s = min(_MAX_PAUSE_S, 2 * pause_s)

    def _note(self, state: Documents | None, away: str | None) -> None:
        with self._lock:
            if (away is None) != (self._known.away is None):
                self._since_s = time.monotonic()
            state = self._known.state if state is None else state
            self._known = replace(self._known, state=state, away=away)
