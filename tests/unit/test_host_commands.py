# SPDX-License-Identifier: Apache-2.0
"""`ri2n host` where the controller says nothing for a long time, or asks before it acts."""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from typing import Any

import pytest

from ri2n_sdn.cli.host import confirm
from tests.unit.commands import ri2n
from tests.unit.test_cli_client import listener

AWAY = {
    **{"name": "A", "connected": False, "seen": True, "address": None, "dpid": "1"},
    **{"nics": ["eth0", "eth1"], "places": {}, "jobs": [], "reservations": []},
}
HERE = {**AWAY, "connected": True, "address": "192.0.2.1", "dpid": "2"}


class Quiet:
    """A controller of a cluster in which nothing happens: nobody would be told of a change."""

    def __init__(self, *hosts: dict[str, Any]) -> None:
        self.hosts = list(hosts)
        self.settled = True

    def serve(self, connection: socket.socket) -> None:
        request = json.loads(connection.makefile("rb").readline())
        state = {"controller": {"settled": self.settled}}
        answer: dict[str, Any] = {"ok": True, "state": state}
        if request["op"] == "host_list":
            answer["hosts"] = [self.hosts.pop(0) if len(self.hosts) > 1 else self.hosts[0]]
        elif request["op"] == "watch":
            # Signs of life, until the other side has had enough.
            connection.sendall(json.dumps({"ok": True, "seq": 1, "state": {}}).encode() + b"\n")
            while True:
                connection.sendall(b'{"seq": 1, "changed": {}}\n')
                time.sleep(0.01)
        connection.sendall(json.dumps(answer).encode() + b"\n")


def replaced(controller: Quiet, *options: str) -> Any:
    with listener(controller.serve) as path:
        return ri2n("host", "replace", "A", "--yes", "--socket", str(path), *options)


def test_nobody_waits_longer_than_was_said() -> None:
    done = replaced(Quiet(AWAY), "--wait", "0.5")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "A: no other machine of this name has connected within 0.5 s" in done.stderr
    # The machine that was there before is not the new one.
    back = {**HERE, "dpid": AWAY["dpid"]}
    assert replaced(Quiet(AWAY, back), "--wait", "0").returncode == 2


def test_the_new_machine_is_seen_though_nothing_else_happens() -> None:
    done = replaced(Quiet(AWAY, AWAY, HERE))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("A is there, at 192.0.2.1\n")
    done = replaced(Quiet(AWAY, {**HERE, "nics": ["eth0", "eth7"]}))
    assert done.returncode == 2 and "the new machine has no NIC eth1" in done.stderr


class Terminal(io.StringIO):
    """A person who types this."""

    def isatty(self) -> bool:
        return True


def test_a_question_is_no_part_of_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """stdout may be a file: whoever is asked would not see it, and the answer is no JSON then."""
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    confirm("Forget A?", False)
    said = capsys.readouterr()
    assert said.out.strip() == "" and "Forget A?" in said.err
