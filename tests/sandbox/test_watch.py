# SPDX-License-Identifier: Apache-2.0
"""Watchers of a real controller: links that fail, new starts, kills, and who may write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from ri2n_lab.cluster.sandbox import Sandbox, execute
from ri2n_sdn.client import Watch, call, web_socket_of
from ri2n_sdn.errors import BadInput, NotAvailable
from tests.waiting import LONG_S, wait_until

from .test_trunk import dead_port

HOSTS = ("A", "B", "C")
WEB = {"user": "web", "uid": None, "role": "viewer"}
ADMIN = {"user": "carol", "uid": 20003, "role": "admin"}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A controller as a user starts it: an interpreter of its own, which it may replace."""
    with Sandbox({name: ["n0", "n1"] for name in HOSTS}) as made:
        made.spawn = execute
        made.start_controller(strategy="max_min")
        made.wait_settled()
        yield made
        assert "Traceback" not in made.log()


def watch(sandbox: Sandbox) -> Watch:
    """A watcher in place of the web process, when the controller is there."""
    made: list[Watch] = []

    def begins() -> bool:
        try:
            made.append(Watch(web_socket_of(sandbox.socket), who=WEB, silent_s=LONG_S))
        except NotAvailable:
            return False
        return True

    wait_until(begins, "no controller can be watched")
    return made[0]


def until(watching: Watch, condition: Callable[[Mapping[str, Any]], object]) -> Mapping[str, Any]:
    """The first state that fulfils a condition; a stream that ends fails."""
    deadline_s = time.monotonic() + LONG_S
    for state in watching:
        if condition(state):
            return state
        assert time.monotonic() < deadline_s, state["problems"]
    raise AssertionError("the stream has ended")


def told(state: Mapping[str, Any]) -> bool:
    """Whether the newest event is that carol has set the strategy."""
    return str(state["events"][-1]["text"]).endswith(": carol has set it")


def alive(state: Mapping[str, Any], host: str, nic: str) -> bool:
    return bool(state["hosts"][host]["nics"][nic]["alive"])


def test_a_link_that_fails_and_comes_back_reaches_a_watcher(sandbox: Sandbox) -> None:
    """How long it took is printed. It is not asserted, because a busy machine may take longer."""
    nic = "B-e1"
    with watch(sandbox) as watching:
        until(watching, lambda state: alive(state, "B", nic) and not state["problems"])
        began_s = time.monotonic()
        with dead_port(sandbox, "B", 1):
            state = until(watching, lambda state: not alive(state, "B", nic))
            print(f"the watcher knows after {time.monotonic() - began_s:.2f} s")
            noted_s = [event["time_s"] for event in state["events"] if nic in event["text"]]
            print(f"of which after the event: {time.time() - noted_s[-1]:.2f} s")
            assert any(nic in problem["text"] for problem in state["problems"].values())
            assert alive(state, "B", "B-e0") and alive(state, "A", "A-e1")
        until(watching, lambda state: alive(state, "B", nic) and not state["problems"])
    status = sandbox.ask("status")
    assert {host["name"]: host["dpid"] for host in status["hosts"]} == {
        name: host["dpid"] for name, host in watching.state["hosts"].items()
    }


def test_a_strategy_that_is_changed_by_an_admin_reaches_a_watcher(sandbox: Sandbox) -> None:
    path = web_socket_of(sandbox.socket)
    with watch(sandbox) as watching:
        next(watching)
        with pytest.raises(BadInput, match="needs the role admin, and web is viewer"):
            call(path, "parameters_set", who=WEB, name="strategy", value="ri2n_plus")
        call(path, "parameters_set", who=ADMIN, name="strategy", value="ri2n_plus")
        state = until(watching, lambda state: state["controller"]["strategy"] == "ri2n_plus")
        assert state["controller"]["parameters"]["strategy"] == "ri2n_plus"
        if not told(state):
            until(watching, told)
        assert sandbox.ask("status")["strategy"] == "ri2n_plus"
    call(path, "parameters_set", who=ADMIN, name="strategy", value="max_min")


def test_a_new_start_ends_the_stream_and_tokens_are_kept(sandbox: Sandbox) -> None:
    path = web_socket_of(sandbox.socket)
    call(path, "token_add", who=ADMIN, name="grafana", role="viewer", hash=64 * "a")
    with watch(sandbox) as watching:
        until(watching, lambda state: "grafana" in state["tokens"])
        pid, began_s = (
            watching.state["controller"]["pid"],
            watching.state["controller"]["started_s"],
        )
        call(path, "reload", who=ADMIN)
        list(watching)  # it ends, and behind a whole line
    with watch(sandbox) as again:
        state = until(again, lambda state: state["controller"]["settled"])
        assert state["controller"]["started_s"] > began_s and state["controller"]["pid"] == pid
        assert state["tokens"]["grafana"] == {
            **{"hash": 64 * "a", "role": "viewer", "user": None},
            "expires_s": None,
        }
        call(path, "token_remove", who=ADMIN, name="grafana")
        until(again, lambda state: not state["tokens"])


def test_a_killed_controller_ends_the_stream(sandbox: Sandbox) -> None:
    with watch(sandbox) as watching:
        next(watching)
        sandbox.kill_controllers()
        try:
            list(watching)
        except NotAvailable as error:  # it was killed in the middle of a line
            assert "\n" not in str(error)
    sandbox.start_controller(strategy="max_min")
    sandbox.wait_settled()
    with watch(sandbox) as again:
        assert next(again)["hosts"].keys() == set(HOSTS)


def test_pages_of_pairs(sandbox: Sandbox) -> None:
    answer = call(web_socket_of(sandbox.socket), "pairs", who=WEB, host="A", limit=3)
    assert answer["total"] == 4 and len(answer["pairs"]) == 3
    listed = sandbox.ask("pairs", limit=500)["pairs"]
    assert [(pair["src"], pair["dst"]) for pair in listed] == [
        (pair["src"], pair["dst"]) for pair in sandbox.ask("status")["pairs"]
    ]
