# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs: the generated pages, and links to files that the site does not have.

`mkdocs.yml` names this file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from ri2n_lab.manual.reference import pages

__all__ = ["on_config", "on_files", "on_page_markdown", "pages_in"]

REPOSITORY = Path(__file__).parents[2]
# Files outside of docs/ that are pages of the site, too.
BESIDE = {"CONTRIBUTING.md": "project/contributing.md", "CHANGELOG.md": "project/changelog.md"}

_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()#\s]+)(#[^()\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the generated pages, and add them to the navigation.

    So are the pages of measured data, and pages that the navigation in `mkdocs.yml` forgets.
    """
    config.extra["pages"] = made = pages()
    nav: list[Any] = config.nav or []
    docs = Path(config.docs_dir)
    named = set(pages_in(nav))
    data = sorted(f"results/{path.name}" for path in (docs / "results").glob("*.md"))
    others = sorted(path.name for path in docs.glob("*.md") if path.name not in named)
    nav.append({"Data": list[Any](data)})
    nav.append({"Reference": [{title: path} for path, (title, _) in made.items()]})
    if others:
        nav.append({"More": list[Any](others)})
    config.nav = nav
    return config


def pages_in(nav: Any) -> Iterator[str]:
    """The paths of all pages that a navigation names."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        yield from pages_in(list(nav.values()))
    elif isinstance(nav, list):
        for entry in nav:
            yield from pages_in(entry)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and those from outside of docs/."""
    made: dict[str, tuple[str, str]] = config.extra["pages"]
    for path, (_, text) in made.items():
        files.append(File.generated(config, path, content=text))
    for name, path in BESIDE.items():
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links from the repository's files to the site's pages.

    A link to a file that is no page, such as a test, becomes its text alone.
    """
    source = page.file.src_uri
    outside = {path: name for name, path in BESIDE.items()}
    here = outside.get(source, f"docs/{source}")

    def led(link: re.Match[str]) -> str:
        text, path, anchor = link[1], link[2], link[3] or ""
        if ":" in path:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        uri = BESIDE.get(target, target.removeprefix("docs/"))
        if target == "README.md":
            uri = "index.md"
        elif target not in BESIDE and not target.startswith("docs/"):
            return text
        return f"[{text}]({posixpath.relpath(uri, posixpath.dirname(source) or '.')}{anchor})"

    return _LINK.sub(led, markdown)
