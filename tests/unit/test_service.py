# SPDX-License-Identifier: Apache-2.0
"""What the controller and the web process tell systemd."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_sdn.service import notify, watchdog_s


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket at which systemd would listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        monkeypatch.setenv("WATCHDOG_USEC", "2500000")
        yield heard


def test_systemd_hears_what_is_said(systemd: socket.socket) -> None:
    assert notify("READY=1", "STATUS=well")
    assert systemd.recv(100) == b"READY=1\nSTATUS=well"
    assert watchdog_s() == 2.5


def test_an_address_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"ri2n-test-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("\0" + name)
        heard.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        assert notify("WATCHDOG=1")
        assert heard.recv(100) == b"WATCHDOG=1"


def test_a_child_of_the_service_does_not_speak_for_it(systemd: socket.socket) -> None:
    script = "from ri2n_sdn.service import *; print(notify('READY=1'), watchdog_s())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False None\n", done.stderr
    with pytest.raises(BlockingIOError):
        systemd.recv(100)


def test_a_systemd_that_does_not_read_makes_nobody_wait(systemd: socket.socket) -> None:
    said = [notify("WATCHDOG=1") for _ in range(5000)]
    assert said[0] and not said[-1]


@pytest.mark.parametrize("limit", ["", "0", "-5", "soon"])
def test_without_a_watchdog(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", limit)
    assert watchdog_s() is None


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "/" + "x" * 200])
def test_where_nobody_listens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")
