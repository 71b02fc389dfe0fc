"""Numbers of the pipeline:

tables, priorities, registers, cookies, EtherType (docs/pipeline.md walks through them).
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = [
    "ALL_MULTICAST",
    "ANNOUNCED_TO",
    "COOKIE_FOLLOWED",
    "COOKIE_LEARNED",
    "COOKIE_MASK",
    "COOKIE_OURS",
    "COOKIE_PLACED",
    "COOKIE_PLACED_MASK",
    "COOKIE_STARTUP",
    "ETH_ARP",
    "ETH_IPV4",
    "ETH_IPV6",
    "ETH_RI2N",
    "ETH_STRIPED",
    "GUEST_PORTS",
    "HELPER_VLAN",
    "IN_PORT",
    "LOCAL",
    "ND_TYPES",
    "PLAIN_PORT",
    "STARTUP_RECEIVE",
    "TABLE_ORDER",
    "VLAN_PRESENT",
    "WIRE_PORT",
    "Table",
    "group_id",
    "path_of_register",
    "path_register",
    "returned_mac",
]

COOKIE_OURS = 0x5232
COOKIE_LEARNED = 0x5233
COOKIE_STARTUP = 0x5249
STARTUP_RECEIVE = 251
"""The table of host-up's own rows for what arrives.

At priority 100 there is one for each address of the host.
"""
COOKIE_PLACED = COOKIE_LEARNED << 48 | 1 << 32
"""A whole cookie: of rows that place a connection; the lower half is the path (`path_register`)."""
COOKIE_PLACED_MASK = 0xFFFFFFFF << 32
COOKIE_FOLLOWED = COOKIE_LEARNED << 48 | 2 << 32
"""A whole cookie: of rows that a host learned from a peer which places its connections."""
COOKIE_MASK = 0xFFFF << 48

LOCAL = 0xFFFFFFFE
IN_PORT = 0xFFFFFFF8
"""As an output: back by the port that the frame came in on."""

PLAIN_PORT, WIRE_PORT = 101, 102
"""OpenFlow ports of the helper's two TAPs, `ri2n-plain` and `ri2n-wire`."""

GUEST_PORTS = range(2001, 2257)
"""OpenFlow ports that `host-up` gives to containers and virtual machines:

above all that a NIC can have.
"""

VLAN_PRESENT = 0x1000
"""In a match or a set_field of vlan_vid: there is a tag; 0 alone: there is none."""

HELPER_VLAN = 4094
"""The VLAN ID on the wire port of what the controller and a helper have to say to each other."""

ETH_IPV4 = 0x0800
ETH_ARP = 0x0806
ETH_IPV6 = 0x86DD
ETH_RI2N = 0x88B5
"""IEEE's first EtherType for local experiments: our probes."""
ETH_STRIPED = 0x88B6
"""The second: frames between helpers (docs/wire-format.md)."""

ND_TYPES = (133, 134, 135, 136, 137)
"""ICMPv6 neighbour discovery: router solicitation to redirect."""

ALL_MULTICAST = ("01:00:00:00:00:00", "01:00:00:00:00:00")


class Table:
    """Table numbers.

    Receiving: 0 -> 1 -> 3 (managed peers) or 4, 6, 5, 2 (all others). Sending: 0 -> 10 -> group ->
    30, or 10 -> 11 -> 12 for hosts without Open vSwitch. Between helpers: 0 -> 30 (from ours), 0 ->
    1 -> 7 -> 3 -> 8 (to ours), 7 -> 9 (sent back to ours). Placed connections: 0 -> 13, then 10
    (sending); 3 -> 14 (receiving), which learns into 13 or ends what is there.
    """

    CLASSIFY = 0
    RECEIVE = 1
    DELIVER = 2
    RECEIVE_COUNT = 3
    NEIGHBOUR = 4
    LEARN = 5
    UNMANAGED = 6
    STRIPED = 7
    TO_HELPER = 8
    RETURNED = 9
    SEND = 10
    LEARNED = 11
    SEND_UNMANAGED = 12
    PLACED = 13
    FOLLOW = 14
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
    Table.RETURNED,
    Table.TO_HELPER,
    Table.PLACED,
    Table.FOLLOW,
    Table.RECEIVE_COUNT,
    Table.STRIPED,
    Table.RECEIVE,
    Table.SEND,
    Table.CLASSIFY,
)
"""The order in which new rows are sent: where a frame goes to before where it comes from."""


ANNOUNCED_TO = "03:00:00:52:49:33"
"""Where NICs announce themselves in a VLAN: nobody's address, for switches alone (vlan.priming)."""


def path_register(own_port: int, peer_port: int, vlan: int) -> int:
    """The value of reg1 that stands for a path:

    10 bits of the sender's port, 10 of the receiver's, 12 of the VLAN.
    """
    return own_port << 22 | peer_port << 12 | vlan


def path_of_register(value: int) -> tuple[int, int, int]:
    """The path that a value of reg1 stands for."""
    return (value >> 22, value >> 12 & 0x3FF, value & 0xFFF)


def group_id(kind: int, key: object) -> int:
    """A group's id from what it is for, the same in every run:

    `kind` 1..14 above, 28 bits of a hash below.
    """
    digest = blake2b(repr(key).encode(), digest_size=4).digest()
    return kind << 28 | (int.from_bytes(digest, "big") & 0x0FFFFFFF)


def returned_mac(nic_mac: str) -> str:
    """The source address of frames that the NIC with `nic_mac` sends back to where they came from.

    It is nobody's address, so nothing that is sent to it is taken by anybody: a frame can be sent
    back only once. A mark in a tag of VLAN 0 would rest on the switches: one that took it off would
    make a circle of two dead helpers.
    """
    digest = blake2b(nic_mac.encode(), digest_size=5).digest()
    return "f2:" + digest.hex(":")
