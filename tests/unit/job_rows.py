# SPDX-License-Identifier: Apache-2.0
"""Rows in which hosts tell jobs and addresses, and jobs without a server of the store."""

from __future__ import annotations

import struct
from ipaddress import ip_address
from typing import Any

from ri2n_sdn.apps.codec import HEADERS, padded
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.jobs.history import Record
from ri2n_sdn.jobs.model import Reservation
from ri2n_sdn.jobs.moves import Move
from ri2n_sdn.jobs.rights import Right
from ri2n_sdn.store.rows import Change, JobRow, LanesRow, PolicyRow, Put, State

__all__ = ["FakeStore", "address_row", "described"]


def described(*notes: bytes, cookie: int = 0x524A) -> bytes:
    """Rows with these notes, as a switch describes them. `cookie` is the upper part of theirs."""
    body = b""
    for note in notes:
        action = struct.pack("!HHIH", 0xFFFF, 10 + len(note), 0x2320, 8) + note
        action += bytes(-len(action) % 8)
        action = struct.pack("!HH", 0xFFFF, len(action)) + action[4:]
        rest = struct.pack("!HH4x", 1, 4) + struct.pack("!HH4x", 0, 4)
        rest += struct.pack("!HH4x", 4, 8 + len(action)) + action
        body += struct.pack("!HxxBxHHHHHQ", 24 + len(rest), 248, 1, 0, 0, 0, 0, cookie << 48) + rest
    return body


def address_row(
    address: str, field: str | None = None, mask: str | None = None, cookie: int = 0x524C
) -> bytes:
    """The row with an address as its source (or another field), as a switch describes it."""
    value = ip_address(address).packed
    header = HEADERS[field or ("ipv4_src" if len(value) == 4 else "ipv6_src")]
    if mask is not None:
        value += ip_address(mask).packed
        header += 0x100 + len(value) // 2
    match = struct.pack("!IHI", HEADERS["eth_type"], 0, header) + value
    length = 4 + len(match)
    rest = struct.pack("!HH", 1, length) + match + bytes(padded(length) - length)
    rest += struct.pack("!HH4x", 0, 4)
    return struct.pack("!HxxBxHHHHHQ", 24 + len(rest), 248, 1, 0, 0, 0, 0, cookie << 48) + rest


class FakeStore:
    """A store that keeps rows by class and key, and that may refuse."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Any] = {}
        self.writes = 0
        self.refuses = False
        self.active = True

    def write(self, *changes: Change) -> None:
        if self.refuses:
            raise NotAvailable("the store is away")
        self.writes += 1
        for change in changes:
            row = change.row
            names = [getattr(row, field, None) for field in ("id", "user", "name")]
            key: tuple[Any, ...] = (type(row), next(name for name in names if name is not None))
            if isinstance(row, Record):
                key += (row.begin_s, row.end_s)
            if isinstance(change, Put):
                self.rows[key] = row
            else:
                self.rows.pop(key, None)

    def state(self) -> State:
        def of(kind: type) -> list[Any]:
            return [row for row in self.rows.values() if isinstance(row, kind)]

        return State(
            identity="an identity",
            jobs={row.id: row for row in of(JobRow)},
            reservations={row.id: row for row in of(Reservation)},
            rights={row.user: row for row in of(Right)},
            lanes={row.id: row for row in of(LanesRow)},
            moves={row.id: row for row in of(Move)},
            policies={row.name: row for row in of(PolicyRow)},
            history=tuple(of(Record)),
        )
