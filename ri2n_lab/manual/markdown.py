# SPDX-License-Identifier: Apache-2.0
"""Markdown that generated pages are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["table"]


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table; empty when it has no rows. A column without any text is left out."""
    used = [at for at, _ in enumerate(head) if any(row[at].strip() for row in rows)]
    if not used:
        return ""
    lines = [head, tuple("---" for _ in head), *rows]
    return (
        "".join("| " + " | ".join(_cell(line[at]) for at in used) + " |\n" for line in lines) + "\n"
    )


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip()).replace("|", "\\|")
