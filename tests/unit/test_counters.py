# SPDX-License-Identifier: Apache-2.0
"""Names of counters: each is listed once, is raised somewhere, and stands in the documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ri2n_sdn.apps.channel import Close
from ri2n_sdn.apps.config import ClusterConfig
from ri2n_sdn.apps.openflow import handler_drops
from ri2n_sdn.apps.watching import counters_of
from ri2n_sdn.contract.counters import COUNTERS, FORMER, HANDLER, LOOP, WEB, with_former
from ri2n_sdn.pipeline.fast_reports import Fault
from tests.unit.fake_hosts import cluster_of

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs" / "metrics.md"
# What raises a counter by name, with the position of the name among the arguments.
RAISING = {"add": 0, "_count": 0, "Dropped": 0}


def calls(folder: str) -> Iterator[tuple[Path, ast.Call, str]]:
    """Each call in the files of a folder, with the name of what is called."""
    for path in (REPOSITORY / "ri2n_sdn" / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                yield path, node, called


def is_counter(call: ast.Call, called: str) -> bool:
    """Whether a call raises a counter: `add` of sets and of other things does not."""
    if called != "add":
        return called in RAISING
    of = ast.unparse(call.func).rpartition(".")[0]
    return of.endswith(("counters", "handler_drops"))


def raised() -> set[str]:
    """The names that the controller's code gives to counters."""
    names = {why.counter for why in Close} | {fault.value for fault in Fault} | {"nic_deaths"}
    passed_on = []
    for path, call, called in calls("apps"):
        if is_counter(call, called):
            argument = call.args[RAISING[called]]
            names_of = (
                (argument.body, argument.orelse) if isinstance(argument, ast.IfExp) else (argument,)
            )
            for name in names_of:
                if isinstance(name, ast.Constant):
                    names.add(str(name.value))
                else:
                    passed_on.append(f"{path.name}: {ast.unparse(name)}")
    # Each of these has its name from a place that is looked at here.
    assert sorted(passed_on) == [
        "channel.py: why.counter",
        "cluster.py: f'{LOOP}{name}'",
        "discovery.py: str(error)",
        "discovery.py: str(error)",
        "fast_path.py: error.fault.value",
    ]
    return names


def test_each_counter_that_is_raised_is_listed_and_the_other_way_round() -> None:
    assert raised() == set(COUNTERS)


def test_the_counters_of_the_web_process_are_listed_too() -> None:
    feed = (REPOSITORY / "ri2n_sdn" / "web" / "feed.py").read_text(encoding="utf-8")
    assert set(re.findall(r'self\.counters\["(\w+)"\] \+=', feed)) == set(WEB)


def test_names_are_sorted_and_short_enough_for_a_label() -> None:
    for table in (COUNTERS, WEB, FORMER):
        assert list(table) == sorted(table)
    assert all(re.fullmatch(r"[a-z][a-z_]{2,39}", name) for name in (*COUNTERS, *WEB))


def test_a_former_name_is_served_with_the_count_of_the_new_one() -> None:
    assert set(FORMER.values()) <= set(COUNTERS) and not FORMER.keys() & COUNTERS.keys()
    assert len(set(FORMER.values())) == len(FORMER)
    for old, new in FORMER.items():
        assert with_former({new: 3, "cycles": 5}) == {new: 3, "cycles": 5, old: 3}
    assert with_former({"cycles": 5}) == {"cycles": 5}


def test_status_has_former_names_and_only_listed_ones() -> None:
    handler_drops.add("closed_silent")
    found = counters_of(cluster_of({}, ClusterConfig(), [("A", 2)]))
    assert found["closed_silent_for"] == found["closed_silent"] >= 1
    others = found.keys() - COUNTERS.keys() - FORMER.keys()
    assert [name for name in others if not name.startswith((HANDLER, LOOP))] == []


def test_the_documentation_has_the_tables_of_the_code() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for table in (COUNTERS, WEB):
        rows = "\n".join(f"| `{name}` | {what} |" for name, what in table.items())
        assert rows in text, rows
    rows = "\n".join(f"| `{old}` | `{new}` |" for old, new in FORMER.items())
    assert rows in text, rows
