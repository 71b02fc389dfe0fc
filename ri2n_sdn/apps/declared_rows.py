# SPDX-License-Identifier: Apache-2.0
"""The rows in which a host speaks of its jobs, and the frame that says that they have changed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.codec import flows, mac_bytes, read_entries, read_flow_counters
from ri2n_sdn.contract.limits import MAX_CLASS
from ri2n_sdn.pipeline.layout import (
    COOKIE_DECLARED,
    COOKIE_FAILED,
    COOKIE_SAID_MASK,
    ETH_RI2N,
    JOBS_CHANGED,
    JOBS_CHANGED_TO,
    Table,
)

__all__ = ["Reading", "is_jobs_changed", "read_said"]

_EXPERIMENTER, _NICIRA, _NOTE = 0xFFFF, 0x2320, 8
# So many rows about orders that a host cannot carry out are read, as many as it has orders.
_MAX_FAILED = 64
_CHANGED = mac_bytes(JOBS_CHANGED_TO), struct.pack("!H", ETH_RI2N) + JOBS_CHANGED


# Asks for the rows in which a host declares jobs, or says which orders it cannot do.
_SAID = flows(Table.JOB_DECLARATIONS, COOKIE_DECLARED << 48, COOKIE_SAID_MASK)


def read_said(body: bytes) -> tuple[list[bytes], list[bytes]]:
    """The texts in a reply that declare jobs, and those about orders that cannot be carried out.

    They are the first MAX_CLASS and the first _MAX_FAILED. A host has no more classes and orders,
    so more rows than both together are a mistake or an attack, and are not looked at. Raises
    ValueError when the reply is malformed.
    """
    notes = list(islice(_notes(body), MAX_CLASS + _MAX_FAILED))
    declared = [text for cookie, text in notes if cookie != COOKIE_FAILED]
    failed = [text for cookie, text in notes if cookie == COOKIE_FAILED]
    return declared[:MAX_CLASS], failed[:_MAX_FAILED]


def _notes(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The upper 16 bits of the cookie of each row that holds a text, and the text."""
    for entry in read_entries(body):
        for action, raw in entry.actions():
            if action == _EXPERIMENTER and len(raw) > 10:
                vendor, subtype = struct.unpack_from("!IH", raw, 4)
                if (vendor, subtype) == (_NICIRA, _NOTE):
                    yield entry.cookie >> 48, raw[10:].rstrip(b"\0")


@dataclass(frozen=True)
class Reading:
    """The open requests for a host's declarations, and for its messages where it has some.

    `believed` are the cookies of the messages that its bridge held for all that was known. A late
    answer is used all the same.
    """

    channel: Channel
    believed: frozenset[int]
    declared: Future[bytes]
    messages: Future[bytes] | None

    @classmethod
    def begin(cls, channel: Channel, believed: frozenset[int]) -> Reading:
        """Ask a host."""
        declared = channel.request(_SAID)
        messages = channel.request(flows(Table.JOB_ANSWERS)) if believed else None
        return cls(channel, believed, declared, messages)

    @property
    def futures(self) -> tuple[Future[bytes], ...]:
        """The open requests."""
        return (self.declared,) if self.messages is None else (self.declared, self.messages)

    @property
    def done(self) -> bool:
        """Whether each request has its answer or has failed."""
        return all(future.done() for future in self.futures)

    def result(self) -> tuple[list[bytes], list[bytes], frozenset[int]]:
        """The texts that declare jobs, those of failed orders, and the cookies of gone messages.

        Raises whatever a request or a malformed reply raises.
        """
        declared, failed = read_said(self.declared.result(timeout=0))
        if self.messages is None:
            return declared, failed, frozenset()
        there = {row.cookie for row in read_flow_counters(self.messages.result(timeout=0))}
        return declared, failed, self.believed - there


def is_jobs_changed(frame: bytes) -> bool:
    """Whether a frame from a host's own port says that its jobs have changed."""
    target, rest = _CHANGED
    return frame[:6] == target and frame[12 : 12 + len(rest)] == rest
