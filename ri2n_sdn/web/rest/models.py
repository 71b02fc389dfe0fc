# SPDX-License-Identifier: Apache-2.0
"""What answers of the interface look like: the fabric, its controller, and what is wrong.

Keys that a later controller adds are left out of answers, and no answer fails because of them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ri2n_sdn.contract.choices import Role

__all__ = [
    "AuditEntry",
    "Cable",
    "Check",
    "ControllerState",
    "Event",
    "ExplainedPath",
    "Explanation",
    "FaultOf",
    "Health",
    "Helper",
    "Host",
    "Me",
    "Network",
    "NewToken",
    "Nic",
    "Pair",
    "Parameter",
    "Path",
    "Placed",
    "Ready",
    "ReportedLink",
    "Samples",
    "StoreState",
    "Strategy",
    "Switch",
    "Token",
    "VlanCheck",
    "VlanTable",
    "Weight",
    "Weights",
]

Value = str | int | float
"""The value of a parameter."""


class Nic(BaseModel):
    """A NIC of a host. What may change while the host is away is null then."""

    host: str = Field(description="the host that has it")
    name: str = Field(description="its name on the host, as `eth0`")
    port: int = Field(description="the OpenFlow port of the host's bridge")
    mac: str
    network: str | None = Field(None, description="the network that was found behind it")
    switch: str | None = Field(None, description="the switch it is plugged into, if declared")
    speed_bps: int | None = Field(None, description="the speed of its link, in bit/s")
    up: bool | None = Field(None, description="whether the link has a carrier")
    alive: bool | None = Field(None, description="whether frames arrive, in both directions")
    tx_bps: float | None = Field(None, description="what it sends, in bit/s")
    rx_bps: float | None = Field(None, description="what it receives, in bit/s")


class Helper(BaseModel):
    """The program that stripes packets on a host."""

    running: bool
    reports: bool = Field(description="whether it has reported lately")


class Host(BaseModel):
    """A host of the cluster."""

    name: str
    dpid: str = Field(description="its bridge's datapath id, 16 hexadecimal digits")
    mac: str
    address: str | None = Field(None, description="where it connects from; null while it is away")
    connected: bool
    ovs: str = Field("", description="the version of its Open vSwitch")
    datapath: str | None = Field(None, description="`system` (the kernel's) or `netdev`")
    helper: Helper | None = Field(None, description="null where there is none, or it is not used")
    certificate_ends_s: float | None = Field(
        None, description="when the certificate of its connection ends, in Unix seconds"
    )
    nics: list[Nic]


class Network(BaseModel):
    """NICs that reach each other."""

    id: str
    nics: list[str] = Field(description="its NICs, as `HOST:NIC`")
    switches: list[str] = Field(description="its switches, where several are declared")


class Switch(BaseModel):
    """A declared switch."""

    name: str
    network: str | None = Field(None, description="the network that it belongs to, once found")
    cables: list[str] = Field(description="the ids of its cables to other switches")
    nics: list[str] = Field(description="the NICs plugged into it, as `HOST:NIC`")


class Cable(BaseModel):
    """A declared cable between two switches."""

    id: str = Field(description="as `SWITCH/PORT-SWITCH/PORT`")
    ends: list[str] = Field(description="the two switches")
    ports: list[int | str | None] = Field(description="the two ports")
    rate_bps: float | None = None
    alive: bool = Field(description="whether everything arrives, both ways and in every tree")
    vlans: list[int] = Field(description="the VLANs whose trees use it")


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


class StoreState(BaseModel):
    """The controller's memory."""

    kind: str = Field(description="`own`, `common` (several controllers') or `none`")
    active: bool
    epoch: int
    problem: str | None = None


class ControllerState(BaseModel):
    """The controller itself."""

    in_charge: bool
    waits_because: str | None = Field(None, description="why it is not in charge")
    settled: bool
    strategy: str
    parameters: dict[str, Value]
    hbspan_s: float = Field(description="the time between two readings of the counters")
    cycle_s: float = Field(description="how long the last control cycle took")
    started_s: float = Field(description="Unix time")
    active_pairs: int
    pid: int
    version: str
    config_hash: str
    store: StoreState
    counters: dict[str, int]
    hosts: int = Field(description="the number of hosts")
    hosts_connected: int
    nics: int
    nics_alive: int
    faults: int
    jobs: int
    seq: int = Field(description="the number of the state that this is")


class Said(BaseModel):
    """What is told of something. Programs go by code, subject and arguments, and people by text."""

    code: str | None = Field(None, description="what it is, in a word that lasts")
    subject: dict[str, str] = Field(
        default_factory=dict, description="what it is about: host and NIC, job, switch, ..."
    )
    args: dict[str, Any] = Field(default_factory=dict, description="what else the text names")
    text: str
    advice: str | None = Field(None, description="what to do")


class FaultOf(Said):
    """Something that is wrong."""

    id: str = Field(description="code and subject, so the same as long as it is the same fault")
    severity: Literal["bad", "warning"]
    rank: int = Field(description="its place in the order; 0 is the worst")


class Event(Said):
    """Something that has happened."""

    seq: int = Field(description="grows by one with each event")
    time_s: float = Field(description="Unix time")
    severity: Literal["bad", "warning", "info"] = "info"


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


class VlanCheck(BaseModel):
    """What probes through the declared switches have shown."""

    findings: list[str] = Field(description="what is wrong, one sentence each")
    probes: int = Field(description="how many were sent")


class Check(BaseModel):
    """Whether all is as it must be."""

    ok: bool = Field(description="no fault is bad, and the probes have found nothing")
    faults: list[FaultOf]
    vlans: VlanCheck | None = Field(None, description="null where no switches are declared")


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


class Token(BaseModel):
    """A token, without its text, which nobody has but its owner."""

    name: str
    role: Role
    user: str | None = Field(None, description="whose jobs it is for")
    created_s: float = Field(description="Unix time")
    expires_s: float | None = Field(None, description="Unix time; null: never")


class NewToken(Token):
    """A token that was just made. Its text is shown only once."""

    token: str = Field(description="the text, for the header `Authorization: Bearer TOKEN`")


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
