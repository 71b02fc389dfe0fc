# SPDX-License-Identifier: Apache-2.0
"""Answers of servers and replies of switches about placed connections, also damaged ones."""

from __future__ import annotations

import struct
from dataclasses import replace
from ipaddress import ip_address

from hypothesis import strategies as st

from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.pipeline.layout import Table
from ri2n_sdn.pipeline.placement import Connection, cookie_of

__all__ = ["DAMAGE", "FOUR", "IPV6", "damaged", "field", "reply", "stands_in", "syn_ack"]


def syn_ack(
    source: str, target: str, ports: tuple[int, int], *, flags: int = 0x12, options: int = 0
) -> bytes:
    segment = struct.pack("!HHIIBBHHH", *ports, 1, 2, 5 << 4, flags, 1000, 0, 0)
    addresses = ip_address(source).packed + ip_address(target).packed
    if ":" in source:
        head = struct.pack("!IHBB", 6 << 28, len(segment), 6, 64) + addresses
        ether_type = 0x86DD
    else:
        length = 20 + options + len(segment)
        head = (
            struct.pack("!BBHHHBBH", 0x45 + options // 4, 0, length, 0, 0, 64, 6, 0)
            + addresses
            + bytes(options)
        )
        ether_type = 0x0800
    return (
        bytes.fromhex("020000000002020000000001") + struct.pack("!H", ether_type) + head + segment
    )


DAMAGE = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4)


def damaged(data: bytes, damage: list[tuple[int, int]]) -> bytes:
    """`data` with other bytes at some places."""
    result = bytearray(data)
    for place, byte in damage:
        result[place % len(result)] = byte
    return bytes(result)


def stands_in(data: bytes, connection: Connection) -> bool:
    """Whether everything that was read of a connection stands in the frame."""
    addresses = [ip_address(text).packed for text in (connection.source, connection.target)]
    ports = [struct.pack("!H", port) for port in (connection.source_port, connection.target_port)]
    return all(
        part in data
        for part in (*addresses, *ports, bytes.fromhex(connection.target_mac.replace(":", "")))
    )


def field(oxm_class: int, number: int, value: bytes) -> bytes:
    return struct.pack("!HBB", oxm_class, number << 1, len(value)) + value


def reply(
    connection: Connection,
    *,
    path: PathKey = (2, 3, 102),
    packets: int = 7,
    without: int | None = None,
) -> bytes:
    """An entry of OFPMP_FLOW_DESC as OpenFlow 1.5 has it.

    It has eth_dst, addresses, ports, duration and packets.
    """
    source, target = (26, 27) if ":" in connection.source else (11, 12)
    values = {
        3: bytes.fromhex(connection.target_mac.replace(":", "")),
        source: ip_address(connection.source).packed,
        target: ip_address(connection.target).packed,
        13: struct.pack("!H", connection.source_port),
        14: struct.pack("!H", connection.target_port),
    }
    oxm = b"".join(
        field(0x8000, number, value) for number, value in values.items() if number != without
    )
    match = struct.pack("!HH", 1, 4 + len(oxm)) + oxm
    match += bytes(-len(match) % 8)
    statistics = field(0x8002, 0, struct.pack("!II", 61, 5)) + field(
        0x8002, 4, struct.pack("!Q", packets)
    )
    head = struct.pack("!2xBxHHHHHQ", Table.PLACED, 20, 900, 0, 0, 0, cookie_of(path))
    entry = head + match + struct.pack("!2xH", 4 + len(statistics)) + statistics
    return struct.pack("!H", 2 + len(entry)) + entry


FOUR = Connection("10.0.0.1", 80, "10.0.0.2", 5000, "02:00:00:00:00:02")
IPV6 = replace(FOUR, source="fd00::1", target="fd00::2")
