# SPDX-License-Identifier: Apache-2.0
"""What `./dev install` and `./dev setup` ask pip for, where pip only writes that down.

`./dev test` builds the guests' kernel meanwhile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.waiting import wait_until

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


KERNEL = """#!/bin/bash
[[ ${1-} != --print-path ]] || exec echo kernel
echo $$ >building
exec sleep 1000
"""
WAITS = """#!/bin/bash
[[ $1 != -m ]] || printf '%s\\n' "${*:2}" >>asked
[[ $2 != pip || -e kernel ]] || while [[ ! -e building ]]; do sleep 0.01; done
"""
"""pip, which waits until the kernel is being built."""


@pytest.fixture
def building(checkout: Path) -> Path:
    """The file with the pid of what builds the guests' kernel, in a checkout that has none."""
    script = checkout / "ri2n_lab/guests/kernel/build-guest-kernel"
    script.parent.mkdir(parents=True)
    script.write_text(KERNEL)
    script.chmod(0o755)
    return checkout / "building"


@pytest.mark.skipif(os.geteuid() != 0, reason="no guest boots without root")
def test_the_guests_kernel_is_built_while_pip_installs_and_no_longer_than_the_tests(
    checkout: Path, building: Path
) -> None:
    (checkout / ".venv/bin/python").write_text(WAITS)
    asked, said = dev(checkout, "test", "--seed", "2")
    assert "kernel is missing" in said
    assert any(line.startswith("pip") for line in asked) and asked[-1] == "tests.run --seed 2"
    pid = int(building.read_text())
    # Its output has ended, or `dev` had not returned.
    wait_until(lambda: not Path(f"/proc/{pid}/exe").exists(), "the build goes on")


@pytest.mark.parametrize(
    "argv", [["setup"], ["test", "--tier", "unit"], ["test", "--tier=rust"], ["test", "tests/unit"]]
)
def test_no_kernel_is_built_where_no_guest_is_wanted(
    checkout: Path, building: Path, argv: list[str]
) -> None:
    dev(checkout, *argv)
    assert not building.exists()


def test_a_kernel_that_is_there_is_not_built(checkout: Path, building: Path) -> None:
    kernel = checkout / "kernel"
    kernel.touch()
    kernel.chmod(0o755)
    assert "kernel" not in dev(checkout, "test")[1]
    assert not building.exists()
