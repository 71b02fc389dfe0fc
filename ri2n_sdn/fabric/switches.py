# SPDX-License-Identifier: Apache-2.0
"""The switches and the cables between them, as written in YAML and as a graph of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints, field_validator

from ri2n_sdn.contract.choices import PathTables
from ri2n_sdn.contract.limits import MAX_VLAN
from ri2n_sdn.fabric.yamlfile import StrictModel, all_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Cable",
    "LinkSpec",
    "SwitchGraph",
    "SwitchName",
    "SwitchSpec",
    "VlanSpec",
    "cable_errors",
    "switch_graph",
]

VlanId = Annotated[int, Field(ge=1, le=MAX_VLAN)]

_Cable: TypeAlias = tuple[tuple[int, int], tuple[int, int], int]
"""The positions of both switches, their ports, and the rate in bit/s."""

SwitchName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]{0,7}$")]


class LinkSpec(StrictModel):
    """One end of a cable to another switch.

    `to` is the other switch, `port` the port of this switch, `rate_bps` the rate in bit/s in each
    direction. The other switch has the other end among its own links. Where several cables join two
    switches, the first end on one side belongs to the first end on the other side, and so on.
    """

    to: str
    port: Annotated[int, Field(ge=1, le=1023)]
    rate_bps: Annotated[int, Field(gt=0)]


class SwitchSpec(StrictModel):
    """A switch, and the cables from it to other switches.

    Each of its ports has a queue of `port_buffer_bytes`. When the queue is full, the port drops the
    oldest or the newest frame.
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
    """How the spanning trees of the switches are used. Each tree has a VLAN ID.

    The IDs are `ids`, or are counted up from `first`. There are at most `limit`. The path table
    `table` says which VLANs a pair uses, at most `per_pair`. Switches forget addresses after
    `ageing_s`, and store up to `mac_table` pairs of (address, VLAN).
    """

    first: VlanId = 101
    ids: Annotated[tuple[VlanId, ...], Field(strict=False)] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_VLAN)] = 256
    table: PathTables = "adaptive"
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
        """The VLAN IDs of `count` trees. Raises ValueError when there are fewer IDs than that."""
        if self.ids is not None:
            if len(self.ids) < count:
                raise ValueError(f"vlans.ids: {len(self.ids)} VLAN IDs for {count} trees")
            return self.ids[:count]
        if self.first + count - 1 > MAX_VLAN:
            raise ValueError(
                f"vlans.first: {count} VLAN IDs counted from {self.first} would exceed {MAX_VLAN}"
            )
        return tuple(range(self.first, self.first + count))


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable between two switches, by their names; `a` comes before `b` in the graph's order."""

    number: int
    a: str
    a_port: int
    b: str
    b_port: int
    rate_bps: int


@dataclass(frozen=True, eq=False)
class SwitchGraph:
    """S switches and C cables as arrays.

    Link 2c leads from switch ends[c, 0] to switch ends[c, 1], and link 2c + 1 leads back.
    """

    names: tuple[str, ...]
    ends: NDArray[np.int32]  # (C, 2) the switches at both ends
    ports: NDArray[np.int32]  # (C, 2) their ports
    rate_bps: NDArray[np.int64]  # (C,) in each direction

    @cached_property
    def index(self) -> dict[str, int]:
        """The position of each switch in `names`."""
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def neighbours(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The cables of each switch as (other switch, cable), in order of cables."""
        of_switch: list[list[tuple[int, int]]] = [[] for _ in self.names]
        for cable, (a, b) in enumerate(self.ends.tolist()):
            of_switch[a].append((b, cable))
            of_switch[b].append((a, cable))
        return tuple(map(tuple, of_switch))

    @cached_property
    def component(self) -> NDArray[np.int32]:
        """The number of the connected set that each switch (S,) belongs to.

        The sets are counted from 0, in order of switches.
        """
        import numpy as np

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
        """The name of a link: the switch and the port that it leaves from, as in `leaf1/17>`."""
        cable, back = divmod(link, 2)
        return f"{self.names[self.ends[cable, back]]}/{self.ports[cable, back]}>"


def switch_graph(switches: Mapping[str, SwitchSpec]) -> SwitchGraph:
    """The graph of the switches in a YAML file.

    Raises ValueError, which names the key's path, when the two ends of a cable do not fit.
    """
    # Commands that read a file without cables must not wait for numpy.
    import numpy as np

    wrong: list[str] = []
    cables = list(_cables(switches, wrong))
    all_of(wrong)
    return SwitchGraph(
        tuple(switches),
        np.array([ends for ends, _, _ in cables], dtype=np.int32).reshape(-1, 2),
        np.array([ports for _, ports, _ in cables], dtype=np.int32).reshape(-1, 2),
        np.array([rate_bps for _, _, rate_bps in cables], dtype=np.int64),
    )


def cable_errors(switches: Mapping[str, SwitchSpec]) -> list[str]:
    """What is wrong with the cables between switches, each with the key's path."""
    wrong: list[str] = []
    for _ in _cables(switches, wrong):
        pass
    return wrong


def _cables(switches: Mapping[str, SwitchSpec], wrong: list[str]) -> Iterator[_Cable]:
    """The cables that are right. The errors are added to `wrong`, those of a pair perhaps twice."""
    index = {name: position for position, name in enumerate(switches)}
    ends_of = {name: _links_by_switch(name, spec, index, wrong) for name, spec in switches.items()}
    for one, links_to in ends_of.items():
        for other, near_ends in links_to.items():
            far_ends = ends_of[other].get(one, [])
            if len(far_ends) != len(near_ends):
                if len(far_ends) < len(near_ends):
                    where, far, link = one, other, near_ends[len(far_ends)]
                else:
                    where, far, link = other, one, far_ends[len(near_ends)]
                wrong.append(
                    f"switches.{where}.links: port {link.port} is wired to {far}, but {far} has no "
                    f"such link to {where}"
                )
                continue
            if index[one] > index[other]:
                continue
            for near, far_end in zip(near_ends, far_ends, strict=True):
                if near.rate_bps != far_end.rate_bps:
                    wrong.append(
                        f"switches.{one}.links: port {near.port} to {other} has {near.rate_bps} "
                        f"bit/s, but the other end has {far_end.rate_bps}"
                    )
                yield (index[one], index[other]), (near.port, far_end.port), near.rate_bps


def _links_by_switch(
    name: str, spec: SwitchSpec, index: Mapping[str, int], wrong: list[str]
) -> dict[str, list[LinkSpec]]:
    """The links of a switch by the switch they lead to. The errors are added to `wrong`."""
    links: dict[str, list[LinkSpec]] = {}
    for position, link in enumerate(spec.links):
        where = f"switches.{name}.links[{position}].to"
        if link.to not in index:
            wrong.append(
                f"{where}: no switch {link.to!r} (there are: {', '.join(list(index)[:8])})"
            )
        elif link.to == name:
            wrong.append(f"{where}: a switch cannot be wired to itself")
        else:
            links.setdefault(link.to, []).append(link)
    return links
