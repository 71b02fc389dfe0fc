# SPDX-License-Identifier: Apache-2.0
"""The controller's configuration file, cluster.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.contract.limits import MAX_DSCP
from ri2n_sdn.fabric.classes import TrafficClass
from ri2n_sdn.fabric.switches import SwitchName, SwitchSpec, VlanSpec, cable_errors
from ri2n_sdn.fabric.yamlfile import StrictModel, all_of, load_model

__all__ = ["ClusterConfig", "load_cluster_config"]


class _NicConfig(StrictModel):
    rate_bps: Annotated[int, Field(gt=0)] | None = None
    network: Annotated[str, Field(min_length=1)] | None = None
    switch: str | None = None
    port: Annotated[int, Field(ge=1)] | None = None


_UNDECLARED = _NicConfig()


_Mac = Annotated[str, Field(pattern=r"^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$")]


# YAML reads `off` without quotes as false.
_Striping = Annotated[
    Literal["auto", "off"], BeforeValidator(lambda value: "off" if value is False else value)
]


class _Class(StrictModel):
    proto: Literal["tcp", "udp", "icmp"] | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    dscp: Annotated[int, Field(ge=0, le=MAX_DSCP)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> _Class:
        if self.port is not None and self.proto not in ("tcp", "udp"):
            raise ValueError("a port needs proto: tcp or udp")
        if self.proto is None and self.dscp is None:
            raise ValueError("must have proto or dscp (striping: off is for all traffic)")
        return self


class _Placement(StrictModel):
    hosts: Annotated[
        list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=1024)
    ]
    ports: Annotated[list[Annotated[int, Field(ge=1, le=65535)]], Field(max_length=64)] = Field(
        default_factory=list
    )
    policy: Literal["least_connections"] = "least_connections"


class _HostConfig(StrictModel):
    nics: dict[str, _NicConfig] = Field(default_factory=dict)
    extra_macs: list[_Mac] = Field(default_factory=list)
    striping: _Striping | None = None


class _Hbspan(StrictModel):
    min: Annotated[float, Field(ge=0.1, le=60)] = 0.25
    max: Annotated[float, Field(ge=0.1, le=60)] = 4.0

    @model_validator(mode="after")
    def _ordered(self) -> _Hbspan:
        if self.min > self.max:
            raise ValueError("min is larger than max")
        return self


class ClusterConfig(StrictModel):
    """The content of cluster.yaml. All keys are optional.

    With `striping` auto, pairs of hosts that both run `ri2n-reorder` use it. With off, which may
    also be set for one host, helpers get no traffic. `by_flows` are classes of traffic that helpers
    never get. `placement` names hosts whose TCP services get each new connection on the NIC with
    the fewest; `ports` are these services, all when it is empty.

    `hosts` declares NICs' rates, where the driver does not know them, their networks, and MAC
    addresses of containers and virtual machines behind a host. `switches` and `vlans` describe
    networks of several switches, as in a topology (fabric.switches). A NIC's `switch` says where it
    is plugged in, and `port` is the number of the switch's port, for messages.
    """

    strategy: str = "max_min"
    slots: Annotated[int, Field(ge=16, le=256)] = 64
    hbspan_s: _Hbspan = _Hbspan()
    striping: _Striping = "auto"
    by_flows: Annotated[list[_Class], Field(max_length=64)] = Field(default_factory=list)
    placement: Annotated[list[_Placement], Field(max_length=64)] = Field(default_factory=list)
    hosts: dict[str, _HostConfig] = Field(default_factory=dict)
    switches: dict[SwitchName, SwitchSpec] = Field(default_factory=dict)
    vlans: VlanSpec = VlanSpec()

    @model_validator(mode="after")
    def _switches_fit(self) -> ClusterConfig:
        wrong = cable_errors(self.switches)
        for host, declared in self.hosts.items():
            for nic, spec in declared.nics.items():
                if spec.switch is not None and spec.switch not in self.switches:
                    where = f"hosts.{host}.nics.{nic}.switch"
                    wrong.append(f"{where}: no switch {spec.switch!r} in switches")
        all_of(wrong)
        return self

    @field_validator("strategy")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in STRATEGIES:
            raise ValueError(f"unknown strategy {value!r}; choose from {', '.join(STRATEGIES)}")
        return value

    @field_validator("slots")
    @classmethod
    def _power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            raise ValueError("must be 16, 32, 64, 128 or 256")
        return value

    @field_validator("placement")
    @classmethod
    def _of_a_host_once(cls, value: list[_Placement]) -> list[_Placement]:
        seen: set[str] = set()
        for name in (name for placement in value for name in placement.hosts):
            if name in seen:
                raise ValueError(f"{name} is there twice")
            seen.add(name)
        return value

    @field_validator("by_flows")
    @classmethod
    def _once_each(cls, value: list[_Class]) -> list[_Class]:
        for position, traffic in enumerate(value):
            if traffic in value[:position]:
                raise ValueError(f"entry {position} is there twice")
        return value

    def nic(self, host: str, nic: str) -> _NicConfig:
        """What is declared about a NIC; without values when nothing is."""
        declared = self.hosts.get(host)
        return declared.nics.get(nic, _UNDECLARED) if declared is not None else _UNDECLARED

    def extra_macs(self, host: str) -> tuple[str, ...]:
        """The declared MAC addresses behind a host."""
        return tuple(self.hosts[host].extra_macs) if host in self.hosts else ()

    def stripes(self, host: str) -> bool:
        """Whether a host's helper may be used."""
        own = self.hosts[host].striping if host in self.hosts else None
        return (own or self.striping) == "auto"

    def traffic_by_flows(self) -> tuple[TrafficClass, ...]:
        """The traffic that helpers do not get, in the file's order."""
        return tuple(TrafficClass(spec.proto, spec.port, spec.dscp) for spec in self.by_flows)

    def placed_ports(self) -> dict[str, tuple[int, ...]]:
        """The ports whose connections are placed, by host; no ports stand for all."""
        return {
            name: tuple(sorted(set(placement.ports)))
            for placement in self.placement
            for name in placement.hosts
        }


def load_cluster_config(path: Path | None) -> ClusterConfig:
    """Read cluster.yaml; None gives all defaults. Raises BadInput with one line."""
    return ClusterConfig() if path is None else load_model(path, ClusterConfig)
