# SPDX-License-Identifier: Apache-2.0
"""Texts of somebody else's, made safe for messages, terminals and logs."""

from __future__ import annotations

__all__ = ["cut", "one_line", "printable", "shown"]

_SHOWN = 64


def shown(text: object) -> str:
    """A text of somebody else's, safe for a message: ASCII, in quotes, and cut when it is long."""
    quoted = ascii(text if isinstance(text, str) else str(text)[: 4 * _SHOWN])
    return quoted if len(quoted) <= _SHOWN else f"{quoted[: _SHOWN - 4]}...{quoted[0]}"


def printable(raw: bytes | str, limit: int | None = 255) -> str:
    """The first `limit` characters, or all. Unprintable ones, as newlines, become escapes.

    The zero bytes with which OpenFlow fills its fields up are no part of a text.
    """
    text = raw.decode("utf-8", "replace").rstrip("\0") if isinstance(raw, bytes) else raw
    text = text[:limit]
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def one_line(text: str) -> str:
    """A text with single blanks in place of all that is blank or not printable."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def cut(text: str, most: int) -> str:
    """A text of `most` characters at most, with dots at the end of one that was longer."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
