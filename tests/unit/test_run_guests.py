"""When a guest that runs a file of tests is given up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ri2n_sdn.lab.kernels import Kernel
from tests.run import guests


class FakeGuest:
    """A guest that never ends; what it says is in its folder."""

    stdout, stderr = "said", ""

    def __init__(self, kernel: Kernel, line: list[str], **_: Any) -> None:
        self.share = kernel.image
        (self.share / "stdout").touch()

    def poll(self) -> None:
        return None


def test_a_guest_is_given_up_when_it_neither_speaks_nor_its_clock_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test of ten virtual minutes takes longer than that in silence; one that spins stops the clock."""
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
