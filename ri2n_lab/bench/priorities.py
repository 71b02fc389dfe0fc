# SPDX-License-Identifier: Apache-2.0
"""Gives the programs of a lab the priorities that services have on a host.

What a busy host does depends on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ri2n_lab.cluster import Lab

__all__ = [
    "CONTROLLER_NICE",
    "HELPER_NICE",
    "HELPER_OPTIONS",
    "OVS_NICE",
    "OVS_REAL_TIME",
    "found",
    "priority",
    "renice",
    "take_over",
    "take_real_time",
]

# As ri2n-reorder.service has them; a test compares.
HELPER_OPTIONS = ("--watchdog-ms", "500", "--realtime")
HELPER_NICE = -10
OVS_NICE = -10
"""What Open vSwitch's own `ovs-ctl`, which its service calls, gives to its programs."""

CONTROLLER_NICE = -10
"""As the controller's unit in docs/operations.md has it; a test compares."""

OVS_REAL_TIME = 1
"""SCHED_RR priority of ovs-vswitchd, as ovs-vswitchd-realtime.conf has it; a test compares."""

POLICIES = {os.SCHED_OTHER: "SCHED_OTHER", os.SCHED_FIFO: "SCHED_FIFO", os.SCHED_RR: "SCHED_RR"}


def take_over(lab: Lab) -> None:
    """Give the helpers and Open vSwitches of a lab that is up what their services would have.

    The lab's switches have it too: real ones have no host's programs beside them. The real-time
    priority of a helper is its own doing (`HELPER_OPTIONS`, when the lab is made).
    """
    for name, pid in _services(lab):
        renice(pid, HELPER_NICE if name.startswith("ri2n-reorder") else OVS_NICE)
        if name.startswith("ovs-vswitchd"):
            take_real_time(pid, OVS_REAL_TIME)


def found(lab: Lab) -> dict[str, str]:
    """The priorities that the lab's services have now, by `program of HOST`."""
    return {name: priority(pid) for name, pid in _services(lab)}


def renice(pid: int, nice: int) -> bool:
    """Set the niceness of all threads of a process; false when that is not allowed.

    Kernels that group programs by session (autogroup) look at the session's own, which becomes the
    same.
    """
    with suppress(OSError):
        if os.getsid(pid) == pid:
            Path(f"/proc/{pid}/autogroup").write_text(f"{nice}\n")
    return _for_threads(pid, lambda thread: os.setpriority(os.PRIO_PROCESS, thread, nice))


def take_real_time(pid: int, level: int) -> bool:
    """Let all threads of a process come before those without real-time priority.

    False when that is not allowed.
    """
    wanted = os.sched_param(level)
    return _for_threads(pid, lambda thread: os.sched_setscheduler(thread, os.SCHED_RR, wanted))


def _for_threads(pid: int, change: Callable[[int], None]) -> bool:
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):  # a thread that ended meanwhile
                change(int(task.name))
    except (PermissionError, FileNotFoundError):
        return False
    return True


def priority(pid: int) -> str:
    """Policy and priority of a process's first thread: `SCHED_RR 1` or `SCHED_OTHER, nice -10`."""
    policy = os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK
    name = POLICIES.get(policy, f"policy {policy}")
    if policy in (os.SCHED_FIFO, os.SCHED_RR):
        return f"{name} {os.sched_getparam(pid).sched_priority}"
    return f"{name}, nice {os.getpriority(os.PRIO_PROCESS, pid)}"


def _services(lab: Lab) -> Iterator[tuple[str, int]]:
    for host in ("sw", *lab.topology.managed_hosts()):
        for program in ("ovs-vswitchd", "ovsdb-server"):
            file = Path(lab.run_dir / host / f"{program}.pid")
            if file.exists():
                yield f"{program} of {host}", int(file.read_text())
    for host in lab.helpers.hosts:
        pid = lab.helpers.pid(host)
        if pid is not None:
            yield f"ri2n-reorder of {host}", pid
