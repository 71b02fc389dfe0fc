# SPDX-License-Identifier: Apache-2.0
"""What a round of the telemetry app makes of answers to requests that rows have overtaken."""

from __future__ import annotations

from typing import Any

import pytest

from ri2n_sdn.apps import codec
from ri2n_sdn.pipeline.diff import Change, Installed, apply
from ri2n_sdn.pipeline.layout import Table
from tests.unit.test_telemetry import World, world

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
