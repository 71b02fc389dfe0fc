"""Make and remove network namespaces, and end every process inside one: the lab's only way to
kill.
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
    """Whether a namespace of this name is mounted or half made."""
    return (NETNS / name).exists()


def add_namespaces(names: Iterable[str]) -> None:
    """Make the namespaces; CommandFailed when one exists already.

    Callers hold the lock all labs share.
    """
    ip_batch([f"netns add {name}" for name in names])


def remove_namespaces(names: Iterable[str]) -> None:
    """Kill what runs in the namespaces, then remove them and all devices in them.

    Missing ones are ignored.
    """
    present = [name for name in names if namespace_exists(name)]
    inodes = {inode for name in present if (inode := _inode(NETNS / name)) is not None}
    kill_processes(inodes)
    for name in present:
        run(["ip", "netns", "del", name], check=False)
        if namespace_exists(name):
            raise NotAvailable(f"namespace {name} cannot be removed: is it in use?")
    kill_processes(inodes)  # whatever was on its way into one while the first round ran


def processes_in(names: Iterable[str]) -> list[int]:
    """The pids of all processes in the namespaces."""
    inodes = {inode for name in names if (inode := _inode(NETNS / name)) is not None}
    return _pids(inodes)


def kill_processes(inodes: set[int]) -> None:
    """End every process whose network namespace is one of `inodes`: TERM, then KILL to what is
    left.

    Each is signalled through a pidfd after its namespace was read again, so a reused pid is never
    hit. NotAvailable when one does not end.
    """
    inodes = inodes - {_inode(Path("/proc/self/ns/net"))}  # never the machine's own
    start = time.monotonic()
    signalled: set[int] = set()
    while pids := _pids(inodes):
        waited = time.monotonic() - start
        if waited > KILL_WAIT_S:
            raise NotAvailable(f"processes {pids} do not end")
        for pid in pids:
            if waited > TERM_WAIT_S:
                _signal(pid, inodes, signal.SIGKILL)
            elif pid not in signalled:
                signalled.add(pid)
                _signal(pid, inodes, signal.SIGTERM)
        time.sleep(0.01)


def _signal(pid: int, inodes: set[int], number: signal.Signals) -> None:
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
    """The inode of a namespace; None for one that is gone (a zombie has none) or not mounted
    yet.
    """
    try:
        return path.stat().st_ino
    except OSError:
        return None
