# SPDX-License-Identifier: Apache-2.0
"""Whether CPUs were short while something ran, from what the kernel counts.

A lab's switches, hosts and programs share this machine's CPUs, also with other programs. Where CPUs
are short, links stay empty for want of computing time, and a figure says nothing about a strategy.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Moment", "Used", "busy_s", "look", "parse_moment", "used_between"]

TICK_S = 1 / os.sysconf("SC_CLK_TCK")

# From these limits on, CPUs count as short. A machine with less than a twentieth of its CPUs idle
# has nothing left for a burst. A twentieth that other virtual machines take comes in pauses of some
# milliseconds, which are as long as the queue of a port. Where some program waits for a CPU for
# most of the time, timers are late as a rule.
LEAST_IDLE, MOST_STOLEN, MOST_WAITING = 0.05, 0.05, 0.7


@dataclass(frozen=True)
class Moment:
    """What the kernel had counted at a moment.

    * `at_s`: the moment, of a clock that goes on alike.
    * `cpu_s`, `idle_s`, `stolen_s`: CPU seconds of all CPUs since the start: all, idle, and taken
      by other virtual machines.
    * `waited_s`: the seconds in which some program waited for a CPU; None where the kernel does not
      count them.
    """

    at_s: float
    cpu_s: float
    idle_s: float
    stolen_s: float
    waited_s: float | None


@dataclass(frozen=True)
class Used:
    """How CPUs were used in a time, as shares of all CPU time, and `waiting` as share of the time.

    `idle_cpus` is the mean number of idle CPUs.
    """

    idle: float
    stolen: float
    waiting: float | None
    idle_cpus: float

    @property
    def short(self) -> bool:
        """Whether CPUs were short."""
        return (
            self.idle < LEAST_IDLE
            or self.stolen > MOST_STOLEN
            or (self.waiting is not None and self.waiting > MOST_WAITING)
        )


def look() -> Moment:
    """What the kernel has counted by now."""
    pressure = None
    with suppress(OSError):  # a kernel without it, or one that is told not to count
        pressure = Path("/proc/pressure/cpu").read_text()
    return parse_moment(time.monotonic(), Path("/proc/stat").read_text(), pressure)


def parse_moment(at_s: float, stat: str, pressure: str | None) -> Moment:
    """The moment that the texts of /proc/stat and /proc/pressure/cpu tell."""
    counted = [int(word) * TICK_S for word in stat.split("\n", 1)[0].split()[1:]]
    user, nice, system, idle, waits_for_disk, irq, soft_irq, stolen = counted[:8]
    waited_s = None
    for line in (pressure or "").splitlines():
        kind, *fields = line.split()
        if kind == "some":
            waited_s = int(fields[-1].partition("=")[2]) / 1e6
    return Moment(
        at_s=at_s,
        cpu_s=user + nice + system + idle + waits_for_disk + irq + soft_irq + stolen,
        idle_s=idle + waits_for_disk,
        stolen_s=stolen,
        waited_s=waited_s,
    )


def used_between(first: Moment, last: Moment) -> Used:
    """How CPUs were used from one moment to another one, which is later."""
    took_s = max(last.at_s - first.at_s, 1e-9)
    cpu_s = max(last.cpu_s - first.cpu_s, 1e-9)
    waiting = None
    if first.waited_s is not None and last.waited_s is not None:
        waiting = min(1.0, (last.waited_s - first.waited_s) / took_s)
    idle_s = max(0.0, last.idle_s - first.idle_s)  # the kernel's count of idle time may go back
    return Used(
        idle=min(1.0, idle_s / cpu_s),
        stolen=min(1.0, (last.stolen_s - first.stolen_s) / cpu_s),
        waiting=waiting,
        idle_cpus=idle_s / took_s,
    )


def busy_s(stat: str) -> float:
    """CPU seconds of this machine since it began, without idle, waiting and stolen time.

    From /proc/stat.
    """
    user, nice, system, _idle, _wait, irq, soft_irq = map(int, stat.split("\n", 1)[0].split()[1:8])
    return (user + nice + system + irq + soft_irq) * TICK_S
