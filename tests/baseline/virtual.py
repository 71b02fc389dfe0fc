# SPDX-License-Identifier: Apache-2.0
"""What labs do in virtual time, by seed: what the controller says, and when, and what arrives.

Each run (virtual_runs.py) has a guest of its own. The text has two kinds of lines:

* Figures: events with their times, how many messages of each kind there are in each phase, packets
  lost, packets by NIC. These follow from what is planned, and from timers. When a program reads the
  clock once more, which moves it by 256 ns, rows and what is said to idle hosts stay; packets lost
  and counters of helpers may become others by some percent, since a fault comes at another moment
  between two probes.
* Hashes: of every frame between controller and hosts with its time in nanoseconds, and of every
  packet of a stream. They are the same in each run, under any load and on any CPU. A function that
  nobody calls changed none of them; a program that reads the clock once more changes them.

Hashes may also follow from the names of folders and from how many files a folder has. So guests
see a copy of the files that git knows alone. Where Python, Open vSwitch or the guests' kernel have
another version than the first line says, the part is skipped.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ri2n_lab.guests.kernels import Kernel, find_kernel
from ri2n_sdn.errors import NotAvailable
from tests.baseline.virtual_runs import RUNS
from tests.run.guests import compile_once, in_checkout, python
from tests.run.tiers import ROOT

__all__ = ["virtual"]

WRITTEN = Path(__file__).parent / "data" / "virtual.txt"
SEEDS = {"quiet": (1, 2)}
"""The seeds of a run that has others than the first alone."""


def virtual() -> str:
    """What all runs print. Raises NotAvailable without root or the guests' kernel."""
    if os.geteuid() != 0:
        raise NotAvailable("a lab needs root")
    kernel = find_kernel("virtual")
    head = _versions(kernel)
    runs = [(name, seed) for name in RUNS for seed in SEEDS.get(name, (1,))]
    with tempfile.TemporaryDirectory(prefix="ri2n-baseline.") as folder:
        checkout = Path(folder) / "checkout"
        _copy(checkout)
        bytecode = compile_once(kernel, Path(folder), checkout)

        def made(number: int) -> str:
            name, seed = runs[number]
            return _run(kernel, checkout, bytecode, name, seed, number)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return "\n".join([head, *pool.map(made, range(len(runs)))])


def _versions(kernel: Kernel) -> str:
    """The first line. Raises NotAvailable when what is written down was made with other ones."""
    switch = subprocess.run(["ovs-vswitchd", "--version"], capture_output=True, text=True).stdout
    ovs = switch.splitlines()[0].split()[-1] if switch else "none"
    head = f"Python {platform.python_version()}, Open vSwitch {ovs}, {kernel.image.name}\n"
    written = WRITTEN.read_text(encoding="utf-8").partition("\n")[0] if WRITTEN.exists() else ""
    if written not in ("", head.rstrip()):
        raise NotAvailable(
            f"written with {written}, and here is {head.rstrip()}: remove the file to renew it"
        )
    return head


def _copy(folder: Path) -> None:
    """Copy the files of this checkout that git knows, or would add; .venv is linked."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAvailable(f"needs a checkout of git: {done.stderr.strip()}")
    for name in filter(None, done.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")


def _run(kernel: Kernel, checkout: Path, bytecode: Path, name: str, seed: int, number: int) -> str:
    """What a run prints."""
    words = [python(), "-m", "tests.baseline.virtual_runs", name]
    with in_checkout(kernel, words, number, seed, bytecode, checkout) as guest:
        if guest.wait().returncode:
            raise NotAvailable(f"run {name}: {guest.stderr[-2000:]}")
        return f"---- {name}, seed {seed}\n{guest.stdout}"
