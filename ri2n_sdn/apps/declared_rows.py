"""The rows by which a host declares its jobs, and the frame that says that they have changed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.codec import mac_bytes, read_flow_counters, split_entries, type_lengths
from ri2n_sdn.apps.flow_messages import flow_request
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

__all__ = ["Reading", "declared_request", "is_jobs_changed", "read_declared"]

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


def read_declared(bodies: Iterable[bytes]) -> list[bytes]:
    """The texts of the first MAX_CLASS rows in a reply that hold one.

    A host has no more classes, so more rows are a mistake or an attack, and are not looked at.
    Raises ValueError when the reply is malformed.
    """
    return list(islice((text for body in bodies for text in _texts(body)), MAX_CLASS))


def _texts(body: bytes) -> Iterator[bytes]:
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
                        yield raw[10:].rstrip(b"\0")


@dataclass(frozen=True)
class Reading:
    """The open requests for a host's declarations, and for its messages where it has some.

    `believed` are the cookies of the messages that its bridge held for all that was known. A late
    answer is used all the same.
    """

    channel: Channel
    believed: frozenset[int]
    declared: Future[list[Any]]
    messages: Future[list[Any]] | None

    @classmethod
    def begin(cls, channel: Channel, believed: frozenset[int]) -> Reading:
        """Ask a host."""
        declared = channel.request(declared_request(channel))
        messages = channel.request(flow_request(channel, Table.JOB_ANSWERS)) if believed else None
        return cls(channel, believed, declared, messages)

    @property
    def futures(self) -> tuple[Future[list[Any]], ...]:
        """The open requests."""
        return (self.declared,) if self.messages is None else (self.declared, self.messages)

    @property
    def done(self) -> bool:
        """Whether each request has its answer or has failed."""
        return all(future.done() for future in self.futures)

    def result(self) -> tuple[list[bytes], frozenset[int]]:
        """The texts that are declared, and the cookies of the messages that are gone.

        Raises whatever a request or a malformed reply raises.
        """
        texts = read_declared(_bodies(self.declared))
        if self.messages is None:
            return texts, frozenset()
        there = {row.cookie for body in _bodies(self.messages) for row in read_flow_counters(body)}
        return texts, self.believed - there


def _bodies(future: Future[list[Any]]) -> Iterator[bytes]:
    return (raw.data for part in future.result(timeout=0) for raw in part.body)


def is_jobs_changed(frame: bytes) -> bool:
    """Whether a frame from a host's own port says that its jobs have changed."""
    target, rest = _CHANGED
    return frame[:6] == target and frame[12 : 12 + len(rest)] == rest
