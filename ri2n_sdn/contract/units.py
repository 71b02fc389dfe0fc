# SPDX-License-Identifier: Apache-2.0
"""Rates, times, durations and counts: how people write them, and how they are shown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from ri2n_sdn.contract.limits import MAX_RATE_BPS, MAX_TIME_S
from ri2n_sdn.contract.printing import shown
from ri2n_sdn.contract.refusals import refusal

__all__ = [
    "DURATION",
    "FACTORS",
    "RATE",
    "SECONDS",
    "age_text",
    "ago_text",
    "counted",
    "duration_text",
    "exact_rate",
    "number_text",
    "page_rate",
    "page_time",
    "parse_duration",
    "parse_rate",
    "parse_time",
    "percent_text",
    "short_rate",
    "table_rate",
    "time_text",
]

RATE = r"([0-9]{1,16})(\.([0-9]{1,9}))?([kMG]?)(bit/s)?"
"""A rate; its groups are whole digits, digits behind the point (the third), and the letter."""

DURATION = r"\+?([0-9]{1,12})(s|m|min|h|d)?"
"""A duration. This pattern and that of rates are read by Python and bash alike."""

FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
"""What the letter of a rate stands for."""

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
"""What the letters of a duration stand for."""

_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_SHOWN_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def parse_rate(text: str, where: str = "--min-rate") -> int:
    """A rate in bit/s: digits with k, M or G, as `400M` or `2.5G`.

    Raises BadInput, which begins with `where`.
    """
    found = re.fullmatch(RATE, text)
    if not found:
        raise refusal("rate_form", where, value=shown(text))
    whole, part, unit = found[1], found[3] or "", found[4]
    rate_bps, rest = divmod(int(whole + part) * FACTORS[unit], int("1" + "0" * len(part)))
    if rest:
        raise refusal("rate_not_whole", where, value=shown(text))
    if not 0 < rate_bps <= MAX_RATE_BPS:
        raise refusal("rate_too_high", where, value=shown(text), most=exact_rate(MAX_RATE_BPS))
    return rate_bps


def exact_rate(rate_bps: int) -> str:
    """A rate as `parse_rate` reads it, without rounding: `400M`, `2.5G`, `33333.333k`, `64`."""
    for unit in ("G", "M", "k"):
        whole, part = divmod(rate_bps * 1000, FACTORS[unit])
        if rate_bps >= FACTORS[unit] and not part:
            return f"{whole / 1000:.3f}".rstrip("0").rstrip(".") + unit
    return str(rate_bps)


def page_rate(rate_bps: float | None) -> str:
    """A rate for pages, as `94.1 Mbit/s` or `1.00 Gbit/s`; `-` when it is not known."""
    if rate_bps is None:
        return "-"
    for factor, unit in _SHOWN_UNITS:
        # What would be shown as 1000 of a unit is shown as 1 of the next one.
        if rate_bps >= factor * 0.9995:
            value = rate_bps / factor
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f} {unit}bit/s"
    return f"{rate_bps:.0f} bit/s"


def table_rate(rate_bps: float | None) -> str:
    """A rate for tables of commands, as `95.6 Mbit/s`; `-` when it is unknown.

    In a column, the digits behind the point stand below each other.
    """
    if rate_bps is None:
        return "-"
    for factor, unit in _SHOWN_UNITS[1:]:
        if rate_bps >= factor:
            return f"{rate_bps / factor:.1f} {unit}bit/s"
    return f"{rate_bps:.0f} bit/s"


def short_rate(rate_bps: float | None) -> str:
    """A rate in bit/s in at most six characters, as `95.6M`; `-` when it is unknown."""
    if rate_bps is None:
        return "-"
    for factor, unit in _SHOWN_UNITS:
        # Half a unit of the last digit is rounded up, so 999.96 M is 1.0 G.
        if rate_bps >= factor * 0.99995:
            return f"{rate_bps / factor:.1f}{unit}"
    return f"{rate_bps:.0f}"


def parse_duration(text: str, where: str = "--for") -> float:
    """A duration in seconds: `90`, `90s`, `15m`, `2h` or `3d`, with or without `+`.

    Raises BadInput, which begins with `where`.
    """
    found = re.fullmatch(DURATION, text)
    if not found or int(found[1]) == 0:
        raise refusal("duration_form", where, value=shown(text))
    return float(int(found[1]) * SECONDS[found[2] or "s"])


def parse_time(text: str, now_s: float, where: str = "--begin") -> float:
    """A time in seconds since 1970.

    * `2026-11-27T10:00`, `2026-11-27`: UTC, unless an offset follows, as `+01:00`.
    * `+2h`, `2h`: that long after `now_s`.
    * `now`, and digits alone: seconds since 1970.

    Raises BadInput, which begins with `where`.
    """
    if text == "now":
        return now_s
    if text.isascii() and text.isdigit() and len(text) <= 15:
        result = float(text)
    elif text.startswith("+") or re.fullmatch(DURATION, text):
        result = now_s + parse_duration(text, where)
    else:
        result = _date(text, where)
    if not 0 <= result <= MAX_TIME_S:
        raise refusal("time_out_of_range", where, value=shown(text))
    return result


def _date(text: str, where: str) -> float:
    found = _DATE.fullmatch(text)
    try:
        if not found:
            raise ValueError
        day, clock, zone = found.groups()
        when = datetime.fromisoformat(f"{day}T{clock or '00:00'}+00:00")
    except ValueError:
        raise refusal("time_form", where, value=shown(text)) from None
    seconds = (when - _EPOCH).total_seconds()
    if zone and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:])
        if hours > 14 or minutes > 59:
            raise refusal("time_offset", where, value=shown(text), zone=zone)
        offset_s = 3600 * hours + 60 * minutes
        seconds -= offset_s if zone[0] == "+" else -offset_s
    return seconds


def time_text(time_s: float | None) -> str:
    """A time as `parse_time` reads it, as `2026-11-27T10:00:00Z`; `its end` when it is not known.

    A part of a second counts as a whole one, so that a time at which something ends is not early.
    """
    if time_s is None:
        return "its end"
    return f"{_date_at(time_s, math.ceil):%Y-%m-%dT%H:%M:%SZ}"


def page_time(time_s: float | None, unknown: str = "-") -> str:
    """A time for pages, as `2026-11-27 10:00:05 UTC`; `unknown` for None."""
    return unknown if time_s is None else f"{_date_at(time_s, int):%Y-%m-%d %H:%M:%S UTC}"


def _date_at(time_s: float, whole: Callable[[float], int]) -> datetime:
    """The date of the nearest time that can be printed; `whole` rounds it."""
    return _EPOCH + timedelta(seconds=whole(min(max(time_s, 0.0), MAX_TIME_S)))


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


def ago_text(age_s: float) -> str:
    """How long ago something was, with its largest unit: `now`, `5 s ago`, `2 min ago`."""
    whole = int(age_s)
    for length_s, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if whole >= length_s:
            return f"{whole // length_s:,} {unit} ago"
    return "now"


def age_text(time_s: float | None, now_s: float) -> str:
    """How old something of a Unix time is, as `0.4 s old`; `not read yet` for None."""
    if time_s is None:
        return "not read yet"
    age_s = max(0.0, now_s - time_s)
    return f"{age_s:.1f} s old" if age_s < 10.0 else f"{duration_text(age_s)} old"


def percent_text(part: float | None) -> str:
    """A part of one as a percentage; `-` when it is not known."""
    return "-" if part is None else f"{100 * part:.1f} %"


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
