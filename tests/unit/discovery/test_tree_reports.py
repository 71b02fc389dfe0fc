# SPDX-License-Identifier: Apache-2.0
"""What operators are told of dead parts of trees: each cause once, and when a part works again."""

from __future__ import annotations

import pytest

from ri2n_sdn.contract.problems import Problem
from ri2n_sdn.discovery.tree_liveness import TreeLiveness
from ri2n_sdn.discovery.tree_state import Element
from tests.unit.vlan.worlds import FABRICS


def test_of_an_element_with_two_causes_each_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    liveness = TreeLiveness(FABRICS["vbft"].trees)
    both = Problem("cable_dead_in_vlans", {"cable": "a"}, {"vlans": [101]})
    one_way = Problem("cable_one_way_in_vlans", {"cable": "a"}, {"vlans": [102, 103]})
    steps: list[tuple[list[Problem], list[str]]] = [
        ([both], ["cable_dead_in_vlans"]),
        ([both, one_way], ["cable_one_way_in_vlans"]),
        ([one_way], []),
        ([], ["cable_works_again"]),
    ]
    for found, told in steps:
        now: dict[Element, list[Problem]] = {("a",): found} if found else {}
        monkeypatch.setattr(liveness.state, "problems", lambda name, now=now: now)
        liveness._report()
        assert [event.code for event in liveness.events] == told
        assert {event.subject["cable"] for event in liveness.events} <= {"a"}
        assert liveness.problems == found
        liveness.events.clear()
