"""The switches between hosts and the cables between switches:

as written in YAML, and as a graph of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, field_validator

from ri2n_sdn.fabric.yamlfile import StrictModel

__all__ = [
    "FIRST_VLAN",
    "TABLES",
    "Cable",
    "LinkSpec",
    "SwitchGraph",
    "SwitchName",
    "SwitchSpec",
    "VlanSpec",
    "switch_graph",
]

FIRST_VLAN = 101

TABLES = ("cyclic", "spread", "adaptive", "profile")
"""Path tables by name (ri2n_sdn.vlan)."""

VlanId = Annotated[int, Field(ge=1, le=4094)]

SwitchName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]{0,7}$")]


class LinkSpec(StrictModel):
    """One end of a cable to another switch: the switch `to` which it goes, the own `port` it is
    plugged into.

    The other switch has the other end among its own links. Where several cables join two switches,
    the first end on one side belongs to the first on the other, and so on.
    """

    to: str
    port: Annotated[int, Field(ge=1, le=1023)]
    rate_bps: Annotated[int, Field(gt=0)]


class SwitchSpec(StrictModel):
    """A switch.

    Each of its ports queues `port_buffer_bytes`, then drops its oldest or newest frame.
    """

    port_buffer_bytes: Annotated[int, Field(ge=3_000)] = 131_072
    drop: Literal["oldest", "newest"] = "oldest"
    links: Annotated[tuple[LinkSpec, ...], Field(strict=False)] = ()

    @field_validator("links", mode="after")
    @classmethod
    def _ports_once_each(cls, value: tuple[LinkSpec, ...]) -> tuple[LinkSpec, ...]:
        ports = [link.port for link in value]
        for index, port in enumerate(ports):
            if port in ports[:index]:
                raise ValueError(f"entry {index}: port {port} is used twice")
        return value


class VlanSpec(StrictModel):
    """How the switches' spanning trees are used: one VLAN ID for each.

    IDs are `ids`, or counted up from `first`; no more than `limit`. `table` says which of its VLANs
    a pair uses, of at most `per_pair`. Switches forget addresses after `ageing_s` and remember
    `mac_table` pairs of (address, VLAN).
    """

    first: VlanId = FIRST_VLAN
    ids: Annotated[tuple[VlanId, ...], Field(strict=False)] | None = None
    limit: Annotated[int, Field(ge=1, le=4094)] = 256
    table: Literal["cyclic", "spread", "adaptive", "profile"] = "adaptive"
    per_pair: Annotated[int, Field(ge=1, le=64)] = 4
    profile: str | None = None
    ageing_s: Annotated[float, Field(ge=3, le=86_400, strict=False)] = 300.0
    mac_table: Annotated[int, Field(ge=1)] = 8192

    @field_validator("ids", mode="after")
    @classmethod
    def _once_each(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        for index, number in enumerate(value or ()):
            if value is not None and number in value[:index]:
                raise ValueError(f"entry {index}: {number} is there twice")
        return value

    def numbers(self, count: int) -> tuple[int, ...]:
        """The IDs of `count` trees; ValueError when there are fewer IDs than that."""
        if self.ids is not None:
            if len(self.ids) < count:
                raise ValueError(f"vlans.ids: {len(self.ids)} VLAN IDs for {count} trees")
            return self.ids[:count]
        if self.first + count - 1 > 4094:
            raise ValueError(f"vlans.first: {count} VLAN IDs from {self.first} on would pass 4094")
        return tuple(range(self.first, self.first + count))


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable between two switches, by name; `a` comes before `b` in the graph's order."""

    number: int
    a: str
    a_port: int
    b: str
    b_port: int
    rate_bps: int


@dataclass(frozen=True, eq=False)
class SwitchGraph:
    """S switches and C cables.

    Directed link 2c leads from ends[c, 0] to ends[c, 1], link 2c + 1 back.
    """

    names: tuple[str, ...]
    ends: NDArray[np.int32]  # (C, 2) switches
    ports: NDArray[np.int32]  # (C, 2) the port at each end
    rate_bps: NDArray[np.int64]  # (C,)

    @cached_property
    def index(self) -> dict[str, int]:
        """Switches' positions in `names`."""
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def neighbours(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Of each switch: (other switch, cable), in order of cables."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.names]
        for cable, (a, b) in enumerate(self.ends.tolist()):
            found[a].append((b, cable))
            found[b].append((a, cable))
        return tuple(map(tuple, found))

    @cached_property
    def component(self) -> NDArray[np.int32]:
        """(S,) the number of the connected set that each switch belongs to, counted from 0 in
        order of switches.
        """
        result = np.full(len(self.names), -1, dtype=np.int32)
        number = 0
        for start in range(len(self.names)):
            if result[start] >= 0:
                continue
            result[start] = number
            waiting = [start]
            while waiting:
                for other, _ in self.neighbours[waiting.pop()]:
                    if result[other] < 0:
                        result[other] = number
                        waiting.append(other)
            number += 1
        return result

    def cables(self) -> Iterator[Cable]:
        """All cables, in order of their numbers."""
        for number, ((a, b), (a_port, b_port), rate) in enumerate(
            zip(self.ends.tolist(), self.ports.tolist(), self.rate_bps.tolist(), strict=True)
        ):
            yield Cable(number, self.names[a], a_port, self.names[b], b_port, rate)

    def link_name(self, link: int) -> str:
        """A directed link by the switch and the port that it leaves from, as in `leaf1/17>`."""
        cable, back = divmod(link, 2)
        return f"{self.names[self.ends[cable, back]]}/{self.ports[cable, back]}>"


def switch_graph(switches: Mapping[str, SwitchSpec]) -> SwitchGraph:
    """The graph of what was written.

    ValueError, with the key's path, for what does not fit together.
    """
    names = tuple(switches)
    index = {name: position for position, name in enumerate(names)}
    ends: list[tuple[int, int]] = []
    ports: list[tuple[int, int]] = []
    rates: list[int] = []
    to_each = {name: _by_switch(name, spec, index) for name, spec in switches.items()}
    for one, theirs in to_each.items():
        for other, mine in theirs.items():
            back = to_each[other].get(one, [])
            if len(back) != len(mine):
                where, link = (
                    (one, mine[len(back)]) if len(back) < len(mine) else (other, back[len(mine)])
                )
                far = other if where == one else one
                raise ValueError(
                    f"switches.{where}.links: port {link.port} is wired to {far}, but {far} has no "
                    f"such link to {where}"
                )
            if index[one] > index[other]:
                continue
            for near, far_end in zip(mine, back, strict=True):
                if near.rate_bps != far_end.rate_bps:
                    raise ValueError(
                        f"switches.{one}.links: port {near.port} to {other} has {near.rate_bps} "
                        "bit/s,"
                        f" the other end {far_end.rate_bps}"
                    )
                ends.append((index[one], index[other]))
                ports.append((near.port, far_end.port))
                rates.append(near.rate_bps)
    return SwitchGraph(
        names,
        np.array(ends, dtype=np.int32).reshape(-1, 2),
        np.array(ports, dtype=np.int32).reshape(-1, 2),
        np.array(rates, dtype=np.int64),
    )


def _by_switch(name: str, spec: SwitchSpec, index: Mapping[str, int]) -> dict[str, list[LinkSpec]]:
    found: dict[str, list[LinkSpec]] = {}
    for position, link in enumerate(spec.links):
        where = f"switches.{name}.links[{position}].to"
        if link.to not in index:
            raise ValueError(
                f"{where}: no switch {link.to!r} (there are: {', '.join(list(index)[:8])})"
            )
        if link.to == name:
            raise ValueError(f"{where}: a switch cannot be wired to itself")
        found.setdefault(link.to, []).append(link)
    return found
