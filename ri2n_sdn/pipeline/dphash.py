# SPDX-License-Identifier: Apache-2.0
"""Compute which slot of a dp_hash select group a flow takes, as Open vSwitch does.

The userspace datapath (`netdev`) works in three steps:

1. It hashes the addresses, the protocol and the ports of a packet (lib/flow.c, flow_hash_5tuple).
   That is the packet's "RSS" hash.
2. It mixes this hash with the basis of the group (lib/odp-execute.c, OVS_HASH_ALG_L4).
3. It takes the low bits as the index into the group's table (ofproto/ofproto-dpif.c,
   group_setup_dp_hash_table). If all buckets have the same weight and their number is a power of
   two >= 16, they fill the table in their order.

Open vSwitch has two builds of the hash. The portable build is the one of Debian's amd64 packages,
on every CPU. The other one is for compilers that may use SSE4.2 (distributions built for
x86-64-v2).

Some hashes cannot be predicted, or are not computed here: those of the kernel datapath (there
algorithm 0 is the random hash of the socket), of NICs whose driver gives Open vSwitch its own RSS
hash (DPDK), of fragments after the first (they have no ports), of MPLS, and of ARM builds with CRC
instructions.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from ri2n_sdn.contract.choices import HashBuild
from ri2n_sdn.errors import BadInput
from ri2n_sdn.pipeline.crc32c import with_bytes

__all__ = ["PROTOCOLS", "Flow", "dp_hash", "five_tuple_hash", "slot_of"]


# IP protocol numbers by the names that users type. Only for these protocols does Open vSwitch hash
# the ports (or the type and code of ICMP).
PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmp6": 58, "sctp": 132}

_MASK32 = 0xFFFFFFFF
_FINISH_FIVE_TUPLE = 42


@dataclass(frozen=True)
class Flow:
    """The fields that all packets of a flow share. For ICMP the ports are type and code."""

    protocol: int
    src_ip: str
    sport: int
    dst_ip: str
    dport: int

    def __str__(self) -> str:
        names = {number: name for name, number in PROTOCOLS.items()}
        name = names.get(self.protocol, str(self.protocol))
        return f"{name} {self.src_ip}:{self.sport} -> {self.dst_ip}:{self.dport}"


def slot_of(flow: Flow, *, slots: int, basis: int = 0, build: HashBuild = "portable") -> int:
    """The slot (0..slots-1) that a flow takes in a group of `slots` buckets.

    All buckets have the same weight and are live. Raises BadInput for an address, port, protocol or
    number of slots that is not valid.
    """
    if slots < 16 or slots > 256 or slots & (slots - 1):
        raise BadInput(f"slots: must be a power of two from 16 to 256, is {slots}")
    rss = five_tuple_hash(flow, build=build)
    return dp_hash(rss, basis, build=build) & (slots - 1)


def five_tuple_hash(flow: Flow, *, build: HashBuild = "portable") -> int:
    """The 32-bit software "RSS" hash of a packet.

    It is what `flow_hash_5tuple(flow, 0)` of Open vSwitch returns on a little-endian CPU. Raises
    BadInput for an address, port or protocol that is not valid.
    """
    try:
        src, dst = ipaddress.ip_address(flow.src_ip), ipaddress.ip_address(flow.dst_ip)
    except ValueError as error:
        raise BadInput(str(error)) from None
    if src.version != dst.version:
        raise BadInput(f"{flow.src_ip} and {flow.dst_ip}: one is IPv4, the other IPv6")
    if not 0 <= flow.protocol <= 255:
        raise BadInput(f"protocol: must be 0..255, is {flow.protocol}")
    for port in (flow.sport, flow.dport):
        if not 0 <= port <= 65535:
            raise BadInput(f"port: must be 0..65535, is {port}")
    value = 0
    # Open vSwitch loads fields as they are in memory: a little-endian CPU reads network byte order.
    if src.version == 6:
        packed = src.packed + dst.packed
        for offset in range(0, 32, 8):
            value = _add64(value, int.from_bytes(packed[offset : offset + 8], "little"), build)
    else:
        value = _add(value, int.from_bytes(src.packed, "little"), build)
        value = _add(value, int.from_bytes(dst.packed, "little"), build)
    value = _add(value, flow.protocol, build)
    if flow.protocol in PROTOCOLS.values():
        ports = flow.sport.to_bytes(2, "big") + flow.dport.to_bytes(2, "big")
        value = _add(value, int.from_bytes(ports, "little"), build)
    return _finish(value, _FINISH_FIVE_TUPLE, build)


def dp_hash(rss_hash: int, basis: int = 0, *, build: HashBuild = "portable") -> int:
    """The hash that the datapath's hash action (algorithm L4) makes of an RSS hash.

    It is what `hash_int(rss, basis)` of Open vSwitch returns.
    """
    if build == "sse42":
        return _finish(_add64(0, (basis << 32) | rss_hash, build), 23, build)
    return _finish(_add(_add(rss_hash, 0, build), basis, build), 8, build)


# ---- lib/hash.h


def _add(value: int, data: int, build: HashBuild) -> int:
    if build == "sse42":
        return _crc32c(value, data, 4)
    if data:
        data = _rotate(data * 0xCC9E2D51 & _MASK32, 15)
        value ^= data * 0x1B873593 & _MASK32
    return (_rotate(value, 13) * 5 + 0xE6546B64) & _MASK32


def _add64(value: int, data: int, build: HashBuild) -> int:
    if build == "sse42":
        return _crc32c(value, data, 8)
    return _add(_add(value, data & _MASK32, build), data >> 32, build)


def _finish(value: int, final: int, build: HashBuild) -> int:
    if build == "sse42":
        value = _crc32c(value, final, 8) * 0x805204F3 & _MASK32
        return value ^ (value >> 16)
    value ^= final
    value = (value ^ (value >> 16)) * 0x85EBCA6B & _MASK32
    value = (value ^ (value >> 13)) * 0xC2B2AE35 & _MASK32
    return value ^ (value >> 16)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK32


def _crc32c(value: int, data: int, length: int) -> int:
    """The result of the CPU's crc32 instruction for `length` little-endian bytes of `data`."""
    return with_bytes(value, data.to_bytes(length, "little"))
