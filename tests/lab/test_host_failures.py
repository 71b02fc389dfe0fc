# SPDX-License-Identifier: Apache-2.0
"""host-up and host-down fail, are killed, or lose their terminal, at any change.

They finish, or undo everything.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ri2n_lab.cluster.run import in_namespace

from .conftest import WaitUntil
from .failing_host import Failing, alone, differences, host, recorded
from .prepared_host import HOST, WAIT_S, Host, fake_program

__all__ = ["alone", "host", "recorded"]

STEPS = (
    "save_state",
    "arm_confirm",
    "prepare_nics",
    "prepare_taps",
    "make_bridge",
    "tell_datapath",
    "set_controllers",
    "install_flows",
    "guard_ingress",
    "fit_segments",
    "move_addresses",
    "tell_addresses",
)


@pytest.mark.virtual
@pytest.mark.smoke
def test_every_step_is_tried(recorded: Failing) -> None:
    """All steps that make a change are in STEPS, in this order, so the tests below try each."""
    steps = list(dict.fromkeys(change.step for change in recorded.changes))
    # There is also fair_queues, on NICs with the kernel's own queue; test_nics has such NICs.
    assert steps == list(STEPS)
    armed = [change.step for change in recorded.changes].index("arm_confirm")
    # Before that, only the state is saved.
    assert all("/state/" in change.text for change in recorded.changes[:armed])


@pytest.mark.virtual
@pytest.mark.smoke
@pytest.mark.parametrize("step", STEPS)
def test_a_failure_is_undone(step: str, recorded: Failing, host: Host) -> None:
    """Each kind of change of the step fails where it is made last.

    Then the machine is as it was, to the last process. On the kernel datapath, which takes a guest
    in which each process takes long, only the last change of the step fails.
    """
    by_kind = {change.kind: change for change in recorded.changes if change.step == step}
    assert by_kind
    for change in list(by_kind.values())[0 if host.lab.datapath == "netdev" else -1 :]:
        assert recorded.fails_at(change) == "", change
        if change.may_fail:
            host.prepare()


@pytest.mark.long
def test_a_failure_of_any_change_is_undone(recorded: Failing, host: Host) -> None:
    for change in recorded.changes:
        assert recorded.fails_at(change) == "", change
        if change.may_fail:
            host.prepare()


@pytest.mark.parametrize("which", ["first", "last"])
def test_a_killed_run_is_undone_by_the_watcher(
    which: str, recorded: Failing, host: Host, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The undo is armed before the first change outside the folder of its state.

    It needs nothing of host-up.
    """
    before = host.snapshot()
    outside = [change for change in recorded.changes if "/state/" not in change.text]
    change = outside[0 if which == "first" else -1]
    os.mkfifo(tmp_path / "ring")
    alarm = fake_program(tmp_path / "programs", "sleep", f"exec cat {tmp_path}/ring >/dev/null")
    environment = {"RI2N_TEST_KILL_AT": str(change.number), "PATH": f"{alarm}:{os.environ['PATH']}"}
    done = recorded.command(recorded.options, environment)
    assert done.returncode != 0
    assert differences(before, host.snapshot()) != ""
    assert len(host.watchers()) >= 1
    (tmp_path / "ring").write_text("")
    wait_until(lambda: not host.watchers(), "the watcher is still there", WAIT_S)
    assert differences(before, host.snapshot()) == ""


def test_a_failed_second_run_leaves_the_host_up(recorded: Failing, host: Host) -> None:
    """Only a run that made the bridge is undone; a host that is up stays in the network."""
    host.up()
    changed = [*host.up_arguments, "--extra-mac", "02:aa:00:00:00:01"]
    done = recorded.command(changed, {"RI2N_TEST_FAIL_AT": "1"})
    assert (done.returncode, "undone" in done.stderr) == (1, False)
    assert host.is_up
    assert host.answers("B", "A")


# ---- sessions that end meanwhile


def finished(host: Host, script: str, before: dict[str, str]) -> str:
    """What a script that has ended well has left undone; empty when nothing."""
    if script == "host-down":
        return differences(before, host.snapshot())
    said = host.up()
    return "" if "nothing to do" in said else said


def start(host: Host, script: str) -> tuple[dict[str, str], list[str]]:
    """The state before a script, and the script's options.

    host-down is to restore that state afterwards.
    """
    before = host.snapshot()
    if script == "host-down":
        host.up()
        return before, []
    return before, host.up_arguments


@pytest.mark.parametrize("script", ["host-up", "host-down"])
def test_it_goes_on_when_the_terminal_goes_away(
    script: str, host: Host, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """The terminal is closed while an address is being moved.

    The kernel sends SIGHUP, and every output fails.
    """
    before, options = start(host, script)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    stop = f'case "$*" in "addr replace 10.78"*) read -r _ <{gate};; esac; exec REAL "$@"'
    programs = fake_program(tmp_path / "programs", "ip", stop)
    master, terminal = os.openpty()
    command = in_namespace(
        host.lab.namespace(HOST), host.command(script, *options, programs=programs)
    )
    child = subprocess.Popen(  # setsid makes the terminal its own
        ["setsid", "-c", *command],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=host.lab.environment(HOST),
    )
    try:
        os.close(terminal)
        wait_until(
            lambda: is_read(gate) or child.poll() is not None, f"{script} moves no address", WAIT_S
        )
        assert child.poll() is None
        os.close(master)
        # To open it works whether or not a process still reads.
        with gate.open("r+b", buffering=0) as pipe:
            pipe.write(b"\n")
            assert child.wait(WAIT_S) == 0
        assert finished(host, script, before) == ""
    finally:
        child.kill()
        child.wait()


def is_read(fifo: Path) -> bool:
    """Whether a process waits for what is written into it."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("script", ["host-up", "host-down"])
def test_it_finishes_though_nobody_reads_what_it_says(script: str, host: Host) -> None:
    before, options = start(host, script)
    assert unread(host, host.command(script, *options)) == 0
    assert finished(host, script, before) == ""


def test_a_failure_is_undone_though_nobody_reads_what_it_says(host: Host, tmp_path: Path) -> None:
    before = host.snapshot()
    fake = fake_program(tmp_path, "ovs-ofctl", "exit 1")
    assert unread(host, host.command("host-up", *host.up_arguments, programs=fake)) == 1
    assert differences(before, host.snapshot()) == ""


def unread(host: Host, command: list[str]) -> int:
    """The status of a command whose output and errors go to a pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    command = in_namespace(host.lab.namespace(HOST), command)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=write,
            env=host.lab.environment(HOST),
            timeout=240,
        )
    finally:
        os.close(write)
    return done.returncode


@pytest.mark.parametrize("signal_name", ["HUP", "PIPE"])
def test_the_undo_is_not_stopped_by_a_signal(signal_name: str, host: Host, tmp_path: Path) -> None:
    """host-up fails, and gets the signal while it undoes."""
    before = host.snapshot()
    fake_program(tmp_path, "ovs-ofctl", "exit 1")
    hit = f'case "$*" in *del-br*) kill -{signal_name} $PPID;; esac; exec REAL "$@"'
    fake_program(tmp_path, "ovs-vsctl", hit)
    command = host.command("host-up", *host.up_arguments, programs=tmp_path)
    assert host.run(*command, check=False).returncode == 1
    assert differences(before, host.snapshot()) == ""
