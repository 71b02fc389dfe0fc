# SPDX-License-Identifier: Apache-2.0
"""JSON as text that is short, and of which a difference is easy to read."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["pretty"]

WIDTH = 200
"""A path of a pair fits into a line of this length."""


def pretty(value: Any, indent: int = 0) -> str:
    """The document with its keys in order; whatever fits is on one line."""
    line = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(line) + indent <= WIDTH or not value or not isinstance(value, dict | list):
        return line
    before = " " * (indent + 1)
    if isinstance(value, dict):
        inner = [
            f"{before}{json.dumps(key, ensure_ascii=False)}: {pretty(value[key], indent + 1)}"
            for key in sorted(value)
        ]
        begin, end = "{}"
    else:
        inner = [f"{before}{pretty(each, indent + 1)}" for each in value]
        begin, end = "[]"
    return "\n".join((begin, ",\n".join(inner), " " * indent + end))
