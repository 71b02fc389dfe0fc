# SPDX-License-Identifier: Apache-2.0
"""Programs that spin beside a measurement, one on each CPU, as a host's own work may.

MPI ranks that wait do, and solvers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType

from ri2n_sdn.errors import NotAvailable

__all__ = ["Spinners", "cpu_seconds"]

# On one CPU, until it is killed or nobody is there any more who could do that.
PROGRAM = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
while os.getppid() == int(sys.argv[2]):
    for _ in range(1_000_000):
        pass
"""
START_S = 60.0
POLL_S = 0.02
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Spinners:
    """A context manager: inside, every CPU has a program that never sleeps.

    Each is in a session of its own. They have no priority: what a service manager gives to others
    is what those have before them.
    """

    def __init__(self, cpus: Collection[int] | None = None) -> None:
        """`cpus` None stands for all that this process may use."""
        self.cpus = sorted(os.sched_getaffinity(0) if cpus is None else cpus)
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Spinners:
        try:
            for cpu in self.cpus:
                argv = [sys.executable, "-I", "-S", "-c", PROGRAM, str(cpu), str(os.getpid())]
                self._children.append(
                    subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
                )
            self._await_work()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def pids(self) -> list[int]:
        """The ids of the programs' processes, in the order of the CPUs."""
        return [child.pid for child in self._children]

    def cpu_s(self) -> float:
        """CPU seconds that all of them have had so far; NotAvailable when one has ended."""
        for cpu, child in zip(self.cpus, self._children, strict=True):
            if child.poll() is not None:
                raise NotAvailable(
                    f"the program that keeps CPU {cpu} busy ended with status {child.returncode}"
                )
        return sum(cpu_seconds(Path(f"/proc/{pid}/stat").read_text()) for pid in self.pids)

    def _await_work(self) -> None:
        """Wait until each is past its start, which takes a while beside others."""
        deadline_s = time.monotonic() + START_S
        waiting = list(self.pids)
        while waiting:
            self.cpu_s()
            waiting = [
                pid
                for pid in waiting
                if os.sched_getaffinity(pid) != {self.cpus[self.pids.index(pid)]}
            ]
            if waiting and time.monotonic() > deadline_s:
                raise NotAvailable(
                    f"programs that keep CPUs busy do not start within {START_S:g} s"
                )
            if waiting:
                time.sleep(POLL_S)

    def _stop(self) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            child.wait()


def cpu_seconds(stat: str) -> float:
    """User and system CPU seconds of a process, from its /proc/PID/stat.

    Its name may hold anything.
    """
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * TICK_S
