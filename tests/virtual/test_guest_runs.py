# SPDX-License-Identifier: Apache-2.0
"""`./dev test` in guests: what passes, fails, dies or hangs is reported as such.

Nobody waits for it.
"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from ri2n_lab.guests.kernels import Kernel
from tests.run import guests
from tests.run.tally import read_junit

FILES = {
    # A sign of life every 30 s of its clock.
    "good": "import pathlib, time\n"
    "def test_one(): time.sleep(95)\n"
    "def test_two(): assert pathlib.Path('/run/ri2n-guest/clock').read_text() == '\\n' * 3\n",
    "bad": "def test_one(): assert 1 == 2, 'one is not two'\n",
    # The guest is switched off: pytest prints nothing, and there is no JUnit file.
    "dead": "import pathlib, time\n"
    "def test_one(): pathlib.Path('/proc/sysrq-trigger').write_text('o'); time.sleep(1000)\n",
    # A program that spins stops the guest's clock, so that no time-out in the guest ever comes.
    "spinning": "def test_one():\n    while True: pass\n",
}


def test_files_that_pass_fail_die_and_hang(
    virtual: Kernel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    scratch = tmp_path_factory.mktemp("scratch")
    for name, text in FILES.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    files = [str(tmp_path / f"test_{name}.py") for name in FILES]
    said: list[str] = []
    written, broken, cases = guests.run_files(
        virtual, files[:3], ["--rootdir", str(tmp_path)], scratch, said.append
    )
    outcome = read_junit("kernel", written, 0.0, broken=broken)
    text = "\n".join(said)
    assert (outcome.passed, outcome.failed) == (2, 2), text
    assert broken == 1 and len(cases) == 3
    assert "one is not two" in text and "the guest died" in text
    monkeypatch.setattr(guests, "SILENCE_S", 15.0)
    assert guests.run_files(virtual, files[3:], ["--rootdir", str(tmp_path)], scratch, said.append)[
        :2
    ] == ([], 1)
    assert "no test has ended and its clock has not moved for 15 s" in said[-1]
    assert not guests.can_boot(virtual)


def checkout(folder: Path) -> Path:
    """A checkout in `folder` with one test.

    It has an environment of its own, which has this Python's packages.
    """
    packages = folder / ".venv" / "lib" / f"python3.{sys.version_info.minor}"
    packages.mkdir(parents=True)
    (packages / "site-packages").symlink_to(Path(pytest.__file__).parents[1])
    (folder / ".venv" / "bin").mkdir()
    (folder / ".venv" / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (folder / ".venv" / "bin" / "ri2n").write_text(f"#!{folder}/.venv/bin/python\n")
    home = Path(sys.executable).resolve().parent
    (folder / ".venv" / "pyvenv.cfg").write_text(
        f"home = {home}\ncommand = {home}/python3 -m venv {folder}/.venv\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_all.py").write_text(
        "import os, subprocess, sys, time, module\n"
        "def test_one(tmp_path):\n"
        "    said = subprocess.run([sys.executable, '-c', 'import module'], "
        "stdout=subprocess.PIPE, check=True)\n"
        "    print(said, tmp_path, id([]), hash(''), os.urandom(4), sorted(os.environ.items()), "
        "time.monotonic_ns())\n"
    )
    (folder / "module.py").write_text("import numpy\nprint(id([]), hash(''))\n")
    (folder / "tests" / "run").mkdir(parents=True)
    (folder / "tests" / "run" / "import_all.py").write_text("import module\n")
    return folder


def test_a_file_gives_the_same_to_the_bit_in_any_folder(
    virtual: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment has no influence either."""
    heard = []
    for name, lang in (("short", "C"), ("longer-by-far", "POSIX")):
        folder = checkout(tmp_path / name)
        monkeypatch.setattr(guests, "ROOT", folder)
        monkeypatch.setattr(sys, "executable", str(folder / ".venv" / "bin" / "python"))
        monkeypatch.setenv("LANG", lang)
        said: list[str] = []
        bytecode = guests.compile_once(virtual, tmp_path)
        with tarfile.open(bytecode) as packed:
            assert any("module.cpython" in each for each in packed.getnames())
        written, broken, _ = guests.run_files(
            virtual, ["test_all.py"], ["-rP"], tmp_path, said.append, bytecode=bytecode
        )
        assert not broken and len(written) == 1, said
        heard += [line for line in said[-1].splitlines() if "CompletedProcess" in line]
    assert len(heard) == 2 and heard[0] == heard[1], heard


def test_a_tier_whose_guests_cannot_boot_ends_at_once(tmp_path: Path) -> None:
    image = tmp_path / "kernel"
    image.write_text("#!/bin/bash\necho 'Kernel panic - not syncing: no CPU'; exec sleep 1000\n")
    image.chmod(0o755)
    assert "Kernel panic - not syncing: no CPU" in guests.can_boot(
        Kernel("virtual", image, virtual=True)
    )
