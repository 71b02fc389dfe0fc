# SPDX-License-Identifier: Apache-2.0
"""What the writers of all vendors share: the vendor, blocks of lines, lists of VLANs, safe text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from ri2n_sdn.contract.wording import runs
from ri2n_sdn.vlan.switch_ports import SwitchPort, SwitchPorts

__all__ = [
    "MAX_LINE",
    "Names",
    "Vendor",
    "listed",
    "ranges",
    "safe",
    "seconds",
    "text_of",
    "wrapped",
]

Names: TypeAlias = Mapping[int, str]
"""What the switch calls each of its ports, by number."""

MAX_LINE = 80
"""Characters of a line with a list of VLANs, at most.

Lines wrap where a terminal wraps them, and well before switches stop reading.
"""

MAX_INDENT = 3
"""The characters that may stand before what `wrapped` yields, at most."""


@dataclass(frozen=True)
class Vendor:
    """A kind of switch, and how its configuration is written."""

    name: str
    extension: str
    """The extension of its files' names."""
    text: Callable[[SwitchPorts, Names], str]
    """Writes the file of a switch."""
    port_name: Callable[[int], str]
    """What the vendor calls the port of that number."""
    is_name: re.Pattern[str]
    """The names that ports may have."""
    ageing_s: tuple[int, int]
    """The shortest and the longest time that an address can stay."""
    reserved: Mapping[int, str] = field(default_factory=dict)
    """The VLAN IDs that cannot be used, and why."""
    mac_table: int | None = None
    """The most addresses that the configuration can ask for; None when it does not say."""
    script: bool = False
    """Whether the file is a script that makes a bridge of the switch's name."""


def text_of(
    header: str,
    head: Callable[[SwitchPorts], Iterable[str]],
    block: Callable[[SwitchPorts, SwitchPort, str], Iterable[str]],
    *end: str,
) -> Callable[[SwitchPorts, Names], str]:
    """A writer of files: `header`, the lines `head`, a `block` for each port, the lines `end`.

    `header` is a comment with `{name}` for the switch. `block` is given the switch, the port, and
    the port's name.
    """

    def text(switch: SwitchPorts, names: Names) -> str:
        blocks = (block(switch, port, names[port.number]) for port in switch.ports)
        first = header.format(name=switch.name)
        return "\n".join([first, *head(switch), *chain.from_iterable(blocks), *end, ""])

    return text


def ranges(ids: Iterable[int]) -> list[str]:
    """IDs as switches list them, rising: `101-104`, `106`; two in a row are `101-102`."""
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs(ids)]


def listed(ids: Iterable[int]) -> str:
    """IDs as one word of `ranges`, such as `101-104,106`."""
    return ",".join(ranges(ids))


def wrapped(first: str, more: str, ids: Iterable[int], after: str = "") -> Iterator[str]:
    """Lines that together list the IDs, the first line after `first`, further ones after `more`.

    Each ends with `after`. Indented by up to MAX_INDENT, they are no longer than MAX_LINE.
    """
    start, line = first, ""
    for part in ranges(ids):
        longer = f"{line},{part}" if line else part
        if line and len(start) + len(longer) + len(after) > MAX_LINE - MAX_INDENT:
            yield start + line + after
            start, longer = more, part
        line = longer
    if line:
        yield start + line + after


def safe(text: str) -> str:
    """`text` with `_` for every character that may mean something to a switch or a shell."""
    return re.sub(r"[^A-Za-z0-9 ._/-]", "_", text)


def seconds(switch: SwitchPorts, least: int) -> int:
    """The ageing time to set, in whole seconds: what was asked for, or the vendor's `least`."""
    return max(least, math.ceil(switch.ageing_s))
