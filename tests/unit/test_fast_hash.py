# SPDX-License-Identifier: Apache-2.0
"""The hash of the fast path, by the examples that also test its programs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.errors import BadInput
from ri2n_sdn.pipeline.dphash import Flow
from ri2n_sdn.pipeline.fast_hash import FAST_SLOTS, fast_hash, fast_slot_of

VECTORS = json.loads(
    (Path(__file__).parents[2] / "fast/tests/hashes.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize(
    "example",
    VECTORS,
    ids=lambda e: f"{e['protocol']}-{e['source']}-{e['sport']}-{e['destination']}-{e['dport']}",
)
def test_examples(example: dict[str, Any]) -> None:
    keys = ("protocol", "source", "sport", "destination", "dport")
    flow = Flow(*(example[key] for key in keys))
    assert fast_hash(flow) == int(example["hash"], 16)
    assert fast_slot_of(flow) == example["slot"]


def test_examples_have_both_families_and_protocols_with_and_without_ports() -> None:
    found = {(e["protocol"] in (6, 17, 132), ":" in e["source"]) for e in VECTORS}
    assert len(found) == 4


def test_ports_count_only_for_protocols_that_have_them() -> None:
    for protocol, alike in ((1, True), (47, True), (6, False), (17, False), (132, False)):
        with_ports = fast_hash(Flow(protocol, "10.0.0.1", 1, "10.0.0.2", 2))
        without = fast_hash(Flow(protocol, "10.0.0.1", 0, "10.0.0.2", 0))
        assert (with_ports == without) == alike


def test_flows_that_differ_in_one_port_spread_over_the_slots() -> None:
    slots = Counter(
        fast_slot_of(Flow(6, "10.0.0.1", port, "10.0.0.2", 5201)) for port in range(32768, 36864)
    )
    assert slots.keys() == set(range(FAST_SLOTS))
    # 64 flows a slot on average, and 8 is the deviation of random ones.
    assert max(slots.values()) < 64 + 5 * 8


def test_no_address_is_refused() -> None:
    with pytest.raises(BadInput):
        fast_slot_of(Flow(6, "10.0.0", 1, "10.0.0.2", 2))
