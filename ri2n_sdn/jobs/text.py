"""How people write rates, times, services, path tables and ids of jobs, and how they are shown."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterable

from ri2n_sdn.errors import BadInput
from ri2n_sdn.jobs.model import KINDS, PathTable, Service

__all__ = [
    "MAX_RATE_BPS",
    "MAX_TIME_S",
    "host_name",
    "job_id",
    "parse_dscp_table",
    "parse_duration",
    "parse_hosts",
    "parse_paths",
    "parse_rate",
    "parse_service",
    "parse_time",
    "path_name",
    "policy_name",
    "rate_text",
    "service_text",
    "shown",
    "table_text",
    "time_text",
    "user_name",
]

MAX_RATE_BPS = 10**15
"""The highest rate that is accepted. No network has it; it keeps numbers in 64 bits."""

MAX_TIME_S = 253402300799.0
"""The end of the year 9999. Later times are refused, since nothing can print them."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}\Z")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+\\-]{0,63}\$?\Z")
_WORD = r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}"
_PATH_NAME = re.compile(
    rf"(?:vlan:(?P<vlan>[0-9]{{1,4}})|{_WORD}(?:/(?P<of>[0-9]{{1,4}})|:{_WORD})?)\Z"
)
_RATE = re.compile(r"(\d{1,16})(?:\.(\d{1,9}))?([kMG]?)(?:bit/s)?\Z")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_DURATION = re.compile(r"\+?(\d{1,12})(s|m|min|h|d)?\Z")
_SECONDS = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2})?))?(Z|[+-]\d{2}:\d{2})?\Z")
_SHOWN = 64


def shown(text: object) -> str:
    """A text of somebody else's, safe for a message: ASCII, in quotes, and cut when it is long."""
    quoted = ascii(text if isinstance(text, str) else str(text)[: 4 * _SHOWN])
    return quoted if len(quoted) <= _SHOWN else f"{quoted[: _SHOWN - 4]}...{quoted[0]}"


def job_id(text: str, where: str = "id") -> str:
    """The id of a job or reservation. Raises BadInput, which begins with `where`."""
    if not _ID.match(text):
        raise BadInput(
            f"{where}: {shown(text)} must be 1 to 64 letters, digits and ._:- and begin with a "
            "letter or digit"
        )
    return text


def host_name(text: str, where: str = "hosts") -> str:
    """The name of a host. Raises BadInput, which begins with `where`."""
    if not _HOST.match(text):
        raise BadInput(f"{where}: {shown(text)} is not the name of a host")
    return text


def user_name(text: str, where: str = "user") -> str:
    """The name of a user, or a uid in digits. Raises BadInput, which begins with `where`."""
    if not _USER.match(text):
        raise BadInput(f"{where}: {shown(text)} is not the name of a user")
    return text


def policy_name(text: str, where: str = "name") -> str:
    """The name of a named policy. Raises BadInput, which begins with `where`.

    The name of a kind of policies is none, since people would take one for the other.
    """
    if text in KINDS:
        raise BadInput(f"{where}: {text} is a kind of policies: choose another name")
    return job_id(text, where)


def path_name(text: str, where: str = "paths") -> str:
    """A name of paths: NETWORK, NETWORK/VLAN, vlan:VLAN, HOST:NIC or NIC (jobs.lanes).

    Raises BadInput, which begins with `where`.
    """
    found = _PATH_NAME.match(text)
    if not found or (text.startswith("vlan:") and found["vlan"] is None):
        raise BadInput(
            f"{where}: {shown(text)} must be NETWORK, NETWORK/VLAN, vlan:VLAN, HOST:NIC or NIC"
        )
    vlan = found["vlan"] or found["of"]
    if vlan is not None and int(vlan) > 4094:
        raise BadInput(f"{where}: {shown(text)}: a VLAN is at most 4094 (0 is untagged)")
    return text


def parse_paths(text: str, where: str = "--paths") -> tuple[str, ...]:
    """The names in `net1,net2/12`. Raises BadInput, which begins with `where`."""
    return _once((path_name(name.strip(" "), where) for name in text.split(",")), where)


def parse_hosts(text: str, where: str = "--hosts") -> tuple[str, ...]:
    """The names of hosts in `n1,n2`. Raises BadInput, which begins with `where`."""
    return _once((host_name(name.strip(" "), where) for name in text.split(",")), where)


def parse_dscp_table(text: str, where: str = "--table") -> PathTable:
    """The table in `10=net2,net3`. Raises BadInput, which begins with `where`."""
    dscp, equals, names = text.partition("=")
    if not equals:
        raise BadInput(f"{where}: {shown(text)} must be DSCP=NAME,... as in 10=net2")
    if not re.fullmatch(r"[0-9]{1,2}", dscp) or int(dscp) > 63:
        raise BadInput(f"{where}: a DSCP is a number from 0 to 63, not {shown(dscp)}")
    return PathTable(int(dscp), parse_paths(names, where))


def parse_rate(text: str, where: str = "--min-rate") -> int:
    """A rate in bit/s: digits with k, M or G, as `400M` or `2.5G`.

    Raises BadInput, which begins with `where`.
    """
    found = _RATE.match(text) if text.isascii() else None
    if not found:
        raise BadInput(f"{where}: {shown(text)} must be a number with k, M or G (bit/s), as 400M")
    whole, part, unit = found.groups()
    factor = _FACTORS[unit]
    scale = int("1" + "0" * len(part or ""))
    rate_bps, rest = divmod(int(f"{whole}{part or ''}") * factor, scale)
    if rest:
        raise BadInput(f"{where}: {shown(text)} is no whole number of bit/s")
    if not 0 < rate_bps <= MAX_RATE_BPS:
        raise BadInput(f"{where}: {shown(text)} must be from 1 bit/s to {rate_text(MAX_RATE_BPS)}")
    return rate_bps


def parse_service(text: str, where: str = "--service") -> Service:
    """The service in `10.0.0.9/tcp/2049` or `[fd77::9]/tcp/2049`.

    Raises BadInput, which begins with `where`.
    """
    parts = text.split("/")
    if len(parts) != 3:
        raise BadInput(
            f"{where}: {shown(text)} must be ADDRESS/tcp/PORT or ADDRESS/udp/PORT, as "
            "10.0.0.9/tcp/2049 or [fd77::9]/tcp/2049"
        )
    address, proto, port = parts
    bare = address[1:-1] if address[:1] == "[" and address[-1:] == "]" else address
    try:
        if "%" in bare:
            raise ValueError
        plain = ipaddress.ip_address(bare)
    except ValueError:
        raise BadInput(f"{where}: {shown(address)} is not an IP address") from None
    if bare != address and plain.version == 4:
        raise BadInput(f"{where}: {shown(address)}: only an IPv6 address has brackets")
    if plain.is_multicast or plain.is_unspecified:
        raise BadInput(f"{where}: {shown(address)} is no address of a host")
    if proto not in ("tcp", "udp"):
        raise BadInput(f"{where}: the protocol is tcp or udp, not {shown(proto)}")
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise BadInput(f"{where}: a port is a number from 1 to 65535, not {shown(port)}")
    return Service(str(plain), proto, int(port))


def parse_duration(text: str, where: str = "--for") -> float:
    """A duration in seconds: `90`, `90s`, `15m`, `2h` or `3d`, with or without `+`.

    Raises BadInput, which begins with `where`.
    """
    found = _DURATION.match(text) if text.isascii() else None
    if not found or int(found[1]) == 0:
        raise BadInput(f"{where}: {shown(text)} must be a number with s, m, h or d, as 2h")
    return float(int(found[1]) * _SECONDS[found[2]])


def parse_time(text: str, now_s: float, where: str = "--begin") -> float:
    """A time in seconds since 1970.

    * `2026-11-27T10:00`, `2026-11-27`: UTC, unless an offset follows, as `+01:00`.
    * `+2h`: that long after `now_s`.
    * `now`, and digits alone: seconds since 1970.

    Raises BadInput, which begins with `where`.
    """
    if text == "now":
        return now_s
    if text.startswith("+"):
        result = now_s + parse_duration(text, where)
    elif text.isascii() and text.isdigit() and len(text) <= 15:
        result = float(text)
    else:
        result = _date(text, where)
    if not 0 <= result <= MAX_TIME_S:
        raise BadInput(f"{where}: {shown(text)} is not between the years 1970 and 9999")
    return result


def _date(text: str, where: str) -> float:
    import numpy as np

    found = _DATE.match(text) if text.isascii() else None
    try:
        if not found:
            raise ValueError
        day, clock, zone = found.groups()
        seconds = float(np.datetime64(f"{day}T{clock or '00:00'}", "s").astype(np.int64))
    except ValueError:
        raise BadInput(
            f"{where}: {shown(text)} must be a time as 2026-11-27T10:00 (UTC), or as +2h"
        ) from None
    if zone and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:])
        if hours > 14 or minutes > 59:
            raise BadInput(f"{where}: {shown(text)}: there is no offset {zone}")
        offset_s = 3600 * hours + 60 * minutes
        seconds -= offset_s if zone[0] == "+" else -offset_s
    return seconds


def time_text(time_s: float | None) -> str:
    """A time for people, as `2026-11-27T10:00:00Z`; `its end` when it is not known.

    A part of a second counts as a whole one, so that a time at which something ends is not early.
    """
    if time_s is None:
        return "its end"
    import numpy as np

    whole = math.ceil(min(max(time_s, 0.0), MAX_TIME_S))
    return f"{np.datetime64(whole, 's')}Z"


def rate_text(rate_bps: int) -> str:
    """A rate as `parse_rate` reads it, without rounding: `400M`, `2.5G`, `33333.333k`, `64`."""
    for unit in ("G", "M", "k"):
        whole, part = divmod(rate_bps * 1000, _FACTORS[unit])
        if rate_bps >= _FACTORS[unit] and not part:
            return f"{whole / 1000:.3f}".rstrip("0").rstrip(".") + unit
    return str(rate_bps)


def service_text(service: Service) -> str:
    """A service as `parse_service` reads it."""
    address = f"[{service.address}]" if ":" in service.address else service.address
    return f"{address}/{service.proto}/{service.port}"


def table_text(table: PathTable) -> str:
    """A table as `parse_dscp_table` reads it; the default table has its names alone."""
    names = ",".join(table.paths)
    return names if table.dscp is None else f"{table.dscp}={names}"


def _once(names: Iterable[str], where: str) -> tuple[str, ...]:
    result: list[str] = []
    for name in names:
        if name in result:
            raise BadInput(f"{where}: {name} is there twice")
        result.append(name)
    return tuple(result)
