"""Texts from switches and hosts, made safe for terminals and logs."""

from __future__ import annotations

__all__ = ["printable"]


def printable(raw: bytes | str, limit: int = 255) -> str:
    """The first `limit` characters. Unprintable ones, as newlines, become escape sequences."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text.rstrip("\0")[:limit])
