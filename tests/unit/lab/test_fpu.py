# SPDX-License-Identifier: Apache-2.0
"""The guests' kernel has room for the FPU state of this CPU, whichever it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ri2n_lab.cli import guest_doctor
from ri2n_lab.guests.fpu import ROOM_BYTES, host_fpu_bytes
from ri2n_sdn.errors import NotAvailable

PATCH = Path(__file__).resolve().parents[3] / "ri2n_lab" / "guests" / "kernel" / "fpu-state.patch"
LARGEST_KNOWN_BYTES = 11_008 + 128  # with AMX and APX


def test_the_kernel_has_room_for_this_cpu() -> None:
    size = host_fpu_bytes()
    assert 512 + 64 <= size < ROOM_BYTES  # at least the legacy part and the header


def test_the_kernel_has_room_for_every_cpu_known() -> None:
    added = re.findall(r"^\+.*HOST_FP_SIZE, (\d+)\)", PATCH.read_text(), re.MULTILINE)
    assert [int(size) for size in added] == [ROOM_BYTES]
    assert ROOM_BYTES > LARGEST_KNOWN_BYTES


@pytest.mark.parametrize(("size", "verdict"), [(2_432, "ok"), (11_008, "ok"), (ROOM_BYTES, "bad")])
def test_doctor_says_whether_there_is_room(
    monkeypatch: pytest.MonkeyPatch, size: int, verdict: str
) -> None:
    monkeypatch.setattr(guest_doctor, "host_fpu_bytes", lambda: size)
    finding = guest_doctor._fpu("h")
    assert finding.verdict == verdict and str(size) in finding.seen
    assert ("HOST_FP_SIZE" in finding.advice) == (verdict == "bad")


def test_doctor_says_when_this_machine_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise NotAvailable("the FPU state's size: ptrace: Operation not permitted")

    monkeypatch.setattr(guest_doctor, "host_fpu_bytes", refused)
    finding = guest_doctor._fpu("h")
    assert finding.verdict == "warning" and "not permitted" in finding.seen


def test_doctor_says_how_to_build_a_kernel_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RI2N_GUEST_KERNEL", str(tmp_path / "none"))
    (finding,) = guest_doctor.examine_guest("uml")
    assert finding.verdict == "bad" and "build-guest-kernel builds it" in finding.advice
