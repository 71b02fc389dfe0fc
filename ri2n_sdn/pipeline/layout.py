"""Numbers of the pipeline: tables, priorities, registers, cookies, EtherType (docs/pipeline.md walks through them)."""

from __future__ import annotations

from hashlib import blake2b

__all__ = [
    "ALL_MULTICAST",
    "COOKIE_LEARNED",
    "COOKIE_MASK",
    "COOKIE_OURS",
    "COOKIE_STARTUP",
    "ETH_ARP",
    "ETH_IPV4",
    "ETH_IPV6",
    "ETH_RI2N",
    "LOCAL",
    "ND_TYPES",
    "TABLE_ORDER",
    "Table",
    "group_id",
    "path_of_register",
    "path_register",
]

COOKIE_OURS = 0x5232
COOKIE_LEARNED = 0x5233
COOKIE_STARTUP = 0x5249
COOKIE_MASK = 0xFFFF << 48

LOCAL = 0xFFFFFFFE
ETH_IPV4 = 0x0800
ETH_ARP = 0x0806
ETH_IPV6 = 0x86DD
ETH_RI2N = 0x88B5
"""IEEE's EtherType for local experiments: our probes (and, later, the helper's frames)."""

ND_TYPES = (133, 134, 135, 136, 137)
"""ICMPv6 neighbour discovery: router solicitation to redirect."""

ALL_MULTICAST = ("01:00:00:00:00:00", "01:00:00:00:00:00")


class Table:
    """Table numbers.

    Receiving: 0 -> 1 -> 3 (managed peers) or 4, 6, 5, 2 (all others).
    Sending: 0 -> 10 -> group -> 30, or 10 -> 11 -> 12 for hosts without Open vSwitch.
    """

    CLASSIFY = 0
    RECEIVE = 1
    DELIVER = 2
    RECEIVE_COUNT = 3
    NEIGHBOUR = 4
    LEARN = 5
    UNMANAGED = 6
    SEND = 10
    LEARNED = 11
    SEND_UNMANAGED = 12
    SEND_COUNT = 30
    CANARY = 249


TABLE_ORDER = (
    Table.CANARY,
    Table.SEND_COUNT,
    Table.SEND_UNMANAGED,
    Table.LEARNED,
    Table.DELIVER,
    Table.LEARN,
    Table.UNMANAGED,
    Table.NEIGHBOUR,
    Table.RECEIVE_COUNT,
    Table.RECEIVE,
    Table.SEND,
    Table.CLASSIFY,
)
"""The order in which new rows are sent: where a frame goes to before where it comes from."""


def path_register(own_port: int, peer_port: int) -> int:
    """The value of reg1 that stands for a path: the sender's port above, the receiver's below."""
    return own_port << 16 | peer_port


def path_of_register(value: int) -> tuple[int, int]:
    """The path that a value of reg1 stands for."""
    return (value >> 16, value & 0xFFFF)


def group_id(kind: int, key: object) -> int:
    """A group's id from what it is for, the same in every run: `kind` 1..14 above, 28 bits of a hash below."""
    digest = blake2b(repr(key).encode(), digest_size=4).digest()
    return kind << 28 | (int.from_bytes(digest, "big") & 0x0FFFFFFF)
