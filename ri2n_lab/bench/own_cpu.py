# SPDX-License-Identifier: Apache-2.0
"""CPU seconds of this machine without those of programs that have nothing to do with a lab.

What the kernel does for packets is nobody's: it is counted where a CPU happens to be. So what is
measured is all of the machine's work, less that of the processes outside of the lab.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ri2n_lab.bench.cpus import busy_s
from ri2n_lab.cluster.namespaces import NETNS

__all__ = ["OwnCpu", "Process", "parse_process", "worked_s"]

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
INIT = 1
KERNEL_THREADS = 2  # the process whose children they are


@dataclass(frozen=True)
class Process:
    """A process as the kernel counts it.

    `began` tells it from another one with its number, `own_s` are its CPU seconds, `children_s`
    those of its children that have ended, with theirs.
    """

    parent: int
    began: int
    own_s: float
    children_s: float


class OwnCpu:
    """The CPU seconds since it was made, of all but foreign programs."""

    def __init__(self, namespaces: Iterable[str]) -> None:
        """`namespaces` are names of network namespaces: processes inside are no foreign ones."""
        self._inodes = {(NETNS / name).stat().st_ino for name in namespaces}
        self._began_s = time.monotonic()
        self._busy_s, self._foreign = self._now()

    def seconds(self) -> tuple[float, float]:
        """(CPU seconds of all but foreign programs, foreign programs' mean number of CPUs)."""
        busy_now_s, foreign_now = self._now()
        foreign_s = min(worked_s(self._foreign, foreign_now), busy_now_s - self._busy_s)
        length_s = max(1e-9, time.monotonic() - self._began_s)
        return max(0.0, busy_now_s - self._busy_s - foreign_s), foreign_s / length_s

    def _now(self) -> tuple[float, dict[int, Process]]:
        foreign: dict[int, Process] = {}
        for folder in Path("/proc").iterdir():
            # This process only waits, and its children are the lab's programs.
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            try:
                process = parse_process((folder / "stat").read_text())
                inside = (folder / "ns" / "net").stat().st_ino in self._inodes
            except OSError:
                continue  # it has ended; its parent has its seconds now
            if process is not None and not inside:
                foreign[int(folder.name)] = process
        return busy_s(Path("/proc/stat").read_text()), foreign


def parse_process(stat: str) -> Process | None:
    """The process that /proc/PID/stat tells of; None for a thread of the kernel.

    Its name may hold anything.
    """
    pid = int(stat.split(" ", 1)[0])
    fields = stat.rpartition(")")[2].split()
    parent = int(fields[1])
    if KERNEL_THREADS in (pid, parent):
        return None
    user, system, children_user, children_system = (int(word) * TICK_S for word in fields[11:15])
    return Process(parent, int(fields[19]), user + system, children_user + children_system)


def worked_s(before: Mapping[int, Process], after: Mapping[int, Process]) -> float:
    """CPU seconds of processes between two moments, also of those that ended in between.

    A process that ended has handed all seconds of its life to its parent, as seconds of a child.
    What it had before the first moment is taken off again there, or at the next ancestor that is
    still there. Where nobody has waited for it, its seconds are lost. So are those that the first
    process has waited for: it gets orphans from anywhere, with all seconds of their lives.
    """
    same = {pid for pid in before if pid in after and after[pid].began == before[pid].began}
    earlier_s: dict[int, float] = {}
    for pid, process in before.items():
        if pid in same:
            continue
        heir = process.parent
        while heir not in same and heir in before:
            heir = before[heir].parent
        earlier_s[heir] = earlier_s.get(heir, 0.0) + process.own_s + process.children_s
    total_s = 0.0
    for pid, process in after.items():
        if pid not in same:
            total_s += process.own_s + process.children_s
            continue
        total_s += process.own_s - before[pid].own_s
        children_s = process.children_s - before[pid].children_s if pid != INIT else 0.0
        total_s += max(0.0, children_s - earlier_s.get(pid, 0.0))
    return max(0.0, total_s)
