# SPDX-License-Identifier: Apache-2.0
"""Make and remove network namespaces, and end every process inside one.

A lab that is removed ends its processes by this alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ri2n_lab.cluster.run import ip_batch, run
from ri2n_sdn.errors import NotAvailable

__all__ = [
    "NETNS",
    "add_namespaces",
    "kill_processes",
    "namespace_exists",
    "processes_in",
    "remove_namespaces",
]

NETNS = Path("/run/netns")
TERM_WAIT_S = 2.0
KILL_WAIT_S = 10.0


def namespace_exists(name: str) -> bool:
    """Whether a namespace of this name exists, be it only half made."""
    return (NETNS / name).exists()


def add_namespaces(names: Iterable[str]) -> None:
    """Make the namespaces; CommandFailed when one exists already.

    Callers hold the lock that all labs share.
    """
    ip_batch([f"netns add {name}" for name in names])


def remove_namespaces(names: Iterable[str]) -> None:
    """End what runs in the namespaces, then remove them and all devices in them.

    Namespaces that do not exist are ignored. Raises NotAvailable when one cannot be removed or a
    process in one does not end.
    """
    present = [name for name in names if namespace_exists(name)]
    inodes = {inode for name in present if (inode := _inode(NETNS / name)) is not None}
    kill_processes(inodes)
    for name in present:
        run(["ip", "netns", "del", name], check=False)
        if namespace_exists(name):
            raise NotAvailable(f"namespace {name} cannot be removed: is it in use?")
    # A process may have entered a namespace while the first round ran.
    kill_processes(inodes)


def processes_in(names: Iterable[str]) -> list[int]:
    """The pids of all processes in the namespaces."""
    inodes = {inode for name in names if (inode := _inode(NETNS / name)) is not None}
    return _pids(inodes)


def kill_processes(inodes: set[int]) -> None:
    """End every process whose network namespace is one of `inodes`.

    Each gets SIGTERM; those that are left after TERM_WAIT_S seconds get SIGKILL. A signal is sent
    through a pidfd after the namespace was read again, so a pid that was given to another process
    is never hit. Raises NotAvailable when a process does not end within KILL_WAIT_S seconds.
    """
    inodes = inodes - {_inode(Path("/proc/self/ns/net"))}  # never those of this process
    start_s = time.monotonic()
    signalled: set[int] = set()
    while pids := _pids(inodes):
        waited_s = time.monotonic() - start_s
        if waited_s > KILL_WAIT_S:
            raise NotAvailable(f"processes {pids} do not end")
        for pid in pids:
            if waited_s > TERM_WAIT_S:
                _signal(pid, inodes, signal.SIGKILL)
            elif pid not in signalled:
                signalled.add(pid)
                _signal(pid, inodes, signal.SIGTERM)
        time.sleep(0.01)


def _signal(pid: int, inodes: set[int], number: signal.Signals) -> None:
    """Signal a process if its network namespace is, at this moment, one of `inodes`."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if _inode(Path(f"/proc/{pid}/ns/net")) in inodes:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _pids(inodes: set[int]) -> list[int]:
    if not inodes:
        return []
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _inode(entry / "ns" / "net") in inodes
    ]


def _inode(path: Path) -> int | None:
    """The inode of a namespace; None when it is gone or not mounted yet.

    A zombie has no namespace.
    """
    try:
        return path.stat().st_ino
    except OSError:
        return None
