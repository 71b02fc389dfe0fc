# SPDX-License-Identifier: Apache-2.0
"""The rows in which a host tells its jobs and addresses, and the frame that says: look at them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import islice
from typing import NamedTuple

from ri2n_sdn.apps.channel import Channel
from ri2n_sdn.apps.codec import (
    Entry,
    flows,
    mac_bytes,
    read_entries,
    read_fields,
    read_flow_counters,
)
from ri2n_sdn.contract.limits import MAX_ADDRESSES, MAX_CLASS
from ri2n_sdn.pipeline.layout import (
    COOKIE_ADDRESS,
    COOKIE_DECLARED,
    COOKIE_FAILED,
    COOKIE_SAID_MASK,
    ETH_RI2N,
    JOBS_CHANGED,
    JOBS_CHANGED_TO,
    Table,
)

__all__ = ["Reading", "Said", "is_jobs_changed", "read_said"]

_EXPERIMENTER, _NICIRA, _NOTE = 0xFFFF, 0x2320, 8
# So many rows about orders that a host cannot carry out are read, as many as it has orders.
_MAX_FAILED = 64
_MAX_ROWS = MAX_CLASS + _MAX_FAILED + MAX_ADDRESSES
# The numbers of the fields ipv4_src and ipv6_src, and the length of each without a mask.
_SOURCES = {11: 4, 26: 16}
_CHANGED = mac_bytes(JOBS_CHANGED_TO), struct.pack("!H", ETH_RI2N) + JOBS_CHANGED


# Asks for the rows in which a host declares jobs, says which orders it cannot do, and which IP
# addresses it has.
_SAID = flows(Table.JOB_DECLARATIONS, COOKIE_DECLARED << 48, COOKIE_SAID_MASK)


class Said(NamedTuple):
    """What a host says: texts that declare jobs, texts about orders that it cannot carry out, and
    the IP addresses of its bridge's own device, IPv4 first.
    """

    declared: list[bytes]
    failed: list[bytes]
    addresses: tuple[str, ...]


def read_said(body: bytes) -> Said:
    """What a host says in a reply.

    The reply has at most MAX_CLASS declarations, _MAX_FAILED failures and MAX_ADDRESSES addresses.
    A host has no more of them, so further rows are a mistake or an attack, and are not looked at.
    Raises ValueError when the reply is malformed.

    A host tells its addresses itself, although the controller could take them from the ARP and
    neighbour discovery that the host sends. Such packets say nothing of a host that is silent, and
    each controller that starts would wait for them. The rows are there at once, end with the
    address (host-watch keeps them as the addresses are), and nobody but the host can write them.
    """
    declared: list[bytes] = []
    failed: list[bytes] = []
    addresses: set[bytes] = set()
    for entry in islice(read_entries(body), _MAX_ROWS):
        kind = entry.cookie >> 48
        if kind == COOKIE_ADDRESS:
            addresses.update(_addresses(entry))
        else:
            (failed if kind == COOKIE_FAILED else declared).extend(_notes(entry))
    in_order = sorted(addresses, key=lambda packed: (len(packed), packed))
    shown = tuple(str(ip_address(packed)) for packed in in_order)
    return Said(declared[:MAX_CLASS], failed[:_MAX_FAILED], shown[:MAX_ADDRESSES])


def _addresses(entry: Entry) -> Iterator[bytes]:
    """The address that a row names as a source. A row for many addresses names none."""
    for number, value in read_fields(entry.match).items():
        if len(value) == _SOURCES.get(number):
            yield value


def _notes(entry: Entry) -> Iterator[bytes]:
    """The texts that a row holds."""
    for action, raw in entry.actions():
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

    def result(self) -> tuple[Said, frozenset[int]]:
        """What the host says, and the cookies of gone messages.

        Raises whatever a request or a malformed reply raises.
        """
        said = read_said(self.declared.result(timeout=0))
        if self.messages is None:
            return said, frozenset()
        there = {row.cookie for row in read_flow_counters(self.messages.result(timeout=0))}
        return said, self.believed - there


def is_jobs_changed(frame: bytes) -> bool:
    """Whether a frame from a host's own port says that its jobs have changed."""
    target, rest = _CHANGED
    return frame[:6] == target and frame[12 : 12 + len(rest)] == rest
