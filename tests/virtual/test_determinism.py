"""Virtual time: the same run twice gives the same table, another seed another one, and sleeping costs nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.lab.guest import Guest
from ri2n_sdn.lab.kernels import Kernel

ETC_NETNS = Path("/etc/netns")
FIGURES = ("total_of_optimum", "worst_share")


def bench(path: Path, *options: str) -> dict[str, Any]:
    """The document of a short `ri2n bench fig4`: B with one link and C with two, ours and a peer."""
    command = [sys.executable, "-m", "ri2n_sdn.cli.main", "bench", "fig4", "--kernel", "virtual", "--topologies", "d"]
    command += ["--strategies", "max_min", "--peers", "ovs_equal", "--streams", "4", "--seconds", "3", "--warmup", "1"]
    subprocess.run([*command, *options, "--json", str(path)], check=True, capture_output=True, timeout=900)
    document: dict[str, Any] = json.loads(path.read_text())
    assert document["complete"]
    return document


@pytest.mark.timeout(1900)
def test_the_same_run_twice_gives_the_same_table(virtual: Kernel, tmp_path: Path) -> None:
    first, second = (bench(tmp_path / f"{number}.json") for number in (1, 2))
    assert len(first["rows"]) == len(second["rows"]) == 2
    for one, two in zip(first["rows"], second["rows"], strict=True):
        for figure in FIGURES:
            assert two[figure] == pytest.approx(one[figure], rel=0.01)
        for client, seen in one["clients"].items():
            assert two["clients"][client]["goodput_bps"] == pytest.approx(seen["goodput_bps"], rel=0.01)
        assert one["total_of_optimum"] > 0.5
    assert first["context"]["lab_kernel"] == "virtual"
    assert first["context"]["guest_s"] > 10


def test_the_clock_does_not_depend_on_labs_of_the_machine_itself(virtual: Kernel) -> None:
    """Each reading of the clock moves it, and making a folder that is there takes fewer than making a new one."""
    code = "import os, time; os.makedirs('/etc/netns/ri2n-x'); print(time.monotonic_ns())"

    def ended() -> int:
        with Guest(virtual, [sys.executable, "-c", code], limit_s=100) as guest:
            assert guest.wait().returncode == 0, guest.stderr
            return int(guest.stdout)

    alone = ended()
    folder = ETC_NETNS / f"ri2n-test-{os.getpid()}"
    folder.mkdir(parents=True)
    try:
        assert ended() == alone
    finally:
        folder.rmdir()
        with suppress(OSError):
            ETC_NETNS.rmdir()  # as labs do: only when empty


def test_random_numbers_follow_from_the_seed(virtual: Kernel) -> None:
    def numbers(seed: int) -> str:
        command = [sys.executable, "-c", "import os; print(os.urandom(16).hex(), hash('x'))"]
        with Guest(virtual, command, limit_s=100, seed=seed) as guest:
            assert guest.wait().returncode == 0
            return guest.stdout

    assert numbers(1) == numbers(1) != numbers(2)


def test_sleeping_costs_nothing(virtual: Kernel) -> None:
    with Guest(virtual, ["sleep", "600"], limit_s=300) as guest:
        result = guest.wait()
    assert result.guest_s == pytest.approx(600, abs=0.1)
    assert result.real_s < 300
