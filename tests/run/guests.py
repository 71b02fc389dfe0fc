# SPDX-License-Identifier: Apache-2.0
"""Run test files in guests with virtual time: a new guest per file, one guest at a time per CPU.

Since each file has a guest of its own, its run can be repeated to the bit. It does not depend on
the files that run beside it, on their order, or on the folder of this checkout. So with the same
seed everybody gets the same failure.
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

__all__ = ["Pace", "by_length", "can_boot", "compile_once", "in_checkout", "python", "run_files"]

POLL_S = 0.2
SILENCE_S = 900.0
"""Seconds without a sign of life after which a guest is ended.

A program that spins stops the guest's clock, and with it every time-out in the guest.
"""

TICK_S = 30
PROJECT = "/run/ri2n-project"
"""The folder at which a guest sees this checkout."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

BYTECODE = "bytecode.tar"
"""The file in a guest's shared folder with what Python compiled in the guest before all others."""

IN_GUEST = f"""
mkdir {PROJECT} /run/tmp && mount --bind {SHARE}/project {PROJECT} && cd {PROJECT} || exit
installed=.venv/lib/python*/site-packages
sed -i -f {SHARE}/project.sed .venv/pyvenv.cfg .venv/bin/ri2n $installed/ri2n_*-*/direct_url.json
rm -f $installed/__editable__* && echo {PROJECT} >$(echo $installed)/ri2n.pth
if [[ ${{RI2N_BATCH_READS-}} ]]; then
    cp "$RI2N_BATCH_READS" /run/batch.so && RI2N_BATCH_READS=/run/batch.so
fi
[[ -e {SHARE}/{BYTECODE} ]] && tar -xf {SHARE}/{BYTECODE} -C /run/tmp
unset RI2N_SHARE
known=(PATH={PATH} HOME=/run/tmp TMPDIR=/run/tmp LANG=C.UTF-8)
for name in "${{!RI2N_@}}"; do known+=("$name=${{!name}}"); done
while sleep {TICK_S}; do echo >>{SHARE}/clock; done &
exec env -i "${{known[@]}}" PYTHONPATH={PROJECT} PYTHONPYCACHEPREFIX=/run/tmp/pyc "$@"
"""
"""The script that runs a command in a guest exactly as in any other checkout, for any user.

If a program reads one byte more, the places of its data in memory change, then the order of a set,
and in the end a packet. So:

* The guest sees this checkout always in the same folder, PROJECT, and the script writes that name
  into the checkout's installation, too. (A file that a guest changes is changed in that guest
  only.) Our packages are found there by a plain path: the finders of `pip install --editable` cost
  each Python half of its start.
* Files that Python compiled on this machine before are not used, only those that COMPILE made in a
  guest. Temporary files are in an empty folder.
* The script makes the environment, except for our own variables.
* The name of the checkout's own folder is in no argument and no variable of any process in the
  guest, since its length would have the same effect.

The script adds a line to a file every TICK_S seconds of the guest's clock, as a sign of life.
"""

COMPILE = f"""
"$@" >/dev/null
"$1" -m tests.run.import_all
tar --sort=name -cf {SHARE}/{BYTECODE}.part -C /run/tmp pyc
mv {SHARE}/{BYTECODE}.part {SHARE}/{BYTECODE}
"""
"""The script that makes BYTECODE in a guest; its arguments are a command that collects the tests.

To compile all modules that tests and programs import takes seconds of CPU. So it is done once per
run, and not again in each guest.
"""

LIMIT_S = 24 * 3600.0  # ten tests of ten minutes with 4,000 packets/s take hours
BOOT_LIMIT_S = 300.0
LAST = 19  # the niceness of a process that gets only the CPU that others leave

Say = Callable[[str], None]


class Pace(Enum):
    """How guests run: with the CPU that others leave, as other processes, or not any more.

    The clocks in the guests do not depend on it.
    """

    GENTLE = "gentle"
    FULL = "full"
    STOP = "stop"


def python() -> str:
    """This Python, as it is named in a guest."""
    return sys.executable.replace(f"{ROOT}/", f"{PROJECT}/", 1)


def _pytest() -> list[str]:
    """The beginning of a command that runs pytest in a guest."""
    return [python(), "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def in_checkout(
    kernel: Kernel,
    line: Sequence[str],
    cpu: int,
    seed: int,
    bytecode: Path | None = None,
    copy: Path | None = None,
) -> Guest:
    """A guest that runs a command in this checkout, as IN_GUEST says.

    `bytecode` is compile_once's file. `copy` is shown in place of this checkout; its .venv is this
    checkout's.
    """
    put: dict[str, str | Path] = {"project.sed": f"s|{ROOT}|{PROJECT}|g\n"}
    put["project"] = copy or ROOT
    if bytecode is not None:
        put[BYTECODE] = bytecode
    return Guest(
        kernel,
        ["bash", "-c", IN_GUEST, "in-guest", *line],
        limit_s=LIMIT_S,
        cpu=cpu,
        seed=seed,
        cwd=Path("/"),
        env={"PATH": PATH, "LANG": "C.UTF-8"},
        put=put,
    )


class _Run:
    """One file in its guest.

    A test of ten minutes may print nothing for longer than SILENCE_S, so it is a sign of life, too,
    that the guest's clock moves. If a test waits for ever while the clock moves, a time-out in the
    guest ends it.
    """

    def __init__(
        self,
        kernel: Kernel,
        path: str,
        argv: Sequence[str],
        cpu: int,
        seed: int,
        bytecode: Path | None = None,
    ) -> None:
        self.path, self.cpu = path, cpu
        self.started_s = self._heard_s = time.monotonic()
        self._size = 0
        line = [*_pytest(), f"--junitxml={SHARE}/junit.xml", *argv, path]
        self.guest = in_checkout(kernel, line, cpu, seed, bytecode)
        self._pace = Pace.FULL

    def keep(self, pace: Pace) -> None:
        """Set the guest's pace.

        A guest that gets only the CPU that others leave may be late, so its silence is not counted.
        """
        if pace is Pace.GENTLE:
            self._heard_s = time.monotonic()
        if pace is not self._pace and self.guest.renice(
            LAST if pace is Pace.GENTLE else os.getpriority(os.PRIO_PROCESS, 0)
        ):
            self._pace = pace

    def ended(self) -> tuple[int, str] | None:
        """Pytest's exit code and everything that it printed, or None while it runs.

        The code of a guest that has died or hangs is -1.
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
        """End the guest; the place of its JUnit file in `scratch`, or None if it wrote none."""
        made, kept = (
            self.guest.share / "junit.xml",
            scratch / (re.sub(r"\W", "_", self.path) + ".xml"),
        )
        if made.exists():
            shutil.move(made, kept)
        self.guest.end()
        return kept if kept.exists() else None


def can_boot(kernel: Kernel) -> str:
    """Why no guest boots on this machine, with the end of its console; empty when one boots."""
    try:
        with Guest(kernel, ["true"], limit_s=BOOT_LIMIT_S) as guest:
            return "" if guest.wait().returncode == 0 else guest.stderr
    except NotAvailable as error:
        return str(error)


def compile_once(kernel: Kernel, scratch: Path, copy: Path | None = None) -> Path:
    """Compile, in a guest, all that labs' tests and programs import; a tar file in `scratch`.

    It is the same for each choice of tests, since a run must not depend on what else runs. `copy`
    is that of `in_checkout`. Raises NotAvailable when that guest dies or makes no file.
    """
    line = ["bash", "-c", COMPILE, "compile", *_pytest(), "--collect-only", "tests/lab"]
    with in_checkout(kernel, line, 0, 1, copy=copy) as guest:
        guest.wait()
        if not (guest.share / BYTECODE).exists():
            raise NotAvailable(f"the tests cannot be compiled: {guest.stderr.strip()[-600:]}")
        return Path(shutil.move(guest.share / BYTECODE, scratch / BYTECODE))


def by_length(collected: str) -> list[str]:
    """The files in the output of `pytest --collect-only -q`, those with the most tests first.

    The number of tests is a rough guess at how long a file takes.
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
    bytecode: Path | None = None,
) -> tuple[list[Path], int, list[Case]]:
    """Run pytest with `argv` on each file, in guests; print what a run printed at its end.

    `pace` is called again and again for the current pace; `bytecode` is compile_once's file.
    Returns the JUnit files, which are in `scratch`, the number of runs that broke in a way that no
    JUnit file shows, and each file's seconds by this machine's clock.
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
                    running.append(_Run(kernel, waiting.pop(0), argv, cpu, seed, bytecode))
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
                # A guest that selects nothing is broken, too: the host has collected tests of this
                # file.
                broken += code not in (0, 1) or xml is None
    finally:
        for run in running:
            run.guest.end()
    return written, broken, cases
