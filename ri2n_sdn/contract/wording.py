# SPDX-License-Identifier: Apache-2.0
"""How a sentence is made of a template and its arguments. Sentences are for people alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Args", "Subject", "fill", "runs", "vlan_text"]

Args = Mapping[str, Any]
"""What a template needs, by name: JSON values, so that programs read them without the sentence."""

Subject = Mapping[str, str]
"""What something is about, by kind: `{"host": "n1"}`, `{"host": "n1", "nic": "eth0"}`,
`{"job": "17"}`, `{"user": "alice"}`. Empty where it is about the whole cluster."""


class _List(list[Any]):
    """A list in a sentence: `{x}` joins it by commas, `{x:and}` by "and"; `{x:vlan}` are VLANs."""

    def __format__(self, spec: str) -> str:
        if spec == "vlan":
            return vlan_text(self)
        return (f" {spec} " if spec else ", ").join(map(str, self))


def fill(template: str, args: Args) -> str:
    """The sentence that a template of `str.format` makes of its arguments; lists joined by commas.

    Raises KeyError when an argument of the template is missing.
    """
    return template.format_map(
        {
            name: _List(value) if isinstance(value, list | tuple) else value
            for name, value in args.items()
        }
    )


def vlan_text(vlans: Iterable[int]) -> str:
    """VLAN IDs for people: `VLAN 101`, `VLANs 101, 103`, or `VLANs 101 to 104, 107`."""
    found = runs(vlans)
    parts: list[str] = []
    for first, last in found:
        parts += [f"{first} to {last}"] if last > first + 1 else map(str, range(first, last + 1))
    only_one = found[0][0] == found[-1][1]
    return f"VLAN{'' if only_one else 's'} {', '.join(parts)}"


def runs(ids: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of the IDs of each row without a gap, rising."""
    found: list[tuple[int, int]] = []
    for number in sorted(ids):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
