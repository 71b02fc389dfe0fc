# SPDX-License-Identifier: Apache-2.0
"""Compute which slot a flow takes that passes beside the bridge, as the programs of `fast/` do.

docs/decisions/14-fast-path.md defines the hash. Unlike that of a kernel datapath, it depends on
nothing but the packet.
"""

from __future__ import annotations

from ipaddress import ip_address

from ri2n_sdn.errors import BadInput
from ri2n_sdn.pipeline.dphash import PROTOCOLS, Flow

__all__ = ["FAST_SLOTS", "fast_hash", "fast_slot_of"]

FAST_SLOTS = 64
"""A peer's table in the programs has so many slots."""

_FACTOR = 0x9E3779B97F4A7C15
_MASK64 = (1 << 64) - 1
_WITH_PORTS = frozenset(PROTOCOLS[name] for name in ("tcp", "udp", "sctp"))


def fast_hash(flow: Flow) -> int:
    """The 64-bit hash of a flow. Raises BadInput for an address that is not valid."""
    try:
        ends = ip_address(flow.src_ip), ip_address(flow.dst_ip)
    except ValueError as error:
        raise BadInput(str(error)) from None
    ports = flow.sport << 16 | flow.dport if flow.protocol in _WITH_PORTS else 0
    addresses = b"".join(end.packed for end in ends)
    words = [int.from_bytes(addresses[at : at + 4], "big") for at in range(0, len(addresses), 4)]
    value = 0
    for word in (*words, ports, flow.protocol):
        value = (value ^ word) * _FACTOR & _MASK64
        value ^= value >> 29
    return value


def fast_slot_of(flow: Flow) -> int:
    """The slot (0..63) that a flow takes beside the bridge. Raises BadInput as `fast_hash` does."""
    return fast_hash(flow) >> 58
