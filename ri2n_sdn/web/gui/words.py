# SPDX-License-Identifier: Apache-2.0
"""What people type into the fields of the pages, and what is shown there."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from urllib.parse import urlencode

from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal
from ri2n_sdn.contract.units import exact_rate, parse_rate, parse_time

__all__ = [
    "address",
    "has_words",
    "network_text",
    "parse_names",
    "rate_input",
    "rate_of_field",
    "sentence",
    "shortened",
    "time_of_field",
    "times_hint",
]


def has_words(search: str, text: str) -> bool:
    """Whether a text has all words of a search in it, whatever their case."""
    text = text.casefold()
    return all(word in text for word in search.casefold().split())


def address(path: str, **query: str) -> str:
    """The address of a page that shows what the query names."""
    return f"{path}?{urlencode(query)}"


def network_text(network: str | None, vlan: int | None) -> str:
    """A network, `-` when it is not known, with the VLAN of a tree in it."""
    return (network or "-") + (f", VLAN {vlan}" if vlan else "")


def rate_input(rate_bps: int | None) -> str:
    """A rate as `parse_rate` reads it, without rounding; nothing for None."""
    return "" if rate_bps is None else exact_rate(rate_bps)


def sentence(words: str) -> str:
    """Words as a sentence, with a capital letter and a full stop; nothing of nothing."""
    return words[:1].upper() + words[1:] + ("" if words[-1:] in ".!?" else ".")


def times_hint() -> str:
    """How a time is given in a form, and what time it is there: clocks elsewhere differ."""
    return f"As +2h or 2026-11-27T10:00; UTC, now {datetime.now(timezone.utc):%H:%M}"


def shortened(name: str, letters: int) -> str:
    """A name of so many letters at most. It loses its middle: names often differ at their ends."""
    if len(name) <= letters:
        return name
    end = (letters - 1) // 2
    return f"{name[: letters - 1 - end]}…{name[len(name) - end :]}"


def rate_of_field(text: str, where: str) -> int | None:
    """A rate in bit/s from `400M` or `2.5 G`; None from an empty text.

    Raises BadInput, which begins with `where`.
    """
    text = _close(text)
    return parse_rate(text, where) if text else None


def time_of_field(text: str, now_s: float, where: str) -> float | None:
    """A time in seconds since 1970 from `+2h`, `3 d` or `2026-11-27T10:00`; None from no text.

    Raises BadInput, which begins with `where`.
    """
    text = _close(text)
    return parse_time(text, now_s, where) if text else None


def _close(text: str) -> str:
    """What a person has typed, without blanks around it, and between a number and its unit."""
    return re.sub(r"(?<=[0-9])\s+(?=[A-Za-z])", "", text.strip())


def parse_names(text: str, where: str) -> list[str]:
    """Names between commas, blanks or line ends, each once.

    Raises BadInput, which begins with `where`, when a name is there twice.
    """
    names = [name for name in re.split(r"[,\s]+", text) if name]
    seen = set[str]()
    for name in names:
        if name in seen:
            raise refusal("twice", where, what=shown(name))
        seen.add(name)
    return names
