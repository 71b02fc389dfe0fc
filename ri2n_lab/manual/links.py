# SPDX-License-Identifier: Apache-2.0
"""Links and anchors of Markdown files, as both a forge's view of a file and the site have them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Link", "anchors_of", "broken_links", "links_in", "slug", "without_code"]

_BLOCK = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", flags=re.M | re.S)
_CODE = re.compile(r"(`+)(?!`)(?:.+?)(?<!`)\1(?!`)", flags=re.S)
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *#* *$", flags=re.M)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:", flags=re.I)


@dataclass(frozen=True)
class Link:
    """A link's target: a path (empty for the same page) and an anchor (empty for none)."""

    path: str
    anchor: str

    @property
    def external(self) -> bool:
        """Whether it leads out of the repository."""
        return _EXTERNAL.match(self.path) is not None


def without_code(text: str) -> str:
    """The text without code blocks and without what stands in backquotes."""
    return _CODE.sub("", _BLOCK.sub("", text))


def links_in(text: str) -> Iterator[Link]:
    """The targets of all links and pictures of a Markdown text, but for those in code."""
    for target in _LINK.findall(without_code(text)):
        path, _, anchor = target.partition("#")
        yield Link(path, anchor)


def slug(title: str, separator: str = "-") -> str:
    """The anchor of a heading.

    Small letters, with `separator` for each space, without other punctuation. Forges do the same,
    so a link works in the repository and on the site.
    """
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title)
    kept = re.sub(r"[^\w\- ]", "", plain.strip().lower())
    return kept.replace(" ", separator)


def anchors_of(text: str) -> set[str]:
    """The anchors of all headings; the second one of two with the same text ends with `-1`.

    An `<a id="...">` and an `{#...}` after a heading count, too.
    """
    body = _BLOCK.sub("", text)
    seen: Counter[str] = Counter()
    anchors = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", body))
    for _, title in _HEADING.findall(body):
        own = slug(title)
        anchors.add(f"{own}-{seen[own]}" if seen[own] else own)
        seen[own] += 1
    return anchors


def broken_links(file: Path, anchors: dict[Path, set[str]]) -> list[str]:
    """The links of a Markdown file that lead nowhere in the repository, as they are written.

    `anchors` keeps the anchors of the files that were read, for the next call.
    """
    broken = []
    for link in links_in(file.read_text(encoding="utf-8")):
        if link.external:
            continue
        target = (file.parent / link.path).resolve() if link.path else file.resolve()
        if not target.exists():
            broken.append(link.path)
        elif link.anchor and target.suffix == ".md":
            if target not in anchors:
                anchors[target] = anchors_of(target.read_text(encoding="utf-8"))
            if link.anchor not in anchors[target]:
                broken.append(f"{link.path}#{link.anchor}")
    return broken
