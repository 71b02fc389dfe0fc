"""What the writers of all vendors share:

what a vendor is, lists of VLANs, and text that is safe in every format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ri2n_sdn.vlan.switch_ports import SwitchPorts

__all__ = ["LINE", "Names", "Vendor", "listed", "ranges", "safe", "seconds", "wrapped"]

Names: TypeAlias = Mapping[int, str]
"""Of each port of a switch, by number, what the switch calls it."""

LINE = 80
"""Characters of a line with a list of VLANs:

they wrap where a terminal does, and well before switches stop reading.
"""

INDENT = 3  # of which so many may stand before what `wrapped` yields


@dataclass(frozen=True)
class Vendor:
    """A kind of switch: `text` writes a switch's file, `port_name` says what it calls a port,
    `is_name` what it may.

    `reserved` says why an ID cannot be used. Addresses stay for at least and at most `ageing_s`
    seconds and there are at most `mac_table` of them, where the configuration says how many.
    """

    name: str
    extension: str
    text: Callable[[SwitchPorts, Names], str]
    port_name: Callable[[int], str]
    is_name: re.Pattern[str]
    ageing_s: tuple[int, int]
    reserved: Mapping[int, str] = field(default_factory=dict)
    mac_table: int | None = None
    script: bool = False


def ranges(ids: Iterable[int]) -> list[str]:
    """IDs as switches list them: `101-104`, `106`; rising, two in a row are `101-102`."""
    found: list[list[int]] = []
    for number in sorted(ids):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]


def listed(ids: Iterable[int]) -> str:
    """`ranges` in one word: `101-104,106`."""
    return ",".join(ranges(ids))


def wrapped(first: str, more: str, ids: Iterable[int], after: str = "") -> Iterator[str]:
    """Lines that together list the IDs, the first after `first`, others after `more`.

    Indented no longer than LINE.
    """
    start, line = first, ""
    for part in ranges(ids):
        longer = f"{line},{part}" if line else part
        if line and len(start) + len(longer) + len(after) > LINE - INDENT:
            yield start + line + after
            start, longer = more, part
        line = longer
    if line:
        yield start + line + after


def safe(text: str) -> str:
    """`text` without anything that a switch or a shell could take for more than text."""
    return re.sub(r"[^A-Za-z0-9 ._/-]", "_", text)


def seconds(switch: SwitchPorts, least: int) -> int:
    """The ageing time that is set:

    whole seconds, no fewer than asked for or than the `least` of the vendor.
    """
    return max(least, math.ceil(switch.ageing_s))
