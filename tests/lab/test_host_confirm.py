# SPDX-License-Identifier: Apache-2.0
"""host-up --confirm undoes itself unless it is confirmed, and host scripts work one at a time."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
from pathlib import Path

import pytest

from .conftest import WaitUntil
from .prepared_host import HOST, WAIT_S, Host, fake_program, host

__all__ = ["host"]


@pytest.fixture
def alarm(tmp_path: Path) -> Path:
    """A folder with a `sleep` that lasts until somebody writes to its `ring`.

    It keeps its argument in `seconds`.
    """
    os.mkfifo(tmp_path / "ring")
    return fake_program(
        tmp_path, "sleep", f'echo "$1" >{tmp_path}/seconds; exec cat {tmp_path}/ring >/dev/null'
    )


def test_not_confirmed_undoes_itself_though_the_session_died(
    host: Host, alarm: Path, wait_until: WaitUntil
) -> None:
    before = host.snapshot()
    up = shlex.join(host.command("host-up", *host.up_arguments, "--confirm", "600", programs=alarm))
    # A session leader with a terminal of its own that is killed when host-up has reported, like an
    # ssh session that breaks.
    host.run("script", "-qec", f"{up}; kill -HUP 0; kill -9 $$", "/dev/null", check=False)
    assert host.is_up
    (alarm / "ring").write_text("")
    wait_until(lambda: not host.is_up, "the bridge is still there", WAIT_S)
    wait_until(lambda: host.snapshot() == before, "the state before is not back", WAIT_S)
    assert (alarm / "seconds").read_text() == "600\n"


def test_confirmed_stays(host: Host, alarm: Path, wait_until: WaitUntil) -> None:
    host.run(*host.command("host-up", *host.up_arguments, "--confirm", "600", programs=alarm))
    assert (
        json.loads(host.script("host-status", "--json", check=False).stdout)["pending_confirm"]
        is True
    )
    assert len(host.watchers()) == 1
    host.script("host-up", "--confirmed")
    assert (
        json.loads(host.script("host-status", "--json", check=False).stdout)["pending_confirm"]
        is False
    )
    (alarm / "ring").write_text("")
    wait_until(lambda: not host.watchers(), "the watcher is still there", WAIT_S)
    assert host.is_up
    again = host.script("host-up", "--confirmed", check=False)
    assert again.returncode == 2
    assert "nothing waits" in again.stderr


def test_one_at_a_time(host: Host, wait_until: WaitUntil) -> None:
    """A script waits for the one that works; the undo of --confirm waits as long as necessary."""
    lock = os.open(host.state, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def waits_s() -> list[int]:
            lines = [line.split() for line in host.processes().values()]
            return [int(words[2]) for words in lines if words[:2] == ["flock", "-w"]]

        undo = host.lab.popen(HOST, host.command("host-down", "--if-pending", "none"))
        wait_until(
            lambda: waits_s() == [86400], lambda: f"waiting for the lock: {waits_s()}", WAIT_S
        )
        up = host.lab.popen(HOST, host.command("host-up", *host.up_arguments))
        wait_until(
            lambda: sorted(waits_s()) == [60, 86400],
            lambda: f"waiting for the lock: {waits_s()}",
            WAIT_S,
        )
        assert not host.is_up
        assert not (host.state / "br-ri2n").exists()
    finally:
        os.close(lock)
    assert (undo.wait(WAIT_S), up.wait(WAIT_S)) == (0, 0)
    assert host.is_up
