# SPDX-License-Identifier: Apache-2.0
"""host-down and the undo of host-up where Open vSwitch, or a part of it, is dead."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ri2n_lab.cluster import ovs

from .conftest import WaitUntil, await_true
from .failing_host import differences
from .prepared_host import Host, fake_program, host_of_its_own

DAEMONS = ("ovsdb-server", "ovs-vswitchd")


def kill(host: Host, *daemons: str) -> None:
    for daemon in daemons:
        pid = int((host.folder / f"{daemon}.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        await_true(
            lambda pid=pid: not Path(f"/proc/{pid}/ns/net").exists(),  # type: ignore[misc]
            f"{daemon} does not die",
        )


def start(host: Host, *daemons: str) -> None:
    """Start it as its service does: on the database that is there."""
    where = {
        "ovsdb-server": [str(host.folder / "conf.db"), f"--remote=punix:{host.folder}/db.sock"],
        "ovs-vswitchd": [ovs.database(host.folder)],
    }
    for daemon in daemons:
        host.run(daemon, *where[daemon], "--pidfile", "--detach", "--log-file", "-vconsole:off")


@pytest.fixture
def host() -> Iterator[Host]:
    with host_of_its_own() as made:
        yield made


def answers(host: Host) -> bool:
    return host.answers("B", host.lab.address("A"))


@pytest.mark.virtual
@pytest.mark.smoke
def test_host_down_needs_no_ovs_vswitchd(host: Host) -> None:
    before = host.snapshot()
    host.up("--helper")
    kill(host, "ovs-vswitchd")
    done = host.script("host-down")
    assert "the NICs are as before" in done.stdout
    assert answers(host)
    # It finds no bridge in the database that could take the NICs.
    start(host, "ovs-vswitchd")
    assert host.lab.vsctl("A", "list-br") == ""
    before.pop("processes")  # the daemons are other processes now
    assert differences(before, host.snapshot()) == ""
    assert answers(host)


@pytest.mark.virtual
@pytest.mark.smoke
def test_without_a_database_the_nics_come_back_and_the_rest_when_it_does(host: Host) -> None:
    before = host.snapshot()
    host.up("--helper")
    kill(host, *DAEMONS)
    done = host.script("host-down", check=False)
    assert (done.returncode, "the NICs are restored without it" in done.stderr) == (1, True), done
    assert answers(host)
    start(host, *DAEMONS)
    host.script("host-down")
    before.pop("processes")  # the daemons are other processes now
    assert differences(before, host.snapshot()) == ""
    assert answers(host)


def test_what_is_not_confirmed_is_undone_though_ovs_vswitchd_is_dead(
    host: Host, tmp_path: Path, wait_until: WaitUntil
) -> None:
    os.mkfifo(tmp_path / "ring")
    alarm = fake_program(tmp_path / "programs", "sleep", f"exec cat {tmp_path}/ring >/dev/null")
    host.run(*host.command("host-up", *host.up_arguments, "--confirm", "600", programs=alarm))
    kill(host, *DAEMONS)
    # This rings once: the next `sleep`, before the script tries again, waits for the next ring.
    (tmp_path / "ring").write_text("")
    wait_until(
        lambda: "10.77.0.1" in host.run("ip", "addr", "show", "dev", "eth0").stdout,
        "it is not undone",
    )
    assert answers(host)
    # It goes on until the database has no bridge any more. A command that it starts looks like it
    # for a moment.
    wait_until(lambda: len(host.watchers()) == 1, lambda: str(host.watchers()))
    start(host, *DAEMONS)
    (tmp_path / "ring").write_text("")
    wait_until(lambda: not host.watchers(), "the watcher is still there")
    assert not host.is_up
    assert answers(host)


@pytest.mark.parametrize("kind", ["macvlan", pytest.param("vlan id 5", marks=pytest.mark.virtual)])
def test_a_device_that_stands_on_a_nic_is_named_before_it_is_cut_off(kind: str, host: Host) -> None:
    host.run("ip", "link", "add", "upper", "link", "eth1", "type", *kind.split())
    before = host.snapshot()
    done = host.script("host-up", *host.up_arguments, check=False)
    assert (done.returncode, "--nic eth1: upper would be cut off" in done.stderr) == (2, True), (
        done.stderr
    )
    assert host.snapshot() == before
