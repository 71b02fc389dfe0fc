# SPDX-License-Identifier: Apache-2.0
"""`ri2n strategy`, `config`, `events` and `host show`, with controllers that answer."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.cli import labs
from ri2n_sdn.cli.labs import Where
from ri2n_sdn.client import call
from ri2n_sdn.contract.choices import STRATEGIES
from ri2n_sdn.errors import NotAvailable
from tests.unit.commands import ri2n
from tests.unit.test_cli_client import listener
from tests.waiting import LONG_S

Answers = dict[str, Any]


def event(seq: int, severity: str, text: str) -> Answers:
    return {
        **{"seq": seq, "time_s": 1795831577.0 + seq, "code": "nic_up", "subject": {}, "args": {}},
        **{"severity": severity, "text": text, "advice": "look at it" if severity == "bad" else ""},
    }


EVENTS = [event(1, "info", "one"), event(2, "bad", "two"), event(3, "warning", "three\nlines")]
NIC = {"port": 1, "mac": "02:00:00:00:00:01", "network": "n1", "speed_bps": 10**8, "up": True}
STATE: Answers = {
    "hosts": {
        "A": {
            **{"dpid": "1", "mac": "", "address": "10.0.0.1", "connected": True, "ovs": "3.1.0"},
            **{"datapath": "netdev", "helper": {"running": True, "reports": True}},
            "nics": {"eth0": {**NIC, "alive": False, "switch": None}},
        }
    },
    "rates": {"A": {"eth0": [5e6, 1e6]}},
    "problems": {
        "1": {"subject": {"host": "A"}, "severity": "warning", "text": "A: a", "advice": "do b"},
        "2": {"subject": {"host": "B"}, "severity": "bad", "text": "B: b", "advice": ""},
    },
    "events": EVENTS,
}


def known(name: str, **more: object) -> Answers:
    return {
        **{"name": name, "connected": True, "seen": True, "address": "10.0.0.1", "dpid": "1"},
        **{"away_since_s": None, "nics": ["eth0"], "declared": True, "jobs": ["j1"]},
        **{"places": {"eth0": ["s0", 7]}, "reservations": []},
        **more,
    }


ANSWERS: Answers = {
    "parameters": {
        "parameters": [
            {
                **{"name": "strategy", "value": "ri2n_plus", "default": "max_min", "unit": ""},
                **{"kind": "choice", "min": None, "max": None, "choices": list(STRATEGIES)},
                **{"live": True, "about": "how"},
            },
            {
                **{"name": "slots", "value": 64, "default": 64, "unit": "", "kind": "integer"},
                **{"min": 16, "max": 256, "choices": [], "live": False, "about": "slots"},
            },
            {
                **{"name": "settle_s", "value": 2.5, "default": 1.0, "unit": "s"},
                **{"kind": "number", "min": 0.0, "max": 60.0, "choices": [], "live": True},
                "about": "time",
            },
        ]
    },
    "events": {"events": EVENTS},
    "status": {"uptime_s": 1.0, "state": STATE, "pairs": [], "jobs": {}},
    "host_list": {
        "hosts": [
            known("A"),
            known("Z", connected=False, address=None, jobs=[], reservations=["r1"]),
        ]
    },
}


@contextmanager
def controller(asked: list[Answers] | None = None) -> Iterator[str]:
    """A controller that gives the answers of `ANSWERS`, and says what it was `asked`."""

    def serve(connection: socket.socket) -> None:
        request = json.loads(connection.makefile("rb").readline())
        if asked is not None:
            asked.append(request)
        answer = ANSWERS.get(request["op"]) or {key: request[key] for key in ("name", "value")}
        connection.sendall(json.dumps({"ok": True, **answer}).encode() + b"\n")

    with listener(serve) as path:
        yield str(path)


def test_the_strategy_is_shown_and_changed() -> None:
    asked: list[Answers] = []
    with controller(asked) as path:
        shown = ri2n("strategy", "--socket", path)
        assert shown.stdout.split("\n")[:-1] == [
            f"{'*' if name == 'ri2n_plus' else ' '} {name}" for name in STRATEGIES
        ]
        told = json.loads(ri2n("strategy", "--json", "--socket", path).stdout)
        assert told["value"] == "ri2n_plus"
        done = ri2n("strategy", "round_robin", "--socket", path)
        assert done.stdout.startswith("strategy is round_robin until")
        assert asked[-1] == {"op": "parameters_set", "name": "strategy", "value": "round_robin"}
        asked.clear()
        refused = ri2n("strategy", "fastest", "--socket", path)
    assert refused.returncode == 2 and refused.stderr.startswith("ri2n: NAME: 'fastest'")
    assert asked == []


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), ("0.5", 0.5), ("max_min", "max_min"), ("NaN", "NaN"), ("true", "true"), ("[", "[")],
)
def test_a_setting_is_a_number_or_a_word(text: str, value: object) -> None:
    asked: list[Answers] = []
    with controller(asked) as path:
        done = ri2n("config", "set", "settle_s", text, "--json", "--socket", path)
    assert asked == [{"op": "parameters_set", "name": "settle_s", "value": value}]
    assert json.loads(done.stdout)["value"] == value


def test_settings_are_listed_with_limits_and_what_they_were_at_the_start() -> None:
    with controller() as path:
        lines = ri2n("config", "ls", "--socket", path).stdout.splitlines()
    assert lines[2:] == [
        *("slots: 64  (16 to 256)", "    slots; only cluster.yaml changes it"),
        *("settle_s: 2.5 s  (0 to 60; 1 at the start)", "    time"),
    ]
    assert lines[0] == f"strategy: ri2n_plus  ({', '.join(STRATEGIES)}; max_min at the start)"


def test_a_host_is_shown_with_what_is_wrong_and_who_needs_it() -> None:
    with controller() as path:
        shown = ri2n("host", "show", "A", "--socket", path).stdout
        away = ri2n("host", "show", "Z", "--socket", path).stdout
        document = json.loads(ri2n("host", "show", "A", "--json", "--socket", path).stdout)
        unknown = ri2n("host", "show", "Q", "--socket", path)
    assert "A: connected, 10.0.0.1; Open vSwitch 3.1.0, datapath netdev; helper runs" in shown
    assert "warning: A: a: do b" in shown and "B: b" not in shown
    row = next(line for line in shown.splitlines() if "eth0" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        *("eth0", "n1", "s0", "100.0 Mbit/s", "yes", "NO", "5.0 Mbit/s", "1.0 Mbit/s"),
    ]
    assert "jobs that need it: j1" in shown and "reservations" not in shown
    assert away.startswith("Z: away") and "reservations that need it: r1" in away
    nic = document["nics"][0]
    assert (nic["name"], nic["switch"], nic["switch_port"], nic["tx_bps"]) == ("eth0", "s0", 7, 5e6)
    assert [each["text"] for each in document["problems"]] == ["A: a"]
    assert unknown.returncode == 2 and unknown.stderr.startswith("ri2n: Q: ")


def test_events_are_filtered_and_one_line_each() -> None:
    with controller() as path:
        lines = ri2n("events", "--socket", path).stdout.splitlines()
        bad = ri2n("events", "--at-least", "warning", "-n", "1", "--socket", path).stdout
        told = ri2n("events", "--json", "--last", "2", "--socket", path).stdout.splitlines()
        none = ri2n("events", "-n", "0", "--socket", path)
        wrong = ri2n("events", "--at-least", "loud", "--socket", path)
    assert [line.split(" ", 1)[1] for line in lines] == [
        *("info: one", "bad: two: look at it", r"warning: three\nlines"),
    ]
    assert bad.endswith("warning: three\\nlines\n") and bad.count("\n") == 1
    assert [json.loads(line)["seq"] for line in told] == [2, 3]
    assert (none.returncode, none.stdout) == (0, "")
    assert wrong.returncode == 2 and "--at-least" in wrong.stderr


def test_events_are_followed_over_a_new_start_of_the_controller() -> None:
    """The first stream has one new event and ends; the next controller counts from 1 again."""
    over = threading.Event()
    streams = iter(([EVENTS, [*EVENTS, event(4, "bad", "four")]], [[event(1, "info", "anew")]]))

    def serve(connection: socket.socket) -> None:
        request = json.loads(connection.makefile("rb").readline())
        if request["op"] != "watch":
            connection.sendall(json.dumps({"ok": True, "events": EVENTS}).encode() + b"\n")
            return
        first, *changes = next(streams)
        answer = {"ok": True, "seq": 1, "state": {"events": first}}
        connection.sendall(json.dumps(answer).encode() + b"\n")
        for number, events in enumerate(changes, 2):
            change = {"seq": number, "changed": {"events": events}}
            connection.sendall(json.dumps(change).encode() + b"\n")
        if not changes:
            over.wait(LONG_S)

    with listener(serve) as path:
        words = ("events", "-f", "-n", "1", "--json", "--socket", str(path))
        with subprocess.Popen(
            [sys.executable, "-m", "ri2n_sdn.cli.main", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_interruptible,
        ) as process:
            try:
                assert process.stdout is not None and process.stderr is not None
                seen = [json.loads(process.stdout.readline())["text"] for _ in range(3)]
                assert seen == ["three\nlines", "four", "anew"]
                process.send_signal(signal.SIGINT)
                assert process.wait(LONG_S) == 130
                assert "waiting for it" in process.stderr.read()
            finally:
                process.kill()
                over.set()


def _interruptible() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_events_of_nobody_are_an_error_also_with_follow() -> None:
    done = ri2n("events", "-f", "--socket", "/nonexistent/c.sock")
    assert done.returncode == 2 and done.stderr.count("\n") == 1


# ---- Who may not look


def as_nobody(check: Callable[[], None]) -> None:
    """Run `check` as a user who is not root."""
    if os.geteuid() != 0:
        check()
        return
    os.seteuid(65534)
    try:
        check()
    finally:
        os.seteuid(0)


def test_no_controller_is_not_said_to_users_who_may_not_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ri2n_lab.cluster import state

    root = Path("/tmp") / f"ri2n-may-not-{os.getpid()}"
    root.mkdir()
    try:
        lab = root / "one"
        lab.mkdir()
        monkeypatch.setattr(labs, "DEFAULT_SOCKET", root / "absent.sock")
        monkeypatch.setattr(state, "ROOT", root)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(lab / "controller.sock"))
            server.listen()
            (lab / "controller.sock").chmod(0)

            def lab_is_found() -> None:
                assert Where().path == lab / "controller.sock"

            as_nobody(lab_is_found)
            for closed, asked in ((root, root), (lab, None)):
                closed.chmod(0)

                def is_refused(asked: Path | None = asked) -> None:
                    with pytest.raises(NotAvailable) as refused:
                        call(Where().path, "status")
                    assert refused.value.code == "controller_for_root"
                    if asked is not None:
                        assert refused.value.values == {"path": str(root / "absent.sock")}

                as_nobody(is_refused)
                closed.chmod(0o755)
    finally:
        for path in (root, root / "one"):
            path.chmod(0o755)
        (root / "one" / "controller.sock").unlink(missing_ok=True)
        (root / "one").rmdir()
        root.rmdir()
