# SPDX-License-Identifier: Apache-2.0
"""The numbers of the pipeline: tables, cookies, ports, EtherTypes, group ids and registers.

docs/pipeline.md describes what they are used for.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = [
    "ALL_MULTICAST",
    "ANNOUNCED_TO",
    "CLASS_MACS",
    "COOKIE_ADDRESS",
    "COOKIE_DECLARED",
    "COOKIE_FAILED",
    "COOKIE_FOLLOWED",
    "COOKIE_LEARNED",
    "COOKIE_MASK",
    "COOKIE_OURS",
    "COOKIE_PLACED",
    "COOKIE_PLACED_MASK",
    "COOKIE_SAID_MASK",
    "COOKIE_STARTUP",
    "ETH_ARP",
    "ETH_IPV4",
    "ETH_IPV6",
    "ETH_RI2N",
    "ETH_STRIPED",
    "GUEST_PORTS",
    "HELPER_VLAN",
    "IN_PORT",
    "JOBS_CHANGED",
    "JOBS_CHANGED_TO",
    "LOCAL",
    "PLAIN_PORT",
    "STARTUP_RECEIVE",
    "TABLE_ORDER",
    "VLAN_PRESENT",
    "WIRE_PORT",
    "Table",
    "group_id",
    "job_mac",
    "path_of_register",
    "path_register",
    "returned_mac",
]

COOKIE_OURS = 0x5232
COOKIE_LEARNED = 0x5233
COOKIE_STARTUP = 0x5249
STARTUP_RECEIVE = 251
"""The table of the rows of `host-up` for frames that come in.

At priority 100 it has one row for each address of the host.
"""
COOKIE_DECLARED = 0x524A
"""The upper 16 bits of the cookies of rows by which a host declares its jobs (jobs.declaration)."""
COOKIE_FAILED = 0x524B
"""The upper 16 bits of the cookies of rows by which a host says which orders it cannot carry out.
"""
COOKIE_ADDRESS = 0x524C
"""The upper 16 bits of the cookies of rows by which a host says which IP addresses it has."""
COOKIE_SAID_MASK = 0xFFF8 << 48
"""The bits that the cookies of all rows share by which a host says something.

They are those of COOKIE_DECLARED, COOKIE_FAILED and COOKIE_ADDRESS, and of no other row in
Table.JOB_DECLARATIONS.
"""
COOKIE_PLACED = COOKIE_LEARNED << 48 | 1 << 32
"""The cookie of rows that place a connection. Its lower 32 bits are the path (`path_register`)."""
COOKIE_PLACED_MASK = 0xFFFFFFFF << 32
COOKIE_FOLLOWED = COOKIE_LEARNED << 48 | 2 << 32
"""The cookie of rows that a host learned from a peer which places its connections."""
COOKIE_MASK = 0xFFFF << 48

LOCAL = 0xFFFFFFFE
IN_PORT = 0xFFFFFFF8
"""As an output: back out of the port that the frame came in by."""

PLAIN_PORT, WIRE_PORT = 101, 102
"""The OpenFlow ports of the helper's two TAPs, `ri2n-plain` and `ri2n-wire`."""

GUEST_PORTS = range(2001, 2257)
"""The OpenFlow ports that `host-up` gives to containers and virtual machines.

They are higher than any port of a NIC.
"""

VLAN_PRESENT = 0x1000
"""In a match or a set_field of `vlan_vid`: the frame has a tag. The value 0 means: it has none."""

HELPER_VLAN = 4094
"""The VLAN ID that frames between the controller and a helper have on the wire port."""

ETH_IPV4 = 0x0800
ETH_ARP = 0x0806
ETH_IPV6 = 0x86DD
ETH_RI2N = 0x88B5
"""The EtherType of our probes: IEEE's first one for local experiments."""
ETH_STRIPED = 0x88B6
"""The EtherType of frames between helpers (docs/wire-format.md): IEEE's second one."""

CLASS_MACS = ("02:52:4a:00:00:00", "ff:ff:ff:ff:ff:00")
"""The source addresses of packets of jobs between the host's firewall and its bridge.

The last byte is the class. The bridge takes the class into reg6 and restores the host's address.
"""

JOBS_CHANGED_TO = "03:00:00:52:49:4a"
JOBS_CHANGED = b"JOBS"
"""A frame of ETH_RI2N to JOBS_CHANGED_TO that begins so says that a host's jobs have changed."""

ALL_MULTICAST = ("01:00:00:00:00:00", "01:00:00:00:00:00")


class Table:
    """The table numbers.

    * Frames that come in: 0 -> 1 -> 3 (from managed peers) or 4, 6, 5, 2 (from all others).
    * Frames that the host sends: 0 -> 10 -> group -> 30, or 10 -> 11 -> 12 for hosts without Open
      vSwitch.
    * Frames between helpers: 0 -> 30 (from ours), 0 -> 1 -> 7 -> 3 -> 8 (to ours), 7 -> 9 (sent
      back to ours).
    * Placed connections: 0 -> 13, then 10 (sent); 3 -> 14 (received), which learns rows of table 13
      or ends them.
    * Hosts of an isolated job: 0 -> 15 -> 0 (sent), 1 -> 16 -> 1 (received); what these tables do
      not let pass is dropped.
    * No frame reaches 247 and 248: their rows are messages between a controller and a host's
      scripts about jobs, and about the host's addresses.
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
    ENCLOSED_SENDS = 15
    ENCLOSED_RECEIVES = 16
    SEND_COUNT = 30
    JOB_ANSWERS = 247
    JOB_DECLARATIONS = 248
    CANARY = 249


TABLE_ORDER = (
    Table.CANARY,
    Table.JOB_ANSWERS,
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
    Table.ENCLOSED_RECEIVES,
    Table.RECEIVE,
    Table.SEND,
    Table.ENCLOSED_SENDS,
    Table.CLASSIFY,
)
"""The order in which new rows are added.

The table that a frame goes to comes before the table that it comes from.
"""


ANNOUNCED_TO = "03:00:00:52:49:33"
"""The address to which NICs announce themselves in a VLAN (vlan.priming).

No host has it: the announcements are for switches only.
"""


def path_register(own_port: int, peer_port: int, vlan: int) -> int:
    """The value of reg1 that stands for a path.

    From the top: 10 bits are the sender's port, 10 the receiver's port, 12 the VLAN ID.
    """
    return own_port << 22 | peer_port << 12 | vlan


def path_of_register(value: int) -> tuple[int, int, int]:
    """The path that a value of reg1 stands for."""
    return (value >> 22, value >> 12 & 0x3FF, value & 0xFFF)


def group_id(kind: int, key: object) -> int:
    """The id of the group of a kind (1..14) for what `key` describes, the same in every run.

    The upper four bits are the kind, the lower 28 bits a hash of `key`.
    """
    digest = blake2b(repr(key).encode(), digest_size=4).digest()
    return kind << 28 | (int.from_bytes(digest, "big") & 0x0FFFFFFF)


def returned_mac(nic_mac: str) -> str:
    """The source address of frames that the NIC with `nic_mac` sends back to where they came from.

    No host has this address, so no host takes a frame that is sent to it, and a frame can be sent
    back only once. A mark in a tag of VLAN 0 would depend on the switches: if one removed the tag,
    two hosts with dead helpers would send the frame to each other for ever.
    """
    digest = blake2b(nic_mac.encode(), digest_size=5).digest()
    return "f2:" + digest.hex(":")


def job_mac(key: bytes, nic_mac: str) -> str:
    """The address of a NIC on the wire between the hosts of an isolated job.

    It is a secret of the job: 46 bits of a keyed hash of the NIC's own address. Hosts outside of
    the job do not know it, so no frame of theirs is taken for one of the job.
    """
    digest = bytearray(blake2b(nic_mac.encode(), key=key, digest_size=6).digest())
    digest[0] = digest[0] & 0xFC | 0x02
    return bytes(digest).hex(":")
