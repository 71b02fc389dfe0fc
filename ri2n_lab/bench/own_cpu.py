# SPDX-License-Identifier: Apache-2.0
"""CPU seconds of this machine without those of programs that have nothing to do with a lab.

What the kernel does for packets is nobody's: it is counted where a CPU happens to be. So what is
measured is all of the machine's work, less that of the processes outside of the lab.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from ri2n_lab.bench.cpus import busy_s
from ri2n_lab.cluster.namespaces import NETNS

__all__ = ["OwnCpu", "work_s"]

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
KERNEL_THREADS = 2  # the process whose children they are


class OwnCpu:
    """The CPU seconds since it was made, of all but foreign programs."""

    def __init__(self, namespaces: Iterable[str]) -> None:
        """`namespaces` are names of network namespaces: processes inside are no foreign ones."""
        self._inodes = {(NETNS / name).stat().st_ino for name in namespaces}
        self._began_s = time.monotonic()
        self._busy_s, self._foreign_s = self._now()

    def seconds(self) -> tuple[float, float]:
        """(CPU seconds of all but foreign programs, foreign programs' mean number of CPUs)."""
        busy_now_s, foreign_now_s = self._now()
        foreign_s = max(0.0, foreign_now_s - self._foreign_s)
        length_s = max(1e-9, time.monotonic() - self._began_s)
        return max(0.0, busy_now_s - self._busy_s - foreign_s), foreign_s / length_s

    def _now(self) -> tuple[float, float]:
        foreign_s = 0.0
        for folder in Path("/proc").iterdir():
            # This process only waits, and its children are the lab's programs.
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            try:
                stat = (folder / "stat").read_text()
                if (folder / "ns" / "net").stat().st_ino not in self._inodes:
                    foreign_s += work_s(stat)
            except OSError:
                continue  # it has ended; its parent has its seconds now
        return busy_s(Path("/proc/stat").read_text()), foreign_s


def work_s(stat: str) -> float:
    """CPU seconds of a process and of its children that have ended, from its /proc/PID/stat.

    0 for a thread of the kernel. Its name may hold anything.
    """
    fields = stat.rpartition(")")[2].split()
    if int(fields[1]) in (0, KERNEL_THREADS) and stat.split(" ", 1)[0] != "1":
        return 0.0
    return sum(map(int, fields[11:15])) * TICK_S
