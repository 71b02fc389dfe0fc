# SPDX-License-Identifier: Apache-2.0
"""Reports of the fast path: what they say, and that any other bytes are refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.contract.counters import COUNTERS
from ri2n_sdn.pipeline.fast_reports import (
    CountsReport,
    FastCount,
    FastRow,
    FastSlots,
    MalformedReport,
    PeerState,
    SlotsReport,
    StateReport,
    decode,
    is_fast_report,
)
from tests.unit.fast_frames import (
    EPOCH,
    MAC,
    PEER,
    count_record,
    counts_frame,
    head,
    sealed,
    slots_frame,
    state_frame,
)

SENT = FastRow(30, 0x00802000, PEER, 0)
RECEIVED = FastRow(3, 2, "02:00:00:00:0b:02", 102)
COUNTS = counts_frame([(SENT, 7, 9000), (RECEIVED, 1, 64)])
SLOTS = slots_frame([(PEER, range(64)), ("02:00:00:00:0c:00", [0] * 64)])
STATE = state_frame([(PEER, 0), ("02:00:00:00:0c:00", 2)], errno=1, dropped=5, obeyed=7 << 60)


VECTORS = json.loads(
    (Path(__file__).parents[2] / "fast/tests/reports.json").read_text(encoding="utf-8")
)
PROGRAMS = ("off", "in_force", "refused", "no_device")
FILTERS = ("not_needed", "in_force", "missing")
ORDERS = ("none", "ready")
PEERS = ("carried", "striped", "undecided", "unsupported", "too_many", "striped_tcp")


@pytest.mark.parametrize("example", VECTORS, ids=lambda example: example["name"])
def test_reports_as_the_fast_path_writes_them(example: dict[str, Any]) -> None:
    said, found = example["report"], [decode(bytes.fromhex(raw)) for raw in example["frames"]]
    for number, part in enumerate(found):
        assert (part.part, part.parts) == (number, len(found))
        assert (part.mac, part.epoch, part.time_ns) == (said["own"], said["epoch"], said["time_ns"])
    if said["kind"] == "counts":
        counts = [each for part in found if isinstance(part, CountsReport) for each in part.counts]
        assert counts == [
            FastCount(
                FastRow(*(row[key] for key in ("table", "number", "mac", "vlan"))),
                row["packets"],
                row["bytes"],
            )
            for row in said["rows"]
        ]
        return
    if said["kind"] == "slots":
        slots = [each for part in found if isinstance(part, SlotsReport) for each in part.peers]
        assert slots == [FastSlots(each["mac"], tuple(each["bytes"])) for each in said["peers"]]
        assert all(isinstance(part, SlotsReport) for part in found)
        return
    peers: list[PeerState] = []
    for part in found:
        assert isinstance(part, StateReport)
        peers += part.peers
        assert part.programs == PROGRAMS[said["programs"]]
        assert part.filter == FILTERS[said["filter"]]
        assert part.order == ORDERS[said["order"]]
        assert (part.errno, part.dropped) == (said["errno"], said["dropped"])
        assert part.obeyed == said["obeyed"]
    assert peers == [(peer["mac"], PEERS[peer["state"]]) for peer in said["peers"]]


def test_counts() -> None:
    assert is_fast_report(COUNTS)
    assert decode(COUNTS) == CountsReport(
        MAC, EPOCH, 5_000_000_000, 0, 1, (FastCount(SENT, 7, 9000), FastCount(RECEIVED, 1, 64))
    )


def test_state() -> None:
    assert is_fast_report(STATE)
    peers = (PeerState(PEER, "carried"), PeerState("02:00:00:00:0c:00", "undecided"))
    assert decode(STATE) == StateReport(
        *(MAC, EPOCH, 5_000_000_000, 0, 1, "in_force", "in_force", "none", 1, 5, 7 << 60), peers
    )


def test_slots() -> None:
    assert is_fast_report(SLOTS)
    peers = (FastSlots(PEER, tuple(range(64))), FastSlots("02:00:00:00:0c:00", (0,) * 64))
    assert decode(SLOTS) == SlotsReport(MAC, EPOCH, 5_000_000_000, 0, 1, peers)


def test_the_largest_frames_fit_a_wire() -> None:
    for frame in (counts_frame([(SENT, 1, 1)] * 40), state_frame([(PEER, 0)] * 160), SLOTS):
        decode(frame)
        assert len(frame) <= 1514


def test_all_codes_of_states() -> None:
    for programs, word in enumerate(PROGRAMS):
        for filtered, other in enumerate(FILTERS):
            report = decode(state_frame([], programs=programs, filtered=filtered))
            assert isinstance(report, StateReport)
            assert (report.programs, report.filter) == (word, other)
    for order, word in enumerate(ORDERS):
        report = decode(state_frame([], order=order))
        assert isinstance(report, StateReport) and report.order == word
    report = decode(state_frame([(PEER, state) for state in range(6)]))
    assert isinstance(report, StateReport)
    assert tuple(peer.state for peer in report.peers) == PEERS


def row(table: int = 30, number: int = 1, mac: str = PEER, vlan: int = 0) -> FastRow:
    return FastRow(table, number, mac, vlan)


def counted(record: bytes) -> bytes:
    return sealed(head(1, 1) + record)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "length"),
        (COUNTS[:37], "length"),
        (COUNTS[:-1], "length"),
        (COUNTS + b"\0", "length"),
        (sealed(head(1, 2) + count_record(SENT, 1, 1)), "length"),
        (sealed(head(1, 41) + count_record(SENT, 1, 1) * 41), "length"),
        (sealed(head(2, 161) + bytes([1, 1]) + bytes(6) + (b"\2" + bytes(7)) * 161), "length"),
        (sealed(head(2, 0)), "length"),
        (COUNTS[:-1] + bytes([COUNTS[-1] ^ 1]), "checksum"),
        (sealed(head(1, 0, version=2)), "unknown"),
        (sealed(head(4, 0)), "unknown"),
        (sealed(head(3, 3) + SLOTS[38:558] * 3), "length"),
        (sealed(head(3, 1) + SLOTS[38:557]), "length"),
        (sealed(head(3, 0, epoch=0)), "value"),
        (slots_frame([("01:00:00:00:0b:00", [0] * 64)]), "value"),
        (slots_frame([(PEER, [0] * 63 + [1 << 62])]), "value"),
        (sealed(head(3, 1) + SLOTS[38:44] + b"\0\1" + bytes(512)), "value"),
        (b"\2" + COUNTS[1:], "unknown"),
        (COUNTS[:13] + b"\xb5" + COUNTS[14:], "unknown"),
        (sealed(head(1, 0, parts=0)), "value"),
        (sealed(head(1, 0, part=3, parts=3)), "value"),
        (sealed(head(1, 0, part=1, parts=1025)), "value"),
        (sealed(head(1, 0, epoch=0)), "value"),
        (sealed(head(1, 0), "03:00:00:00:0a:00"), "value"),
        (sealed(head(1, 0), "00:00:00:00:00:00"), "value"),
        (counted(count_record(row(table=10), 1, 1)), "unknown"),
        (counted(count_record(row(vlan=1), 1, 1)), "value"),
        (counted(count_record(row(mac="ff:ff:ff:ff:ff:ff"), 1, 1)), "value"),
        (counted(count_record(row(3, vlan=4095), 1, 1)), "value"),
        (counted(count_record(row(3, number=0), 1, 1)), "value"),
        (counted(count_record(row(3, number=1024), 1, 1)), "value"),
        (counted(count_record(row(), 1 << 62, 1)), "value"),
        (counted(count_record(row(), 1, 1 << 62)), "value"),
        (counted(pack("!BBHI6sHQQ", 30, 1, 0, 1, b"\2" * 6, 0, 1, 1)), "value"),
        (counted(pack("!BBHI6sHQQ", 30, 0, 0, 1, b"\2" * 6, 1, 1, 1)), "value"),
        (state_frame([], programs=4), "unknown"),
        (state_frame([], filtered=3), "unknown"),
        (state_frame([], order=2), "unknown"),
        (state_frame([(PEER, 6)]), "unknown"),
        (state_frame([("01:00:00:00:0b:00", 0)]), "value"),
        (sealed(head(2, 1) + bytes([1, 1]) + bytes(14) + b"\2" * 6 + b"\0\1"), "value"),
    ],
)
def test_what_is_no_report_is_refused_with_a_reason(frame: bytes, reason: str) -> None:
    with pytest.raises(MalformedReport) as refused:
        decode(frame)
    assert refused.value.fault.value == f"dropped_fast_report_{reason}"


def test_hellos_and_frames_of_helpers_are_not_meant_as_reports() -> None:
    assert not is_fast_report(b"")
    assert not is_fast_report(b"\2" + COUNTS[1:])
    assert not is_fast_report(COUNTS[:12] + b"\x88\xb5" + COUNTS[14:])


@given(
    frame=st.sampled_from([COUNTS, STATE, SLOTS, counts_frame([(SENT, 5, 5)] * 40)]),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4),
    length=st.none() | st.integers(0, 1600),
    resealed=st.booleans(),
)
def test_any_mutation_is_read_or_refused_for_a_counted_reason(
    frame: bytes, changes: list[tuple[int, int]], length: int | None, resealed: bool
) -> None:
    mutated = bytearray(frame if length is None else frame[:length].ljust(length, b"\0"))
    for place, value in changes:
        if place < len(mutated):
            mutated[place] = value
    if resealed and len(mutated) > 18:
        mutated[14:] = sealed(bytes(mutated[14:-4]))[14:]
    try:
        report = decode(bytes(mutated))
    except MalformedReport as refused:
        assert refused.fault.value in COUNTERS
        return
    records = report.counts if isinstance(report, CountsReport) else report.peers
    assert report.part < report.parts
    assert len(records) == int.from_bytes(mutated[20:22], "big")
