# SPDX-License-Identifier: Apache-2.0
"""The rows that `host-up` wrote into a bridge: they tell a host's addresses and those behind it."""

from __future__ import annotations

import struct
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.codec import split_entries
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.fabric.model import Guest
from ri2n_sdn.pipeline.layout import COOKIE_MASK, COOKIE_STARTUP, STARTUP_RECEIVE
from ri2n_sdn.pipeline.priorities import STARTUP

__all__ = ["MAX_EXTRA_MACS", "read_addresses", "startup_request"]

MAX_EXTRA_MACS = 256
"""At most so many addresses are taken from a host: each needs a row, and a host may claim any."""

# The header of a match on one whole address; a match with a mask has another header.
_ETH_DST = 0x80000606
# Type and length of an output action, which is the last action of such a row.
_OUTPUT = 0x00000010


def startup_request(channel: Channel) -> Any:
    """A request for the rows of `host-up` for frames that arrive."""
    return parser.OFPFlowDescStatsRequest(
        channel.datapath,
        0,
        STARTUP_RECEIVE,
        ofp.OFPP_ANY,
        ofp.OFPG_ANY,
        COOKIE_STARTUP << 48,
        COOKIE_MASK,
        parser.OFPMatch(),
    )


def read_addresses(body: bytes) -> list[Guest]:
    """The MAC address and the port of each row in the reply; LOCAL is the host's own port.

    Raises ValueError when the reply is malformed.
    """
    result = []
    for entry in split_entries(body, 32):
        head = struct.unpack_from("!4xBxH18xHI", entry)
        if head == (*STARTUP, 14, _ETH_DST) and len(entry) >= 56:
            action, port = struct.unpack_from("!II", entry, len(entry) - 16)
            if action == _OUTPUT:
                result.append(Guest(port, entry[32:38].hex(":")))
    return result
