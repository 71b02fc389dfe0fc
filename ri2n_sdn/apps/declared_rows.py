"""The rows by which a host declares its jobs, and the frame that says that they have changed."""

from __future__ import annotations

import struct
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.codec import mac_bytes, split_entries, type_lengths
from ri2n_sdn.apps.openflow import ofp, parser
from ri2n_sdn.pipeline.layout import (
    COOKIE_DECLARED,
    COOKIE_MASK,
    ETH_RI2N,
    JOBS_CHANGED,
    JOBS_CHANGED_TO,
    MAX_CLASS,
    Table,
)

__all__ = ["declared_request", "is_jobs_changed", "read_declared"]

_APPLY, _EXPERIMENTER, _NICIRA, _NOTE = 4, 0xFFFF, 0x2320, 8
_CHANGED = mac_bytes(JOBS_CHANGED_TO), struct.pack("!H", ETH_RI2N) + JOBS_CHANGED


def declared_request(channel: Channel) -> Any:
    """A request for the rows by which a host declares its jobs."""
    return parser.OFPFlowDescStatsRequest(
        channel.datapath,
        0,
        Table.JOB_DECLARATIONS,
        ofp.OFPP_ANY,
        ofp.OFPG_ANY,
        COOKIE_DECLARED << 48,
        COOKIE_MASK,
        parser.OFPMatch(),
    )


def read_declared(body: bytes) -> list[bytes]:
    """The texts of the first MAX_CLASS rows in the reply that hold one.

    Raises ValueError when the reply is malformed.
    """
    texts = []
    for entry in split_entries(body, 32):
        offset = 24
        for _ in ("match", "statistics"):
            if offset + 4 > len(entry):
                raise ValueError("flow description: it ends before its instructions")
            offset += (struct.unpack_from("!2xH", entry, offset)[0] + 7) // 8 * 8
        for kind, instruction in type_lengths(entry[offset:]):
            for action, raw in type_lengths(instruction[8:]) if kind == _APPLY else ():
                if action == _EXPERIMENTER and len(raw) > 10:
                    vendor, subtype = struct.unpack_from("!IH", raw, 4)
                    if (vendor, subtype) == (_NICIRA, _NOTE):
                        texts.append(raw[10:].rstrip(b"\0"))
    return texts[:MAX_CLASS]


def is_jobs_changed(frame: bytes) -> bool:
    """Whether a frame from a host's own port says that its jobs have changed."""
    target, rest = _CHANGED
    return frame[:6] == target and frame[12 : 12 + len(rest)] == rest
