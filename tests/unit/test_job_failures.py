# SPDX-License-Identifier: Apache-2.0
"""Orders that hosts cannot carry out: what operators see, and what hosts cannot make them see."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ri2n_sdn.apps.job_state import JobState
from ri2n_sdn.apps.local_api import LocalApi
from ri2n_sdn.jobs.members import Agreement
from ri2n_sdn.jobs.model import Job, Policy
from tests.unit.commands import ri2n
from tests.unit.fake_hosts import FakeChannel, cluster_of

ORDER = Job("o1", "alice", 20001, ("A", "B", "C"), Policy(), 10.0, source="order")


@pytest.fixture
def state() -> JobState:
    """A controller's jobs, with one order that no host has begun yet."""
    made = JobState()
    made.book.add_order(ORDER)
    return made


def not_done(state: JobState) -> list[tuple[str, str]]:
    """(host, its words) of the orders that hosts cannot carry out."""
    problems = list(state.problems(0.0))
    assert {problem.code for problem in problems} <= {"job_order_not_done"}
    assert {problem.subject["job"] for problem in problems} <= {"o1"}
    return [(problem.subject["host"], problem.args["why"]) for problem in problems]


def test_a_host_that_cannot_begin_is_named_with_its_words(state: JobState) -> None:
    assert state.state_of("o1") == ("waiting", "no host has begun it yet")
    state.failed = {"B": {"o1": "no class is left"}}
    assert state.state_of("o1") == ("waiting", "B cannot begin it: no class is left")
    assert not_done(state) == [("B", "no class is left")]
    state.failed["A"] = {"o1": "nft is missing"}
    assert state.state_of("o1") == (
        "waiting",
        "2 hosts cannot carry out the order; A cannot begin it: nft is missing",
    )
    assert len(not_done(state)) == 2
    state.failed = {"A": {}, "B": {}}
    assert state.state_of("o1") == ("waiting", "no host has begun it yet") and not not_done(state)


def test_a_host_that_has_begun_cannot_change(state: JobState) -> None:
    state.agreement = Agreement({"o1": replace(ORDER, hosts=("B",))}, {"o1": {"B": 3}})
    state.states = {"o1": ("installed", "")}
    state.failed = {"B": {"o1": "tc is missing"}}
    assert state.state_of("o1") == ("installed", "B cannot change it: tc is missing")


def test_a_refusal_of_the_controller_comes_first(state: JobState) -> None:
    state.states = {"o1": ("refused", "net1 belongs to somebody")}
    state.failed = {"B": {"o1": "no class is left"}}
    assert state.state_of("o1") == ("refused", "net1 belongs to somebody")


def test_a_host_speaks_only_of_its_own_orders(state: JobState) -> None:
    state.failed = {"D": {"o1": "I am not in it"}, "B": {"o2": "there is no such order"}}
    assert state.state_of("o1") == ("waiting", "no host has begun it yet")
    assert not not_done(state) and not state.failures("o2")


def test_commands_show_it(tmp_path: Path) -> None:
    cluster = cluster_of({name: FakeChannel() for name in "AB"})
    cluster.socket_path = tmp_path / "c.sock"
    cluster.jobs.book.add_order(replace(ORDER, hosts=("A", "B")))
    cluster.jobs.failed = {"B": {"o1": "no class is left [/]"}}
    socket = ("--socket", str(cluster.socket_path))
    with closing(LocalApi(cluster)):
        (listed,) = json.loads(ri2n("job", "ls", "--json", *socket).stdout)
        assert listed["failed"] == {"B": "no class is left [/]"}
        assert "B cannot begin it: no class is left [/]" in ri2n("job", "ls", *socket).stdout
        shown = ri2n("job", "show", "o1", *socket).stdout.splitlines()
        assert shown[0] == "o1: waiting: B cannot begin it: no class is left [/]"
        assert "A: has not begun it" in shown
        assert "B: has not begun it, and cannot carry out the order: no class is left [/]" in shown
        (problem,) = cluster.jobs.problems(0.0)
        assert problem.args["why"] == "no class is left [/]"
        assert problem.text in ri2n("status", *socket).stdout
