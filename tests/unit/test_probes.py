# SPDX-License-Identifier: Apache-2.0
"""Probe frames are decoded with their VLAN, and frames of other senders are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.apps.codec import tagged, untagged
from ri2n_sdn.apps.counts import Dropped
from ri2n_sdn.apps.probes import Probe, ProbeCodec, ProbeKind

MAC = "04:00:00:00:01:01"
FLOODED, RING, TREE = ProbeKind.FLOODED, ProbeKind.RING, ProbeKind.TREE


def test_a_probe_comes_back() -> None:
    probes = ProbeCodec()
    frame = probes.encode(FLOODED, MAC, None, 0xABC, 4, 10.0)
    assert frame[:6] == bytes.fromhex("030000524932") and frame[12:14] == b"\x88\xb5"
    assert probes.decode(frame + bytes(10), 10.5) == Probe(FLOODED, 0xABC, 4, 0)
    assert probes.age_s(frame, 10.5) == pytest.approx(0.5)
    assert probes.decode(probes.encode(RING, MAC, MAC, 1, 2, 10.0), 10.0) == Probe(RING, 1, 2, 0)


@given(st.integers(1, 4094))
def test_a_probe_of_a_vlan_comes_with_its_tag(vlan: int) -> None:
    probes = ProbeCodec()
    frame = probes.encode(TREE, MAC, MAC, 7, 3, 10.0, vlan)
    assert frame[12:16] == b"\x81\x00" + vlan.to_bytes(2, "big") and frame[16:18] == b"\x88\xb5"
    assert probes.decode(frame, 10.1) == Probe(TREE, 7, 3, vlan)


def test_a_probe_that_a_switch_put_into_another_vlan_is_dropped() -> None:
    probes = ProbeCodec()
    frame = probes.encode(TREE, MAC, MAC, 7, 3, 10.0, 102)
    for other in (untagged(frame)[0], tagged(untagged(frame)[0], 103)):
        with pytest.raises(Dropped, match="dropped_probe_in_another_vlan"):
            probes.decode(other, 10.1)
        assert probes.age_s(other, 10.5) == pytest.approx(0.5)


@given(st.binary(max_size=80), st.integers(0, 4094))
def test_tags_come_off_as_they_were_put_on(frame: bytes, vlan: int) -> None:
    if len(frame) >= 14 and frame[12:14] != b"\x81\x00":
        assert untagged(tagged(frame, vlan)) == (frame, vlan)


@pytest.mark.parametrize("later_s", [-0.5, 2.5])
def test_a_replayed_or_future_probe_is_dropped(later_s: float) -> None:
    probes = ProbeCodec()
    with pytest.raises(Dropped, match="dropped_probe_old"):
        probes.decode(probes.encode(FLOODED, MAC, None, 1, 1, 10.0), 10.0 + later_s)


@pytest.mark.parametrize(
    ("lag_s", "age_s", "taken"), [(0.0, 2.5, False), (3.0, 4.5, True), (3.0, 5.5, False)]
)
def test_a_machine_that_is_behind_takes_probes_that_are_older_by_that(
    lag_s: float, age_s: float, taken: bool
) -> None:
    probes = ProbeCodec()
    frame = probes.encode(FLOODED, MAC, None, 1, 1, 10.0)
    if taken:
        assert probes.decode(frame, 10.0 + age_s, lag_s).dpid == 1
        return
    with pytest.raises(Dropped, match="dropped_probe_old"):
        probes.decode(frame, 10.0 + age_s, lag_s)


def test_no_lag_makes_a_probe_of_long_ago_new() -> None:
    probes = ProbeCodec()
    with pytest.raises(Dropped, match="dropped_probe_old"):
        probes.decode(probes.encode(FLOODED, MAC, None, 1, 1, 10.0), 10.0 + 13.0, 1e9)


@given(st.binary(max_size=120), st.integers(0, 63), st.integers(1, 255), st.sampled_from([0, 102]))
def test_no_frame_but_our_own_is_a_probe(noise: bytes, place: int, flip: int, vlan: int) -> None:
    probes = ProbeCodec()
    frame = bytearray(probes.encode(TREE, MAC, MAC, 1, 1, 10.0, vlan))
    for strange in (
        noise,
        bytes(frame[: place % len(frame)]),
        ProbeCodec().encode(TREE, MAC, MAC, 1, 1, 10.0, vlan),
    ):
        with pytest.raises(Dropped, match="dropped_probe_"):
            probes.decode(strange, 10.0)
    if (18 if vlan else 14) <= place < len(frame):
        frame[place] ^= flip
        with pytest.raises(Dropped, match="dropped_probe_"):
            probes.decode(bytes(frame), 10.0)
