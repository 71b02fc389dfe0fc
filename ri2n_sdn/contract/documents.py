# SPDX-License-Identifier: Apache-2.0
"""The documents of the controller's state, as `watch` sends them and as REST answers.

What stands under a key describes it, also in REST's OpenAPI document and in the JSON Schema. An
entry of a part of the state is what it is without its own name, which is its key there.
"""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Len, Lt, MaxLen, Predicate
from typing_extensions import NotRequired, TypedDict

from ri2n_sdn.contract.choices import FastFilter, FastState, Kind, Role, Source
from ri2n_sdn.contract.limits import MAX_TIME_S
from ri2n_sdn.contract.said import Severity

__all__ = [
    "MAX_NAME",
    "MAX_TEXT",
    "Activity",
    "Cable",
    "CableEntry",
    "Check",
    "Controller",
    "ControllerState",
    "Documents",
    "EndedJob",
    "Event",
    "FairEntry",
    "Fast",
    "FaultOf",
    "Helper",
    "Histogram",
    "Host",
    "HostEntry",
    "Job",
    "JobDetails",
    "JobPolicy",
    "Kept",
    "Moved",
    "Name",
    "NamedPolicy",
    "Network",
    "NetworkEntry",
    "NewToken",
    "Nic",
    "NicEntry",
    "PathTable",
    "PolicyOf",
    "ProblemEntry",
    "Reservation",
    "Right",
    "Route",
    "Said",
    "StoreState",
    "Switch",
    "SwitchEntry",
    "Token",
    "TokenEntry",
    "VlanCheck",
]

MAX_NAME, MAX_TEXT = 512, 16_384
"""A name has so many characters at most, and any other text."""

Name = Annotated[str, MaxLen(MAX_NAME)]
Text = Annotated[str, MaxLen(MAX_TEXT)]
Number = Annotated[float, Gt(-1e300), Lt(1e300)]
Whole = Annotated[int, Gt(-(2**63)), Lt(2**63)]
Time = Annotated[float, Ge(0), Le(MAX_TIME_S)]
Value = Text | Whole | Number
Argument = Text | Whole | Number | bool | list[Text | Whole | Number | bool]
Pair = Annotated[list[Number], Len(2, 2)]
Digest = Annotated[str, Len(64, 64), Predicate(str.isascii)]


class _Named(TypedDict):
    name: Text


class _Identified(TypedDict):
    id: Text


# Hosts


class NicEntry(TypedDict):
    """A NIC of a host. What may change while the host is away is null then."""

    port: Whole
    """the OpenFlow port of the host's bridge"""
    mac: Text
    network: Text | None
    """the network that was found behind it"""
    switch: Text | None
    """the switch it is plugged into, if declared"""
    speed_bps: Whole | None
    """the speed of its link, in bit/s"""
    up: bool | None
    """whether the link has a carrier"""
    alive: bool | None
    """whether frames arrive, in both directions"""


class _NicName(TypedDict):
    host: Text
    """the host that has it"""
    name: Text
    """its name on the host, as `eth0`"""


class Nic(_NicName, NicEntry):
    """A NIC of a host. What may change while the host is away is null then."""

    tx_bps: Number | None
    """what it sends, in bit/s"""
    rx_bps: Number | None
    """what it receives, in bit/s"""


class Helper(TypedDict):
    """The program that stripes packets on a host."""

    running: bool
    reports: bool
    """whether it has reported lately"""


class Fast(TypedDict):
    """What a host's fast path is, which lets frames pass beside the bridge."""

    state: FastState
    """`in_force`, `off`, `refused` by the kernel, `no_device`, or `silent`: no report comes"""
    filter: FastFilter
    """whether Open vSwitch leaves such frames alone; where it is `missing`, it copies each"""
    peers: dict[Name, Whole]
    """how many peers are `carried` beside the bridge, or have what left to it for which reason"""
    dropped: Whole
    """frames that its programs have dropped since they were loaded"""


class _HostFacts(TypedDict):
    dpid: Text
    """its bridge's datapath id, 16 hexadecimal digits"""
    mac: Text
    address: Text | None
    """where it connects from; null while it is away"""
    addresses: NotRequired[list[Text]]
    """the IP addresses of its traffic, as it tells them"""
    connected: bool
    ovs: Text
    """the version of its Open vSwitch"""
    datapath: Text | None
    """`system` (the kernel's) or `netdev`"""
    helper: Helper | None
    """null where there is none, or it is not used"""
    fast: NotRequired[Fast | None]
    """null where none reports"""
    certificate_ends_s: NotRequired[Time | None]
    """when the certificate of its connection ends, in Unix seconds"""


class HostEntry(_HostFacts):
    """A host, with its NICs by name.

    Of an earlier controller it has no `addresses`, `certificate_ends_s` or `fast`.
    """

    nics: dict[Name, NicEntry]


class Host(_Named, _HostFacts):
    """A host of the cluster."""

    nics: list[Nic]


# Networks, switches and cables


class NetworkEntry(TypedDict):
    """NICs that reach each other."""

    nics: list[Text]
    """its NICs, as `HOST:NIC`"""
    switches: list[Text]
    """its switches, where several are declared"""


class Network(_Identified, NetworkEntry):
    """NICs that reach each other."""


class SwitchEntry(TypedDict):
    """A declared switch."""

    network: Text | None
    """the network that it belongs to, once found"""


class Switch(_Named, SwitchEntry):
    """A declared switch."""

    cables: list[Text]
    """the ids of its cables to other switches"""
    nics: list[Text]
    """the NICs plugged into it, as `HOST:NIC`"""


class CableEntry(TypedDict):
    """A declared cable between two switches."""

    ends: Annotated[list[Text], Len(2, 2)]
    """the two switches"""
    ports: Annotated[list[Whole | Text | None], Len(2, 2)]
    """the two ports"""
    rate_bps: Number
    alive: bool
    """whether everything arrives, both ways and in every tree"""
    vlans: list[Whole]
    """the VLANs whose trees use it"""


class _CableId(TypedDict):
    id: Text
    """as `SWITCH/PORT-SWITCH/PORT`"""


class Cable(_CableId, CableEntry):
    """A declared cable between two switches."""


# The controller


class StoreState(TypedDict):
    """The controller's memory."""

    kind: Text
    """`own`, `common` (several controllers') or `none`"""
    active: bool
    epoch: Whole
    problem: Text | None


class _ControllerFacts(TypedDict):
    in_charge: bool
    waits_because: NotRequired[Text]
    """why it is not in charge"""
    settled: bool
    strategy: Text
    parameters: dict[Name, Value]
    hbspan_s: Number
    """the time between two readings of the counters"""
    cycle_s: Number
    """how long the last control cycle took"""
    started_s: Time
    """Unix time"""
    active_pairs: Whole
    pid: Whole
    version: Text
    config_hash: Text
    store: StoreState


class Controller(_ControllerFacts):
    """The controller itself. What has no value has no key."""

    certificate_ends_s: NotRequired[Time]
    """when its own certificate ends, in Unix seconds"""
    sampled_s: NotRequired[Time]
    """when rates and counters were read last, in Unix seconds"""


class ControllerState(_ControllerFacts):
    """The controller itself."""

    counters: dict[str, int]
    hosts: int
    """the number of hosts"""
    hosts_connected: int
    nics: int
    nics_alive: int
    faults: int
    jobs: int
    seq: int
    """the number of the state that this is"""


class Activity(TypedDict):
    """What a host's slot tables did since the controller began, and how they are now."""

    active_pairs: Number
    reweights: Number
    slots_moved: Number
    slots: dict[Name, Number]


class FairEntry(TypedDict):
    """What a host sends by those of its pairs that a link limits, beside what is fair for them.

    A host has this while it has such pairs. Rates are of the same sample as `rates`, in bit/s. A
    part is a rate divided by its fair rate (`contract.fair.part_of_fair`).
    """

    pairs: Whole
    """how many pairs these are"""
    tx_bps: Number
    """what they send together"""
    fair_bps: Number
    """their max-min fair rates together"""
    worst: Text
    """the receiver of the pair that has the smallest part of its fair rate"""
    worst_tx_bps: Number
    """what that pair sends"""
    worst_fair_bps: Number
    """its max-min fair rate"""


class Histogram(TypedDict):
    """How long something took, each time: `counts` has one more than `bounds_s`."""

    bounds_s: list[Number]
    counts: list[Number]
    sum_s: Number


def _one_count_more(histogram: Histogram) -> bool:
    return len(histogram["counts"]) == len(histogram["bounds_s"]) + 1


# What is said. Programs go by code, subject and arguments, and people by the text. An earlier
# controller gives the text alone.


class Said(TypedDict):
    code: NotRequired[Text]
    """what it is, in a word that lasts"""
    subject: NotRequired[dict[Text, Text]]
    """what it is about: host and NIC, job, switch, ..."""
    args: NotRequired[dict[Name, Argument]]
    """what else the text names"""
    text: Text


class ProblemEntry(Said):
    """Something that is wrong."""

    advice: Text
    """what to do"""
    severity: Literal["bad", "warning"]
    rank: Whole
    """its place in the order; 0 is the worst"""


class _FaultId(TypedDict):
    id: Text
    """code and subject, so the same as long as it is the same fault"""


class FaultOf(_FaultId, ProblemEntry):
    """Something that is wrong."""


class VlanCheck(TypedDict):
    """What probes through the declared switches have shown."""

    findings: list[str]
    """what is wrong, one sentence each"""
    probes: int
    """how many were sent"""


class Check(TypedDict):
    """Whether all is as it must be."""

    ok: bool
    """no fault is bad, and the probes have found nothing"""
    faults: list[FaultOf]
    vlans: VlanCheck | None
    """null where no switches are declared"""


class Event(Said):
    """Something that has happened."""

    advice: NotRequired[Text]
    """what to do"""
    seq: Whole
    """grows by one with each event"""
    time_s: Time
    """Unix time"""
    severity: NotRequired[Severity]


# Jobs


class PathTable(TypedDict):
    """The paths of a job's packets that have one DSCP."""

    dscp: Whole
    paths: list[Text]


class PolicyOf(TypedDict):
    """What a job's packets may use, and how much of it."""

    policy: Kind
    paths: list[Text]
    """names of paths; none: all"""
    tables: list[PathTable]
    """paths of packets with a DSCP"""
    services: list[Text]
    """what an isolated job may use outside"""
    min_rate_bps: Whole | None
    """each host can send so much"""
    max_rate_bps: Whole | None
    """no host sends more"""


class JobPolicy(PolicyOf):
    """The policy of a job, and how it got it."""

    moved: bool
    """whether it differs from what the job's hosts declare"""


class NamedPolicy(PolicyOf):
    """A policy that orders may name."""

    name: Text


class Moved(TypedDict):
    """Who has given a job of hosts another policy than they declare."""

    by: Text
    at_s: Time
    declared: PolicyOf | None


class Job(PolicyOf):
    """A job."""

    id: Text
    user: Text
    uid: Whole
    hosts: list[Text]
    begin_s: Time
    end_s: Time | None
    """null: nobody knows yet"""
    source: Source
    """who has begun it"""
    state: Text
    """`installed`, `waiting` or `refused`"""
    why: Text
    """the reason for the state; empty when there is none"""
    failed: dict[Name, Text]
    moved: Moved | None
    lanes: list[Text]
    """the paths that are its own"""


class Route(TypedDict):
    """A path from one of a job's hosts to another."""

    src: str
    dst: str
    dscp: int | None
    own: str
    peer: str
    network: str | None
    vlan: int | None
    alive: bool


class JobDetails(Job):
    """A job with its paths."""

    classes: dict[str, int]
    """its class on each host"""
    routes: list[Route]


class EndedJob(PolicyOf):
    """A job that has ended."""

    id: str
    user: str
    uid: int
    hosts: list[str]
    begin_s: float
    end_s: float
    why: str


class Reservation(PolicyOf):
    """Paths that a user's jobs will have, or have."""

    id: Text
    user: Text
    hosts: list[Text]
    begin_s: Time
    end_s: Time
    rate_bps: Whole | None


class Right(TypedDict):
    """What a user may ask for; the user `*` is all that have no entry of their own."""

    user: Text
    policies: list[Kind]
    max_rate_bps: Whole | None
    max_hosts: Whole | None
    reserve: bool


# Tokens


class TokenEntry(TypedDict):
    """What the web process must know of a token."""

    hash: Digest
    role: Role
    user: Text | None
    expires_s: Number | None


class Token(_Named):
    """A token, without its text, which nobody has but its owner."""

    role: Role
    user: str | None
    """whose jobs it is for"""
    created_s: float
    """Unix time"""
    expires_s: float | None
    """Unix time; null: never"""


class NewToken(Token):
    """A token that was just made. Its text is shown only once."""

    token: str
    """the text, for the header `Authorization: Bearer TOKEN`"""


# The whole


class Kept(TypedDict):
    """The parts of a state that are kept as documents."""

    controller: Controller
    activity: dict[Name, Activity]
    outages: dict[Name, dict[Name, dict[Name, Number]]]
    """by host and NIC, how often and how long it was dead"""
    lengths: dict[Name, Annotated[Histogram, Predicate(_one_count_more)]]
    openflow: dict[Name, dict[Name, Whole]]
    """OpenFlow messages by direction and type"""
    helpers: dict[Name, dict[Name, Whole]]
    """by host, what its helper has reported of all its links together"""
    counters: dict[Name, Whole]
    jobs: dict[Name, Job]
    reservations: dict[Name, Reservation]
    rights: dict[Name, Right]
    policies: dict[Name, NamedPolicy]
    tokens: NotRequired[dict[Name, TokenEntry]]
    """for the web process alone"""
    events: list[Event]
    """the newest, oldest first"""


class Documents(Kept):
    """A state: its parts."""

    hosts: dict[Name, HostEntry]
    networks: dict[Name, NetworkEntry]
    cables: dict[Name, CableEntry]
    switches: dict[Name, SwitchEntry]
    rates: dict[Name, dict[Name, Pair]]
    """by host and NIC, what it sends and receives, in bit/s"""
    fair: NotRequired[dict[Name, FairEntry]]
    """by sending host, its part of what is fair; an earlier controller does not say"""
    bytes: dict[Name, dict[Name, Pair]]
    """by host and NIC, how many bytes it has sent and received"""
    problems: dict[Name, ProblemEntry]
