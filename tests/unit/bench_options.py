# SPDX-License-Identifier: Apache-2.0
"""The options of the command that a bench runs in a guest."""

from __future__ import annotations

from ri2n_lab.bench.guests import Cell

__all__ = ["option"]


def option(cell: Cell, name: str) -> str | None:
    """The value of an option (without its dashes) of a guest's command; None if it is not there."""
    words = cell.arguments
    return words[words.index(f"--{name}") + 1] if f"--{name}" in words else None
