# SPDX-License-Identifier: Apache-2.0
"""`ri2n top`: what is wrong is first, in 80 columns; keys; scripts; controllers that restart."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from ri2n_sdn.cli import top
from ri2n_sdn.cli.top import Feed, keys_of
from ri2n_sdn.cli.top_view import TABLES, Looks, View, check_view, document, press, screen
from ri2n_sdn.contract.units import short_rate as short
from ri2n_sdn.errors import BadInput
from tests.unit.commands import REPOSITORY, ri2n
from tests.unit.test_cli_client import listener
from tests.waiting import LONG_S, wait_until


def host(number: int, **other: Any) -> dict[str, Any]:
    nics = {
        f"eth{nic}": {
            **{"port": nic + 1, "mac": f"02:00:00:00:{number:02x}:{nic:02x}", "network": f"n{nic}"},
            **{"switch": None, "speed_bps": 1_000_000_000, "up": True, "alive": True},
        }
        for nic in range(2)
    }
    return {
        **{"dpid": f"{number:016x}", "mac": "02:00:00:00:00:01", "address": "192.0.2.1:4000"},
        **{"connected": True, "ovs": "3.1.0", "datapath": "system", "nics": nics},
        **{"helper": {"running": True, "reports": True}, **other},
    }


def state(count: int = 4) -> Any:
    """A cluster in which node2 is away, a NIC of node3 is dead, and node1 sends most."""
    hosts = {f"node{number}": host(number) for number in range(1, count + 1)}
    hosts["node2"] |= {"connected": False, "address": None}
    hosts["node3"]["nics"]["eth1"]["alive"] = False
    return {
        "controller": {
            **{"in_charge": True, "settled": True, "strategy": "max_min", "active_pairs": 2},
        },
        "hosts": hosts,
        "rates": {
            name: {"eth0": [10**6 * (count - at), 5], "eth1": [0, 0]}
            for at, name in enumerate(hosts)
            if name != "node2"
        },
        "problems": {
            "w": {"severity": "warning", "text": "node3: eth1 is dead", "advice": "", "rank": 1},
            "b": {"severity": "bad", "text": "node2 is away", "advice": "look", "rank": 0},
        },
        "jobs": {
            "j1": {
                **{"state": "installed", "user": "alice", "hosts": ["node1", "node3"]},
                **{"policy": "isolated", "min_rate_bps": None, "max_rate_bps": 10**9},
                **{"lanes": ["a"], "why": "", "failed": {}},
            },
            "j2": {
                **{"state": "refused", "user": "bob", "hosts": ["node2"], "policy": "shared"},
                **{"min_rate_bps": 5, "max_rate_bps": None, "lanes": [], "why": "no lane"},
            },
        },
        "events": [],
    }


PAIRS: list[Any] = [
    {
        **{"src": src, "dst": dst, "striped": False},
        "paths": [
            {"alive": alive, "share": 0.5, "tx_bps": rate, "rx_bps": rate},
            {"alive": True, "share": 0.25, "tx_bps": 0, "rx_bps": None},
        ],
    }
    for src, dst, alive, rate in (("node1", "node3", True, 9e8), ("node3", "node4", False, 1e6))
]


def looks(**changes: Any) -> Looks:
    return replace(Looks(state(), PAIRS, 2), **changes)


def text_of(seen: Looks, view: View, width: int = 80, height: int | None = 24) -> list[str]:
    stream = io.StringIO()
    out = Console(file=stream, width=width, markup=False, highlight=False, color_system=None)
    out.print(screen(seen, view, width, height))
    return stream.getvalue().splitlines()


def names(view: View, seen: Looks | None = None) -> list[str]:
    return [row["name"] for row in document(seen or looks(), view)[view.table]]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_screen_fits_its_columns_and_lines(table: str, width: int) -> None:
    lines = text_of(looks(), View(table), width)
    assert all(len(line) <= width for line in lines) and len(lines) < 24
    assert len(text_of(Looks(state(1000), PAIRS, 2), View(table), width)) <= 24
    small = text_of(Looks(state(1000), PAIRS, 2), View(table, helping=True), width, 12)
    assert len(small) <= 16  # with the help, more than one row is not asked for


def test_what_hosts_and_pairs_get_of_what_is_fair_is_shown_with_the_age_of_the_rates() -> None:
    known = state()
    known["controller"]["sampled_s"] = 1.5e9
    known["fair"] = {
        "node1": {
            **{"pairs": 2, "tx_bps": 50_000_000, "fair_bps": 200_000_000},
            **{"worst": "node3", "worst_tx_bps": 10_000_000, "worst_fair_bps": 100_000_000},
        }
    }
    seen = looks(state=known, now_s=1.5e9 + 0.4)
    lines = text_of(seen, View())
    (row,) = (line for line in lines if line.startswith("node1 "))
    assert "10%" in row and "of fair" in "".join(lines)
    assert any("worst 10% of fair: node1" in line for line in text_of(seen, View(), 160))
    assert any("rates 0.4 s old" in line for line in lines)
    found = document(seen, View())
    assert found["sampled_s"] == 1.5e9
    assert {row["name"]: row["of fair"] for row in found["hosts"]} == {
        **{"node1": 0.1, "node2": None, "node3": None, "node4": None}
    }
    # Pairs are asked for by themselves, so their rates have an age of their own.
    pairs = [{**PAIRS[0], "tx_bps": 9e8, "fair_bps": 10**9}, PAIRS[1]]
    seen = looks(pairs=pairs, pairs_sampled_s=1.5e9, now_s=1.5e9 + 2)
    lines = text_of(seen, View("pairs"))
    (row,) = (line for line in lines if line.startswith("node1 > node3"))
    assert "1.0G" in row and "90%" in row
    assert any("rates 2.0 s old" in line for line in lines)
    assert [row["of fair"] for row in document(seen, View("pairs"))["pairs"]] == [None, 0.9]


def test_what_is_old_is_dim_and_says_how_old_it_is() -> None:
    known = state()
    known["controller"]["sampled_s"] = 1.5e9
    old = looks(state=known, away="it has ended", away_s=70.0, now_s=1.5e9 + 75)
    assert any("rates 1 min 15 s old" in line for line in text_of(old, View()))

    def colours(seen: Looks) -> set[str]:
        out = Console(width=80, color_system="standard", force_terminal=True)
        rows = (
            segment
            for segment in out.render(screen(seen, View(), 80, 24))
            if segment.text.strip() in ("node1", "node2", "node3") and segment.style
        )
        return {str(segment.style) for segment in rows}

    assert colours(old) == {"dim"}
    assert "bold red" in colours(replace(old, away=None))


def test_problems_come_first_and_leave_room_for_rows() -> None:
    lines = text_of(looks(), View())
    assert lines[0].startswith("bad: node2 is away: look") and lines[1].startswith("warning: node3")
    assert "1 of 4" not in lines[2] and "3 of 4 hosts" in lines[2]
    many = state() | {
        "problems": {
            str(number): {"severity": "warning", "text": f"p{number}", "advice": "", "rank": number}
            for number in range(100)
        }
    }
    lines = text_of(looks(state=many), View())
    assert lines[7] == "warning: p7" and lines[8] == "92 more: see ri2n status"
    assert any("node2" in line for line in lines) and len(lines) <= 24


def test_in_80_columns_no_value_is_cut_off() -> None:
    long_names = state()
    long_names["hosts"] = {name * 8: each for name, each in long_names["hosts"].items()}
    long_names["rates"] = {name * 8: each for name, each in long_names["rates"].items()}
    lines = text_of(looks(state=long_names), View(), 80)
    (row,) = [line for line in lines if "…" in line and "away" in line]
    assert row.split()[1] == "away"
    (heading,) = [line for line in lines if line.startswith("name")]
    for word in ("state", "usable", "NICs", "sending", "receiving", "helper", "jobs"):
        assert word in heading


def test_rows_that_need_somebody_come_first() -> None:
    assert names(View()) == ["node2", "node3", "node1", "node4"]
    assert names(View("nics"))[:3] == ["node2:eth0", "node2:eth1", "node3:eth1"]
    assert names(View("pairs")) == ["node3 > node4", "node1 > node3"]
    assert names(View("jobs")) == ["j2", "j1"]


def test_orders() -> None:
    assert names(View(sort="name")) == ["node1", "node2", "node3", "node4"]
    assert names(View(sort="name", turned=True)) == ["node4", "node3", "node2", "node1"]
    # The rates of node2 are not known: it comes last in both orders.
    assert names(View(sort="sending")) == ["node1", "node3", "node4", "node2"]
    assert names(View(sort="sending", turned=True)) == ["node4", "node3", "node1", "node2"]
    for table in TABLES:
        for column in top_columns(table):
            assert sorted(names(View(table, column))) == sorted(names(View(table)))


def top_columns(table: str) -> list[str]:
    found, view = [], View(table)
    while (pressed := press(view, "s")) is not None and pressed.sort:
        found.append(pressed.sort)
        view = pressed
    return found


def test_a_filter_looks_at_all_that_a_row_says() -> None:
    assert names(View(wanted="NODE3")) == ["node3"]
    assert names(View(wanted="away")) == ["node2"]
    assert names(View("pairs", wanted="node4")) == ["node3 > node4"]
    assert names(View(wanted="nobody")) == []
    assert "no hosts" in text_of(looks(), View(wanted="nobody"))[-1]


def test_wrong_tables_and_columns() -> None:
    with pytest.raises(BadInput, match="TABLE: unknown 'cables'"):
        check_view(View("cables"))
    with pytest.raises(BadInput, match="--sort: jobs has no column 'sending'; choose from name"):
        check_view(View("jobs", "sending"))
    ended = ri2n("top", "hosts", "--sort", "colour")
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1


def keys(view: View, *pressed: str) -> View:
    for key in pressed:
        after = press(view, key)
        assert after is not None
        view = after
    return view


def test_keys() -> None:
    assert keys(View(), "n").table == "nics" and keys(View(), "j", "p", "h").table == "hosts"
    assert keys(View(), "s", "s").sort == "state" and keys(View(), "S").sort == "address"
    assert keys(View(), "s", "S") == View()
    assert keys(View(), "s", "r").turned and not keys(View(), "r", "s").turned
    assert keys(View(), "down", "page down").first == 11 and keys(View(), "up").first == 0
    typed = keys(View(), "/", "n", "o", "backspace", "3")
    assert typed.typing == "n3" and typed.table == "hosts"
    assert keys(typed, "enter").wanted == "n3" and keys(typed, "escape").wanted == ""
    assert keys(typed, "enter", "escape").wanted == ""
    assert keys(View(), " ").paused and not keys(View(), " ", " ").paused
    assert keys(View(), "?").helping and keys(View(), "x", "enter", "left") == View()
    assert press(View(), "q") is None and keys(View(), "/", "q").typing == "q"


def test_what_a_terminal_sends() -> None:
    assert keys_of("q\x1b[Aé\r\x7f") == ["q", "up", "é", "enter", "backspace"]
    assert keys_of("\x1b") == ["escape"] and keys_of("\x1b[200;5Hn") == ["n"]
    assert keys_of("\x1b[6~\x1b[5~\x00\x07") == ["page down", "page up"]
    for junk in ("\x1b[", "\x1bO", "\x1b[1;", "\x1b\x1b"):
        keys_of(junk)


def test_scrolling_ends_at_the_last_row() -> None:
    many = Looks(state(1000))
    lines = text_of(many, View(sort="name", first=10**6))
    assert any("node999 " in line for line in lines) and "of 1000 hosts" in lines[-1]


def test_a_name_that_would_change_the_terminal_is_harmless() -> None:
    evil = state()
    evil["hosts"]["a\x1b[2J\n\r[red]b"] = host(9, address="\x1b]0;x\x07")
    evil["problems"]["e"] = {"severity": "bad", "text": "x\x1b[2J\ny", "advice": "", "rank": 3}
    for table in TABLES:
        lines = text_of(looks(state=evil), View(table), 200)
        assert all(line.isprintable() for line in lines)
    assert "[red]b" in "".join(text_of(looks(state=evil), View(), 200))


def test_a_controller_that_is_away_is_said_first() -> None:
    lines = text_of(looks(away="no controller listens there", away_s=7.2), View())
    assert lines[0] == "the controller is away for 7 s: no controller listens there"
    assert any("node1" in line for line in lines)


def test_an_empty_cluster_and_a_new_controller() -> None:
    for table in TABLES:
        lines = text_of(Looks(cast(Any, {})), View(table))
        assert lines[-1].startswith(f"no {table}")


def test_rates_are_short() -> None:
    rates = [None, 0, 999, 1500, 999_960, 95.64e6, 1e9, 400e9, 1e12]
    shown = [short(rate) for rate in rates]
    assert shown == ["-", "0", "999", "1.5k", "1.0M", "95.6M", "1.0G", "400.0G", "1.0T"]


# ---- with a controller


class Controller:
    """Answers `watch` and `pairs` as a controller does; `ends` ends a stream."""

    def __init__(self) -> None:
        self.state, self.ends, self.goes = state(), threading.Event(), False
        self.asked: list[str] = []

    def serve(self, connection: socket.socket) -> None:
        request = json.loads(connection.makefile("rb").readline())
        self.asked.append(request["op"])
        if request["op"] == "pairs":
            answer = {"ok": True, "pairs": PAIRS, "total": 900, "offset": 0}
            connection.sendall(json.dumps(answer).encode() + b"\n")
            return
        first = {"ok": True, "seq": 1, "state": self.state}
        connection.sendall(json.dumps(first).encode() + b"\n")
        assert self.ends.wait(LONG_S)
        if not self.goes:
            self.ends.clear()


@contextmanager
def controller() -> Iterator[tuple[Controller, Path]]:
    made = Controller()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError, ValueError):
                made.serve(self.request)

    with tempfile.TemporaryDirectory(prefix="ri2n-") as folder:
        path = Path(folder) / "controller.sock"
        with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
            thread = threading.Thread(target=lambda: server.serve_forever(0.01))
            thread.start()
            try:
                yield made, path
            finally:
                path.unlink()
                made.goes = True
                made.ends.set()
                server.shutdown()
                thread.join()


class Scripted(Controller):
    """A controller that ends each stream at once, for commands that look once."""

    def serve(self, connection: socket.socket) -> None:
        self.ends.set()
        super().serve(connection)


def test_scripts_get_all_rows_or_a_document() -> None:
    made = Scripted()
    with listener(made.serve) as path:
        once = ri2n("top", "--once", "--socket", str(path), "--sort", "name")
        document_ = ri2n("top", "pairs", "--json", "--filter", "node4", "--socket", str(path))
        twice = ri2n("top", "--count", "1", "--socket", str(path))
    assert once.returncode == 0 and "node2 is away" in once.stdout.splitlines()[0]
    assert [line.split()[0] for line in once.stdout.splitlines()[4:8]] == [
        *("node1", "node2", "node3", "node4"),
    ]
    found = json.loads(document_.stdout)
    assert [row["name"] for row in found["pairs"]] == ["node3 > node4"]
    assert found["problems"][0]["severity"] == "bad" and found["controller"]["settled"]
    assert found["pairs"][0]["sending"] == 1e6 and "rank" not in found["pairs"][0]
    assert twice.returncode == 0 and "node2 is away" in twice.stdout
    assert made.asked[:4] == ["watch", "watch", "pairs", "watch"]
    assert {*made.asked[4:]} <= {"watch"}, "a stream that has ended is asked for again"


def test_the_stream_goes_on_with_the_next_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "_MAX_PAUSE_S", 0.05)
    with controller() as (made, path):
        feed = Feed(path)
        assert feed.looks().away is None and len(feed.looks().state["hosts"]) == 4
        made.state = state(7)
        made.ends.set()
        wait_until(lambda: len(feed.looks().state["hosts"]) == 7, feed.looks)
        assert feed.looks().away is None
        feed.want_pairs()
        feed.want_pairs()
        wait_until(lambda: feed.looks().pairs_total == 900, feed.looks)
        assert made.asked.count("pairs") == 1
    wait_until(lambda: feed.looks().away is not None, feed.looks)
    assert len(feed.looks().state["hosts"]) == 7


def test_keys_in_a_real_terminal_and_a_terminal_as_before() -> None:
    with controller() as (made, path):
        main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        before = termios.tcgetattr(side)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ri2n_sdn.cli.main", "top", "--interval", "0.1"),
                *("--socket", str(path)),
            ],
            stdin=side,
            stdout=side,
            stderr=side,
            cwd=REPOSITORY,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        )
        seen = bytearray()

        def shown(text: str) -> bool:
            while select.select([main], [], [], 0)[0]:
                seen.extend(os.read(main, 1 << 16))
            plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", bytes(seen))
            return text.encode() in plain

        try:
            wait_until(lambda: shown("node2 is away"), lambda: bytes(seen))
            wait_until(lambda: shown("1-4 of 4 hosts"), lambda: bytes(seen))
            os.write(main, b"p")
            wait_until(lambda: shown("node3 > node4"), lambda: bytes(seen))
            os.write(main, b"h/node3\r")
            wait_until(lambda: shown("1-1 of 1 hosts"), lambda: bytes(seen))
            wait_until(lambda: shown("with 'node3'"), lambda: bytes(seen))
            made.state = state(7)
            os.write(main, b"\x1b")
            made.ends.set()
            wait_until(lambda: shown("1-7 of 7 hosts"), lambda: bytes(seen))
            os.write(main, b"q")
            assert process.wait(LONG_S) == 0
            assert termios.tcgetattr(side) == before
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
            os.close(main)
            os.close(side)
