# SPDX-License-Identifier: Apache-2.0
"""A lab belongs to the process that holds its lock, until that process ends or lets it stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ri2n_lab.cluster import owners, state


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of labs for the test."""
    monkeypatch.setattr(state, "ROOT", tmp_path)
    return tmp_path


def recorded(name: str, *, stays: bool = False, phase: str = "up") -> state.LabState:
    """A lab with a record and nothing else."""
    lab = state.LabState(
        name=name,
        owner="root",
        phase=phase,
        pid=1,
        created_s=time.time(),
        datapath="netdev",
        topology={"hosts": {}},
        faults=[],
        stays=stays,
    )
    state.write_state(lab)
    return lab


def test_a_lab_belongs_to_the_process_that_holds_it_and_not_to_that_ones_programs() -> None:
    folder = state.run_dir("x")
    descriptor = owners.hold(folder)
    lab = recorded("x")
    assert owners.is_held(folder) and not owners.is_unowned(lab)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE):
        os.close(descriptor)
        assert owners.is_unowned(lab)


def test_the_kernel_releases_the_lab_of_a_process_that_is_killed() -> None:
    program = (
        "import sys; from pathlib import Path; from ri2n_lab.cluster import owners\n"
        "owners.hold(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    folder = state.run_dir("x")
    argv = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        lab = recorded("x")
        assert not owners.is_unowned(lab)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert owners.is_unowned(lab)


def test_a_lab_that_stays_needs_no_process_unless_its_removal_was_broken_off() -> None:
    assert not owners.is_unowned(recorded("x", stays=True))
    assert owners.is_unowned(recorded("x", stays=True, phase="removing"))


def test_a_lab_of_a_version_without_owners_stays() -> None:
    lab = vars(recorded("x"))
    path = state.run_dir("x") / "state.json"
    path.write_text(json.dumps({key: value for key, value in lab.items() if key != "stays"}))
    assert not owners.is_unowned(state.read_state("x"))


def test_folders_and_locks_of_the_dead_are_swept_and_no_others(root: Path) -> None:
    recorded("there")
    for name in ("begun", "worked-on", "No lab"):
        (root / name).mkdir()
    for name in ("old", "worked-on"):
        (root / f".lock-{name}").touch()
    with state.locked("worked-on"):
        state.sweep()
        assert {path.name for path in root.iterdir()} == {
            *("there", "worked-on", "No lab", ".lock-worked-on")
        }
    state.sweep()
    assert {path.name for path in root.iterdir()} == {"there", "No lab"}
