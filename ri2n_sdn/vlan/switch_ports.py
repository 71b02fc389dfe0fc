# SPDX-License-Identifier: Apache-2.0
"""What every port of every switch has to carry, for switches of any vendor.

Configurations are written from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ri2n_sdn.fabric.topology import Topology
    from ri2n_sdn.vlan.trees import Trees

__all__ = ["SwitchPort", "SwitchPorts", "switch_ports"]


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """A port with something plugged in: a host's NIC, or a cable to a switch.

    `plugged` says what, as in `n1:nic0` or `up1 port 3`. `native` is the VLAN of untagged frames in
    both directions; when it is None, the port drops them. `tagged` is in rising order and without
    `native`. A port that is `shut` carries nothing.
    """

    number: int
    plugged: str
    to_host: bool
    native: int | None
    tagged: tuple[int, ...]
    shut: bool
    rate_bps: int

    @property
    def description(self) -> str:
        """What is plugged in, for people: `n1 nic0`, `to up1 port 3`."""
        return self.plugged.replace(":", " ") if self.to_host else f"to {self.plugged}"

    @property
    def carried(self) -> tuple[int, ...]:
        """All VLANs of the port, with the native one, in rising order."""
        if self.native is None:
            return self.tagged
        return tuple(sorted((*self.tagged, self.native)))

    @property
    def is_access(self) -> bool:
        """Whether the port has untagged frames only."""
        return self.native is not None and not self.tagged


@dataclass(frozen=True, slots=True)
class SwitchPorts:
    """What one switch has to do."""

    name: str
    ports: tuple[SwitchPort, ...]
    """In order of their numbers."""
    vlans: tuple[tuple[int, str], ...]
    """(ID, name) of its VLANs, in order of the sets of trees."""
    ageing_s: float
    """The switch must not forget an address sooner than after this time."""
    mac_table: int
    """How many (address, VLAN) entries it must remember."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The IDs of its VLANs, in rising order."""
        return tuple(sorted(number for number, _ in self.vlans))


def switch_ports(topology: Topology, trees: Trees) -> tuple[SwitchPorts, ...]:
    """The ports of all switches of `topology`, in its order, when `trees` are used.

    The port of a managed host has all VLANs that reach its switch, that of the first set untagged.
    The port of any other host has only that one. A cable carries, tagged, the VLANs of the trees
    that use it, and is shut when there are none.

    ValueError when the trees are those of other switches, or when their first set leaves out a
    switch with hosts.
    """
    import numpy as np

    graph = topology.graph
    if trees.graph.names != graph.names or not np.array_equal(trees.graph.ends, graph.ends):
        raise ValueError("the trees are not over the topology's switches")
    reached = [
        np.flatnonzero(trees.depth[:, place] >= 0).tolist() for place in range(len(graph.names))
    ]
    ports: list[list[SwitchPort]] = [[] for _ in graph.names]

    on_cable = trees.on_cables
    for cable in graph.cables():
        tagged = on_cable[cable.number]
        for near, port, far, far_port in (
            (cable.a, cable.a_port, cable.b, cable.b_port),
            (cable.b, cable.b_port, cable.a, cable.a_port),
        ):
            plugged = f"{far} port {far_port}"
            ports[graph.index[near]].append(
                SwitchPort(port, plugged, False, None, tagged, not tagged, cable.rate_bps)
            )

    base = trees.vlans[0]
    to_managed = [tuple(sorted(trees.vlans[t] for t in sets if t > 0)) for sets in reached]
    for host, spec in topology.hosts.items():
        for nic in spec.nics:
            switch, port = topology.port_numbers[host, nic.name]
            place = graph.index[switch]
            if 0 not in reached[place]:
                raise ValueError(
                    f"switches.{switch}: {host}:{nic.name} is plugged into it, but VLAN {base} "
                    "does not reach it"
                )
            tagged = to_managed[place] if spec.managed else ()
            ports[place].append(
                SwitchPort(port, f"{host}:{nic.name}", True, base, tagged, False, nic.rate_bps)
            )

    return tuple(
        SwitchPorts(
            name,
            tuple(sorted(ports[place], key=lambda port: port.number)),
            tuple((trees.vlans[t], f"ri2n-tree{t}" if t else "ri2n-base") for t in reached[place]),
            topology.vlans.ageing_s,
            topology.vlans.mac_table,
        )
        for place, name in enumerate(graph.names)
    )
