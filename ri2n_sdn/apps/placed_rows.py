# SPDX-License-Identifier: Apache-2.0
"""The messages that add, delete and read the rows of placed connections (Table.PLACED)."""

from __future__ import annotations

from ipaddress import ip_address

from ri2n_sdn.apps.codec import (
    HEADERS,
    Question,
    action_bytes,
    fin_timeout,
    flow_mod,
    flows,
    read_entries,
    read_fields,
)
from ri2n_sdn.apps.openflow import ofp
from ri2n_sdn.fabric.model import PathKey
from ri2n_sdn.pipeline.layout import (
    COOKIE_PLACED,
    COOKIE_PLACED_MASK,
    Table,
    path_of_register,
    path_register,
)
from ri2n_sdn.pipeline.messages import SetField
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
    "PLACED_ROWS",
    "add_placed",
    "deciding_row",
    "deciding_rows",
    "delete_placed",
    "read_placed",
]

PLACED_ROWS = flows(Table.PLACED, COOKIE_PLACED, COOKIE_PLACED_MASK)
"""Asks for all rows of placed connections that a switch has."""

_STATISTICS, _DURATION, _PACKETS = 0x8002, 0, 4
_SET_FIELD, _REG1 = 25, HEADERS["reg1"].to_bytes(4, "big")
_ETH_DST, _IPV4_SRC, _IPV4_DST, _TCP_SRC, _TCP_DST, _IPV6_SRC, _IPV6_DST = 3, 11, 12, 13, 14, 26, 27


def add_placed(connection: Connection, path: PathKey, xid: int) -> bytes:
    """The message that places a connection on a path. The row ends by itself when idle."""
    return flow_mod(
        ofp.OFPFC_ADD,
        Placed.BY_CONTROLLER,
        connection.match.items(),
        action_bytes(SetField("reg1", path_register(*path))) + fin_timeout(FIN_TIMEOUT_S),
        xid,
        cookie=cookie_of(path),
        idle_timeout_s=IDLE_TIMEOUT_S,
    )


def delete_placed(connection: Connection, xid: int) -> bytes:
    """The message that deletes the row of a placed connection."""
    match = connection.match.items()
    return flow_mod(ofp.OFPFC_DELETE_STRICT, Placed.BY_CONTROLLER, match, b"", xid)


def deciding_rows(connection: Connection) -> Question:
    """Asks for the rows, placed or learned, that a switch has for one connection's packets."""
    return flows(Table.PLACED, 0, 0, connection.match)


def deciding_row(body: bytes) -> tuple[bool, PathKey] | None:
    """(whether it was placed, path) of the row in the reply that decides; None without rows.

    It is the row of the highest priority. Raises ValueError when the reply is malformed.
    """
    rows = [
        (
            entry.priority,
            entry.cookie & COOKIE_PLACED_MASK == COOKIE_PLACED,
            path_of_register(int.from_bytes(action[8:12], "big")),
        )
        for entry in read_entries(body)
        for kind, action in entry.actions()
        if kind == _SET_FIELD and action[4:8] == _REG1 and len(action) >= 12
    ]
    return max(rows)[1:] if rows else None


def read_placed(body: bytes) -> list[PlacedRow]:
    """The rows in an OFPMP_FLOW_DESC reply that match one connection; others are left out.

    Raises ValueError when the reply is malformed.
    """
    result = []
    for entry in read_entries(body):
        connection = _connection(read_fields(entry.match))
        statistics = read_fields(entry.statistics, _STATISTICS)
        if connection is not None:
            seconds = int.from_bytes(statistics.get(_DURATION, b"")[:4], "big")
            packets = int.from_bytes(statistics.get(_PACKETS, b""), "big")
            path = path_of_cookie(entry.cookie)
            result.append(PlacedRow(connection, path, float(seconds), packets))
    return result


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
