# SPDX-License-Identifier: Apache-2.0
"""The hash of dp_hash groups: values of Open vSwitch's own C code, and inputs that are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.contract.choices import HashBuild
from ri2n_sdn.errors import BadInput
from ri2n_sdn.pipeline.dphash import Flow, dp_hash, five_tuple_hash, slot_of


@pytest.mark.parametrize(
    ("build", "rss_v4", "hash_v4", "rss_v6", "hash_v6"),
    [
        # The portable values are those of a live Open vSwitch 3.1.0 (tests/sandbox). A C program
        # with the intrinsics printed those of sse42.
        ("portable", 3362599027, 806258325, 1194043432, 4166731775),
        ("sse42", 769732591, 1923363167, 3703503474, 3310092152),
    ],
)
def test_known_values(
    build: HashBuild, rss_v4: int, hash_v4: int, rss_v6: int, hash_v6: int
) -> None:
    tcp = Flow(6, "10.77.0.2", 5201, "10.77.0.1", 40000)
    udp = Flow(17, "fd77::2", 5201, "fd77::1", 40000)
    assert five_tuple_hash(tcp, build=build) == rss_v4
    assert dp_hash(rss_v4, build=build) == hash_v4
    assert five_tuple_hash(udp, build=build) == rss_v6
    assert dp_hash(rss_v6, 7, build=build) == hash_v6


def test_ports_count_only_for_protocols_that_have_them() -> None:
    for protocol, alike in ((47, True), (17, False)):
        with_ports = five_tuple_hash(Flow(protocol, "10.0.0.1", 1, "10.0.0.2", 2))
        without = five_tuple_hash(Flow(protocol, "10.0.0.1", 0, "10.0.0.2", 0))
        assert (with_ports == without) == alike


@given(
    st.ip_addresses(v=4),
    st.ip_addresses(v=4),
    st.integers(0, 255),
    st.integers(0, 65535),
    st.integers(0, 65535),
    st.sampled_from([16, 32, 64, 128, 256]),
)
def test_slot_is_in_range_and_halving_the_table_keeps_the_low_bits(
    src: object, dst: object, protocol: int, src_port: int, dst_port: int, slots: int
) -> None:
    flow = Flow(protocol, str(src), src_port, str(dst), dst_port)
    slot = slot_of(flow, slots=slots)
    assert 0 <= slot < slots
    assert slot == slot_of(flow, slots=256) % slots


def test_many_udp_flows_spread_over_the_slots() -> None:
    slots = [
        slot_of(Flow(17, "10.77.0.2", port, "10.77.0.1", 5201), slots=64)
        for port in range(20000, 26400)
    ]
    counts = [slots.count(slot) for slot in range(64)]
    assert min(counts) > 60 and max(counts) < 150, counts


@pytest.mark.parametrize(
    ("flow", "slots", "words"),
    [
        (Flow(6, "10.0.0.1", 1, "fd77::1", 2), 64, "IPv6"),
        (Flow(6, "nonsense", 1, "10.0.0.1", 2), 64, "nonsense"),
        (Flow(256, "10.0.0.1", 1, "10.0.0.2", 2), 64, "protocol"),
        (Flow(6, "10.0.0.1", 65536, "10.0.0.2", 2), 64, "65536"),
        (Flow(6, "10.0.0.1", 1, "10.0.0.2", -1), 64, "-1"),
        (Flow(6, "10.0.0.1", 1, "10.0.0.2", 2), 48, "48"),
        (Flow(6, "10.0.0.1", 1, "10.0.0.2", 2), 8, "8"),
        (Flow(6, "10.0.0.1", 1, "10.0.0.2", 2), 512, "512"),
    ],
)
def test_bad_input_is_named(flow: Flow, slots: int, words: str) -> None:
    with pytest.raises(BadInput, match=words) as error:
        slot_of(flow, slots=slots)
    assert "\n" not in str(error.value)
