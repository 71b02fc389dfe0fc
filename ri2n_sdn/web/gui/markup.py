# SPDX-License-Identifier: Apache-2.0
"""HTML and SVG as strings that are safe: what is not markup already is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

__all__ = ["Markup", "facts", "plain", "table", "tag", "text"]

# Characters that turn what follows them round, so that a text seems to say something else.
_TURNS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd")

# Elements without an end.
_VOID = ("br", "hr", "img", "input")


class Markup(str):
    """A piece of HTML or SVG that may stand in a page as it is."""

    __slots__ = ()


def plain(value: Any) -> Any:
    """A text without what would turn the direction of writing round; other values as they are."""
    return value.translate(_TURNS) if isinstance(value, str) else value


def text(*parts: object) -> Markup:
    """The parts one after the other. All that are not Markup are escaped."""
    return Markup(
        "".join(part if isinstance(part, Markup) else escape(plain(str(part))) for part in parts)
    )


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element with its attributes and children.

    An underscore at the end of an attribute's name is dropped (`class_`), the others become
    hyphens. None and False leave an attribute out, and True gives it no value.
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = key.rstrip("_").replace("_", "-")
        written.append(f" {shown}" if value is True else f' {shown}="{escape(str(value))}"')
    begin = f"<{name}{''.join(written)}>"
    return Markup(begin if name in _VOID else f"{begin}{text(*children)}</{name}>")


def facts(known: Iterable[tuple[str, object]]) -> Markup:
    """What is known of something, by names."""
    each = (text(tag("dt", name, class_="muted"), tag("dd", said)) for name, said in known)
    return tag("dl", *each)


def table(
    label: str, texts: Iterable[str], numbers: Iterable[str], rows: Iterable[Markup]
) -> Markup:
    """A table with the name `label`, which scrolls where it is wider than the page.

    `texts` are the names of its columns, and `numbers` those of its columns with numbers.
    """
    names = [tag("th", name, scope="col") for name in texts]
    names += [tag("th", name, scope="col", class_="num") for name in numbers]
    whole = tag("table", tag("thead", tag("tr", *names)), tag("tbody", *rows), class_="table")
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=label)
