# SPDX-License-Identifier: Apache-2.0
"""Frames between controller and helper, with the examples that also test the helper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.pipeline.crc32c import crc32c
from ri2n_sdn.pipeline.helper_frames import (
    NO_LIMIT,
    HelperChannel,
    HelperLink,
    HelperNic,
    Mode,
    Report,
    ReportEntry,
    channels,
    decode_report,
    gone,
    peer,
    this_host,
)
from ri2n_sdn.weights.strategies import STRATEGIES

VECTORS = json.loads(
    (Path(__file__).parents[2] / "reorder/tests/vectors.json").read_text(encoding="utf-8")
)
MAC = "02:00:00:00:0a:00"


def sealed(frame: bytes) -> bytes:
    """The frame with its checksum in its place."""
    return frame[:16] + crc32c(frame[12:16] + frame[20:]).to_bytes(4, "big") + frame[20:]


def frame_of(example: dict[str, Any]) -> bytes:
    return bytes.fromhex("".join(example["hex"]))


def examples(kind: str) -> list[Any]:
    """Test parameters (fields, frame): the good frames of a kind. There must be some."""
    found = [
        pytest.param(e[kind], frame_of(e), id=e["name"]) for e in VECTORS["frames"] if kind in e
    ]
    assert found, kind
    return found


def malformed_reports() -> list[Any]:
    """Test parameters (frame): the malformed reports, and all frames that are not reports."""
    frames = [pytest.param(frame_of(e), id=e["why"]) for e in VECTORS["malformed"]]
    return frames + [
        pytest.param(frame_of(e), id=e["name"]) for e in VECTORS["frames"] if "report" not in e
    ]


@pytest.mark.parametrize(("fields", "frame"), examples("this_host"))
def test_this_host(fields: dict[str, Any], frame: bytes) -> None:
    nics = [HelperNic(**nic) for nic in fields["nics"]]
    assert (
        this_host(fields["generation"], fields["mac"], Mode[fields["mode"].upper()], nics) == frame
    )


@pytest.mark.parametrize(("fields", "frame"), examples("peer"))
def test_peer(fields: dict[str, Any], frame: bytes) -> None:
    links = [HelperLink(**link) for link in fields["links"]]
    assert peer(fields["generation"], fields["mac"], fields["stripe"], links) == frame
    assert peer(fields["generation"], fields["mac"], fields["stripe"], links[::-1]) == frame, (
        "sorted by number"
    )


def test_a_peer_that_puts_tcp_in_order_has_a_flag_of_its_own() -> None:
    for stripe in (False, True):
        plain, beside = (peer(9, MAC, stripe, [], each) for each in (False, True))
        assert (plain[32:36], beside[32:36]) == (
            bytes([stripe, 0, 0, 0]),
            bytes([stripe | 2, 0, 0, 0]),
        )


@pytest.mark.parametrize(("fields", "frame"), examples("gone"))
def test_gone(fields: dict[str, Any], frame: bytes) -> None:
    assert gone(fields["generation"], fields["mac"]) == frame


@pytest.mark.parametrize(("fields", "frame"), examples("channels"))
def test_channels(fields: dict[str, Any], frame: bytes) -> None:
    wanted = [
        HelperChannel(**(channel | {"links": frozenset(channel["links"])}))
        for channel in fields["channels"]
    ]
    common = frozenset(fields["common"]) if "common" in fields else None
    for order in (wanted, wanted[::-1]):
        assert channels(fields["generation"], fields["mac"], order, common) == (frame,)


def test_channels_that_do_not_fit_one_frame_are_told_in_two() -> None:
    wanted = [HelperChannel(number, number, frozenset({0})) for number in range(1, 64)]
    first, second = channels(1, MAC, wanted)
    assert (first[20:22], second[20:22]) == (bytes([4, 48]), bytes([4, 15]))
    assert (first[32:36], second[32:36]) == (bytes([0, 48, 0, 0]), bytes([49, 63, 0, 0]))
    assert max(len(first), len(second)) <= 1514
    assert channels(1, MAC, wanted[:48])[0][32:36] == bytes([0, 63, 0, 0])
    assert channels(1, MAC, wanted[15:])[0][32:36] == bytes([0, 63, 0, 0])
    first, second = channels(1, MAC, wanted, frozenset({1}))
    assert (first[32:36], second[32:36]) == (bytes([0, 47, 0, 0]), bytes([48, 63, 0, 0]))


@pytest.mark.parametrize(("fields", "frame"), examples("report"))
def test_report(fields: dict[str, Any], frame: bytes) -> None:
    entries = tuple(ReportEntry(**entry) for entry in fields["entries"])
    assert decode_report(frame) == Report(
        fields["time_ms"], fields["mac"], fields["generation"], entries
    )


@pytest.mark.parametrize("frame", malformed_reports())
def test_what_is_no_report_is_refused(frame: bytes) -> None:
    with pytest.raises(ValueError, match=r"report|link|MAC"):
        decode_report(frame)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_report_or_a_value_error(body: bytes, head: bool) -> None:
    frame = (
        sealed(frame_of(VECTORS["frames"][0])[:14] + b"\x35\x00" + bytes(4) + body)
        if head
        else body
    )
    try:
        report = decode_report(frame)
    except ValueError:
        return
    assert len(frame) <= max(60, 36 + 40 * len(report.entries))
    assert all(0 <= entry.link < 64 for entry in report.entries)


def test_a_padded_report_without_entries() -> None:
    frame = bytes.fromhex(
        "025249324e01020000000a0088b63500" + "00000000" + "0000000003e8020000000a0000000000"
    )
    assert decode_report(sealed(frame.ljust(60, b"\0"))) == Report(1000, MAC, 0, ())
    with pytest.raises(ValueError, match="0 entries do not fit a frame of 61 bytes"):
        decode_report(sealed(frame.ljust(61, b"\0")))
    with pytest.raises(ValueError, match="59 bytes are too few"):
        decode_report(sealed(frame.ljust(59, b"\0")))


@pytest.mark.parametrize(("fields", "frame"), examples("report"))
def test_no_report_with_a_flipped_bit_is_believed(fields: dict[str, Any], frame: bytes) -> None:
    for bit in range(8 * 12, 8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="report"):
            decode_report(bytes(flipped))


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # This value and the following ones are from RFC 3720, B.4.
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_the_checksum_is_crc32c(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


def test_every_strategy_has_a_mode() -> None:
    modes = {name: Mode.of_strategy(name) for name in STRATEGIES}
    assert modes["max_min"] is Mode.PACED
    assert sorted(modes.values()) == sorted(Mode)


def link(**changes: Any) -> HelperLink:
    fields = {"number": 0, "own_port": 1, "peer_port": 1, "alive": True}
    rates = {"rate_kbps": 1, "limit_kbps": NO_LIMIT, "weight_ppm": 0}
    return HelperLink(**(fields | rates | changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"number": 64}, "link 64"),
        ({"number": -1}, "link -1"),
        ({"own_port": 0}, "port 0"),
        ({"peer_port": 63}, "port 63"),
        ({"weight_ppm": 1_000_001}, "1000001 ppm"),
    ],
)
def test_links_that_cannot_be(changes: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        peer(1, MAC, True, [link(**changes)])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"number": 0}, "channel 0: the number must be 1..63"),
        ({"number": 64}, "channel 64: the number must be 1..63"),
        ({"tag": -1}, "channel 1: the tag -1 does not fit 32 bits"),
        ({"tag": 1 << 32}, "channel 1: the tag 4294967296 does not fit 32 bits"),
        ({"links": frozenset()}, "channel 1: there must be a link"),
        ({"links": frozenset({64})}, "link 64"),
        ({"max_kbps": 0}, "must not be 0"),
        ({"max_kbps": 99, "min_kbps": 100}, "100 kbit/s must not exceed the highest rate of 99"),
        ({"min_kbps": NO_LIMIT}, "channel 1: a guaranteed rate must be finite"),
        ({"min_in_kbps": NO_LIMIT}, "channel 1: a guaranteed rate must be finite"),
    ],
)
def test_channels_that_cannot_be(changes: dict[str, Any], complaint: str) -> None:
    fields: dict[str, Any] = {"number": 1, "tag": 7, "links": frozenset({0})}
    with pytest.raises(ValueError, match=complaint):
        channels(1, MAC, [HelperChannel(**(fields | changes))])


def test_a_channel_twice() -> None:
    channel = HelperChannel(1, 7, frozenset({0}))
    with pytest.raises(ValueError, match="a link that frames of no job may use"):
        channels(1, MAC, [channel], frozenset())
    with pytest.raises(ValueError, match="two channels have the same number"):
        channels(1, MAC, [channel, channel])


def test_what_the_helper_would_refuse() -> None:
    nic = HelperNic(1, True, 1, "eth0")
    with pytest.raises(ValueError, match="two NICs have the same port"):
        this_host(1, MAC, Mode.PACED, [nic, nic])
    with pytest.raises(ValueError, match="two links have the same number"):
        peer(1, MAC, True, [link(), link()])
    with pytest.raises(ValueError, match="cannot be the MAC address of a host"):
        gone(1, "ff:ff:ff:ff:ff:ff")
    with pytest.raises(ValueError, match="is not a MAC address"):
        gone(1, "02:00")


def test_numbers_without_room_are_bounded() -> None:
    assert peer(1, MAC, True, [link(rate_kbps=1 << 40)]) == peer(
        1, MAC, True, [link(rate_kbps=NO_LIMIT)]
    )
    assert gone((1 << 32) + 5, MAC) == gone(5, MAC)
    cut = this_host(1, MAC, Mode.PACED, [HelperNic(1, True, 1, "a" * 15 + "é")])
    assert cut[-16:] == b"a" * 15 + b"\0"
