"""Numbers and times as people read and write them on the pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from ri2n_sdn.errors import BadInput

__all__ = [
    "counted",
    "duration_text",
    "number_text",
    "parse_end",
    "parse_names",
    "parse_rate",
    "percent_text",
    "rate_input",
    "rate_text",
    "shortened",
    "time_text",
    "times_hint",
]

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_RATE = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?\s*([kMG]?)(?:bit/s)?\Z")
_DURATION = re.compile(r"\+?(\d{1,9})\s*(s|m|min|h|d)\Z")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_MAX_TIME_S = 253402300799.0
_SHOWN = 64


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 host`, `1,000 hosts`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def number_text(value: object) -> str:
    """A value of a parameter: numbers without needless zeros, other values as they are."""
    if isinstance(value, float):
        return f"{value:,g}" if abs(value) < 1e6 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def rate_text(rate_bps: float | None) -> str:
    """A rate with three digits, as `94.1 Mbit/s`; `-` when it is not known."""
    if rate_bps is None:
        return "-"
    for factor, unit in _UNITS:
        # What would be shown as 1000 of a unit is shown as 1 of the next one.
        if rate_bps >= factor * 0.9995:
            value = rate_bps / factor
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f} {unit}bit/s"
    return f"{rate_bps:.0f} bit/s"


def rate_input(rate_bps: int | None) -> str:
    """A rate as `parse_rate` reads it, without rounding; nothing for None."""
    if rate_bps is None:
        return ""
    for unit in ("G", "M", "k"):
        whole, part = divmod(rate_bps * 1000, _FACTORS[unit])
        if rate_bps >= _FACTORS[unit] and not part:
            return f"{whole / 1000:.3f}".rstrip("0").rstrip(".") + unit
    return str(rate_bps)


def percent_text(part: float | None) -> str:
    """A part of one as a percentage; `-` when it is not known."""
    return "-" if part is None else f"{100 * part:.1f} %"


def time_text(time_s: float | None, unknown: str = "-") -> str:
    """A time since 1970 as `2026-11-27 10:00:05 UTC`; `unknown` for None."""
    if time_s is None:
        return unknown
    whole = timedelta(seconds=int(min(max(time_s, 0.0), _MAX_TIME_S)))
    when = datetime(1970, 1, 1, tzinfo=timezone.utc) + whole
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")


def times_hint() -> str:
    """How a time is given in a form, and what time it is there: clocks elsewhere differ."""
    return f"As +2h or 2026-11-27T10:00; UTC, now {datetime.now(timezone.utc):%H:%M}"


def shortened(name: str, letters: int) -> str:
    """A name of so many letters at most. It loses its middle: names often differ at their ends."""
    if len(name) <= letters:
        return name
    end = (letters - 1) // 2
    return f"{name[: letters - 1 - end]}…{name[len(name) - end :]}"


def duration_text(seconds: float) -> str:
    """A duration with its two largest units, as `2 h 5 min` or `40 s`."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{number} {unit}" for number, unit in parts[:2] if number) or "0 s"


def parse_rate(text: str, where: str) -> int | None:
    """A rate in bit/s from `400M` or `2.5G`; None from an empty text.

    Raises BadInput, which begins with `where`.
    """
    text = text.strip()
    if not text:
        return None
    found = _RATE.match(text) if text.isascii() else None
    if not found:
        raise BadInput(f"{where}: {_shown(text)} must be a number with k, M or G (bit/s), as 400M")
    whole, part, unit = found.groups()
    digits = part or ""
    scale = int("1" + "0" * len(digits))
    rate_bps, rest = divmod(int(whole + digits) * _FACTORS[unit], scale)
    if rest or not rate_bps:
        raise BadInput(f"{where}: {_shown(text)} must be a whole number of bit/s, and not 0")
    return rate_bps


def parse_end(text: str, now_s: float, where: str) -> float | None:
    """A time in seconds since 1970 from `+2h` or `2026-11-27T10:00` (UTC unless an offset follows).

    None from an empty text. Raises BadInput, which begins with `where`.
    """
    text = text.strip()
    if not text:
        return None
    hint = f"{where}: {_shown(text)} must be a time as 2026-11-27T10:00 (UTC), or as +2h"
    if found := _DURATION.match(text) if text.isascii() else None:
        result = now_s + int(found[1]) * _SECONDS[found[2]]
    else:
        try:
            when = datetime.fromisoformat(text.replace("Z", "+00:00"))
            if when.tzinfo is None:
                when = when.replace(tzinfo=timezone.utc)
            result = (when - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds()
        except (ValueError, OverflowError):
            raise BadInput(hint) from None
    if not 0 <= result <= _MAX_TIME_S:
        raise BadInput(hint)
    return result


def parse_names(text: str, where: str) -> list[str]:
    """Names between commas, blanks or line ends, each once.

    Raises BadInput, which begins with `where`, when a name is there twice.
    """
    names = [name for name in re.split(r"[,\s]+", text) if name]
    _once(names, where)
    return names


def _once(names: Iterable[str], where: str) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            raise BadInput(f"{where}: {_shown(name)} is there twice")
        seen.add(name)


def _shown(text: str) -> str:
    """A text of somebody else's, safe for a message: in quotes, and cut when it is long."""
    quoted = ascii(text[: 2 * _SHOWN])
    return quoted if len(quoted) <= _SHOWN else f"{quoted[: _SHOWN - 4]}...{quoted[0]}"
