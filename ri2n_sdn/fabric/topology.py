"""A lab or cluster as written in YAML: switches, hosts, NICs, each NIC's rate and switch."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from ri2n_sdn.fabric.yamlfile import StrictModel, load_model, parse_model

__all__ = ["HostSpec", "NicSpec", "SwitchSpec", "Topology", "load_topology", "parse_topology"]

MAX_HOSTS = 253  # one /24 for the hosts, and one for their control network, whose .1 is the controller
RESERVED_HOSTS = frozenset({"sw", "mgmt"})  # the lab has namespaces of these names
RESERVED_DEVICES = frozenset({"lo", "mgmt0"})

TopologyName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,12}$")]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]{0,7}$")]
SwitchName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]{0,7}$")]
NicName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]{0,14}$")]


class SwitchSpec(StrictModel):
    """A switch, which is one network; each of its ports queues `port_buffer_bytes`, then drops its oldest or newest."""

    port_buffer_bytes: Annotated[int, Field(ge=3_000)] = 131_072
    drop: Literal["oldest", "newest"] = "oldest"


class NicSpec(StrictModel):
    """A NIC: its device name, the switch it is plugged into, and its rate in bit/s, both ways."""

    name: NicName
    switch: str
    rate_bps: Annotated[int, Field(gt=0)]


class HostSpec(StrictModel):
    """A host and its NICs in order; `managed: false` is a router or appliance without Open vSwitch and has one NIC.

    `helper: false` is a managed host on which ri2n-reorder does not run where it runs on the others.
    """

    nics: Annotated[tuple[NicSpec, ...], Field(strict=False)]
    managed: bool = True
    helper: bool = True


class Topology(StrictModel):
    """What was configured. Hosts keep the order of the file; it numbers them from 1 and so gives their addresses."""

    name: TopologyName
    description: str = ""
    switches: Annotated[dict[SwitchName, SwitchSpec], Field(min_length=1)]
    hosts: Annotated[dict[HostName, HostSpec], Field(min_length=1)]

    def with_drop(self, drop: Literal["oldest", "newest"]) -> Topology:
        """The same, with switches whose ports all drop that frame of a full buffer."""
        switches = {name: spec.model_copy(update={"drop": drop}) for name, spec in self.switches.items()}
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
        if len(self.hosts) > MAX_HOSTS:
            raise ValueError(f"hosts: {len(self.hosts)} hosts, at most {MAX_HOSTS} are possible")
        for switch in self.switches:
            if switch in RESERVED_DEVICES:
                raise ValueError(f"switches.{switch}: this name is reserved")
        for host, spec in self.hosts.items():
            _check_host(host, spec, self.switches)
        return self

    def number(self, host: str) -> int:
        """The host's number, counted from 1 in the order of the file; KeyError for an unknown host."""
        for number, name in enumerate(self.hosts, start=1):
            if name == host:
                return number
        raise KeyError(host)

    def address(self, host: str) -> str:
        """The host's IPv4 address, in 10.77.0.0/24."""
        return f"10.77.0.{self.number(host)}"

    def address6(self, host: str) -> str:
        """The host's IPv6 address, in fd77::/64."""
        return f"fd77::{self.number(host):x}"

    def managed_hosts(self) -> list[str]:
        """The hosts that run Open vSwitch, in order."""
        return [host for host, spec in self.hosts.items() if spec.managed]

    def helper_hosts(self) -> list[str]:
        """The hosts that run ri2n-reorder in a cluster that uses it, in order."""
        return [host for host, spec in self.hosts.items() if spec.managed and spec.helper]

    def nics_on(self, switch: str) -> list[tuple[str, NicSpec]]:
        """(host, NIC) of everything plugged into `switch`, in order."""
        return [(host, nic) for host, spec in self.hosts.items() for nic in spec.nics if nic.switch == switch]

    def warnings(self) -> list[str]:
        """What works but is probably not meant: networks with fewer than two NICs, pairs that share no network."""
        found = []
        for switch in self.switches:
            plugged = self.nics_on(switch)
            if not plugged:
                found.append(f"switches.{switch}: no NIC is plugged into it")
            elif len(plugged) == 1:
                host, nic = plugged[0]
                found.append(f"switches.{switch}: {host}:{nic.name} is its only NIC, so it reaches nobody there")
        networks = {host: {nic.switch for nic in spec.nics} for host, spec in self.hosts.items()}
        for one, other in combinations(self.hosts, 2):
            if not networks[one] & networks[other]:
                found.append(f"hosts {one} and {other} share no network: they cannot reach each other")
        return found


def load_topology(path: Path) -> Topology:
    """Read a topology file; BadInput (`FILE: key.path: what is wrong`, one line) when it is wrong."""
    return load_model(path, Topology)


def parse_topology(text: str, source: str = "topology") -> Topology:
    """Read topology YAML from a string; `source` names it in errors (BadInput)."""
    return parse_model(text, Topology, source)


def _check_host(host: str, spec: HostSpec, switches: dict[str, SwitchSpec]) -> None:
    """Raise ValueError, with the key's path, for what one host alone gets wrong."""
    path = f"hosts.{host}"
    if host in RESERVED_HOSTS:
        raise ValueError(f"{path}: this name is reserved")
    if not spec.nics:
        raise ValueError(f"{path}.nics: a host needs at least one NIC")
    if not spec.managed and len(spec.nics) != 1:
        raise ValueError(f"{path}.nics: a host with managed: false has exactly one NIC")
    seen: set[str] = set()
    for index, nic in enumerate(spec.nics):
        where = f"{path}.nics[{index}]"
        if nic.name in RESERVED_DEVICES:
            raise ValueError(f"{where}.name: {nic.name!r} is reserved")
        if nic.name in seen:
            raise ValueError(f"{where}.name: duplicate NIC name {nic.name!r}")
        seen.add(nic.name)
        if nic.switch not in switches:
            raise ValueError(f"{where}.switch: no switch {nic.switch!r} (there are: {', '.join(switches)})")
