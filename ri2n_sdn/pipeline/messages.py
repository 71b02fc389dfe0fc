"""OpenFlow tables and groups as plain data; a flow's cookie is the hash of its content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.pipeline import layout

__all__ = [
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
    "MatchValue",
    "Output",
    "OutputRegister",
    "PopVlan",
    "PushVlan",
    "SetField",
    "ToController",
    "ToGroup",
    "Wanted",
    "row",
]

MatchValue = int | str | tuple[str, str] | tuple[int, int]
"""An exact value, or (value, mask) for MAC addresses and TCP flags."""


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
    """Take the outermost 802.1Q tag off; the match must ask for one."""


@dataclass(frozen=True, slots=True)
class Goto:
    """Go on in another table, and come back (`resubmit(,table)`)."""

    table: int


@dataclass(frozen=True, slots=True)
class ToGroup:
    """Hand to a group."""

    group_id: int


@dataclass(frozen=True, slots=True)
class OutputRegister:
    """Send out of the port whose number a register holds."""

    register: str


@dataclass(frozen=True, slots=True)
class Learn:
    """Remember in `table` that the frame's source is reached by its ingress port (kept in
    `register`).
    """

    table: int
    register: str
    idle_timeout_s: int
    cookie: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Remember in `table` that this TCP connection's packets go back by the path that reg5 holds
    (into reg1).

    `eth_type` is the address family of the frames that the row matches. The row goes
    `idle_timeout_s` after the last packet, or `fin_timeout_s` after the last one when a FIN or RST
    was among them; no more than `limit` are made.
    """

    table: int
    eth_type: int
    idle_timeout_s: int
    fin_timeout_s: int
    limit: int
    cookie: int


@dataclass(frozen=True, slots=True)
class LookBack:
    """Look in `table` as a packet of this TCP connection that goes the other way would, and come
    back unchanged.

    The row that is found takes this packet for one of its own, its flags too: so one that ends with
    a connection ends when the other side resets it. `eth_type` is the address family of the frames
    that the row matches.
    """

    table: int
    eth_type: int


@dataclass(frozen=True, slots=True)
class Distinguish:
    """Nothing, for this TCP connection alone: what a datapath caches of this packet holds for no
    other connection.

    `eth_type` is the address family of the frames that the row matches.
    """

    eth_type: int


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
)


@dataclass(frozen=True)
class Flow:
    """A table row. `counts` names what its counters mean: (what, peer, path).

    It is no part of the row.
    """

    table: int
    priority: int
    match: tuple[tuple[str, MatchValue], ...]
    actions: tuple[Action, ...]
    counts: tuple[str, str, PathKey] | None = field(default=None, compare=False)

    @cached_property
    def cookie(self) -> int:
        """Ours in the upper 16 bits, 48 bits of the content's hash below.

        What Open vSwitch reports back is not what was sent, so rows are compared by this and not by
        content.
        """
        content = repr((self.table, self.priority, self.match, self.actions)).encode()
        digest = int.from_bytes(blake2b(content, digest_size=6).digest(), "big")
        return layout.COOKIE_OURS << 48 | digest


def row(
    table: int,
    priority: int,
    match: Mapping[str, MatchValue],
    actions: Sequence[Action],
    counts: tuple[str, str, PathKey] | None = None,
) -> Flow:
    """A flow whose match is given in any order."""
    return Flow(table, priority, tuple(sorted(match.items())), tuple(actions), counts)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket; all have equal weight. It lives while `watch_port` has carrier or a bucket of
    `watch_group` lives.

    Buckets of a fast-failover group must watch one of the two (Open vSwitch refuses others).
    """

    watch_port: int | None
    actions: tuple[Action, ...]
    watch_group: int | None = None


@dataclass(frozen=True)
class Group:
    """A select group (a slot table) or a fast-failover group.

    `hash_algorithm` is the parameter of a select group's dp_hash: 0, the datapath's own choice,
    which on netdev is the only one that tells UDP flows apart; 1, symmetric L4, on kernels that
    have it (there 0 is the socket's hash, which is drawn anew at each retransmission time-out).
    """

    group_id: int
    kind: str
    buckets: tuple[Bucket, ...]
    hash_algorithm: int = 0

    SELECT = "select"
    FAST_FAILOVER = "ff"


@dataclass(frozen=True)
class Wanted:
    """All that a host's bridge shall hold: flows by cookie, groups by id."""

    flows: Mapping[int, Flow]
    groups: Mapping[int, Group]
