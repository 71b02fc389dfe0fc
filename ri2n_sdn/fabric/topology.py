# SPDX-License-Identifier: Apache-2.0
"""A lab or cluster as written in YAML: switches, hosts, NICs, and each NIC's rate and switch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import combinations, count, filterfalse
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from ri2n_sdn.fabric.switches import (
    SwitchGraph,
    SwitchName,
    SwitchSpec,
    VlanSpec,
    cable_errors,
    switch_graph,
)
from ri2n_sdn.fabric.yamlfile import StrictModel, all_of, load_model

__all__ = ["HostSpec", "NicSpec", "Topology", "load_topology"]

RESERVED_HOSTS = frozenset({"sw", "mgmt"})  # the lab has namespaces of these names
RESERVED_DEVICES = frozenset({"lo", "mgmt0"})

TopologyName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,12}$")]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]{0,7}$")]
NicName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]{0,14}$")]


class NicSpec(StrictModel):
    """A NIC: its device name, the switch it is plugged into, and its rate in each direction.

    `port` is the port of the switch. Without it, the NIC gets the lowest free port
    (`Topology.port_numbers`). `queue_frames` is the number of frames that a lab's NIC queues before
    it drops frames, where the kernel can count that exactly. `queue` is the kind of queue: `fifo`
    is one queue for all flows, `fair` is one for each flow (fq_codel, which host-up puts on NICs
    that have no better queue).
    """

    name: NicName
    switch: str
    rate_bps: Annotated[int, Field(gt=0)]
    port: Annotated[int, Field(ge=1, le=1023)] | None = None
    queue_frames: Annotated[int, Field(ge=20)] = 1000
    queue: Literal["fifo", "fair"] = "fifo"


class HostSpec(StrictModel):
    """A host and its NICs, in order.

    `managed: false` is a router or appliance without Open vSwitch, which has one NIC. `helper:
    false` is a managed host on which ri2n-reorder does not run, even if it runs on the others.
    """

    nics: Annotated[tuple[NicSpec, ...], Field(strict=False)]
    managed: bool = True
    helper: bool = True


class Topology(StrictModel):
    """A lab or cluster as configured.

    Hosts keep the order of the file. Their numbers, from 1 in this order, give their addresses.
    """

    name: TopologyName
    description: str = ""
    switches: Annotated[dict[SwitchName, SwitchSpec], Field(min_length=1)]
    hosts: Annotated[dict[HostName, HostSpec], Field(min_length=1)]
    vlans: VlanSpec = VlanSpec()

    def with_drop(self, drop: Literal["oldest", "newest"]) -> Topology:
        """The same topology, with switches whose ports all drop that frame when a queue is full."""
        switches = {
            name: spec.model_copy(update={"drop": drop}) for name, spec in self.switches.items()
        }
        return self.model_copy(update={"switches": switches})

    @field_validator("switches", mode="before")
    @classmethod
    def _switches_may_be_empty(cls, value: object) -> object:
        """`s0:` with nothing after it is a switch with the default buffer."""
        if isinstance(value, dict):
            return {key: {} if spec is None else spec for key, spec in value.items()}
        return value

    @model_validator(mode="after")
    def _check(self) -> Topology:
        all_of(self._errors())
        return self

    def _errors(self) -> Iterator[str]:
        for switch in self.switches:
            if switch in RESERVED_DEVICES:
                yield f"switches.{switch}: this name is reserved"
        for host, spec in self.hosts.items():
            yield from _host_errors(host, spec, self.switches)
        yield from cable_errors(self.switches)
        yield from _port_errors(self.switches, self.hosts)

    @property
    def has_cables(self) -> bool:
        """Whether switches are joined by cables. Only then are there trees, and only then is the
        graph needed, whose numpy takes long to import."""
        return any(switch.links for switch in self.switches.values())

    @cached_property
    def graph(self) -> SwitchGraph:
        """The switches and the cables between them."""
        return switch_graph(self.switches)

    @cached_property
    def network_of(self) -> dict[str, str]:
        """The network of each switch, which has the name of its first switch.

        Switches that cables join are one network.
        """
        if not self.has_cables:
            return {name: name for name in self.switches}
        first: dict[int, str] = {}
        component = self.graph.component.tolist()
        return {
            name: first.setdefault(component[place], name)
            for place, name in enumerate(self.graph.names)
        }

    @cached_property
    def port_numbers(self) -> dict[tuple[str, str], tuple[str, int]]:
        """The place of each NIC: (host, NIC) -> (switch, port)."""
        taken = {name: {link.port for link in spec.links} for name, spec in self.switches.items()}
        plugged = [(host, nic) for host, spec in self.hosts.items() for nic in spec.nics]
        for _, nic in plugged:
            if nic.port is not None:
                taken[nic.switch].add(nic.port)
        free = {name: filterfalse(ports.__contains__, count(1)) for name, ports in taken.items()}
        return {
            (host, nic.name): (nic.switch, next(free[nic.switch]) if nic.port is None else nic.port)
            for host, nic in plugged
        }

    def number(self, host: str) -> int:
        """The host's number, counted from 1 in the order of the file.

        Raises KeyError for an unknown host.
        """
        if host not in self.hosts:
            raise KeyError(host)
        return list(self.hosts).index(host) + 1

    def address(self, host: str) -> str:
        """The host's IPv4 address in a lab, in 10.77.0.0/24."""
        return f"10.77.0.{self.number(host)}"

    def address6(self, host: str) -> str:
        """The host's IPv6 address in a lab, in fd77::/64."""
        return f"fd77::{self.number(host):x}"

    def managed_hosts(self) -> list[str]:
        """The hosts that run Open vSwitch, in order."""
        return [host for host, spec in self.hosts.items() if spec.managed]

    def helper_hosts(self) -> list[str]:
        """The hosts that run ri2n-reorder in a cluster that uses it, in order."""
        return [host for host, spec in self.hosts.items() if spec.managed and spec.helper]

    def nics_on(self, switch: str) -> list[tuple[str, NicSpec]]:
        """All NICs that are plugged into `switch`, as (host, NIC) in order."""
        return [
            (host, nic)
            for host, spec in self.hosts.items()
            for nic in spec.nics
            if nic.switch == switch
        ]

    def warnings(self) -> list[str]:
        """Texts about what works but is probably a mistake.

        These are networks with fewer than two NICs, and pairs of hosts that share no network.
        """
        warnings = []
        on_network: dict[str, list[str]] = {network: [] for network in self.network_of.values()}
        networks: dict[str, set[str]] = {host: set() for host in self.hosts}
        for host, spec in self.hosts.items():
            for nic in spec.nics:
                network = self.network_of[nic.switch]
                on_network[network].append(f"{host}:{nic.name}")
                networks[host].add(network)
        for switch, plugged in on_network.items():
            if not plugged:
                warnings.append(f"switches.{switch}: no NIC is plugged into it")
            elif len(plugged) == 1:
                warnings.append(
                    f"switches.{switch}: {plugged[0]} is its only NIC, so it reaches nobody there"
                )
        if len(on_network) == 1:
            return warnings
        for one, other in combinations(self.hosts, 2):
            if not networks[one] & networks[other]:
                warnings.append(
                    f"hosts {one} and {other} share no network: they cannot reach each other"
                )
        return warnings


def load_topology(path: Path) -> Topology:
    """Read a topology file.

    Raises BadInput with one line (`FILE: key.path: what is wrong`) when the file is wrong.
    """
    return load_model(path, Topology)


def _host_errors(host: str, spec: HostSpec, switches: dict[str, SwitchSpec]) -> Iterator[str]:
    """The errors in the keys of one host, each with the key's path."""
    path = f"hosts.{host}"
    if host in RESERVED_HOSTS:
        yield (f"{path}: this name is reserved")
    if not spec.nics:
        yield (f"{path}.nics: a host needs at least one NIC")
    if not spec.managed and len(spec.nics) != 1:
        yield (f"{path}.nics: a host with managed: false has exactly one NIC")
    seen: set[str] = set()
    for index, nic in enumerate(spec.nics):
        where = f"{path}.nics[{index}]"
        if nic.name in RESERVED_DEVICES:
            yield (f"{where}.name: {nic.name!r} is reserved")
        if nic.name in seen:
            yield (f"{where}.name: duplicate NIC name {nic.name!r}")
        seen.add(nic.name)
        if nic.switch not in switches:
            yield (f"{where}.switch: no switch {nic.switch!r} (there are: {', '.join(switches)})")


def _port_errors(switches: dict[str, SwitchSpec], hosts: dict[str, HostSpec]) -> Iterator[str]:
    """The NICs whose port of a switch is also used by another NIC or a cable."""
    used = {
        (name, link.port): f"the link to {link.to}"
        for name, spec in switches.items()
        for link in spec.links
    }
    for host, spec in hosts.items():
        for index, nic in enumerate(spec.nics):
            if nic.port is None:
                continue
            other = used.setdefault((nic.switch, nic.port), f"{host}:{nic.name}")
            if other != f"{host}:{nic.name}":
                yield (
                    f"hosts.{host}.nics[{index}].port: {nic.switch}'s port {nic.port} is used by "
                    f"{other}"
                )
