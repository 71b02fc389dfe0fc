# SPDX-License-Identifier: Apache-2.0
"""The messages that add, delete and read the rows of placed connections (Table.PLACED)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.codec import split_entries
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.pipeline.layout import (
    COOKIE_PLACED,
    COOKIE_PLACED_MASK,
    Table,
    path_of_register,
    path_register,
)
from ri2n_sdn.pipeline.placement import (
    FIN_TIMEOUT_S,
    IDLE_TIMEOUT_S,
    Connection,
    PlacedRow,
    cookie_of,
    path_of_cookie,
)
from ri2n_sdn.pipeline.priorities import Placed

__all__ = [
    "add_placed",
    "deciding_request",
    "deciding_row",
    "delete_placed",
    "placed_request",
    "read_placed",
]

_BASIC, _STATISTICS, _DURATION, _PACKETS = 0x8000, 0x8002, 0, 4
_APPLY, _SET_FIELD, _REG1 = 4, 25, struct.pack("!HBB", 1, 1 << 1, 4)
_ETH_DST, _IPV4_SRC, _IPV4_DST, _TCP_SRC, _TCP_DST, _IPV6_SRC, _IPV6_DST = 3, 11, 12, 13, 14, 26, 27


def add_placed(datapath: Any, connection: Connection, path: PathKey) -> Any:
    """An OFPFlowMod that places a connection on a path. The row ends by itself when idle."""
    return parser.OFPFlowMod(
        datapath,
        cookie=cookie_of(path),
        table_id=Table.PLACED,
        command=ofp.OFPFC_ADD,
        priority=Placed.BY_CONTROLLER.priority,
        idle_timeout=IDLE_TIMEOUT_S,
        match=parser.OFPMatch(**connection.match),
        instructions=[
            parser.OFPInstructionActions(
                ofp.OFPIT_APPLY_ACTIONS,
                [
                    parser.OFPActionSetField(reg1=path_register(*path)),
                    parser.NXActionFinTimeout(fin_idle_timeout=FIN_TIMEOUT_S, fin_hard_timeout=0),
                ],
            )
        ],
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
    )


def delete_placed(datapath: Any, connection: Connection) -> Any:
    """An OFPFlowMod that deletes the row of a placed connection."""
    return parser.OFPFlowMod(
        datapath,
        table_id=Table.PLACED,
        command=ofp.OFPFC_DELETE_STRICT,
        priority=Placed.BY_CONTROLLER.priority,
        match=parser.OFPMatch(**connection.match),
        instructions=[],
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
    )


def placed_request(channel: Channel) -> Any:
    """A request for all rows of placed connections that a switch has."""
    return parser.OFPFlowDescStatsRequest(
        channel.datapath,
        0,
        Table.PLACED,
        ofp.OFPP_ANY,
        ofp.OFPG_ANY,
        COOKIE_PLACED,
        COOKIE_PLACED_MASK,
        parser.OFPMatch(),
    )


def deciding_request(channel: Channel, connection: Connection) -> Any:
    """A request for the rows, placed or learned, that a switch has for one connection's packets."""
    return parser.OFPFlowDescStatsRequest(
        channel.datapath,
        0,
        Table.PLACED,
        ofp.OFPP_ANY,
        ofp.OFPG_ANY,
        0,
        0,
        parser.OFPMatch(**connection.match),
    )


def deciding_row(body: bytes) -> tuple[bool, PathKey] | None:
    """(whether it was placed, path) of the row in the reply that decides; None without rows.

    It is the row of the highest priority. Raises ValueError when the reply is malformed.
    """
    rows = []
    for entry in split_entries(body, 32):
        priority, cookie = struct.unpack_from("!6xH8xQ", entry)
        for register in _registers(entry):
            rows.append(
                (priority, cookie & COOKIE_PLACED_MASK == COOKIE_PLACED, path_of_register(register))
            )
    return max(rows)[1:] if rows else None


def _registers(entry: bytes) -> Iterator[int]:
    """The values that a row writes into reg1."""
    offset = 24
    for _ in ("match", "statistics"):
        if offset + 4 > len(entry):
            raise ValueError("flow description: it ends before its instructions")
        offset += (struct.unpack_from("!2xH", entry, offset)[0] + 7) // 8 * 8
    for kind, instruction in _typed(entry[offset:], 8):
        if kind == _APPLY:
            for action, body in _typed(instruction[8:], 8):
                if action == _SET_FIELD and body[4:8] == _REG1 and len(body) >= 12:
                    yield int.from_bytes(body[8:12], "big")


def _typed(raw: bytes, min_bytes: int) -> Iterator[tuple[int, bytes]]:
    """(type, bytes of the whole item) of each item in a list of instructions or actions."""
    offset = 0
    while offset < len(raw):
        if offset + min_bytes > len(raw):
            raise ValueError("flow description: an instruction or action is cut off")
        kind, length = struct.unpack_from("!HH", raw, offset)
        if length < min_bytes or offset + length > len(raw):
            raise ValueError("flow description: an instruction or action is longer than its list")
        yield kind, raw[offset : offset + length]
        offset += length


def read_placed(body: bytes) -> list[PlacedRow]:
    """The rows in an OFPMP_FLOW_DESC reply that match one connection; others are left out.

    Raises ValueError when the reply is malformed.
    """
    result = []
    for entry in split_entries(body, 32):
        cookie, match_length = struct.unpack_from("!Q2xH", entry, 16)
        begin = 24 + (match_length + 7) // 8 * 8
        if match_length < 4 or begin + 4 > len(entry):
            raise ValueError("flow description: match is longer than its entry")
        (length,) = struct.unpack_from("!2xH", entry, begin)
        if length < 4 or begin + length > len(entry):
            raise ValueError("flow description: statistics are longer than their entry")
        connection = _connection(_fields(entry[28 : 24 + match_length], _BASIC))
        statistics = _fields(entry[begin + 4 : begin + length], _STATISTICS)
        if connection is not None:
            seconds = int.from_bytes(statistics.get(_DURATION, b"")[:4], "big")
            packets = int.from_bytes(statistics.get(_PACKETS, b""), "big")
            result.append(PlacedRow(connection, path_of_cookie(cookie), float(seconds), packets))
    return result


def _fields(raw: bytes, oxm_class: int) -> dict[int, bytes]:
    """The bytes of all fields of one class, by their number.

    A masked field has its mask behind its value; the rows of placed connections have none.
    """
    fields, offset = {}, 0
    while offset + 4 <= len(raw):
        field_class, field, size = struct.unpack_from("!HBB", raw, offset)
        if offset + 4 + size > len(raw):
            raise ValueError("flow description: a field is longer than its list")
        if field_class == oxm_class:
            fields[field >> 1] = raw[offset + 4 : offset + 4 + size]
        offset += 4 + size
    return fields


def _connection(match: dict[int, bytes]) -> Connection | None:
    source, target = (
        match.get(_IPV4_SRC, match.get(_IPV6_SRC)),
        match.get(_IPV4_DST, match.get(_IPV6_DST)),
    )
    mac, ports = match.get(_ETH_DST), (match.get(_TCP_SRC), match.get(_TCP_DST))
    if source is None or target is None or mac is None or ports[0] is None or ports[1] is None:
        return None
    if (len(mac), len(ports[0]), len(ports[1])) != (6, 2, 2):
        raise ValueError("flow description: a MAC address or a port of another length")
    return Connection(
        str(ip_address(source)),
        int.from_bytes(ports[0], "big"),
        str(ip_address(target)),
        int.from_bytes(ports[1], "big"),
        mac.hex(":"),
    )
