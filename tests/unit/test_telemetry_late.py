# SPDX-License-Identifier: Apache-2.0
"""What a round of the telemetry app makes of answers that are late, or do not come any more."""

from __future__ import annotations

from typing import Any

import pytest

from ri2n_sdn.apps import codec
from ri2n_sdn.pipeline.diff import Change, Installed, apply
from ri2n_sdn.pipeline.layout import Table
from tests.unit.test_telemetry import AB, AB_ONE, ONE, World, world

__all__ = ["world"]


@pytest.mark.parametrize("held", ["unknown", "nothing", "all but that row"])
def test_a_host_that_was_filled_after_it_was_asked_was_not_emptied(world: World, held: str) -> None:
    """The trunk app has done all its work by the time at which the answer is taken in."""
    member, other = world.cluster.members["A"], world.cluster.members["B"]
    filled = member.installed
    assert filled is not None
    rest = {key: table for key, table in filled.cookies.items() if table != Table.CANARY}
    before = {"unknown": None, "nothing": Installed(), "all but that row": Installed(rest)}[held]
    member.installed, member.dirty, member.busy = before, True, True
    world.canary["A"] = False
    answer = world.channels["A"].answer

    def answer_and_fill(question: codec.Question | None) -> Any:
        reply = answer(question)
        if question == codec.PORT_COUNTERS:
            member.installed = apply(Change(), filled)
            member.dirty = member.busy = False
        return reply

    world.channels["A"].answer = answer_and_fill
    world.round()
    assert member.installed == filled and member.accepts_wire and not world.cluster.events
    other.dirty = False
    world.channels["A"].answer = answer
    world.round()
    assert [event["code"] for event in world.cluster.events] == ["tables_emptied"], "now it is"
    assert member.installed is None and not member.accepts_wire and other.dirty


def test_a_host_that_is_not_read_any_more_has_no_rates(world: World) -> None:
    """What is shown of all hosts is of one time, or it is not known."""
    world.nics = {("A", 1): (0, 0), ("B", 1): (0, 0)}
    world.take_levels()
    for _ in range(3):
        for key in (AB_ONE, ("B", "A", ONE)):
            world.sent[key] = world.received[key] = world.sent.get(key, 0) + 10**6
        world.nics = {name: (tx + 10**6, rx + 10**6) for name, (tx, rx) in world.nics.items()}
        world.round(1.0)
    members, shown = world.cluster.members, world.cluster.measured
    assert members["A"].ports[1].tx_bps == shown.rates[AB][ONE].tx_bps == 8e6
    world.channels["A"].mute_for_s = 60.0
    world.round(4.0)
    assert members["A"].ports[1].tx_bps == 8e6, "a late host is not forgotten at once"
    world.round(2.0)
    assert members["A"].ports[1].tx_bps is None and members["B"].ports[1].tx_bps is not None
    assert shown.rates[AB][ONE].tx_bps is None and shown.rates[AB][ONE].rx_bps is not None


def test_what_is_fair_may_fail_and_weights_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd() -> dict[object, float]:
        raise ValueError("odd")

    def send() -> None:
        for path in (ONE, (2, 2, 0)):
            world.sent["A", "B", path] = world.sent.get(("A", "B", path), 0) + 2_000_000
        world.round()

    world.take_levels()
    send()
    monkeypatch.setattr(world.cluster.loop, "fair_bps", odd)
    for _ in range(4):
        send()
    shown = world.cluster.measured
    assert set(world.cluster.pair_slots) == {AB}, "its table is there"
    assert shown.rates[AB][ONE].share and shown.rates[AB][ONE].tx_bps and shown.fair_bps == {}
    assert world.cluster.faults == {"fair_rates_unknown": "ValueError: odd"}
