"""Texts of others as they may go to terminals and logs."""

from __future__ import annotations

__all__ = ["printable"]


def printable(raw: bytes | str, limit: int = 255) -> str:
    """Text of a switch: escapes, newlines and the like are spelled out."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text.rstrip("\0")[:limit])
