# SPDX-License-Identifier: Apache-2.0
"""What the baseline reads from frames of the control network, by frames made by hand."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.baseline.openflow_trace import counted, read_messages, rows_hash

HOST, CONTROLLER = b"\x0a\xff\x00\x02", b"\x0a\xff\x00\x01"
NAMES = {"10.255.0.2": "A", "10.255.0.1": "controller"}
SYN, ACK = 2, 16


def frame(source: bytes, number: int, flags: int, content: bytes = b"") -> bytes:
    """A frame of the connection from the host's port 40000 to the controller."""
    ends = (HOST, CONTROLLER) if source == HOST else (CONTROLLER, HOST)
    ports = (40000, 6653) if source == HOST else (6653, 40000)
    segment = struct.pack("!HHIIBB6x", *ports, number, 0, 5 << 4, flags) + content
    head = struct.pack("!BxH5xB2x4s4s", 0x45, 20 + len(segment), 6, *ends)
    return bytes(12) + b"\x08\x00" + head + segment + bytes(6)  # padding is no content


def message(kind: int, number: int, body: bytes = b"") -> bytes:
    return struct.pack("!BBHI", 6, kind, 8 + len(body), number) + body


def read(path: Path, *frames: bytes) -> list[str]:
    path.write_text("".join(f"{at} {each.hex()}\n" for at, each in enumerate(frames)))
    return counted(read_messages(path, NAMES), 0.0, 1.0)


def test_messages_are_found_in_segments_however_they_are_cut(tmp_path: Path) -> None:
    told = message(14, 1, b"row") + message(20, 2)
    started = [frame(HOST, 99, SYN), frame(CONTROLLER, 2**32 - 3, SYN | ACK)]
    whole = [frame(CONTROLLER, 2**32 - 2, ACK, told), frame(HOST, 100, ACK, message(21, 2))]
    cut = [frame(CONTROLLER, (2**32 - 2 + at) % 2**32, ACK, told[at : at + 1]) for at in range(19)]
    again = [*cut[:3], cut[1], *cut[3:]]
    expected = [
        "controller to hosts: barrier request 1, flow mod 1",
        "hosts to controller: barrier reply 1",
    ]
    for segments in (whole, [*cut, whole[1]], [*again, whole[1]]):
        assert read(tmp_path / "frames", *started, *segments) == expected
    other = frame(HOST, 1, SYN).replace(struct.pack("!H", 6653), struct.pack("!H", 22))
    assert read(tmp_path / "frames", other, frame(HOST, 5, ACK, b"x"), bytes(60)) == [
        "controller to hosts: ",
        "hosts to controller: ",
    ]


def test_the_hash_is_of_what_changes_rows_without_the_numbers_of_messages(tmp_path: Path) -> None:
    def of(*messages: bytes) -> str:
        begin = [frame(CONTROLLER, 0, SYN | ACK), frame(CONTROLLER, 1, ACK, b"".join(messages))]
        read(tmp_path / "frames", *begin)
        return rows_hash(read_messages(tmp_path / "frames", NAMES), "A", 1.0)

    first, second = message(14, 1, b"one"), message(15, 2, b"two")
    assert of(first, second) == of(message(14, 8, b"one"), message(20, 9), message(15, 7, b"two"))
    assert len({of(first, second), of(second, first), of(first), of()}) == 4
