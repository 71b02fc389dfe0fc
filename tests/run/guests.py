"""Test files in guests with virtual time: a fresh guest per file, as many at once as there are
CPUs.

A guest of its own makes each file's run repeatable to the bit, whichever files run beside it and in
which order, and in whatever folder this checkout lies: with its seed, a failure is everybody's.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path

from ri2n_lab.guests.guest import SHARE, Guest
from ri2n_lab.guests.kernels import Kernel
from ri2n_sdn.errors import NotAvailable
from tests.run.tally import Case
from tests.run.tiers import ROOT

__all__ = ["Pace", "by_length", "can_boot", "run_files"]

POLL_S = 0.2
SILENCE_S = 900.0  # a program that spins stops the guest's clock, and with it every time-out inside
TICK_S = 30
PROJECT = "/run/ri2n-project"
"""Where a guest sees this checkout."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

IN_GUEST = f"""
mkdir {PROJECT} /run/tmp && mount --bind {SHARE}/project {PROJECT} && cd {PROJECT} || exit
installed=.venv/lib/python*/site-packages
sed -i -f {SHARE}/project.sed .venv/pyvenv.cfg .venv/bin/ri2n \\
    $installed/__editable__* $installed/ri2n_*-*/direct_url.json
if [[ ${{RI2N_BATCH_READS-}} ]]; then
    cp "$RI2N_BATCH_READS" /run/batch.so && RI2N_BATCH_READS=/run/batch.so
fi
unset RI2N_SHARE
known=(PATH={PATH} HOME=/run/tmp TMPDIR=/run/tmp LANG=C.UTF-8)
for name in "${{!RI2N_@}}"; do known+=("$name=${{!name}}"); done
while sleep {TICK_S}; do echo >>{SHARE}/clock; done &
exec env -i "${{known[@]}}" PYTHONPATH={PROJECT} PYTHONPYCACHEPREFIX=/run/tmp/pyc "$@"
"""
"""Runs a command in a guest as it would run in a checkout anywhere, for any user.

One byte more that a program reads moves what it keeps in memory, then the order of a set, and in
the end a packet. So this checkout is seen in one folder, which is named in its installation, too
(what a guest changes in a file is gone with the guest); what Python compiled here before is not
used; temporary files lie in an empty folder, and the environment is written here, but for our own
variables. The folder's own name is in no argument and no variable of any process in the guest,
whose length would do the same. A line is added to a file at every TICK_S of the guest's clock: a
sign of life.
"""

LIMIT_S = 24 * 3600.0  # ten tests of ten minutes and 4,000 packets/s take hours
BOOT_LIMIT_S = 300.0
LAST = 19  # of all that want a CPU

Say = Callable[[str], None]


class Pace(Enum):
    """How guests run:

    with what CPU others leave (their clocks do not mind), as everybody, or no more.
    """

    GENTLE = "gentle"
    FULL = "full"
    STOP = "stop"


class _Run:
    """One file in its guest.

    A test of ten minutes says nothing for longer than SILENCE_S: that the guest's clock goes on is
    a sign of life, too. What waits for ever with a clock that goes on is for the time-outs inside.
    """

    def __init__(self, kernel: Kernel, path: str, argv: Sequence[str], cpu: int, seed: int) -> None:
        self.path, self.cpu = path, cpu
        self.started_s = self._heard_s = time.monotonic()
        self._size = 0
        python = sys.executable.replace(f"{ROOT}/", f"{PROJECT}/", 1)
        line = [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={SHARE}/junit.xml",
            *argv,
            path,
        ]
        line = ["bash", "-c", IN_GUEST, "in-guest", *line]
        put: dict[str, str | Path] = {"project": ROOT, "project.sed": f"s|{ROOT}|{PROJECT}|g\n"}
        env = {"PATH": PATH, "LANG": "C.UTF-8"}
        self.guest = Guest(
            kernel, line, limit_s=LIMIT_S, cpu=cpu, seed=seed, cwd=Path("/"), env=env, put=put
        )
        self._pace = Pace.FULL

    def keep(self, pace: Pace) -> None:
        """Leave CPU to others, or no more. Who has only what others leave is late, and not dead."""
        if pace is Pace.GENTLE:
            self._heard_s = time.monotonic()
        if pace is not self._pace and self.guest.renice(
            LAST if pace is Pace.GENTLE else os.getpriority(os.PRIO_PROCESS, 0)
        ):
            self._pace = pace

    def ended(self) -> tuple[int, str] | None:
        """Pytest's exit code and all it said, or None while it runs.

        A guest that died or hangs has the code -1.
        """
        try:
            result = self.guest.poll()
            files = [self.guest.share / name for name in ("stdout", "clock")]
            size = sum(file.stat().st_size for file in files if file.exists())
            if size != self._size:
                self._size, self._heard_s = size, time.monotonic()
            if result is None and time.monotonic() - self._heard_s > SILENCE_S:
                said = f"no test has ended and its clock has not moved for {SILENCE_S:g} s"
                raise NotAvailable(f"{said}: the guest was ended")
        except NotAvailable as error:
            return -1, f"{self.guest.stdout}\n{self.guest.stderr}\n{error}"
        return (
            None
            if result is None
            else (result.returncode, f"{self.guest.stdout}{self.guest.stderr}")
        )

    def close(self, scratch: Path) -> Path | None:
        """End the guest; where its JUnit file was put, if it wrote one."""
        made, kept = (
            self.guest.share / "junit.xml",
            scratch / (re.sub(r"\W", "_", self.path) + ".xml"),
        )
        if made.exists():
            shutil.move(made, kept)
        self.guest.end()
        return kept if kept.exists() else None


def can_boot(kernel: Kernel) -> str:
    """Why no guest boots on this machine, with its last words; empty when one does."""
    try:
        with Guest(kernel, ["true"], limit_s=BOOT_LIMIT_S) as guest:
            return "" if guest.wait().returncode == 0 else guest.stderr
    except NotAvailable as error:
        return str(error)


def by_length(collected: str) -> list[str]:
    """The files of `pytest --collect-only -q`, those with the most tests first:

    a rough guess at what takes longest.
    """
    counts = Counter(line.partition("::")[0] for line in collected.splitlines() if "::" in line)
    return [path for path, _ in counts.most_common()]


def run_files(
    kernel: Kernel,
    files: Sequence[str],
    argv: Sequence[str],
    scratch: Path,
    say: Say,
    seed: int = 1,
    pace: Callable[[], Pace] = lambda: Pace.FULL,
) -> tuple[list[Path], int, list[Case]]:
    """Run pytest with `argv` on each file; what a run prints is printed at its end.

    `pace` is asked again and again. Returns the JUnit files, which lie in `scratch`, how many runs
    broke beside what those tell, and each file's seconds on this machine's clock.
    """
    cpus = range(len(os.sched_getaffinity(0)))
    waiting, running = list(files), list[_Run]()
    written: list[Path] = []
    broken, cases = 0, list[Case]()
    try:
        while (waiting or running) and pace() is not Pace.STOP:
            for cpu in sorted(set(cpus) - {run.cpu for run in running}):
                if waiting:
                    say(f"guest for {waiting[0]} ({len(waiting) - 1} files wait)")
                    running.append(_Run(kernel, waiting.pop(0), argv, cpu, seed))
            for run in running:
                run.keep(pace())
            time.sleep(POLL_S)
            for run in list(running):
                if (ended := run.ended()) is None:
                    continue
                code, text = ended
                running.remove(run)
                xml = run.close(scratch)
                cases.append(Case(f"{run.path} (a guest)", time.monotonic() - run.started_s))
                say(f"guest for {run.path}: {cases[-1].seconds:.0f} s, says:\n{text.rstrip()}")
                if xml is not None:
                    written.append(xml)
                # A guest that selects nothing breaks, too: the host has collected tests of this
                # file.
                broken += code not in (0, 1) or xml is None
    finally:
        for run in running:
            run.guest.end()
    return written, broken, cases
