# SPDX-License-Identifier: Apache-2.0
"""What hosts with a max_rate send in their fullest second, by the counters of their limits."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ri2n_lab.cluster import Lab

__all__ = ["LimitMeter", "fullest_second_bps", "read_samples"]

BRIDGE = "br-ri2n"
SECOND_S = 1.0
END_S = 30.0
# A program on each host prints the counters every half second, until its input ends. One tc answers
# all the time: to start one takes longer than a limit may send in advance. Its answer about the
# loopback device says that the one about the limits is complete.
PROGRAM = """
import select, subprocess, sys, time
pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
with subprocess.Popen(["tc", "-s", "-batch", "-"], **pipe) as tc:
    while not select.select([sys.stdin], [], [], 0.5)[0]:
        tc.stdin.write(f"class show dev {sys.argv[1]}\\nqdisc show dev lo\\n")
        print("at", time.monotonic())
        tc.stdin.flush()
        for line in tc.stdout:
            if line.startswith("qdisc "):
                break
            print(line, end="")
    tc.stdin.close()
"""
AT = re.compile(r"^at (\d+\.?\d*)$")
SENT = re.compile(r"^\s*Sent (\d+) bytes ")
Sample = tuple[float, int]
"""(seconds, bytes that the limits of a host have let through)."""


class LimitMeter:
    """The counters of the limits of some hosts, read all the time while it runs."""

    def __init__(self, lab: Lab, hosts: Sequence[str]) -> None:
        self._lab, self._hosts = lab, tuple(hosts)
        self.fullest_bps: dict[str, float] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read them inside.

        Afterwards `fullest_bps` has what each host sent in its fullest second, in bit/s of frames.
        """
        children: dict[str, subprocess.Popen[Any]] = {}
        try:
            for host in self._hosts:
                children[host] = self._lab.popen(
                    host,
                    [sys.executable, "-c", PROGRAM, BRIDGE],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            yield
        finally:
            for host, child in children.items():
                try:
                    output, _ = child.communicate(timeout=END_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    output, _ = child.communicate()
                fullest_bps = fullest_second_bps(read_samples(str(output)))
                if fullest_bps is not None:
                    self.fullest_bps[host] = fullest_bps


def read_samples(text: str) -> list[Sample]:
    """The samples of what the program printed; there is none where there was no limit."""
    samples: dict[float, int] = {}
    at_s, of_limit = 0.0, False
    for line in text.splitlines():
        if found := AT.match(line):
            at_s, of_limit = float(found[1]), False
        elif line.startswith("class "):
            of_limit = True
        elif (found := SENT.match(line)) and of_limit:
            samples[at_s] = samples.get(at_s, 0) + int(found[1])
            of_limit = False
    return list(samples.items())


def fullest_second_bps(samples: Sequence[Sample]) -> float | None:
    """The largest rate in bit/s between two samples that are a second apart, or just more.

    None without such samples.
    """
    found = []
    for place, (begin_s, before) in enumerate(samples):
        later = (each for each in samples[place + 1 :] if each[0] - begin_s >= SECOND_S)
        if end := next(later, None):
            found.append((end[1] - before) * 8 / (end[0] - begin_s))
    return max(found, default=None)
