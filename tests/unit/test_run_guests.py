# SPDX-License-Identifier: Apache-2.0
"""When a guest that runs a file of tests is given up."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ri2n_lab.guests.kernels import Kernel
from tests.run import guests


class FakeGuest:
    """A guest that never ends; what it prints is in its folder."""

    stdout, stderr = "said", ""

    def __init__(self, kernel: Kernel, line: list[str], **_: Any) -> None:
        self.share = kernel.image
        (self.share / "stdout").touch()

    def poll(self) -> None:
        return None


def test_a_guest_is_given_up_when_it_neither_speaks_nor_its_clock_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of ten virtual minutes may be silent for longer than the limit.

    A test that spins stops the clock.
    """
    now_s = [1000.0]
    monkeypatch.setattr(guests, "Guest", FakeGuest)
    monkeypatch.setattr("tests.run.guests.time.monotonic", lambda: now_s[0])
    run = guests._Run(Kernel("virtual", tmp_path, virtual=True), "tests/lab/test_x.py", [], 0, 1)
    for file in (tmp_path / "clock", tmp_path / "stdout") * 3:
        now_s[0] += 0.9 * guests.SILENCE_S
        with file.open("a") as written:
            written.write("\n")
        assert run.ended() is None
    now_s[0] += 0.9 * guests.SILENCE_S
    assert run.ended() is None
    now_s[0] += 0.2 * guests.SILENCE_S
    ended = run.ended()
    assert ended is not None and ended[0] == -1 and "its clock has not moved" in ended[1]


def test_guests_leave_cpu_to_others_as_long_as_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that has nearly no CPU prints nothing for hours: that does not make it dead."""
    log: list[str] = []
    paces = [guests.Pace.GENTLE] * 4 + [guests.Pace.FULL] * 4
    now_s = [0.0]

    class Ending(FakeGuest):
        def renice(self, nice: int) -> bool:
            log.append(f"nice {nice}")
            return len(log) > 2  # its kernel has not started at once

        def poll(self) -> Any:
            now_s[0] += guests.SILENCE_S / 3
            return None if paces else SimpleNamespace(returncode=0)

        def end(self) -> None:
            log.append("end")

    def pace() -> guests.Pace:
        return paces.pop(0) if paces else guests.Pace.FULL

    monkeypatch.setattr(guests, "Guest", Ending)
    monkeypatch.setattr("tests.run.guests.time.sleep", lambda _: None)
    monkeypatch.setattr("tests.run.guests.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("tests.run.guests.os.sched_getaffinity", lambda _: {0})
    kernel = Kernel("virtual", tmp_path, virtual=True)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    _, broken, cases = guests.run_files(
        kernel, ["tests/lab/test_x.py"], [], tmp_path, log.append, 1, pace
    )
    said = [line for line in log if line.startswith(("nice", "end"))]
    assert said == ["nice 19", "nice 19", f"nice {own}", "end"]
    assert len(cases) == 1 and broken == 1, "it has left no JUnit file"


def test_a_run_that_is_stopped_ends_its_guests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    looks = iter([guests.Pace.GENTLE, guests.Pace.GENTLE, guests.Pace.STOP])

    class Running(FakeGuest):
        def renice(self, nice: int) -> bool:
            return True

        def end(self) -> None:
            ended.append("end")

    monkeypatch.setattr(guests, "Guest", Running)
    kernel = Kernel("virtual", tmp_path, virtual=True)
    files = ["tests/lab/test_x.py", "tests/lab/test_y.py"]
    monkeypatch.setattr("tests.run.guests.os.sched_getaffinity", lambda _: {0})
    guests.run_files(kernel, files, [], tmp_path, lambda _: None, 1, lambda: next(looks))
    assert ended == ["end"], "the one that ran; the other one has not begun"
