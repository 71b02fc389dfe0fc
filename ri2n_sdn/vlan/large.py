# SPDX-License-Identifier: Apache-2.0
"""Fat trees of any size from four numbers, for plans of networks too large to be written down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from ri2n_sdn.fabric.switches import SwitchGraph, VlanSpec
from ri2n_sdn.fabric.topology import TopologyName
from ri2n_sdn.fabric.yamlfile import StrictModel, load_model
from ri2n_sdn.vlan.trees import Int32Array

__all__ = ["FatTree", "FatTreeSpec", "Generated", "fat_tree", "load_generated"]

MAX_CABLES = 1_000_000
"""Between switches: 131,072 hosts in three levels have a quarter of that, at full bandwidth."""


class FatTreeSpec(StrictModel):
    """A fat tree of equal switches in `stages` levels.

    `down` ports of each switch lead down, `up` lead up. The top switches use as many ports as there
    are parts to join, up to all `down + up`.
    """

    hosts: Annotated[int, Field(ge=2, le=131_072)]
    down: Annotated[int, Field(ge=1, le=1000)]
    up: Annotated[int, Field(ge=1, le=1000)]
    stages: Annotated[int, Field(ge=2, le=8)]
    rate_bps: Annotated[int, Field(gt=0)] = 1_000_000_000

    @model_validator(mode="after")
    def _check(self) -> FatTreeSpec:
        part = self.down ** (self.stages - 1)
        if self.hosts % part:
            raise ValueError(
                f"hosts: {self.hosts} is no multiple of {part}, which is down ** (stages - 1)"
            )
        if not 2 <= self.hosts // part <= self.down + self.up:
            raise ValueError(
                f"hosts: a top switch would join {self.hosts // part} parts of {part} hosts,"
                f" but has 2 to {self.down + self.up} ports"
            )
        parts = [self.hosts // self.down ** (level + 1) for level in range(self.stages - 1)]
        cables = sum(part * self.up ** (level + 1) for level, part in enumerate(parts))
        if cables > MAX_CABLES:
            raise ValueError(f"up: {cables} cables between switches, more than {MAX_CABLES}")
        return self


class FatTree(StrictModel):
    """A topology file with `generate:` in place of switches and hosts."""

    name: TopologyName
    description: str = ""
    generate: FatTreeSpec
    vlans: VlanSpec = VlanSpec()


@dataclass(frozen=True, eq=False)
class Generated:
    """The network of a `FatTree`: host i + 1 has one NIC, on switch `leaf[i]`."""

    name: str
    graph: SwitchGraph
    leaf: Int32Array
    """(hosts,)"""
    vlans: VlanSpec


def load_generated(path: Path) -> Generated:
    """Read a file with `generate:` and build its network.

    BadInput, one line `FILE: KEY.PATH: what is wrong`.
    """
    return fat_tree(load_model(path, FatTree))


def fat_tree(file: FatTree) -> Generated:
    """The network of a file: an extended generalized fat tree.

    Source: S. Oehring and others, "On generalized fat trees", IPPS 1995. Level 0 are the leaves.
    Level l has `parts[l]` disjoint parts, each with `up ** l` copies of its switch: a switch is
    (part, copy). It has cables to the `up` copies (copy + j * up ** l) of the part above that its
    own part belongs to, so that exactly one path leads down from a top switch to any leaf.
    """
    spec = file.generate
    levels = spec.stages
    parts = [spec.hosts // spec.down ** (level + 1) for level in range(levels - 1)] + [1]
    copies = [spec.up**level for level in range(levels)]
    sizes = [part * copy for part, copy in zip(parts, copies, strict=True)]
    first = np.concatenate([[0], np.cumsum(sizes)])
    ends, ports = [], []
    for level in range(levels - 1):
        switch, j = np.divmod(np.arange(sizes[level] * spec.up), spec.up)
        part, copy = switch // copies[level], switch % copies[level]
        # How many parts a switch above joins.
        joined = parts[level] // parts[level + 1]
        above = part // joined * copies[level + 1] + copy + j * copies[level]
        ends.append(np.stack([first[level] + switch, first[level + 1] + above], axis=1))
        ports.append(np.stack([spec.down + 1 + j, 1 + part % joined], axis=1))
    wired = np.concatenate(ends).astype(np.int32)
    # The levels between leaves and tops are `mid`, or `mida`, `midb`, ... where there are several.
    between = ["mid"] if levels == 3 else [f"mid{ascii_lowercase[n]}" for n in range(levels - 2)]
    graph = SwitchGraph(
        tuple(
            f"{name}{number}"
            for name, size in zip(["leaf", *between, "top"], sizes, strict=True)
            for number in range(1, size + 1)
        ),
        wired,
        np.concatenate(ports).astype(np.int32),
        np.full(len(wired), spec.rate_bps, dtype=np.int64),
    )
    leaf = (np.arange(spec.hosts) // spec.down).astype(np.int32)
    return Generated(file.name, graph, leaf, file.vlans)
