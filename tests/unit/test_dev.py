# SPDX-License-Identifier: Apache-2.0
"""What `./dev install` and `./dev setup` ask pip for, where pip only writes that down."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = (
    "dev",
    "requirements.lock",
    "setup.cfg",
    "pyproject.toml",
    "ri2n_lab/pyproject.toml",
    "ri2n_parallel/pyproject.toml",
    "reorder/Cargo.toml",
    "reorder/Cargo.lock",
)
PYTHON = """#!/bin/bash
[[ $1 != -m ]] || printf '%s\\n' "${*:5}" >>asked
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in NEEDED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "reorder/src").mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    for path, text in (
        (tmp_path / ".venv/bin/python", PYTHON),
        (programs / "apt-get", "#!/bin/sh\nexit 1\n"),
        (programs / "cargo", "#!/bin/sh\n[ $1 != --version ] || echo cargo 1.99.0\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / "reorder/target/release").mkdir(parents=True)
    (tmp_path / "reorder/target/release/ri2n-reorder").touch()
    return tmp_path


def dev(checkout: Path, *argv: str, code: int = 0) -> tuple[list[str], str]:
    """What it asked pip for, and what it said."""
    (checkout / "asked").unlink(missing_ok=True)
    env = {
        "PATH": f"{checkout}/programs:{os.environ['PATH']}:/usr/sbin:/sbin",
        "HOME": str(checkout),
    }
    done = subprocess.run(["./dev", *argv], cwd=checkout, capture_output=True, text=True, env=env)
    assert done.returncode == code, done
    asked = checkout / "asked"
    return asked.read_text().splitlines() if asked.exists() else [], done.stdout + done.stderr


LEAN = ["install --constraint requirements.lock -e .[web]"]
FULL = [
    "install --constraint requirements.lock -r requirements.lock",
    "install --constraint requirements.lock -e .[web,docs,test,check] -e ./ri2n_parallel[cli]"
    " -e ./ri2n_lab",
]


def test_a_controllers_machine_gets_nothing_for_tests(checkout: Path) -> None:
    helper = checkout / ".venv/bin/ri2n-reorder"
    assert dev(checkout, "install", "--no-helper")[0] == LEAN
    assert not helper.exists()
    assert dev(checkout, "install", "--no-helper")[0] == []
    assert "build ri2n-reorder" in dev(checkout, "install")[1]
    assert helper.exists()


def test_setup_adds_the_rest_and_install_is_content_with_it(checkout: Path) -> None:
    assert dev(checkout, "install")[0] == LEAN
    assert dev(checkout, "setup")[0] == FULL
    assert dev(checkout, "install")[0] == []
    assert dev(checkout, "setup")[0] == []


def test_a_helper_that_does_not_build_is_told(checkout: Path) -> None:
    (checkout / "programs/cargo").write_text("#!/bin/sh\n[ $1 = --version ] && echo cargo 1.99.0\n")
    said = dev(checkout, "install", code=2)[1]
    assert "ri2n-reorder does not build" in said


def test_an_unknown_argument_changes_nothing(checkout: Path) -> None:
    asked, said = dev(checkout, "install", "--no-helpers", code=2)
    assert asked == [] and "--no-helpers" in said
