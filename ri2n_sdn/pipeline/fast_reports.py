# SPDX-License-Identifier: Apache-2.0
"""Reports of `ri2n-fast` to the controller: what passed beside the bridge, and who may pass there.

docs/wire-format.md describes the frames. A host may be hostile, so every byte is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from ri2n_sdn.contract.choices import FastFilter, FastOrder, FastPeer, FastState
from ri2n_sdn.pipeline.crc32c import crc32c
from ri2n_sdn.pipeline.layout import ETH_STRIPED, Table
from ri2n_sdn.pipeline.messages import Flow

__all__ = [
    "MAX_COUNTS",
    "MAX_SLOTS",
    "MAX_STATES",
    "CountsReport",
    "FastCount",
    "FastRow",
    "FastSlots",
    "Fault",
    "MalformedReport",
    "PeerState",
    "SlotsReport",
    "StateReport",
    "decode",
    "is_fast_report",
    "row_of",
]

MAX_COUNTS, MAX_STATES, MAX_SLOTS = 40, 160, 2
"""So many records a frame has at most, of counts, of peers' states and of peers' slots."""

_TO_CONTROLLER = bytes(6)
_VERSION, _COUNTS, _STATE, _SLOTS = 1, 1, 2, 3
_MAX_PARTS = 1024
# At 4 Tbit/s, 2^62 bytes take three months.
_MAX_COUNT = 1 << 62
_MAX_VLAN = 4094
_MAX_PORT = 1023
_HEAD = Struct("!6s6sHBBHHHQQ")
_ABOUT_STATE = Struct("!BBBBIQ")
_COUNT = Struct("!BBHI6sHQQ")
_PEER = Struct("!6sBB")
_SLOTS_OF_PEER = Struct("!6sH64Q")
_CHECKSUM = Struct("!I")
_CHECKED_FROM = 14

_Word = TypeVar("_Word", bound=str)

_PROGRAMS: tuple[FastState, ...] = ("off", "in_force", "refused", "no_device")
_FILTERS: tuple[FastFilter, ...] = ("not_needed", "in_force", "missing")
_ORDERS: tuple[FastOrder, ...] = ("none", "ready")
_PEERS: tuple[FastPeer, ...] = (
    *("carried", "striped", "undecided", "unsupported", "too_many", "striped_tcp"),
)


class Fault(Enum):
    """What is wrong with a frame that is no report; the value is the counter's name."""

    LENGTH = "dropped_fast_report_length"
    CHECKSUM = "dropped_fast_report_checksum"
    UNKNOWN = "dropped_fast_report_unknown"
    VALUE = "dropped_fast_report_value"


class MalformedReport(ValueError):
    """A frame that is no report, and why it is none."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(f"fast report: {text}")
        self.fault = fault


class FastRow(NamedTuple):
    """A row of the bridge, as reports name it.

    In table 30, `number` is the path (`layout.path_register`), `mac` the peer's own address and
    `vlan` 0. In table 3, `number` is the port, `mac` the address of the peer's NIC, and `vlan` the
    VLAN ID with which frames came in (0: no tag).
    """

    table: int
    number: int
    mac: str
    vlan: int


class FastCount(NamedTuple):
    """What passed beside the bridge that the row would have counted, since the epoch began."""

    row: FastRow
    packets: int
    bytes: int


class FastSlots(NamedTuple):
    """The bytes that passed beside the bridge to a peer, by slot, since the epoch began."""

    mac: str
    bytes: tuple[int, ...]


class PeerState(NamedTuple):
    """How frames to a peer go, by the peer's own MAC address."""

    mac: str
    state: FastPeer


@dataclass(frozen=True, slots=True)
class CountsReport:
    """A part of a report of counters. All parts have the same epoch and time.

    An epoch begins when programs are loaded; their counters are 0 then. It is never 0. `time_ns` is
    on the host's monotonic clock.
    """

    mac: str
    epoch: int
    time_ns: int
    part: int
    parts: int
    counts: tuple[FastCount, ...]


@dataclass(frozen=True, slots=True)
class SlotsReport:
    """A part of a report of bytes by slot.

    Peers in none of its parts have been sent nothing since the report before.
    """

    mac: str
    epoch: int
    time_ns: int
    part: int
    parts: int
    peers: tuple[FastSlots, ...]


@dataclass(frozen=True, slots=True)
class StateReport:
    """A part of a report of the state: what became of the programs, and of each peer.

    The epoch is 0 before programs were loaded. `order` says whether the host puts TCP in order that
    comes to it without the helper's header. `errno` is the kernel's error number, or 0. `dropped`
    is how many frames the programs dropped. `obeyed` is the digest of the rows that the programs
    obey (`Installed.digest`); 0: they may still do what earlier rows said.
    """

    mac: str
    epoch: int
    time_ns: int
    part: int
    parts: int
    programs: FastState
    filter: FastFilter
    order: FastOrder
    errno: int
    dropped: int
    obeyed: int
    peers: tuple[PeerState, ...]


def is_fast_report(frame: bytes) -> bool:
    """Whether a frame that came by the port CONTROLLER is meant as a report of `ri2n-fast`."""
    return frame[:6] == _TO_CONTROLLER and frame[12:14] == ETH_STRIPED.to_bytes(2, "big")


def decode(frame: bytes) -> CountsReport | SlotsReport | StateReport:
    """Read a report. Raises MalformedReport, which says what is wrong with the frame."""
    if len(frame) < _HEAD.size + _CHECKSUM.size:
        raise MalformedReport(Fault.LENGTH, f"{len(frame)} bytes are too few")
    head = _HEAD.unpack_from(frame)
    to, source, eth_type, version, kind, part, parts, records, epoch, time_ns = head
    if to != _TO_CONTROLLER or eth_type != ETH_STRIPED:
        raise MalformedReport(Fault.UNKNOWN, f"to {to.hex(':')}, EtherType {eth_type:#06x}")
    if version != _VERSION or kind not in (_COUNTS, _STATE, _SLOTS):
        raise MalformedReport(Fault.UNKNOWN, f"version {version}, kind {kind}")
    about, record, most = {
        _COUNTS: (0, _COUNT, MAX_COUNTS),
        _STATE: (_ABOUT_STATE.size, _PEER, MAX_STATES),
        _SLOTS: (0, _SLOTS_OF_PEER, MAX_SLOTS),
    }[kind]
    begin = _HEAD.size + about
    end = begin + records * record.size
    if records > most or len(frame) != end + _CHECKSUM.size:
        raise MalformedReport(Fault.LENGTH, f"{records} records do not fit {len(frame)} bytes")
    (checksum,) = _CHECKSUM.unpack_from(frame, end)
    if checksum != crc32c(frame[_CHECKED_FROM:end]):
        raise MalformedReport(
            Fault.CHECKSUM, f"the checksum {checksum:#010x} does not fit its bytes"
        )
    if part >= parts or parts > _MAX_PARTS:
        raise MalformedReport(Fault.VALUE, f"part {part} of {parts}")
    if kind != _STATE and not epoch:
        raise MalformedReport(Fault.VALUE, "counts without an epoch")
    of_all = (_mac(source), epoch, time_ns, part, parts)
    if kind == _COUNTS:
        return CountsReport(*of_all, tuple(map(_count, _COUNT.iter_unpack(frame[begin:end]))))
    if kind == _SLOTS:
        slots = map(_slots_of_peer, _SLOTS_OF_PEER.iter_unpack(frame[begin:end]))
        return SlotsReport(*of_all, tuple(slots))
    programs, filtered, order, errno, dropped, obeyed = _ABOUT_STATE.unpack_from(frame, _HEAD.size)
    peers = tuple(map(_peer, _PEER.iter_unpack(frame[begin:end])))
    of_state = (
        _word(_PROGRAMS, programs),
        _word(_FILTERS, filtered),
        _word(_ORDERS, order),
    )
    return StateReport(*of_all, *of_state, errno, dropped, obeyed, peers)


def row_of(flow: Flow) -> FastRow | None:
    """The row as reports name it; None for rows that count no path."""
    match = dict(flow.match)
    if flow.table == Table.SEND_COUNT:
        names = ("reg1", "eth_dst", "")
    elif flow.table == Table.RECEIVE_COUNT:
        names = ("in_port", "eth_src", "reg4")
    else:
        return None
    number, mac, vlan = (match.get(name, 0) for name in names)
    if not isinstance(number, int) or not isinstance(mac, str) or not isinstance(vlan, int):
        return None
    return FastRow(flow.table, number, mac.lower(), vlan)


def _count(fields: tuple[int, int, int, int, bytes, int, int, int]) -> FastCount:
    table, zero, vlan, number, mac, also_zero, packets, octets = fields
    if table == Table.SEND_COUNT:
        fits = vlan == 0
    elif table == Table.RECEIVE_COUNT:
        fits = vlan <= _MAX_VLAN and 1 <= number <= _MAX_PORT
    else:
        raise MalformedReport(Fault.UNKNOWN, f"counts of table {table}")
    if not fits or zero or also_zero or max(packets, octets) >= _MAX_COUNT:
        raise MalformedReport(Fault.VALUE, f"the record {fields} has a value that it cannot have")
    return FastCount(FastRow(table, number, _mac(mac), vlan), packets, octets)


def _slots_of_peer(fields: tuple[Any, ...]) -> FastSlots:
    mac, zero, *octets = fields
    if zero or max(octets) >= _MAX_COUNT:
        raise MalformedReport(Fault.VALUE, "slots have a value that they cannot have")
    return FastSlots(_mac(mac), tuple(octets))


def _peer(fields: tuple[bytes, int, int]) -> PeerState:
    mac, state, zero = fields
    if zero:
        raise MalformedReport(Fault.VALUE, f"the record {fields} has a value that it cannot have")
    return PeerState(_mac(mac), _word(_PEERS, state))


def _word(words: tuple[_Word, ...], number: int) -> _Word:
    if number >= len(words):
        raise MalformedReport(Fault.UNKNOWN, f"the code {number} is none of {', '.join(words)}")
    return words[number]


def _mac(raw: bytes) -> str:
    """A MAC address that a host or a NIC can have, as text."""
    if raw[0] & 1 or not any(raw):
        raise MalformedReport(Fault.VALUE, f"{raw.hex(':')} cannot be the MAC address of a host")
    return raw.hex(":")
