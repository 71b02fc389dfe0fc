# SPDX-License-Identifier: Apache-2.0
"""The rows in which a host speaks of its jobs, and the frame that says that they have changed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.codec import mac_bytes, read_entries, read_flow_counters
from ri2n_sdn.apps.flow_messages import flow_request
from ri2n_sdn.pipeline.layout import (
    COOKIE_DECLARED,
    COOKIE_FAILED,
    COOKIE_SAID_MASK,
    ETH_RI2N,
    JOBS_CHANGED,
    JOBS_CHANGED_TO,
    MAX_CLASS,
    Table,
)

__all__ = ["Reading", "declared_request", "is_jobs_changed", "read_declared", "read_failed"]

_EXPERIMENTER, _NICIRA, _NOTE = 0xFFFF, 0x2320, 8
# So many rows about orders that a host cannot carry out are read, as many as it has orders.
_MAX_FAILED = 64
_CHANGED = mac_bytes(JOBS_CHANGED_TO), struct.pack("!H", ETH_RI2N) + JOBS_CHANGED


def declared_request(channel: Channel) -> Any:
    """A request for the rows in which a host declares jobs, or says which orders it cannot do."""
    mask = COOKIE_SAID_MASK
    return flow_request(channel, Table.JOB_DECLARATIONS, COOKIE_DECLARED << 48, mask)


def read_declared(bodies: Iterable[bytes]) -> list[bytes]:
    """The texts of the first MAX_CLASS rows in a reply that declare a job.

    A host has no more classes, so more rows are a mistake or an attack, and are not looked at.
    Raises ValueError when the reply is malformed.
    """
    declared = (text for cookie, text in _notes(bodies) if cookie != COOKIE_FAILED)
    return list(islice(declared, MAX_CLASS))


def read_failed(bodies: Iterable[bytes]) -> list[bytes]:
    """The texts of the first rows in a reply about orders that the host cannot carry out.

    Raises ValueError when the reply is malformed.
    """
    failed = (text for cookie, text in _notes(bodies) if cookie == COOKIE_FAILED)
    return list(islice(failed, _MAX_FAILED))


def _notes(bodies: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The upper 16 bits of the cookie of each row that holds a text, and the text.

    There may be no more than of both kinds together; further rows are not looked at.
    """
    return islice((note for body in bodies for note in _notes_in(body)), MAX_CLASS + _MAX_FAILED)


def _notes_in(body: bytes) -> Iterator[tuple[int, bytes]]:
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

    def result(self) -> tuple[list[bytes], list[bytes], frozenset[int]]:
        """The texts that declare jobs, those of failed orders, and the cookies of gone messages.

        Raises whatever a request or a malformed reply raises.
        """
        bodies = list(_bodies(self.declared))
        declared, failed = read_declared(bodies), read_failed(bodies)
        if self.messages is None:
            return declared, failed, frozenset()
        there = {row.cookie for body in _bodies(self.messages) for row in read_flow_counters(body)}
        return declared, failed, self.believed - there


def _bodies(future: Future[list[Any]]) -> Iterator[bytes]:
    return (raw.data for part in future.result(timeout=0) for raw in part.body)


def is_jobs_changed(frame: bytes) -> bool:
    """Whether a frame from a host's own port says that its jobs have changed."""
    target, rest = _CHANGED
    return frame[:6] == target and frame[12 : 12 + len(rest)] == rest
