# SPDX-License-Identifier: Apache-2.0
"""OpenFlow tables and groups as plain data. The cookie of a flow is the hash of its content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.pipeline import layout
from ri2n_sdn.pipeline.priorities import Place

__all__ = [
    "FINDING_ADDRESSES",
    "ICMP_V6",
    "Action",
    "Bucket",
    "CopyField",
    "Distinguish",
    "Flow",
    "Follow",
    "Goto",
    "Group",
    "Learn",
    "LookBack",
    "Match",
    "MatchValue",
    "Note",
    "Output",
    "OutputRegister",
    "PopVlan",
    "PushVlan",
    "Rows",
    "SetField",
    "TakeClass",
    "ToController",
    "ToGroup",
    "Wanted",
    "first_live",
    "otherwise",
    "row",
]

MatchValue = int | str | tuple[str, str] | tuple[int, int]
"""An exact value, or (value, mask) for MAC addresses and TCP flags."""

Match = dict[str, MatchValue]
"""The fields that a frame must have, by name."""

ICMP_V6: Match = {"eth_type": layout.ETH_IPV6, "ip_proto": 58}

FINDING_ADDRESSES: tuple[Match, ...] = (
    {"eth_type": layout.ETH_ARP},
    *({**ICMP_V6, "icmpv6_type": kind} for kind in range(133, 138)),
)
"""ARP, and neighbour discovery from router solicitation to redirect."""


@dataclass(frozen=True, slots=True)
class Output:
    """Send out of a port."""

    port: int


@dataclass(frozen=True, slots=True)
class ToController:
    """Hand the whole frame to the controller."""


@dataclass(frozen=True, slots=True)
class SetField:
    """Set a header field or a register."""

    name: str
    value: int | str


@dataclass(frozen=True, slots=True)
class CopyField:
    """Copy one MAC address field into the other."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class PushVlan:
    """Put an 802.1Q tag before all others (VLAN 0, priority 0)."""


@dataclass(frozen=True, slots=True)
class PopVlan:
    """Take the outermost 802.1Q tag off. The match must ask for a tag."""


@dataclass(frozen=True, slots=True)
class Goto:
    """Look into another table, then come back (`resubmit(,table)`)."""

    table: int


@dataclass(frozen=True, slots=True)
class ToGroup:
    """Hand the frame to a group."""

    group_id: int


@dataclass(frozen=True, slots=True)
class OutputRegister:
    """Send out of the port whose number is in a register."""

    register: str


@dataclass(frozen=True, slots=True)
class Learn:
    """Learn a row of `table`: the frame's source is reached by the port that the frame came in by.

    For frames to that source, the row puts the port's number into `register`.
    """

    table: int
    register: str
    idle_timeout_s: int
    cookie: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Learn a row of `table`: this TCP connection's packets go back by the path in reg5.

    For these packets, the row puts the path into reg1. `eth_type` is the address family of the
    frames that the row with this action matches. The learned row ends `idle_timeout_s` after the
    last packet, or `fin_timeout_s` after it when a FIN or RST was among the packets. At most
    `limit` rows are learned.
    """

    table: int
    eth_type: int
    idle_timeout_s: int
    fin_timeout_s: int
    limit: int
    cookie: int


@dataclass(frozen=True, slots=True)
class LookBack:
    """Look into `table` as a packet of this TCP connection in the other direction would.

    The packet comes back unchanged. The row of `table` that matches counts the packet as one of its
    own, and sees its flags. So a row that ends with its connection ends also when the other side
    resets the connection. `eth_type` is the address family of the frames that the row with this
    action matches.
    """

    table: int
    eth_type: int


@dataclass(frozen=True, slots=True)
class Distinguish:
    """Do nothing, but do it for this TCP connection alone.

    Then what a datapath caches for this packet holds for no other connection. `eth_type` is the
    address family of the frames that the row with this action matches.
    """

    eth_type: int


@dataclass(frozen=True, slots=True)
class TakeClass:
    """Copy the last byte of the frame's source address, the class of a job, into reg6."""


@dataclass(frozen=True, slots=True)
class Note:
    """Do nothing, but hold a text for whoever reads the row. Open vSwitch pads it with zeros."""

    data: bytes


Action = (
    Output
    | ToController
    | SetField
    | CopyField
    | PushVlan
    | PopVlan
    | Goto
    | ToGroup
    | OutputRegister
    | Learn
    | Follow
    | LookBack
    | Distinguish
    | TakeClass
    | Note
)


@dataclass(frozen=True)
class Flow:
    """A row of a table.

    `counts` says what its counters mean: (SENT or RECEIVED of pipeline.plan, peer, path). It is not
    a part of the row, and does not count when rows are compared.
    """

    table: int
    priority: int
    match: tuple[tuple[str, MatchValue], ...]
    actions: tuple[Action, ...]
    counts: tuple[str, str, PathKey] | None = field(default=None, compare=False)

    @cached_property
    def cookie(self) -> int:
        """The cookie of the row: COOKIE_OURS in the upper 16 bits, a hash of the content below.

        Open vSwitch does not report rows as they were sent, so rows are compared by their cookies
        and not by their content.
        """
        content = repr((self.table, self.priority, self.match, self.actions)).encode()
        digest = int.from_bytes(blake2b(content, digest_size=6).digest(), "big")
        return layout.COOKIE_OURS << 48 | digest


def row(
    place: Place,
    match: Mapping[str, MatchValue],
    actions: Sequence[Action],
    counts: tuple[str, str, PathKey] | None = None,
) -> Flow:
    """A flow from a match whose fields may have any order."""
    return Flow(*place, tuple(sorted(match.items())), tuple(actions), counts)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of a group. All buckets of a group have the same weight.

    A bucket is live while `watch_port` has carrier, or while a bucket of `watch_group` is live. A
    bucket of a fast-failover group must watch one of the two (Open vSwitch refuses others).
    """

    watch_port: int | None
    actions: tuple[Action, ...]
    watch_group: int | None = None


@dataclass(frozen=True)
class Group:
    """A select group (a slot table) or a fast-failover group.

    `hash_algorithm` is the parameter of dp_hash in a select group:

    * 0: the datapath's own choice. On netdev it is the only one that tells UDP flows apart. On a
      kernel datapath it is the hash of the socket, which is drawn anew at each retransmission
      time-out.
    * 1: symmetric L4, on kernels that have it.
    """

    group_id: int
    kind: str
    buckets: tuple[Bucket, ...]
    hash_algorithm: int = 0

    SELECT = "select"
    FAST_FAILOVER = "ff"


def first_live(number: int, *buckets: Bucket) -> Group:
    """A fast-failover group: the first of the buckets that is live takes a frame."""
    return Group(number, Group.FAST_FAILOVER, buckets)


def otherwise(group_id: int) -> Bucket:
    """A bucket that hands frames to another group, and is live while that group has a live one."""
    return Bucket(None, (ToGroup(group_id),), watch_group=group_id)


Rows = Iterator[Flow | Group]
"""Rows and the groups that they lead to, in the order in which a plan takes them."""


@dataclass(frozen=True)
class Wanted:
    """All rows and groups that a host's bridge shall hold: flows by cookie, groups by id."""

    flows: Mapping[int, Flow]
    groups: Mapping[int, Group]
