# SPDX-License-Identifier: Apache-2.0
"""Priorities of rows: each has its name in one place, in the order in which rows are tried."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest

from ri2n_lab.traffic.flooding import NOT_FOR_ME, RECEIVING_TABLE
from ri2n_sdn.pipeline import priorities
from ri2n_sdn.pipeline.layout import Table
from ri2n_sdn.pipeline.priorities import Place, Receive

PIPELINE = Path(priorities.__file__).parent
TABLES = [each for each in map(vars(priorities).get, priorities.__all__) if isinstance(each, type)]


@pytest.mark.parametrize("table", [each for each in TABLES if each is not Place])
def test_names_stand_in_the_order_in_which_rows_are_tried(table: type) -> None:
    places = [place for place in vars(table).values() if isinstance(place, Place)]
    assert places
    for first, then in itertools.pairwise(places):
        assert first.table != then.table or first.priority >= then.priority


def test_no_row_has_a_priority_without_a_name() -> None:
    """Neither a row of the pipeline nor one of the apps gives a number of its own."""
    seen = 0
    for path in (*PIPELINE.glob("*.py"), *(PIPELINE.parent / "apps").glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or path.name == "priorities.py":
                continue
            named = isinstance(call.func, ast.Name) and call.func.id == "Place"
            given = [*call.args[1:]] if named else []
            given += [word.value for word in call.keywords if word.arg == "priority"]
            seen += len(given)
            assert not [each for each in given if isinstance(each, ast.Constant)], path
    assert seen >= 4


def test_the_lab_counts_flooded_frames_by_the_rows_that_drop_them() -> None:
    dropping = (Receive.STRIPED_ELSEWHERE, Receive.TO_OTHER_NIC, Receive.FROM_NIC)
    assert [(RECEIVING_TABLE, each) for each in NOT_FOR_ME] == [*dropping]
    assert RECEIVING_TABLE == Table.RECEIVE
