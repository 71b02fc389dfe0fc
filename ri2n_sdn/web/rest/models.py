# SPDX-License-Identifier: Apache-2.0
"""What answers of the interface look like that are no documents of the contract.

Keys that a later controller adds are left out of answers, and no answer fails because of them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ri2n_sdn.contract.choices import Role

__all__ = [
    "AuditEntry",
    "ExplainedPath",
    "Explanation",
    "Health",
    "Me",
    "Pair",
    "Parameter",
    "Path",
    "Placed",
    "Ready",
    "ReportedLink",
    "Samples",
    "Strategy",
    "VlanTable",
    "Weight",
    "Weights",
]

Value = str | int | float
"""The value of a parameter."""


_SAMPLES_NULL = "bit/s; null where a rate was not known, for example of a host that was away"


class Samples(BaseModel):
    """What a NIC, or all NICs of a host, sent and received in the last minutes."""

    time_s: list[float] = Field(description="Unix times, one for each sample")
    tx_bps: list[float | None] = Field(description=_SAMPLES_NULL)
    rx_bps: list[float | None] = Field(description=_SAMPLES_NULL)


class ReportedLink(BaseModel):
    """What the sender's helper has reported of a link to the receiver, since the helper began."""

    state: str | None = None
    sent: int | None = None
    received: int | None = None
    lost: int | None = None
    repeated: int | None = None


class Path(BaseModel):
    """One way from a host to another: a NIC of each, and in fat trees a VLAN."""

    own: str = Field(description="the sender's NIC")
    peer: str = Field(description="the receiver's NIC")
    network: str | None = None
    vlan: int | None = None
    alive: bool
    share: float = Field(description="the part of the packets that take it, 0 to 1")
    slots: int = Field(description="how many slots of the slot table in force are its")
    tx_bps: float | None = Field(None, description="what is sent over it, in bit/s")
    rx_bps: float | None = Field(None, description="what arrives over it, in bit/s")
    rate_bps: float | None = Field(None, description="what it can carry, as reckoned, in bit/s")
    link: int | None = Field(None, description="the number of the helper's link")
    helper: dict[str, Any] | None = Field(None, description="what the helper reports of the link")


class Pair(BaseModel):
    """Two hosts, with a direction."""

    src: str
    dst: str
    active: bool = Field(description="whether it has a slot table of its own, as it sends enough")
    striped: bool = Field(description="whether helpers send its packets one by one over all links")
    group: int = Field(description="the number of its OpenFlow group; 0 for the shared one")
    tx_bps: float = Field(0.0, description="what the pair sends, in bit/s")
    paths: list[Path]


class Weight(BaseModel):
    """The weight of one path of a pair."""

    own: str
    peer: str
    network: str | None = None
    vlan: int | None = None
    share: float = Field(description="0 to 1; those of a pair add up to 1")
    slots: int


class Weights(BaseModel):
    """The weights of a pair's paths."""

    src: str
    dst: str
    strategy: str = Field(description="what decides them")
    slots: int = Field(description="the number of slots of its table")
    weights: list[Weight]


class ExplainedPath(BaseModel):
    """The path that a flow takes."""

    own: str
    peer: str
    vlan: int | None = None
    network: str | None = None


class Placed(BaseModel):
    """The row of a placed connection."""

    row: str = Field(description="`placed` by the controller, or `followed` from the peer")
    own: str | None = None
    peer: str | None = None
    vlan: int | None = None
    alive: bool


class Explanation(BaseModel):
    """Why a pair, or one flow of it, takes which path: what `ri2n explain` prints."""

    src: str
    dst: str
    kind: str = Field(description="`managed`, `unmanaged` or `none`")
    reason: str = Field(description="one sentence about the pair")
    why: list[str] = Field(description="the whole explanation, one sentence each")
    flow: str | None = Field(None, description="the flow that was asked about")
    slot: int | None = Field(None, description="the slot of the flow's hash")
    path: ExplainedPath | None = Field(None, description="the flow's path, where it is certain")
    paths: list[Path]
    slots: list[list[str | int | None]] = Field(
        description="the slot table: the sender's NIC, the receiver's, and the VLAN of each slot"
    )
    striped: bool | None = None
    by_flows: list[dict[str, Any]] = Field(default_factory=list)
    services: dict[str, list[Any]] = Field(default_factory=dict)
    placed: Placed | None = None


class Strategy(BaseModel):
    """How weights are computed."""

    name: str
    choices: list[str] = Field(description="the strategies that there are")


class Parameter(BaseModel):
    """A number, or a choice, by which the controller works."""

    name: str
    value: Value
    default: Value = Field(description="its value when the controller starts")
    kind: Literal["choice", "integer", "number"]
    unit: str
    min: float | None = None
    max: float | None = None
    choices: list[str]
    live: bool = Field(description="whether it can be changed while the controller runs")
    about: str


class VlanTable(BaseModel):
    """A program's path table: which VLAN each of some pairs takes."""

    owner: str = Field(description="the program's name")
    pairs: int = Field(description="the number of pairs")
    leased: bool = Field(description="whether it ends with its program's connection")
    rows: list[tuple[str, str, int]] = Field(description="sender, receiver and VLAN of each pair")


class AuditEntry(BaseModel):
    """A change that somebody has made, or was refused."""

    seq: int
    time_s: float = Field(description="Unix time")
    user: str
    role: str
    via: Literal["cli", "jobs", "web"] = Field(description="the controller's socket")
    op: str = Field(description="the controller's operation, as `parameters_set`")
    what: str = Field(
        description="what it was done to, as `strategy=ri2n_plus`; `dry_run=True`: only tried"
    )
    ok: bool
    error: str | None = Field(None, description="why it was refused")


class Me(BaseModel):
    """Who asks."""

    name: str = Field(description="the token's name, or `anonymous`")
    role: Role
    user: str | None = None
    may: list[str] = Field(description="the roles whose rights the asker has")


class Health(BaseModel):
    """The web process runs."""

    status: Literal["ok"] = "ok"
    version: str


class Ready(BaseModel):
    """The web process knows the controller's state."""

    status: Literal["ok"] = "ok"
    in_charge: bool
    settled: bool
    seq: int
