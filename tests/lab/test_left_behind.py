# SPDX-License-Identifier: Apache-2.0
"""Nothing of a demo stays, however the demo ends, and nothing of anybody else's is touched."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.waiting import wait_until

from .conftest import PATIENCE_S
from .snapshot import QuietMachine

RI2N = (sys.executable, "-m", "ri2n_sdn.cli.main")


@pytest.fixture
def machine() -> Iterator[QuietMachine]:
    """A machine with nothing on it."""
    with QuietMachine() as machine:
        yield machine


def pid_of_demo(machine: QuietMachine) -> str:
    """The pid, in the machine, of the demo's own process."""
    return machine.pid_of(r"cli\.main demo $")


@contextmanager
def demo_on(machine: QuietMachine) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo whose traffic has begun, and the name of its lab."""
    with machine.start(
        *RI2N, "demo", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as demo:
        try:
            assert demo.stderr is not None
            said = ""
            for line in demo.stderr:
                said += line
                if "now traffic" in line:
                    break
            found = re.search(r"building lab (\S+):", said)
            assert found and "now traffic" in said, said
            yield demo, found[1]
        finally:
            # The process that was started here waits for the one in the machine.
            if pid := pid_of_demo(machine):
                machine.run("kill", "-9", pid)


def test_after_kill_9_the_next_lab_command_removes_everything(machine: QuietMachine) -> None:
    before = machine.snapshot()
    with demo_on(machine) as (demo, lab):
        assert machine.run("kill", "-9", pid_of_demo(machine)).returncode == 0
        demo.wait(PATIENCE_S)
        left = machine.snapshot()
        assert f"ri2n-{lab}-A" in left["namespaces"]
        assert any("ovs-vswitchd" in words for words in left["processes"])
        # Who only asks removes nothing.
        machine.run(*RI2N, "status")
        machine.run(*RI2N, "explain", "B", "A")
        assert machine.snapshot()["namespaces"] == left["namespaces"]
        done = machine.run(*RI2N, "lab", "ls")
        said = f"removed lab {lab} of root: the process that made it has ended\n"
        assert (done.returncode, done.stderr) == (0, said), done.stderr
        assert "no labs" in done.stdout
        assert machine.snapshot() == before


def test_sighup_ends_the_demo_as_ctrl_c_does(machine: QuietMachine) -> None:
    """A shell and the kernel both send SIGHUP when a terminal closes, so it comes twice."""
    before = machine.snapshot()
    with demo_on(machine) as (demo, _):
        pid = pid_of_demo(machine)
        for _ in range(2):
            machine.run("kill", "-HUP", pid)
        assert demo.stderr is not None
        said = demo.stderr.read()
        assert demo.wait(PATIENCE_S) == 130 and "Traceback" not in said, said
        assert machine.snapshot() == before


def test_a_terminal_that_closes_ends_the_demo(machine: QuietMachine) -> None:
    """Then nothing can be written, and the removal must not depend on that."""
    before = machine.snapshot()
    ours, theirs = pty.openpty()
    take = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    take += " os.execv(sys.argv[1], sys.argv[1:])"
    with machine.start(
        *(sys.executable, "-c", take, *RI2N, "demo"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as demo:
        try:
            os.close(theirs)
            said = b""
            while b"now traffic" not in said:
                said += os.read(ours, 4096)
            os.close(ours)
            demo.wait(PATIENCE_S)
        finally:
            if pid := pid_of_demo(machine):
                machine.run("kill", "-9", pid)
    assert machine.snapshot() == before


@pytest.mark.parametrize("victim", ["controller", "ovs-vswitchd", "iperf3"])
def test_when_a_process_of_the_demo_is_killed_nothing_stays(
    machine: QuietMachine, victim: str
) -> None:
    """The demo goes on or gives up; at its end nothing is left."""
    before = machine.snapshot()
    pattern = {
        "controller": r"cli\.main controller ",
        "ovs-vswitchd": "ovs-vswitchd .*/B/",
        "iperf3": "iperf3 .*-s",
    }[victim]
    with demo_on(machine) as (demo, _):
        wait_until(lambda: machine.pid_of(pattern), f"no {victim}")
        assert machine.run("kill", "-9", machine.pid_of(pattern)).returncode == 0
        machine.run("kill", "-TERM", pid_of_demo(machine))
        assert demo.stderr is not None
        said = demo.stderr.read()
        assert demo.wait(PATIENCE_S) == 130 and "Traceback" not in said, said
        assert machine.snapshot() == before


def test_labs_of_the_living_and_labs_that_stay_are_not_touched(machine: QuietMachine) -> None:
    done = machine.run(*RI2N, "lab", "up", "fig4/a", "--name", "stays", "--no-controller")
    assert done.returncode == 0, done.stderr
    with demo_on(machine) as (_, living):
        done = machine.run(*RI2N, "lab", "ls", "--json")
        assert done.returncode == 0 and "removed" not in done.stderr, done.stderr
        there = machine.snapshot()["namespaces"]
        assert {f"ri2n-{living}-A", "ri2n-stays-A"} <= set(there)
    # The demo was killed: its lab goes, and the one that stays does not.
    done = machine.run(*RI2N, "lab", "ls")
    assert done.stderr.splitlines() == [
        f"removed lab {living} of root: the process that made it has ended"
    ]
    assert "ri2n-stays-A" in machine.snapshot()["namespaces"]
    assert machine.run(*RI2N, "lab", "down", "stays").stdout == "removed: stays\n"


@pytest.mark.parametrize("room", ["16k", "200k"])
def test_on_a_full_disk_the_demo_gives_up_and_nothing_stays(
    machine: QuietMachine, room: str
) -> None:
    """It ends with a line that says why, and not only when the lab itself has no room."""
    before = machine.snapshot()
    # The folder of labs is on a small disk. What `ip netns` needs is not.
    assert machine.run("mkdir", "-p", "/run/ri2n-lab").returncode == 0
    small = ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", "/run/ri2n-lab"]
    assert machine.run(*small).returncode == 0
    done = machine.run(*RI2N, "demo", "--seconds", "20")
    assert done.returncode not in (0, -9) and "Traceback" not in done.stderr, done.stderr
    assert "No space left on device" in done.stderr, done.stderr
    done = machine.run(*RI2N, "lab", "ls")
    assert done.returncode == 0 and "no labs" in done.stdout, done.stdout + done.stderr
    assert machine.run("umount", "/run/ri2n-lab").returncode == 0
    assert machine.snapshot() == before
