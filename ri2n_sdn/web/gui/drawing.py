# SPDX-License-Identifier: Apache-2.0
"""The picture of the network on a page: sent once, and then changed in place."""

from __future__ import annotations

import functools
import json
import operator
import time
from collections.abc import Callable, Collection, Hashable
from weakref import WeakKeyDictionary

from nicegui import ui

from ri2n_sdn.contract.documents import Documents
from ri2n_sdn.web.age import age_of
from ri2n_sdn.web.feed import Feed
from ri2n_sdn.web.gui.frame import html
from ri2n_sdn.web.gui.markup import Markup, tag, text
from ri2n_sdn.web.gui.picture import HEAT_STEPS, Paint, changes, paint, svg
from ri2n_sdn.web.gui.scene import Nic, Row, Scene, scene_of, shape_of

__all__ = ["Drawing", "InPlace", "legend", "run"]


class _Shared:
    """What the pages of all browsers have in common, so that it is worked out once a change."""

    def __init__(self) -> None:
        self._parts: tuple[object, ...] = ()
        self._shape: Hashable = None
        self._scene: Scene | None = None
        self._state: tuple[Documents | None, bool] = (None, False)
        self._paint: Paint = {}

    def scene(self, state: Documents) -> Scene:
        """The scene of a state; the same object as long as the geometry is the same."""
        parts = tuple(state.get(part) for part in ("hosts", "networks", "cables"))
        if self._scene is None or not all(map(operator.is_, parts, self._parts)):
            shape = shape_of(state)
            if self._scene is None or shape != self._shape:
                self._scene, self._shape = scene_of(state), shape
            self._parts = parts
        return self._scene

    def paint(self, state: Documents, old: bool) -> Paint:
        """The look of a state without emphasis."""
        if state is not self._state[0] or old != self._state[1]:
            self._paint, self._state = paint(self.scene(state), state, old=old), (state, old)
        return self._paint


_SHARED: WeakKeyDictionary[Feed, _Shared] = WeakKeyDictionary()


class InPlace:
    """HTML of a page that is sent once. Then a function of gui.js changes its parts in place."""

    def __init__(self, element: ui.html, function: str, *arguments: object) -> None:
        self._element, self._call = element, functools.partial(run, function, *arguments)
        self._rest: object = None
        self._look: Paint = {}

    def show(self, rest: object, look: Paint, content: Callable[[], Markup]) -> None:
        """Show that the parts look so. The content is sent whole when its `rest` is another one."""
        if rest != self._rest:
            self._element.set_content(content())
        elif changed := changes(self._look, look):
            self._call(changed)
        self._rest, self._look = rest, look


class Drawing:
    """A picture on a page.

    * `nics`, `cables`: what is emphasized.
    * `chosen`: the label of the row that is chosen.
    """

    def __init__(self, feed: Feed, prefix: str = "net") -> None:
        self.nics: Collection[Nic] = ()
        self.cables: Collection[str] = ()
        self.chosen: str | None = None
        self._shared, self._own = _SHARED.setdefault(feed, _Shared()), _Shared()
        self._feed, self._prefix = feed, prefix
        self._scene: Scene | None = None
        self._picture = InPlace(html("", classes="picture scroll"), "paint", prefix)

    def row(self, number: object) -> Row | None:
        """The row with a number that a browser has sent; None when there is none."""
        rows = self._scene.rows if self._scene is not None else ()
        return rows[number] if isinstance(number, int) and 0 <= number < len(rows) else None

    def row_of(self, host: str) -> Row | None:
        """The row that a host is in."""
        rows = self._scene.rows if self._scene is not None else ()
        return next((row for row in rows if host in row.hosts), None)

    def show(self, state: Documents, *, whole: bool = True) -> None:
        """Show a state. Only what has changed is sent, unless the network has another shape.

        `whole`: it is the feed's state, and not a part of it.
        """
        known = self._shared if whole else self._own
        scene, old = known.scene(state), age_of(self._feed, time.time()).old
        emphasis = bool(self.nics or self.cables or self.chosen)
        look = (
            paint(*(scene, state), nics=self.nics, cables=self.cables, chosen=self.chosen, old=old)
            if emphasis
            else known.paint(state, old)
        )
        self._picture.show(scene, look, lambda: svg(scene, look, self._prefix))
        self._scene = scene


def run(function: str, *arguments: object) -> None:
    """Call one of the functions of gui.js in the browser of the page."""
    ui.run_javascript(f"ri2n.{function}({', '.join(map(json.dumps, arguments))})")


def legend(*, way: str) -> Markup:
    """What the colours mean, in one line. `way` says what is emphasized."""
    shades = tag("span", *(_sample(f"heat-{step}") for step in range(len(HEAT_STEPS) + 1)))
    steps = ", ".join(f"{step:.0%}" for step in HEAT_STEPS)
    entries = [
        tag("span", "load of a NIC: ", shades, f" more than {steps}", class_="entry"),
        *(
            tag("span", _sample(kind), " ", said, class_="entry")
            for kind, said in (("dead", "dead"), ("some-dead", "some dead"), ("away", "away"))
        ),
        tag("span", _sample("way heat-1"), " ", way, class_="entry"),
        tag("span", "↑ sends, ↓ receives, bit/s", class_="entry"),
    ]
    return text(*entries)


def _sample(kind: str) -> Markup:
    """A short line of a kind."""
    return Markup(
        '<svg width="26" height="10" aria-hidden="true" class="net">'
        f'<line class="link {kind}" x1="1" y1="5" x2="25" y2="5"></line></svg>'
    )
