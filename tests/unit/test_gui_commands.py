# SPDX-License-Identifier: Apache-2.0
"""The commands that the GUI shows for copying ask the controller for what its forms ask for."""

from __future__ import annotations

import os
import pwd
import shlex
from typing import Any

import pytest

from ri2n_sdn.cli import job, policy, reserve, status, token
from ri2n_sdn.contract.operations import Operation
from ri2n_sdn.errors import NotAvailable
from ri2n_sdn.web.gui.commands import command_of, copyable
from tests.unit.commands import ri2n
from tests.unit.web_state import NOW_S

ME, UID = pwd.getpwuid(os.getuid()).pw_name, os.getuid()
HOSTS: dict[str, Any] = {"hosts": ["A", "B"], "user": ME}
POLICY = {
    **{"policy": "isolated", "paths": ["net1", "A:eth0"], "services": ["10.0.0.9/tcp/2049"]},
    "tables": [{"dscp": 10, "paths": ["net1"]}, {"dscp": 46, "paths": ["net1", "net2"]}],
    **{"min_rate_bps": 400_000_000, "max_rate_bps": 2_500_000_000},
}
RIGHT = {
    **{"user": "alice", "policies": ["shared", "exclusive"], "max_rate_bps": 10**9},
    **{"max_hosts": 8, "reserve": True},
}
FLOW = {"protocol": 17, "sport": 1, "dport": 2}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("job_begin", {"job": {"id": "o1", **HOSTS, "uid": UID, "policy": "shared"}}),
    ("job_begin", {"job": {"id": "o1", **HOSTS, "uid": UID, "named": "gold"}}),
    ("job_begin", {"job": {"id": "o1", **HOSTS, "uid": UID, **POLICY, "end_s": NOW_S}}),
    ("job_move", {"id": "o1", "job": {"policy": "shared"}}),
    ("job_move", {"id": "o1", "job": {"policy": "paths", "paths": ["net2"]}}),
    ("job_move", {"id": "o1", "back": True}),
    ("job_end", {"id": "o1"}),
    (
        "reserve_add",
        {
            "reservation": {
                **{"id": "r1", **HOSTS, "policy": "exclusive", "paths": ["net1"]},
                **{"begin_s": NOW_S, "end_s": NOW_S + 60, "rate_bps": 10**7},
            }
        },
    ),
    ("reserve_remove", {"id": "r1"}),
    ("policy_add", {"name": "gold", "policy": POLICY}),
    ("policy_remove", {"name": "gold"}),
    ("rights_set", {"right": RIGHT}),
    ("rights_set", {"right": {**RIGHT, "user": "*", "max_rate_bps": None, "max_hosts": None}}),
    ("rights_remove", {"user": "*"}),
    ("token_remove", {"name": "backup"}),
    ("token_add", {"name": "a", "role": "user", "user": "alice", "days": 90}),
    ("token_add", {"name": "a", "role": "viewer"}),
    ("explain", {"src": "A", "dst": "B", "flow": FLOW}),
    ("explain", {"src": "A", "dst": "B", "flow": {**FLOW, "dst_ip": "10.0.0.2"}}),
    ("explain", {"src": "A", "dst": "B", "job": "o1"}),
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What the commands ask the controller for. It answers none of it."""
    found: list[tuple[str, dict[str, Any]]] = []

    def call(path: object, op: Operation[Any], **arguments: Any) -> Any:
        found.append((op.name, arguments))
        raise NotAvailable("noted")

    for module in (job, policy, reserve, status, token):
        monkeypatch.setattr(module, "call", call)
    return found


def plain(value: Any) -> Any:
    """A request without what says nothing: no entry, an empty list, and a token's hash."""
    if not isinstance(value, dict):
        return list(value) if isinstance(value, tuple) else value
    kept = {key: plain(each) for key, each in value.items() if key not in ("hash", "datapath")}
    return {key: each for key, each in kept.items() if each not in (None, [])}


@pytest.mark.parametrize(("op", "arguments"), ASKED)
def test_a_command_asks_for_the_same(
    asked: list[tuple[str, dict[str, Any]]], op: str, arguments: dict[str, Any]
) -> None:
    command = command_of(op, **arguments)
    assert command is not None
    words = shlex.split(command)
    assert words[0] == "ri2n"
    done = ri2n(*words[1:], "--socket", "/nonexistent/c.sock")
    assert done.stderr.strip().endswith("noted"), done
    assert [(op, plain(arguments))] == [(said, plain(each)) for said, each in asked]


def test_where_no_command_says_the_same_there_is_none() -> None:
    kept = {"id": "r", **HOSTS, "begin_s": NOW_S, "end_s": NOW_S + 60}
    assert command_of("reserve_add", reservation={**kept, "policy": "shared"}) is None
    assert command_of("reserve_add", reservation={**kept, "min_rate_bps": 5}) is None
    assert command_of("rights_set", right={**RIGHT, "max_rate_bps": 0}) is None
    assert command_of("rights_set", right={**RIGHT, "policies": []}) is None


def test_a_parameter_is_set_by_curl() -> None:
    line = command_of("parameters_set", name="hysteresis", value=0.1, url="http://127.0.0.1:8420/")
    assert line == (
        "curl -X PUT -H \"Authorization: Bearer $TOKEN\" -H 'If-Match: *' --json"
        " '{\"value\": 0.1}' http://127.0.0.1:8420/api/v1/parameters/hysteresis"
    )
    line = command_of("parameters_set", name="strategy", value="max_min", url="http://a")
    assert line is not None and line.endswith('\'{"name": "max_min"}\' http://a/api/v1/strategy')


def test_a_hostile_name_is_one_word_and_no_markup() -> None:
    name = "a'; rm -rf $HOME; \"<img src=x>"
    command = command_of("job_end", id=name)
    assert command is not None and shlex.split(command) == ["ri2n", "job", "end", name]
    assert "<img" not in copyable(command)
