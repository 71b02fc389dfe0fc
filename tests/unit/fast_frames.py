# SPDX-License-Identifier: Apache-2.0
"""Reports of the fast path as `ri2n-fast` sends them, made anew from docs/wire-format.md."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

from ri2n_sdn.pipeline.crc32c import crc32c
from ri2n_sdn.pipeline.fast_reports import FastRow

MAC = "02:00:00:00:0a:00"
PEER = "02:00:00:00:0b:00"
EPOCH = 0x0123456789ABCDEF


def _raw(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def sealed(body: bytes, mac: str = MAC) -> bytes:
    """A frame with this body, and its checksum."""
    return bytes(6) + _raw(mac) + pack("!H", 0x88B6) + body + pack("!I", crc32c(body))


def head(
    kind: int,
    records: int,
    *,
    version: int = 1,
    part: int = 0,
    parts: int = 1,
    epoch: int = EPOCH,
    time_ns: int = 5_000_000_000,
) -> bytes:
    return pack("!BBHHHQQ", version, kind, part, parts, records, epoch, time_ns)


def count_record(row: FastRow, packets: int, octets: int) -> bytes:
    return pack(
        *("!BBHI6sHQQ", row.table, 0, row.vlan, row.number, _raw(row.mac), 0, packets, octets)
    )


def counts_frame(
    counts: Sequence[tuple[FastRow, int, int]],
    *,
    mac: str = MAC,
    epoch: int = EPOCH,
    time_ns: int = 5_000_000_000,
) -> bytes:
    """A report of counters in one part: (row, packets, bytes) of each row."""
    records = b"".join(count_record(*each) for each in counts)
    return sealed(head(1, len(counts), epoch=epoch, time_ns=time_ns) + records, mac)


def slots_frame(
    peers: Sequence[tuple[str, Sequence[int]]],
    *,
    mac: str = MAC,
    epoch: int = EPOCH,
    part: int = 0,
    parts: int = 1,
) -> bytes:
    """A part of a report of slots: the peer's MAC address and the bytes in each of its slots."""
    records = b"".join(pack("!6sH64Q", _raw(peer), 0, *octets) for peer, octets in peers)
    return sealed(head(3, len(peers), epoch=epoch, part=part, parts=parts) + records, mac)


def state_frame(
    peers: Sequence[tuple[str, int]],
    *,
    programs: int = 1,
    filtered: int = 1,
    order: int = 0,
    errno: int = 0,
    dropped: int = 0,
    obeyed: int = 0,
    mac: str = MAC,
    epoch: int = EPOCH,
    time_ns: int = 5_000_000_000,
    part: int = 0,
    parts: int = 1,
) -> bytes:
    """A part of a report of the state: (the peer's MAC address, its state's code) of each peer."""
    about = pack("!BBBBIQ", programs, filtered, order, errno, dropped, obeyed)
    records = b"".join(_raw(peer) + bytes([state, 0]) for peer, state in peers)
    first = head(2, len(peers), epoch=epoch, time_ns=time_ns, part=part, parts=parts)
    return sealed(first + about + records, mac)
