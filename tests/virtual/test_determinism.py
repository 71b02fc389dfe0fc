# SPDX-License-Identifier: Apache-2.0
"""Virtual time: the same run twice gives the same figures to the last digit.

Another seed gives others. Sleeping costs nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from ri2n_lab.guests.guest import Guest, GuestResult
from ri2n_lab.guests.kernels import Kernel

ETC_NETNS = Path("/etc/netns")
SLEEP_S = 600
LIMIT_S = 590.0  # so a second of sleep must cost less than a real one, else the guest is ended
# Each reading of the clock moves it, and fewer readings are needed for a folder that exists than
# for a new one.
SAY = """
import os, time
os.makedirs("/etc/netns/ri2n-x")
print(os.urandom(16).hex(), hash("x"), time.monotonic_ns())
"""

pytestmark = pytest.mark.timeout(1200)


class Told(NamedTuple):
    """What a guest printed after a long sleep, and how long it took."""

    random: str
    hashed: str
    clock_ns: str
    result: GuestResult


@contextmanager
def folder_of_a_lab() -> Iterator[None]:
    """The folder that a lab of the machine itself leaves as long as it is up."""
    folder = ETC_NETNS / f"ri2n-test-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        yield
    finally:
        folder.rmdir()
        with suppress(OSError):
            ETC_NETNS.rmdir()  # as labs do: only when it is empty


@pytest.fixture(scope="module")
def told(virtual: Kernel) -> list[Told]:
    """Three guests: of the first two, one runs beside a lab of the machine itself.

    The third has another seed.
    """

    def start(seed: int) -> Guest:
        command = f"sleep {SLEEP_S}; exec {sys.executable} -c '{SAY}'"
        return Guest(virtual, ["sh", "-c", command], limit_s=LIMIT_S, seed=seed)

    def heard(guest: Guest) -> Told:
        result = guest.wait()
        assert result.returncode == 0, guest.stderr
        random, hashed, clock_ns = guest.stdout.split()
        return Told(random, hashed, clock_ns, result)

    with ExitStack() as guests:
        first, other = (guests.enter_context(start(seed)) for seed in (1, 2))
        alone, another = heard(first), heard(other)
        with folder_of_a_lab():
            beside = heard(guests.enter_context(start(1)))
    return [alone, beside, another]


def test_random_numbers_follow_from_the_seed(told: list[Told]) -> None:
    first, second, other = ((each.random, each.hashed) for each in told)
    assert first == second
    assert first[0] != other[0] and first[1] != other[1]


def test_the_clock_does_not_depend_on_labs_of_the_machine_itself(told: list[Told]) -> None:
    assert told[0].clock_ns == told[1].clock_ns


def test_sleeping_costs_nothing(told: list[Told]) -> None:
    for each in told:
        assert each.result.guest_s == pytest.approx(SLEEP_S, abs=0.1)
        assert each.result.real_s < LIMIT_S


def bench(path: Path, cpu: int) -> subprocess.Popen[bytes]:
    """A short `ri2n bench fig4` on one CPU: a second of four streams over two links."""
    command = ["taskset", "-c", str(cpu)]
    command += [sys.executable, "-m", "ri2n_sdn.cli.main", "bench", "fig4"]
    command += ["--kernel", "virtual", "--topologies", "b"]
    command += ["--strategies", "max_min", "--streams", "4"]
    command += ["--seconds", "1", "--warmup", "1", "--json", str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_the_same_run_twice_gives_the_same_table(virtual: Kernel, tmp_path: Path) -> None:
    """The same to the last digit.

    This includes each second's figures, and how long the guest took by its own clock.
    """
    paths = [tmp_path / f"{number}.json" for number in (1, 2)]
    cpus = sorted(os.sched_getaffinity(0))
    for process in [bench(path, cpus[number % len(cpus)]) for number, path in enumerate(paths)]:
        said = process.communicate()[0].decode()
        assert process.returncode == 0, said
    first, second = (json.loads(path.read_text()) for path in paths)
    assert first["complete"] and first["context"]["lab_kernel"] == "virtual"
    (row,) = first["rows"]
    assert row["total_of_optimum"] > 0.5 and set(row["clients"]) == {"B"}
    for part in ("rows", "raw", "summary"):
        assert first[part] == second[part]
    assert first["context"]["guest_s"] == second["context"]["guest_s"]
