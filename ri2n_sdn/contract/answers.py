# SPDX-License-Identifier: Apache-2.0
"""The documents that answer the controller's local operations.

What stands under a key describes it, also in REST's OpenAPI document.
"""

from typing import Literal

from typing_extensions import NotRequired, TypedDict

from ri2n_sdn.contract.choices import FastWay
from ri2n_sdn.contract.documents import (
    Documents,
    EndedJob,
    Event,
    Job,
    JobDetails,
    NamedPolicy,
    NicEntry,
    Reservation,
    Right,
    Said,
    Token,
)

__all__ = [
    "AllJobs",
    "AllPolicies",
    "AllReservations",
    "AllRights",
    "AllTokens",
    "AuditEntry",
    "AuditTrail",
    "BegunJob",
    "EarlierStatus",
    "EndedJobs",
    "Events",
    "Explained",
    "ExplainedPath",
    "Explanation",
    "HelperAge",
    "KnownHost",
    "KnownHosts",
    "LinkReport",
    "ManagedPair",
    "Nothing",
    "OneJob",
    "OnePolicy",
    "OneReservation",
    "OneRight",
    "OneToken",
    "Pair",
    "PairsPage",
    "Parameter",
    "ParameterSet",
    "Parameters",
    "Path",
    "Placed",
    "Reloaded",
    "Retired",
    "Row",
    "ShownJob",
    "Status",
    "StatusHost",
    "StatusNetwork",
    "StatusNic",
    "StatusProblem",
    "TableOwners",
    "Traffic",
    "TrafficClass",
    "Value",
    "VlanTable",
    "VlanTableOf",
    "VlanTables",
    "WatchBegins",
]


class Nothing(TypedDict):
    """No key at all."""


# Pairs of hosts and their paths


class LinkReport(TypedDict):
    """What the sender's helper has reported of a link; numbers of frames since the helper began."""

    heard: bool
    usable: bool
    striping: bool
    sent: int
    received: int
    lost: int
    repeated: int
    skew_s: float
    rtt_s: float
    rate_bps: int
    demand_bps: int | None
    """null: as much as there is"""


class Path(TypedDict):
    """One way from a host to another: a NIC of each, and in fat trees a VLAN."""

    own: str
    """the sender's NIC"""
    peer: str
    """the receiver's NIC"""
    network: str | None
    vlan: int | None
    alive: bool
    share: float
    """the part of the packets that take it, 0 to 1"""
    slots: int
    """how many slots of the slot table in force are its"""
    tx_bps: float | None
    """what is sent over it, in bit/s; null while its sender's counters are not known"""
    rx_bps: float | None
    """what arrives over it, in bit/s; null while its receiver's counters are not known"""
    rate_bps: float | None
    """the planned rate: what the strategy lets the pair send over it, in bit/s; null: nothing"""
    speed_bps: int | None
    """the rate of its slowest link, as a rule that of a NIC, in bit/s"""
    link: int | None
    """the number of the helper's link"""
    helper: LinkReport | None
    """what the helper reports of the link"""


class Pair(TypedDict):
    """Two hosts, with a direction."""

    src: str
    dst: str
    active: bool
    """whether it has a slot table of its own, as it sends enough"""
    striped: bool
    """whether helpers send its packets one by one over all links"""
    group: int
    """the number of its OpenFlow group; 0 for the shared one"""
    tx_bps: float | None
    """what the pair sends, in bit/s; null while its sender's counters are not known"""
    fair_bps: int | None
    """its max-min fair rate, in bit/s; null while it is not active, or no link limits it"""
    paths: list[Path]


class PairsPage(TypedDict):
    """Some of the pairs that fit, and how many fit."""

    pairs: list[Pair]
    total: int
    offset: int
    sampled_s: float | None
    """when rates were read last, in Unix seconds"""


class ExplainedPath(TypedDict):
    """The path that a flow takes."""

    own: str
    peer: str
    vlan: int | None
    network: str | None


class Placed(TypedDict):
    """The row of a placed connection."""

    row: str
    """`placed` by the controller, or `followed` from the peer"""
    own: str | None
    peer: str | None
    vlan: int | None
    alive: bool


class TrafficClass(TypedDict):
    """Traffic that helpers do not get."""

    proto: str | None
    port: int | None
    dscp: int | None


class ManagedPair(TypedDict):
    """What is known of a pair alone that has slots of this controller."""

    striped: NotRequired[bool]
    tx_bps: NotRequired[float | None]
    """what the pair sends, in bit/s; null while its sender's counters are not known"""
    fair_bps: NotRequired[int | None]
    """its max-min fair rate, in bit/s; null while it is not active, or no link limits it"""
    links: NotRequired[list[ExplainedPath]]
    """where helpers send the packets one by one: the paths that they take"""
    by_flows: NotRequired[list[TrafficClass]]
    services: NotRequired[dict[str, list[int]]]
    placed: NotRequired[Placed | None]
    way: NotRequired[FastWay | None]
    """how the flow leaves its host: through the `bridge`, or `beside` it; null: nobody knows"""


class Explanation(ManagedPair):
    """Why a pair, or one flow of it, takes which path: what `ri2n explain` prints."""

    src: str
    dst: str
    kind: str
    """`managed`, `unmanaged` or `none`"""
    reason: str
    """one sentence about the pair"""
    why: list[str]
    """the whole explanation, one sentence each"""
    flow: str | None
    """the flow that was asked about"""
    slot: int | None
    """the slot of the flow's hash"""
    path: ExplainedPath | None
    """the flow's path, where it is certain"""
    paths: list[Path]
    slots: list[list[str | int | None]]
    """the slot table: the sender's NIC, the receiver's, and the VLAN of each slot"""


class Explained(Explanation):
    """An explanation, and when rates were read last, in Unix seconds."""

    sampled_s: float | None


# The controller


class HelperAge(TypedDict):
    """The program that stripes packets on a host, and how old its last report is."""

    running: bool
    report_age_s: float | None
    running_s: float | None


class StatusNic(NicEntry):
    """A NIC of a host, with its rates in bit/s."""

    name: str
    tx_bps: float | None
    rx_bps: float | None


class StatusHost(TypedDict):
    """A host of the cluster, as before version 2."""

    name: str
    dpid: str
    mac: str
    address: str | None
    connected: bool
    ovs: str
    datapath: str | None
    helper: HelperAge | None
    nics: list[StatusNic]


class StatusNetwork(TypedDict):
    """NICs that reach each other, as before version 2."""

    id: str
    nics: list[str]


class StatusProblem(Said):
    """Something that is wrong, as before version 2."""

    id: str
    advice: str
    severity: Literal["bad", "warning"]


class EarlierStatus(TypedDict):
    """The keys that `status` had before version 2; they go with version 3."""

    settled: bool
    in_charge: bool
    strategy: str
    hbspan_s: float
    cycle_s: float
    waits_because: str | None
    pid: int
    hosts: list[StatusHost]
    networks: list[StatusNetwork]
    cables: list[tuple[str, str]]
    problems: list[StatusProblem]
    counters: dict[str, int]
    slots_moved: int


class Status(EarlierStatus):
    """All that is known."""

    version: int
    sampled_s: float | None
    """when rates and counters were read last, in Unix seconds"""
    state: Documents
    uptime_s: float
    jobs: dict[str, int]
    """how many jobs are in each state"""
    pairs: list[Pair]


class Events(TypedDict):
    """The newest events, oldest first."""

    events: list[Event]


class Reloaded(TypedDict):
    """All files are good."""

    starts_anew: bool


class WatchBegins(TypedDict):
    """The state as it is now, with its number; its changes follow."""

    seq: int
    state: Documents


Value = str | int | float
"""The value of a parameter."""


class Parameter(TypedDict):
    """A number, or a choice, by which the controller works."""

    name: str
    value: Value
    default: Value
    """its value when the controller starts"""
    kind: Literal["choice", "integer", "number"]
    unit: str
    min: float | None
    max: float | None
    choices: list[str]
    live: bool
    """whether it can be changed while the controller runs"""
    about: str


class Parameters(TypedDict):
    """All parameters."""

    parameters: list[Parameter]


class ParameterSet(TypedDict):
    """A parameter's name, and the value that it is to have, or has from now on."""

    name: str
    value: Value


class AuditEntry(TypedDict):
    """A change that somebody has made, or was refused."""

    seq: int
    time_s: float
    """Unix time"""
    user: str
    role: str
    via: Literal["cli", "jobs", "web"]
    """the controller's socket"""
    op: str
    """the controller's operation, as `parameters_set`"""
    what: str
    """what it was done to, as `strategy=ri2n_plus`; `dry_run=True`: only tried"""
    ok: bool
    error: str | None
    """why it was refused"""


class AuditTrail(TypedDict):
    """Who has changed what, oldest first."""

    entries: list[AuditEntry]


# VLANs


Row = tuple[str, str, int]
"""A sender, a receiver and a number that belongs to the pair."""


class TableOwners(TypedDict):
    """The owners of all path tables, with the number of their pairs."""

    owners: dict[str, int]


class VlanTableOf(TypedDict):
    """A program's path table: which VLAN each of some pairs takes."""

    owner: str
    """the program's name"""
    pairs: int
    """the number of pairs"""
    leased: bool
    """whether it ends with its program's connection"""


class VlanTable(VlanTableOf):
    """A program's path table: which VLAN each of some pairs takes."""

    rows: list[Row]
    """sender, receiver and VLAN of each pair"""


class VlanTables(TypedDict):
    """All path tables, the newest last."""

    tables: list[VlanTable | VlanTableOf]


class Traffic(TypedDict):
    """What each pair has sent since the controller began, in bytes, and how often that is read."""

    hosts: list[str]
    pairs: list[Row]
    hbspan_s: float


# Hosts


class KnownHost(TypedDict):
    """A host that is there, or is remembered, or that cluster.yaml names."""

    name: str
    connected: bool
    seen: bool
    """whether it was ever there"""
    address: str | None
    """where it connects from; null while it is away"""
    dpid: str | None
    away_since_s: float | None
    """Unix time, if known"""
    nics: list[str]
    declared: bool
    """whether cluster.yaml names it"""
    places: dict[str, list[str | int | None]]
    """the switch and the port of each NIC, as in cluster.yaml"""
    jobs: list[str]
    """the ids of the jobs that name it"""
    reservations: list[str]
    fast_report_age_s: NotRequired[float]
    """how long ago its fast path has reported, where it has one"""


class KnownHosts(TypedDict):
    """All hosts by name."""

    hosts: list[KnownHost]


class Retired(TypedDict):
    """What has become of a host that is gone for good."""

    retired: bool
    known: bool
    nics: NotRequired[list[str]]
    jobs: list[str]
    reservations: list[str]
    stored: bool
    """whether the controller's memory no longer has it"""


# Tokens


class OneToken(TypedDict):
    """The token."""

    token: Token


class AllTokens(TypedDict):
    """All tokens by name."""

    tokens: list[Token]


# Jobs, reservations, rights and policies


class BegunJob(TypedDict):
    """The job; `again` where the same order was given before."""

    job: Job
    again: NotRequired[bool]


class OneJob(TypedDict):
    """The job."""

    job: Job


class ShownJob(TypedDict):
    """The job with its paths."""

    job: JobDetails


class AllJobs(TypedDict):
    """The jobs that run or wait."""

    jobs: list[Job]


class EndedJobs(TypedDict):
    """The jobs that have ended, the newest first."""

    jobs: list[EndedJob]


class OneReservation(TypedDict):
    """The reservation."""

    reservation: Reservation


class AllReservations(TypedDict):
    """All reservations, in the order in which they begin."""

    reservations: list[Reservation]


class OneRight(TypedDict):
    """The right."""

    right: Right


class AllRights(TypedDict):
    """The rights of all users that have any."""

    rights: list[Right]


class OnePolicy(TypedDict):
    """The policy."""

    policy: NamedPolicy


class AllPolicies(TypedDict):
    """All named policies, by name."""

    policies: list[NamedPolicy]
