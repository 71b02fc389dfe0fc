"""What `host-up` wrote into a bridge for the time without a controller:

the addresses of and behind the host.
"""

from __future__ import annotations

import struct
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.codec import split_entries
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.fabric.model import Guest
from ri2n_sdn.pipeline.layout import COOKIE_MASK, COOKIE_STARTUP, STARTUP_RECEIVE

__all__ = ["MAX_EXTRA_MACS", "read_addresses", "startup_request"]

MAX_EXTRA_MACS = 256
"""So many are taken from a host: each one is a row, and a host may claim anything."""

_PRIORITY = 100
_ETH_DST = 0x80000606  # one whole address; with a mask it is another header
_OUTPUT = 0x00000010  # type and length of an output action, which is the last one of such a row


def startup_request(channel: Channel) -> Any:
    """A request for the rows of host-up that a bridge has for what arrives."""
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
    """The MAC addresses that the rows in the reply deliver, and the port of each: LOCAL is the
    host's own.

    ValueError when malformed.
    """
    result = []
    for entry in split_entries(body, 32):
        table, priority, match_length, header = struct.unpack_from("!4xBxH18xHI", entry)
        if (table, priority, match_length, header) == (
            STARTUP_RECEIVE,
            _PRIORITY,
            14,
            _ETH_DST,
        ) and len(entry) >= 56:
            action, port = struct.unpack_from("!II", entry, len(entry) - 16)
            if action == _OUTPUT:
                result.append(Guest(port, entry[32:38].hex(":")))
    return result
