# SPDX-License-Identifier: Apache-2.0
"""The rows that `host-up` wrote into a bridge: they tell a host's addresses and those behind it."""

from __future__ import annotations

import struct

from ri2n_sdn.apps.codec import HEADERS, flows, read_entries
from ri2n_sdn.fabric.model import Guest
from ri2n_sdn.pipeline.layout import COOKIE_STARTUP, STARTUP_RECEIVE
from ri2n_sdn.pipeline.priorities import STARTUP

__all__ = ["MAX_EXTRA_MACS", "STARTUP_ROWS", "read_addresses"]

STARTUP_ROWS = flows(STARTUP_RECEIVE, COOKIE_STARTUP << 48)
"""Asks for the rows of `host-up` for frames that arrive."""

MAX_EXTRA_MACS = 256
"""At most so many addresses are taken from a host: each needs a row, and a host may claim any."""

# Type and length of an output action, which is the last action of such a row.
_OUTPUT = 0x00000010


def read_addresses(body: bytes) -> list[Guest]:
    """The MAC address and the port of each row in the reply; LOCAL is the host's own port.

    Raises ValueError when the reply is malformed.
    """
    result = []
    # A match with a mask has another header.
    whole_address = HEADERS["eth_dst"].to_bytes(4, "big")
    for entry in read_entries(body):
        address, end = entry.match[4:], entry.instructions[-16:]
        if (entry.table, entry.priority) == STARTUP and entry.match[:4] == whole_address:
            action, port = struct.unpack_from("!II", end.rjust(16, b"\0"))
            if action == _OUTPUT and len(address) == 6:
                result.append(Guest(port, address.hex(":")))
    return result
